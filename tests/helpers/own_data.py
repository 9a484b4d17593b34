"""Data that a user might have, written to disk for the tests: real digits and wines, made-up tweets."""

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits, load_wine

NAMES = ["Ada", "Grace", "Alan", "Kurt", "Emmy"]
PLACES = ["Paris", "Rome", "Kyoto"]


def made_up(number=60):
    """Return sentences like WNUT-17's, as the lines of a file."""
    lines = []
    for k in range(number):
        name, place = NAMES[k % 5], PLACES[k % 3]
        words = [
            (name, "B-person"),
            ("Smith", "I-person"),
            ("saw", "O"),
            (f"@user{k}", "O"),
            ("in", "O"),
            (place, "B-location"),
        ]
        lines += [f"{word}\t{tag}" for word, tag in words[k % 2 :]] + [""]
    return "\n".join(lines)


def write_digits(folder, number=200, *, moved=0.0, seed=0):
    """Write real digits as PNG files, one folder a class; a share of them into the wrong folder."""
    data, chooser = load_digits(), np.random.default_rng(seed)
    for k, (image, label) in enumerate(zip(data.images[:number], data.target, strict=False)):
        place = (label + chooser.integers(1, 10)) % 10 if chooser.random() < moved else label
        (folder / f"digit {place}").mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 255 / 16).astype(np.uint8)).save(
            folder / f"digit {place}" / f"{k}_{label}.png"
        )
    return folder


def write_wine(path, **columns):
    bunch = load_wine(as_frame=True)
    bunch.frame.assign(**columns).to_csv(path, index=False)
    return path

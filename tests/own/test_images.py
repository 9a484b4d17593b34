"""Folders of images: what is read, what is skipped and listed, what is refused."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL")
from PIL import Image, ImageOps

from activebias.own.images import read_images
from own_data import write_digits


@pytest.fixture
def photos(tmp_path):
    return write_digits(tmp_path / "photos")


def read(folder, **options):
    return read_images(folder, **{"validation": 0.2, "seed": 0} | options)


def test_digits_in_folders(photos):
    data = read(photos)
    assert data.kind == "images"
    assert data.class_names == tuple(f"digit {k}" for k in range(10))
    assert (len(data.train), len(data.validation)) == (160, 40)
    assert data.train.inputs[0].shape == (160, 1, 32, 32)
    assert data.inputs.images.shape == (200, 32, 32)
    labels = [*data.train.targets.tolist(), *data.validation.targets.tolist()]
    for k in (0, 80, 159, 160, 199):  # image, file name and label stay together
        name = Path(data.inputs.names[k])
        assert name.parent.name == data.class_names[labels[k]]
        pixels = np.asarray(Image.open(name).resize((32, 32), Image.Resampling.BICUBIC))
        np.testing.assert_array_equal(data.inputs.images[k], pixels)
    assert data.skipped == data.notes == ()
    counts = np.bincount(data.validation.targets.numpy())
    assert counts.min() >= 3  # every class is validated
    assert counts.max() <= 5


def test_the_seed_decides_the_parts(photos):
    first, again, other = (read(photos, seed=seed).train_position.tolist() for seed in (0, 0, 1))
    assert first == again != other


def test_bad_files_are_listed_and_end_nothing(photos):
    good = next((photos / "digit 3").iterdir())
    (photos / "digit 3" / "broken.png").write_bytes(good.read_bytes()[:60])
    (photos / "digit 3" / "notes.txt").write_text("not an image")
    (photos / "digit 3" / ".DS_Store").write_bytes(b"x")
    (photos / "digit 3" / "empty.jpg").touch()
    (photos / "loose.png").write_bytes(good.read_bytes())
    (photos / "zebra").mkdir()
    (photos / "yak").mkdir()
    (photos / "yak" / "yak.png").write_text("no")
    data = read(photos)
    listed = {Path(each["what"]).name: each["why"] for each in data.skipped}
    assert sorted(listed) == [
        "broken.png",
        "class yak",
        "class zebra",
        "empty.jpg",
        "loose.png",
        "notes.txt",
        "yak.png",
    ]
    assert "truncated" in listed["broken.png"]
    assert "not a readable image" in listed["notes.txt"]
    assert "empty" in listed["class zebra"]
    assert "no class" in listed["loose.png"]
    assert len(data.class_names) == 10
    assert len(data.train) + len(data.validation) == 200


def test_kinds_of_images(tmp_path):
    """Colour, transparency, palettes, 16 bits, a tall photograph with a rotation: all become RGB squares."""
    chooser = np.random.default_rng(0)
    for k in range(12):
        name = "ab"[k % 2]
        (tmp_path / name).mkdir(exist_ok=True)
        pixels = chooser.integers(0, 256, (90, 40, 4), dtype=np.uint8)
        image = [
            Image.fromarray(pixels[..., :3]),
            Image.fromarray(pixels),
            Image.fromarray(pixels[..., 0]),
            Image.fromarray(pixels[..., :3]).convert("P"),
            Image.fromarray(pixels[..., 0].astype(np.uint16) * 200),
            Image.fromarray(pixels[..., :3]).convert("CMYK"),
        ][k // 2]
        exif = Image.Exif()
        exif[0x0112] = 6  # lies on its side
        image.save(tmp_path / name / f"{k}.{'jpg' if k // 2 == 5 else 'png'}", exif=exif)
    data = read(tmp_path, validation=0.34)
    assert data.skipped == ()
    assert data.inputs.images.shape[1:] == (64, 64, 3)
    assert data.inputs.images[:, 0].max() == 0  # wide now: padded above and below, nothing cut
    assert data.inputs.images[:, 32].max() > 100


MEASURE = """
import sys
from pathlib import Path

import PIL.JpegImagePlugin
import PIL.PngImagePlugin
import sklearn.model_selection
from activebias.own.images import read_images

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1000

before = peak()
for folder in sys.argv[1:]:
    data = read_images(Path(folder), validation=0.5, seed=0)
    assert len(data.train) + len(data.validation) == 8, data.skipped
    print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Peak RAM is read from Linux's /proc.")
def test_large_images_take_a_bounded_amount_of_ram(tmp_path, fresh_python):
    """Four images of 16 million pixels each, of which a copy takes 64 MB."""
    kinds = {
        "jpeg": ("RGB", "jpg", {}, 100),
        "16 bits": ("I;16", "png", {}, 200),
        "png": ("RGB", "png", {}, 200),
        "progressive": ("RGB", "jpg", {"progressive": True}, 200),
    }
    for kind, (mode, suffix, options, _) in kinds.items():
        for k in range(4):
            (tmp_path / kind / "ab"[k % 2]).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (40 * k, 0, 0)).save(tmp_path / kind / "ab"[k % 2] / f"small {k}.png")
        first, *copies = (tmp_path / kind / "a" / f"large {k}.{suffix}" for k in range(4))
        Image.new(mode, (4000, 4000)).save(first, **options)
        for copy in copies:
            shutil.copy(first, copy)
    # A process of its own; not resource.getrusage, whose peak begins with that of the parent.
    code, printed, complaint = fresh_python(MEASURE, *(tmp_path / kind for kind in kinds))
    assert code == 0, complaint
    grown = dict(zip(kinds, map(int, printed.split()), strict=True))
    assert all(grown[kind] < kinds[kind][-1] for kind in kinds), grown


def test_a_large_photograph_is_read_as_without_draft_mode(tmp_path):
    """Within a few of 255 levels, and turned as its EXIF says; up to 1,023 pixels only rounding differs."""
    ramp = np.linspace(0, 255, 96, dtype=np.uint8)
    pixels = np.stack([np.tile(ramp, (64, 1)), np.tile(ramp[:64, None], (1, 96)), np.full((64, 96), 90)], 2)
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    for folder, size, most in (("large", (4032, 2688), 8), ("small", (1008, 672), 1)):
        for k in range(4):
            path = tmp_path / folder / "ab"[k % 2] / f"{k}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            image = Image.fromarray((pixels // (k + 1)).astype(np.uint8)).resize(size)
            image.save(path, quality=95, exif=exif)
        data = read(tmp_path / folder, validation=0.5)
        for name, found in zip(data.inputs.names, data.inputs.images, strict=True):
            whole = ImageOps.exif_transpose(Image.open(name))
            whole.thumbnail((64, 64))
            expected = np.asarray(ImageOps.pad(whole, (64, 64)))
            assert np.abs(found.astype(int) - expected).max() <= most


def test_names_that_are_no_utf8(photos):
    """Such a name can stand in no file of text, and must not end a run after its training."""
    good = next((photos / "digit 3").iterdir())
    folder = os.fsencode(photos / "digit 3")
    try:
        Path(os.fsdecode(folder + b"/\xff.png")).write_bytes(good.read_bytes())
    except OSError:
        pytest.skip("This file system takes names in UTF-8 only.")
    Path(os.fsdecode(folder + b"/\xfe.png")).write_text("no image")
    data = read(photos)
    names = [*data.inputs.names, *(each["what"] for each in data.skipped)]
    assert sum("\ufffd" in name for name in names) == 2
    "".join(names).encode()


def test_mean_and_deviation_are_those_of_the_training_pixels(photos, monkeypatch):
    monkeypatch.setattr("activebias.own.images._AT_ONCE", 7)
    data = read(photos)
    pixels = data.train.inputs[0].double()
    arguments = data.model["arguments"]
    assert arguments["mean"] == [pytest.approx(float(pixels.mean()), abs=1e-4)]
    assert arguments["std"] == [pytest.approx(float(pixels.std(correction=0)), abs=1e-4)]


def test_duplicates_stay_on_one_side(photos):
    for k in range(20):
        source = sorted((photos / "digit 1").iterdir())[0]
        target = photos / ("digit 1" if k else "digit 2") / f"copy {k}.png"
        target.write_bytes(source.read_bytes())
    data = read(photos, validation=0.5)
    assert data.notes[0] == "Duplicate images: 20. Copies of the same input are never in both parts."
    shown = {image.numpy().tobytes() for image in data.train.inputs[0][:, 0]}
    validated = {image.numpy().tobytes() for image in data.validation.inputs[0][:, 0]}
    assert not shown & validated


def test_folders_that_differ_in_case_are_named(photos):
    (photos / "Digit 3").mkdir()
    if len(list(photos.iterdir())) == 10:
        pytest.skip("This file system takes both names for one.")
    for path in sorted((photos / "digit 3").iterdir())[:5]:
        path.rename(photos / "Digit 3" / path.name)
    (note,) = read(photos).notes
    assert "photos has classes that differ in case or blanks only: 'digit 3' (" in note


def test_a_folder_of_its_own_to_validate(photos, tmp_path):
    other = write_digits(tmp_path / "other", 60)
    data = read(photos, validation=other)
    assert (len(data.train), len(data.validation)) == (200, 60)
    (other / "cat").mkdir()
    (other / "digit 0" / "0_0.png").rename(other / "cat" / "0.png")
    with pytest.raises(ValueError, match=r"other has classes that .*photos does not have: cat"):
        read(photos, validation=other)
    with pytest.raises(ValueError, match="There is no folder"):
        read(photos, validation=tmp_path / "nowhere")


def test_what_is_refused(tmp_path, photos):
    with pytest.raises(ValueError, match="There is no folder"):
        read(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="has no folders: put the images of every class"):
        read(photos / "digit 0")
    lonely = tmp_path / "lonely"
    lonely.mkdir()
    (photos / "digit 0").rename(lonely / "zero")
    with pytest.raises(ValueError, match="at least two classes to learn from, but has only 'zero'"):
        read(lonely)
    (lonely / "one").mkdir()
    (lonely / "one" / "a.png").write_text("x")
    with pytest.raises(
        ValueError, match=r"has only 'zero'\. Skipped: .*a\.png \(it is not a readable image\)"
    ):
        read(lonely)
    nothing = tmp_path / "nothing"
    (nothing / "one").mkdir(parents=True)
    with pytest.raises(ValueError, match="holds no readable image: class one its folder is empty"):
        read(nothing)
    for place in ("one", "two"):
        (nothing / place).mkdir(exist_ok=True)
        next((photos / "digit 4").iterdir()).rename(nothing / place / "a.png")
    with pytest.raises(ValueError, match="2 different examples are too few"):
        read(nothing)

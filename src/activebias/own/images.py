"""Images in folders, one folder per class, converted to squares of one size."""

import hashlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from activebias.own.data import (
    Divided,
    OwnData,
    Validation,
    divide,
    encode_labels,
    listing,
    note_small_classes,
    validation_setting,
)
from activebias.own.duplicates import Conflicts, find_conflicts, note_duplicates
from activebias.own.splits import Split, identity_of
from activebias.own.targets import note_case
from activebias.runs.contents import Inputs

SIZES = (32, 64)
NUM_THREADS = 8
# Images with more pixels are decoded one at a time. A pixel takes up to 8 bytes of RAM.
LARGE = 8_000_000
# A JPEG file is decoded with a longer side of at least this many pixels, then shrunk to one of SIZES.
DRAFT = 512
ORIENTATION = 0x0112  # in EXIF
_AT_ONCE = 1000
_IGNORED = {"thumbs.db", "desktop.ini"}  # files of file managers


def read_images(
    folder: Path,
    *,
    validation: Validation,
    seed: int,
    size: int | None = None,
    grey: bool | None = None,
    on_image: Callable[[int], object] = lambda total: None,
) -> OwnData:
    """Read a folder of class folders; files that are not images are skipped and listed.

    Images become squares of `size` pixels: of 32, or of 64 if most are larger than 48. They are padded, never
    cut. They are `grey` if all images are grey. `validation` is a share, another folder with the same
    classes, or the division of an earlier run. `on_image(total)` is called after every image.
    """
    _require_pillow()
    files, skipped = find_images(folder)
    files_to_validate: list[tuple[str, Path]] = []
    if isinstance(validation, Path):
        files_to_validate, more = find_images(validation)
        skipped += more
    everything = files + files_to_validate
    read = read_files([path for _, path in everything], lambda: on_image(len(everything)))
    skipped += [
        {"what": name_of(path), "why": image}
        for (_, path), image in zip(everything, read, strict=True)
        if isinstance(image, str)
    ]
    found = [
        (label, path, image, number >= len(files))
        for number, ((label, path), image) in enumerate(zip(everything, read, strict=True))
        if not isinstance(image, str)
    ]
    present = {label for label, *_ in found}
    empty = sorted({label for label, _ in everything} - present)
    skipped += [{"what": f"class {label}", "why": "none of its files is a readable image"} for label in empty]
    if not found:
        raise ValueError(f"{folder} holds no readable image: {skipped[0]['what']} {skipped[0]['why']}.")
    if len(present) == 1 and skipped:
        reasons = listing([f"{each['what']} ({each['why']})" for each in skipped], 3)
        raise ValueError(
            f"{folder} must have readable images of at least two classes, but has only {present.pop()!r}. "
            f"Skipped: {reasons}."
        )
    shown = [(label, name_of(path), image, flag) for label, path, image, flag in found]
    return images_data(
        shown, folder=folder, validation=validation, seed=seed, size=size, grey=grey, skipped=skipped
    )


def images_data(
    found: Sequence[tuple[str, str, Any, bool]],
    *,
    folder: Path,
    validation: Validation,
    seed: int,
    size: int | None = None,
    grey: bool | None = None,
    skipped: Sequence[Mapping[str, str]] = (),
) -> OwnData:
    """Prepare images of Pillow, given as (label, name, image, whether it is in a validation folder)."""
    class_names, labels = encode_labels([label for label, *_ in found], str(folder))
    pixels = _squares([image for _, _, image, _ in found], size, grey)
    digests = [hashlib.sha256(image.tobytes()).hexdigest() for image in pixels]
    identity = identity_of(digests)
    if isinstance(validation, Path):
        to_validate = np.array([flag for *_, flag in found])
        divided = Divided(class_names, labels, np.flatnonzero(~to_validate), np.flatnonzero(to_validate))
        divided.check(folder, validation)
    elif isinstance(validation, Split):
        divided = Divided(class_names, labels, *validation.divide(identity, folder))
    else:
        divided = Divided(class_names, labels, *divide(labels, digests, share=validation, seed=seed))
    names = [name for _, name, *_ in found]
    conflicts = find_conflicts(
        digests,
        [label for label, *_ in found],
        in_train=divided.in_train,
        position=np.arange(len(found)),
        describe=lambda members: [names[k] for k in members],
    )
    notes = (
        *note_case([label for label, *_ in found], str(folder)),
        *note_small_classes(class_names, labels),
        *note_duplicates("images", digests, divided.in_train),
        *conflicts.note("images"),
        *(validation.notes("images", identity) if isinstance(validation, Split) else ()),
    )
    data = _own_data(folder, divided, pixels, names, conflicts, identity, validation)
    return replace(data, skipped=tuple(skipped), notes=notes)


def _own_data(
    folder: Path,
    divided: Divided,
    pixels: NDArray[np.uint8],
    names: list[str],
    conflicts: Conflicts,
    identity: NDArray[np.uint64],
    validation: Validation,
) -> OwnData:
    channels = pixels[..., None] if pixels.ndim == 3 else pixels
    mean, std = _mean_and_std(channels, divided.train)
    train, held_out = divided.examples(torch.from_numpy(channels).permute(0, 3, 1, 2).contiguous())
    return OwnData(
        kind="images",
        source=str(folder),
        class_names=divided.class_names,
        train=train,
        validation=held_out,
        train_position=divided.train,
        validation_position=divided.held_out,
        inputs=Inputs(images=pixels[divided.order], names=tuple(names[k] for k in divided.order)),
        model={
            "name": "SmallCNN",
            "arguments": {
                "num_channels": channels.shape[-1],
                "num_classes": len(divided.class_names),
                "mean": [round(value, 4) for value in mean],
                "std": [round(max(value, 1.0), 4) for value in std],
            },
        },
        learning_rate=1e-3,
        conflicts=conflicts,
        identity=identity[divided.order],
        settings={
            "validation": validation_setting(validation),
            "size": pixels.shape[1],
            "grey": pixels.ndim == 3,
        },
    )


def _mean_and_std(channels: NDArray[np.uint8], members: NDArray[np.int64]) -> tuple[list[float], list[float]]:
    """Return the mean and standard deviation of every channel over the member images.

    Computed from counts of the 256 values, in batches of images: NumPy's `mean` would need 64-bit copies of
    all pixels.
    """
    counts = np.zeros((channels.shape[-1], 256), dtype=np.int64)
    for part in np.array_split(members, range(_AT_ONCE, len(members), _AT_ONCE)):
        for channel, count in enumerate(counts):
            count += np.bincount(channels[part, ..., channel].ravel(), minlength=256)
    share, values = counts / counts.sum(1, keepdims=True), np.arange(256.0)
    mean = share @ values
    variance = (share * (values - mean[:, None]) ** 2).sum(1)
    return mean.tolist(), np.sqrt(variance).tolist()


def name_of(path: Path) -> str:
    """Return a path as text; bytes that are not UTF-8 become �, because text files cannot hold them."""
    return os.fsencode(path).decode("utf-8", "replace")


def find_images(folder: Path) -> tuple[list[tuple[str, Path]], list[dict[str, str]]]:
    """Return (class, file) of every file in the class folders, sorted, and the entries beside the folders."""
    if folder.is_file():
        raise ValueError(f"{folder} is a file: give a folder that has a folder of images for every class.")
    if not folder.is_dir():
        raise ValueError(
            f"There is no folder {folder}: give a folder that has a folder of images for every class."
        )
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    classes = [entry for entry in entries if entry.is_dir()]
    if not classes:
        raise ValueError(
            f"{folder} has no folders: put the images of every class into a folder named after the class."
        )
    skipped = [
        {"what": name_of(entry), "why": "it is not in a class folder, so it has no class"}
        for entry in entries
        if entry.is_file() and entry.name.lower() not in _IGNORED
    ]
    files = []
    for each in classes:
        inside = [
            path for path in sorted(each.rglob("*")) if path.is_file() and not path.name.startswith(".")
        ]
        inside = [path for path in inside if path.name.lower() not in _IGNORED]
        label = name_of(each.relative_to(folder))
        files += [(label, path) for path in inside]
        if not inside:
            skipped.append({"what": f"class {label}", "why": "its folder is empty"})
    return files, skipped


def read_files(paths: list[Path], on_image: Callable[[], object]) -> list[Any]:
    """Return an RGB or grey PIL image of every file, or the reason why the file cannot be read.

    The calling thread decodes large images, one after the other: each thread of the pool would keep the RAM
    of the largest image that it has decoded.
    """
    images = []
    with warnings.catch_warnings(), ThreadPoolExecutor(NUM_THREADS) as pool:
        # PIL warns of huge images before it refuses them. These files are skipped with the reason.
        warnings.simplefilter("error")
        for path, image in zip(paths, pool.map(partial(_read, most_pixels=LARGE), paths), strict=True):
            images.append(_read(path) if image is None else image)
            on_image()
    return images


def _read(path: Path, most_pixels: int | None = None) -> Any:
    """Return an image, or why there is none; None if it has more than `most_pixels` to decode."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as file:  # this reads the header only
            width, height = file.size
            scale = DRAFT / max(width, height)
            # A JPEG file is decoded at 1/2, 1/4 or 1/8 of its size.
            file.draft(None, (max(round(scale * width), 1), max(round(scale * height), 1)))
            # A progressive JPEG file needs RAM for the coefficients of all its pixels.
            size = (width, height) if file.info.get("progressive") else file.size
            if most_pixels is not None and size[0] * size[1] > most_pixels:
                return None
            return _decoded(file, max(width, height))
    except UnidentifiedImageError:
        return "it is not a readable image"
    except Exception as error:  # damaged files raise many exception types; a bad image must not end the run
        return f"it cannot be read ({' '.join(str(error).split()) or type(error).__name__})"


def _decoded(file: Any, original: int) -> Any:
    """Return an image no larger than needed, with its size before: a folder of photographs must fit.

    The image is shrunk before it is turned: every step on the full size would hold a copy of all pixels.
    """
    from PIL import ImageOps

    orientation = file.getexif().get(ORIENTATION, 1)
    mode = "L" if file.mode in ("1", "L", "LA") else "RGB"
    if file.mode.startswith(("I", "F")):  # 16 bits and more, which `convert` would cut off at 255
        image = _scaled(file)
    else:
        image = file if file.mode == mode else file.convert(mode)
    image.thumbnail((SIZES[-1], SIZES[-1]))
    image.getexif()[ORIENTATION] = orientation
    image = ImageOps.exif_transpose(image)
    image.info = {"original": original}
    return image


def _scaled(image: Any) -> Any:
    """Return a grey image whose smallest value is 0 and whose largest is 255."""
    from PIL import Image

    values = np.asarray(image)
    low, high = float(values.min()), float(values.max())
    scaled = np.empty(values.shape, dtype=np.uint8)
    for row, target in zip(values, scaled, strict=True):  # row by row: float64 is eight bytes a pixel
        target[:] = (row.astype(np.float64) - low) / max(high - low, 1e-12) * 255
    return Image.fromarray(scaled)


def _squares(images: list[Any], size: int | None, grey: bool | None) -> NDArray[np.uint8]:
    from PIL import ImageOps

    if size is None:
        usual = float(np.median([image.info["original"] for image in images]))
        size = SIZES[0] if usual <= 48 else SIZES[1]
    if grey is None:
        grey = all(image.mode == "L" for image in images)
    mode = "L" if grey else "RGB"
    return np.stack([np.asarray(ImageOps.pad(image.convert(mode), (size, size))) for image in images])


def _require_pillow() -> None:
    try:
        import PIL  # noqa: F401
    except ModuleNotFoundError:
        raise RuntimeError("Reading images needs Pillow: pip install 'activebias[report]'") from None

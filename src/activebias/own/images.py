"""Images in folders, one folder a class, made into squares of one size."""

import hashlib
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from activebias.own.data import Divided, OwnData, divide, encode_labels, listing, note_small_classes
from activebias.report.folder import Inputs

SIZES = (32, 64)
_IGNORED = {"thumbs.db", "desktop.ini"}  # what file managers leave behind


def read_images(
    folder: Path,
    *,
    validation: float | Path,
    seed: int,
    size: int | None = None,
    on_image: Callable[[int], object] = lambda total: None,
) -> OwnData:
    """Read a folder of class folders; what is no image is skipped and listed.

    Images become squares of 32 or 64 pixels (64 where most are larger than 48), padded, never cut; grey if
    all of them are. `validation` is a share, or another folder with the same classes. `on_image(total)` is
    called after every image.
    """
    _require_pillow()
    files, skipped = _find(folder)
    files_to_validate: list[tuple[str, Path]] = []
    if isinstance(validation, Path):
        files_to_validate, more = _find(validation)
        skipped += more
    everything = files + files_to_validate
    read = _read_all([path for _, path in everything], lambda: on_image(len(everything)))
    skipped += [
        {"what": str(path), "why": image}
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
    class_names, labels = encode_labels([label for label, *_ in found], str(folder))
    pixels = _squares([image for _, _, image, _ in found], size)
    if isinstance(validation, Path):
        to_validate = np.array([flag for *_, flag in found])
        divided = Divided(class_names, labels, np.flatnonzero(~to_validate), np.flatnonzero(to_validate))
        divided.check(folder, validation)
    else:
        digests = np.array([hashlib.sha256(image.tobytes()).hexdigest() for image in pixels])
        divided = Divided(class_names, labels, *divide(labels, digests, share=validation, seed=seed))
    return _own_data(folder, divided, pixels, [str(path) for _, path, *_ in found], skipped)


def _own_data(
    folder: Path, divided: Divided, pixels: NDArray[np.uint8], names: list[str], skipped: list[dict[str, str]]
) -> OwnData:
    channels = pixels[..., None] if pixels.ndim == 3 else pixels
    flat = channels[divided.train].reshape(-1, channels.shape[-1])
    mean, std = flat.mean(0, dtype=np.float64), flat.std(0, dtype=np.float64)
    train, validation = divided.examples(torch.from_numpy(channels).permute(0, 3, 1, 2).contiguous())
    return OwnData(
        kind="images",
        source=str(folder),
        class_names=divided.class_names,
        train=train,
        validation=validation,
        train_position=divided.train,
        validation_position=divided.held_out,
        inputs=Inputs(images=pixels[divided.train], names=tuple(names[k] for k in divided.train)),
        model={
            "name": "SmallCNN",
            "arguments": {
                "num_channels": channels.shape[-1],
                "num_classes": len(divided.class_names),
                "mean": [round(float(value), 4) for value in mean],
                "std": [round(max(float(value), 1.0), 4) for value in std],
            },
        },
        learning_rate=1e-3,
        skipped=tuple(skipped),
        notes=(
            *note_small_classes(divided.class_names, divided.labels),
            *_note_duplicates(pixels, divided.labels),
        ),
    )


def _note_duplicates(pixels: NDArray[np.uint8], labels: NDArray[np.int64]) -> list[str]:
    seen: dict[bytes, int] = {}
    conflicts = 0
    for image, label in zip(pixels, labels.tolist(), strict=True):
        conflicts += seen.setdefault(image.tobytes(), label) != label
    copies = len(pixels) - len(seen)
    if not copies:
        return []
    other = f", {conflicts} of them in another class" if conflicts else ""
    return [f"Duplicate images: {copies}{other}. Duplicates are never divided between the parts."]


def _find(folder: Path) -> tuple[list[tuple[str, Path]], list[dict[str, str]]]:
    """Return (class, file) of everything in the class folders, sorted, and what lies beside them."""
    if not folder.is_dir():
        raise ValueError(
            f"There is no folder {folder}: give one that has a folder of images for every class."
        )
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    classes = [entry for entry in entries if entry.is_dir()]
    if not classes:
        raise ValueError(
            f"{folder} has no folders: put the images of every class into a folder named after the class."
        )
    skipped = [
        {"what": str(entry), "why": "it lies beside the class folders, so it has no class"}
        for entry in entries
        if entry.is_file() and entry.name.lower() not in _IGNORED
    ]
    files = []
    for each in classes:
        inside = [
            path for path in sorted(each.rglob("*")) if path.is_file() and not path.name.startswith(".")
        ]
        inside = [path for path in inside if path.name.lower() not in _IGNORED]
        files += [(each.name, path) for path in inside]
        if not inside:
            skipped.append({"what": f"class {each.name}", "why": "its folder is empty"})
    return files, skipped


def _read_all(paths: list[Path], on_image: Callable[[], object]) -> list[Any]:
    """Return an RGB or grey PIL image of every file, or why there is none."""
    images = []
    with warnings.catch_warnings(), ThreadPoolExecutor(8) as pool:
        # PIL warns of huge images before it refuses them; such a file is skipped with its reason.
        warnings.simplefilter("error")
        for image in pool.map(_read, paths):
            images.append(image)
            on_image()
    return images


def _read(path: Path) -> Any:
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as file:
            image = ImageOps.exif_transpose(file)
            if image.mode.startswith(("I", "F")):  # 16 bits and more, which `convert` would cut off at 255
                values = np.asarray(image, dtype=np.float64)
                low, high = values.min(), values.max()
                scaled = (values - low) / max(high - low, 1e-12) * 255
                return _shrunk(Image.fromarray(scaled.astype(np.uint8)))
            return _shrunk(image.convert("L" if image.mode in ("1", "L", "LA") else "RGB"))
    except UnidentifiedImageError:
        return "it is no image that can be read"
    except Exception as error:  # damaged files raise many kinds, and one bad image must not end the run
        return f"it cannot be read ({' '.join(str(error).split()) or type(error).__name__})"


def _shrunk(image: Any) -> Any:
    """Return an image no larger than needed, with its size before: a folder of photographs must fit."""
    original = max(image.size)
    image.thumbnail((SIZES[-1], SIZES[-1]))
    image.info = {"original": original}
    return image


def _squares(images: list[Any], size: int | None) -> NDArray[np.uint8]:
    from PIL import ImageOps

    if size is None:
        usual = float(np.median([image.info["original"] for image in images]))
        size = SIZES[0] if usual <= 48 else SIZES[1]
    mode = "L" if all(image.mode == "L" for image in images) else "RGB"
    return np.stack([np.asarray(ImageOps.pad(image.convert(mode), (size, size))) for image in images])


def _require_pillow() -> None:
    try:
        import PIL  # noqa: F401
    except ModuleNotFoundError:
        raise RuntimeError("Reading images needs Pillow: pip install 'activebias[report]'") from None

"""Writes a corrected copy of the user's data. The source is never changed."""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from activebias.internal import replacing
from activebias.own.data import listing
from activebias.own.images import find_images, name_of
from activebias.own.rewriting import corrected_csv, corrected_parquet, corrected_tags, packed_as
from activebias.own.tables import labels_of, read_frame, separator_of
from activebias.own.tagged import words_of_lines
from activebias.runs.contents import OPTIONS
from activebias.runs.corrections import Correction
from activebias.runs.folder import RunFolder
from activebias.training.reading import read_bytes

PARQUET = (".parquet", ".pq")


def apply_corrections(folder: RunFolder, corrections: Sequence[Correction], out: Path) -> dict[str, Path]:
    """Write the data of a run with corrected labels to `out`; return the written paths by option.

    `out` is a folder of class folders, a table or tagged text, as the source is. A run with a separate
    validation part has two sources: then `out` is a folder with a corrected copy of each.
    """
    settings = folder.info.settings
    if "validation" not in settings:
        raise ValueError(
            f"{folder.path} does not say how its data was read: it is a run of a recipe or of an earlier "
            "release. Train it again on your own data."
        )
    _check_out(out, folder)
    validation, option = settings["validation"], OPTIONS[folder.info.kind]
    if not isinstance(validation, str):
        _write(folder, corrections, Path(folder.info.source), out)
        return {option: out}
    in_validation = folder.instances().in_validation
    with replacing(out, folder=True) as temporary:
        written = {}
        for of_part, source, flag in (
            (option, Path(folder.info.source), False),
            ("--validation", Path(validation), True),
        ):
            name = ("validation" if flag else "training") + ("" if source.is_dir() else source.suffix)
            chosen = [each for each in corrections if in_validation[each.instance] == flag]
            _write(folder, chosen, source, temporary / name)
            written[of_part] = out / name
    return written


def _check_out(out: Path, folder: RunFolder) -> None:
    if out.exists():
        raise ValueError(f"{out} exists already, and is not overwritten: choose another `--out`.")
    source = Path(folder.info.source)
    if not source.exists():
        raise ValueError(
            f"There is no {source}, the data of {folder.path}: run the command in the folder in which you "
            "trained, or put the data back."
        )
    if source.is_dir() and out.resolve().is_relative_to(source.resolve()):
        raise ValueError(f"{out} is inside of {source}, which is never changed: choose another `--out`.")
    # Tagged text is found to be gzipped by its content.
    any_name = folder.info.kind in ("images", "tagging") or isinstance(
        folder.info.settings["validation"], str
    )
    if not any_name and _format(out) != _format(source):
        raise ValueError(
            f"Expected `--out` to be a {_format(source)} file, as {source} is, but got {out}: choose another "
            "name."
        )


def _format(path: Path) -> str:
    suffix = path.suffix.lower()
    return "parquet" if suffix in PARQUET else "gzipped (.gz)" if suffix == ".gz" else "text"


def _write(folder: RunFolder, corrections: Sequence[Correction], source: Path, out: Path) -> None:
    if folder.info.kind == "images":
        _write_images(folder, corrections, source, out)
        return
    if folder.info.kind == "tagging":
        content = _tagged(folder, corrections, source)
    else:
        content = _table(folder, corrections, source)
    with replacing(out) as temporary:
        temporary.write_bytes(content)


def _refuse_changed(source: Path, folder: RunFolder, places: Sequence[str]) -> None:
    if places:
        raise ValueError(
            f"{source} has changed since {folder.path}: {listing(places, 5)}. Train on it again, or give the "
            "data as it was."
        )


def _write_images(folder: RunFolder, corrections: Sequence[Correction], source: Path, out: Path) -> None:
    """Copy the folder, and move the corrected images in the copy."""
    names = folder.inputs().names or ()
    found, _ = find_images(source)
    path_of = {name_of(path): path for _, path in found}
    class_folder = {label: path.relative_to(source).parts[0] for label, path in found}
    missing = [names[each.instance] for each in corrections if names[each.instance] not in path_of]
    _refuse_changed(source, folder, [f"there is no {name}" for name in missing])
    with replacing(out, folder=True) as temporary:
        shutil.copytree(source, temporary, dirs_exist_ok=True)
        for instance, label in corrections:
            inside = path_of[names[instance]].relative_to(source)
            target = temporary / class_folder.get(label, label) / Path(*inside.parts[1:])
            target.parent.mkdir(parents=True, exist_ok=True)
            (temporary / inside).rename(_free(target, inside.parts[0]))


def _free(path: Path, before: str) -> Path:
    """Return a path that no file has: with the name of the class before, and a number if necessary."""
    tries, number = path, 1
    while tries.exists():
        more = "" if number == 1 else f" {number}"
        tries, number = path.with_stem(f"{path.stem} (from {before}{more})"), number + 1
    return tries


def _table(folder: RunFolder, corrections: Sequence[Correction], source: Path) -> bytes:
    """Return the corrected table, read again and compared with the source."""
    target, instances = folder.info.settings["target"], folder.instances()
    frame, _ = read_frame(source, target)
    labels = labels_of(frame[target]).tolist()
    names = folder.info.class_names
    new_labels = {int(instances.position[each.instance]): each.label for each in corrections}
    old = {int(instances.position[k]): names[instances.label[k]] for k, _ in corrections}
    changed = [row for row in old if row >= len(labels) or labels[row] != old[row]]
    _refuse_changed(source, folder, [f"the label of row {row} was {old[row]!r}" for row in changed])
    like: dict[str, int] = {}
    for row, label in enumerate(labels):
        like.setdefault(label, row)
    if _format(source) == "parquet":
        content = corrected_parquet(source, target, new_labels, like)
    else:
        text = read_bytes(source).decode("utf-8")
        corrected = corrected_csv(text, separator_of(source), target, new_labels, like)
        content = packed_as(source, corrected.encode())
    _check_table(content, source, target, new_labels)
    return content


def _check_table(content: bytes, source: Path, target: str, new_labels: Mapping[int, str]) -> None:
    """Raise unless the content is the source with the new labels: nothing else may have changed."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / f"copy{source.suffix}"
        copy.write_bytes(content)
        (before, _), (after, _) = read_frame(source, target), read_frame(copy, target)
    expected = labels_of(before[target]).fillna("").tolist()
    for row, label in new_labels.items():
        expected[row] = label
    others = [name for name in before.columns if name != target]
    if labels_of(after[target]).fillna("").tolist() != expected or not before[others].equals(after[others]):
        raise RuntimeError(
            f"{source} cannot be rewritten without other changes: its rows are not read as they stand. Save "
            "it as a plain CSV file, and train again."
        )


def _tagged(folder: RunFolder, corrections: Sequence[Correction], source: Path) -> bytes:
    instances, names = folder.instances(), folder.info.class_names
    assert instances.sentence is not None
    assert instances.word is not None
    sentences = words_of_lines(source)
    new_tags, changed = {}, []
    for instance, label in corrections:
        sentence, word = int(instances.sentence[instance]), int(instances.word[instance])
        old = names[instances.label[instance]]
        here = sentences[sentence][word : word + 1] if sentence < len(sentences) else []
        if [tag for *_, tag in here] != [old]:
            changed.append(f"the tag of sentence {sentence}, word {word} was {old!r}")
        new_tags[sentence, word] = label
    _refuse_changed(source, folder, changed)
    return corrected_tags(source, new_tags)


def count_changes(folder: RunFolder, corrections: Sequence[Correction]) -> list[tuple[str, str, int]]:
    """Return (old label, new label, how often), the most frequent first."""
    names, label = folder.info.class_names, folder.instances().label
    pairs = [(names[label[each.instance]], each.label) for each in corrections]
    different = sorted(set(pairs), key=lambda pair: (-pairs.count(pair), pair))
    return [(*pair, pairs.count(pair)) for pair in different]

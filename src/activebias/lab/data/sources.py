"""Finds the data folder, and the state of every data set: present, damaged or missing."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from activebias.internal import did_you_mean
from activebias.lab.data.catalogue import SOURCES, Form, Source
from activebias.lab.data.checksums import checksum_matches
from activebias.training.reading import DataError


@dataclass(frozen=True)
class Found:
    """A complete form of a data set on disk."""

    source: Source
    form: Form
    folder: Path

    def path(self, name: str) -> Path:
        """Return the path of one of the form's files."""
        return self.folder / name


State = Literal["present", "checksum wrong", "missing"]


@dataclass(frozen=True)
class Status:
    """A data set's state and folder, and one sentence of advice (empty if there is nothing to do)."""

    name: str
    title: str
    state: State
    folder: Path | None
    advice: str = ""


def data_root(explicit: str | Path | None = None) -> Path:
    """Return the data folder: ``explicit``, else ``$ACTIVEBIAS_DATA``, else ``~/.cache/activebias``.

    >>> data_root("some/folder").as_posix()
    'some/folder'
    """
    if explicit is not None:
        return Path(explicit).expanduser()
    from_environment = os.environ.get("ACTIVEBIAS_DATA")
    return Path(from_environment).expanduser() if from_environment else Path.home() / ".cache" / "activebias"


def get_source(name: str) -> Source:
    """Return the description of a data set; raise if the name is unknown.

    >>> get_source("mnist").folder
    'mnist'
    """
    if name not in SOURCES:
        raise DataError(
            f"There is no data set {name!r}: known are {', '.join(SOURCES)}.{did_you_mean(name, SOURCES)}"
        )
    return SOURCES[name]


def find(source: Source, root: Path) -> Found | None:
    """Return the first complete form of a data set under the root, or None."""
    for form in source.forms:
        # The official folder may also be directly under the root, if an archive was unpacked there.
        folders = [root / source.folder / form.folder, root / source.folder]
        if form.folder:
            folders.append(root / form.folder)
        for folder in folders:
            if all((folder / file.name).exists() for file in form.files):
                return Found(source, form, folder)
    return None


def require(name: str, root: str | Path | None = None, *, verify: bool = True) -> Found:
    """Return the files of a data set; raise if they are missing, or with ``verify`` not official."""
    source = get_source(name)
    folder = data_root(root)
    found = find(source, folder)
    if found is None:
        raise DataError(f"{name} is missing: {how_to_get(source, folder)}.")
    if verify:
        problem = damage(found)
        if problem:
            raise DataError(f"{problem}.")
    return found


def damage(found: Found) -> str:
    """Return the first difference from the official files, or an empty string."""
    for file in found.form.files:
        path = found.path(file.name)
        fix = _fix(found.source)
        if file.size is not None and path.stat().st_size != file.size:
            return f"{path} has {path.stat().st_size} bytes where the official file has {file.size}: {fix}"
        if file.checksum is not None and not checksum_matches(path, file.checksum, file.unpacked):
            algorithm = file.checksum.partition(":")[0].upper().replace("SHA256", "SHA-256")
            return f"{path} has the wrong {algorithm} checksum: {fix}"
    return ""


def how_to_get(source: Source, root: Path) -> str:
    """Return how to get a data set, as half a sentence."""
    folder = root / source.folder
    if source.by_hand:
        return f"{source.by_hand} into {folder}"
    names = ", ".join(file.name for file in source.forms[0].files)
    return f"run `activebias data get {source.name}`, or put {names} into {folder}"


def status(root: str | Path | None = None) -> list[Status]:
    """Return for every data set whether it is present, has a wrong checksum or is missing, with advice.

    >>> [entry.state for entry in status("no/such/folder") if entry.name in ("digits", "mnist")]
    ['present', 'missing']
    """
    return [_status(source, data_root(root)) for source in SOURCES.values()]


def _status(source: Source, root: Path) -> Status:
    if not source.forms:
        return Status(source.name, source.title, "present", None)
    found = find(source, root)
    if found is None:
        return Status(source.name, source.title, "missing", root / source.folder, how_to_get(source, root))
    problem = damage(found)
    if problem:
        return Status(source.name, source.title, "checksum wrong", found.folder, problem)
    return Status(source.name, source.title, "present", found.folder)


def _fix(source: Source) -> str:
    return (
        f"delete it and run `activebias data get {source.name}`, or load with verify=False if it is a file "
        "of your own in the same format"
    )

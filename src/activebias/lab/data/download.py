"""Downloads data sets from their official addresses, and unpacks archives safely."""

import http.client
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from activebias.internal import replacing
from activebias.lab.data.catalogue import Download, Source
from activebias.lab.data.checksums import checksum_matches
from activebias.lab.data.sources import damage, data_root, find, get_source
from activebias.training.reading import DataError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_CHUNK = 1 << 18

Advance = Callable[[int, int | None], None]


def fetch(name: str, root: str | Path | None = None, *, timeout: float = 5.0, quiet: bool = False) -> Path:
    """Download a data set into its folder under the data root, unless it exists, and return the folder.

    A file gets its final name only after its checksum is right. ``timeout`` is the most seconds that a server
    may be silent. ``quiet`` hides the progress bar.
    """
    source = get_source(name)
    folder = data_root(root) / source.folder
    if not source.forms:
        return folder
    found = find(source, data_root(root))
    if found is not None and not damage(found):
        return found.folder
    if source.by_hand:
        raise DataError(f"{name} cannot be downloaded, {source.by_hand} into {folder}.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _fetch_all(source, folder, timeout, quiet)
    except OSError as error:
        raise DataError(
            f"{name} cannot be written to {folder} ({error.strerror or error}): choose another folder."
        ) from error
    found = find(source, data_root(root))
    problem = "the downloaded files are not complete" if found is None else damage(found)
    if problem:
        raise DataError(f"{problem}.")
    return folder if found is None else found.folder


def _fetch_all(source: Source, folder: Path, timeout: float, quiet: bool) -> None:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as progress:
        for download in source.downloads:
            target = folder / download.file.name
            if not (
                target.exists()
                and download.file.checksum
                and checksum_matches(target, download.file.checksum, download.file.unpacked)
            ):
                task = progress.add_task(download.file.name, total=None)
                _fetch_file(source, download, target, timeout, partial(_show, progress, task))
            if download.archive:
                unpack(target, folder, download.members)
                target.unlink()


def _show(progress: "Progress", task: "TaskID", done: int, total: int | None) -> None:
    progress.update(task, completed=done, total=total)


def _fetch_file(source: Source, download: Download, target: Path, timeout: float, advance: Advance) -> None:
    """Try each address in turn; refuse a file with a wrong checksum."""
    reasons = []
    for address in download.addresses:
        try:
            with replacing(target) as temporary:
                _transfer(address, temporary, timeout, advance)
                expected = download.file.checksum
                if expected and not checksum_matches(temporary, expected):
                    raise _NotFetched(f"the file from {address} has the wrong checksum")
            return
        except _NotFetched as error:
            reasons.append(str(error))
    names = ", ".join(each.file.name for each in source.downloads)
    addresses = " or ".join(dict.fromkeys(address.rpartition("/")[0] for address in download.addresses))
    raise DataError(
        f"{source.name} could not be downloaded ({'; '.join(reasons)}): connect to the network and try "
        f"again, or put {names} from {addresses} into {target.parent}."
    )


class _NotFetched(Exception):
    """The reason why an address did not give the file."""


def _transfer(address: str, target: Path, timeout: float, advance: Advance) -> None:
    """Download the content of an address into a file; raise with the reason if that fails."""
    request = urllib.request.Request(address, headers={"User-Agent": "activebias"})
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        raise _NotFetched(f"{address} answers {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise _NotFetched(f"{address}: {_reason(error)}") from error
    with response, open(target, "wb") as file:
        length = response.headers.get("Content-Length")
        total = int(length) if length is not None and length.isdigit() else None
        done = 0
        while True:
            try:
                chunk = response.read(_CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise _NotFetched(f"{address}: {_reason(error)} after {done} bytes") from error
            if not chunk:
                break
            file.write(chunk)
            done += len(chunk)
            advance(done, total)
    if total is not None and done != total:
        raise _NotFetched(f"{address} sent {done} of {total} bytes")


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", error)
    return str(getattr(cause, "strerror", None) or cause or type(cause).__name__).rstrip(".")


def unpack(archive: Path, folder: Path, members: tuple[str, ...] | None = None) -> None:
    """Unpack a tar or zip archive into a folder (only ``members``, if given).

    All names are checked before anything is written: a name that leads out of the folder, a link or a device
    is refused.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                _write_all(_zip_entries(zipped, archive, members), folder, archive)
        else:
            with tarfile.open(archive) as tarred:
                _write_all(_tar_entries(tarred, archive, members), folder, archive)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"{archive} is truncated or damaged ({error}): delete it and get it again."
        ) from error


Entries = list[tuple[str, Callable[[], IO[bytes] | None]]]


def _tar_entries(tarred: tarfile.TarFile, archive: Path, members: tuple[str, ...] | None) -> Entries:
    entries: Entries = []
    for member in tarred.getmembers():
        _check_name(member.name, archive)
        if not (member.isfile() or member.isdir()):
            raise DataError(
                f"{archive} holds {member.name}, a link or device: delete the archive, it is not the "
                "official one."
            )
        if member.isfile() and (members is None or member.name in members):
            entries.append((member.name, partial(tarred.extractfile, member)))
    return entries


def _zip_entries(zipped: zipfile.ZipFile, archive: Path, members: tuple[str, ...] | None) -> Entries:
    entries: Entries = []
    for info in zipped.infolist():
        _check_name(info.filename, archive)
        if not info.is_dir() and (members is None or info.filename in members):
            # A link in a zip file is an attribute that only some programs use: here it becomes a plain file.
            entries.append((info.filename, partial(zipped.open, info)))
    return entries


def _check_name(name: str, archive: Path) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise DataError(
            f"{archive} holds {name!r}, which leads out of its folder: delete the archive, it is not the "
            "official one."
        )


def _write_all(entries: Entries, folder: Path, archive: Path) -> None:
    for name, opened in entries:
        target = folder / PurePosixPath(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        # A link that already exists in the folder may also lead out of it.
        if not target.parent.resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{target.parent} is a link out of {folder}: remove the link and try again.")
        content = opened()
        if content is None:
            raise DataError(f"{archive} holds {name} without content: delete it and get it again.")
        with replacing(target) as temporary, content, open(temporary, "wb") as file:
            shutil.copyfileobj(content, file, _CHUNK)

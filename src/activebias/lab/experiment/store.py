"""The result store: one JSON line per trial and method, appended once and never changed.

Every recipe has a file `<recipe>.jsonl`. Recipe, configuration, method (with its rule, for a user's method)
and seed identify a result. New trials are appended, and no result is computed twice.
"""

import fcntl
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from activebias.lab.experiment.results import ResultKey, TrialResult, check_recipe_name, config_hash

_log = logging.getLogger(__name__)


@final
class ResultStore:
    """A folder with one append-only file of results per recipe; several processes may use it at once."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Use `folder`; the first append creates it."""
        self.folder = Path(folder)
        self._read: dict[Path, tuple[bytes, list[TrialResult]]] = {}

    def path(self, recipe: str) -> Path:
        """Return the file of a recipe's results."""
        return self.folder / f"{check_recipe_name(recipe)}.jsonl"

    def append(self, results: TrialResult | Iterable[TrialResult]) -> list[TrialResult]:
        """Append results, and return the new ones; results with a stored key are ignored.

        When this returns, the lines are on the disk. A half-written last line of a killed process is removed
        first.
        """
        groups: dict[str, list[TrialResult]] = {}
        for result in [results] if isinstance(results, TrialResult) else results:
            groups.setdefault(result.recipe, []).append(result)
        added: list[TrialResult] = []
        for recipe, group in groups.items():
            path = self.path(recipe)
            with _locked(path) as descriptor:
                content = path.read_bytes()
                known = {result.key for result in self._results(content, path)}
                new = []
                for result in group:
                    if result.key not in known:
                        known.add(result.key)
                        new.append(result)
                lines = [(result.to_json() + "\n").encode() for result in new]
                _repair(descriptor, content, path)
                _write_lines(descriptor, lines, path)
            added += new
        return added

    def load(self, recipe: str, config: Mapping[str, Any] | None = None) -> list[TrialResult]:
        """Return a recipe's results in the order of the file; with `config`, only its results."""
        path = self.path(recipe)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return []
        wanted = None if config is None else config_hash(config)
        found: dict[ResultKey, TrialResult] = {}
        for result in self._results(content, path):
            # The first result of a key counts: two stores joined by hand must not count a trial twice.
            found.setdefault(result.key, result)
        return [result for key, result in found.items() if wanted in (None, key.config_hash)]

    def _results(self, content: bytes, path: Path) -> list[TrialResult]:
        """Return the results in the bytes of a file; lines that were read before are not parsed again."""
        before, results = self._read.get(path, (b"", []))
        if not content.startswith(before):
            before, results = b"", []
        end = content.rfind(b"\n") + 1
        lines = content[len(before) : end].split(b"\n")[:-1]
        results = results + _parse(lines, path, results_before=len(results))
        self._read[path] = (content[:end], results)
        if tail := content[end:]:
            if _is_complete(tail):
                return [*results, TrialResult.from_json(tail)]
            _log.info(
                "%s, line %d: half written by a process that was killed; ignored", path, len(results) + 1
            )
        return results


def _parse(lines: Sequence[bytes], path: Path, results_before: int) -> list[TrialResult]:
    results = []
    for number, line in enumerate(lines, start=results_before + 1):
        try:
            result = TrialResult.from_json(line)
            if result.recipe != path.stem:
                raise ValueError(f"recipe is {result.recipe!r}, which does not belong in this file")
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{path}, line {number}: not a result ({error}); correct the line or remove it"
            ) from error
        results.append(result)
    return results


def _is_complete(tail: bytes) -> bool:
    try:
        TrialResult.from_json(tail)
    except (ValueError, TypeError):
        return False
    return True


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Open a file for appending with a lock: other processes wait until the block ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)  # also releases the lock


def _repair(descriptor: int, content: bytes, path: Path) -> None:
    tail = content[content.rfind(b"\n") + 1 :]
    if not tail:
        return
    if _is_complete(tail):
        os.write(descriptor, b"\n")
    else:
        os.ftruncate(descriptor, len(content) - len(tail))
        _log.info("%s: removed %d bytes of a half-written last line", path, len(tail))


def _write_lines(descriptor: int, lines: Sequence[bytes], path: Path) -> None:
    for line in lines:
        start = os.fstat(descriptor).st_size
        # One write per line, so that readers see whole lines, even after a kill. A full disk may cut a line.
        written = os.write(descriptor, line)
        if written != len(line):
            os.ftruncate(descriptor, start)
            raise OSError(f"{path}: only {written} of {len(line)} bytes could be written; is the disk full?")
    if lines:
        os.fsync(descriptor)

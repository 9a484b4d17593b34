"""The division of an earlier run, kept for the same data with corrected labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from activebias.runs.folder import RunFolder
from activebias.runs.outcome import plural


@final
@dataclass(frozen=True)
class Split:
    """The division of a run: the digests of its training inputs and of its validation inputs.

    An input is found again by its content without the label: the pixels of an image, the other cells of a
    row, the words of a sentence. So it is found under another file name, class folder or row number too.
    """

    run: str
    share: float
    train: NDArray[np.uint64]
    held_out: NDArray[np.uint64]

    def divide(
        self, identity: NDArray[np.uint64], source: Path
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the positions of the training and of the validation part; new inputs train."""
        in_validation = np.isin(identity, self.held_out)
        if not in_validation.any() or in_validation.all():
            part = "training" if in_validation.any() else "validation"
            raise ValueError(
                f"{source} has no input of the {part} part of {self.run}: give the data of that run with "
                "corrected labels, or leave out `--like`."
            )
        return np.flatnonzero(~in_validation), np.flatnonzero(in_validation)

    def notes(self, what: str, identity: NDArray[np.uint64]) -> list[str]:
        """Say that the division was kept, and how many inputs were added and removed."""
        is_new = ~np.isin(identity, np.concatenate([self.train, self.held_out]))
        in_validation = np.isin(identity, self.held_out)
        notes = [
            f"The split is that of {self.run}: {int((~in_validation).sum()):,} {what} train, "
            f"{int(in_validation.sum()):,} validate."
        ]
        if is_new.any():
            notes.append(f"New {what}, which {self.run} does not have: {int(is_new.sum()):,}. They train.")
        gone = [int((~np.isin(part, identity)).sum()) for part in (self.train, self.held_out)]
        if any(gone):
            notes.append(
                f"Gone since {self.run}: {plural(gone[0], 'training example', 'training examples')} and "
                f"{plural(gone[1], 'validation example', 'validation examples')}."
            )
        return notes


def split_of(folder: RunFolder) -> float | Path | Split:
    """Return the argument `validation` for a reader, so that the data is divided as in the run.

    A run with a separate validation file keeps that file.
    """
    instances, settings = folder.instances(), folder.info.settings
    if instances.identity is None or "validation" not in settings:
        raise ValueError(
            f"{folder.path} does not say how its data was divided: it is a run of a recipe or of an earlier "
            "release. Train it again on your own data."
        )
    if isinstance(settings["validation"], str):
        return Path(settings["validation"])
    # In tagging all words of a sentence have its digest.
    first = _firsts(instances.position, instances.in_validation)
    identity, validates = instances.identity[first], instances.in_validation[first]
    return Split(str(folder.path), settings["validation"], identity[~validates], identity[validates])


def identity_of(digests: Sequence[str]) -> NDArray[np.uint64]:
    """Return the digests of inputs, hexadecimal, as numbers for a run folder."""
    return np.array([int(text[:16], 16) for text in digests], dtype=np.uint64)


def _firsts(*columns: Sequence[int] | NDArray[np.generic]) -> NDArray[np.int64]:
    """Return the place of the first entry of every different combination, in ascending order."""
    _, first = np.unique(np.stack(columns), axis=1, return_index=True)
    return np.sort(first)

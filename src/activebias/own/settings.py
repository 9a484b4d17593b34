"""The settings of a training on the user's data: the usual ones, or those of an earlier run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, final

from activebias.own.data import VALIDATION_SHARE, Validation
from activebias.own.splits import split_of
from activebias.runs.contents import OPTIONS
from activebias.runs.folder import RunFolder

BurnIn: TypeAlias = int | Literal["auto"]


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """How data is read and trained on; `target` is for tables, `size` and `grey` are for images.

    If `judges` is None, the data decides: 1, or several if it has embeddings.
    """

    validation: Validation = VALIDATION_SHARE
    method: str = "wtc"
    seed: int = 0
    # Enough for a burn-in of about ten epochs and at least ten epochs with emphasis.
    epochs: int = 30
    burn_in: BurnIn = "auto"
    judges: int | None = None
    target: str | None = None
    size: int | None = None
    grey: bool | None = None


def settings_like(folder: RunFolder, source: Path, option: str) -> Settings:
    """Return the settings of a run, with its division, for data that the `option` names."""
    info = folder.info
    if (before := OPTIONS[info.kind]) != option:
        raise ValueError(
            f"{folder.path} was trained on {before} {info.source}, and {source} is other data: give "
            f"`{before}`, or another run."
        )
    validation = split_of(folder)  # which refuses a run without settings
    return Settings(
        validation=validation,
        method=info.method,
        seed=info.seed,
        epochs=info.epochs,
        burn_in=info.settings["burn_in"],
        judges=info.num_judges,
        **{name: info.settings[name] for name in ("target", "size", "grey") if name in info.settings},
    )

"""Checkpoints on disk: written whole or not at all, and refused with the reason when they do not fit."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import torch

from activebias.files import replacing, until_written

if TYPE_CHECKING:
    from activebias.active_bias import ActiveBias

FORMAT = 6
PARTS = ("history", "scores", "num_skipped", "curve", "waiting", "order", "validation", "ids")


def write_checkpoint(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write `state` so that `path` holds either the old file or the whole new one, even after a power cut."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder of {path} does not exist: make it first.")
    with until_written(), replacing(path) as temporary, open(temporary, "wb") as file, _checksums():
        torch.save(state, file)


@contextmanager
def _checksums() -> Iterator[None]:
    """Let torch write the checksums by which a damaged file is known, also where it was told not to."""
    options = torch.serialization
    if not hasattr(options, "get_crc32_options"):  # before torch 2.6, which always writes them
        yield
        return
    before = options.get_crc32_options()
    options.set_crc32_options(True)
    try:
        yield
    finally:
        options.set_crc32_options(before)


def read_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a file of `write_checkpoint`; no code in the file is ever run."""
    try:
        with ZipFile(path) as file:  # torch does not compare the checksums
            if (record := file.testzip()) is not None:
                raise ValueError(f"the checksum of {record} is wrong")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:  # torch raises many kinds for a damaged file
        raise ValueError(
            f"{os.fspath(path)} is damaged or not a checkpoint ({type(error).__name__}: {error})."
        ) from error
    if not isinstance(state, dict):
        raise ValueError(f"{os.fspath(path)} is not a checkpoint of ActiveBias.")
    return state


def settings_of(bias: "ActiveBias") -> dict[str, Any]:
    """Return the settings that a state must share with the bias that loads it."""
    return {
        "method": bias.method.name,
        "order": bias.method.order,
        "weights": bias.method.weights,
        "num_instances": bias.num_instances,
        "num_classes": bias.num_classes,
        "burn_in": bias.burn_in,
        "window": bias.history.window,
        "remove_outliers": bias.remove_outliers,
        "max_weight": bias.max_weight,
        "multi_label": bias.multi_label,
        "storage": bias.history.storage,
        "seed": bias.seed,
    }


def state_of(bias: "ActiveBias") -> dict[str, Any]:
    """Return a copy of everything: history, scores, epoch, position and generator. Never communicates.

    On a single rank it includes the visits that wait for the rest of their step. On several ranks each rank
    has its own waiting visits, so a state that all ranks load leaves them out.
    """
    return {
        "format": FORMAT,
        "settings": settings_of(bias),
        "order": bias._order.state_dict(),
        "validation": bias._validation.state_dict(),
        "ids": list(bias._row_of_id) or None,
        **bias._memory.state_dict(waiting=bias._num_ranks == 1),
    }


def load_state(bias: "ActiveBias", state: dict[str, Any]) -> None:
    """Load a state of `state_dict`. A state that does not fit is refused and changes nothing."""
    check_state(bias, state)
    bias._memory.load_state_dict(state, waiting=bias._ranks.rank() == 0)
    bias._order.load_state_dict(state["order"])
    bias._validation.load_state_dict(state["validation"])
    bias._row_of_id = {each: row for row, each in enumerate(state["ids"] or [])}
    bias._prepare_epoch()


def has_our_format(state: dict[str, Any]) -> bool:
    """Return whether a state of `state_of` was made by a release with the format of this one."""
    return bool(state.get("format") == FORMAT)


def check_state(bias: "ActiveBias", state: dict[str, Any]) -> None:
    """Raise unless `state` is whole, of our format, undamaged, and of a bias with the same settings."""
    if not isinstance(state, dict) or "format" not in state or not isinstance(state.get("settings"), dict):
        raise ValueError("This is not a state of ActiveBias: it names no format.")
    if not has_our_format(state):
        raise ValueError(
            f"The state has format version {state['format']}, but this release of activebias reads "
            f"version {FORMAT}."
        )
    differences = [
        f"{name}={state['settings'].get(name)!r} there, {value!r} here"
        for name, value in settings_of(bias).items()
        if state["settings"].get(name) != value
    ]
    if differences:
        raise ValueError(
            f"The state was saved with other settings ({'; '.join(differences)}). "
            "Build ActiveBias with the settings it was saved with."
        )
    if missing := [part for part in PARTS if part not in state]:
        raise ValueError(f"The state is not whole: it lacks {', '.join(missing)}.")
    try:
        bias._order.check_state(state["order"], bias._plan)
        bias._validation.check_state(state["validation"])
        bias._memory.check_state(state)
        ids = [] if state["ids"] is None else state["ids"]
        if not isinstance(ids, list) or not len(set(ids)) == len(ids) <= bias.num_instances:
            raise ValueError(f"The stored `ids` are not at most {bias.num_instances} different ids.")
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"The state is damaged or does not fit: {error}") from error

"""Missing trials × methods in groups that the memory holds, each trained side by side and then stored."""

import errno
import gc
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, final

import torch
from torch import Tensor

from activebias import METHODS, Method
from activebias.lab.data import Dataset
from activebias.lab.models import LabModel
from activebias.lab.place import EpochDone, Listener, Place
from activebias.lab.prepared import Prepared, prepare
from activebias.lab.randomness import derived_generator
from activebias.lab.recipe import Recipe
from activebias.lab.results import trial_result
from activebias.lab.rules import run_name
from activebias.lab.side_by_side.batches import Trials
from activebias.lab.side_by_side.plan import most_models
from activebias.lab.side_by_side.training import Lane, SideBySide, part_of_state

_log = logging.getLogger(__name__)
_CPU = torch.device("cpu")
# A disk or a quota that is full, a file larger than allowed.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Missing = Mapping[int, Sequence[Method]]


def can_stack(recipe: Recipe, dataset: Dataset) -> bool:
    """Tell whether the recipe's models can be trained side by side.

    The lab's own can. A model of a user's own may use torch's global random state, or what `vmap` cannot map:
    those are trained one by one.
    """
    model = recipe.model(dataset, derived_generator(0, "can stack"))
    ours = isinstance(model, LabModel) and type(model).__module__.startswith("activebias.lab.models")
    return ours and recipe.batch_size < len(dataset.train)


def run_side_by_side(
    recipe: Recipe,
    dataset: Dataset,
    missing: Missing,
    place: Place,
    listener: Listener,
    teacher: Tensor | None,
) -> dict[int, list[Method]]:
    """Train what is missing where several models at once are of use; return what is still missing.

    On a GPU it must be the current one: kernels, graphs and the learning rate go there.
    """
    device = torch.device(place.device)
    first = prepare(recipe, dataset, seed=min(missing), device=_CPU, root=place.data, teacher=teacher)
    drawing = [method.name for methods in missing.values() for method in methods if method.order != "scan"]
    if first.tokens is not None and drawing:
        raise ValueError(
            f"Method {drawing[0]!r} draws single instances, but the words of a sentence train together: use "
            "scan, wd, we, wpv or wtc."
        )
    left: dict[int, list[Method]] = {}
    for scans in (True, False):
        lanes = [
            Lane(seed, method)
            for seed, methods in missing.items()
            for method in methods
            if (method.order == "scan") is scans
        ]
        # What was stopped goes on as it was, even if the memory now suggests other groups.
        stopped = _stopped_groups(recipe, lanes, place)
        lanes = [lane for lane in lanes if lane not in chain(*stopped)]
        for group in stopped:
            _Group(recipe, dataset, group, place, listener, teacher).train()
        if not lanes:
            continue
        most = place.side_by_side or most_models(recipe, first, device, draws=not scans)
        if min(most, len(lanes)) == 1 and device.type == "cpu":
            for lane in lanes:
                left.setdefault(lane.seed, []).append(lane.method)
            continue
        grouped = in_groups(lanes, most)
        listener.on_message(_plan_text(recipe, grouped, most, place))
        for group in grouped:
            _Group(recipe, dataset, group, place, listener, teacher).train()
    return left


def _stopped_groups(recipe: Recipe, lanes: Sequence[Lane], place: Place) -> list[list[Lane]]:
    """Return the groups among the lanes that a run before this one was stopped in."""
    waiting = {(lane.seed, run_name(lane.method)): lane for lane in lanes}
    groups = []
    for path in place.checkpoint_files(recipe, "side-by-side-*.json"):
        try:
            names = [(seed, name) for seed, name in json.loads(path.read_text(encoding="utf-8"))]
        except (OSError, ValueError, TypeError):  # removed meanwhile, or half written
            continue
        if len(names) <= (place.side_by_side or len(names)) and all(name in waiting for name in names):
            groups.append([waiting.pop(name) for name in names])
    return groups


def _plan_text(recipe: Recipe, groups: Sequence[Sequence[Lane]], most: int, place: Place) -> str:
    sizes = " + ".join(str(len(group)) for group in groups)
    limit = f"--side-by-side {most}" if place.side_by_side else f"{place.device} takes {most} at once"
    return f"{recipe.name}: {sizes} models side by side ({limit})."


def in_groups(lanes: Sequence[Lane], most: int) -> list[list[Lane]]:
    """Cut the lanes into groups of at most `most`, trials whole where they fit, of about the same size.

    >>> methods = [METHODS["scan"], METHODS["wpv"]]
    >>> groups = in_groups([Lane(seed, method) for seed in range(3) for method in methods], most=5)
    >>> [[(lane.seed, lane.method.name) for lane in group] for group in groups]
    [[(0, 'scan'), (1, 'scan'), (0, 'wpv'), (1, 'wpv')], [(2, 'scan'), (2, 'wpv')]]
    """
    trials: dict[int, list[Lane]] = {}
    for lane in lanes:
        trials.setdefault(lane.seed, []).append(lane)
    largest = max(len(trial) for trial in trials.values())
    if largest > most:
        pieces = [
            trial[start : start + most] for trial in trials.values() for start in range(0, len(trial), most)
        ]
    else:
        each = most // largest
        number = -(-len(trials) // each)
        each = -(-len(trials) // number)
        whole = list(trials.values())
        pieces = [list(chain(*whole[start : start + each])) for start in range(0, len(whole), each)]
    return [sorted(piece, key=lambda lane: lane.method.name) for piece in pieces]


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it was raised on top of."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_out_of_memory(error: BaseException) -> bool:
    """Tell whether the memory was too small; ending a broken capture may raise another error on top of it."""
    texts = ("can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return any(
        isinstance(each, torch.OutOfMemoryError | MemoryError) or any(text in str(each) for text in texts)
        for each in _with_causes(error)
    )


def _no_room(error: BaseException) -> OSError | None:
    """Return the error of a full disk; `torch.save` may raise one of its own on top of it."""
    return next(
        (each for each in _with_causes(error) if isinstance(each, OSError) and each.errno in _FULL), None
    )


@final
class _Group:
    """Lanes that are trained at once: first the burn-ins of their trials, then all of them."""

    def __init__(
        self,
        recipe: Recipe,
        dataset: Dataset,
        lanes: Sequence[Lane],
        place: Place,
        listener: Listener,
        teacher: Tensor | None,
    ) -> None:
        self.recipe, self.dataset, self.lanes = recipe, dataset, list(lanes)
        self.place, self.listener, self.teacher = place, listener, teacher
        self.seeds = sorted({lane.seed for lane in lanes})
        self.names = json.dumps([(lane.seed, run_name(lane.method)) for lane in self.lanes])
        digest = hashlib.sha256(self.names.encode()).hexdigest()[:12]
        self.checkpoint = place.checkpoint(recipe, self.seeds[0], f"side-by-side-{digest}")
        # Whose checkpoint it is, to be read without it.
        self.names_path = self.checkpoint.path.with_suffix(".json")

    def _write(self, state: dict[str, Any]) -> None:
        self.checkpoint.write(state)
        with suppress(FileNotFoundError):  # another process that works on the same trials has finished
            self.names_path.write_text(self.names, encoding="utf-8")

    def _write_if_there_is_room(self, state: dict[str, Any]) -> None:
        """Write, or say why not: the histories of many models may not fit on a disk, but are in memory."""
        try:
            self._write(state)
        except (OSError, RuntimeError) as error:
            if (full := _no_room(error)) is None:
                raise
            text = f"{self.recipe.name}: no checkpoint could be written ({full.strerror}); training goes on."
            _log.warning(text)
            self.listener.on_message(text)

    def _remove(self) -> None:
        self.names_path.unlink(missing_ok=True)
        self.checkpoint.remove()

    def train(self) -> None:
        """Train and store; where the memory does not suffice after all, each half by itself, from there."""
        device = torch.device(self.place.device)
        try:
            self._train(device)
            return
        except (RuntimeError, MemoryError) as error:
            if len(self.lanes) == 1 or not _is_out_of_memory(error):
                raise
        # Outside of the handler, whose traceback holds the tensors that were too many.
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        half = -(-len(self.lanes) // 2)
        text = f"{self.recipe.name}: out of memory with {len(self.lanes)} models: {half} at once."
        _log.warning(text)
        self.listener.on_message(text)
        parts = [
            _Group(self.recipe, self.dataset, group, self.place, self.listener, self.teacher)
            for group in in_groups(self.lanes, half)
        ]
        self._hand_on(parts)
        for part in parts:
            part.train()

    def _hand_on(self, parts: Sequence["_Group"]) -> None:
        """Turn the checkpoint into those of the parts: histories grow, and late is when memory runs out."""
        if (state := self.checkpoint.read()) is not None:
            for part in parts:
                trials = [self.seeds.index(seed) for seed in part.seeds]
                lanes = [self.lanes.index(lane) for lane in part.lanes] if state["emphasises"] else trials
                part._write(part_of_state(state, lanes, trials))
        self._remove()

    def _train(self, device: torch.device) -> None:
        prepared = [
            prepare(
                self.recipe, self.dataset, seed=seed, device=_CPU, root=self.place.data, teacher=self.teacher
            )
            for seed in self.seeds
        ]
        run = self._start(Trials(self.recipe, prepared, self.seeds, device))
        if not run.emphasises:
            self._train_until(run, min(self.recipe.burn_in, self.recipe.epochs))
            run = run.branch(self.lanes, emphasises=True)
        self._train_until(run, self.recipe.epochs)
        self._store(run, dict(zip(self.seeds, prepared, strict=True)))
        self._remove()

    def _start(self, trials: Trials) -> SideBySide:
        """Begin, or go on where a run of the same lanes was stopped."""
        state = self.checkpoint.read()
        burns_in = self.recipe.burn_in > 0 if state is None else not state["emphasises"]
        lanes = self.lanes
        if burns_in:
            plain = METHODS["scan" if lanes[0].method.order == "scan" else "uni"]
            lanes = [Lane(seed, plain) for seed in self.seeds]
        run = SideBySide.begin(trials, lanes, emphasises=not burns_in)
        if state is not None:
            run.load_state_dict(state)
        return run

    def _train_until(self, run: SideBySide, epochs: int) -> None:
        while run.epoch < epochs:
            run.train_epoch()
            if run.epoch < self.recipe.epochs and self.checkpoint.due():
                self._write_if_there_is_room(run.state_dict() | {"emphasises": run.emphasises})
            for lane, error in zip(run.lanes, run.test_error[-1].tolist(), strict=True):
                method = lane.method.name if run.emphasises else None
                self.listener.on_epoch(EpochDone(self.recipe.name, lane.seed, method, run.epoch, error))

    def _store(self, run: SideBySide, prepared: Mapping[int, Prepared]) -> None:
        if lost := run.memory.history.num_overwritten:
            text = f"{self.recipe.name}: {lost} entries of histories found no room and are lost."
            _log.warning(text)
            self.listener.on_message(text)
        test, train = (torch.stack(errors, dim=1).tolist() for errors in (run.test_error, run.train_error))
        results = [
            trial_result(
                self.recipe,
                prepared[lane.seed],
                lane.method,
                lane.seed,
                test_error=test[position],
                train_error=train[position],
                seconds=run.seconds,
                device=run.device,
                side_by_side=len(run.lanes),
                precision="bf16" if run.stack.half_precision else "float32",
            )
            for position, lane in enumerate(run.lanes)
        ]
        self.place.store.append(results)
        for result in results:
            self.listener.on_result(result)

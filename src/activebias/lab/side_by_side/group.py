"""A group of lanes: trained at once, with checkpoints and stored results; in halves when RAM runs out."""

import errno
import gc
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor

from activebias.lab.data import Dataset
from activebias.lab.experiment.place import EpochDone, Listener, Place
from activebias.lab.experiment.prepared import Prepared, prepare, trial_result
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.side_by_side.batches import TrialData
from activebias.lab.side_by_side.lanes import Lane, burn_in_lanes, epochs_of, in_groups
from activebias.lab.side_by_side.stopped import GroupCheckpoint
from activebias.lab.side_by_side.training import SideBySide
from activebias.training.loop import train_until

_log = logging.getLogger(__name__)
_CPU = torch.device("cpu")
# The errors of a full disk, a full quota, and a file that is larger than allowed.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The messages of the CPU's allocator, CUDA's driver and runtime, Triton, cuBLAS and cuDNN without RAM.
_OUT_OF_MEMORY = (
    "can't allocate memory",
    "out of memory",
    "out_of_memory",
    "alloc_failed",
    "allocation_failed",
)


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its causes and its contexts."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_out_of_memory(error: BaseException) -> bool:
    """Return whether RAM ran out; the end of a broken capture may raise another error on top."""
    return any(
        isinstance(each, torch.OutOfMemoryError | MemoryError)
        or (isinstance(each, RuntimeError) and any(text in str(each).lower() for text in _OUT_OF_MEMORY))
        for each in _with_causes(error)
    )


def _no_room(error: BaseException) -> OSError | None:
    """Return the error of a full disk; `torch.save` may raise its own error on top."""
    return next(
        (each for each in _with_causes(error) if isinstance(each, OSError) and each.errno in _FULL), None
    )


@final
class Group:
    """Lanes that are trained at once: first the burn-ins of their trials, then all lanes."""

    def __init__(
        self,
        recipe: Recipe,
        dataset: Dataset,
        lanes: Sequence[Lane],
        *,
        place: Place,
        listener: Listener,
        teacher: Tensor | None,
    ) -> None:
        """Prepare the training, which resumes from a checkpoint of the same lanes."""
        self.recipe, self.dataset, self.lanes = recipe, dataset, list(lanes)
        self.place, self.listener, self.teacher = place, listener, teacher
        self.checkpoint = GroupCheckpoint(recipe, place, [lane.key for lane in self.lanes])
        self.seeds = self.checkpoint.seeds
        self.epochs_left = epochs_of(recipe, self.lanes)
        self._told_full = False

    def _tell(self, text: str) -> None:
        text = f"{self.recipe.name}: {text}"
        _log.warning(text)
        self.listener.on_message(text)

    def due(self) -> bool:
        """Return whether the checkpoint is old enough for another write."""
        return self.checkpoint.due()

    def write(self, state: dict[str, Any]) -> None:
        """Write a checkpoint; if the disk is full, tell the listener and continue without a checkpoint."""
        burn_ins = burn_in_lanes(self.lanes)
        parents = [burn_ins.index(lane.in_burn_in) for lane in self.lanes]
        try:
            self.checkpoint.write(state | {"parents": parents})
        except (OSError, RuntimeError) as error:
            if (full := _no_room(error)) is None:
                raise
            if not self._told_full:
                self._tell(f"no checkpoint could be written ({full.strerror}); training continues.")
            self._told_full = True

    def train(self) -> int:
        """Train and store the results; when RAM runs out, train each half separately, from the checkpoint.

        Returns the largest number of models that fitted into RAM (the GPU's, on a GPU).
        """
        device = torch.device(self.place.device)
        try:
            self._train(device)
            return len(self.lanes)
        except (RuntimeError, MemoryError) as error:
            if len(self.lanes) == 1 or not _is_out_of_memory(error):
                raise
        # After the except block: its traceback keeps the tensors alive.
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        halves = in_groups(self.lanes, -(-len(self.lanes) // 2))
        sizes = " + ".join(str(len(half)) for half in halves)
        self._tell(f"out of memory with {len(self.lanes)} models side by side: now {sizes}.")
        parts = [
            Group(
                self.recipe,
                self.dataset,
                half,
                place=self.place,
                listener=self.listener,
                teacher=self.teacher,
            )
            for half in halves
        ]
        # Histories grow, so that RAM runs out late: the halves resume from the checkpoint.
        self.checkpoint.hand_on([part.checkpoint for part in parts])
        self.checkpoint.remove()
        self.listener.on_recount(sum(part.epochs_left for part in parts) - self.epochs_left)
        return max(part.train() for part in parts)

    def _train(self, device: torch.device) -> None:
        prepared = [
            prepare(
                self.recipe, self.dataset, seed=seed, device=_CPU, root=self.place.data, teacher=self.teacher
            )
            for seed in self.seeds
        ]
        run = self._start(TrialData(self.recipe, prepared, self.seeds, device))
        if not run.emphasises:
            self._train_until(run, min(self.recipe.burn_in, self.recipe.epochs))
            run = run.branch(self.lanes)
        self._train_until(run, self.recipe.epochs)
        self._store(run, dict(zip(self.seeds, prepared, strict=True)))
        self.checkpoint.remove()

    def _start(self, trials: TrialData) -> SideBySide:
        """Start at epoch 0, or resume from the checkpoint of the same lanes."""
        if (state := self.checkpoint.read()) is not None:
            run = self._begin(trials, burns_in=not state["emphasises"])
            try:
                run.load_state_dict(state)
            except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
                self._tell(f"the checkpoint does not fit ({error}): training begins again.")
            else:
                self._tell_where_it_goes_on(run)
                return run
            del run, state  # frees their RAM
        return self._begin(trials, burns_in=self.recipe.burn_in > 0)

    def _begin(self, trials: TrialData, *, burns_in: bool) -> SideBySide:
        lanes = self.lanes
        if burns_in:
            lanes = burn_in_lanes(lanes)
        return SideBySide.begin(trials, lanes, emphasises=not burns_in)

    def _tell_where_it_goes_on(self, run: SideBySide) -> None:
        shared = min(run.epoch, self.recipe.burn_in)
        done = len(burn_in_lanes(self.lanes)) * shared + (
            len(self.lanes) * (run.epoch - shared) if run.emphasises else 0
        )
        self.epochs_left -= done
        self.listener.on_recount(-done)
        models = "1 model" if len(self.lanes) == 1 else f"{len(self.lanes)} models"
        self.listener.on_message(
            f"{self.recipe.name}: {models} side by side, resumed after epoch {run.epoch}."
        )

    def _train_until(self, run: SideBySide, epochs: int) -> None:
        train_until(run, epochs, self, lambda: self._tell_epoch(run), last=self.recipe.epochs)

    def _tell_epoch(self, run: SideBySide) -> None:
        for lane, error in zip(run.lanes, run.test_error[-1].tolist(), strict=True):
            method = lane.side.name if run.emphasises else None
            more_follow = lane is not run.lanes[-1]
            self.epochs_left -= 1
            self.listener.on_epoch(
                EpochDone(self.recipe.name, lane.seed, method, run.epoch, error, more_follow=more_follow)
            )

    def _store(self, run: SideBySide, prepared: Mapping[int, Prepared]) -> None:
        if lost := run.memory.history.num_overwritten:
            self._tell(f"{lost} entries of histories are lost, because the histories were full.")
        test, train, validation = (
            torch.stack(errors, dim=1).tolist() if errors else [()] * len(run.lanes)
            for errors in (run.test_error, run.train_error, run.validation_error)
        )
        results = [
            trial_result(
                self.recipe,
                prepared[lane.seed],
                lane.side,
                lane.seed,
                test_error=test[position],
                train_error=train[position],
                validation_error=validation[position],
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

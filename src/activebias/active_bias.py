"""ActiveBias: the one stateful object that a user holds."""

from collections.abc import Hashable
from functools import partial
from os import PathLike
from typing import Any, Literal

import torch
import torch.distributed as dist

from activebias import checks, losses
from activebias._arrays import as_tensor, native
from activebias._compile import eager, keep_out
from activebias.checkpoint import load_state, read_checkpoint, state_of, write_checkpoint
from activebias.distributed import Ranks
from activebias.growth import grow_to, rows_of
from activebias.history import PredictionHistory
from activebias.learning import curve_of, explain, learn_curve, warn_if_unlearnt
from activebias.memory import Exchange, InstanceMemory
from activebias.methods import Method, get_method
from activebias.metrics import describe, metrics
from activebias.order import EpochOrder, Handout, Plan
from activebias.sampling import make_loader, make_sampler
from activebias.validation import Validation


class ActiveBias:
    """Emphasises training instances by the model's past predictions for them (Algorithm 1).

    It holds the history of p(y|x) of every instance, the scores computed from it, and the position in the
    epoch. `loss` does everything for cross-entropy; `weigh`, or `weight` and `record`, serve other losses.

    >>> bias = ActiveBias("wtc", num_instances=4, num_classes=2)
    >>> bias.set_epoch(0)
    >>> bias.record([0, 1], [0.9, 0.6])
    >>> bias.weights()
    tensor([0.9386, 1.0170, 1.0222, 1.0222])

    Args:
        method: a name (uni, scan, sd, isd, se, spv, stc, wd, we, wpv, wtc, auto, sauto) or your own `Method`.
        num_instances: the length of the training set; in tagging, the number of its words.
        num_classes: the number of classes; every history starts with the entry 1 / num_classes.
        burn_in: the epochs that only record. "auto" ends them when the error that you report stops improving.
        window: how many of the latest entries count; None for all.
        remove_outliers: leave out the entries far from an instance's mean, as the paper does.
        storage: "float32", or "float16" for half the memory at the same ranking of instances.
        max_weight: the largest weight of an instance; the mean weight stays 1 (of `auto`: before
            its factor). None for no bound.
        multi_label: an instance is a pair of an example and a class; `num_instances` counts the examples.
        device: the device of history and scores. Give the model's: a step waits for another device.
        seed: the seed of the order of instances; no global random state is used.
        history_file: a memory-mapped file for the history, overwritten; needs a window and the CPU.
        group: the process group whose ranks train together; None for all.
    """

    def __init__(
        self,
        method: str | Method,
        *,
        num_instances: int,
        num_classes: int,
        burn_in: int | Literal["auto"] = 0,
        window: int | None = None,
        remove_outliers: bool = True,
        storage: str = "float32",
        max_weight: float | None = None,
        multi_label: bool = False,
        device: torch.device | str = "cpu",
        seed: int = 0,
        history_file: str | PathLike[str] | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """Begin with every history at {1 / num_classes}."""
        self.method = get_method(method)
        self.num_classes = checks.integer("num_classes", num_classes, at_least=2)
        self.multi_label = checks.boolean("multi_label", multi_label)
        self._num_labels = self.num_classes if self.multi_label else None  # of an example
        num_examples = checks.integer("num_instances", num_instances, at_least=1)
        self.num_instances = num_examples * (self._num_labels or 1)
        self.max_weight = checks.max_weight(max_weight, self.method)
        checks.usable(self.method, multi_label=self.multi_label, window=window)
        self._validation = Validation(burn_in)
        self.burn_in = self._validation.burn_in
        self.remove_outliers = checks.boolean("remove_outliers", remove_outliers)
        self.seed = checks.integer("seed", seed, at_least=0)
        self._ranks = Ranks(group)
        self._num_ranks = 1  # asked once an epoch
        self._plan: Plan | None = None  # of the latest sampler
        with torch.inference_mode(False):  # a tensor made under inference can never change outside of it
            self.history = PredictionHistory(
                self.num_instances,
                initial=1 / 2 if self.multi_label else 1 / self.num_classes,
                window=window,
                storage=storage,
                device=device,
                path=history_file,
            )
            self._memory = InstanceMemory(
                self.method,
                self.history,
                num_classes=self.num_classes,
                remove_outliers=self.remove_outliers,
                max_weight=self.max_weight,
            )
        self.device = self.history.device
        self._row_of_id: dict[Hashable, int] = {}  # where instances are known by ids
        draw = None if self.method.order == "scan" else self._draw
        self._order = EpochOrder(num_examples, seed=self.seed, draw=draw)

    def _draw(self, num_samples: int, generator: torch.Generator) -> torch.Tensor:
        return self._memory.draw(num_samples, generator)

    # These methods are defined, with their arguments, in the modules that do the work.
    __repr__ = describe
    loss = eager(losses.loss)  # the weighted cross-entropy; remembers p(y|x)
    weigh = eager(losses.weigh)  # the same for a loss of the user's own
    record = eager(losses.record)  # remembers p(y|x) alone
    loader = make_loader  # a DataLoader in the order of the method
    sampler = make_sampler  # the sampler of such a DataLoader
    rows = rows_of  # the index of instances that are known by an id
    grow = grow_to  # more instances
    learn = learn_curve  # of the method `auto`: after every epoch
    curve = curve_of  # the weight over p̄ that it has learnt
    explain = explain  # the same as a sentence
    metrics = metrics  # numbers worth logging
    state_dict = state_of
    load_state_dict = load_state

    @property
    def epoch(self) -> int | None:
        """The current epoch, None before the first `set_epoch`."""
        return self._order.epoch

    @property
    def burn_in_end(self) -> int | None:
        """The first epoch with emphasis; None while an automatic burn-in lasts."""
        return self._validation.burn_in_end

    @property
    def emphasises(self) -> bool:
        """Whether instances are emphasised now: the burn-in is over, and the method has a statistic."""
        return self._memory.emphasises and self.method.statistic is not None

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch (0-based). Setting the same epoch again changes nothing.

        On a GPU a full history grows here, so the call waits for the device.
        """
        keep_out()
        epoch = checks.integer("epoch", epoch, at_least=0)
        if epoch == self._order.epoch:
            return
        if self._order.recorded and (num_ranks := self._ranks.number()) > self._num_ranks:
            raise RuntimeError(
                f"Epoch {self._order.epoch} was trained on {num_ranks} ranks, but the bias knew of "
                f"{self._num_ranks}, so each rank has a history of its own: call "
                "`torch.distributed.init_process_group` before the first `bias.set_epoch`."
            )
        self._memory.finish(self._exchange())
        self._order.end(self.method.name, by_order=self.emphasises and self.method.order == "emphasis")
        if self._order.epoch is not None:
            self._validation.end_epoch(epoch, self._ranks)
        elif self.method.statistic is not None:
            self._validation.warn_if_late(epoch)
        warn_if_unlearnt(self, epoch)
        self._order.begin(epoch)
        self._prepare_epoch()

    def _prepare_epoch(self) -> None:
        epoch, self._num_ranks = self._order.epoch, self._ranks.number()
        self._memory.prepare_epoch(
            emphasises=epoch is not None and self._validation.burn_in_is_over(epoch),
            batch_size=self._plan.batch_size if self._plan and self._num_ranks == 1 else None,
        )

    def report_validation_error(self, error: float) -> None:
        """Report the share of wrong validation examples (0 to 1); call it after an epoch.

        `burn_in="auto"` ends when three epochs in a row, not counting errors of 1, brought no new best error.
        A `MemorisationWarning` warns once of a model that memorises its training set early; this check waits
        for the device. The last report of an epoch counts. Several ranks use the mean of their errors, from
        the next `set_epoch` on: a checkpoint written before holds the error of the rank that wrote it.
        """
        self._validation.report(error, epoch=self._require_epoch(), history=self.history)

    def _visit(self, index: Any, found: losses.PerInstance) -> losses.Weights:
        """Look up the weights; record the probabilities of a step when its last batch has come."""
        self._require_epoch()
        if self._num_ranks > 1:
            checks.constant_share(found.share)
        batch = checks.batch(index, found.prob, found.mask, found.loss, self.history, self._num_labels)
        words = batch.index.ndim > 1
        place = self._order.take_back(batch.items, batch.host_index, self._plan)
        try:
            known = place.handout is not None and (self.multi_label or not words)
            weights = self._memory.visit(batch, place, self._exchange(place.handout if known else None))
        except Exception:  # a statistic of the user's
            self._order.undo(place)
            raise
        padding_scale = None if words else place.padding_scale
        if found.share is None and (self._num_ranks == 1 or not words):
            return losses.Weights(*weights[:3], 1, padding_scale, place.num_real)
        number = batch.number(place.num_real) if found.share is None else found.share[: place.num_real].sum()
        if self._num_ranks > 1:
            number, padding_scale = self._ranks.total(number, self.device), None
        return losses.Weights(weights.value, number, None, self._num_ranks, padding_scale, place.num_real)

    def _exchange(self, handout: Handout | None = None) -> Exchange | None:
        """Return a function that gathers the visits of all ranks; with a handout it never waits for a GPU."""
        if self._num_ranks == 1:
            return None
        size = None if handout is None else handout.plan.batch_size * (self._num_labels or 1)
        return partial(self._ranks.exchange, size=size)

    @eager
    def weight(self, index: Any, *, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return the weights v of the given instances as they stand, for a loss of your own.

        The loss to minimise is the mean over the batch of weight · loss. Where `mask` is False the weight is
        0. On several ranks the padding of an epoch's last batch weighs 0, and the rest accordingly more.
        """
        self._require_epoch()
        instances = checks.labels_of(checks.index_tensor(index, self.device), self._num_labels)
        if mask is not None:
            mask = checks.mask_tensor(mask, instances)
            instances = torch.where(mask, instances, 0)
        checks.index_range(instances, self.num_instances)
        weight = as_tensor(self._memory.weight(native(instances)))
        place = self._order.find(checks.to_compare(index), len(instances), strict=False)
        if place is not None and place.padding_scale is not None:
            weight *= place.padding_scale
            weight[place.num_real :] = 0
        return weight if mask is None else torch.where(mask, weight, 0)

    def _require_epoch(self) -> int:
        if self._order.epoch is None:
            raise RuntimeError("The epoch is not known: call `bias.set_epoch(epoch)` before every epoch.")
        return self._order.epoch

    @property
    def scores(self) -> torch.Tensor:
        """The statistic s of all instances (zeros for uni and scan, which have none)."""
        return self._memory.scores.values()

    def weights(self) -> torch.Tensor:
        """Return the weights v of all instances as they stand; the mean of the W* methods is 1.

        The weights of `auto` have this mean before its factor.
        """
        self._require_epoch()
        every = torch.arange(self.num_instances, device=self.device)
        return as_tensor(self._memory.weight(native(every)))

    def probabilities(self) -> torch.Tensor | None:
        """Return the sampling probabilities P of all instances (float64), None for methods that scan."""
        self._require_epoch()
        return self._memory.probabilities()

    @property
    def num_skipped(self) -> int:
        """How many visits were not recorded because their probability was not finite.

        On a GPU, where nothing is raised in a step, visits with a probability outside [0, 1] or an index
        outside the data set are left out and counted too. Asking waits for the device.
        """
        return int(self._memory.num_skipped)

    @property
    def num_bytes(self) -> int:
        """How many bytes history and scores take."""
        return self.history.num_bytes + self._memory.scores.num_bytes

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state to a file, whole or not at all."""
        write_checkpoint(self.state_dict(), path)

    def load(self, path: str | PathLike[str]) -> None:
        """Load a state that `save` wrote."""
        self.load_state_dict(read_checkpoint(path))

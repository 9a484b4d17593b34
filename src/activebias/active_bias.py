"""ActiveBias: the one stateful object that a user holds."""

from collections.abc import Sized
from os import PathLike
from typing import Any, Literal

import torch
import torch.distributed as dist

from activebias import checks
from activebias._compile import eager
from activebias.checkpoint import (
    FORMAT,
    read_checkpoint,
    refuse_differences,
    settings_of,
    unchanged_if_refused,
    write_checkpoint,
)
from activebias.distributed import ranks
from activebias.history import PredictionHistory
from activebias.losses import IGNORED, cross_entropy, is_plain, surprisal
from activebias.memory import InstanceMemory
from activebias.methods import Method, get_method
from activebias.metrics import metrics
from activebias.order import EpochOrder
from activebias.sampling import EmphasisSampler, num_items_of
from activebias.steps import Step
from activebias.validation import Validation


class ActiveBias:
    """Emphasises training instances by what the model has predicted for them so far (Algorithm 1).

    It holds the history of p(y|x) of every instance, the scores that follow from it, and where the epoch
    stands. `loss` does everything for cross-entropy; `weigh`, or `weight` and `record`, serve other losses.

    >>> bias = ActiveBias("wtc", num_instances=4, num_classes=2)
    >>> bias.set_epoch(0)
    >>> bias.record([0, 1], [0.9, 0.6])
    >>> bias.weights()
    tensor([0.9386, 1.0170, 1.0222, 1.0222])

    Args:
        method: a name (uni, scan, sd, isd, se, spv, stc, wd, we, wpv, wtc) or a `Method` of your own.
        num_instances: the length of the training set; in tagging, the number of its words.
        num_classes: the number of classes; every history starts with the entry 1 / num_classes.
        burn_in: for this many epochs histories are recorded, but nothing is emphasised. With "auto" it
            ends when the validation error, which you then report every epoch, stops improving.
        window: how many of the latest entries count; None for all.
        remove_outliers: leave out the entries far from an instance's mean, as the paper does.
        storage: "float32", or "float16" for half the memory at the same ranking of instances.
        device: where history and scores live. Give the model's: on its GPU `loss` waits for nothing, while a
            history on the CPU waits for the probabilities of every step.
        seed: of the order of instances; no global random state is used.
        history_file: put the history into a memory-mapped file (needs a window, on the CPU), which is
            overwritten.
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
        device: torch.device | str = "cpu",
        seed: int = 0,
        history_file: str | PathLike[str] | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """Begin with every history at {1 / num_classes}."""
        self.method = get_method(method)
        self.num_instances = checks.integer("num_instances", num_instances, at_least=1)
        self.num_classes = checks.integer("num_classes", num_classes, at_least=2)
        self._validation = Validation(burn_in)
        self.burn_in = self._validation.burn_in
        self.remove_outliers = bool(remove_outliers)
        self.seed = checks.integer("seed", seed, at_least=0)
        self.group = group
        with torch.inference_mode(False):  # what is made under inference can never change outside of it
            self._allocate(window, storage, device, history_file)

    def _allocate(
        self,
        window: int | None,
        storage: str,
        device: torch.device | str,
        history_file: str | PathLike[str] | None,
    ) -> None:
        self.history = PredictionHistory(
            self.num_instances,
            initial=1 / self.num_classes,
            window=window,
            storage=storage,
            device=device,
            path=history_file,
        )
        self.device = self.history.device
        self._order = EpochOrder(self.num_instances, seed=self.seed, draw=self._draw)
        self._step = Step(self._order, num_instances=self.num_instances, group=self.group)
        self._memory = InstanceMemory(self.method, self.history, remove_outliers=self.remove_outliers)

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
        """Whether the burn-in is over."""
        return self._memory.emphasises

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch (0-based). Saying the same epoch again changes nothing.

        On a GPU this is where a full history grows, so it waits for the device, once an epoch.
        """
        epoch = checks.integer("epoch", epoch, at_least=0)
        if epoch == self._order.epoch:
            return
        self._step.finish(self._memory.append)
        if self.method.order == "emphasis" and self.emphasises:
            self._order.warn_if_nobody_drew(self.method.name)
        if self._order.epoch is not None:
            self._validation.end_epoch(epoch, self.group)
        elif self.method.statistic is not None:
            self._validation.warn_if_late(epoch)
        self._order.begin(epoch, scans=self.method.order == "scan")
        self._prepare_epoch()

    def _prepare_epoch(self) -> None:
        epoch, sampler = self._order.epoch, self._step.sampler
        self._memory.prepare_epoch(
            emphasises=epoch is not None and self._validation.burn_in_is_over(epoch),
            batch_size=None if sampler is None or self._step.num_ranks > 1 else sampler.batch_size,
        )

    def report_validation_error(self, error: float) -> None:
        """Say what share of the validation examples (0 to 1) the model gets wrong; call it after an epoch.

        `burn_in="auto"` ends when three epochs in a row, not counting those at 1, brought no new best error.
        A model that has its training set by heart early is warned of, once (`MemorisationWarning`); looking
        waits for the device. The last report of an epoch counts. Several ranks go by the mean of theirs; they
        form it in `set_epoch`: a checkpoint written before holds the error of the rank that wrote it.
        """
        self._validation.report(error, epoch=self._require_epoch(), history=self.history)

    def sampler(
        self,
        *,
        batch_size: int,
        dataset: Sized | None = None,
        num_sequences: int | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> EmphasisSampler:
        """Return the torch sampler of this bias, for a DataLoader.

        Args:
            batch_size: the instances of one optimiser step on this rank. Draws, and the updates of the
                scores, come in batches of this size: with gradient accumulation it is the number of
                instances that are accumulated, while the DataLoader's batch size is the smaller one.
                A last step that `drop_last` leaves incomplete is counted in by the next `set_epoch`: call
                it after the last epoch too.
            dataset: if given, its length is checked against `num_instances`.
            num_sequences: in tagging, the number of sentences: the sampler then orders sentences.
            num_replicas, rank: default to torch.distributed's. Pass 1 and 0 where something else (Hugging
                Face's Accelerate) shards the batches.
        """
        num_items = num_items_of(self, dataset, num_sequences)
        self._order.resize(num_items)
        own_rank, num_ranks = ranks(self.group)
        self._step.sampler = EmphasisSampler(
            self,
            batch_size=checks.integer("batch_size", batch_size, at_least=1),
            num_items=num_items,
            num_replicas=num_ranks if num_replicas is None else num_replicas,
            rank=own_rank if rank is None else rank,
        )
        return self._step.sampler

    def _draw(self, num_samples: int, generator: torch.Generator) -> torch.Tensor:
        """Draw with replacement from P as it stands now; the random numbers are the same on every device."""
        if not self.emphasises or self.method.order == "uniform":
            return torch.randint(self.num_instances, (num_samples,), generator=generator, device="cpu")
        return self._memory.scores.draw(num_samples, generator)

    @eager
    def loss(
        self,
        logits: torch.Tensor,
        targets: torch.Tensor,
        index: Any,
        *,
        ignore_index: int = IGNORED,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> torch.Tensor:
        """Return the weighted cross-entropy, and remember p(y|x). Call it once for every batch.

        Takes class logits (B, C), token logits (B, L, C) with targets and index (B, L), or binary logits (B,)
        with targets 0 and 1. Tokens whose target is `ignore_index` do not count.
        """
        if self.device.type == "cuda":
            index = checks.index_tensor(index, self.device)  # a loader gives it on the CPU
            usual = (ignore_index, label_smoothing, reduction) == (IGNORED, 0.0, "mean")
            plain = usual and is_plain(logits, targets, index, self.num_classes)
            if plain and self._step.is_plain(index.shape):
                return self._plain_loss(logits, targets, index)
        per_instance = cross_entropy(
            logits,
            targets,
            num_classes=self.num_classes,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
        )
        return self._weigh(per_instance.loss, per_instance.prob, index, per_instance.mask, reduction)

    def _plain_loss(self, logits: torch.Tensor, targets: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """Return what `loss` returns for a whole step of class logits, with few launches on a GPU."""
        self._require_epoch()
        loss = self._memory.weighted_mean(index, surprisal(logits, targets), targets)
        self._order.recorded = True
        self._step.advance(index.shape[0])
        return loss

    @eager
    def weigh(
        self,
        per_instance_loss: torch.Tensor,
        prob: Any,
        index: Any,
        *,
        mask: torch.Tensor | None = None,
        reduction: str = "mean",
    ) -> torch.Tensor:
        """Return the mean over the batch of v_i · loss_i, and remember `prob`.

        The mean is not normalised again within the batch. Entries where `mask` is False do not count.
        `reduction` may also be "sum" or "none".
        """
        per_instance_loss = checks.loss_tensor(per_instance_loss)
        if mask is not None:
            # What does not count may be NaN, and 0 · NaN would still be NaN.
            per_instance_loss = torch.where(checks.mask_tensor(mask, per_instance_loss), per_instance_loss, 0)
        return self._weigh(per_instance_loss, prob, index, mask, reduction)

    def _weigh(
        self,
        per_instance_loss: torch.Tensor,
        prob: Any,
        index: Any,
        mask: torch.Tensor | None,
        reduction: str,
    ) -> torch.Tensor:
        self._require_epoch()
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"Expected `reduction` to be 'mean', 'sum' or 'none', but got {reduction!r}.")
        index, prob, mask = self._checked(index, prob, mask)
        checks.same_shape("per_instance_loss", per_instance_loss, "index", index)
        # In a step with filling a mean over the batch counts too many: the rest weighs accordingly more.
        num_items = index.shape[0]
        num_real = self._step.num_real(num_items) if index.dim() == 1 else None
        scale = 1.0 if num_real is None else self._step.filling_scale(num_items)
        weight, mean_weight = self._look_up_and_take(index, prob, mask)
        if reduction == "mean" and mean_weight is not None and num_real is None and self._step.num_ranks == 1:
            return (mean_weight.clone().to(per_instance_loss) * per_instance_loss).sum()
        # On a GPU the next step may overwrite the weights, before autograd has read them.
        loss = weight.to(per_instance_loss, copy=self.device.type != "cpu") * per_instance_loss
        if reduction == "mean":
            mean = self._step.mean(loss, mask)  # over what counts of this rank's own
            return mean if num_real is None else scale * num_real / num_items * mean
        if reduction == "sum":
            return loss.sum()
        return loss if num_real is None else scale * loss

    def _checked(
        self, index: Any, prob: Any, mask: Any
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        index = checks.index_tensor(index, self.device)
        prob = checks.probability_tensor(prob, self.device)
        checks.same_shape("prob", prob, "index", index)
        self._step.check(index)
        mask = None if mask is None else checks.mask_tensor(mask, index)
        return index, prob, self._step.mask(index, mask)

    def _look_up_and_take(
        self, index: torch.Tensor, prob: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the weights, and count the visits in when their step is complete."""
        self._order.recorded = True
        if self._step.is_whole(index.shape):
            weights = self._memory.step(index, prob, mask)
            self._step.advance(index.shape[0])
            return weights
        visits, weight, mean_weight = self._memory.look_up(index, prob, mask)
        if self._step.add(*visits, index.shape):
            self._step.finish(self._memory.append)
        return weight, mean_weight

    @eager
    def weight(self, index: Any, *, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return the weights v of the given instances as they stand, for a loss of your own.

        The loss to minimise is the mean over the batch of weight · loss. Where `mask` is False the weight is
        0. On the ranks whose last batch was filled up, the filling weighs 0 and the rest accordingly more.
        """
        self._require_epoch()
        index = checks.index_tensor(index, self.device)
        if mask is not None:
            mask = checks.mask_tensor(mask, index)
            return torch.where(mask, self.weight(torch.where(mask, index, 0)), 0)
        checks.index_range(index, self.num_instances)
        weight = self._memory.weight(index)
        if (num_real := self._step.num_real(index.shape[0])) is not None:
            weight *= self._step.filling_scale(index.shape[0])
            weight[num_real:] = 0
        return weight

    @eager
    def record(self, index: Any, prob: Any, *, mask: torch.Tensor | None = None) -> None:
        """Remember p(y|x) of the given instances, from the forward pass that training did anyway.

        With a sampler whose `batch_size` is larger than this batch (gradient accumulation), scores and
        weights change when the step's last visit has come.
        """
        self._require_epoch()
        self._look_up_and_take(*self._checked(index, prob, mask))

    def _require_epoch(self) -> int:
        if self._order.epoch is None:
            raise RuntimeError("The epoch is not known: call `bias.set_epoch(epoch)` before every epoch.")
        return self._order.epoch

    @property
    def scores(self) -> torch.Tensor:
        """The statistic s of all instances (zeros for uni and scan, which have none)."""
        return self._memory.scores.values()

    def weights(self) -> torch.Tensor:
        """Return the weights v of all instances as they stand; their mean is 1 for the W* methods."""
        self._require_epoch()
        return self._memory.weight(torch.arange(self.num_instances, device=self.device))

    def probabilities(self) -> torch.Tensor | None:
        """Return the sampling probabilities P of all instances (float64), None for methods that scan."""
        self._require_epoch()
        self._order.asked = True
        if self.method.order == "scan":
            return None
        if self.method.order == "emphasis" and self.emphasises:
            return self._memory.scores.probabilities()
        return torch.ones(self.num_instances, dtype=torch.float64, device=self.device) / self.num_instances

    @property
    def num_skipped(self) -> int:
        """How many visits were not recorded because their probability was not finite.

        On a GPU, where nothing is raised in a step, those outside [0, 1] or with an index outside the data
        set are left out and counted too. Asking waits for the device.
        """
        return int(self._memory.num_skipped)

    @property
    def num_bytes(self) -> int:
        """How many bytes history and scores take."""
        return self.history.num_bytes + self._memory.scores.num_bytes

    def metrics(self) -> dict[str, float]:
        """Return what is worth logging; reads every history, and waits for the device."""
        return metrics(self)

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything: history, scores, epoch, position and generator. Never communicates."""
        return {
            "format": FORMAT,
            "settings": settings_of(self),
            "order": self._order.state_dict(),
            "step": self._step.state_dict(),
            "validation": self._validation.state_dict(),
            **self._memory.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` stood. A state that does not fit is refused and changes nothing."""
        refuse_differences(state, settings_of(self))
        with unchanged_if_refused(self, self._step, self._order):
            self._load(state)

    def _load(self, state: dict[str, Any]) -> None:
        num_items, sampler = state["order"]["num_items"], self._step.sampler
        if sampler is not None and sampler.num_items != num_items:
            raise ValueError(f"it orders {num_items} items, but the sampler {sampler.num_items}")
        self._memory.load_state_dict(state)
        self._order.load_state_dict(state["order"])
        self._validation.load_state_dict(state.get("validation"))
        self._step.load_state_dict(state.get("step"), self.device)
        self._prepare_epoch()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state to a file, whole or not at all."""
        write_checkpoint(self.state_dict(), path)

    def load(self, path: str | PathLike[str]) -> None:
        """Read what `save` wrote."""
        self.load_state_dict(read_checkpoint(path))

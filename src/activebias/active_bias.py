"""ActiveBias: the one stateful object that a user holds."""

from collections.abc import Sized
from os import PathLike
from typing import Any

import torch
import torch.distributed as dist

from activebias import checks
from activebias._arrays import Array, native
from activebias.checkpoint import FORMAT, read_checkpoint, refuse_differences, write_checkpoint
from activebias.distributed import ranks
from activebias.history import PredictionHistory, sort_visits
from activebias.losses import cross_entropy
from activebias.methods import METHODS, Method, get_method
from activebias.metrics import metrics
from activebias.order import EpochOrder
from activebias.sampling import EmphasisSampler
from activebias.scores import Scores
from activebias.statistics import estimate
from activebias.steps import Step


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
        burn_in: for this many epochs histories are recorded, but nothing is emphasised.
        window: how many of the latest entries count; None for all.
        remove_outliers: leave out the entries far from an instance's mean, as the paper does.
        storage: "float32", or "float16" for half the memory at the same ranking of instances.
        device: where history and scores live. On a GPU nothing in a training step waits for the device.
        seed: of the order of instances; no global random state is used.
        history_file: put the history into a memory-mapped file (needs a window, on the CPU).
        group: the process group whose ranks train together; None for all.
    """

    def __init__(
        self,
        method: str | Method,
        *,
        num_instances: int,
        num_classes: int,
        burn_in: int = 0,
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
        self.burn_in = checks.integer("burn_in", burn_in, at_least=0)
        self.remove_outliers = bool(remove_outliers)
        self.seed = checks.integer("seed", seed, at_least=0)
        self.group = group
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
        self._step = Step(self._order, num_instances=self.num_instances, group=group)
        self._num_skipped = torch.zeros((), dtype=torch.int64, device=self.device)
        first = native(torch.zeros(1, dtype=torch.int64, device=self.device))
        initial = float(self._score(*self.history.entries(first))[0])
        self._scores = Scores(self.method, self.num_instances, initial=initial, device=self.device)

    # ------------------------------------------------------------------ the epoch and its order

    @property
    def epoch(self) -> int | None:
        """The current epoch, None before the first `set_epoch`."""
        return self._order.epoch

    @property
    def emphasises(self) -> bool:
        """Whether the burn-in is over."""
        return self._order.epoch is not None and self._order.epoch >= self.burn_in

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch (0-based). Saying the same epoch again changes nothing.

        On a GPU this is where a full history grows, so it waits for the device, once an epoch.
        """
        epoch = checks.integer("epoch", epoch, at_least=0)
        if epoch == self._order.epoch:
            return
        self._count_in(self._step.take())
        self._order.begin(epoch, scans=self.method.order == "scan")
        if self.device.type != "cpu":
            self.history.make_room(self._expected_visits())

    def _expected_visits(self) -> int:
        """Return how often an instance may come in an epoch; generously: room is cheap, an entry is not."""
        if self.method.order == "scan":
            return 2
        return 32 + 4 * round(self._scores.largest_emphasis() if self.emphasises else 1.0)

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
            dataset: if given, its length is checked against `num_instances`.
            num_sequences: in tagging, the number of sentences: the sampler then orders sentences.
            num_replicas, rank: default to torch.distributed's. Pass 1 and 0 where something else (Hugging
                Face's Accelerate) shards the batches.
        """
        num_items = self.num_instances
        if num_sequences is not None:
            if self.method.order != "scan":
                raise ValueError(
                    f"Method {self.method.name!r} draws single instances, but the words of a sentence train "
                    "together: use scan, wd, we, wpv or wtc."
                )
            num_items = checks.integer("num_sequences", num_sequences, at_least=1)
        if dataset is not None and len(dataset) != num_items:
            raise ValueError(
                f"The data set has {len(dataset)} samples, but the bias was made for {num_items}: "
                "`num_instances` must be the length of the data set (in tagging, `num_sequences`)."
            )
        own_rank, num_ranks = ranks(self.group)
        self._step.sampler = EmphasisSampler(
            self,
            batch_size=checks.integer("batch_size", batch_size, at_least=1),
            num_items=num_items,
            num_replicas=num_ranks if num_replicas is None else num_replicas,
            rank=own_rank if rank is None else rank,
        )
        if num_items != self._order.num_items:
            self._order.resize(num_items)
        return self._step.sampler

    def _draw(self, num_samples: int, generator: torch.Generator) -> torch.Tensor:
        """Draw with replacement from P as it stands now; the random numbers are the same on every device."""
        if not self.emphasises or self.method.order == "uniform":
            return torch.randint(self.num_instances, (num_samples,), generator=generator)
        return self._scores.draw(num_samples, generator)

    # ------------------------------------------------------------------ one training step

    def loss(
        self,
        logits: torch.Tensor,
        targets: torch.Tensor,
        index: Any,
        *,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> torch.Tensor:
        """Return the weighted cross-entropy, and remember p(y|x).

        Takes class logits (B, C), token logits (B, L, C) with targets and index (B, L), or binary logits (B,)
        with targets 0 and 1. Tokens whose target is `ignore_index` do not count.
        """
        per_instance = cross_entropy(
            logits,
            targets,
            num_classes=self.num_classes,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
        )
        return self.weigh(
            per_instance.loss, per_instance.prob, index, mask=per_instance.mask, reduction=reduction
        )

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
        self._require_epoch()
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"Expected `reduction` to be 'mean', 'sum' or 'none', but got {reduction!r}.")
        index = checks.index_tensor(index, self.device)
        prob = checks.probability_tensor(prob, self.device)
        checks.same_shape("per_instance_loss", per_instance_loss, "index", index)
        checks.same_shape("prob", prob, "index", index)
        over_ranks = self._step.num_ranks > 1 and (
            index.dim() > 1 or self._step.num_real(index.shape[0]) is not None
        )
        mask = self._step.mask(index, mask)
        visits = self._usable(index, prob, mask)
        # Padding may carry any index.
        weight = self._weight(index if mask is None else torch.where(mask, index, 0))
        loss = weight.to(per_instance_loss) * per_instance_loss
        if mask is not None:
            mask = mask.to(loss.device, non_blocking=True)
            loss = torch.where(mask, loss, 0)
        if reduction == "mean":
            loss = self._step.mean(loss, mask, over_ranks=over_ranks)
        self._take(visits, index.shape)
        return loss.sum() if reduction == "sum" else loss

    def weight(self, index: Any) -> torch.Tensor:
        """Return the weights v of the given instances as they stand, for a loss of your own.

        The loss to minimise is the mean over the batch of weight · loss. On the ranks whose last batch was
        filled up, the filling weighs 0 and the rest accordingly more.
        """
        self._require_epoch()
        index = checks.index_tensor(index, self.device)
        checks.index_range(index, self.num_instances)
        weight = self._weight(index)
        if (num_real := self._step.num_real(index.shape[0])) is not None:
            weight *= self._step.filling_scale(index.shape[0])
            weight[num_real:] = 0
        return weight

    def record(self, index: Any, prob: Any, *, mask: torch.Tensor | None = None) -> None:
        """Remember p(y|x) of the given instances, from the forward pass that training did anyway.

        With a sampler whose `batch_size` is larger than this batch (gradient accumulation), scores and
        weights change when the step's last visit has come.
        """
        self._require_epoch()
        index = checks.index_tensor(index, self.device)
        prob = checks.probability_tensor(prob, self.device)
        checks.same_shape("prob", prob, "index", index)
        self._take(self._usable(index, prob, self._step.mask(index, mask)), index.shape)

    def _take(self, visits: tuple[torch.Tensor, torch.Tensor], shape: torch.Size) -> None:
        if self._step.add(*visits, shape):
            self._count_in(self._step.take())

    def _require_epoch(self) -> None:
        if self._order.epoch is None:
            raise RuntimeError(
                "The epoch is not known: call `bias.set_epoch(epoch)` at the start of every epoch."
            )

    def _usable(
        self, index: torch.Tensor, prob: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the visits that count, flat. Checks come before anything changes."""
        index, prob = index.reshape(-1), prob.reshape(-1)
        counts = None if mask is None else mask.to(self.device, non_blocking=True).reshape(-1)
        if self.device.type != "cpu":
            return self._usable_without_waiting(index, prob, counts)
        if counts is not None:
            index, prob = index[counts], prob[counts]
        checks.index_range(index, self.num_instances)
        if not checks.probability_range(prob):
            finite = prob.isfinite()
            self._num_skipped += (~finite).sum()
            index, prob = index[finite], prob[finite].clip(0, 1)
        return index, prob

    def _usable_without_waiting(
        self, index: torch.Tensor, prob: torch.Tensor, counts: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Send what does not count to the history's last row: shapes stay, and nothing waits."""
        usable = prob.isfinite() & checks.is_probability(prob) & (index >= 0)
        skipped = ~usable if counts is None else counts & ~usable
        self._num_skipped += skipped.sum()
        if counts is not None:
            usable = usable & counts
        return torch.where(usable, index, self.num_instances), torch.where(usable, prob.clamp(0, 1), 0)

    def _weight(self, index: torch.Tensor) -> torch.Tensor:
        if not self.emphasises:
            return torch.ones(index.shape, device=self.device)
        return self._scores.weight(index)

    def _count_in(self, visits: tuple[torch.Tensor, torch.Tensor] | None) -> None:
        """Append p_t to the histories, then let s, ε, P and v follow."""
        if visits is None:
            return
        ordered = sort_visits(native(visits[0]), native(visits[1]))
        self.history.append(ordered)
        if self.method.statistic is not None:
            self._scores.update(ordered, self._score(*self.history.entries(ordered.index)))

    def _score(self, entries: Array, count: Array) -> Array:
        """Apply the method's statistic to histories, as `PredictionHistory.entries` gives them."""
        if self.method.statistic is None:
            return count * 0
        scores = self.method.statistic(estimate(entries, count, remove_outliers=self.remove_outliers))
        if self.method.name not in METHODS:
            checks.own_scores(self.method.name, scores, count)
        return scores

    # ------------------------------------------------------------------ looking inside, saving

    @property
    def scores(self) -> torch.Tensor:
        """The statistic s of all instances (zeros for uni and scan, which have none)."""
        return self._scores.values()

    def weights(self) -> torch.Tensor:
        """Return the weights v of all instances as they stand; their mean is 1 for the W* methods."""
        self._require_epoch()
        return self._weight(torch.arange(self.num_instances, device=self.device))

    def probabilities(self) -> torch.Tensor | None:
        """Return the sampling probabilities P of all instances (float64), None for methods that scan."""
        self._require_epoch()
        if self.method.order == "scan":
            return None
        if self.method.order == "emphasis" and self.emphasises:
            return self._scores.probabilities()
        return torch.ones(self.num_instances, dtype=torch.float64, device=self.device) / self.num_instances

    @property
    def num_skipped(self) -> int:
        """How many probabilities were not recorded because they were not finite; waits for the device."""
        return int(self._num_skipped)

    @property
    def num_bytes(self) -> int:
        """How many bytes history and scores take."""
        return self.history.num_bytes + self._scores.num_bytes

    def metrics(self) -> dict[str, float]:
        """Return what is worth logging; reads every history, and waits for the device."""
        return metrics(self)

    def _settings(self) -> dict[str, Any]:
        return {
            "method": self.method.name,
            "num_instances": self.num_instances,
            "num_classes": self.num_classes,
            "burn_in": self.burn_in,
            "window": self.history.window,
            "remove_outliers": self.remove_outliers,
            "storage": self.history.storage,
            "seed": self.seed,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything: history, scores, epoch, position and generator. Never communicates."""
        return {
            "format": FORMAT,
            "settings": self._settings(),
            "history": self.history.state_dict(),
            "scores": self._scores.state_dict(),
            "order": self._order.state_dict(),
            "step": self._step.state_dict(),
            "num_skipped": self._num_skipped.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` stood. A state that does not fit is refused and changes nothing."""
        refuse_differences(state, self._settings())
        self.history.check_state(state["history"])
        self.history.load_state_dict(state["history"])
        self._scores.load_state_dict(state["scores"])
        self._order.load_state_dict(state["order"])
        self._step.load_state_dict(state["step"], self.device)
        self._num_skipped.copy_(state["num_skipped"])

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state to a file, whole or not at all."""
        write_checkpoint(self.state_dict(), path)

    def load(self, path: str | PathLike[str]) -> None:
        """Read what `save` wrote."""
        self.load_state_dict(read_checkpoint(path))

"""The curves of `auto` in K models at once: what `activebias.learning` measures for one model."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from activebias.internal import (
    FIRST_ROUNDS,
    IGNORED,
    MEMBERS,
    NUM_KNOTS,
    VALIDATION,
    Evidence,
    Trust,
    cost_of,
    epoch_generator,
    is_usable,
    less_rule,
    number_by_class,
    place_of,
    rounds_between,
)
from activebias.lab.side_by_side.batches import TrialData
from activebias.lab.side_by_side.lanes import Lane
from activebias.lab.side_by_side.memory import StackedMemory
from activebias.lab.side_by_side.stacking import Stack
from activebias.training.randomness import derived_seed


class StackedCurves:
    """The evidence and the trust of the lanes whose method learns; the memory holds their curves."""

    def __init__(
        self, lanes: Sequence[Lane], trials: TrialData, stack: Stack, memory: StackedMemory, trial: Tensor
    ) -> None:
        """Begin without evidence; `trial` (K,) says which trial a lane belongs to."""
        places = [place for place, lane in enumerate(lanes) if lane.method.learns]
        self._models, self._num_lanes = slice(places[0], places[-1] + 1), len(lanes)
        assert len(places) == places[-1] + 1 - places[0], "the lanes of a method are consecutive"
        self._seeds = [derived_seed(lane.seed, "order") for lane in lanes[self._models]]
        self._trials, self._memory, self._trial = trials, memory, trial[self._models]
        self._stack = stack.part(self._models)
        self.evidence = Evidence.none(len(places), device=trials.device)
        self.trust = Trust.none(trials.dataset.num_classes, len(places), device=trials.device)
        self.num_learnt = torch.zeros(len(places), dtype=torch.int64, device=trials.device)
        self.rule_share = torch.ones(len(places), dtype=torch.float64, device=trials.device)
        self.last_epoch = torch.full_like(self.num_learnt, -1)  # in which they learnt; -1: never

    @staticmethod
    def of(
        lanes: Sequence[Lane], trials: TrialData, stack: Stack, memory: StackedMemory, trial: Tensor
    ) -> "StackedCurves | None":
        """Return the curves, or None if no lane learns or there is nothing to learn from."""
        if trials.num_validation == 0 or not any(lane.method.learns for lane in lanes):
            return None
        return StackedCurves(lanes, trials, stack, memory, trial)

    def learn(self, epoch: int) -> None:
        """Learn after an epoch, in the lanes in which it is time; then limit the steps of all lanes."""
        means = self._memory.means(self._models)
        knot, count = self._members(means)
        due = self._due(epoch, count)
        if bool(due.any()):
            self._learn_rounds(epoch, due, means, knot, count)
        self._memory.limit_steps(self._models, means)

    def _learn_rounds(self, epoch: int, due: Tensor, means: Tensor, knot: Tensor, count: Tensor) -> None:
        """Learn in the lanes that are due and whose gradients tell anything."""
        share, known = count.double() / knot.shape[1], count.clamp(max=MEMBERS).double() / MEMBERS
        before, learns = self.num_learnt, due
        num_rounds = torch.where(before > 0, 1, FIRST_ROUNDS)
        # A first epoch has several rounds. As floats: with integers a power has torch's default dtype.
        passed = torch.where(before > 0, epoch - self.last_epoch, 1).double()
        for number in range(FIRST_ROUNDS):
            learns = learns & (number < num_rounds)
            if not bool(learns.any()):
                break
            aligned, labels = self._alignments(epoch, number, knot, count)
            trust = self.trust.with_new(aligned[1], labels, share, known)
            self.trust = Trust(
                _where(learns, trust.robust, self.trust.robust),
                torch.where(learns[:, None], trust.labels, self.trust.labels),
            )
            self.evidence = _where(learns, self.evidence.with_new(aligned[0], share, known), self.evidence)
            learns = learns & is_usable(aligned[0])  # a lane stops after a round that tells nothing
            self.num_learnt = self.num_learnt + learns
            less = less_rule(self.rule_share, passed, self.trust.harmless(share))
            self.rule_share = torch.where(learns, less, self.rule_share)
        assert self._memory.curves is not None
        curves = self._memory.curves[self._models]
        self.last_epoch = torch.where(due, epoch, self.last_epoch)
        mixed = self.evidence.mixed(share, self.rule_share)
        curves = torch.where((self.num_learnt > before)[:, None], mixed, curves)
        self._memory.follow(self._models, curves, means)

    def _members(self, means: Tensor) -> tuple[Tensor, Tensor]:
        """Return the knot that every instance is nearest to, (k, N), and the instances of every knot."""
        knot = place_of(means).round().long()
        count = torch.zeros(len(knot), NUM_KNOTS, dtype=torch.int64, device=knot.device)
        return knot, count.scatter_add_(1, knot, torch.ones_like(knot))

    def _due(self, epoch: int, count: Tensor) -> Tensor:
        """Return in which lanes it is time to learn."""
        members, trials = count.clamp(max=MEMBERS).sum(-1), self._trials
        costs = [cost_of(each, trials.num_validation) for each in members.tolist()]
        between = [rounds_between(cost, trials.num_examples) for cost in costs]
        passed = epoch - self.last_epoch
        return (self.last_epoch < 0) | (passed >= torch.tensor(between, device=passed.device))

    def _alignments(
        self, epoch: int, round_number: int, knot: Tensor, count: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return a_b = <G_b, g>, (losses, lanes, knots), and the validation labels by class."""
        trials, trial = self._trials, self._trial
        orders, chosen = [], []
        for seed in self._seeds:
            generator = epoch_generator(seed, epoch, 1 + round_number)
            orders.append(torch.randperm(knot.shape[1], generator=generator))
            chosen.append(torch.randperm(trials.num_validation, generator=generator)[:VALIDATION])
        inputs, targets = trials.validation_batch(torch.stack(chosen).to(trials.device), trial)
        loss, mask = self._losses(inputs, targets)
        labels = torch.where(mask, targets, -1)
        losses = self._validation_losses(loss, labels, count.double() / knot.shape[1])
        directions = [self._gradient(each, mask, again=True) for each in losses]
        # The instances by knot, in the random order within a knot: the first ones are its members.
        rank = torch.stack(orders).to(trials.device).argsort(-1)
        by_knot = (knot * knot.shape[1] + rank).argsort(-1)
        first = count.cumsum(-1) - count
        place = torch.arange(MEMBERS, device=trials.device)
        aligned = []
        for number in range(NUM_KNOTS):
            members = count[:, number, None]
            # Padding repeats a member. An instance of another knot may be NaN, and 0 · NaN is NaN.
            rows = first[:, number, None] + place.minimum((members - 1).clamp(min=0))
            real = place < members
            loss, counts = self._losses_of(by_knot.gather(1, rows.clamp(max=knot.shape[1] - 1)), knot, number)
            gradient = self._gradient(loss, counts & (real if counts.dim() == 2 else real[..., None]))
            aligned.append(torch.stack([_inner(gradient, direction) for direction in directions]))
        return torch.stack(aligned, dim=-1), number_by_class(labels.flatten(1), trials.dataset.num_classes)

    def _validation_losses(self, loss: Tensor, labels: Tensor, share: Tensor) -> Tensor:
        """Return losses whose gradients are those of the validation losses, (losses, lanes, …)."""
        factors = self.trust.judge(share, loss.device).factors(loss.detach(), labels)
        with torch.enable_grad():
            return factors * loss

    def _losses_of(self, members: Tensor, knot: Tensor, number: int) -> tuple[Tensor, Tensor]:
        """Return the losses of members (k, M) of a knot, or of its words in their sentences (k, M, L)."""
        trials, tokens = self._trials, self._trials.tokens
        examples = members if tokens is None else tokens.sequence_of(members)
        targets = trials.targets[self._trial[:, None], examples]
        loss, mask = self._losses(trials.batch_inputs(examples, self._trial), targets)
        if tokens is None:
            return loss, mask
        words = tokens(examples, targets.shape[-1])
        there = knot.gather(1, words.clamp(min=0).flatten(1)).view(words.shape) == number
        return loss, mask & (words >= 0) & there

    def _losses(self, inputs: tuple[Tensor, ...], targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return cross-entropies and which of them count."""
        with torch.enable_grad():
            logits = self._stack.evaluate(inputs)
            loss = F.cross_entropy(
                logits.flatten(0, -2), targets.flatten(), reduction="none", ignore_index=IGNORED
            )
        return loss.view(targets.shape), targets != IGNORED

    def _gradient(self, loss: Tensor, counts: Tensor, again: bool = False) -> list[Tensor]:
        """Return the gradients of every lane's mean loss; `again` keeps the graph for another loss."""
        leaves = list(self._stack.parameters.values())
        with torch.enable_grad():
            means = (loss * counts).flatten(1).sum(1) / counts.flatten(1).sum(1).clamp(min=1)
            found = torch.autograd.grad(means.sum(), leaves, allow_unused=True, retain_graph=again)
        return [
            torch.zeros_like(leaf) if gradient is None else gradient
            for leaf, gradient in zip(leaves, found, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the evidence, with a row for every lane of the run."""
        state = {
            **self.evidence._asdict(),
            "robust_total": self.trust.robust.total,
            "robust_weight": self.trust.robust.weight,
            "labels": self.trust.labels,
            "rule_share": self.rule_share,
            "num_learnt": self.num_learnt,
            "last_epoch": self.last_epoch,
        }
        rows = {name: value.new_zeros(self._num_lanes, *value.shape[1:]) for name, value in state.items()}
        for name, value in state.items():
            rows[name][self._models] = value
        return rows

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a `state_dict`."""
        mine = {name: value[self._models].to(self.last_epoch.device) for name, value in state.items()}
        self.num_learnt, self.last_epoch = mine.pop("num_learnt"), mine.pop("last_epoch")
        self.rule_share = mine.pop("rule_share")
        robust = Evidence(mine.pop("robust_total"), mine.pop("robust_weight"))
        self.trust = Trust(robust, mine.pop("labels"))
        self.evidence = Evidence(**mine)


def _where(lanes: Tensor, new: Evidence, old: Evidence) -> Evidence:
    """Return the new evidence in some lanes, and the old evidence in the others."""
    return Evidence(*(torch.where(lanes[:, None], *pair) for pair in zip(new, old, strict=True)))


def _inner(gradient: list[Tensor], direction: list[Tensor]) -> Tensor:
    """Return <gradient, direction> of every lane."""
    products = [(a.double() * b.double()).flatten(1).sum(1) for a, b in zip(gradient, direction, strict=True)]
    return torch.stack(products).sum(0)

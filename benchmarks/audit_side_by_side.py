"""The folds of several trials trained side by side, for `benchmarks/audit.py --side-by-side`.

All models see the same inputs. A model has the labels of its trial, and trains on all folds but one. On a GPU
an iteration of all models is one CUDA graph, as in `activebias.lab.side_by_side`.
"""

import platform
import time
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from audit_observed import pack, stratified_folds
from torch.nn.functional import cross_entropy

from activebias.lab.experiment.prepared import load_data, prepare
from activebias.lab.models import draw_shifts
from activebias.lab.side_by_side.images import cropped
from activebias.lab.side_by_side.momentum import HalfPrecisionSGD
from activebias.lab.side_by_side.replay import Replayed
from activebias.lab.side_by_side.stacking import Stack
from activebias.own.judges import epochs_that_count
from activebias.training.randomness import derived_generator, derived_seed

# Images × models of one pass in evaluation; the output of a convolution is many times as large as an image.
MOST_AT_ONCE, MOST_CONVOLVED = 400_000, {"cpu": 2_000, "cuda": 100_000}


class Trials(NamedTuple):
    """The data of S trials on the device: shared images (N, …); labels, true classes and folds (S, N)."""

    images: torch.Tensor
    labels: torch.Tensor
    true: torch.Tensor
    folds: torch.Tensor
    dataset: object

    @staticmethod
    def of(recipe, seeds, num_folds, device):
        """Draw the noise and the folds of every trial."""
        first = slice(recipe.limit)
        if recipe.noise.kind == "human":  # which belongs to the whole data set
            recipe = replace(recipe, limit=None)
        loaded = load_data(recipe)
        prepared = [prepare(recipe, loaded, seed=seed, device=torch.device("cpu")).dataset for seed in seeds]
        labels = torch.stack([each.train.targets[first] for each in prepared])
        folds = [
            stratified_folds(each, derived_generator(seed, "folds"), num_folds)
            for seed, each in zip(seeds, labels, strict=True)
        ]
        true = torch.stack([each.clean_targets[first] for each in prepared])
        images = prepared[0].train.inputs[0][first]
        return Trials(*(each.to(device) for each in (images, labels, true, torch.stack(folds))), prepared[0])


class FoldTraining:
    """A model for every trial and fold, trial by trial."""

    def __init__(self, recipe, trials, seeds, device):
        self.recipe, self.trials, self.device = recipe, trials, device
        self.num_folds = int(trials.folds.max()) + 1
        lanes = [(seed, f"fold {number}") for seed in seeds for number in range(self.num_folds)]
        self.trial = torch.arange(len(seeds), device=device).repeat_interleave(self.num_folds)
        models = [
            recipe.model(trials.dataset, derived_generator(seed, f"weights {purpose}"))
            for seed, purpose in lanes
        ]
        self.stack = Stack.of(models, device, half_precision=recipe.in_half_precision(device))
        self.optimiser = self._optimiser()
        self._orders = [derived_generator(seed, f"order of {purpose}") for seed, purpose in lanes]
        self._shifts = torch.Generator(device).manual_seed(derived_seed(seeds[0], "crops side by side"))
        fold = torch.arange(self.num_folds).repeat(len(seeds))
        folds = trials.folds.cpu()[self.trial.cpu()]
        self._inside = [
            (of_trial != own).nonzero().squeeze(1) for of_trial, own in zip(folds, fold, strict=True)
        ]
        self.num_iterations = min(len(inside) for inside in self._inside) // recipe.batch_size
        if not self.num_iterations:
            raise SystemExit(
                f"Expected at least {recipe.batch_size} images, a batch, in {self.num_folds - 1} folds."
            )
        self._order = self._crop = None
        self._iteration = torch.zeros(1, dtype=torch.int64, device=device)
        self._iterate = Replayed(self._step, device)

    def _optimiser(self):
        settings, groups = self.recipe.optimiser, self.stack.groups_by_decay()
        if not self.stack.half_precision:
            return settings.build(groups, capturable=self.device.type == "cuda")
        rate = torch.tensor(settings.learning_rate, device=self.device)
        return HalfPrecisionSGD(groups, self.stack.copies, rate=rate, momentum=settings.momentum)

    def epoch(self, epoch):
        """Train all models for an epoch; the images that do not fill a batch are left out."""
        rate = self.recipe.optimiser.learning_rate_at(epoch)
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self._draw()
        self._iteration.zero_()
        for _ in range(self.num_iterations):
            self._iterate()

    def _draw(self):
        """Draw the order and the crops of an epoch, always at the same addresses: (K, iterations, …)."""
        shape = (len(self._inside), self.num_iterations, self.recipe.batch_size)
        used = shape[1] * shape[2]
        rows = [
            inside[torch.randperm(len(inside), generator=generator)][:used].int()
            for inside, generator in zip(self._inside, self._orders, strict=True)
        ]
        order = torch.stack(rows).to(self.device).long().view(shape)
        crop = None
        if self.recipe.augmentation is not None:
            drawn = draw_shifts(order.numel(), self._shifts).view(3, *shape)
            crop = drawn.permute(1, 2, 0, 3).contiguous()
        if self._order is None:
            self._order, self._crop = order, crop
            return
        self._order.copy_(order)
        if crop is not None:
            self._crop.copy_(crop)

    def _step(self):
        now = self._order.index_select(1, self._iteration).squeeze(1)
        if self._crop is None:
            inputs = self.trials.images[now]
        else:
            crop = self._crop.index_select(1, self._iteration).squeeze(1)
            inputs = cropped(self.trials.images, now, crop)
        targets = self.trials.labels[self.trial[:, None], now]
        logits = self.stack.logits((inputs,))
        losses = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        self.optimiser.zero_grad()
        losses.view(targets.shape).mean(1).sum().backward()
        self.optimiser.step()
        self._iteration.add_(1)

    @torch.no_grad()
    def probabilities(self):
        """Return the probabilities (S, N, C) of the model outside, and the mean of the models inside."""
        folds = self.trials.folds
        outsides, insides = [], []
        most = MOST_CONVOLVED[self.device.type] if self.stack.convolves else MOST_AT_ONCE
        step = max(1, most // self.stack.size)
        for first in range(0, len(self.trials.images), step):
            part = slice(first, first + step)
            prob = self.stack.predict((self.trials.images[part],)).softmax(-1)
            prob = prob.unflatten(0, (-1, self.num_folds))
            place = folds[:, None, part, None].expand(-1, 1, -1, prob.shape[-1])
            outside = prob.gather(1, place).squeeze(1)
            outsides.append(outside)
            insides.append((prob.sum(1) - outside).clamp(min=0) / (self.num_folds - 1))
        return torch.cat(outsides, 1), torch.cat(insides, 1)


def observe_together(recipe, paths, num_folds, device, kept, small=False):
    """Train the folds of all trials at once, and keep what was observed of every trial in its file."""
    device = torch.device(device)
    trials = Trials.of(recipe, list(paths), num_folds, device)
    training = FoldTraining(recipe, trials, list(paths), device)
    outside, inside, seconds = [], [], []
    started = time.perf_counter()
    for epoch in range(recipe.epochs):
        training.epoch(epoch)
        for known, new in zip((outside, inside), training.probabilities(), strict=True):
            known.append(new)
        if device.type == "cuda":
            torch.cuda.synchronize()
        # Of one trial: all of them were trained in that time.
        seconds.append((time.perf_counter() - started) / len(paths))
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"{platform.machine()} CPU"
    for number, path in enumerate(paths.values()):
        seen = judged_trial(
            torch.stack([each[number] for each in outside]),
            torch.stack([each[number] for each in inside]),
            trials.labels[number],
        )
        rows = [epoch - 1 for epoch in kept]
        seen |= {
            "labels": trials.labels[number].cpu().numpy(),
            "true": trials.true[number].cpu().numpy(),
            "folds": np.array(num_folds),
            "kept": np.array(kept),
            "outside": torch.stack([outside[row][number] for row in rows]).cpu().numpy(),
            "fold_seconds": np.array(seconds)[rows],
            "judged_seconds": np.array(seconds[-1]),
            "where": f"{where}, torch {torch.__version__}, {len(training.trial)} models side by side",
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, **(pack(seen) if small else seen))


def judged_trial(outside, inside, labels):
    """Return what the judges of one trial say, from probabilities (epochs, N, C), as `own.judges` averages.

    `judged_outside` and `judged_inside` (N, C) are the means over the epochs that count.
    """
    index = labels.expand(len(outside), -1)[..., None]
    counts = epochs_that_count(outside.gather(2, index).squeeze(2).cpu().numpy())
    average = (outside[counts] + inside[counts]) / 2
    history = average.gather(2, index[: len(counts)]).squeeze(2).T
    rival = average.mean(0).scatter(1, labels[:, None], 0).amax(1)
    return {
        "judged_history": history.clamp(max=1).cpu().numpy(),
        "judged_rival": rival.cpu().numpy(),
        "judged_epochs": np.array(counts) + 1,
        "judged_outside": outside[counts].mean(0).cpu().numpy(),
        "judged_inside": inside[counts].mean(0).cpu().numpy(),
    }

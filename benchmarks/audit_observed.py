"""What `benchmarks/audit.py` observes: trainings of one trial, on all instances and on four of five folds."""

import dataclasses
import platform
import time
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import activebias as ab
from activebias.history import decode, encode
from activebias.lab import Noise, Optimiser, Recipe, get_recipe
from activebias.lab.experiment.prepared import load_data, prepare
from activebias.lab.models import ResidualNet, augment
from activebias.own.judges import epochs_that_count
from activebias.training.randomness import derived_generator, derived_seed

NUM_FOLDS = 5


def find_recipe(data, annotation="worst", epochs=None):
    """Return model, optimiser and noise: the lab's recipes, and a small residual net for CIFAR-10N."""
    if data != "cifar10n":
        recipe = {
            "digits": get_recipe("digits"),
            "mnist": dataclasses.replace(get_recipe("mnist-fc"), noise=Noise("uniform", 0.1)),
            "mnist-cnn": get_recipe("noisy-mnist-cnn").shortened(20),
        }[data]
        return recipe if epochs is None else recipe.shortened(epochs)
    epochs = 30 if epochs is None else epochs
    return Recipe(
        name=f"cifar10n-{annotation}",
        title=f"CIFAR-10N ({annotation}), residual net, 2 units a stage",
        data="cifar10",
        architecture="ResidualNet(2)",
        model=lambda dataset, generator: ResidualNet(2, generator=generator, num_classes=dataset.num_classes),
        optimiser=Optimiser(
            "sgd", 0.2, momentum=0.9, factor=0.1, milestones=(round(0.6 * epochs), round(0.85 * epochs))
        ),
        batch_size=512,
        epochs=epochs,
        burn_in=epochs // 3,
        methods=("scan", "wtc"),
        trials=3,
        noise=Noise("human", annotation=annotation),
        augmentation="crop and flip",
        half_precision=True,
    )


class Training:
    """A model in training; on a GPU in bfloat16 where torch thinks that safe."""

    def __init__(self, recipe, data, seed, purpose):
        self.recipe, self.data = recipe, data
        self.model = recipe.model(data.dataset, derived_generator(seed, f"weights {purpose}")).to(data.device)
        self.optimiser = recipe.optimiser.build(self.model.parameters())
        self.augmentation = torch.Generator(data.device).manual_seed(derived_seed(seed, f"crops {purpose}"))
        self.seconds = 0.0

    def epoch(self, epoch, order, loss_of):
        """Train on the instances in `order`; `loss_of(logits, targets, index)` sees every visit."""
        started = self._now()
        self.model.train()
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.optimiser.learning_rate_at(epoch)
        for index in order.split(self.recipe.batch_size):
            (inputs,), targets = self.data.train.batch(index)
            if self.recipe.augmentation is not None:
                inputs = augment(inputs, self.augmentation)
            with self._precision():
                logits = self.model(inputs).float()
            loss = loss_of(logits, targets, index) + self.model.regulariser()
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
        self.seconds += self._now() - started

    @torch.no_grad()
    def probabilities(self, index):
        self.model.eval()
        parts = []
        with self._precision():
            for part in index.split(2000):
                parts.append(self.model(*self.data.train.batch(part)[0]).float().softmax(-1))
        return torch.cat(parts)

    def _precision(self):
        on_gpu = self.data.device.type == "cuda"
        return torch.autocast("cuda", dtype=torch.bfloat16) if on_gpu else nullcontext()

    def _now(self):
        if self.data.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def margin_of(logits, targets):
    """AUM's margin: the logit of the label minus the largest other one."""
    own = logits.gather(1, targets[:, None])
    others = logits.scatter(1, targets[:, None], -torch.inf).amax(1)
    return own.squeeze(1) - others


class Observed(NamedTuple):
    """What one training run saw: p(y|x) and margin of every visit, (N, epochs); the rivals, (K, N)."""

    history: np.ndarray
    margins: np.ndarray
    rivals: np.ndarray
    seconds: float


def observe_all(recipe, data, seed, method="scan"):
    """Train on everything, once; the rivals are those after each of the `kept_epochs`."""
    training = Training(recipe, data, seed, "all")
    bias = ab.ActiveBias(
        method,
        num_instances=data.num_instances,
        num_classes=data.dataset.num_classes,
        burn_in=recipe.burn_in,
        device=data.device,
        seed=derived_seed(seed, "order"),
    )
    sampler = bias.sampler(batch_size=recipe.batch_size)
    margins = torch.zeros(recipe.epochs, data.num_instances, device=data.device)
    kept = kept_epochs(recipe.epochs)
    believed = torch.zeros(data.num_instances, data.dataset.num_classes, device=data.device)
    rivals = torch.zeros(len(kept), data.num_instances, device=data.device)
    for epoch in range(recipe.epochs):
        bias.set_epoch(epoch)

        def loss_of(logits, targets, index, epoch=epoch):
            margins[epoch, index] = margin_of(logits.detach(), targets)
            believed[index] += logits.detach().softmax(1)
            return bias.loss(logits, targets, index)

        # A scan's order stands at the beginning of an epoch: one copy to the device serves all of its steps.
        training.epoch(epoch, torch.tensor(list(sampler)).to(data.device), loss_of)
        if epoch + 1 in kept:
            others = believed.scatter(1, data.train.targets[:, None], 0)
            rivals[kept.index(epoch + 1)] = others.amax(1) / (epoch + 1)
    values, _ = bias.history.values()
    return Observed(
        values[:, 1:].cpu().numpy(), margins.T.cpu().numpy(), rivals.cpu().numpy(), training.seconds
    )


def kept_epochs(number):
    """Return the epochs after which probabilities are kept: dense at first, then sparse, and half of them.

    >>> kept_epochs(30)
    [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30]
    """
    steps = [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80]
    return sorted({epoch for epoch in steps if epoch < number} | {max(number // 2, 1), number})


LOGARITHMS = ("outside", "judged_outside", "judged_inside")


def half_logarithm(prob):
    return np.log(np.maximum(prob, 1e-30)).astype(np.float16)


def pack(seen):
    """Return what was observed in half the bytes; probabilities stay fine near 0 and near 1."""
    last = seen["kept"][-1]
    rows = np.isin(seen["kept"], [2, 5, 10, 15, 20, 25, 30, max(last // 2, 1), last])
    small = {key: half_logarithm(seen[key]) for key in LOGARITHMS if key in seen}
    small |= {"outside": small["outside"][rows]}
    small |= {key: seen[key][rows] for key in ("kept", "rivals", "fold_seconds") if key in seen}
    small |= {key: encode(seen[key], "float16") for key in ("history", "judged_history") if key in seen}
    if "margins" in seen:
        small["margins"] = seen["margins"].astype(np.float16)
    return seen | small


def unpack(path):
    """Return what was observed, as it was before `pack` if it was packed."""
    with np.load(path) as file:
        seen = {key: file[key] for key in file.files}
    if seen["outside"].dtype == np.float16:
        seen |= {key: np.exp(seen[key].astype(np.float32)) for key in LOGARITHMS if key in seen}
        seen |= {key: decode(seen[key], "float16") for key in ("history", "judged_history") if key in seen}
        if "margins" in seen:
            seen["margins"] = seen["margins"].astype(np.float32)
    return seen


def stratified_folds(targets, generator, number=NUM_FOLDS):
    """Return the fold of every instance, drawn so that each fold has its part of every class."""
    shuffled = torch.randperm(len(targets), generator=generator)
    by_class = shuffled[targets[shuffled].argsort(stable=True)]
    folds = torch.empty_like(by_class)
    folds[by_class] = torch.arange(len(targets)) % number
    return folds


class Folds(NamedTuple):
    """What five models saw that each trained on four of five folds.

    `outside` (K, N, C) are out-of-sample probabilities after the `kept` epochs, and `seconds` the time until
    then, each with one pass over the held-out part. `judged` is the average of the five models as judges.
    """

    kept: np.ndarray
    outside: np.ndarray
    seconds: np.ndarray
    judged: dict[str, np.ndarray]


def observe_folds(recipe, data, seed):
    """Train on four of five folds, five times, and evaluate all instances after every epoch."""
    targets = data.train.targets.cpu()
    kept = kept_epochs(recipe.epochs)
    found = torch.zeros(len(kept), len(targets), data.dataset.num_classes)
    seconds, judge_seconds = np.zeros(len(kept)), 0.0
    average = torch.zeros(recipe.epochs, *found.shape[1:])
    held_out = torch.zeros(recipe.epochs, len(targets))
    folds = stratified_folds(targets, derived_generator(seed, "folds"))
    for number in range(NUM_FOLDS):
        inside, outside = (folds != number).nonzero().squeeze(1), (folds == number).nonzero().squeeze(1)
        training = Training(recipe, data, seed, f"fold {number}")
        generator = derived_generator(seed, f"order of fold {number}")
        for epoch in range(recipe.epochs):
            order = inside[torch.randperm(len(inside), generator=generator)]
            training.epoch(
                epoch, order.to(data.device), lambda logits, targets, _: cross_entropy(logits, targets)
            )
            started = time.perf_counter()
            prob = training.probabilities(outside.to(data.device)).cpu()
            passing = time.perf_counter() - started
            if epoch + 1 in kept:
                found[kept.index(epoch + 1), outside] = prob
                seconds[kept.index(epoch + 1)] += training.seconds + passing
            # As in `activebias.own.judges`: the judge outside counts as much as the others together.
            held_out[epoch, outside] = prob.gather(1, targets[outside][:, None]).squeeze(1)
            average[epoch, outside] += prob / 2
            average[epoch, inside] += training.probabilities(inside.to(data.device)).cpu() / (
                2 * (NUM_FOLDS - 1)
            )
            judge_seconds += time.perf_counter() - started
        judge_seconds += training.seconds
    counts = epochs_that_count(held_out.numpy())
    label = targets.expand(len(counts), -1)[..., None]
    beliefs = average[counts].mean(0)
    judged = {
        "judged_history": average[counts].gather(2, label).squeeze(2).T.numpy(),
        "judged_rival": beliefs.scatter(1, targets[:, None], 0).amax(1).numpy(),
        "judged_epochs": np.array(counts) + 1,
        "judged_seconds": np.array(judge_seconds),
    }
    return Folds(np.array(kept), found.numpy(), seconds, judged)


def observe(recipe, seed, device, method, path, small=False, folds_only=False):
    """Train everything of one trial and keep what was observed."""
    data = prepare(recipe, load_data(recipe), seed=seed, device=torch.device(device))
    own = None if folds_only else observe_all(recipe, data, seed, method)
    folds = observe_folds(recipe, data, seed)
    hardware = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()} CPU"
    path.parent.mkdir(parents=True, exist_ok=True)
    seen = {
        "labels": data.dataset.train.targets.numpy(),
        "true": data.dataset.clean_targets.numpy(),
        "kept": folds.kept,
        "outside": folds.outside,
        "fold_seconds": folds.seconds,
        "where": f"{hardware}, torch {torch.__version__}",
        **folds.judged,
    }
    if own is not None:
        seen |= {
            "history": own.history,
            "margins": own.margins,
            "rivals": own.rivals,
            "own_seconds": own.seconds,
        }
    np.savez_compressed(path, **(pack(seen) if small else seen))

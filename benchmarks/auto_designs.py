"""Designs of an emphasis that is learnt from a validation part, side by side with the paper's methods.

    python benchmarks/auto_designs.py --device cuda --rows mnist-fc mnist-cnn-10 --seeds 4

After every epoch the gradient g of a bounded validation loss (1 - p) is taken, and the mean gradient G_b of
training instances in bins of logit(p̄). a_b = <G_b, g> says how much training on the bin lowers that loss.
The designs make the emphasis of a bin from a_b in different ways.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch

from activebias import METHODS, Estimate, Method, emphasis, statistics
from activebias.internal import as_tensor, native
from activebias.lab.experiment.prepared import load_data, prepare
from activebias.lab.peer_rows import peer_rows
from activebias.lab.side_by_side.batches import TrialData
from activebias.lab.side_by_side.group import burn_in_lanes
from activebias.lab.side_by_side.memory import StackedMemory
from activebias.lab.side_by_side.training import Lane, SideBySide
from activebias.training.examples import IGNORE

LOWEST, HIGHEST = -5, 7  # of logit(p̄): one bin for every integer
BINS = HIGHEST - LOWEST + 1
DECAY = 0.9
BASELINES = ("scan", "wd", "wtc")


def bin_of(mean):
    """Return the position of p̄ among the bins, from 0 to BINS - 1, as a float."""
    logit = torch.logit(mean.double(), eps=1e-6)
    return (logit - LOWEST).clamp(0, BINS - 1)


class Evidence:
    """Decayed sums of the bins' alignments, (K, BINS)."""

    def __init__(self, size, device):
        self.total, self.square, self.weight = (
            torch.zeros(size, BINS, device=device, dtype=torch.float64) for _ in range(3)
        )

    def add(self, value, share, known):
        value = value / (share * value.abs()).sum(-1, keepdim=True).clamp(min=1e-30)
        known = known.double()
        for name, new in (("total", value * known), ("square", value * value * known), ("weight", known)):
            setattr(self, name, DECAY * getattr(self, name) + (1 - DECAY) * new)

    def estimate(self, share):
        """Return mean and squared standard error of the bins."""
        total, square, weight = map(smooth, (self.total, self.square, self.weight))
        number = weight / (1 - DECAY)  # of epochs, at most 10
        mean = total / weight.clamp(min=1e-9)
        overall = (share * mean).sum(-1, keepdim=True)
        mean = torch.where(number > 0.1, mean, overall)
        variance = (square / weight.clamp(min=1e-9) - mean**2).clamp(min=0)
        variance = (number * variance + 1) / (number + 1)
        return mean, variance / number.clamp(min=0.1) / 2, overall


def smooth(value):
    padded = torch.cat([value[:, :1], value, value[:, -1:]], dim=1)
    return 0.25 * padded[:, :-2] + 0.5 * padded[:, 1:-1] + 0.25 * padded[:, 2:]


def learnt(*kinds, floor=0.1, most=8.0):
    def table(now):
        total = 0
        for kind in kinds:
            mean = now[kind][0].clamp(min=0)
            total = total + mean / (now["share"] * mean).sum(-1, keepdim=True).clamp(min=1e-9)
        return (floor + (1 - floor) * total / len(kinds)).clamp(max=most)

    return table


def power(q):
    return lambda log_prob: (1 - (q * log_prob).exp()) / q


def clip(most):
    return lambda log_prob: -log_prob.clamp(min=-most)


# Validation losses of log p: bounded, so that wrong validation labels do not decide.
LOSSES = {"clip3": clip(3), "clip4": clip(4), "clip5": clip(5)}
DESIGNS = {name: learnt(name) for name in LOSSES}


class TableMemory(StackedMemory):
    """A StackedMemory in which some lanes look their emphasis up in a table over logit(p̄)."""

    def adopt(self, learnt):
        self.learnt = torch.tensor(learnt, device=self.device)
        self.tables = torch.ones(self.num_models, BINS, device=self.device, dtype=torch.float64)
        self.means = torch.zeros(self.num_models, self.num_instances, device=self.device)
        self.has_own_statistic = False
        self.rescore()

    def _score(self, rows, models):
        values, count = self.history.entries(native(rows.flatten()))
        estimates = statistics.estimate(values, count)
        estimated = Estimate(*(as_tensor(each).view(rows.shape) for each in estimates))
        lanes = slice(models.start, models.stop)
        place = bin_of(estimated.mean)
        low = place.floor().long().clamp(max=BINS - 2)
        tables = self.tables[lanes].view(len(models), BINS)
        part = place - low
        flat = (len(models), -1)
        looked_up = (1 - part) * tables.gather(1, low.view(flat)).view(rows.shape) + part * tables.gather(
            1, low.view(flat) + 1
        ).view(rows.shape)
        scores = torch.where(self.learnt[lanes].view(-1, *(1 for _ in rows.shape[1:])), looked_up, 0.0)
        for method, group in self._groups:
            first, last = max(group.start, models.start), min(group.stop, models.stop)
            if method.statistic is not None and not method.name.startswith("auto") and first < last:
                lines = slice(first - models.start, last - models.start)
                scores[lines] = method.statistic(Estimate(*(each[lines] for each in estimated))).double()
        self._scores[rows] = scores.float()
        self._means[rows] = estimated.mean.float()

    def weights(self, index):
        wide = (-1, *(1 for _ in index.shape[1:]))
        mean = self.scores.mean(-1, dtype=torch.float64).view(wide)
        found = self.scores.gather(1, index.flatten(1)).view(index.shape)
        usual = emphasis.weights(found, mean)
        whole = torch.where(mean > 0, found / mean.clamp(min=1e-12), 1.0)
        return torch.where(self.learnt.view(wide), whole, usual).float()


def with_tables(run):
    memory = run.memory
    memory.__class__ = TableMemory
    memory._means = torch.zeros(memory.num_models * memory.num_instances + 1, device=memory.device)
    memory.adopt([lane.method.name.startswith("auto") for lane in run.lanes])
    return memory


def sample_bins(memory, number, generator):
    """Return instances (K, BINS, number) of every bin, the share of each bin, and which bins have members."""
    means = memory._means[:-1].view(memory.num_models, memory.num_instances)
    place = bin_of(means).round().long()
    chance = torch.rand(place.shape, generator=generator, device=place.device, dtype=torch.float64)
    order = (place + chance).argsort(-1)
    count = torch.zeros(memory.num_models, BINS, dtype=torch.int64, device=place.device)
    count.scatter_add_(1, place, torch.ones_like(place))
    start = count.cumsum(-1) - count
    chosen = start[..., None] + torch.arange(number, device=place.device) % count.clamp(min=1)[..., None]
    chosen = chosen.clamp(max=memory.num_instances - 1)
    members = order.gather(1, chosen.flatten(1)).view(chosen.shape)
    return members, count / memory.num_instances, count


def learn(run, evidence, number, num_validation, generator):
    """Measure the alignment of every bin, and write the tables of the designs."""
    stack, trials, memory = run.stack, run.trials, run.memory
    leaves = [stack._half.get(name, value) for name, value in stack.parameters.items()]
    held = trials.validation
    rows = torch.randint(len(held), (min(num_validation, len(held)),), generator=generator, device=run.device)
    targets = trials.validation_targets[run._trial][:, rows]
    logits = stack.predict([tensor[rows] for tensor in held.inputs])
    counts = targets != IGNORE
    log_prob = logits.log_softmax(-1).gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    directions = {}
    for name, function in LOSSES.items():
        loss = (function(log_prob) * counts).flatten(1).sum(1) / counts.flatten(1).sum(1).clamp(min=1)
        directions[name] = torch.autograd.grad(loss.sum(), leaves, retain_graph=True, allow_unused=True)
    del logits, log_prob, loss
    members, share, count = sample_bins(memory, number, generator)
    aligned = {name: [] for name in LOSSES}
    for part in range(BINS):
        index = members[:, part]
        inputs = trials.batch_inputs(index, run._trial)
        targets = trials.targets[run._trial[:, None], index]
        logits = stack._run(stack._evaluation, inputs, 0)
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none")
        losses = losses.view(targets.shape)
        gradient = torch.autograd.grad(losses.mean(-1).sum(), leaves, allow_unused=True)
        for name, direction in directions.items():
            pairs = [(a, b) for a, b in zip(gradient, direction, strict=True) if a is not None]
            aligned[name].append(sum((a.float() * b.float()).flatten(1).sum(1) for a, b in pairs))
    known = count.clamp(max=number) / number
    for name, each in aligned.items():
        evidence[name].add(torch.stack(each, dim=1).double(), share, known)
    now = {name: each.estimate(share) for name, each in evidence.items()} | {"share": share}
    for name, design in DESIGNS.items():
        table = design(now)
        lanes = [k for k, lane in enumerate(run.lanes) if lane.method.name == f"auto-{name}"]
        memory.tables[lanes] = table[lanes]
    memory.rescore()
    return share


def train(protocol, seeds, arguments, designs):
    recipe = protocol.recipe
    if arguments.epochs:
        recipe = recipe.compressed(arguments.epochs)
    if arguments.limit:
        recipe = recipe.limited(arguments.limit)
    device = torch.device(arguments.device)
    dataset = load_data(recipe, arguments.data)
    prepared = [
        prepare(recipe, dataset, seed=seed, device=torch.device("cpu"), root=arguments.data) for seed in seeds
    ]
    trials = TrialData(recipe, prepared, seeds, device)
    methods = [METHODS[name] for name in arguments.baselines] + [
        Method(f"auto-{name}", lambda e: e.mean, weights="emphasis") for name in designs
    ]
    lanes = [Lane(seed, method) for method in methods for seed in seeds]
    generator = torch.Generator(device).manual_seed(7)
    run = SideBySide.begin(trials, burn_in_lanes(lanes), emphasises=False)
    for _ in range(recipe.burn_in):
        run.train_epoch()
    run = run.branch(lanes, emphasises=True)
    memory = with_tables(run)
    evidence = {name: Evidence(len(lanes), device) for name in LOSSES}
    learning = 0.0
    curves = []
    cost = BINS * arguments.members + min(arguments.validation, len(trials.validation))
    every = math.ceil(cost / (0.05 * trials.num_examples))
    for epoch in range(recipe.burn_in, recipe.epochs):
        if (epoch - recipe.burn_in) % every:
            run.train_epoch()
            continue
        started = time.perf_counter()
        for _ in range(3 if not curves else 1):
            share = learn(run, evidence, arguments.members, arguments.validation, generator)
        if device.type == "cuda":
            torch.cuda.synchronize()
        learning += time.perf_counter() - started
        curves.append((memory.tables / (memory.tables * share).sum(-1, keepdim=True))[:: len(seeds)].cpu())
        run.train_epoch()
    test, validation = (torch.stack(each, dim=1) for each in (run.test_error, run.validation_error))
    total = run.seconds * len(lanes)
    print(
        f"\n{recipe.name}: {len(lanes)} models × {recipe.epochs} epochs, n = {len(seeds)}, "
        f"{total:.0f} s, learning {learning:.0f} s more, every {every} epochs"
    )
    for number, method in enumerate(methods):
        mine = slice(number * len(seeds), (number + 1) * len(seeds))
        errors, held = test[mine], validation[mine]
        best, last = errors.amin(1), errors[:, -10:].mean(1)
        chosen = errors.gather(1, held.flip(1).argmin(1, keepdim=True).neg() + errors.shape[1] - 1).squeeze(1)
        text = "  ".join(
            f"{name} {each.mean():6.3f} ± {each.std() / math.sqrt(len(each)):.3f}"
            for name, each in (("best", best), ("chosen", chosen), ("last ten", last))
        )
        print(f"  {method.name:12} {text}", flush=True)
        with arguments.out.open("a") as file:
            record = {
                "row": recipe.name,
                "method": method.name,
                "seeds": list(seeds),
                "best": best.tolist(),
                "chosen": chosen.tolist(),
                "last": last.tolist(),
            }
            if method.name.startswith("auto"):
                picked = [0, 2, 5, 10, 20, 30, len(curves) - 1]
                record["curves"] = {
                    e: [round(v, 3) for v in curves[e][number].tolist()] for e in picked if e < len(curves)
                }
                record["share"] = [round(v, 4) for v in share[number * len(seeds)].tolist()]
            file.write(json.dumps(record) + "\n")


def main():
    rows = peer_rows()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=rows, required=True)
    parser.add_argument("--designs", nargs="+", choices=DESIGNS, default=list(DESIGNS))
    parser.add_argument("--baselines", nargs="*", default=BASELINES)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=2000)
    parser.add_argument("--members", type=int, default=64, help="training instances of a bin, every epoch")
    parser.add_argument("--validation", type=int, default=1024, help="validation examples, every epoch")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out/auto.jsonl"))
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    for name in arguments.rows:
        train(rows[name], tuple(seeds), arguments, arguments.designs)


if __name__ == "__main__":
    main()

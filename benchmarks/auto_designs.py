"""Designs of `auto` that were tried, side by side with the paper's methods (docs/auto-designs.md).

    python benchmarks/auto_designs.py --device cuda --rows mnist-fc mnist-cnn-10 --designs auto hedge
    python benchmarks/auto_designs.py --seeds 0          # the tables, from what is stored

A design has a validation loss of log p (and of the share of the label's class), a form (from the alignments
of the knots to the scores), the uniform part u of the emphasis and the largest weight. All designs of a call
train side by side, on the same seeds. Rows are those of docs/peers.md and the digits, at the recipe's
learning rate, with a tenth of the training set held out. Results are appended to `--out`.
"""

import argparse
import json
import math
from pathlib import Path
from typing import NamedTuple

import torch
from auto import OWN_ROWS, learning, shown

from activebias import METHODS, get_method
from activebias.evidence import DECAY
from activebias.internal import (
    FIRST_ROUNDS,
    MEMBERS,
    UNIFORM,
    Evidence,
    between,
    knot_means,
)
from activebias.lab.experiment.prepared import load_data, prepare
from activebias.lab.peer_rows import peer_rows
from activebias.lab.protocol import Protocol
from activebias.lab.side_by_side.batches import TrialData
from activebias.lab.side_by_side.lanes import Lane, burn_in_lanes
from activebias.lab.side_by_side.learning import StackedCurves
from activebias.lab.side_by_side.training import SideBySide

KNOTS = knot_means()
NO_BOUND = 1e9
ROBUST = ("q1", None)  # tells which labels to trust


class Design(NamedTuple):
    """A way from gradients to emphasis; without a loss it learns nothing.

    Where labels are trusted, the validation loss counts only as far as labels with such a p are: see `trust`.
    """

    loss: str | None
    form: str = "plain"
    uniform: float = UNIFORM
    most: float = 8.0
    begins_as_rule: bool = False
    trust: str | None = None
    # The share of the rule falls with the epochs; with the rounds of learning; or with the epochs as far as
    # instances harm, and with the rounds else.
    falls: str = "epochs"

    @property
    def measured(self):
        """The validation loss and the trust, by which alignments are measured."""
        return self.loss, self.trust


DESIGNS = {
    # The form, with the loss 1 - p.
    "floor-half": Design("q1", uniform=0.5, most=NO_BOUND),
    "free": Design("q1", uniform=0.0, most=NO_BOUND),
    "cosine": Design("q1", "cosine", uniform=0.0, most=NO_BOUND),
    "root": Design("q1", "root", uniform=0.0, most=NO_BOUND),
    "ratio": Design("q1", "ratio", uniform=0.0, most=NO_BOUND),
    # The validation loss.
    "free-q.5": Design("q.5", uniform=0.0, most=NO_BOUND),
    "free-q.25": Design("q.25", uniform=0.0, most=NO_BOUND),
    "free-clip4": Design("clip4", uniform=0.0, most=NO_BOUND),
    # The uniform part.
    "q.5-u.2": Design("q.5", uniform=0.2, most=NO_BOUND),
    "clip3-u.2": Design("clip3", uniform=0.2, most=NO_BOUND),
    "clip4-u.2": Design("clip4", uniform=0.2, most=NO_BOUND),
    "clip4-u.1": Design("clip4", uniform=0.1, most=NO_BOUND),
    # The bound of the weights.
    "clip3": Design("clip3"),
    "clip4": Design("clip4"),
    "clip5": Design("clip5"),
    # The first epochs of learning: it begins as p̄ (1 - p̄). Results before trusted-class call it auto.
    "bounded": Design("clip", begins_as_rule=True),
    # A bound of the validation loss for every class, 1 - log of its share among the validation labels.
    "class-bound": Design("clip by class", begins_as_rule=True),
    # Other validation losses: 1 - p, which is robust, and (1 - p^½) / ½.
    "robust": Design("q1", begins_as_rule=True),
    "robust-q.5": Design("q.5", begins_as_rule=True),
    # The cross-entropy of trusted labels: labels with a p at which training instances lower the robust loss.
    "trusted": Design("clip", begins_as_rule=True, trust="hard"),
    "trusted-soft": Design("clip", begins_as_rule=True, trust="soft"),
    "trusted-floor": Design("clip", begins_as_rule=True, trust="floor"),
    "trusted-class": Design("clip by class", begins_as_rule=True, trust="floor"),
    # The share of the rule falls with the rounds.
    "class-rounds": Design("clip by class", begins_as_rule=True, trust="floor", falls="rounds"),
    # The library's `auto`, except that its shares of classes are those of the round, not of all rounds, and
    # that harm is that of the last round.
    "class-harm": Design("clip by class", begins_as_rule=True, trust="floor", falls="harm"),
    # Without a curve of its own: a mixture of the paper's methods; and wtc with another ε.
    "hedge": Design("clip4", "hedge", uniform=0.0),
    "low-floor": Design(None),
}
# From log p, the share of the label's class, and the number of classes.
LOSSES = {
    "q1": lambda log_prob, *_: 1 - log_prob.exp(),
    "q.5": lambda log_prob, *_: (1 - (0.5 * log_prob).exp()) / 0.5,
    "q.25": lambda log_prob, *_: (1 - (0.25 * log_prob).exp()) / 0.25,
    "clip3": lambda log_prob, *_: -log_prob.clamp(min=-3),
    "clip4": lambda log_prob, *_: -log_prob.clamp(min=-4),
    "clip5": lambda log_prob, *_: -log_prob.clamp(min=-5),
    "clip": lambda log_prob, _, num_classes: -log_prob.clamp(min=-1 - math.log(num_classes)),
    "clip by class": lambda log_prob, share, _: (-log_prob).minimum(1 - share.log()),
}


def class_shares(targets, counts, num_classes):
    """Return for every label the share of its class among the labels of the lane that count."""
    shares = torch.ones(targets.shape, device=targets.device)
    for lane, counted in enumerate(counts):
        number = torch.bincount(targets[lane][counted], minlength=num_classes) + 1.0
        shares[lane][counted] = (number / number.sum())[targets[lane][counted]]
    return shares


def trust(kind, evidence, share, prob):
    """Return how far labels with the given p(y|x) are trusted, from 0 to 1.

    `evidence` holds the alignments a_b with the gradient of 1 - p. "hard" trusts labels at knots with
    a positive a_b, "soft" by a_b / max(a). "floor" is soft, and at least (1 - h)^10, where h is the share of
    the instances at knots with a negative a_b.
    """
    aligned = evidence.means()
    if kind == "hard":
        trusted = (aligned > 0).double()
    else:
        trusted = aligned.clamp(min=0) / aligned.amax(-1, keepdim=True).clamp(min=1e-9)
    if kind == "floor":
        harmful = (share * (aligned < 0)).sum(-1, keepdim=True)
        trusted = trusted.maximum((1 - harmful) ** 10)
    below, part = between(prob.flatten(1))
    found = (1 - part) * trusted.gather(1, below) + part * trusted.gather(1, below + 1)
    return found.view(prob.shape).float()


def hedge(evidence, share):
    """Mix scan, wd, we and wtc by their relative alignment, Σ share v a; a fifth is always scan."""
    scores = torch.stack([torch.ones_like(KNOTS), 1 - KNOTS, KNOTS, KNOTS * (1 - KNOTS)]).to(share.device)
    mean = (share[:, None] * scores).sum(-1, keepdim=True)
    weights = 0.5 + 0.5 * scores / mean  # (lanes, methods, knots)
    aligned = evidence.total / evidence.weight.clamp(min=1e-9)
    gain = (share[:, None] * weights * aligned[:, None]).sum(-1)
    part = 0.8 * (gain / 0.2).softmax(-1)
    part[:, 0] += 0.2
    return (part[..., None] * weights).sum(1)


class Tried(StackedCurves):
    """Curves of several designs, measured together."""

    def adopt(self, designs):
        """Take the design of every lane, and begin without evidence."""
        self.designs, self.rounds = designs, 0
        self.harm = []  # of every round: the share of the instances that harm, lane by lane
        used = {design.measured for design in designs if design.loss}
        self.losses = [ROBUST, *sorted(used - {ROBUST}, key=str)] if used else []
        self.seen = {
            (loss, form): Evidence.none(len(designs), device=self._trial.device)
            for loss in self.losses
            for form in ("plain", "cosine", "ratio")
        }

    def learn(self, epoch):
        """Measure, and write the curve of every lane."""
        means = self._memory.means(self._models)
        knot, count = self._members(means)
        if self.losses and bool(self._due(epoch, count).any()):
            for number in range(FIRST_ROUNDS if bool((self.last_epoch < 0).all()) else 1):
                self._measure(epoch, number, knot, count)
                self.rounds += 1
                harms = self.seen[ROBUST, "plain"].means() < 0
                self.harm.append((count / knot.shape[1] * harms).sum(-1).tolist())
            self.first = epoch if bool((self.last_epoch < 0).all()) else self.first
            self.last_epoch[:] = epoch
        curves, uniform = self._curves(count / knot.shape[1])
        self._memory.follow(self._models, curves, means)
        self._memory._uniform[self._models, 0] = uniform

    def _measure(self, epoch, number, knot, count):
        share, known = count / knot.shape[1], count.clamp(max=MEMBERS).double() / MEMBERS
        self.robust = self.seen[ROBUST, "plain"]  # before these alignments
        for loss in self.losses:
            self.loss, self.norms, self.residuals = loss, [], []
            (aligned,), _ = self._alignments(epoch, number, knot, count)
            # The first gradient is that of the validation loss.
            norms, residuals = (torch.stack(each[1:], 1) for each in (self.norms, self.residuals))
            divisors = {"plain": torch.ones_like(norms), "cosine": norms, "ratio": residuals}
            for form, by in divisors.items():
                new = aligned / by.clamp(min=1e-20)
                self.seen[loss, form] = self.seen[loss, form].with_new(new, share, known)

    def _gradient(self, loss, counts, again=False):
        gradient = super()._gradient(loss, counts, again)
        self.norms.append(sum((each.double() ** 2).flatten(1).sum(1) for each in gradient).sqrt())
        residual = (1 - loss.detach().neg().exp()) ** 2 * counts  # about |p - y|²
        number = counts.flatten(1).sum(1).clamp(min=1)
        self.residuals.append(residual.flatten(1).sum(1).double() / number)
        return gradient

    def _validation_losses(self, loss, labels, share):
        num_classes = self._trials.dataset.num_classes
        shares = class_shares(labels, labels >= 0, num_classes)
        name, kind = self.loss
        with torch.enable_grad():
            if kind is None:
                return [LOSSES[name](-loss, shares, num_classes)]
            if not self.robust.weight.any():  # nothing is known yet
                return [1 - loss.neg().exp()]
            trusted = trust(kind, self.robust, share, loss.detach().neg().exp())
            return [LOSSES[name](-loss, shares, num_classes) * trusted]

    def _rule_share(self, design, lane, share):
        """Return the share of the rule in the scores of a lane, (1,)."""
        by_rounds = DECAY**self.rounds
        by_epochs = DECAY ** (int(self.last_epoch[0]) - self.first + FIRST_ROUNDS)
        robust = self.seen[ROBUST, "plain"].means()[lane]
        harmless = {"epochs": 0.0, "rounds": 1.0}.get(design.falls, (1 - (share * (robust < 0)).sum()) ** 10)
        return share.new_ones(1) * (harmless * by_rounds + (1 - harmless) * by_epochs)

    def _curves(self, share):
        rows, parts = [], []
        for lane, design in enumerate(self.designs):
            mine, form = share[lane : lane + 1], "plain" if design.form in ("root", "hedge") else design.form
            scores, part = (KNOTS * (1 - KNOTS)).to(share.device)[None], design.uniform
            if design.loss is not None:
                evidence = Evidence(*(each[lane : lane + 1] for each in self.seen[design.measured, form]))
                most = design.most if design.most == NO_BOUND else (design.most - part) / (1 - part)
                scores = evidence.scores(mine, most)
                if design.form == "root":
                    scores = scores.sqrt()
                if design.form == "hedge":
                    scores = hedge(evidence, mine)
                if design.begins_as_rule:
                    scores = evidence.mixed(mine, self._rule_share(design, lane, mine))
            rows.append(scores[0])
            parts.append(part)
        return torch.stack(rows), torch.tensor(parts, dtype=torch.float64, device=share.device)


def train(protocol, seeds, arguments):
    recipe = protocol.recipe
    recipe = recipe.compressed(arguments.epochs) if arguments.epochs else recipe
    recipe = recipe.limited(arguments.limit) if arguments.limit else recipe
    device, cpu = torch.device(arguments.device), torch.device("cpu")
    dataset = load_data(recipe, arguments.data)
    prepared = [prepare(recipe, dataset, seed=seed, device=cpu, root=arguments.data) for seed in seeds]
    trials = TrialData(recipe, prepared, seeds, device)
    names = [*arguments.designs, *arguments.baselines]
    methods = [get_method("auto")] * len(arguments.designs) + [METHODS[name] for name in arguments.baselines]
    lanes = [Lane(seed, method) for method in methods for seed in seeds]
    run = SideBySide.begin(trials, burn_in_lanes(lanes), emphasises=False)
    for _ in range(recipe.burn_in):
        run.train_epoch()
    run = run.branch(lanes)
    if arguments.designs:
        run.curves = Tried(lanes, trials, run.stack, run.memory, run._trial)
        run.curves.adopt([DESIGNS[name] for name in arguments.designs for _ in seeds])
        if recipe.burn_in:
            run.curves.learn(recipe.burn_in - 1)
    while run.epoch < recipe.epochs:
        run.train_epoch()
    test, validation = (torch.stack(each, dim=1) for each in (run.test_error, run.validation_error))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        mine = slice(number * len(seeds), (number + 1) * len(seeds))
        errors, held = test[mine], validation[mine]
        # Of equal epochs the last, as in docs/peers.md.
        chosen = errors.gather(1, errors.shape[1] - 1 - held.flip(1).argmin(1, keepdim=True)).squeeze(1)
        found = {"best": errors.amin(1), "chosen": chosen, "last ten": errors[:, -10:].mean(1)}
        record = {"row": recipe.name, "side": name, "seeds": list(seeds), "epochs": recipe.epochs}
        if name in arguments.designs:
            record["harm"] = [[round(share, 3) for share in lanes[mine]] for lanes in run.curves.harm]
        with arguments.out.open("a") as file:
            file.write(json.dumps(record | {key: each.tolist() for key, each in found.items()}) + "\n")


def table(row, path):
    """Print what is stored of a row: errors of every side, means over the seeds ± standard errors."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = [record for record in map(json.loads, lines) if record["row"] == row]
    if not found:
        print(f"\n{row}: not trained yet")
        return
    print(f"\n{row}\n| design | n | epochs | best % | chosen % | last ten epochs % |")
    print("|---|---:|---:|---:|---:|---:|")
    for record in found:
        errors = [shown(record[key]) for key in ("best", "chosen", "last ten")]
        print(
            f"| {' | '.join([record['side'], str(len(record['seeds'])), str(record['epochs']), *errors])} |"
        )


def main():
    rows = peer_rows() | {name: Protocol(learning(name), ()) for name in OWN_ROWS}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=rows, default=list(rows), metavar="ROW")
    parser.add_argument("--designs", nargs="*", choices=DESIGNS, default=list(DESIGNS), metavar="DESIGN")
    parser.add_argument("--baselines", nargs="*", choices=METHODS, default=["scan", "wd", "wtc"])
    parser.add_argument("--seeds", type=int, default=4, help="0: only print what is stored")
    parser.add_argument("--first-seed", type=int, default=2000)
    parser.add_argument("--epochs", type=int, help="for a try: so many epochs")
    parser.add_argument("--limit", type=int, help="for a try: so many examples")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/auto/designs.jsonl"))
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    seeds = tuple(range(arguments.first_seed, arguments.first_seed + arguments.seeds))
    for name in arguments.rows:
        if seeds:
            train(rows[name], seeds, arguments)
        table(name, arguments.out)


if __name__ == "__main__":
    main()

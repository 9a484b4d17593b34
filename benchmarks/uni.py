"""Does our Uni differ from the paper's? Other readings of Uni on mnist-cnn, all trained side by side.

    python benchmarks/uni.py --device cuda --out results/studies/uni.jsonl
    python benchmarks/uni.py --readings uni --float32 --device cuda --out results/studies/uni.jsonl
    python benchmarks/uni.py --trials 0 --out results/studies/uni.jsonl   # the tables again, without training

Every reading trains the recipe's model from the same seeds: initial weights and dropout are shared, the order
of the images is not. The seeds begin at 20, because the result store has 0 to 19. Histories play no part in
Uni and are not recorded. A line of `--out` is one model: its test errors by epoch. Lines in the file are not
trained again. The last table applies other rules of evaluation to the stored trials of Uni and Scan.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from activebias import METHODS
from activebias.internal import epoch_generator
from activebias.lab import Place, ResultStore, get_recipe
from activebias.lab.experiment.prepared import load_data, prepare
from activebias.lab.experiment.results import best_error, last10_error
from activebias.lab.paper import paper_value
from activebias.lab.side_by_side import Lane, SideBySide, TrialData
from activebias.lab.side_by_side.batches import EpochNumbers
from activebias.lab.side_by_side.replay import Replayed
from activebias.lab.significance import estimate, paired_t_test
from activebias.training.randomness import derived_seed

MOST_PREDICTED = 100_000  # images × models of one forward pass
CPU = torch.device("cpu")


def drawn(number: int, batch: int, burns_in: bool, generator: torch.Generator) -> Tensor:
    """As the lab has it: ⌊N/B⌋ batches with replacement, in the burn-in too."""
    return torch.randint(number, (number // batch * batch,), generator=generator)


def drawn_ceiling(number: int, batch: int, burns_in: bool, generator: torch.Generator) -> Tensor:
    """⌈N/B⌉ batches with replacement: at least N draws."""
    return torch.randint(number, (-(-number // batch) * batch,), generator=generator)


def scanned(number: int, batch: int, burns_in: bool, generator: torch.Generator) -> Tensor:
    """Scan: every image once, in ⌊N/B⌋ batches."""
    return torch.randperm(number, generator=generator, dtype=torch.int32).long()[: number // batch * batch]


def scanned_burn_in(number: int, batch: int, burns_in: bool, generator: torch.Generator) -> Tensor:
    """A burn-in without replacement, then draws with replacement."""
    return (scanned if burns_in else drawn)(number, batch, burns_in, generator)


def distinct_batches(number: int, batch: int, burns_in: bool, generator: torch.Generator) -> Tensor:
    """Batches without a repeated image, each drawn from all images."""
    order = drawn(number, batch, burns_in, generator).view(-1, batch)
    while (repeats := (order.sort(1).values.diff(dim=1) == 0).any(1)).any():
        order[repeats] = torch.randint(number, (int(repeats.sum()), batch), generator=generator)
    return order.flatten()


def without_first_twelfth(number: int, batch: int, burns_in: bool, generator: torch.Generator) -> Tensor:
    """55,000 images: TensorFlow's tutorial, on which the paper builds, holds the first 5,000 out."""
    held = number // 12
    return held + drawn(number - held, batch, burns_in, generator)


READINGS: dict[str, Callable[[int, int, bool, torch.Generator], Tensor]] = {
    "uni": drawn,
    "ceiling": drawn_ceiling,
    "scanned-burn-in": scanned_burn_in,
    "distinct-batches": distinct_batches,
    "55000": without_first_twelfth,
    "scan": scanned,
}


class Readings:
    """Models of several readings and seeds, trained side by side by the lab's engine."""

    def __init__(self, recipe, dataset, lanes, device):
        """Give every model an order of its own, and the initial weights and dropout of its seed."""
        self.lanes, self.recipe = list(lanes), recipe
        seeds = [seed for _, seed in self.lanes]
        prepared = prepare(recipe, dataset, seed=0, device=CPU)  # without noise the same for all seeds
        self.trials = TrialData(recipe, [prepared] * len(seeds), seeds, device)
        self.trials.numbers = self._numbers
        uni = METHODS["uni"]
        self.run = SideBySide.begin(self.trials, [Lane(seed, uni) for seed in seeds], emphasises=False)
        self.run._trial = torch.arange(len(seeds), device=device)
        self.run.memory.record = lambda *visit: None
        self._iterate = Replayed(lambda: self.run._iterate(None), device)
        self._ends: dict[int, Tensor] = {}

    def _numbers(self, epoch, *, scans, chance):
        """Return the order of every model; an epoch has as many iterations as the longest order."""
        number, batch = self.trials.num_examples, self.recipe.batch_size
        orders = [
            READINGS[reading](
                number,
                batch,
                epoch < self.recipe.burn_in,
                epoch_generator(derived_seed(seed, "order"), epoch),
            )
            for reading, seed in self.lanes
        ]
        lengths = torch.tensor([len(order) // batch for order in orders])
        self._ends = {int(end): (lengths == end).nonzero().flatten() for end in lengths.unique()}
        padded = torch.nn.utils.rnn.pad_sequence(orders, batch_first=True)
        return EpochNumbers(padded.view(len(orders), -1, batch).to(self.run.device), None, None, None)

    def train_epoch(self):
        """Train an epoch; a model whose epoch is shorter ends it with the state after its last iteration."""
        self.run._prepare_epoch()
        early = []
        for iteration in range(max(self._ends)):
            if iteration in self._ends:
                lanes = self._ends[iteration].to(self.run.device)
                early.append((lanes, [value[lanes].clone() for value in self._state()]))
            self._iterate()
        with torch.no_grad():
            for lanes, kept in early:
                for value, before in zip(self._state(), kept, strict=True):
                    value[lanes] = before
        self.run.test_error.append(self._test_errors())

    def _state(self):
        """Return all tensors that an iteration changes: weights, copies, dropout's steps, momentum."""
        stack, optimiser = self.run.stack, self.run.optimiser
        momentum = [value for state in optimiser.state.values() for value in state.values()]
        return [*stack.parameters.values(), *stack.copies.values(), *stack.buffers.values(), *momentum]

    @torch.no_grad()
    def _test_errors(self):
        """Return the errors on all test images in per cent, (K,)."""
        test, stack = self.trials.test, self.run.stack
        size = max(1, MOST_PREDICTED // stack.size)
        parts = zip(test.inputs[0].split(size), test.targets.split(size), strict=True)
        wrong = sum((stack.predict([images]).argmax(-1) != labels).sum(1) for images, labels in parts)
        return (100 * wrong.double() / len(test.targets)).cpu()

    def curves(self):
        """Return the test errors of every model by epoch."""
        return torch.stack(self.run.test_error, dim=1).tolist()


def read(path, about):
    """Return {reading: {seed: curve}} of the lines with these facts."""
    found: dict[str, dict[int, list[float]]] = {}
    if path.exists():
        for line in map(json.loads, path.read_text().splitlines()):
            if all(line[name] == value for name, value in about.items()):
                found.setdefault(line["reading"], {})[line["seed"]] = line["test_error"]
    return found


def train(recipe, lanes, place, path, about):
    """Train the models and append a line for each."""
    device = torch.device(place.device)
    dataset = load_data(recipe, place.data)
    started = time.perf_counter()
    group = Readings(recipe, dataset, lanes, device)
    for epoch in range(recipe.epochs):
        group.train_epoch()
        if epoch % 10 == 0 or epoch + 1 == recipe.epochs:
            errors = group.run.test_error[-1]
            print(
                f"epoch {epoch + 1}: mean test error {errors.mean():.3f} %, "
                f"{time.perf_counter() - started:.0f} s",
                flush=True,
            )
    seconds = (time.perf_counter() - started) / len(lanes)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    facts = about | {"device": name, "torch": torch.__version__, "seconds": round(seconds, 3)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for (reading, seed), curve in zip(lanes, group.curves(), strict=True):
            line = {"reading": reading, "seed": seed} | facts | {"test_error": curve}
            file.write(json.dumps(line) + "\n")


def shown(test):
    """Return a paired difference as text; without scipy, which a GPU machine may lack, without p."""
    if test.stderr is None:
        return "–" if test.difference is None else f"{test.difference:+.3f}"
    p = ""
    if test.p_value is not None:
        p = " (p < 0.001)" if test.p_value < 0.001 else f" (p = {test.p_value:.3f})"
    return f"{test.difference:+.3f} ± {test.stderr:.3f}{p}"


def compared(values, others):
    """Return the paired difference over common seeds as text."""
    try:
        return shown(paired_t_test(values, others))
    except ImportError:
        mean, stderr = estimate(values[seed] - others[seed] for seed in values.keys() & others.keys())
        return f"{mean:+.3f} ± {stderr:.3f}"


def spread(values):
    """Return mean and standard error as text."""
    mean, stderr = estimate(values)
    return f"{mean:.3f}" + ("" if stderr is None else f" ± {stderr:.3f}")


def show(found):
    """Print a line for every reading: its errors, and the paired differences to Uni as the lab has it."""
    print("\n| reading | n | best test error % | - uni | last 10 epochs % | - uni |")
    print("|---|---:|---:|---:|---:|---:|")
    for reading, curves in found.items():
        cells = [reading, str(len(curves))]
        for rule in (best_error, last10_error):
            values = {seed: rule(curve) for seed, curve in curves.items()}
            base = {seed: rule(curve) for seed, curve in found.get("uni", {}).items()}
            cells += [spread(values.values()), "–" if reading == "uni" else compared(values, base)]
        print("| " + " | ".join(cells) + " |")
    for method in ("uni", "scan"):
        best, last = (
            paper_value("mnist-cnn", method, metric)[0] for metric in ("best_test_error", "last10_test_error")
        )
        print(f"| the paper's {method} | 20 | {best} | – | {last} | – |")


def rules(burn_in):
    """Return rules of evaluation: from a curve of test errors to an error."""
    return {
        "best of all epochs": best_error,
        "best after the burn-in": lambda curve: min(curve[burn_in:]),
        "best of every 2nd epoch": lambda curve: min(curve[1::2]),
        "best of every 5th epoch": lambda curve: min(curve[4::5]),
        "best of every 10th epoch": lambda curve: min(curve[9::10]),
        "best of the first half": lambda curve: min(curve[: len(curve) // 2]),
        "last epoch": lambda curve: curve[-1],
        "mean of the last ten": last10_error,
    }


def show_rules(uni, scan, burn_in):
    """Print the errors of Uni and Scan by every rule of evaluation."""
    print("\n| rule | Uni | Scan | Uni - Scan |\n|---|---:|---:|---:|")
    for name, rule in rules(burn_in).items():
        ours, theirs = ({seed: rule(curve) for seed, curve in curves.items()} for curves in (uni, scan))
        print(f"| {name} | {spread(ours.values())} | {spread(theirs.values())} | {compared(ours, theirs)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--readings", nargs="+", choices=READINGS, default=list(READINGS))
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=20)
    parser.add_argument("--float32", action="store_true", help="not bf16, which a GPU takes otherwise")
    parser.add_argument("--epochs", type=int, help="for a try: so many epochs")
    parser.add_argument("--limit", type=int, help="for a try: so many images")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--store", type=Path, default=Path("results"), help="holds trials of Uni and Scan")
    parser.add_argument("--out", type=Path, default=Path("results/studies/uni.jsonl"))
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    full = get_recipe("mnist-cnn")
    recipe = replace(full, epochs=arguments.epochs or full.epochs, limit=arguments.limit)
    recipe = replace(recipe, half_precision=not arguments.float32)
    place = Place(arguments.out.parent, arguments.data, arguments.device)
    about = {"epochs": recipe.epochs, "limit": recipe.limit, "float32": arguments.float32}
    known = read(arguments.out, about)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.trials)
    lanes = [(reading, seed) for reading in arguments.readings for seed in seeds]
    if missing := [(reading, seed) for reading, seed in lanes if seed not in known.get(reading, {})]:
        train(recipe, missing, place, arguments.out, about)
    show(read(arguments.out, about))
    stored = {"uni": {}, "scan": {}}
    for result in ResultStore(arguments.store).load(full.name, full.config()):
        if result.method in stored:
            stored[result.method][result.seed] = result.test_error
    if stored["uni"] and stored["scan"]:
        show_rules(stored["uni"], stored["scan"], full.burn_in)


if __name__ == "__main__":
    main()

"""The peers' rows by the protocol (lab/protocol.py), row after row, within a time budget.

    python benchmarks/peers.py --device cuda --out results/peers --seconds 1500
    python benchmarks/peers.py --rows mnist-cnn-10 mnist-cnn-40 --trials 5 --sides scan wtc gce sce

Results are appended to the store, and the next call goes on where this one stopped. A unit of about 60 models
is trained at a time. It is not begun if the time that is left would not do, by the time of the units before.
"""

import argparse
import math
import time
from dataclasses import replace
from pathlib import Path

from activebias.lab import Listener, Place, run_trials
from activebias.lab.experiment.prepared import load_data
from activebias.lab.peer_rows import num_trials, peer_rows
from activebias.lab.protocol import run_protocol
from activebias.lab.significance import estimate

# A first guess in seconds of a model and epoch, on an H200, until a unit was measured.
GUESSES = {"MnistCNN": 0.055, "ResidualNet(2)": 0.11}

FEWEST = 20  # models of a unit: fewer take nearly as long as twenty, and would make larger units look slow


class Clock:
    """The time that is left, and whether a unit fits into it."""

    def __init__(self, seconds):
        self.end = math.inf if seconds is None else time.monotonic() + seconds
        self.pace = dict(GUESSES)

    def needed(self, unit):
        return self.pace.get(unit.recipe.architecture, 0.01) * work(unit)

    def fits(self, unit):
        return time.monotonic() + self.needed(unit) <= self.end

    def learn(self, unit, seconds):
        if len(unit.sides) * len(unit.seeds) >= FEWEST:
            self.pace[unit.recipe.architecture] = seconds / work(unit)


def work(unit):
    return len(unit.sides) * len(unit.seeds) * unit.recipe.epochs


def train_row(protocol, seeds, place, clock, at_once):
    """Train what is missing of a row; return whether it is complete."""
    dataset = None

    def train(unit):
        nonlocal dataset
        models = len(unit.sides) * len(unit.seeds)
        what = f"{unit.recipe.name}: {models} models × {unit.recipe.epochs} epochs"
        if not clock.fits(unit):
            print(f"{what} would take about {clock.needed(unit):.0f} s: stopped.", flush=True)
            return False
        started = time.monotonic()
        dataset = dataset or load_data(protocol.recipe, place.data)
        listener = Listener(on_message=lambda text: print(text, flush=True))
        run_trials(
            unit.recipe, methods=unit.sides, seeds=unit.seeds, place=place, dataset=dataset, listener=listener
        )
        seconds = time.monotonic() - started
        clock.learn(unit, seconds)
        print(f"{what}: {seconds:.0f} s, {seconds / models:.2f} s a model.", flush=True)
        return True

    return run_protocol(protocol, seeds, place, train, at_once=at_once)


def show(protocol, store):
    """Print the row; without scipy, which the test against Scan needs and a GPU machine may lack."""
    results = protocol.results(store)
    print(f"\n{protocol.recipe.name}: {protocol.recipe.title}")
    for name, chosen in protocol.chosen(store).items():
        line = f"  {name:20} {chosen.side.setting.rule or 'as the recipe':32}"
        line += f" searched {chosen.models} × {chosen.epochs}, validation {chosen.validation_error:5.2f} %"
        if group := results[name]:
            errors = estimate(result.chosen_test_error for result in group)
            best = estimate(result.best_test_error for result in group)
            spread = "" if errors.stderr is None else f" ± {errors.stderr:.2f}"
            line += (
                f" | n {len(group):2}, test {errors.mean:5.2f}{spread} %, best of epochs {best.mean:5.2f} %"
            )
        print(line)
    print(flush=True)


def main():
    rows = peer_rows()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=rows, default=list(rows), metavar="ROW")
    parser.add_argument("--sides", nargs="+", metavar="SIDE", help="default: all that apply")
    parser.add_argument("--trials", type=int, help="default: 10, residual nets 5, digits 20")
    parser.add_argument("--first-seed", type=int, default=0, help="with another `--out`, to confirm a choice")
    parser.add_argument("--seconds", type=float, help="begin no unit that would end later")
    parser.add_argument("--at-once", type=int, default=60, help="about how many models a unit has")
    parser.add_argument("--epochs", type=int, help="for a try: so many epochs")
    parser.add_argument("--limit", type=int, help="for a try: so many examples")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/peers"))
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    clock = Clock(arguments.seconds)
    # A unit takes a minute or two, and its checkpoints would be gigabytes.
    place = Place(arguments.out, arguments.data, arguments.device, interval=math.inf)
    for name in arguments.rows:
        protocol = rows[name]
        if arguments.sides:
            protocol = replace(protocol, names=tuple(arguments.sides))
        recipe = protocol.recipe
        recipe = recipe if arguments.epochs is None else recipe.compressed(arguments.epochs)
        recipe = recipe if arguments.limit is None else recipe.limited(arguments.limit)
        protocol = replace(protocol, recipe=recipe)
        last = arguments.first_seed + (arguments.trials or num_trials(recipe))
        seeds = range(arguments.first_seed, last)
        complete = train_row(protocol, seeds, place, clock, arguments.at_once)
        show(protocol, place.store)
        if not complete:
            break


if __name__ == "__main__":
    main()

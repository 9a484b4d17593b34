"""Methods compared over repeated splits of a user's data: results, table, verdict and figure."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from activebias import Method
from activebias.internal import ALL_METHODS
from activebias.lab.data import Dataset
from activebias.lab.experiment.place import Listener, Place
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.results import TrialResult
from activebias.lab.experiment.sides import Setting, Side, find_side
from activebias.lab.experiment.splitting import Split, split_rows
from activebias.lab.protocol import RATES, candidates
from activebias.lab.result_tables import Cell, TextTable, listing
from activebias.lab.significance import Comparison, our_finding
from activebias.lab.split_trials import best_by_method, run_splits
from activebias.lab.split_verdict import (
    POWER,
    SplitVerdict,
    judge,
    memorising_splits,
    splits_in_burn_in,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@final
@dataclass(frozen=True)
class SplitComparison:
    """The results of a comparison over repeated splits.

    `results` has one entry per finished split and method, and `settings` the setting of each; `searched`
    says whether a search chose it. `sizes` are the numbers of examples in the training, validation and test
    part of the first split. `warnings` say why the numbers may mislead.
    """

    name: str
    results: tuple[TrialResult, ...]
    settings: tuple[Setting, ...]
    split: Split
    num_wanted: int
    sizes: tuple[int, int, int]
    measure: str
    store: Path
    warnings: tuple[str, ...] = ()
    examples: str = "examples"
    searched: bool = False

    @property
    def num_splits(self) -> int:
        """The number of finished splits."""
        return len({result.seed for result in self.results})

    @property
    def judged(self) -> SplitVerdict:
        """The tests of all methods against their baselines."""
        return judge(self.results, self.split.overlap)

    @property
    def verdict(self) -> str:
        """The findings in a sentence or two."""
        return self.judged.sentence()

    @property
    def next_step(self) -> str:
        """How to train with the best method that is better than its baseline, or to keep the baseline.

        Empty if no method was tested, or if nothing was learned.
        """
        tested = [item for item in self.judged.tested if our_finding(item) is not None]
        if all(item.mean == 100 for item in tested):
            return ""
        better = [item for item in tested if our_finding(item) == "better"]
        if not better:
            baselines = listing(list(dict.fromkeys(str(item.baseline) for item in tested)))
            more = "use more splits, or " if self.num_splits < 10 else ""
            return f"Next: {more}keep {baselines}; docs/compare.md names what else to try."
        best = min(better, key=lambda item: item.mean).method
        setting, _ = self._usual_setting(best)
        return f"Next: in a loop of your own, train with {_recommendation(best, setting, self._given_rate)}."

    @property
    def _given_rate(self) -> float | None:
        """The learning rate without a search; None if the results do not know it."""
        optimiser = self.results[0].config.get("optimiser")
        return float(optimiser["learning_rate"]) if isinstance(optimiser, dict) else None

    def table(self) -> TextTable:
        """Return the methods with their test errors, differences and tests."""
        judged = self.judged
        lines = [self._line(item, judged.smallest_gain.get(item.method)) for item in judged.items]
        return TextTable(self.name, tuple(lines[0]), tuple(tuple(line.values()) for line in lines), ())

    def _line(self, item: Comparison, gain: float | None) -> dict[str, Cell]:
        """Return the line of a method in the table, by column."""
        epochs = [result.chosen_epoch for result in self.results if result.method == item.method]
        error = f"{item.mean:.2f}" + ("" if item.stderr is None else f" ± {item.stderr:.2f}")
        difference = "–"
        if item.test is not None and item.test.difference is not None:
            difference = f"{item.test.difference:+.2f}"
            difference += "" if item.test.stderr is None else f" ± {item.test.stderr:.2f}"
        setting = {"setting": Cell(self._setting_text(item.method))} if self.searched else {}
        return {
            "method": Cell(item.method),
            **setting,
            f"{self.measure} %": Cell(error, item.significant),
            "- baseline": Cell(difference, item.significant),
            "p Holm": Cell(_p_text(item.p_holm)),
            "smallest gain seen": Cell("–" if gain is None else f"{gain:.2f}"),
            "mean epoch": Cell(f"{sum(epochs) / len(epochs):.0f}"),
        }

    def _usual_setting(self, method: str) -> tuple[Setting, int]:
        """Return the most frequent setting of a method, and the number of its splits."""
        counts = Counter(setting for result, setting in self._pairs() if result.method == method)
        return counts.most_common(1)[0]

    def _pairs(self) -> Iterator[tuple[TrialResult, Setting]]:
        return zip(self.results, self.settings, strict=True)

    def _setting_text(self, method: str) -> str:
        setting, number = self._usual_setting(method)
        text = setting.shown(self._given_rate)
        return text if number == self.num_splits else f"{text} ({number} of {self.num_splits})"

    @property
    def title(self) -> str:
        """The data, the splits and the sizes of the parts."""
        train, validation, test = self.sizes
        plural = "" if self.num_splits == 1 else "s"
        return (
            f"{self.name}: {self.num_splits} split{plural} into {train} training, {validation} validation "
            f"and {test} test {self.examples}"
        )

    def notes(self) -> list[str]:
        """Return sentences that explain the table."""
        notes = [f"{self.title}."]
        if self.num_splits < self.num_wanted:
            verb = "was" if self.num_splits == 1 else "were"
            notes.append(
                f"{self.num_splits} of {self.num_wanted} splits {verb} finished in the given minutes: the "
                "same call again trains further ones."
            )
        if any(item.significant for item in self.judged.items):
            notes.append("*: differs from its baseline, p < 0.05.")
        notes.append("Errors are those of the epoch with the lowest validation error, mean ± standard error.")
        notes += self._search_notes() if self.searched else []
        if number := splits_in_burn_in(self.results):
            notes.append(
                f"In {number} of {self.num_splits} splits the epoch is in the burn-in, where all methods are "
                "the same: a shorter burn-in may show more."
            )
        if any(our_finding(item) is not None for item in self.judged.items):
            notes.append(
                "Differences: paired t-test, corrected for overlapping splits (Nadeau and Bengio), then Holm."
            )
            notes.append(
                f"Smallest gain seen: a difference that is found with a probability of {100 * POWER:.0f} %."
            )
        return notes

    def _search_notes(self) -> list[str]:
        """Return sentences about the search of the settings."""
        ends = sum(setting.rate in (min(RATES), max(RATES)) for setting in self.settings)
        given = self._given_rate
        rates = listing([f"{rate * (given or 1):.3g}" for rate in RATES])
        budgets: dict[int, list[str]] = {}
        for name, peer in {each.method: one.peer for each, one in self._pairs()}.items():
            budgets.setdefault(len(RATES) * (len(peer.values) if peer else 1), []).append(name)
        budget = ", ".join(f"{number} for {listing(names)}" for number, names in sorted(budgets.items()))
        notes = [
            "Setting: the most frequent. In every split each method was trained with the learning rate"
            f"{' ×' if given is None else 's'} {rates}, and a peer also with each value of its parameter. "
            f"Trainings a split: {budget}. The setting with the lowest validation error of the split counts.",
        ]
        if ends:
            notes.append(
                f"In {ends} of {len(self.settings)} searches the lowest or the highest rate was best: a "
                "better rate may lie beyond."
            )
        return notes

    def to_dict(self) -> dict[str, Any]:
        """Return everything as one object for JSON."""
        given = self._given_rate
        return {
            "name": self.name,
            "verdict": self.verdict,
            "next": self.next_step or None,
            "measure": self.measure,
            "splits": self.num_splits,
            "splits_wanted": self.num_wanted,
            "sizes": dict(zip(("train", "validation", "test"), self.sizes, strict=True)),
            "test": "paired t-test, Nadeau-Bengio variance, Holm",
            "power": POWER,
            "rates_searched": list(RATES) if self.searched else None,
            "methods": self.judged.to_dict(),
            "trials": [
                {
                    "split": result.seed,
                    "method": result.method,
                    "epoch": result.chosen_epoch,
                    "test_error": result.chosen_test_error,
                    "validation_error": result.best_validation_error,
                    "setting": setting.rule or None,
                    "learning_rate": None if given is None else setting.rate * given,
                }
                for result, setting in self._pairs()
            ],
            "warnings": list(self.warnings),
            "store": str(self.store),
        }

    def figure(self) -> "Figure":
        """Return the figure: the differences of all splits, and the mean curves."""
        from activebias.lab.split_figure import split_figure

        return split_figure(self)

    def save_figure(self, path: str | Path) -> list[Path]:
        """Write the figure as PNG and SVG, and return both paths."""
        from activebias.lab.figures import save_figure

        return save_figure(self.figure(), path)

    def __str__(self) -> str:
        """Return the table and the verdict."""
        ending = [self.verdict, *([self.next_step] if self.next_step else [])]
        return "\n".join([self.table().to_text(), *self.notes(), "", *ending])


def compare_splits(
    recipe: Recipe,
    dataset: Dataset,
    methods: Sequence[str | Method],
    *,
    place: Place,
    minutes: float | None = None,
    listener: Listener | None = None,
    quiet: bool = False,
    examples: str = "examples",
    search: bool = False,
) -> SplitComparison:
    """Train the methods of a recipe with a `split` on all splits of the data set, and compare them.

    With `search`, every split trains every method with all its `candidates`, and the one with the lowest
    validation error counts. `examples` is the plural noun of the data's examples.
    """
    if recipe.split is None:
        raise ValueError("Expected `recipe` to have a split.")
    _check(recipe, dataset, methods)
    parts = split_rows(dataset.train, recipe.split, 0)
    sides = list(chain(*map(_tried, methods))) if search else list(map(find_side, methods))
    results = best_by_method(
        run_splits(recipe, dataset, sides, place=place, minutes=minutes, listener=listener, quiet=quiet)
    )
    settings = {(side.name, side.rule): side.setting for side in sides}
    return SplitComparison(
        name=recipe.name,
        results=tuple(results),
        settings=tuple(settings[result.method, result.rule] for result in results),
        split=recipe.split,
        num_wanted=recipe.trials,
        sizes=(len(parts.train), len(parts.validation), len(parts.test)),
        measure=recipe.measure,
        store=place.store.path(recipe.name),
        warnings=_memorisation(results),
        examples=examples,
        searched=search,
    )


def _tried(method: str | Method) -> list[Side]:
    """Return the sides that a split tries; of equal validation errors the first counts.

    The nearest to the given rate is first, and of these the side with the peer's usual parameter.

    >>> [side.rule for side in _tried("gce")][:4]
    ['q 0.7', 'q 0.3', 'q 0.5', 'q 0.7, learning rate × 0.333']
    """
    usual = find_side(method).setting.value
    return sorted(
        candidates(method),
        key=lambda side: (abs(math.log(side.setting.rate)), side.setting.value != usual),
    )


def _check(recipe: Recipe, dataset: Dataset, methods: Sequence[str | Method]) -> None:
    """Raise if the comparison could show nothing."""
    if recipe.burn_in >= recipe.epochs:
        raise ValueError(
            f"Expected `burn_in` to be less than `epochs`, {recipe.epochs}, but got {recipe.burn_in}: "
            "no instance would be emphasised, and all methods would be equal. Train longer, or pass a "
            "smaller `burn_in`."
        )
    drawing = [side.name for side in map(find_side, methods) if side.method.order != "scan"]
    if dataset.train.is_tagging and drawing:
        raise ValueError(
            f"Method {drawing[0]!r} draws single instances, but the words of a sentence train together: use "
            "scan, wd, we, wpv, wtc or auto."
        )


def _p_text(p_value: float | None) -> str:
    if p_value is None:
        return "–"
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def _recommendation(name: str, setting: Setting, given: float | None) -> str:
    """Return how to train with a method or peer of this name and setting; `given` is the rate before.

    >>> from activebias.lab.peers import PEERS
    >>> _recommendation("wtc+label-smoothing", Setting(PEERS["label-smoothing"], 0.2, rate=3), 0.1)
    '`activebias.ActiveBias("wtc", …)`, `label_smoothing=0.2` and the learning rate 0.3'
    >>> _recommendation("gce", Setting(PEERS["gce"]), None)
    'gce (q 0.7, see docs/peers.md)'
    """
    peer, parts = setting.peer, []
    if peer is None or peer.name != name:
        method = name.partition("+")[0]
        quoted = f'"{method}"' if method in ALL_METHODS else method
        parts.append(f"`activebias.ActiveBias({quoted}, …)`")
    if peer is not None and peer.name == "label-smoothing":
        parts.append(f"`label_smoothing={setting.value:g}`")
    elif peer is not None:
        parts.append(f"{peer.name} ({peer.parameter} {setting.value:g}, see docs/peers.md)")
    if setting.rate != 1:
        parts.append(
            f"{setting.rate:.3g} times the learning rate"
            if given is None
            else f"the learning rate {setting.rate * given:.3g}"
        )
    return listing(parts)


def _memorisation(results: Sequence[TrialResult]) -> tuple[str, ...]:
    number, total = memorising_splits(results), len({result.seed for result in results})
    if 2 * number < total:
        return ()
    return (
        f"In {number} of {total} splits the model knew its training part by heart within a few epochs, but "
        "not the task. What is still uncertain is then mostly outliers: use a simpler or more regularised "
        "model.",
    )

"""Methods compared over repeated splits of a user's data: results, table, verdict and figure."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from activebias import Method
from activebias.lab.data import Dataset
from activebias.lab.experiment.place import Listener, Place
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.results import TrialResult
from activebias.lab.experiment.sides import find_side
from activebias.lab.experiment.splitting import Split, split_rows
from activebias.lab.result_tables import Cell, TextTable
from activebias.lab.significance import our_finding
from activebias.lab.split_trials import measure_of, run_splits
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

    `results` has one entry per finished split and method. `sizes` are the numbers of examples in the
    training, validation and test part of the first split. `warnings` say why the numbers may mislead.
    """

    name: str
    results: tuple[TrialResult, ...]
    split: Split
    num_wanted: int
    sizes: tuple[int, int, int]
    measure: str
    store: Path
    warnings: tuple[str, ...] = ()
    examples: str = "examples"

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

    def table(self) -> TextTable:
        """Return the methods with their test errors, differences and tests."""
        judged = self.judged
        rows = []
        for item in judged.items:
            epochs = [result.chosen_epoch for result in self.results if result.method == item.method]
            test, gain = item.test, judged.smallest_gain.get(item.method)
            error = f"{item.mean:.2f}" + ("" if item.stderr is None else f" ± {item.stderr:.2f}")
            difference = "–"
            if test is not None and test.difference is not None:
                difference = f"{test.difference:+.2f}"
                difference += "" if test.stderr is None else f" ± {test.stderr:.2f}"
            rows.append(
                (
                    Cell(item.method),
                    Cell(error, item.significant),
                    Cell(difference, item.significant),
                    Cell("–" if item.p_holm is None else f"{item.p_holm:.3f}"),
                    Cell("–" if gain is None else f"{gain:.2f}"),
                    Cell(f"{sum(epochs) / len(epochs):.0f}"),
                )
            )
        columns = ("method", f"{self.measure} %", "- baseline", "p Holm", "smallest gain seen", "mean epoch")
        return TextTable(self.name, columns, tuple(rows), ())

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
            notes.append(f"{self.num_splits} of {self.num_wanted} splits were finished in the given minutes.")
        if any(item.significant for item in self.judged.items):
            notes.append("*: differs from its baseline, p < 0.05.")
        notes.append("Errors are those of the epoch with the lowest validation error, mean ± standard error.")
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

    def to_dict(self) -> dict[str, Any]:
        """Return everything as one object for JSON."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "measure": self.measure,
            "splits": self.num_splits,
            "splits_wanted": self.num_wanted,
            "sizes": dict(zip(("train", "validation", "test"), self.sizes, strict=True)),
            "test": "paired t-test, Nadeau-Bengio variance, Holm",
            "power": POWER,
            "methods": self.judged.to_dict(),
            "trials": [
                {
                    "split": result.seed,
                    "method": result.method,
                    "epoch": result.chosen_epoch,
                    "test_error": result.chosen_test_error,
                    "validation_error": result.best_validation_error,
                }
                for result in self.results
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
        return "\n".join([self.table().to_text(), *self.notes(), "", self.verdict])


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
) -> SplitComparison:
    """Train the methods of a recipe with a `split` on all splits of the data set, and compare them.

    `examples` is the plural noun of the data's examples.
    """
    if recipe.split is None:
        raise ValueError("Expected `recipe` to have a split.")
    _check(recipe, dataset, methods)
    parts = split_rows(dataset.train, recipe.split, 0)
    results = run_splits(
        recipe, dataset, methods, place=place, minutes=minutes, listener=listener, quiet=quiet
    )
    return SplitComparison(
        name=recipe.name,
        results=tuple(results),
        split=recipe.split,
        num_wanted=recipe.trials,
        sizes=(len(parts.train), len(parts.validation), len(parts.test)),
        measure=measure_of(recipe),
        store=place.store.path(recipe.name),
        warnings=_memorisation(results),
        examples=examples,
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


def _memorisation(results: Sequence[TrialResult]) -> tuple[str, ...]:
    number, total = memorising_splits(results), len({result.seed for result in results})
    if 2 * number < total:
        return ()
    return (
        f"In {number} of {total} splits the model knew its training part by heart within a few epochs, but "
        "not the task. What is still uncertain is then mostly outliers: use a simpler or more regularised "
        "model.",
    )

"""What a comparison over repeated splits shows: errors at the chosen epochs, corrected tests, a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from activebias.internal import FEW_EPOCHS, memorises
from activebias.lab.baselines import against_halves, difference_text, halves_text, without_baseline
from activebias.lab.experiment.results import TrialResult
from activebias.lab.result_tables import listing
from activebias.lab.significance import (
    SIGNIFICANCE_LEVEL,
    Comparison,
    against_baselines_of,
    finding_json,
    in_order,
    our_finding,
)

# The probability of seeing a gain of the size that a verdict names.
POWER: Final = 0.8


@final
@dataclass(frozen=True)
class SplitVerdict:
    """The methods of a comparison over repeated splits, compared with their baselines.

    `items` has one entry per method, and `halves` one per pair and half that was trained. `smallest_gain`
    has, by method, the difference in points that this number of splits shows with a probability of 80 %; None
    if no test was possible.
    """

    items: tuple[Comparison, ...]
    smallest_gain: dict[str, float | None]
    num_splits: int
    halves: tuple[Comparison, ...] = ()

    @property
    def tested(self) -> list[Comparison]:
        """The methods that have a baseline."""
        return [item for item in self.items if item.baseline is not None]

    def sentence(self) -> str:
        """Return the verdict in a sentence or two."""
        splits = f"{self.num_splits} splits"
        alone = without_baseline([item.method for item in self.items])
        if not self.tested:
            return f"There is nothing to compare: {alone or 'give a method beside the baseline.'}"
        if self.num_splits < 2:
            return "One split shows nothing about the methods: use at least 2 splits, better 10."
        if all(item.mean == 100 for item in self.items):
            return "Nothing was learned: every test error is 100 %. Train for more epochs."
        if all(item.test is not None and item.test.stderr == 0 == _difference(item) for item in self.tested):
            which = "methods with a baseline" if alone else "methods"
            text = f"No difference seen: all {which} have the same test error in each of the {splits}."
            return f"{text} {alone}".strip()
        found = [item for item in self.tested if item.significant]
        texts = [self._found(item) for item in sorted(found, key=_difference)]
        equal = [item.method for item in self.tested if item.p_holm is None]
        if equal:
            verb = "differs" if len(equal) == 1 else "differ"
            texts.append(
                f"{listing(equal)} {verb} from the baseline by the same number in every split, which makes "
                "a test impossible: use more splits"
            )
        same = [item for item in self.tested if not item.significant and item.p_holm is not None]
        if same:
            gains = [gain for item in same if (gain := self.smallest_gain[item.method]) is not None]
            limit = f": a gain below {_range(gains)} would not be seen with {splits}" if gains else ""
            if gains and all(map(self._is_blind, same)):
                blind = "even an error of 0 would not be seen as a gain, so use more splits or data"
                limit = f": with {splits} {blind}"
            names = f" for {listing([item.method for item in same])}" if texts else ""
            texts.append(f"{'no' if texts else 'No'} difference seen{names}{limit}")
        more = filter(None, (alone, halves_text(self.items, self.halves)))
        return " ".join(["; ".join(texts) + ".", *more])

    def _is_blind(self, item: Comparison) -> bool:
        """Return whether the smallest gain seen is larger than the error of the baseline."""
        errors = [other.mean for other in self.items if other.method == item.baseline]
        return (self.smallest_gain[item.method] or 0) > min(errors)

    def _found(self, item: Comparison) -> str:
        verb = "lowers" if _difference(item) < 0 else "raises"
        size = difference_text(item, f"{self.num_splits} splits")
        return f"{item.method} {verb} the error of {item.baseline} by {size}"

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of every method, for JSON."""
        return {
            item.method: {
                "test_error": _rounded(item.mean),
                "stderr": _rounded(item.stderr),
                "splits": item.n,
                **{
                    name: _rounded(value) if isinstance(value, float) else value
                    for name, value in finding_json(item).items()
                },
                "smallest_gain": _rounded(self.smallest_gain.get(item.method)),
                "halves": self._halves(item.method),
            }
            for item in self.items
        }

    def _halves(self, method: str) -> dict[str, dict[str, Any]] | None:
        """Return the differences of a pair from its halves, for JSON; None if no half was trained."""
        return {
            item.baseline: {
                "difference": _rounded(item.test.difference),
                "p_holm": _rounded(item.p_holm),
                "finding": our_finding(item),
            }
            for item in self.halves
            if item.method == method and item.baseline is not None and item.test is not None
        } or None


def judge(results: Sequence[TrialResult], overlap: float) -> SplitVerdict:
    """Test every method against its baseline, on the test error at the chosen epochs.

    `overlap` is the number of test examples per other example of a split.
    """
    values: dict[str, dict[int, float]] = {}
    for result in results:
        values.setdefault(result.method, {})[result.seed] = result.chosen_test_error
    items = against_baselines_of({name: values[name] for name in in_order(values)}, overlap=overlap)
    tests = {item.method: item.test for item in items if item.test is not None}
    gains = {
        method: _smallest_gain(test.stderr, test.n, len(tests)) if test.stderr else None
        for method, test in tests.items()
    }
    pairs = tuple(against_halves(values, overlap=overlap))
    return SplitVerdict(tuple(items), gains, len({result.seed for result in results}), pairs)


def _smallest_gain(stderr: float, num_splits: int, num_tests: int) -> float:
    """Return the difference that the test shows with the probability `POWER`, at Holm's first level.

    >>> f"{_smallest_gain(0.2, num_splits=10, num_tests=1):.2f}"
    '0.63'
    """
    from scipy import stats

    degrees = num_splits - 1
    needed = stats.t.isf(SIGNIFICANCE_LEVEL / (2 * num_tests), degrees) + stats.t.ppf(POWER, degrees)
    return float(needed * stderr)


def memorises_early(
    training_errors: Sequence[float], validation_errors: Sequence[float], burn_in: int
) -> bool:
    """Return whether a model knew its training set by heart within a few epochs, from its curves.

    >>> memorises_early([0.2, 0.001], [0.4, 0.3], burn_in=0)
    True
    >>> memorises_early([0.2, 0.1], [0.4, 0.3], burn_in=0)
    False
    """
    early = max(FEW_EPOCHS, burn_in)
    return any(map(memorises, training_errors[:early], validation_errors[:early]))


def memorising_splits(results: Sequence[TrialResult]) -> int:
    """Return the number of splits in which a model knew its training part by heart within a few epochs."""
    return len(
        {
            result.seed
            for result in results
            if memorises_early(
                [error / 100 for error in result.train_error],
                [error / 100 for error in result.validation_curve],
                burn_in=int(result.config["burn_in"]),
            )
        }
    )


def splits_in_burn_in(results: Sequence[TrialResult]) -> int:
    """Return the number of splits in which every method's chosen epoch is in the burn-in."""
    later = {each.seed for each in results if each.chosen_epoch > int(each.config["burn_in"])}
    return len({each.seed for each in results} - later)


def _rounded(value: float | None) -> float | None:
    """Return a number with as many decimals as errors are stored with."""
    return None if value is None else round(value, 6)


def _difference(item: Comparison) -> float:
    return 0.0 if item.test is None or item.test.difference is None else item.test.difference


def _range(gains: Sequence[float]) -> str:
    """Return the smallest gains of several methods in points, as one number if they are similar.

    >>> _range([0.62]), _range([0.03, 0.04]), _range([5.1, 12.3])
    ('0.6 points', '0.04 points', '5.1 to 12 points, depending on the method,')
    """
    low, high = (
        f"{value:.{2 if value < 0.1 else 1 if value < 10 else 0}f}" for value in (min(gains), max(gains))
    )
    if max(gains) < 1.5 * min(gains):
        return f"{high} points"
    return f"{low} to {high} points, depending on the method,"

"""Significance: means with standard errors, paired tests with Holm's correction, and the paper's order.

Rules:

- The standard error of n values is their standard deviation (divided by n - 1) over the square root of n. For
  n = 1 it does not exist (None, not 0).
- A method is tested against its baseline over their common seeds (paired t-test, two-sided; where a trial
  failed, by ranks). Holm's correction covers all methods of one comparison, separately for each metric.
- Two methods are *apart* if their means differ by more than twice the combined standard error,
  sqrt(se_a² + se_b²). A pair of methods *agrees* with the paper if it is apart here and in the paper with the
  same sign. It *disagrees* if the signs are opposite. Otherwise it is *undecided*.
- The paper rounds standard errors to 0.01 and leaves out smaller ones. A missing standard error counts as
  0.01. No standard error counts as less than 0.005.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Any, Final, Literal, NamedTuple

from activebias.lab.experiment.results import METRICS, ResultKey, TrialResult, of_latest_rules

SAMPLING_METHODS: Final = ("uni", "sd", "isd", "se", "spv", "stc")
WEIGHTING_METHODS: Final = ("scan", "wd", "we", "wpv", "wtc")
BASELINES: Final = ("uni", "scan")
SIGNIFICANCE_LEVEL: Final = 0.05

Finding = Literal["better", "worse", "no difference"]


class Estimate(NamedTuple):
    """A mean and its standard error, None if it does not exist."""

    mean: float
    stderr: float | None


class PairedTest(NamedTuple):
    """The mean difference over n pairs, its standard error and p-value; None if they do not exist."""

    n: int
    difference: float | None
    stderr: float | None
    p_value: float | None


@dataclass(frozen=True)
class Comparison:
    """One method compared with its baseline, in one metric."""

    method: str
    n: int
    mean: float
    stderr: float | None
    baseline: str | None
    test: PairedTest | None
    p_holm: float | None

    @property
    def significant(self) -> bool:
        """Whether the method differs from its baseline at the 5 % level after Holm's correction."""
        return self.p_holm is not None and self.p_holm < SIGNIFICANCE_LEVEL


@dataclass(frozen=True)
class OrderAgreement:
    """Pairs of methods by their agreement with the paper; a pair begins with the paper's better method."""

    agrees: tuple[tuple[str, str], ...]
    undecided: tuple[tuple[str, str], ...]
    disagrees: tuple[tuple[str, str], ...]


def estimate(values: Iterable[float]) -> Estimate:
    """Return the mean and the standard error of some values.

    >>> mean, stderr = estimate([3.1, 3.3, 3.2, 3.0])
    >>> f"{mean:.3f} ± {stderr:.4f}"
    '3.150 ± 0.0645'
    >>> estimate([3.1])
    Estimate(mean=3.1, stderr=None)
    """
    numbers = [float(value) for value in values]
    if not numbers:
        raise ValueError("Expected `values` to hold at least one number, but it is empty")
    mean = math.fsum(numbers) / len(numbers)
    if len(numbers) == 1:
        return Estimate(mean, None)
    variance = math.fsum((number - mean) ** 2 for number in numbers) / (len(numbers) - 1)
    return Estimate(mean, math.sqrt(variance / len(numbers)))


def paired_t_test(
    method: Mapping[int, float], baseline: Mapping[int, float], *, overlap: float = 0.0
) -> PairedTest:
    """Test method against baseline, both given as {seed: value}, over their common seeds (two-sided).

    Repeated random splits of one data set overlap, so their differences are not independent. `overlap`, the
    test examples per other example of a split, corrects the variance of the mean for it: the factor 1 / n
    becomes 1 / n + overlap (Nadeau and Bengio, Inference for the generalization error, 2003).

    If all differences are equal, the t-test has no variance to divide by. Then p is 1 if they are 0, and None
    otherwise, because a few equal differences prove nothing.

    >>> test = paired_t_test({0: 3.0, 1: 3.2, 2: 3.1, 9: 7.0}, {0: 3.3, 1: 3.4, 2: 3.5})
    >>> f"{test.n} pairs, {test.difference:.3f} ± {test.stderr:.3f}, p = {test.p_value:.4f}"
    '3 pairs, -0.300 ± 0.058, p = 0.0351'
    >>> test = paired_t_test({0: 3.0, 1: 3.2, 2: 3.1}, {0: 3.3, 1: 3.4, 2: 3.5}, overlap=0.25)
    >>> f"{test.difference:.3f} ± {test.stderr:.3f}, p = {test.p_value:.4f}"
    '-0.300 ± 0.076, p = 0.0591'
    >>> paired_t_test({0: 3.0, 1: 3.0}, {0: 3.0, 1: 3.0}).p_value
    1.0
    >>> paired_t_test({0: 3.0}, {0: 3.5})
    PairedTest(n=1, difference=-0.5, stderr=None, p_value=None)
    """
    differences = [method[seed] - baseline[seed] for seed in sorted(method.keys() & baseline.keys())]
    if not differences:
        return PairedTest(0, None, None, None)
    mean, stderr = estimate(differences)
    if stderr is None:
        return PairedTest(1, mean, None, None)
    # Results have six decimals: a smaller spread is a rounding error of the subtraction.
    if max(differences) - min(differences) < 1e-9:
        return PairedTest(len(differences), mean, 0.0, 1.0 if abs(mean) < 1e-9 else None)
    from scipy import stats  # here, because the import is slow and a store does not need it

    stderr *= math.sqrt(1 + len(differences) * overlap)
    p_value = 2 * float(stats.t.sf(abs(mean) / stderr, len(differences) - 1))
    return PairedTest(len(differences), mean, stderr, p_value)


def signed_rank_test(method: Mapping[int, float], baseline: Mapping[int, float]) -> PairedTest:
    """Test as `paired_t_test` does, but by ranks (Wilcoxon): a trial that failed does not decide.

    The difference is the median of the differences, and it has no standard error.

    >>> method = dict(enumerate([1.1, 1.2, 1.0, 90.1, 0.9]))
    >>> baseline = dict(enumerate([1.3, 1.6, 90.2, 90.4, 1.4]))
    >>> f"t-test p = {paired_t_test(method, baseline).p_value:.2f}"
    't-test p = 0.37'
    >>> test = signed_rank_test(method, baseline)
    >>> f"{test.n} pairs, {test.difference:.2f}, p = {test.p_value:.4f}"
    '5 pairs, -0.40, p = 0.0625'
    """
    # Rounded, because equal differences have equal ranks.
    seeds = method.keys() & baseline.keys()
    differences = [round(method[seed] - baseline[seed], 6) for seed in seeds]
    if len(differences) < 2:
        return paired_t_test(method, baseline)
    if not any(differences):
        return PairedTest(len(differences), 0.0, None, 1.0)
    from scipy import stats  # here, because the import is slow and a store does not need it

    # Up to 13 pairs all 2^n signs are tried, so that ties do no harm.
    how = stats.PermutationMethod() if len(differences) <= 13 else "auto"
    p_value = float(stats.wilcoxon(differences, method=how).pvalue)
    return PairedTest(len(differences), median(differences), None, p_value)


def holm(p_values: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return Holm's corrected p-values (step-down Bonferroni); None (no test) is not counted.

    >>> holm({"wd": 0.01, "we": 0.04, "wpv": 0.03, "wtc": None})
    {'wd': 0.03, 'we': 0.06, 'wpv': 0.06, 'wtc': None}
    """
    made = sorted((p_value, name) for name, p_value in p_values.items() if p_value is not None)
    corrected: dict[str, float | None] = dict.fromkeys(p_values)
    largest = 0.0
    for rank, (p_value, name) in enumerate(made):
        largest = max(largest, min(1.0, (len(made) - rank) * p_value))
        corrected[name] = largest
    return corrected


def draws(method: str) -> bool:
    """Return whether a method, or the method of a pair, samples instances and so has the baseline uni.

    >>> draws("spv"), draws("spv+gce"), draws("wpv"), draws("gce")
    (True, True, False, False)
    """
    return method.partition("+")[0] in (*SAMPLING_METHODS, "sauto")


def baseline_of(method: str, methods: Collection[str]) -> str | None:
    """Return the method to compare with among `methods`; None for a baseline or if it is missing.

    Sampling methods are compared with uni (scan if uni is absent), weighting methods and users' methods with
    scan.

    >>> baseline_of("spv", ["uni", "scan", "spv"]), baseline_of("spv", ["scan", "spv"])
    ('uni', 'scan')
    >>> baseline_of("wpv", ["uni", "scan", "wpv"]), baseline_of("scan", ["uni", "scan"])
    ('scan', None)
    """
    if method in BASELINES:
        return None
    candidates = ("uni", "scan") if draws(method) else ("scan",)
    return next((candidate for candidate in candidates if candidate in methods), None)


def in_order(methods: Iterable[str]) -> list[str]:
    """Return every method once, in the paper's order, users' methods at the end.

    >>> in_order(["wpv", "mine", "scan", "spv", "uni"])
    ['uni', 'spv', 'scan', 'wpv', 'mine']
    """
    known = SAMPLING_METHODS + WEIGHTING_METHODS
    return sorted(dict.fromkeys(methods), key=lambda name: known.index(name) if name in known else len(known))


def by_method(results: Iterable[TrialResult], metric: str) -> dict[str, dict[int, float]]:
    """Return {method: {seed: value}} in the paper's order, from results of one recipe and configuration.

    If a user's method was changed under the same name, its latest results count.
    """
    if metric not in METRICS:
        raise ValueError(f"Expected `metric` to be one of {', '.join(METRICS)}, but got {metric!r}")
    values: dict[str, dict[int, float]] = {}
    first: ResultKey | None = None
    for result in of_latest_rules(results):
        key = result.key
        first = first or key
        if key[:2] != first[:2]:
            raise ValueError(
                "Expected `results` to be of one recipe and one configuration, but got "
                f"{first.recipe} ({first.config_hash}) and {key.recipe} ({key.config_hash}); "
                "load them with ResultStore.load(recipe, config)"
            )
        seeds = values.setdefault(result.method, {})
        if result.seed in seeds:
            raise ValueError(
                f"Expected `results` to hold a trial once, but {result.method} with seed {result.seed} came "
                "twice"
            )
        seeds[result.seed] = result.metric(metric)
    if not values:
        raise ValueError("Expected `results` to hold at least one trial, but it is empty")
    return {method: values[method] for method in in_order(values)}


def compared(
    values: Mapping[str, Mapping[int, float]],
    sides: Sequence[tuple[str, str]],
    *,
    overlap: float = 0.0,
    by_ranks: Collection[str] = (),
) -> list[Comparison]:
    """Compare sides with other sides, all of them under one correction by Holm.

    Args:
        values: the errors by side and seed.
        sides: each side with the side that it is compared with.
        overlap: as in `paired_t_test`.
        by_ranks: sides with a failed trial, which would decide a t-test: they are tested by ranks.
    """
    tests = {
        f"{side} {other}": signed_rank_test(values[side], values[other])
        if {side, other} & {*by_ranks}
        else paired_t_test(values[side], values[other], overlap=overlap)
        for side, other in sides
    }
    corrected = holm({names: test.p_value for names, test in tests.items()})
    return [
        Comparison(
            side,
            len(values[side]),
            *estimate(values[side].values()),
            baseline=other,
            test=tests[f"{side} {other}"],
            p_holm=corrected[f"{side} {other}"],
        )
        for side, other in sides
    ]


def against_baselines_of(
    values: Mapping[str, Mapping[int, float]], *, overlap: float = 0.0, by_ranks: Collection[str] = ()
) -> list[Comparison]:
    """Compare every side with its baseline; a side without a baseline has no test. See `compared`."""
    baselines = [(name, baseline_of(name, values)) for name in values]
    sides = [(name, baseline) for name, baseline in baselines if baseline is not None]
    tested = compared(values, sides, overlap=overlap, by_ranks=by_ranks)
    found = {item.method: item for item in tested}
    return [
        found.get(name) or Comparison(name, len(errors), *estimate(errors.values()), None, None, None)
        for name, errors in values.items()
    ]


def against_baselines(results: Iterable[TrialResult], metric: str = "best_test_error") -> list[Comparison]:
    """Compare every method with its baseline, in the paper's order."""
    return against_baselines_of(by_method(results, metric))


def apart(first: Estimate, second: Estimate) -> int:
    """Return -1 if first is below second by more than twice the combined standard error, 1 if above, else 0.

    >>> apart(Estimate(0.48, 0.01), Estimate(0.54, 0.01)), apart(Estimate(0.52, 0.01), Estimate(0.54, 0.01))
    (-1, 0)
    """
    if first.stderr is None or second.stderr is None:
        return 0
    difference = first.mean - second.mean
    # The slack prevents that binary rounding decides a printed 0.02 against 2 · 0.01.
    if abs(difference) <= 2 * math.hypot(first.stderr, second.stderr) + 1e-9:
        return 0
    return -1 if difference < 0 else 1


def paper_estimate(value: float, stderr: float | None) -> Estimate:
    """Return the paper's number with a standard error that allows for the rounding to 0.01.

    >>> paper_estimate(0.48, 0.02), paper_estimate(0.01, None), paper_estimate(0.07, 0.0)
    (Estimate(mean=0.48, stderr=0.02), Estimate(mean=0.01, stderr=0.01), Estimate(mean=0.07, stderr=0.005))
    """
    return Estimate(value, 0.01 if stderr is None else max(stderr, 0.005))


def order_agreement(ours: Mapping[str, Estimate], paper: Mapping[str, Estimate]) -> OrderAgreement:
    """Judge every pair within a table of the paper: sampling with uni, weighting with scan.

    >>> paper = {"scan": Estimate(2.85, 0.03), "wd": Estimate(2.17, 0.01), "we": Estimate(3.08, 0.03)}
    >>> ours = {"scan": Estimate(3.28, 0.02), "wd": Estimate(2.50, 0.02), "we": Estimate(3.25, 0.02)}
    >>> order_agreement(ours, paper)
    OrderAgreement(agrees=(('wd', 'scan'), ('wd', 'we')), undecided=(('scan', 'we'),), disagrees=())
    """
    groups: dict[str, list[tuple[str, str]]] = {"agrees": [], "undecided": [], "disagrees": []}
    for table in (SAMPLING_METHODS, WEIGHTING_METHODS):
        shared = [method for method in table if method in ours and method in paper]
        for pair in combinations(shared, 2):
            first, second = sorted(pair, key=lambda method: paper[method].mean)
            product = apart(ours[first], ours[second]) * apart(paper[first], paper[second])
            name = {1: "agrees", 0: "undecided", -1: "disagrees"}[product]
            groups[name].append((first, second))
    return OrderAgreement(**{name: tuple(pairs) for name, pairs in groups.items()})


def our_finding(comparison: Comparison) -> Finding | None:
    """Return our finding about a method against its baseline; None if no test was possible."""
    if comparison.p_holm is None or comparison.test is None or comparison.test.difference is None:
        return None
    if not comparison.significant:
        return "no difference"
    return "better" if comparison.test.difference < 0 else "worse"


def finding_json(comparison: Comparison) -> dict[str, Any]:
    """Return the difference of a method from its baseline for JSON; null where no test was possible."""
    test = comparison.test
    return {
        "baseline": comparison.baseline,
        "difference": None if test is None else test.difference,
        "difference_stderr": None if test is None else test.stderr,
        "p_value": None if test is None else test.p_value,
        "p_holm": comparison.p_holm,
        "finding": our_finding(comparison),
    }


def paper_finding(method: Estimate, baseline: Estimate) -> Finding:
    """Return the paper's finding about a method against its baseline.

    >>> paper_finding(Estimate(0.48, 0.01), Estimate(0.54, 0.01))
    'better'
    """
    return _FINDINGS[apart(method, baseline)]


_FINDINGS: Final[Sequence[Finding]] = ("no difference", "worse", "better")  # by sign; -1 is the last

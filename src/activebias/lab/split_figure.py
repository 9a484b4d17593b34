"""The figure of a comparison over repeated splits: the difference of every split, and the mean curves."""

from typing import TYPE_CHECKING, Final

from activebias.lab.figures import FAINT, INK, draw_mean_curves, plain_axes
from activebias.lab.significance import SIGNIFICANCE_LEVEL, Comparison, in_order
from activebias.lab.styles import styles_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from activebias.lab.split_comparison import SplitComparison

# The places of the dots above and below a method's line, so that equal differences stay visible.
_JITTER: Final = (0.0, 0.09, -0.09, 0.18, -0.18)


def split_figure(comparison: "SplitComparison") -> "Figure":
    """Return two panels: differences to the baseline, split by split; and the mean validation error."""
    from matplotlib.figure import Figure

    tested = [item for item in comparison.judged.tested if item.test is not None]
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.1, 1))
    _draw_differences(left, comparison, tested)
    _draw_curves(right, comparison)
    figure.suptitle(comparison.title, x=0.012, ha="left", fontsize=11.5, color=INK)
    return figure


def _draw_differences(axes: "Axes", comparison: "SplitComparison", tested: list[Comparison]) -> None:
    errors = {
        name: {each.seed: each.chosen_test_error for each in comparison.results if each.method == name}
        for name in in_order(result.method for result in comparison.results)
    }
    styles = styles_of(errors)
    for place, item in enumerate(tested):
        assert item.baseline is not None
        assert item.test is not None
        shared = sorted(errors[item.method].keys() & errors[item.baseline].keys())
        differences = [errors[item.method][seed] - errors[item.baseline][seed] for seed in shared]
        heights = [place + _JITTER[number % len(_JITTER)] for number in range(len(shared))]
        colour, _, marker = styles[item.method]
        axes.scatter(differences, heights, s=22, color=colour, marker=marker, alpha=0.35, linewidth=0)
        mean, reach = item.test.difference or 0.0, _reach(item)
        axes.errorbar(
            [mean], [place], xerr=[reach], fmt=marker, color=colour, markersize=6, capsize=4, linewidth=1.8
        )
    axes.axvline(0, color=FAINT, linewidth=1, zorder=-1)
    plain_axes(axes, grid="x")
    axes.set_yticks(range(len(tested)), [f"{item.method} - {item.baseline}" for item in tested])
    axes.set_ylim(max(len(tested), 1) - 0.5, -0.5)
    axes.set_xlabel(f"difference in {comparison.measure} (points); below 0 is better", color=INK)
    axes.set_title("each split, mean and 95 % interval", loc="left", fontsize=10, color=INK)


def _reach(item: Comparison) -> float:
    """Return half the length of the 95 % interval, from the corrected standard error."""
    from scipy import stats

    if item.test is None or item.test.stderr is None or item.test.n < 2:
        return 0.0
    return float(stats.t.isf(SIGNIFICANCE_LEVEL / 2, item.test.n - 1) * item.test.stderr)


def _draw_curves(axes: "Axes", comparison: "SplitComparison") -> None:
    names = in_order(result.method for result in comparison.results)
    curves = {
        name: [each.validation_curve for each in comparison.results if each.method == name] for name in names
    }
    draw_mean_curves(axes, curves, int(comparison.results[0].config["burn_in"]), str)
    axes.set_ylabel(f"{comparison.measure.replace('test', 'validation')} (%)", color=INK)
    axes.set_title("mean on the validation parts", loc="left", fontsize=10, color=INK)

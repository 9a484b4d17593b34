"""Convergence curves: the mean error per epoch of each method, with a band of one standard error."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from activebias.lab.experiment.results import TrialResult
from activebias.lab.result_tables import display_name, num_trials, trials_text
from activebias.lab.significance import BASELINES, SAMPLING_METHODS, by_method, estimate, in_order
from activebias.lab.styles import styles_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT = "#333333", "#8c8c8c"
_LABEL_POINTS = 8.5


def convergence_figure(results: Sequence[TrialResult]) -> "Figure":
    """Return the curves of one recipe and configuration: one panel, or one each for sampling and weighting.

    The axes show the end of a long burn-in and the epochs after it, where the methods differ; curves enter
    from above.
    """
    from matplotlib.figure import Figure

    by_method(results, "best_test_error")  # raises if the results do not belong together
    lengths = {len(result.test_error) for result in results}
    if len(lengths) > 1:
        raise ValueError(f"Expected `results` to have curves of one length, but got {sorted(lengths)} epochs")
    (epochs,) = lengths
    configured = results[0].config.get("burn_in")
    burn_in = configured if isinstance(configured, int) else 0
    statistics, _, limits = mean_curves(results, burn_in)
    panels = _panels(statistics)
    figure = Figure(figsize=(1.2 + 4.9 * len(panels), 4.2), layout="constrained")
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (name, methods) in zip(all_axes, panels.items(), strict=True):
        _draw_panel(axes, {method: statistics[method] for method in methods}, burn_in)
        axes.set_ylim(*limits)
        if name:
            shown = [result for result in results if result.method in methods]
            number = "" if num_trials(shown) == num_trials(results) else f", {trials_text(shown)}"
            axes.set_title(name + number, loc="left", fontsize=10, color=INK)
        _label_ends(axes, {method: statistics[method][0][-1] for method in methods}, epochs, limits)
    all_axes[0].set_ylabel("test error (%)", color=INK)
    single = num_trials(results) == "1"
    band = "one trial" if single else f"mean of {trials_text(results)} ± standard error"
    figure.suptitle(f"{results[0].recipe}: {band}", x=0.012, ha="left", fontsize=11.5, color=INK)
    return figure


class MeanCurves(NamedTuple):
    """Mean and standard error by method and epoch, the first epoch and the errors that a plot shows."""

    by_method: dict[str, tuple[list[float], list[float] | None]]
    first_epoch: int
    limits: tuple[float, float]


def mean_curves(results: Sequence[TrialResult], burn_in: int) -> MeanCurves:
    """Return the curves of the test error of one recipe and configuration, as in `convergence_figure`."""
    statistics = {
        method: _mean_curve([result.test_error for result in results if result.method == method])
        for method in in_order(result.method for result in results)
    }
    epochs = max(len(means) for means, _ in statistics.values())
    limits = _limits(statistics.values(), epochs, min(burn_in, epochs))
    return MeanCurves(statistics, _first_epoch(burn_in, epochs), limits)


def _first_epoch(burn_in: int, epochs: int) -> int:
    """Return the first epoch to show: all methods share the burn-in, and of a long one the end suffices."""
    return max(1, burn_in - (epochs - burn_in) // 4) if burn_in < epochs else 1


def draw_mean_curves(
    axes: "Axes",
    curves: Mapping[str, Sequence[Sequence[float]]],
    burn_in: int,
    named: Callable[[str], str] = display_name,
) -> None:
    """Draw the mean curve of each method without a band, from one curve per trial, and label the ends.

    `named` gives the name of a method at its curve.
    """
    statistics = {method: (_mean_curve(each)[0], None) for method, each in curves.items()}
    epochs = max(len(means) for means, _ in statistics.values())
    low, high = _limits(statistics.values(), epochs, min(burn_in, epochs))
    _draw_panel(axes, statistics, burn_in, named)
    axes.set_ylim(low, high)
    ends = {method: means[-1] for method, (means, _) in statistics.items()}
    _label_ends(axes, ends, epochs, (low, high), named)


def colours_of(methods: Iterable[str]) -> dict[str, str]:
    """Return the colour of every method in the figures."""
    return {name: style.colour for name, style in styles_of(in_order(methods)).items()}


def save_figure(figure: "Figure", path: str | os.PathLike[str]) -> list[Path]:
    """Write `path` as PNG and as SVG (any suffix is replaced) and return both paths.

    The same figure gives the same bytes: a committed figure changes only if its numbers change.
    """
    from matplotlib import rc_context

    base = Path(path)
    base.parent.mkdir(parents=True, exist_ok=True)
    written = []
    with rc_context({"svg.hashsalt": "activebias"}):
        for suffix, metadata in ((".png", {"Software": None}), (".svg", {"Date": None, "Creator": None})):
            target = base.with_name(base.name.removesuffix(".png").removesuffix(".svg") + suffix)
            figure.savefig(target, dpi=160, facecolor="white", metadata=metadata)
            written.append(target)
    return written


def _panels(methods: Iterable[str]) -> dict[str, list[str]]:
    """Return {title: methods}: two panels for methods of both kinds, otherwise one without a title."""
    names = in_order(methods)
    sampling = [name for name in names if name in SAMPLING_METHODS]
    weighting = [name for name in names if name not in SAMPLING_METHODS]
    if not set(sampling) - set(BASELINES) or not set(weighting) - set(BASELINES):
        return {"": names}
    if "uni" not in names and "scan" in names:
        sampling.insert(0, "scan")  # scan is the baseline of both panels then
    return {"Sampling": sampling, "Weighting": weighting}


def _mean_curve(curves: Sequence[Sequence[float]]) -> tuple[list[float], list[float] | None]:
    estimates = [estimate(values) for values in zip(*curves, strict=True)]
    errors = [item.stderr for item in estimates if item.stderr is not None]
    return [item.mean for item in estimates], errors or None


def _limits(
    statistics: Iterable[tuple[list[float], list[float] | None]], epochs: int, burn_in: int
) -> tuple[float, float]:
    curves = [means for means, _ in statistics]
    lowest = min(min(means) for means in curves)
    ends = [means[-1] for means in curves]
    # Start where the methods separate or the steep descent ends: early errors would flatten the curves.
    start = min(max(burn_in - 1, epochs // 4), epochs - 1)
    highest = max(max(means[start:]) for means in curves)
    spread = max(highest - lowest, max(ends) - lowest, 0.02 * highest, 0.01)
    return max(0.0, lowest - 0.08 * spread), lowest + 1.12 * spread


def _draw_panel(
    axes: "Axes",
    statistics: Mapping[str, tuple[list[float], list[float] | None]],
    burn_in: int,
    named: Callable[[str], str] = display_name,
) -> None:
    from matplotlib.ticker import MaxNLocator

    styles = styles_of(statistics)
    # Curves that look the same have markers, and then all of the panel have them.
    marked = len({style[:2] for style in styles.values()}) < len(styles)
    for method, (means, errors) in statistics.items():
        colour, dashes, marker = styles[method]
        epochs = range(1, len(means) + 1)
        if errors is not None:
            below = [mean - error for mean, error in zip(means, errors, strict=True)]
            above = [mean + error for mean, error in zip(means, errors, strict=True)]
            axes.fill_between(epochs, below, above, color=colour, alpha=0.16, linewidth=0)
        (line,) = axes.plot(epochs, means, color=colour, linestyle=dashes, linewidth=1.6, label=named(method))
        if marked:
            line.set(marker=marker, markersize=4.5, markevery=0.12)
    length = max(len(means) for means, _ in statistics.values())
    first = _first_epoch(burn_in, length)
    if 0 < burn_in < length:
        axes.axvspan(0.5, burn_in + 0.5, color="#f1f1ef", linewidth=0, zorder=-2)
        # At the bottom, which the curves have not yet reached.
        wide = burn_in - first > 0.12 * (length - first)
        axes.annotate(
            "burn-in" if wide else "← burn-in",
            (burn_in + 0.5, 0),
            xycoords=("data", "axes fraction"),
            xytext=(-5 if wide else 4, 5),
            textcoords="offset points",
            ha="right" if wide else "left",
            va="bottom",
            fontsize=8,
            color=FAINT,
        )
    axes.set_xlim(first - 0.5, length + 0.5)
    axes.set_xlabel("epoch", color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=True))
    plain_axes(axes, grid="y")


def plain_axes(axes: "Axes", *, grid: Literal["x", "y"]) -> None:
    """Remove the frame, and draw faint lines across one axis."""
    axes.tick_params(colors=INK, labelsize=8.5, length=3)
    axes.grid(axis=grid, color="#e3e3e3", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)


def _label_ends(
    axes: "Axes",
    ends: Mapping[str, float],
    epochs: int,
    limits: tuple[float, float],
    named: Callable[[str], str] = display_name,
) -> None:
    """Write each method's name and last value at the end of its curve; overlapping labels are moved apart."""
    axes.annotate(
        f"epoch {epochs}",
        (1.045, 1.0),
        xycoords="axes fraction",
        va="bottom",
        fontsize=8,
        color=FAINT,
        annotation_clip=False,
    )
    low, high = limits
    height_in_points = 4.2 * 72 * 0.76  # approximate height of the axes, to keep lines of text apart
    gap = 1.25 * _LABEL_POINTS / height_in_points * (high - low)
    places = _spread(ends, gap, low, high)
    lines = {line.get_label(): line for line in axes.get_lines()}
    decimals = 2 if high - low < 20 else 1
    for method, place in places.items():
        colour = lines[named(method)].get_color()
        axes.annotate(
            f"{named(method)}  {ends[method]:.{decimals}f}",
            (epochs + 0.5, min(ends[method], high)),
            xytext=(1.045, (place - low) / (high - low)),
            textcoords="axes fraction",
            va="center",
            fontsize=_LABEL_POINTS,
            color=colour,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.7,
                "shrinkA": 2,
                "shrinkB": 0,
                "relpos": (0, 0.5),
            },
        )


def _spread(ends: Mapping[str, float], gap: float, low: float, high: float) -> dict[str, float]:
    """Return places at least `gap` apart, in the order of `ends` and near them, from low to high.

    >>> _spread({"a": 1.0, "b": 1.0, "c": 5.0}, 1.0, 0.0, 10.0)
    {'a': 0.5, 'b': 1.5, 'c': 5.0}
    """
    names = sorted(ends, key=lambda name: ends[name])
    # Groups of touching labels, each centred on the mean of its ends; overlapping groups are merged.
    groups: list[list[str]] = []

    def bottom(group: list[str]) -> float:
        centre = sum(ends[name] for name in group) / len(group)
        half = gap * (len(group) - 1) / 2
        return max(low, min(centre - half, high - 2 * half))

    for name in names:
        groups.append([name])
        while len(groups) > 1 and bottom(groups[-1]) < bottom(groups[-2]) + gap * len(groups[-2]):
            last = groups.pop()
            groups[-1] = groups[-1] + last
    return {name: bottom(group) + gap * position for group in groups for position, name in enumerate(group)}

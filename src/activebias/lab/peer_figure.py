"""The figure of docs/peers.md: the test error of every side, one panel a row."""

from collections.abc import Sequence
from statistics import median
from textwrap import fill
from typing import TYPE_CHECKING, Final

from activebias.lab.experiment.results import TrialResult
from activebias.lab.experiment.store import ResultStore
from activebias.lab.figures import FAINT, INK, plain_axes
from activebias.lab.peer_rows import SIDES
from activebias.lab.peer_table import num_failed, side_title
from activebias.lab.peers import PEERS
from activebias.lab.protocol import Protocol
from activebias.lab.significance import estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANELS_A_LINE: Final = 3
_METHOD, _PEER, _PAIR = "#8a4fbf", "#0072b2", "#00795a"
_KEY: Final = (("methods (auto is ours)", _METHOD), ("peers", _PEER), ("method and peer", _PAIR))


def peer_figure(protocols: Sequence[Protocol], store: ResultStore) -> "Figure":
    """Return a panel for each of the rows: every trial, and the mean of each side ± standard error."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    wide = min(_PANELS_A_LINE, len(protocols))
    lines = -(-len(protocols) // wide)
    figure = Figure(figsize=(1.6 + 4.2 * wide, 0.9 + 4.6 * lines), layout="constrained")
    panels = figure.subplots(lines, wide, sharey=True, squeeze=False).flatten()
    trained = {name for protocol in protocols for name, group in protocol.results(store).items() if group}
    sides = [name for name in SIDES if name in trained]
    for axes, protocol in zip(panels, protocols, strict=False):
        _draw_row(axes, protocol, store, sides)
    for axes in panels[len(protocols) :]:
        axes.set_visible(False)
    figure.suptitle(
        "Test error at the epoch that validation chose: trials (pale), mean ± standard error; "
        "a ring is the median where a trial failed",
        x=0.012,
        ha="left",
        fontsize=11.5,
        color=INK,
    )
    handles = [Line2D([], [], marker="o", linestyle="", color=colour, label=text) for text, colour in _KEY]
    handles.append(Line2D([], [], color=FAINT, linestyle="--", label="Scan"))
    figure.legend(handles=handles, loc="outside lower left", ncols=4, frameon=False, fontsize=9)
    return figure


def _draw_row(axes: "Axes", protocol: Protocol, store: ResultStore, sides: Sequence[str]) -> None:
    results = {name: group for name, group in protocol.results(store).items() if group}
    failed = num_failed(results)
    for place, name in enumerate(sides):
        if name in results:
            _draw_side(axes, place, name, results[name], failed[name])
    if "scan" in results:
        errors = [result.chosen_test_error for result in results["scan"]]
        middle = median(errors) if failed["scan"] else estimate(errors).mean
        axes.axvline(middle, color=FAINT, linestyle="--", linewidth=1, zorder=-1)
    # A failed trial would squeeze all others into one line: the text beside the median tells of it.
    shown = [
        sorted(result.chosen_test_error for result in group)[: len(group) - failed[name]]
        for name, group in results.items()
    ]
    lowest, highest = min(map(min, filter(None, shown))), max(map(max, filter(None, shown)))
    margin = 0.05 * (highest - lowest) or 0.1
    axes.set_xlim(lowest - margin, highest + margin)
    axes.set_ylim(len(sides) - 0.5, -0.5)
    axes.set_yticks(range(len(sides)), [side_title(name) for name in sides])
    plain_axes(axes, grid="x")
    for label, name in zip(axes.get_yticklabels(), sides, strict=False):  # only the first panel has labels
        label.set_color(_colour(name))
    number = max(map(len, results.values()))
    title = fill(f"{protocol.recipe.title}, n = {number}", 48)
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.set_xlabel(f"{protocol.recipe.measure} (%)", color=INK)


def _draw_side(axes: "Axes", place: int, name: str, results: Sequence[TrialResult], failed: int) -> None:
    errors, colour = [result.chosen_test_error for result in results], _colour(name)
    axes.scatter(errors, [place] * len(errors), s=18, color=colour, alpha=0.3, linewidth=0)
    if 0 < failed < len(errors):
        axes.plot([median(errors)], [place], "o", markersize=6, markerfacecolor="white", color=colour)
        axes.annotate(
            f"{failed} of {len(errors)} failed",
            (sorted(errors)[len(errors) - failed - 1], place),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=colour,
        )
        return
    mean, stderr = estimate(errors)
    axes.errorbar(
        [mean], [place], xerr=[stderr or 0.0], fmt="o", color=colour, markersize=5, capsize=3, linewidth=1.6
    )


def _colour(name: str) -> str:
    return _PAIR if "+" in name else _PEER if name in PEERS else _METHOD

"""The toy example as a picture (the paper's figure 2): the path of training by Scan, WD and WPV."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import torch
from torch import Tensor

from activebias import ActiveBias
from activebias.lab.result_tables import display_name
from activebias.lab.toy import (
    ToyData,
    boundary_height,
    clean_parameters,
    draw_toy,
    train_toy,
)
from activebias.training.randomness import derived_generator, derived_seed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TOY_METHODS: Final = ("scan", "wd", "wpv")
LAST_ITERATIONS: Final = 100
_COLOURS: Final = {1: "#0072b2", -1: "#d55e00"}
_PATH, _INK, _CLEAN, _BOUNDARY = "#4d4d4d", "#333333", "#000000", "#009e73"


@final
@dataclass(frozen=True)
class ToyRun:
    """The parameters of one method by iteration (T + 1, 2), and the weights v of all points at its end."""

    method: str
    path: Tensor
    weights: Tensor

    @property
    def last(self) -> Tensor:
        """The parameters (w[1], b) of the last iterations."""
        return self.path[-LAST_ITERATIONS:]


def run_toy(*, seed: int = 0) -> tuple[ToyData, list[ToyRun]]:
    """Train the toy example with each method, from the same points and in the same order."""
    data = draw_toy(derived_generator(seed, "toy data"))
    runs = []
    for method in TOY_METHODS:
        bias = ActiveBias(
            method,
            num_instances=len(data),
            num_classes=2,
            burn_in=5,
            seed=derived_seed(seed, "toy order"),
        )
        path = train_toy(
            bias.weight,
            bias.record,
            data=data,
            generator=derived_generator(seed, "toy order"),
            on_epoch=bias.set_epoch,
        )
        runs.append(ToyRun(method, path, bias.weights()))
    return data, runs


def distance_to_clean(data: ToyData, run: ToyRun) -> float:
    """Return the mean distance of the last parameters from the best fit of the clean points."""
    return float((run.last - clean_parameters(data)).norm(dim=1).mean())


def toy_figure(data: ToyData, runs: Sequence[ToyRun]) -> "Figure":
    """Draw, per method, the path of (w[1], b) above the points with their weights and the last boundaries."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1 + 3.7 * len(runs), 7.2), layout="constrained")
    axes = figure.subplots(2, len(runs), squeeze=False)
    target = clean_parameters(data)
    paths = torch.cat([run.path for run in runs] + [target[None]])
    low, high = paths.min(0).values, paths.max(0).values
    margin = 0.06 * (high - low)
    for column, run in enumerate(runs):
        _draw_path(axes[0][column], run, target)
        axes[0][column].set_title(
            f"{display_name(run.method)}: {distance_to_clean(data, run):.2f} from the clean fit",
            loc="left",
            fontsize=10,
            color=_INK,
        )
        axes[0][column].set_xlim(float(low[0] - margin[0]), float(high[0] + margin[0]))
        axes[0][column].set_ylim(float(low[1] - margin[1]), float(high[1] + margin[1]))
        _draw_points(axes[1][column], data, run, target)
    axes[0][0].set_ylabel("b", color=_INK)
    axes[1][0].set_ylabel("y", color=_INK)
    figure.suptitle(
        f"Toy example: path of the parameters, and the boundaries of the last {LAST_ITERATIONS} iterations; "
        "marker size is the weight v",
        x=0.012,
        ha="left",
        fontsize=11,
        color=_INK,
    )
    return figure


def _draw_path(axes: "Axes", run: ToyRun, target: Tensor) -> None:
    first, second = run.path.T
    axes.plot(first, second, color=_PATH, linewidth=0.5, alpha=0.7, zorder=1)
    axes.scatter(
        run.last[:, 0],
        run.last[:, 1],
        s=7,
        color=_BOUNDARY,
        alpha=0.6,
        linewidth=0,
        zorder=2,
        label="last iterations",
    )
    axes.scatter(
        target[0],
        target[1],
        marker="*",
        s=130,
        color="#e69f00",
        edgecolor="black",
        zorder=3,
        label="clean fit",
    )
    axes.set_xlabel("w[1]", color=_INK)
    axes.legend(loc="upper left", fontsize=8, frameon=False)
    _tidy(axes)


def _draw_points(axes: "Axes", data: ToyData, run: ToyRun, target: Tensor) -> None:
    x = torch.linspace(
        float(data.points[:, 0].min()) - 1, float(data.points[:, 0].max()) + 1, 2, dtype=torch.float64
    )
    for height in boundary_height(run.last, x):
        axes.plot(x, height, color=_BOUNDARY, linewidth=0.6, alpha=0.12, zorder=1)
    axes.plot(x, boundary_height(target, x), color=_CLEAN, linewidth=1.2, linestyle=(0, (4, 2)), zorder=4)
    for label, colour in _COLOURS.items():
        for outlier, marker in ((False, "o"), (True, "D")):
            chosen = (data.labels == label) & (data.is_outlier == outlier)
            axes.scatter(
                data.points[chosen, 0],
                data.points[chosen, 1],
                s=13 * run.weights[chosen].numpy() ** 2,
                marker=marker,
                color=colour,
                alpha=0.65,
                linewidth=0.4,
                edgecolor="white",
                zorder=3,
            )
    axes.set_xlabel("x  (diamonds: outliers; dashed: clean boundary)", color=_INK, fontsize=9)
    axes.set_xlim(float(x[0]), float(x[1]))
    y = data.points[:, 1]
    axes.set_ylim(float(y.min()) - 1, float(y.max()) + 1)
    _tidy(axes)


def _tidy(axes: "Axes") -> None:
    axes.tick_params(colors=_INK, labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)

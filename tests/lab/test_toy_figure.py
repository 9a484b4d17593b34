"""The toy figure: WPV gathers near the clean fit, WD is drawn to the outliers."""

import pytest

from activebias.lab.figures import save_figure
from activebias.lab.toy_figure import TOY_METHODS, distance_to_clean, run_toy, toy_figure


@pytest.mark.parametrize("seed", [0, 1])
def test_where_the_methods_end(seed):
    data, runs = run_toy(seed=seed)
    distance = {run.method: distance_to_clean(data, run) for run in runs}
    assert distance["wpv"] < distance["scan"] < distance["wd"]
    outlier_weight = {run.method: float(run.weights[data.is_outlier].mean()) for run in runs}
    assert outlier_weight["wpv"] < 0.8 < 1.5 < outlier_weight["wd"]


def test_the_figure_has_a_path_and_the_points_for_every_method(tmp_path):
    data, runs = run_toy(num_epochs=10)
    figure = toy_figure(data, runs)
    assert len(figure.axes) == 2 * len(TOY_METHODS)
    files = save_figure(figure, tmp_path / "toy")
    assert [file.suffix for file in files] == [".png", ".svg"]

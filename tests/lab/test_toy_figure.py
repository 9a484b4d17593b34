"""The toy figure: WPV gathers near the clean fit, WD is drawn to the outliers."""

import pytest

from activebias.lab.figures import save_figure
from activebias.lab.toy_figure import TOY_METHODS, distance_to_clean, run_toy, toy_figure


@pytest.fixture(scope="module")
def toy():
    return run_toy(seed=1)


def test_where_the_methods_end(toy):
    data, runs = toy
    distance = {run.method: distance_to_clean(data, run) for run in runs}
    assert distance["wpv"] < distance["scan"] < distance["wd"]
    outlier_weight = {run.method: float(run.weights[data.is_outlier].mean()) for run in runs}
    assert outlier_weight["wpv"] < 0.8 < 1.5 < outlier_weight["wd"]


def test_the_figure_has_a_path_and_the_points_for_every_method(toy, tmp_path):
    figure = toy_figure(*toy)
    assert len(figure.axes) == 2 * len(TOY_METHODS)
    files = save_figure(figure, tmp_path / "toy")
    assert [file.suffix for file in files] == [".png", ".svg"]

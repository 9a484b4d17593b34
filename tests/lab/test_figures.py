"""Convergence figures: what is drawn, and that the files are the same each time."""

import itertools
import subprocess
import sys

import pytest
from matplotlib.text import Text

from activebias.internal import ALL_METHODS
from activebias.lab.experiment.results import TrialResult
from activebias.lab.figures import convergence_figure, save_figure
from activebias.lab.peers import PEERS
from activebias.lab.styles import styles_of


def trials(methods, n=3, epochs=12, **changes):
    fields = {"recipe": "digits", "config": {"burn_in": 2}, "device": "cpu", "seconds": 1.0} | changes
    return [
        TrialResult(
            method=method,
            seed=seed,
            test_error=[50 / (epoch + 1) + seed + rank for epoch in range(epochs)],
            train_error=[40 / (epoch + 1) for epoch in range(epochs)],
            **fields,
        )
        for rank, method in enumerate(methods)
        for seed in range(n)
    ]


def labels(axes):
    return [line.get_label() for line in axes.get_lines()]


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_one_curve_a_method_is_its_mean():
    (axes,) = convergence_figure(trials(["wpv", "scan"])).axes
    assert labels(axes) == ["Scan", "WPV"]
    scan, wpv = axes.get_lines()
    assert list(scan.get_xdata()) == list(range(1, 13))
    assert list(wpv.get_ydata()) == pytest.approx([50 / (epoch + 1) + 1 for epoch in range(12)])
    assert scan.get_linestyle() != wpv.get_linestyle()
    # Seeds shift the curve by 0, 1, 2: the standard error is 1/√3 everywhere.
    band = axes.collections[1].get_paths()[0].get_extents()
    assert band.y1 == pytest.approx(51 + 3**-0.5)


def test_two_panels_when_both_kinds_are_there():
    figure = convergence_figure(trials(["uni", "spv", "scan", "wpv"]))
    assert [labels(axes) for axes in figure.axes] == [["Uni", "SPV"], ["Scan", "WPV"]]
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Sampling", "Weighting"]
    figure = convergence_figure(trials(["spv", "scan", "wpv"]))
    assert [labels(axes) for axes in figure.axes] == [["Scan", "SPV"], ["Scan", "WPV"]]
    assert len(convergence_figure(trials(["uni", "scan", "wpv"])).axes) == 1


def test_burn_in_is_marked():
    def marks(**config):
        (axes,) = convergence_figure(trials(["scan"], epochs=40, config=config)).axes
        return [text for text in texts(axes) if "burn-in" in text]

    assert marks(burn_in=20) == ["burn-in"]
    assert marks(burn_in=1) == ["← burn-in"]  # no room for the word within
    assert marks(burn_in=0) == []
    assert marks() == []
    (axes,) = convergence_figure(trials(["scan"], config={"burn_in": 9})).axes
    assert axes.get_xlim()[0] > 5  # of a long burn-in only the end is shown


def test_panels_say_their_number_of_trials_where_they_differ():
    results = trials(["uni", "sd"], n=2) + trials(["scan", "wpv"], n=4)
    figure = convergence_figure(results)
    assert figure.get_suptitle() == "digits: mean of 2 to 4 trials ± standard error"
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["Sampling, 2 trials", "Weighting, 4 trials"]


def test_labels_do_not_overlap():
    methods = ["uni", "sd", "isd", "se", "spv", "stc"]
    results = trials(methods, epochs=40)
    same = [
        TrialResult(
            recipe="digits",
            method=result.method,
            seed=result.seed,
            config={},
            device="cpu",
            seconds=1.0,
            test_error=[50.0] * 20 + [5.0] * 20,
            train_error=[1.0],
        )
        for result in results
    ]
    figure = convergence_figure(same)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    # Text's own method: an annotation's includes its line.
    boxes = sorted((Text.get_window_extent(text) for text in axes.texts), key=lambda box: box.y0)
    assert len(boxes) == 7  # the epoch above the six names
    for lower, upper in itertools.pairwise(boxes):
        assert upper.y0 >= lower.y1 - 1  # a point of leading


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("epochs", [1, 2, 30])
def test_small_and_flat_inputs_are_drawn(tmp_path, n, epochs):
    zero = trials(["scan", "mine"], n=n, epochs=epochs)
    zero = [
        TrialResult(
            recipe="digits",
            method=result.method,
            seed=result.seed,
            config={},
            device="cpu",
            seconds=0.0,
            test_error=[0.0] * epochs,
            train_error=[0.0] * epochs,
        )
        for result in zero
    ]
    figure = convergence_figure(zero)
    assert figure.get_suptitle() == (
        "digits: one trial" if n == 1 else f"digits: mean of {n} trials ± standard error"
    )
    figure.savefig(tmp_path / "zero.png")


def test_files_are_written_and_reproducible(tmp_path):
    first = save_figure(convergence_figure(trials(["scan", "wpv"])), tmp_path / "new" / "digits-0.1")
    second = save_figure(convergence_figure(trials(["scan", "wpv"])), tmp_path / "again.svg")
    assert [path.name for path in first] == ["digits-0.1.png", "digits-0.1.svg"]
    assert [path.name for path in second] == ["again.png", "again.svg"]
    assert first[0].read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in first[1].read_bytes()
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="at least one trial"):
        convergence_figure([])
    with pytest.raises(ValueError, match=r"curves of one length, but got \[5, 12\]"):
        convergence_figure(trials(["scan"]) + trials(["wpv"], epochs=5))
    with pytest.raises(ValueError, match="one recipe and one configuration"):
        convergence_figure(trials(["scan"]) + trials(["wpv"], config={}))


def test_pyplot_is_never_touched():
    code = (
        "import sys; from activebias.lab.figures import convergence_figure;"
        "from activebias.lab.experiment.store import TrialResult as T;"
        "convergence_figure([T(recipe='d', method='scan', seed=0, config={}, device='cpu', seconds=0,"
        " test_error=[1.0], train_error=[1.0])]); print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_no_two_sides_share_colour_and_marker_and_a_side_keeps_its_own():
    paired = [f"{method}+{peer}" for method in ALL_METHODS if method != "scan" for peer in PEERS]
    names = [*ALL_METHODS, *PEERS, *paired, *(f"mine-{k}" for k in range(40))]
    styles = styles_of(names)
    assert len({(style.colour, style.marker) for style in styles.values()}) == len(names)
    others = styles_of(["wtc+sce", "sce", "gce", "we"])
    assert all(styles[name] == style for name, style in others.items())


def test_curves_that_look_the_same_have_markers():
    (axes,) = convergence_figure(trials(["scan", "uni", "wtc"])).axes
    markers = [line.get_marker() for line in axes.get_lines()]
    assert len(set(markers)) == 2
    assert "None" not in markers
    (axes,) = convergence_figure(trials(["scan", "wtc"])).axes
    assert {line.get_marker() for line in axes.get_lines()} == {"None"}

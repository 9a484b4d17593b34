"""The learnt emphasis in the report: numbers, sentence, and the chart in a real browser."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import report_runs as runs
from activebias.internal import knot_means
from activebias.report import write_report
from activebias.report.page import MOST_LEARNT, render
from activebias.report.view import view_run
from activebias.runs.contents import Emphasis, Inputs

SENTENCE = "Emphasises p̄ from 0.27 to 0.88, most of all p̄ near 0.5 (weight 2.0)."


def learnt(view, num_epochs=20):
    """Return the view as if `auto` had learnt: the curve of the k-th epoch rises at p̄ = 0.5 by k / 20."""
    weights = np.ones((num_epochs, 13))
    weights[:, 5] += np.arange(num_epochs) / num_epochs
    emphasis = Emphasis(epochs=np.arange(5, 5 + num_epochs), means=knot_means().numpy(), weights=weights)
    return replace(view, emphasis=emphasis, info=replace(view.info, method="auto", explanation=SENTENCE))


def data_of(html):
    return json.loads(re.search(r'id="report-data">(.*?)</script>', html, re.DOTALL)[1])["runs"][0]


def made_up(path):
    inputs = Inputs(images=np.zeros((60, 8, 8), np.uint8))
    return runs.make_run(path, num=60, class_names=("cat", "dog"), inputs=inputs)


@pytest.fixture(scope="module")
def view(tmp_path_factory):
    return view_run(made_up(tmp_path_factory.mktemp("run") / "run"))


def test_the_page_holds_the_curves_of_evenly_spaced_epochs(view):
    data = data_of(render([learnt(view)]))
    assert len(data["emphasis"]["epochs"]) == MOST_LEARNT
    assert data["emphasis"]["epochs"][::11] == [5, 24]
    assert data["emphasis"]["weights"][-1][5] == pytest.approx(1.95)
    assert data["emphasis_note"].startswith(SENTENCE)
    assert data_of(render([view]))["emphasis"] is None


@pytest.mark.parametrize(("width", "num_epochs"), [(1400, 20), (400, 1)])
def test_the_chart_shows_a_line_an_epoch_and_its_table(page, view, tmp_path, width, num_epochs):
    file = tmp_path / "report.html"
    file.write_text(render([learnt(view, num_epochs)]), encoding="utf-8")
    page.open(file, width=width)
    page.js("for (const each of document.querySelectorAll('details')) each.open = true")
    section = page.find("#emphasis")
    assert section.is_displayed()
    assert page.find("#emphasis-note").text.startswith(SENTENCE)
    assert len(page.all("#emphasis-plot .scatterlayer .trace")) == min(num_epochs, MOST_LEARNT)
    cells = [cell.text for cell in page.all("#emphasis-table tbody tr:nth-child(6) > *")]
    assert cells == (["0.500", "1.00", "1.95"] if num_epochs > 1 else ["0.500", "1.00"])
    out = page.js(
        """return [...document.querySelectorAll('#emphasis *')].filter((node) =>
            !node.closest('svg') && node.getBoundingClientRect().right > innerWidth + 1).length"""
    )
    assert out == 0
    assert page.errors() == []


def test_other_methods_have_no_such_chart(page, view, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(render([view, learnt(view)]), encoding="utf-8")
    page.open(file)
    assert not page.find("#emphasis").is_displayed()
    page.js("return Report.main.showRun(1)")
    assert page.find("#emphasis").is_displayed()
    assert page.find("nav a[href='#emphasis']").is_displayed()
    page.js("return Report.main.showRun(0)")
    assert not page.find("#emphasis").is_displayed()
    assert page.errors() == []


def test_a_report_of_a_folder_reads_its_curves(view, tmp_path):
    run = made_up(tmp_path / "run")
    text = "epoch," + ",".join(f"{mean:.4g}" for mean in knot_means().tolist()) + "\n3" + ",1.5" * 13 + "\n"
    (run.path / "emphasis.csv").write_text(text)
    data = data_of(write_report([run], tmp_path / "report.html").read_text(encoding="utf-8"))
    assert data["emphasis"]["epochs"] == [3]
    assert data["emphasis"]["weights"] == [[1.5] * 13]

"""The page of a reproduction: all rows, curves and verdicts, in one file that loads nothing."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from activebias.lab import ResultStore, get_recipe
from activebias.lab.reproduction import PaperRow
from command import run

pytest.importorskip("plotly", reason="the page needs plotly")
ROOT = Path(__file__).parents[2]
NAMES = ("mnist-cnn", "cifar100-rn27")
VARIANT = "cifar10-lr-as-printed"
WIDE, NARROW = 1400, 400


def stored(name):
    recipe = get_recipe(name)
    return PaperRow(recipe, ResultStore(ROOT / "results").load(name, recipe.config()))


def written(rows, folder):
    from activebias.commands.reproduction_page import write_page

    return write_page(rows, folder / "page.html")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return written([stored(name) for name in NAMES], tmp_path_factory.mktemp("page"))


def without_scripts(file):
    return re.sub(r"<(script|style).*?</\1>", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_page_has_every_row_with_its_numbers_and_verdicts(file):
    text = without_scripts(file)
    for name in NAMES:
        assert f'<section id="{name}"' in text
        assert f'<a href="#{name}">{name}</a>' in text
    # As in docs/reproduction.md.
    assert (
        "Best test error: 5 of 9 comparisons hold. Of the others, 2 are significant only here, 2 only" in text
    )
    assert "Best test error: 4 of 4 comparisons hold.</p>" in text
    assert "Best test error: 9 of 13 comparisons hold in 2 rows." in text
    assert text.count('<th scope="row">WTC</th><td class="number">20</td>') >= len(NAMES)
    assert '<td class="number"><strong>33.33 ± 0.06</strong></td><td class="number">33.64 ± 0.07</td>' in text
    assert "WE (33.33), WTC (33.33) and WPV (33.36) are better, WD (34.15) is worse" in text


def test_rows_that_are_listed_and_not_counted_are_named(file, tmp_path):
    assert "Not counted" not in without_scripts(file)
    text = without_scripts(written([stored(name) for name in ("cifar100-rn27", VARIANT)], tmp_path))
    assert "Best test error: 4 of 4 comparisons hold in 1 row." in text
    assert f"Not counted: {VARIANT}, a variant of cifar10-lr." in text
    alone = without_scripts(written([stored(VARIANT)], tmp_path))
    assert f"Not counted: {VARIANT}, a variant of cifar10-lr." in alone


def test_the_page_loads_nothing(file):
    text = without_scripts(file)
    assert "default-src &#x27;none&#x27;" in text
    assert not re.search(r"(src|href)=[\"'](?!#|data:)", text)


def test_names_from_a_recipe_are_text(tmp_path):
    row = stored("cifar100-rn27")
    hostile = replace(row.recipe, title="<img src=x onerror=alert(1)>", notes=("<b>",))
    text = without_scripts(written([PaperRow(hostile, row.results)], tmp_path))
    assert "<img" not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "&lt;b&gt;" in text


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_page_shows_its_curves_in_a_browser(page, file, width):
    page.open(file, width=width)
    for name, methods in zip(NAMES, (11, 5), strict=True):
        legend = [entry.text for entry in page.all(f"#legend-{name} li")]
        drawn = page.js(f"return document.getElementById('plot-{name}').data.map(t => [t.name, t.y.length])")
        assert len(legend) == methods
        # A band of standard errors for every curve: there and back.
        assert len(drawn) == 2 * methods
        assert [each for each, _ in drawn if each in legend] == legend
        assert page.js(f"return document.querySelectorAll('#plot-{name} .scatterlayer path.js-line').length")
    assert page.js("return document.documentElement.scrollWidth <= innerWidth")
    assert page.js("return performance.getEntriesByType('resource').length") == 0
    assert page.errors() == []


def test_the_curves_follow_the_colours_of_the_page(page, file):
    page.open(file)
    colour = "return document.getElementById('plot-mnist-cnn').data.find(t => t.name === 'Scan').line.color"
    before = page.js(colour)
    page.click("#theme")
    page.until(lambda: page.js(colour) != before)
    page.click("#theme")
    page.until(lambda: page.js(colour) == before)


def test_the_command_writes_the_page_of_stored_results(tmp_path):
    out = tmp_path / "new" / "page.html"
    result = run("reproduce", "mnist-fc", "--trials", 0, "--out", ROOT / "results", "--html", out, "--json")
    assert f"Page: {out}" in result.stderr.replace("\n", "")
    assert '<section id="mnist-fc"' in out.read_text(encoding="utf-8")


def test_a_page_of_one_trial_has_no_verdict_to_give(tmp_path):
    out = tmp_path / "page.html"
    row = stored("mnist-fc")
    first = [result for result in row.results if result.seed == 0]
    text = without_scripts(written([PaperRow(row.recipe, first)], tmp_path))
    assert "Best test error: no comparison could be tested." in text
    assert "One trial per method shows nothing about the methods" in text
    assert out.exists()


def test_a_page_that_cannot_be_written_is_told_before_training(tmp_path):
    result = run("reproduce", "mnist-fc", "--out", tmp_path / "runs", "--html", tmp_path, code=1)
    assert "is a folder: name the HTML file to write" in result.stderr
    assert not (tmp_path / "runs").exists()

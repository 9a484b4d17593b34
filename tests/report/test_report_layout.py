"""Grid, classes, words in their sentence, and what a wide and a narrow window show, in a real browser."""

import numpy as np
import pytest

import command
import report_runs as runs
from activebias.report import write_report
from activebias.report.classes import balanced_error, class_rows
from activebias.report.summary import curves_note, figures
from activebias.report.view import view_run
from activebias.runs import Inputs
from activebias.runs.folder import require_pandas

TAGS = ("O", "B-corporation", "I-corporation", "B-creative-work", "I-creative-work", *"ABCDEFGHIJKLMNOPQR")


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Return the report of tagged text with 23 classes and long words."""
    folder, num = tmp_path_factory.mktemp("words"), 600
    rows = require_pandas("a test").DataFrame({"word": [f"word{k}" for k in range(num)]})
    sentence, word = np.arange(num) // 12, np.arange(num) % 12
    run = runs.make_run(
        folder / "run",
        num=num,
        class_names=TAGS,
        inputs=Inputs(rows=rows),
        kind="tagging",
        sentence=sentence,
        word=word,
    )
    return run, write_report([run], folder / "report.html")


def cut_off(page):
    """Return what stands outside of the window, and the tables that are wider than their place."""
    return page.js(
        """const isOut = (node) => {
            const box = node.getBoundingClientRect();
            return box.width && box.right > innerWidth + 1 && !node.closest('svg');
        };
        const isWide = (node) => node.scrollWidth > node.clientWidth + 1;
        const outside = [...document.querySelectorAll('body *')].filter(isOut);
        const wide = [...document.querySelectorAll('.table-scroll')].filter(isWide);
        return [...outside, ...wide].map((node) => `${node.tagName} ${node.id} ${node.className}`);"""
    )


@pytest.mark.parametrize("kind", ["two runs on images", "words"])
def test_nothing_is_cut_off(page, digits, words, kind):
    page.open(words[1] if kind == "words" else digits[0], width=400)
    page.js("for (const each of document.querySelectorAll('details')) each.open = true")
    assert cut_off(page) == []
    assert page.js("return document.documentElement.scrollWidth <= innerWidth")
    page.resize(1400)
    page.until(lambda: cut_off(page) == [])  # the plots follow a moment later
    assert page.errors() == []


def test_a_row_has_its_number_and_a_class_name_one_line(page, tmp_path):
    rows = require_pandas("a test").DataFrame(
        {"radius": [f"{k}.5" for k in range(90)], "note": ["wide " * 9] * 90}
    )
    names = ("malignant", "benign")
    run = runs.make_run(tmp_path / "run", num=90, class_names=names, inputs=Inputs(rows=rows), kind="table")
    page.open(write_report([run], tmp_path / "report.html"), width=1400)
    texts, lines = page.js(
        """const height = (node) => node.getBoundingClientRect().height;
        const table = document.querySelector('#instances');
        const one = parseFloat(getComputedStyle(table).lineHeight);
        return [[...table.querySelectorAll('tbody .what')].map((node) => node.textContent),
            [...table.querySelectorAll('td.class-name > .clamped')].map((node) => height(node) / one)]"""
    )
    assert texts
    for width in (1366, 1280, 1000, 700):
        page.resize(width)
        page.until(lambda: cut_off(page) == [])  # the column of decisions is in the window
    for text in texts:
        number = text.removeprefix("Row ").split(":")[0]
        assert text.startswith(f"Row {number}: radius={number}.5")
    assert max(lines) < 1.5


def test_on_a_phone_the_suspects_come_before_the_statistics(page, words):
    page.open(words[1], width=400)
    tops = page.js(
        """return ['#suspects', '#classes', '#figures', '#curves', '#weights'].map(
            (name) => document.querySelector(name).getBoundingClientRect().top)"""
    )
    assert tops == sorted(tops)
    assert tops[0] < 250
    padding, head = page.js(
        """return [parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop),
            document.querySelector('.page-head').getBoundingClientRect().height]"""
    )
    assert padding > head, "a link must not hide a heading under the head of the page"


def test_a_grid_of_pictures_is_the_page_of_the_table(opened):
    page, _ = opened
    shown = page.rows()
    page.click("#as-grid")
    cards = [int(card.get_attribute("data-instance")) for card in page.all("#grid .card")]
    assert cards == shown
    assert not page.find("#instances").is_displayed()
    page.until(lambda: page.find("#grid img").get_attribute("src"))
    page.click("#grid .card")
    assert page.find("#grid .card").get_attribute("aria-current") == "true"
    page.press("k")
    assert page.find("#grid .card .decided").text == "kept"
    page.js("localStorage.clear()")
    page.click("#as-table")
    assert page.rows() == shown
    assert page.errors() == []


def test_the_matrix_counts_and_filters(opened):
    page, view = opened
    label, believed = view.instances.label, view.instances.believed
    cells = page.js(
        """const numbers = (row) => [...row.cells].slice(1).map((cell) => Number(cell.textContent) || 0);
        return [...document.querySelectorAll('#matrix tbody tr')].map(numbers);"""
    )
    expected = np.zeros((10, 10), int)
    np.add.at(expected, (label, believed), 1)
    assert cells == expected.tolist()
    doubts = expected - np.diag(np.diag(expected))
    row, column = np.unravel_index(doubts.argmax(), doubts.shape)
    page.click(f"#matrix tbody tr:nth-child({row + 1}) td:nth-child({column + 2}) button")
    page.counts(f"{doubts.max()} suspects shown")
    assert set(page.rows()) <= set(np.flatnonzero((label == row) & (believed == column)).tolist())
    page.click("#per-class tbody tr:nth-child(4) button")
    page.counts(f"{int((view.suspected & (label == 3)).sum())} suspects shown")
    page.js("document.getElementById('filters').reset()")


def test_recall_and_error_of_every_class(trained_digits):
    folder, _ = trained_digits
    view = view_run(folder)
    found = folder.validation()
    for row in class_rows(view):
        name = folder.info.class_names[row["code"]]
        with_label = [line for line in found if line["label"] == name]
        predicted = [line for line in found if line["predicted"] == name]
        right = sum(line["predicted"] == name for line in with_label)
        assert row["recall"] == pytest.approx(right / len(with_label))
        assert row["error"] == pytest.approx(1 - right / len(predicted))
    recalls = [row["recall"] for row in class_rows(view)]
    assert balanced_error(view) == pytest.approx(100 * (1 - np.mean(recalls)))
    assert f"{balanced_error(view):.1f} % if every class counts the same" in figures(view)[-1]["note"]


def test_a_word_stands_in_its_sentence(page, words, tmp_path):
    run, path = words
    page.open(path)
    page.choose("#show", "All instances")
    page.click("button[data-key=position]")
    shown = page.all("#instances .what .clamped")
    assert shown[8].text == "… word3 word4 word5 word6 word7 word8 word9 word10 word11"
    assert page.all("#instances .what mark")[8].text == "word8"
    assert page.find("#matrix-note").text.startswith("The matrix shows the 14 of 23 classes")
    heads = page.js("return [...document.querySelectorAll('#matrix th[title]')].map(e => e.textContent)")
    assert set(heads) <= set(TAGS)
    assert max(map(len, heads)) > 12
    result = command.run("audit", run.path, "--out", tmp_path / "all.csv")
    assert " in “" in result.stdout
    assert "word20 in “… word16 word17 word18 word19 word20 word21 word22 word23”" in (
        tmp_path / "all.csv"
    ).read_text(encoding="utf-8")


def test_the_errors_of_tagging_are_one_measure(words):
    view = view_run(words[0])
    assert "Both errors are 100 - entity F1." in curves_note(view)
    assert figures(view)[-1]["name"] == "validation error, 100 - entity F1"

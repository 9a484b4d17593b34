"""Decisions about suspects in a real browser: keys, buttons, kept after a reload, exported and applied."""

import csv
import io
from pathlib import Path

import pandas as pd
import pytest
from selenium.webdriver.common.keys import Keys

import command
from activebias.runs import audit_run, read_run
from own_data import made_up, write_wine
from report_runs import make_run
from small_run import images

WRONG = (3, 100, 140)
X_AXIS = "return document.querySelector('#detail .chart')?.layout?.xaxis.title.text"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a folder with wines, three wrong labels among them, their run and its report."""
    folder = tmp_path_factory.mktemp("wine")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        frame = pd.read_csv(write_wine("wine.csv"))
        for row in WRONG:
            frame.loc[row, "target"] = (frame.loc[row, "target"] + 1) % 3
        frame.to_csv("wine.csv", index=False)
        for arguments in (
            ("train", "--csv", "wine.csv", "--target", "target", "--epochs", 20, "--quiet"),
            ("report", "runs/wine"),
        ):
            command.run(*arguments)
    return folder


@pytest.fixture
def reported(page, trained, monkeypatch):
    """Return the report of the run on wines, in the folder of the data; nothing is decided."""
    monkeypatch.chdir(trained)
    page.forget()
    return trained / "report.html"


def corrections(page):
    return list(csv.DictReader(io.StringIO(page.export("#export-corrections", "corrections.csv"))))


def test_from_the_page_to_the_corrected_table(page, reported):
    page.open(reported)
    assert page.find("#decided").text == "Nothing decided yet."
    assert not page.find("#export-corrections").is_enabled()
    run = read_run("runs/wine")
    position, found = run.instances().position, audit_run(run)
    first = found.order[found.suspected[found.order]][:3].tolist()
    assert sorted(position[first].tolist()) == list(WRONG)
    page.press("n")  # the first suspect is chosen, and each decision goes on to the next
    page.press("a", "A", "k")  # also with Caps Lock
    assert page.find("#decided").text == "3 decided: 2 changed, 1 kept."
    cells = [page.find(f"tr[data-instance='{i}'] .decided").text for i in first]
    assert cells[2] == "kept"
    assert [cell[:2] for cell in cells[:2]] == ["→ ", "→ "]
    command.run("report", "runs/wine", "--out", "again.html")
    page.open(Path("again.html").resolve())  # another report of the run, later
    assert page.find("#decided").text == "3 decided: 2 changed, 1 kept."
    rows = corrections(page)
    assert list(rows[0])[:4] == ["row", "part", "label", "new_label"]
    assert {int(row["row"]): row["decision"] for row in rows} == {
        int(position[i]): decision for i, decision in zip(first, ("accept", "accept", "keep"), strict=True)
    }
    applied = command.run(
        "apply", page.downloads / "corrections.csv", "--run", "runs/wine", "--out", "corrected.csv"
    )
    assert "Changed 2 labels of 178" in applied.stdout
    right = pd.read_csv(write_wine("right.csv"))["target"]
    assert (pd.read_csv("corrected.csv")["target"] != right).sum() == 1
    assert page.errors() == []


def test_buttons_other_class_undo_and_filters(page, reported):
    page.open(reported)
    page.press("n")
    instance = page.js("return Report.main.chosen()")
    columns = page.js(
        "const c = Report.main.current().columns; return [c.label[arguments[0]], c.believed[arguments[0]]]",
        instance,
    )
    other = ({0, 1, 2} - set(columns)).pop()
    page.press("o")
    assert page.js("return document.activeElement.id") == "other-class"
    page.choose("#other-class", str(other))
    assert page.js("return Report.decisions.at(arguments[0])", instance) == other
    assert page.js("return Report.main.chosen()") != instance
    (row,) = corrections(page)
    assert (row["new_label"], row["decision"]) == (str(other), "other")
    page.choose("#show", "Decided")
    assert page.rows() == [instance]
    page.choose("#show", "Suspects, undecided")
    assert instance not in page.rows()
    page.choose("#show", "Suspects")
    page.js("Report.main.choose(arguments[0])", instance)
    page.click(".decision [aria-keyshortcuts=k]")
    page.js("Report.main.choose(arguments[0])", instance)
    assert page.find(".decision [aria-keyshortcuts=k]").get_attribute("aria-pressed") == "true"
    page.press("u")
    assert page.find("#decided").text == "Nothing decided yet."
    page.find("#search").send_keys("ak")  # letters in a field are no keys
    assert page.find("#decided").text == "Nothing decided yet."
    page.press("a")
    assert page.errors() == []


def test_decisions_belong_to_their_run(page, reported, tmp_path):
    other = make_run(tmp_path / "other", num=4, class_names=("a", "b"), inputs=images())
    command.run("report", other.path, "--out", "other.html")
    page.open(Path("other.html").resolve())
    page.js("Report.decisions.decide(0, 1)")
    assert page.find("#decided").text.startswith("1 decided")
    page.open(reported)
    assert page.find("#decided").text == "Nothing decided yet."
    page.js("localStorage.setItem('activebias corrections ' + Report.main.current().digest, 'no json')")
    page.open(reported)  # damaged, and no error
    assert page.find("#decided").text == "Nothing decided yet."


def test_words_are_corrected_by_sentence_and_word(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tweets.conll").write_text(made_up(60).replace("Rome\tB-location", "Rome\tO", 1))
    command.run("train", "--conll", "tweets.conll", "--epochs", 3, "--quiet")
    command.run("report", "runs/tweets")
    page.open(Path("report.html").resolve())
    run = read_run("runs/tweets")
    instances = run.instances()
    (wrong,) = ((instances.sentence == 1) & (instances.word == 4)).nonzero()[0].tolist()
    code = run.info.class_names.index("B-location")
    page.js("Report.decisions.decide(arguments[0], arguments[1])", wrong, code)
    (row,) = corrections(page)
    assert (row["sentence"], row["word"], row["label"], row["new_label"]) == ("1", "4", "O", "B-location")
    command.run("apply", page.downloads / "corrections.csv", "--run", "runs/tweets", "--out", "new.conll")
    assert Path("new.conll").read_text() == made_up(60)


def test_the_keys_work_after_a_filter_menu(page, reported):
    """A menu that was used with the mouse gives the focus back; with the keyboard it keeps the focus."""
    page.open(reported)
    page.choose("#show", "All instances")
    page.press("n", "k")
    assert page.find("#decided").text == "1 decided: 0 changed, 1 kept."
    page.js("document.getElementById('show').focus()")
    page.find("#show").send_keys(Keys.ARROW_UP, Keys.ARROW_DOWN)
    assert page.js("return document.activeElement.id") == "show"
    page.find("#show").send_keys(Keys.ESCAPE)  # which also closes the panel of the chosen instance
    page.press("n", "n", "k")
    assert page.find("#decided").text == "2 decided: 0 changed, 2 kept."


@pytest.mark.parametrize("width", [1400, 400])
def test_the_instance_to_decide_about_is_in_sight(page, reported, width):
    page.open(reported, width=width)
    page.choose("#show", "All instances")
    page.js("scrollTo(0, 0)")
    script = """const row = document.querySelector('#instances [aria-current]')?.getBoundingClientRect();
    const detail = document.getElementById('detail').getBoundingClientRect();
    const end = arguments[0] < 992 ? detail.top : innerHeight; // a sheet covers the end of a narrow page
    return !!row && row.top >= 0 && row.bottom <= end && detail.top < innerHeight - 200;"""
    for keys in ("n", "k", "n" * 8, "n" * 20, "k", "p" * 20):  # also on the next page, and back
        page.press(*keys)
        page.until(lambda: page.js(script, width))


def test_the_page_of_several_judges(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_wine("wine.csv")
    options = ("--csv", "wine.csv", "--target", "target", "--epochs", 3, "--judges", 3, "--quiet")
    command.run("train", *options)
    command.run("report", "runs/wine")
    page.open(tmp_path / "report.html")
    assert "3 models judged every label, and one of them had not trained on it." in page.find("main").text
    page.choose("#show", "All instances")
    page.press("n")
    title = page.find("#detail-body .chart-title").text
    assert title == "Probability of the label after the epochs that count, mean of 3 judges"
    assert page.js(X_AXIS) == "epoch that counts"


def test_the_chart_of_a_row_says_what_its_values_are_counted_by(page, reported):
    """A validation row has a value after every epoch, a training row one at every visit."""
    page.open(reported)
    rows = "return [0, 1].map((part) => Report.main.current().columns.validates.indexOf(part))"
    trained, validated = page.js(rows)
    for row, title in ((trained, "visit in training"), (validated, "epoch")):
        page.js("return Report.main.choose(arguments[0])", row)
        page.until(lambda title=title: page.js(X_AXIS) == title)

"""`activebias compare` on data of one's own: images, a table, tagged text; what is said and refused."""

import json
from pathlib import Path

import pandas as pd
import pytest
from sklearn.datasets import load_wine
from typer.testing import CliRunner

from activebias.cli import app
from own_data import made_up, write_digits, write_wine

SHORT = ("--splits", 2, "--epochs", 3, "--burn-in", 1)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["compare", *(str(argument) for argument in arguments)])
    assert result.exit_code == code, result.output
    return result


def test_a_table():
    write_wine(Path("wine.csv"))
    result = run("--csv", "wine.csv", "--target", "target", *SHORT)
    said = " ".join(result.stdout.split())
    assert "own-wine: 2 splits into 106 training, 36 validation and 36 test rows." in said
    assert "Nadeau and Bengio" in said
    assert "Figure: runs/figures/own-wine.png. Results: runs/own-wine.jsonl." in said
    for method in ("scan", "we", "wtc", "wtc+label-smoothing"):
        assert f"{method} " in result.stdout
    assert Path("runs/figures/own-wine.png").stat().st_size > 10_000
    assert "split 2: test error scan" in result.stderr
    again = run("--csv", "wine.csv", "--target", "target", *SHORT)
    assert "2 of 2 splits are read from runs/own-wine.jsonl, not trained again." in again.stderr
    assert again.stdout == result.stdout


def test_json_is_all_that_is_printed():
    write_wine(Path("wine.csv"))
    result = run("--csv", "wine.csv", "--target", "target", *SHORT, "--methods", "scan,wtc", "--json")
    facts = json.loads(result.stdout)
    assert result.stderr == ""
    assert facts["methods"].keys() == {"scan", "wtc"}
    assert facts["sizes"] == {"train": 106, "validation": 36, "test": 36}
    assert Path(facts["figure"]).exists()
    assert len(facts["trials"]) == 4
    errors = [each["test_error"] for each in facts["trials"] if each["method"] == "wtc"]
    assert facts["methods"]["wtc"]["test_error"] == pytest.approx(sum(errors) / 2, abs=1e-4)


def test_images():
    write_digits(Path("photos"), 60)
    said = run("--images", "photos", *SHORT, "--methods", "scan,wtc").stdout
    assert "2 splits into" in said
    assert "test images." in " ".join(said.split())


def test_peers_are_methods_too():
    write_wine(Path("wine.csv"))
    arguments = ("--csv", "wine.csv", "--target", "target", "--splits", 2, "--epochs", 3, "--json")
    facts = json.loads(run(*arguments, "--methods", "scan,gce,wtc+label-smoothing").stdout)
    assert facts["methods"]["gce"]["baseline"] == "scan"
    assert facts["methods"].keys() == {"scan", "gce", "wtc+label-smoothing"}


def test_a_search_chooses_the_setting_of_every_split():
    write_wine(Path("wine.csv"))
    arguments = ("--csv", "wine.csv", "--target", "target", *SHORT, "--methods", "scan,gce", "--search")
    result = run(*arguments)
    said = " ".join(result.stdout.split())
    assert "q 0." in said
    assert "The setting with the lowest validation error of the split counts." in said
    assert "Figure: runs/figures/own-wine-search.png." in said
    facts = json.loads(run(*arguments, "--json").stdout)  # the stored results
    assert [each["setting"].partition(" ")[0] for each in facts["trials"] if each["method"] == "gce"] == [
        "q",
        "q",
    ]


def test_tagged_text():
    Path("tweets.conll").write_text(made_up(60))
    said = run("--conll", "tweets.conll", *SHORT).stdout
    assert "100 - F1" in said
    assert "test sentences." in " ".join(said.split())


def test_a_class_of_two_rows_and_a_column_of_words():
    bunch = load_wine(as_frame=True).frame
    small = pd.concat([bunch[bunch.target < 2], bunch[bunch.target == 2].iloc[:2]])
    small.assign(colour=["red", "white"] * 66).to_csv("two.csv", index=False)
    result = run("--csv", "two.csv", "--target", "target", *SHORT)
    assert "Classes with fewer than five examples: 2 (2)." in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Give exactly one of RECIPE, --images, --csv and --conll, not none"),
        (("digits", "--csv", "wine.csv"), "not RECIPE and --csv"),
        (("wine.csv",), "'wine.csv' is a file: use `--csv wine.csv --target COLUMN`."),
        (("wines/wine",), "There is no recipe, file or folder 'wines/wine': check the path"),
        (("--csv", "wine.csv"), "`--csv FILE` and `--target COLUMN` belong together"),
        (("--csv", "wine.csv"), "The columns of wine.csv are alcohol, malic_acid,"),
        (
            ("--csv", "wine.csv", "--target", "target", "--trials", 3),
            "is for recipes: use `--splits`.",
        ),
        (("digits", "--minutes", 3), "`--minutes` is for own data"),
        (("--csv", "wine.csv", "--target", "target", "--methods", "scan,wvp"), "Did you mean 'wpv'"),
        (("--csv", "wine.csv", "--target", "target", "--methods", "scan"), "such as scan,wtc"),
        (("--csv", "wine.csv", "--target", "target", "--methods", "wtc,we"), "Add scan to the methods"),
        (("--csv", "wine.csv", "--target", "target", "--methods", "uni,spv,wtc"), "wtc has no baseline"),
        (("--csv", "wine.csv", "--target", "target", "--epochs", 3, "--burn-in", 3), "leaves no epoch"),
        (("--conll", "wine.csv", "--methods", "scan,sd"), "use scan, wd, we, wpv, wtc or auto, not sd"),
    ],
)
def test_refusals(arguments, message):
    write_wine(Path("wine.csv"))
    assert message in " ".join(run(*arguments, code=2).output.replace("│", " ").split())


def test_a_target_that_is_missing_and_a_budget_below_0():
    write_wine(Path("wine.csv"))
    assert "no column 'tagret'" in run("--csv", "wine.csv", "--target", "tagret", code=1).stderr
    result = run("--csv", "wine.csv", "--target", "target", "--minutes", -1, code=1)
    assert "Expected `minutes` to be above 0, but got -1." in result.stderr

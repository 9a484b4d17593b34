"""`activebias train … --like RUN`: the split, the seed and the settings of an earlier run."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import command
from activebias.runs import read_run
from own_data import made_up, write_digits, write_wine


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def train(*arguments, code=0):
    result = command.run("train", *arguments, "--quiet", code=code)
    return command.words(result.stderr)


def validated(path):
    """Return where the validation instances of a run are in its source."""
    instances = read_run(path).instances()
    return instances.position[instances.in_validation].tolist()


def test_a_corrected_table_is_divided_and_trained_alike():
    frame = pd.read_csv(write_wine("wine.csv"))
    options = ("--epochs", 2, "--burn-in", 1, "--method", "we", "--seed", 5, "--validation", 0.3)
    train("--csv", "wine.csv", "--target", "target", *options)
    frame["target"] = frame["target"].where(frame.index % 7 > 0, 0)
    frame.to_csv("new.csv", index=False)
    said = train("--csv", "new.csv", "--like", "runs/wine")
    before, after = read_run("runs/wine").info, read_run("runs/new").info
    assert validated("runs/new") == validated("runs/wine")
    for name in ("method", "seed", "epochs", "burn_in", "settings", "num_validation"):
        assert getattr(after, name) == getattr(before, name)
    assert said == "The split is that of runs/wine: 125 rows train, 53 validate."
    # A division anew would differ, since every class is divided in proportion.
    train("--csv", "new.csv", "--target", "target", *options, "--out", "anew")
    assert validated("anew") != validated("runs/wine")


def test_options_that_are_given_count():
    write_wine("wine.csv")
    train("--csv", "wine.csv", "--target", "target", "--epochs", 2, "--burn-in", 1)
    train("--csv", "wine.csv", "--like", "runs/wine", "--out", "b", "--method", "scan", "--seed", 9)
    info = read_run("b").info
    assert (info.method, info.seed, info.epochs) == ("scan", 9, 2)
    assert validated("b") == validated("runs/wine")


def test_rows_that_were_added_removed_and_moved():
    frame = pd.read_csv(write_wine("wine.csv"))
    train("--csv", "wine.csv", "--target", "target", "--epochs", 1, "--burn-in", 0)
    held_out = validated("runs/wine")
    gone = [held_out[0], next(k for k in range(178) if k not in held_out)]
    new = frame.iloc[:3].assign(alcohol=[np.nan, 1.0, 2.0], proline=[np.nan, 1, 2])
    changed = pd.concat([new, frame.drop(index=gone)])[frame.columns[::-1]]  # proline is now a float
    changed.to_csv("new.csv", index=False)
    said = train("--csv", "new.csv", "--like", "runs/wine")
    assert "The split is that of runs/wine: 144 rows train, 35 validate." in said
    assert "New rows, which runs/wine does not have: 3. They train." in said
    assert "Gone since runs/wine: 1 training example and 1 validation example." in said
    kept = pd.read_csv("new.csv").iloc[validated("runs/new")]
    expected = frame.iloc[held_out[1:]]
    assert kept["alcohol"].tolist() == expected["alcohol"].tolist()


def test_images_are_found_in_another_folder_under_another_name():
    write_digits(Path("photos"), 120)
    train("--images", "photos", "--epochs", 1, "--burn-in", 0)
    old = read_run("runs/photos")
    names = np.array(old.inputs().names)[old.instances().in_validation]
    for number, name in enumerate(names[:5]):
        target = Path("photos") / f"digit {(int(name.split('digit ')[1][0]) + 1) % 10}"
        Path(name).rename(target / f"a new name {number}.png")
    train("--images", "photos", "--like", "runs/photos", "--out", "b")
    new = read_run("b")
    before, after = (
        {image.tobytes() for image in run.inputs().images[run.instances().in_validation]}
        for run in (old, new)
    )
    assert before == after
    assert (
        new.info.settings
        == old.info.settings
        == {
            "validation": 0.2,
            "size": 32,
            "grey": True,
            "burn_in": 0,
        }
    )


def test_sentences_are_found_again():
    Path("tweets.conll").write_text(made_up(60))
    train("--conll", "tweets.conll", "--epochs", 1, "--burn-in", 0)
    text = made_up(60).replace("Paris\tB-location", "Paris\tO")
    Path("new.conll").write_text("a\tO\nnew\tO\nsentence\tO\n\n" + text)
    said = train("--conll", "new.conll", "--like", "runs/tweets")
    assert validated("runs/new") == [k + 1 for k in validated("runs/tweets")]
    assert "The split is that of runs/tweets: 49 sentences train, 12 validate." in said
    assert "New sentences, which runs/tweets does not have: 1." in said


def test_a_separate_validation_file_is_kept():
    frame = pd.read_csv(write_wine("wine.csv"))
    frame.iloc[::5].to_csv("val.csv", index=False)
    frame.drop(index=frame.index[::5]).to_csv("wine.csv", index=False)
    train("--csv", "wine.csv", "--target", "target", "--validation", "val.csv", "--epochs", 1)
    train("--csv", "wine.csv", "--like", "runs/wine", "--out", "b")
    assert read_run("b").info.settings["validation"] == "val.csv"
    assert validated("b") == list(range(36))


def test_errors():
    write_wine("wine.csv")
    Path("tweets.conll").write_text(made_up(30))
    train("--csv", "wine.csv", "--target", "target", "--epochs", 1)
    assert "was trained on --csv wine.csv, and tweets.conll is other data" in train(
        "--conll", "tweets.conll", "--like", "runs/wine", code=1
    )
    assert "leave out --validation" in train(
        "--csv", "wine.csv", "--like", "runs/wine", "--validation", "0.1", code=2
    )
    assert "is the run of `--like`" in train("--csv", "wine.csv", "--like", "runs/wine", code=1)
    assert "`--like` is for own data" in train("digits", "--like", "runs/wine", code=2)
    frame = pd.read_csv("wine.csv")
    frame.assign(alcohol=frame["alcohol"] + 1).to_csv("other.csv", index=False)
    assert "other.csv has no input of the validation part of runs/wine" in train(
        "--csv", "other.csv", "--like", "runs/wine", code=1
    )
    settings = json.loads(Path("runs/wine/run.json").read_text())
    Path("runs/wine/run.json").write_text(json.dumps(settings | {"settings": {}}))
    assert "does not say how its data was divided" in train(
        "--csv", "other.csv", "--like", "runs/wine", code=1
    )

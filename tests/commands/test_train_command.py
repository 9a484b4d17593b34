"""`activebias train` on data of one's own and on a recipe: the run folder, what is said, what is refused."""

import io
import json
import re
import shutil
from functools import partial

import numpy as np
import pytest
import torch
from rich.console import Console

pytest.importorskip("pandas")
pytest.importorskip("PIL")
import pandas as pd

import activebias as ab
import command
from activebias.own.models import load_model
from activebias.own.tables import read_table
from activebias.own.train import train_own
from activebias.runs.folder import read_run
from activebias.training.checkpoints import Checkpoint
from activebias.training.loop import EpochSeen, Run
from activebias.training.progress import show_reading, show_training
from own_data import made_up, write_digits, write_wine

pytestmark = pytest.mark.usefixtures("own_place")


run = partial(command.run, "train")


def check(folder):
    """Check what every run folder must hold, and return which validation examples are wrong."""
    info, instances = folder.info, folder.instances()
    values, valid = folder.history()
    assert len(instances) == len(folder.inputs()) == len(values) == info.num_instances + info.num_validation
    assert valid.sum(1).min() >= 2
    assert instances.label.min() >= 0
    assert instances.believed.max() < len(info.class_names)
    assert (instances.believed_prob >= instances.label_prob - 1e-6).all()
    trained = ~instances.in_validation
    assert trained.tolist() == [True] * info.num_instances + [False] * info.num_validation
    assert abs(float(instances.weight[trained].mean()) - 1) < 1e-3
    assert not instances.weight[~trained].any()
    if info.num_validation:
        check_validation(folder)
    assert len(info.curves["train_error"]) == len(info.curves["validation_error"]) == info.epochs
    return [row["label"] != row["predicted"] for row in folder.validation()]


def check_validation(folder):
    """The last probability of a validation instance is that of the model, which never saw its label."""
    instances, (values, valid) = folder.instances(), folder.history()
    start = folder.info.num_instances
    predictions = folder.validation()
    assert len(predictions) == folder.info.num_validation
    width = 1 + folder.info.epochs if folder.info.window is None else folder.info.window
    assert (valid[start:].sum(1) == min(width, 1 + folder.info.epochs)).all()
    last = values[start:][:, valid[start:][0].sum() - 1]
    for k, row in enumerate(predictions):
        assert folder.info.class_names[instances.label[start + k]] == row["label"]
        assert int(row["position"]) == instances.position[start + k]
        if row["label"] == row["predicted"]:
            assert last[k] == pytest.approx(float(row["probability"]), abs=1e-5)
        else:
            assert last[k] <= float(row["probability"]) + 1e-5


def test_images(tmp_path):
    write_digits(tmp_path / "photos", 150, moved=0.1)
    (tmp_path / "photos" / "digit 1" / "broken.png").write_text("x")
    result = run("--images", "photos", "--epochs", 3, "--seed", 3)
    said = " ".join(result.stdout.split())
    assert said.startswith("Trained on 120 images of 10 classes, validated on 30: validation error")
    assert "`activebias audit runs/photos`" in said
    assert "`activebias report runs/photos`" in said
    assert "broken.png: it is not a readable image" in result.stderr
    assert re.search(r"photos: epoch 3 of 3, validation error [\d.]+ %, burn-in\n", result.stderr)
    folder = read_run("runs/photos")
    wrong = check(folder)
    assert folder.info.kind == "images"
    assert folder.info.method == "wtc"
    assert [each["why"] for each in folder.info.skipped] == ["it is not a readable image"]
    assert 100 * np.mean(wrong) == pytest.approx(folder.info.curves["validation_error"][-1])
    with torch.no_grad():
        logits = load_model(folder)(torch.from_numpy(folder.inputs().images[:120, None]))
    labels = torch.from_numpy(folder.instances().label[:120])
    error = 100 * float((logits.argmax(1) != labels).float().mean())
    assert error == pytest.approx(folder.info.curves["train_error"][-1], abs=1e-3)
    bias = ab.ActiveBias(
        "wtc",
        num_instances=120,
        num_classes=10,
        burn_in="auto",
        seed=folder.bias_state()["settings"]["seed"],
    )
    bias.load(folder.path / "bias.pt")
    np.testing.assert_array_equal(bias.weights().numpy(), folder.instances().weight[:120])


def test_a_table_ends_its_burn_in_and_emphasises(tmp_path):
    value = json.loads(
        run("--csv", write_wine(tmp_path / "wine.csv"), "--target", "target", "--json", "--out", "r").stdout
    )
    assert value["run"] == "r"
    assert value["kind"] == "table"
    assert (value["num_instances"], value["num_validation"]) == (142, 36)
    assert value["burn_in"] < value["epochs"] == 30
    assert value["last_validation_error"] < 10
    folder = read_run("r")
    check(folder)
    assert folder.instances().weight.std() > 0
    curve = folder.info.curves["validation_error"]
    end = folder.info.burn_in
    assert min(curve[end - 3 : end]) >= min(curve[: end - 3])  # the documented rule


def test_text(tmp_path):
    texts = [f"the {'good' if k % 2 else 'bad'} film number {k} was seen" for k in range(120)]
    frame = pd.DataFrame({"review": texts, "stars": ["high" if k % 2 else "low" for k in range(120)]})
    frame.loc[7, "stars"] = "low"
    frame.to_parquet(tmp_path / "reviews.parquet")
    options = ("--quiet", "--epochs", 12, "--validation", 0.1)
    result = run("--csv", "reviews.parquet", "--target", "stars", *options)
    assert result.stdout.startswith("Trained on 108 rows of 2 classes, validated on 12: validation error")
    folder = read_run("runs/reviews")
    check(folder)
    assert folder.info.kind == "text"
    instances, rows = folder.instances(), folder.inputs().rows
    assert rows["review"].tolist() == [texts[k] for k in instances.position]
    worst = int(instances.label_prob.argmin())
    assert instances.position[worst] == 7  # what the model believed shows the wrong label
    assert folder.info.class_names[instances.believed[worst]] == "high"


def test_tagging(tmp_path):
    (tmp_path / "tweets.conll").write_text(made_up(120))
    result = run("--conll", "tweets.conll", "--epochs", 12, "--validation", 0.3)
    assert "words of 4 classes" in " ".join(result.stdout.split())
    folder = read_run("runs/tweets")
    check(folder)
    instances = folder.instances()
    assert folder.info.kind == "tagging"
    assert folder.info.window == 5
    words = folder.inputs().rows["word"]
    lines = [block.split("\n") for block in made_up(120).split("\n\n")]
    for k in (0, 100, len(words) - 1):
        line = lines[instances.sentence[k]][instances.word[k]]
        assert line == f"{words[k]}\t{folder.info.class_names[instances.label[k]]}"


def test_wnut17_shortened(tmp_path, real_data):
    lines = (real_data("wnut17") / "wnut17train.conll").read_text(encoding="utf-8").split("\n")[:4000]
    (tmp_path / "short.conll").write_text("\n".join(lines), encoding="utf-8")
    run("--conll", "short.conll", "--epochs", 3, "--quiet")
    check(read_run("runs/short"))


def test_a_recipe_writes_the_same_folder(tmp_path):
    value = json.loads(run("digits", "--noise", 0.2, "--epochs", 4, "--json").stdout)
    assert value["run"] == "runs/digits-wtc-0"
    folder = read_run(value["run"])
    check(folder)
    assert (folder.info.kind, folder.info.source, folder.info.num_instances) == ("images", "digits", 1297)
    assert folder.inputs().images.max() == 255
    assert folder.info.model["recipe"] == "digits"


@pytest.mark.parametrize("kind", ["own", "recipe"])
def test_a_stopped_run_goes_on_as_if_it_had_not(tmp_path, monkeypatch, kind):
    write_wine(tmp_path / "wine.csv")
    arguments = ("--csv", "wine.csv", "--target", "target") if kind == "own" else ("digits",)
    arguments = (*arguments, "--epochs", 9)
    assert "esuming" not in run(*arguments, "--out", "whole").output
    train_epoch = Run.train_epoch

    def stopped(self):
        if self.epoch == 5:
            raise KeyboardInterrupt
        train_epoch(self)

    monkeypatch.setattr(Checkpoint, "due", lambda self: True)
    monkeypatch.setattr(Run, "train_epoch", stopped)
    assert "Run the same command again to resume." in run(*arguments, "--out", "again", code=130).stderr
    assert not (tmp_path / "again").exists()
    if kind == "own":  # a shorter training does not take over five epochs
        shutil.copy(".again.checkpoint.pt", ".short.checkpoint.pt")
        shorter = run(*arguments[:-1], 3, "--out", "short", "--json")
        assert json.loads(shorter.stdout)["epochs"] == 3
        assert "esuming" not in shorter.stderr
    seen = []
    monkeypatch.setattr(Run, "train_epoch", lambda self: (seen.append(1), train_epoch(self)))
    result = run(*arguments, "--out", "again", "--json")
    assert len(seen) == 4
    assert result.stderr.count("Resuming after epoch 5.") == 1
    assert json.loads(result.stdout)["epochs"] == 9
    whole, again = read_run("whole"), read_run("again")
    assert again.info == whole.info
    for name, array in whole.instances().arrays().items():
        np.testing.assert_array_equal(getattr(again.instances(), name), array)
    np.testing.assert_array_equal(again.history()[0], whole.history()[0])
    assert sorted(entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")) == []


def test_the_guard_speaks_in_the_folder_and_on_screen(tmp_path):
    """Random labels that a net with many inputs learns by heart."""
    chooser = np.random.default_rng(0)
    frame = pd.DataFrame(chooser.normal(size=(120, 400)), columns=[f"x{k}" for k in range(400)])
    frame["y"] = chooser.integers(0, 2, 120)
    frame.to_csv(tmp_path / "chance.csv", index=False)
    result = run("--csv", "chance.csv", "--target", "y", "--quiet")
    (sentence,) = read_run("runs/chance").info.warnings
    assert "knows its training set by heart" in sentence
    assert "simpler or more regularised model" in sentence
    assert f"Warning: {sentence}" in result.stderr


def test_a_burn_in_that_never_ends_is_said(tmp_path):
    path = write_wine(tmp_path / "wine.csv")
    folder = train_own(read_table(path, target="target", validation=0.2, seed=0), tmp_path / "r", epochs=2)
    assert folder.info.burn_in == 2
    assert "The burn-in did not end before the last epoch" in folder.info.warnings[0]
    assert "more than 2 epochs, or give `--burn-in`" in folder.info.warnings[0]
    assert (folder.instances().weight[: folder.info.num_instances] == 1).all()


@pytest.mark.parametrize("burn_in", [2, 5])
def test_a_burn_in_as_long_as_the_training_is_said(tmp_path, burn_in):
    write_wine(tmp_path / "wine.csv")
    arguments = ("--csv", "wine.csv", "--target", "target", "--epochs", 2, "--burn-in", burn_in, "--quiet")
    result = run(*arguments)
    (sentence,) = read_run("runs/wine").info.warnings
    assert sentence == (
        f"The burn-in ({burn_in} epochs) covers the whole training (2 epochs), so that no instance was "
        f"emphasised. Train for more than {burn_in} epochs, or give a smaller `--burn-in`."
    )
    assert result.stderr == f"Warning: {sentence}\n"
    assert "emphasised" not in result.stdout
    assert run(*arguments, "--method", "scan").stderr == "", "scan never emphasises"


def test_one_epoch_is_singular(tmp_path):
    write_wine(tmp_path / "wine.csv")
    result = run("--csv", "wine.csv", "--target", "target", "--epochs", 1, "--burn-in", 1, "--quiet")
    assert "The burn-in (1 epoch) covers the whole training (1 epoch)" in result.stderr
    assert "Train for more than 1 epoch, or give" in result.stderr
    assert " after 1 epoch (best " in " ".join(result.stdout.split())


def test_a_model_that_gets_nothing_right_is_said(tmp_path):
    (tmp_path / "tweets.conll").write_text(made_up(30))
    (tmp_path / "dev.conll").write_text("in\tB-person\nParis\tO\n")  # the contrary of what is trained
    result = run("--conll", "tweets.conll", "--validation", "dev.conll", "--epochs", 12, "--quiet")
    info = read_run("runs/tweets").info
    assert info.curves["validation_error"] == [100.0] * 12
    assert info.burn_in == 12
    memorises, sentence = info.warnings
    assert "knows its training set by heart" in memorises
    assert "the validation error was 100 % after every epoch. Train for more than 12 epochs" in sentence
    assert result.stderr == f"Warning: {memorises}\nWarning: {sentence}\n"


def test_a_burn_in_by_number_and_notes_in_quiet(tmp_path):
    write_wine(tmp_path / "wine.csv", same=1)
    result = run("--csv", "wine.csv", "--target", "target", "--epochs", 3, "--burn-in", 1, "--quiet")
    folder = read_run("runs/wine")
    assert folder.info.burn_in == 1
    assert folder.info.warnings == ()
    assert (folder.instances().weight != 1).any()
    assert result.stderr == "Column 'same' has only one value: it is not used.\n"
    assert "The burn-in took 1 epoch, then wtc emphasised instances." in " ".join(result.stdout.split())


def test_names_from_the_data_do_nothing_to_the_terminal(tmp_path):
    write_wine(tmp_path / "wine.csv", **{"a\x1b[31m": 1})
    result = run("--csv", "wine.csv", "--target", "target", "--epochs", 1)
    assert "[31m" in result.stderr
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "exactly one of RECIPE, --images, --csv and --conll, not none"),
        (["digits", "--images", "photos"], 2, "not RECIPE and --images"),
        (["--csv", "wine.csv"], 2, "`--csv FILE` and `--target COLUMN` belong together"),
        (["--csv", "wine.csv"], 2, "give both. The columns of wine.csv are alcohol, malic_acid,"),
        (["--images", "x", "--target", "a"], 2, "belong together"),
        (["--csv", "wine.csv", "--target", "target", "--noise", "0.1"], 2, "`--noise` is for recipes"),
        (["--csv", "wine.csv", "--target", "target", "--burn-in", "-1"], 2, "auto or a number of epochs"),
        (["digits", "--burn-in", "3"], 2, "`--burn-in` is for own data"),
        (
            ["digits", "--validation", "abc"],
            2,
            "`--validation` is for own data: a recipe has its own test part",
        ),
        (["digits", "--validation", "0.2"], 2, "`--validation` is for own data"),
        (["digits", "--target", "kind"], 2, "`--target` is for own data"),
        (["--csv", "wine.csv", "--target", "target", "--data", "."], 2, "`--data` is for recipes"),
        (["--csv", "wine.csv", "--target", "target", "--method", "wtx"], 2, "Did you mean 'wtc'"),
        (["--csv", "wine.csv", "--target", "target", "--validation", "1.5"], 2, "above 0 and below 1"),
        (["--conll", "t.conll", "--method", "spv"], 2, "use scan, wd, we, wpv, wtc or auto, not spv"),
        (["--csv", "wine.csv", "--target", "kind"], 1, "has no column 'kind'"),
        (["--csv", "wine.csv", "--target", "target", "--validation", "no.csv"], 1, "There is no file no.csv"),
        (
            ["--csv", "wine.csv", "--target", "target", "--out", "taken"],
            1,
            "taken exists and is not a run folder",
        ),
        (["--images", "nowhere"], 1, "There is no folder nowhere"),
        (["--conll", "nowhere"], 1, "There is no file nowhere"),
        (
            ["--conll", "t.conll", "--conll", "u.conll"],
            2,
            "Give `--conll` once, not 2 times: put the data into",
        ),
        (["--images", "a", "--images=b", "--images", "c"], 2, "Give `--images` once, not 3 times"),
        (["--csv", "wine.csv", "--target", "a", "--target", "b"], 2, "Give `--target` once, not 2 times"),
        (["--csv", "taken", "--target", "a"], 1, "taken is a folder: give a CSV, TSV or parquet file."),
        (["--conll", "taken"], 1, "taken is a folder: give a file with a word and its tag per line."),
        (["--images", "wine.csv"], 1, "wine.csv is a file: give a folder that has a folder of images for"),
        (["wine.csv"], 2, "'wine.csv' is a file: use `--csv wine.csv --target COLUMN`."),
        (["wine.csv", "--target", "target"], 2, "'wine.csv' is a file: use `--csv wine.csv"),
        (["t.conll"], 2, "'t.conll' is a file: use `--conll t.conll`."),
        (["nowhere.csv"], 2, "There is no recipe, file or folder 'nowhere.csv': check the path"),
        (["taken"], 2, "'taken' is a folder: use `--images taken`."),
        (["--csv", "none.csv", "--target", "a", "--method", "elr"], 2, "use `activebias compare`"),
        (["digits", "--method", "scan,wtc"], 2, "'scan,wtc'. Did you mean 'scan'? For several methods"),
        (["taken/thesis.tex"], 2, "is a file: use `--csv taken/thesis.tex --target COLUMN` for a table, or"),
    ],
)
def test_errors_are_one_sentence(tmp_path, arguments, code, message):
    write_wine(tmp_path / "wine.csv")
    (tmp_path / "t.conll").write_text(made_up())
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("years")
    result = run(*arguments, code=code)
    assert message in command.words(result.stderr)
    assert "Traceback" not in result.output
    if code == 1:
        assert result.stderr.count("\n") == 1
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.parametrize(
    "arguments",
    [["cancer"], ["--csv", "wine.csv", "--target", "target", "--method", "foo"]],
)
def test_only_near_names_are_suggested(tmp_path, arguments):
    write_wine(tmp_path / "wine.csv")
    result = run(*arguments, code=2)
    assert "Expected" in result.stderr
    assert "Did you" not in result.stderr


def test_a_recipe_is_not_hidden_by_a_folder_of_its_name(tmp_path):
    (tmp_path / "digits").mkdir()
    assert "Trained on" in run("digits", "--epochs", 1, "--out", "runs/d", "--quiet").stdout


@pytest.mark.parametrize("package", ["PIL", "pandas", "pyarrow"])
def test_a_missing_extra_is_one_sentence(tmp_path, monkeypatch, package):
    import sys

    write_digits(tmp_path / "photos", 30)
    write_wine(tmp_path / "wine.csv")
    monkeypatch.setitem(sys.modules, package, None)
    arguments = ["--images", "photos"] if package == "PIL" else ["--csv", "wine.csv", "--target", "target"]
    result = run(*arguments, code=1)
    assert result.stderr.endswith("pip install 'activebias[report]'\n")
    shutil.rmtree(tmp_path / "photos")


@pytest.mark.parametrize("terminal", [True, False])
def test_progress(terminal):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    with show_reading("images", quiet=False, console=console) as on_image:
        on_image(2)
    with show_training("wine", 20, quiet=False, console=console) as on_epoch:
        for epoch in range(1, 21):
            on_epoch(EpochSeen(epoch, 10.0, 12.5, epoch > 4))
    text = console.file.getvalue()
    assert "validation error 12.5 %" in text
    if not terminal:
        assert text.count("\n") == 10
        assert text.splitlines()[0] == "wine: epoch 2 of 20, validation error 12.5 %, burn-in"
    with show_training("wine", 20, quiet=True, console=console) as on_epoch:
        on_epoch(None)
    assert console.file.getvalue() == text

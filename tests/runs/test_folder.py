"""The run folder: what is written comes back, and what is not whole is refused with the reason."""

import json
import os
import shutil
import signal
import stat
import sys

import numpy as np
import pytest
import torch

import activebias as ab
from activebias.runs import folder as folders
from activebias.runs.contents import Inputs, Instances, Predictions, RunInfo
from activebias.runs.folder import read_run, write_run


def a_bias(num=4, **settings):
    bias = ab.ActiveBias("wtc", num_instances=num, num_classes=2, seed=3, **settings)
    for epoch in range(3):
        bias.set_epoch(epoch)
        bias.record(list(range(num)), [0.1 * (epoch + 1) + 0.1 * k for k in range(num)])
    return bias


def parts(num=4, **changes):
    """Return the arguments of `write_run` for a small run."""
    info = {
        "kind": "images",
        "title": "tiny",
        "method": "wtc",
        "seed": 3,
        "epochs": 3,
        "burn_in": 1,
        "window": None,
        "class_names": ("cat", "<b>dög</b>"),
        "num_instances": num,
        "source": "pets",
        "curves": {"train_error": [50.0, 25.0, 0.0], "validation_error": [50.0, 40.0, 30.0]},
        "warnings": ("It memorises.",),
        "skipped": ({"what": "cat/1.png", "why": "cannot be read"},),
        "model": {"name": "Linear", "arguments": {"num_classes": 2}},
    }
    label = np.array([0, 1] * (num // 2))
    values = np.linspace(0.5, 0.9, num, dtype=np.float32)
    return {
        "info": RunInfo(**info | changes),
        "bias": a_bias(num),
        "model": {"weight": torch.ones(2, 2)},
        "instances": Instances(
            label=label,
            believed=1 - label,
            believed_prob=values,
            label_prob=1 - values,
            weight=values,
            position=np.arange(num) * 10,
        ),
        "inputs": Inputs(
            images=np.arange(num * 4, dtype=np.uint8).reshape(num, 2, 2),
            names=tuple(f"cat/{k}.png" for k in range(num)),
        ),
        "validation": Predictions(
            position=np.array([7]),
            label=np.array([0]),
            predicted=np.array([1]),
            probability=np.array([0.75], dtype=np.float32),
        ),
    }


def test_what_is_written_comes_back(tmp_path):
    given = parts()
    written = write_run(tmp_path / "deep" / "run", **given)
    run = read_run(tmp_path / "deep" / "run")
    assert run == written
    assert run.info == given["info"]
    assert run.instances().arrays().keys() == given["instances"].arrays().keys()
    for name, array in run.instances().arrays().items():
        np.testing.assert_array_equal(array, getattr(given["instances"], name))
        assert array.dtype == getattr(given["instances"], name).dtype
    np.testing.assert_array_equal(run.inputs().images, given["inputs"].images)
    assert run.inputs().names == given["inputs"].names
    assert torch.equal(run.model_state()["weight"], torch.ones(2, 2))
    assert run.validation() == [
        {"position": "7", "label": "cat", "predicted": "<b>dög</b>", "probability": "0.750000"}
    ]
    assert [entry.name for entry in (tmp_path / "deep").iterdir()] == ["run"]


@pytest.mark.parametrize("settings", [{}, {"window": 2}, {"storage": "float16"}])
def test_the_history_is_the_biass(tmp_path, settings):
    given = parts() | {"bias": a_bias(**settings)}
    run = write_run(tmp_path / "run", **given)
    values, valid = run.history()
    expected, expected_valid = given["bias"].history.values()
    np.testing.assert_array_equal(values, expected.numpy())
    np.testing.assert_array_equal(valid, expected_valid.numpy())
    assert values.dtype == np.float32
    again = ab.ActiveBias("wtc", num_instances=4, num_classes=2, seed=3, **settings)
    again.load(run.path / "bias.pt")
    assert torch.equal(again.weights(), given["bias"].weights())


def test_rows_come_back_as_a_data_frame(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    rows = pandas.DataFrame({"text": ["a", "<script>", None, "ü"], "size": [1.5, 2, 3, None]})
    run = write_run(tmp_path / "run", **parts(kind="text") | {"inputs": Inputs(rows=rows)})
    pandas.testing.assert_frame_equal(run.inputs().rows, rows)
    assert not (run.path / "inputs.npz").exists()


def test_a_run_replaces_an_older_one_and_nothing_else(tmp_path):
    write_run(tmp_path / "run", **parts())
    write_run(tmp_path / "run", **parts(title="newer"))
    assert read_run(tmp_path / "run").info.title == "newer"
    (tmp_path / "photos").mkdir()
    write_run(tmp_path / "photos", **parts())  # an empty folder is no loss
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    (tmp_path / "note").write_text("x")
    for name in ("thesis", "note"):
        with pytest.raises(ValueError, match="is not a run folder, so it is not overwritten"):
            write_run(tmp_path / name, **parts())
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["note", "photos", "run", "thesis"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o777 & ~umask


def test_a_place_that_cannot_be_written_is_refused_early(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match=r"cannot be written \(.+\): choose another `--out`"):
        folders.check_target(tmp_path / "file" / "run")
    folders.check_target(tmp_path / "new" / "run")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_writer_that_fails_or_is_killed_leaves_no_run(tmp_path, monkeypatch, fresh_python):
    monkeypatch.setattr(folders, "_write_validation", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_run(tmp_path / "run", **parts())
    assert list(tmp_path.iterdir()) == []
    script = (
        "import os, sys, test_folder as t; "
        "t.folders._write_validation = lambda *_: os._exit(9); t.write_run(sys.argv[1], **t.parts())"
    )
    path = [os.path.dirname(__file__), *filter(None, sys.path)]
    code, _, complaint = fresh_python(script, tmp_path / "run", path=path)
    assert code == 9, complaint
    with pytest.raises(ValueError, match="There is no run folder"):
        read_run(tmp_path / "run")


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_waits_until_torch_has_written(tmp_path, monkeypatch):
    """If a path is not ASCII, torch writes through Python, and raises an error of its own at Ctrl-C."""
    save, written = torch.save, []

    def save_at_ctrl_c(state, path):
        os.kill(os.getpid(), signal.SIGINT)
        save(state, path)
        written.append(path.name)

    monkeypatch.setattr(torch, "save", save_at_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        write_run(tmp_path / "läufe" / "run", **parts())
    assert written == ["bias.pt", "model.pt"]
    assert list((tmp_path / "läufe").iterdir()) == []


def test_a_folder_that_is_not_whole_is_refused(tmp_path):
    whole = write_run(tmp_path / "run", **parts()).path
    with pytest.raises(ValueError, match=r"is not a run folder \(no run\.json\)"):
        read_run(tmp_path)
    for name in ("bias.pt", "model.pt", "instances.npz", "validation.csv", "inputs.npz"):
        shutil.copytree(whole, tmp_path / name)
        (tmp_path / name / name).unlink()
        with pytest.raises(ValueError, match=f"is incomplete, it lacks .*{name}"):
            read_run(tmp_path / name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda values: values | {"format": 99}, "format version 99.*reads version 2"),
        (lambda values: {k: v for k, v in values.items() if k != "format"}, "damaged"),
        (lambda values: {k: v for k, v in values.items() if k != "seed"}, "damaged.*seed"),
        (lambda values: values | {"kind": "sound"}, "damaged.*images, table"),
        (lambda values: values | {"epochs": 5}, "one number per epoch"),
        (lambda values: [values], "damaged"),
    ],
)
def test_a_run_json_that_does_not_fit_is_refused(tmp_path, change, message):
    path = write_run(tmp_path / "run", **parts()).path / "run.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(ValueError, match=message):
        read_run(tmp_path / "run")


def test_damaged_arrays_are_named(tmp_path):
    run = write_run(tmp_path / "run", **parts())
    for name, read in (
        ("bias.pt", run.history),
        ("instances.npz", run.instances),
        ("inputs.npz", run.inputs),
        ("model.pt", run.model_state),
    ):
        (run.path / name).write_bytes(b"nonsense")
        with pytest.raises(ValueError, match=f"{name} is damaged"):
            read()
    other = write_run(tmp_path / "other", **parts(num=6))
    shutil.copy(other.path / "instances.npz", run.path / "instances.npz")
    with pytest.raises(ValueError, match=r"has 6 instances, but run\.json says 4"):
        run.instances()


def test_parts_that_do_not_belong_together_are_refused(tmp_path):
    with pytest.raises(ValueError, match="`instances` has 4 entries for 6"):
        write_run(tmp_path / "run", **parts() | {"info": parts(num=6)["info"]})
    with pytest.raises(ValueError, match="exactly one"):
        Inputs()
    arrays = parts()["instances"].arrays()
    with pytest.raises(ValueError, match="of the same length"):
        Instances(**arrays | {"label": arrays["label"][:2]})

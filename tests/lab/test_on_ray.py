"""Trials on a Ray cluster of two workers: one is killed, and the store ends as if nothing had happened."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

import lab_worker
from activebias.lab import Listener, Place, run_trials
from activebias.lab.on_ray import OnRay
from activebias.lab.trials import count_epochs, missing_runs

pytest.importorskip("ray", reason="Ray is not installed (a large package): pip install activebias[ray]")
# Ray's own warnings are not ours.
pytestmark = pytest.mark.filterwarnings("ignore")

TRIALS = {"methods": ("scan", "wpv", "spv"), "seeds": (0, 1)}


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return the place of the workers' temporary folders."""
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def address(folders):
    """Start a cluster with two CPUs in a session of its own, and return its address."""
    folder, port = Path(tempfile.mkdtemp(prefix="ray-")), free_port()  # sockets need a short path
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus=2"]
    command += [
        f"--port={port}",
        "--include-dashboard=false",
        f"--temp-dir={folder}",
        "--disable-usage-stats",
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(folders)}
    with (folder / "log").open("w") as log:
        cluster = subprocess.Popen(
            command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    deadline = time.monotonic() + 100
    while "Ray runtime started" not in (text := (folder / "log").read_text()):
        assert cluster.poll() is None, text
        assert time.monotonic() < deadline, text
        time.sleep(0.2)
    yield f"127.0.0.1:{port}"
    cluster.terminate()  # ends the processes of the cluster, and then itself
    try:
        cluster.wait(60)
    finally:
        cluster.kill()
        cluster.wait()
        shutil.rmtree(folder, ignore_errors=True)


def errors(folder):
    """Return the curves of the store by key; raise for a line that is torn or there twice."""
    found = {}
    for text in (folder / "digits.jsonl").read_text().splitlines():
        line = json.loads(text)
        assert (line["method"], line["seed"]) not in found
        found[line["method"], line["seed"]] = line["curves"]
    return found


def test_a_worker_that_is_killed_leaves_no_trace(tmp_path, address, folders):
    recipe, flag = lab_worker.small_recipe(), tmp_path / "flag"
    mortal = replace(recipe, model=lab_worker.MortalModel(recipe.model, flag))
    # One by one, so that the process is killed between two methods of a trial.
    alone, ray = (Place(tmp_path / name, side_by_side=1) for name in ("alone", "ray"))
    run_trials(recipe, **TRIALS, place=alone)
    epochs, results, counted = [], [], [count_epochs(recipe, missing_runs(recipe, **TRIALS, place=ray))]
    listener = Listener(on_epoch=epochs.append, on_result=results.append, on_recount=counted.append)
    run_trials(mortal, **TRIALS, place=ray, spread=OnRay(address), listener=listener)
    assert flag.exists()
    assert errors(ray.folder) == errors(alone.folder)
    assert (len(epochs), len(results)) == (sum(counted), 6)
    assert not (ray.folder / "checkpoints").exists()
    assert not list(folders.glob("activebias-*"))


def test_a_teacher_goes_with_the_tasks_and_comes_back_trained(tmp_path, address):
    teacher = replace(lab_worker.small_recipe(), name="digits-teacher")
    taught = replace(lab_worker.small_recipe(), teacher=teacher)
    run_trials(taught, **TRIALS, place=Place(tmp_path / "alone"))
    place = Place(tmp_path / "ray")
    run_trials(taught, **TRIALS, place=place, spread=OnRay(address, "cpu"))
    assert errors(place.folder) == errors(tmp_path / "alone")
    assert place.model_path(teacher, "scan", 0).exists()
    assert len(place.store.load("digits-teacher")) == 1


def test_an_error_of_a_task_is_raised_here(tmp_path, address):
    too_large = replace(lab_worker.small_recipe(), batch_size=1000)
    with pytest.raises(ValueError, match=r"^Expected `batch_size` to be at most the number of training"):
        run_trials(too_large, **TRIALS, place=Place(tmp_path), spread=OnRay(address))


def test_a_cluster_without_gpus_is_told(tmp_path, address):
    with pytest.raises(ValueError, match="has no GPU: choose another `--device`"):
        run_trials(lab_worker.small_recipe(), **TRIALS, place=Place(tmp_path), spread=OnRay(address, "cuda"))


@pytest.mark.parametrize("wrong", ["127.0.0.1:1", "nonsense", "127.0.0.1:99999"])
def test_an_address_where_nobody_answers_is_told_at_once(tmp_path, wrong):
    started = time.monotonic()
    with pytest.raises(
        ValueError, match="Expected `--ray` to be the address of a running Ray cluster, but got"
    ):
        run_trials(lab_worker.small_recipe(), **TRIALS, place=Place(tmp_path), spread=OnRay(wrong))
    assert time.monotonic() - started < 30

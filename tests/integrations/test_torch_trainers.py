"""Trainers on several ranks train like the plain loop, also when ranks are fewer on resume, or die."""

import json
import os
import signal
import subprocess
import sys
import uuid
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.fsdp
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from launched_worker import SAVE_EVERY, run, train_by_accelerate, train_by_fabric, train_through_a_crash
from processes import start_server
from rank_worker import run_ranks
from trainer_worker import EPOCHS, GLOBAL_BATCH, METHODS, shard_fully, train_a_part, train_to
from training import flat_weights, make_bias, make_loader, make_model, step

HELPERS = Path(__file__).parents[1] / "helpers"
NUM_INSTANCES = 128  # whole steps: what is trained without a bias knows of no padding


def assert_close(ours, theirs) -> None:
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def assert_as_plain(result) -> None:
    """Compare with the same trainer without a bias, and with the plain loop on one rank."""
    assert_close(result["scan"]["weights"], result["plain"]["weights"])
    for method in ("scan", "wtc"):
        model, bias = make_model(), make_bias(method, num_instances=NUM_INSTANCES)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = make_loader(bias, GLOBAL_BATCH)
        for epoch in range(EPOCHS):
            bias.set_epoch(epoch)
            for index, (batch, labels) in loader:
                step(model, optimizer, bias, batch, labels, index)
        assert_close(result[method]["weights"], flat_weights(model))
        assert_close(result[method]["scores"], bias.scores)


def assert_as_uninterrupted(result, method, folder) -> None:
    whole = train_to(0, 1, folder / "uninterrupted.pt", method, 15)
    assert result["valid"] == whole["valid"]
    for name in ("values", "scores", "weights"):
        assert_close(result[name], whole[name])


@pytest.mark.skipif(not hasattr(torch.distributed.fsdp, "fully_shard"), reason="torch before 2.6")
def test_parameters_sharded_over_two_ranks(tmp_path):
    for result in run_ranks(tmp_path, 2, shard_fully, NUM_INSTANCES):
        assert_as_plain(result)


def test_four_then_two_then_one_rank(tmp_path):
    """Five steps are an epoch: both changes come in its middle."""
    for num_ranks, until in ((4, 3), (2, 8), (1, 15)):
        results = run_ranks(tmp_path, num_ranks, train_a_part, tmp_path, until)
    for method in METHODS:
        assert results[0][method]["first"] == 8
        assert_as_uninterrupted(results[0][method], method, tmp_path)


@pytest.fixture(scope="module")
def launched(tmp_path_factory) -> Path:
    """Return the folder with the results of two ranks that torchrun's launcher started, one of them twice."""
    pytest.importorskip("lightning", reason="Lightning is not installed: pip install 'activebias[lightning]'")
    pytest.importorskip("accelerate", reason="not installed: pip install 'activebias[huggingface]'")
    folder = tmp_path_factory.mktemp("launched")
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=3,  # one is needed; on a busy machine ranks do not always find each other
        start_method="forkserver",
    )
    start_server()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with pytest.MonkeyPatch.context() as patch:
        # Without it, ranks that are started again meet the addresses of the dead (pytorch#135712).
        patch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
        targets = (train_through_a_crash, train_by_fabric, train_by_accelerate)
        elastic_launch(config, run)(folder, NUM_INSTANCES, *targets)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    return folder


def results_of(target, folder) -> list[dict]:
    return [json.loads((folder / f"{target.__name__}.{rank}.json").read_text()) for rank in (0, 1)]


def test_torchrun_starts_again_after_a_rank_was_killed(launched):
    for result in results_of(train_through_a_crash, launched):
        assert result["attempt"] >= 1
        assert result["first"] >= 2 * SAVE_EVERY
        assert_as_uninterrupted(result, "wtc", launched)


def test_fabric_on_two_ranks(launched):
    for result in results_of(train_by_fabric, launched):
        assert_as_plain(result)


def test_accelerate_on_two_ranks_wraps_in_ddp_where_sharding_is_asked_for(launched):
    for result in results_of(train_by_accelerate, launched):
        assert result["wrapper"] == "torch.nn.parallel.distributed.DistributedDataParallel"
        assert_as_plain(result)


@pytest.mark.skipif(find_spec("deepspeed") is None, reason="not installed, and in no extra: deepspeed")
def test_deepspeed_on_two_ranks_from_stage_0_to_3(tmp_path):
    """DeepSpeed compiles its exchange between processes once, which takes minutes."""
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    path = os.pathsep.join([str(HELPERS), *filter(None, sys.path)])
    finished = subprocess.run(
        [sys.executable, *command, str(HELPERS / "deepspeed_run.py"), str(tmp_path), str(NUM_INSTANCES)],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "PYTHONPATH": path},
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    for stage in range(4):
        for rank in (0, 1):
            assert_as_plain(json.loads((tmp_path / f"{stage}.{rank}.json").read_text()))

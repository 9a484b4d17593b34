"""`--devices` and `--ray`: what they refuse, and a comparison by two processes."""

import json
from importlib.util import find_spec

import pytest
import torch
import typer

import processes
from activebias.commands.choosing import find_spread
from activebias.commands.devices import find_devices
from command import run, words

SHORT = ["compare", "digits", "--epochs", "2", "--trials", "2", "--methods", "scan,wpv", "--json"]


def test_compare_by_two_processes_prints_what_one_process_prints(tmp_path):
    processes.start_server()
    alone, two = (
        json.loads(run(*SHORT, "--out", tmp_path / name, *options).stdout)
        for name, options in {"one": ["--device", "cpu"], "two": ["--devices", "cpu,cpu"]}.items()
    )
    assert two == alone
    assert len((tmp_path / "two" / "digits.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--devices", "cpu,cpu", "--ray", "auto"], "Give `--devices` or `--ray`, not both."),
        (["--devices", "cpu,cpu", "--device", "cpu"], "Give `--device` or `--devices`, not both."),
        (["--devices", ","], "Expected `--devices` to name devices, such as cuda:0,cuda:1, but got"),
        (["--devices", "cpu,tpu"], "Expected `--devices` to be cpu, cuda or cuda:N, but got 'tpu'."),
        (["--ray", "auto", "--device", "cuda:1"], "Expected `--device` to be auto, cpu or cuda with `--ray`"),
    ],
)
def test_options_that_do_not_fit_are_usage_errors(tmp_path, options, message):
    output = run(*SHORT, "--out", tmp_path, *options, code=2).output
    assert message in words(output)
    assert not list(tmp_path.iterdir())


def test_own_data_has_one_device(tmp_path):
    output = run("compare", "--csv", "a.csv", "--target", "b", "--devices", "cpu,cpu", code=2).output
    assert "`--devices` is for recipes." in output


def test_gpus_are_named_once_and_must_be_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert find_devices("cuda") == find_devices("cuda:0,cuda:1") == ("cuda:0", "cuda:1")
    with pytest.raises(typer.BadParameter, match="to name a GPU once, but got 'cuda,cuda:0'"):
        find_devices("cuda,cuda:0")
    with pytest.raises(typer.BadParameter, match="among the 2 GPUs of this machine, cuda:0 and up, but got"):
        find_devices("cuda:0,cuda:2")


def test_without_options_this_process_trains():
    assert find_spread(None, None, "auto") is None


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_the_command_says_what_to_install(tmp_path):
    result = run(*SHORT, "--out", tmp_path, "--ray", "auto", code=1)
    assert (
        "activebias: `--ray` needs Ray, which is not installed: pip install activebias[ray]." in result.stderr
    )

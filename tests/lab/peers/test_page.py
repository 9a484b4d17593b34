"""The page of the peers: the sentences about the machines of a row."""

import json
from pathlib import Path

import pytest

from activebias.lab.experiment.store import ResultStore
from activebias.lab.peer_page import page

ROOT = Path(__file__).parents[3]


def facts(folder, other_machine=()):
    """Return the first paragraph of digits-40; `other_machine` names sides that an H200 has trained."""
    stored = ROOT / "results" / "peers" / "digits-40.jsonl"
    with (folder / "digits-40.jsonl").open("w") as file:
        for line in map(json.loads, stored.read_text().splitlines()):
            if line["method"] in other_machine:
                line |= {"device": "NVIDIA H200", "seconds": 8.0}
                line["details"] |= {"side_by_side": 5, "precision": "bf16"}
            file.write(json.dumps(line) + "\n")
    text = page(ResultStore(folder), folder / "none").split("## digits-40\n\n")[1]
    return " ".join(text.split("\n\n")[0].split())


def test_one_machine_is_named_once(tmp_path):
    text = facts(tmp_path)
    assert text.count("models side by side") == 1
    assert "with 128 instances. cpu (float32); " in text


def test_a_row_of_two_machines_gives_the_time_of_each(tmp_path):
    text = facts(tmp_path, other_machine=("we+elr", "gce"))
    seconds = pytest.approx(8000 / (40 * 9), abs=0.01)
    gpu = text.split("NVIDIA H200 (bf16), GCE and WE+ELR; ")[1].split(" cpu (float32), ")[0]
    assert gpu.startswith("5 models side by side. A model's share of the group's time is 8.0 s a trial and")
    assert float(gpu.split(" and ")[1].split()[0]) == seconds
    assert "cpu (float32), Scan, WD, WE," in text

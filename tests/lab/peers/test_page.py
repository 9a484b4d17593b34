"""The page of the peers: its rows, its stored results, and the sentences about the machines of a row."""

import json
from pathlib import Path

import pytest
import torch

from activebias.lab import Place
from activebias.lab.experiment.prepared import load_data, prepare
from activebias.lab.experiment.results import config_hash
from activebias.lab.experiment.store import ResultStore
from activebias.lab.peer_page import main, page
from activebias.lab.peer_rows import peer_rows, steps_an_epoch
from activebias.lab.peers import PEERS

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


def test_the_rows_are_those_of_the_page(tmp_path):
    rows = peer_rows()
    assert len({config_hash(row.recipe.config()) for row in rows.values()}) == len(rows)
    assert rows["mnist-cnn-flips-20"].recipe.noise.kind == "class_dependent"
    assert rows["cifar10-rn27-worst"].recipe.noise.annotation == "worst"
    assert "elr" not in rows["wnut17-cnn"].names
    text = page(Place(tmp_path).store, tmp_path / "notes.md")
    assert text.count("not trained yet") == len(rows)
    (tmp_path / "notes.md").write_text("Use GCE.")
    assert "Use GCE." in page(Place(tmp_path).store, tmp_path / "notes.md")


@pytest.mark.parametrize("name", ["mnist-cnn-0", "cifar10-lr", "qt-cnn", "wnut17-cnn"])
def test_the_steps_of_an_epoch_are_those_of_the_data(name, real_data):
    recipe = peer_rows()[name].recipe
    real_data(recipe.data)
    if name in ("qt-cnn", "wnut17-cnn"):
        real_data("embeddings")
    prepared = prepare(recipe, load_data(recipe, None), seed=0, device=torch.device("cpu"))
    assert steps_an_epoch(recipe) == len(prepared.train) // recipe.batch_size


def test_the_page_in_the_docs_is_made_from_the_store(tmp_path):
    results = ROOT / "results" / "peers"
    main(results, tmp_path / "peers.md")
    written = (tmp_path / "peers.md").read_text(encoding="utf-8")
    assert (ROOT / "docs" / "peers.md").read_text(encoding="utf-8") == written, "run `make peers`"
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["peers.png"]
    assert (ROOT / "docs" / "figures" / "peers.png").exists()
    text = " ".join(written.split())
    assert all(peer.passes in text for peer in PEERS.values())


def test_no_stored_result_of_a_row_would_be_trained_again():
    store = Place(ROOT / "results" / "peers").store
    rows = peer_rows()
    for path in sorted(store.folder.glob("*.jsonl")):
        protocol = rows[path.stem]
        configs = {config_hash(recipe.config()) for recipe in (protocol.recipe, protocol.searched)}
        assert {config_hash(result.config) for result in store.load(path.stem)} <= configs

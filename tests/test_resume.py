"""A run that is killed at any step and resumed ends exactly as one that was not."""

import json
import random
import signal
import time

import pytest
import torch

import activebias as ab
from processes import finish, start, start_server
from resume_worker import train
from training import make_bias, make_loader


def kill_at_a_random_step(process, folder, chooser):
    """Kill the process some time after its first checkpoint, while it is still training."""
    while not (folder / "checkpoint.pt").exists():
        assert process.is_alive()
        time.sleep(0.01)
    time.sleep(chooser.uniform(0.0, 0.4))
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


# With two workers, draws run ahead of the training; for the others one process is enough.
CASES = [(method, 0) for method in ab.METHODS] + [("spv", 2), ("wpv", 2)]


@pytest.mark.parametrize(("method", "num_workers"), CASES)
def test_a_killed_run_goes_on_bit_by_bit(method, num_workers, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    beside = start(train, whole, method, num_workers, 0.0)
    slow = start(train, killed, method, num_workers, 0.05)
    kill_at_a_random_step(slow, killed, random.Random(f"{method}{num_workers}"))
    assert not (killed / "result.json").exists()
    finish(beside, start(train, killed, method, num_workers, 0.0))
    expected, resumed = (json.loads((folder / "result.json").read_text()) for folder in (whole, killed))
    for part, value in expected.items():
        assert resumed[part] == value, part


@pytest.mark.parametrize("method", ["wpv", "spv", "uni"])
@pytest.mark.parametrize(
    ("num_workers", "context"), [(0, None), (2, "fork"), (2, "forkserver")], ids=["0", "2", "2 not forked"]
)
def test_only_the_batches_that_were_not_trained_on_come_after_a_resume(method, num_workers, context):
    if context == "forkserver":  # the data set is pickled, as on macOS and Windows
        start_server()
    bias = make_bias(method)
    bias.set_epoch(0)
    bias.set_epoch(2)
    trained = []
    workers = {"num_workers": num_workers, "multiprocessing_context": context}
    for number, (index, _) in enumerate(make_loader(bias, **workers)):
        bias.record(index, torch.full((len(index),), 0.5))
        trained += index.tolist()
        if number == 4:
            break
    again = make_bias(method)
    again.load_state_dict(bias.state_dict())
    again.set_epoch(2)
    rest = [i for index, _ in make_loader(again, **workers) for i in index.tolist()]
    assert len(trained) + len(rest) == 300
    if method == "wpv":
        assert sorted(trained + rest) == list(range(300))


def test_a_snapshot_does_not_change_while_training_goes_on():
    bias = make_bias("spv")
    bias.set_epoch(0)
    bias.record(torch.arange(300), torch.full((300,), 0.3))
    snapshot, scores = bias.state_dict(), bias.scores
    bias.record(torch.arange(300), torch.full((300,), 0.9))
    assert not torch.equal(bias.scores, scores)
    bias.load_state_dict(snapshot)
    assert torch.equal(bias.scores, scores)
    assert bias.history.values()[1].sum().item() == 600


def test_an_unfinished_step_comes_again_after_a_resume():
    bias = make_bias("wpv", num_instances=32)
    bias.set_epoch(0)
    bias.set_epoch(1)
    first = list(bias.sampler(batch_size=16))
    for part in (first[:16], first[16:20], first[20:24]):  # a whole step and half of the next
        bias.record(part, [0.5] * len(part))
    again = make_bias("wpv", num_instances=32)
    again.load_state_dict(bias.state_dict())
    again.set_epoch(1)
    rest = list(again.sampler(batch_size=16))
    assert rest == first[16:]
    again.record(rest, [0.5] * 16)
    assert again.history.values()[1].sum(1).tolist() == [2] * 32


@pytest.mark.parametrize("method", ["wpv", "spv"])
def test_what_drop_last_leaves_of_a_step_is_in_the_state_and_counts_in_the_next_epoch(method):
    def record(bias, index):
        bias.record(index, torch.linspace(0.1, 0.9, len(index)))

    bias, again = make_bias(method, num_instances=22), make_bias(method, num_instances=22)
    bias.set_epoch(0)
    order = torch.tensor(list(bias.sampler(batch_size=8)))
    for index in order[:20].split(4):  # steps of 8 in parts of 4; a loader with drop_last keeps two back
        record(bias, index)
    again.sampler(batch_size=8)
    again.load_state_dict(bias.state_dict())
    for each in (bias, again):
        each.set_epoch(1)
        assert int(each.history.values()[1].sum()) == 22 + 20
    assert torch.equal(bias.scores, again.scores)
    assert list(bias.sampler(batch_size=8)) == list(again.sampler(batch_size=8))


def test_what_does_not_count_and_waits_on_a_gpu_is_not_in_the_state():
    bias = make_bias("wpv", num_instances=10)
    bias.sampler(batch_size=8)
    bias.set_epoch(0)
    # There, padding goes to the row that does not count. On a CPU a whole history would grow for it.
    bias._memory._waiting.append((torch.tensor([3, 10]), torch.tensor([0.5, 0.0])))
    assert bias.state_dict()["waiting"]["index"].tolist() == [3]


def test_a_refused_state_leaves_the_step_and_the_order_as_they_were():
    bias, reference = make_bias("spv", num_instances=32), make_bias("spv", num_instances=32)
    for each in (bias, reference):
        each.set_epoch(0)
        order = torch.tensor(list(each.sampler(batch_size=16))[:16])
        each.record(order[:8], [0.5] * 8)
    damaged = make_bias("spv", num_instances=32).state_dict()
    damaged["scores"]["values"] = damaged["scores"]["values"][:7]
    with pytest.raises(ValueError, match="damaged or does not fit"):
        bias.load_state_dict(damaged)
    for each in (bias, reference):
        each.record(order[8:], [0.25] * 8)
        each.set_epoch(1)  # does not warn that nobody drew
    assert torch.equal(bias.scores, reference.scores)
    assert int(bias.history.values()[1].sum()) == 32 + 16


def test_a_state_of_an_own_method_with_another_order_is_refused():
    def own(**changes):
        method = ab.Method("own", statistic=lambda e: e.mean, **changes)
        return ab.ActiveBias(method, num_instances=8, num_classes=2)

    there, here = own(order="emphasis"), own(weights="emphasis")
    with pytest.raises(ValueError, match=r"order='emphasis' there, 'scan' here; weights='equal' there"):
        here.load_state_dict(there.state_dict())


def test_save_and_load_with_weights_only(tmp_path):
    bias = make_bias("isd", window=5, storage="float16")
    bias.set_epoch(0)
    bias.record(torch.arange(300), torch.linspace(0, 1, 300))
    bias.save(tmp_path / "bias.pt")
    assert [file.name for file in tmp_path.iterdir()] == ["bias.pt"]
    torch.load(tmp_path / "bias.pt", weights_only=True)
    again = make_bias("isd", window=5, storage="float16")
    again.load(tmp_path / "bias.pt")
    assert torch.equal(again.scores, bias.scores)
    assert again.epoch == 0


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"method": "wtc"}, r"method='wpv' there, 'wtc' here"),
        ({"num_instances": 301}, r"num_instances=300 there, 301 here"),
        ({"num_classes": 11}, r"num_classes=10 there, 11 here"),
        ({"window": 4}, r"window=None there, 4 here"),
        ({"storage": "float16"}, r"storage='float32' there, 'float16' here"),
    ],
)
def test_a_state_with_other_settings_is_refused_and_nothing_is_half_loaded(other, message):
    settings = {"method": "wpv", "num_instances": 300, "num_classes": 10}
    there = ab.ActiveBias(**settings)
    there.set_epoch(4)
    here = ab.ActiveBias(**{**settings, **other})
    here.set_epoch(1)
    here.record([0], [0.9])
    before = here.scores
    with pytest.raises(ValueError, match=message):
        here.load_state_dict(there.state_dict())
    assert here.epoch == 1
    assert torch.equal(here.scores, before)
    assert here.history.values()[1].sum().item() == here.num_instances + 1


def test_another_format_a_truncated_file_and_a_foreign_file_are_refused(tmp_path):
    bias = make_bias("wpv")
    bias.set_epoch(0)
    bias.save(tmp_path / "bias.pt")
    with pytest.raises(ValueError, match="format version 99"):
        bias.load_state_dict({**bias.state_dict(), "format": 99})
    whole = (tmp_path / "bias.pt").read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / "short.pt").write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"short\.pt is damaged"):
            bias.load(tmp_path / "short.pt")
    torch.save({"something": "else"}, tmp_path / "foreign.pt")
    with pytest.raises(ValueError, match="not a state of ActiveBias"):
        bias.load(tmp_path / "foreign.pt")
    with pytest.raises(FileNotFoundError):
        bias.load(tmp_path / "absent.pt")


def test_a_state_with_a_missing_part_is_refused_before_anything_changes():
    bias = make_bias("wpv")
    bias.set_epoch(0)
    bias.set_epoch(3)
    bias.record([1], [0.9])
    state = make_bias("wpv").state_dict()
    for part in ("history", "scores", "order", "num_skipped"):
        damaged = {key: value for key, value in state.items() if key != part}
        with pytest.raises(ValueError, match=part):
            bias.load_state_dict(damaged)
        assert bias.epoch == 3
        assert bias.history.values()[1].sum().item() == 301


def test_a_damaged_part_is_refused_and_nothing_is_half_loaded():
    bias, other = make_bias("wpv"), make_bias("wpv")
    bias.set_epoch(0)
    bias.set_epoch(3)
    bias.record([1], [0.9])
    other.set_epoch(0)
    other.set_epoch(5)
    for damage in (
        lambda state: state["scores"].update(values=state["scores"]["values"][:7]),
        lambda state: state["order"].pop("position"),
        lambda state: state["history"].pop("count"),
        lambda state: state["history"].update(values=state["history"]["values"][:5]),
    ):
        state = other.state_dict()
        damage(state)
        scores = bias.scores
        with pytest.raises(ValueError, match="damaged or does not fit"):
            bias.load_state_dict(state)
        assert bias.epoch == 3
        assert torch.equal(bias.scores, scores)
        assert bias.history.values()[1].sum().item() == 301
    for nonsense in (None, {"format": 1, "settings": None}, []):
        with pytest.raises(ValueError, match="not a state of ActiveBias"):
            bias.load_state_dict(nonsense)


def test_a_state_of_another_number_of_sentences_is_refused():
    def tagger(num_sequences):
        bias = ab.ActiveBias("wpv", num_instances=50, num_classes=3)
        return bias, bias.sampler(batch_size=2, num_sequences=num_sequences)

    (there, _), (here, sampler) = tagger(20), tagger(10)
    with pytest.raises(ValueError, match="it orders 20 items, but the sampler 10"):
        here.load_state_dict(there.state_dict())
    here.set_epoch(0)
    assert sorted(sampler) == list(range(10))


def test_a_missing_folder_and_a_file_of_somebody_elses_are_named(tmp_path):
    bias = make_bias("wpv")
    with pytest.raises(FileNotFoundError, match=r"folder of .*bias\.pt does not exist"):
        bias.save(tmp_path / "no" / "bias.pt")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ValueError, match=r"notes\.txt is damaged or not a checkpoint \(\w+:"):
        bias.load(tmp_path / "notes.txt")


def test_a_checkpoint_is_as_readable_as_any_file(tmp_path):
    bias = make_bias("wpv")
    bias.save(tmp_path / "bias.pt")
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "bias.pt").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_save_that_fails_leaves_the_old_file_and_no_rubbish(tmp_path, monkeypatch):
    bias = make_bias("wpv")
    bias.set_epoch(0)
    bias.save(tmp_path / "bias.pt")
    before = (tmp_path / "bias.pt").read_bytes()

    def full_disk(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(torch, "save", full_disk)
    with pytest.raises(OSError, match="no space"):
        bias.save(tmp_path / "bias.pt")
    assert (tmp_path / "bias.pt").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["bias.pt"]

"""Trials on several devices: the store ends as if one process had trained them, whatever is killed."""

import json
import multiprocessing
import sys
from dataclasses import replace

import pytest

import lab_worker
import processes
from activebias.lab import Listener, Place, run_trials
from activebias.lab.on_devices import OnDevices
from activebias.lab.shares import in_shares
from activebias.lab.trials import count_epochs, missing_runs

METHODS, SEEDS = ("scan", "wpv", "spv"), (0, 1, 2)
TWO = OnDevices(("cpu", "cpu"))


@pytest.fixture(scope="module", autouse=True)
def server():
    """Fork the processes from the server of all tests."""
    processes.start_server()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the lines of a store that one process wrote, without what every run has anew."""
    folder = tmp_path_factory.mktemp("whole")
    run_trials(lab_worker.small_recipe(), methods=METHODS, seeds=SEEDS, place=Place(folder))
    return lines(folder)


def lines(folder):
    """Return the results of the store by key; raise for a line that is torn or there twice."""
    found = {}
    for text in (folder / "digits.jsonl").read_text().splitlines():
        line = json.loads(text)
        key = line["method"], line["seed"]
        assert key not in found
        assert not {"time", "seconds", "details"} - line.keys()
        found[key] = {name: line[name] for name in line.keys() - {"time", "seconds", "details"}}
    return found


def train(folder, *, recipe=None, spread=TWO, on_epoch=None, on_result=None, **place):
    """Train; return the messages and the number of epochs, which must be the one that was counted."""
    recipe, place = recipe or lab_worker.small_recipe(), Place(folder, **{"interval": 0.0, **place})
    counted = [count_epochs(recipe, missing_runs(recipe, METHODS, SEEDS, place))]
    epochs, results, messages = [], [], []

    def listen(seen, then):
        def heard(value):
            seen.append(value)
            if then is not None:
                then(len(seen))

        return heard

    listener = Listener(
        on_epoch=listen(epochs, on_epoch),
        on_result=listen(results, on_result),
        on_message=messages.append,
        on_recount=counted.append,
    )
    run_trials(recipe, methods=METHODS, seeds=SEEDS, place=place, listener=listener, spread=spread)
    assert len([done for done in epochs if done.recipe == recipe.name]) == sum(counted)
    return messages, len(epochs)


def kill_one(when):
    """Return a function that kills a worker at the `when`-th call, as `kill -9` would."""

    def kill(count):
        if count == when:
            multiprocessing.active_children()[0].kill()

    return kill


def test_shares_keep_trials_whole_and_come_largest_first(tmp_path):
    recipe, place = lab_worker.small_recipe(), Place(tmp_path)
    missing = missing_runs(recipe, METHODS, range(4), place)
    shares = in_shares(recipe, missing, place, 2)
    assert [share.num_results for share in shares] == [4, 4, 4]
    assert [[side.name for side in shares[1].missing[0]], list(shares[1].missing)] == [
        ["scan", "wpv"],
        [0, 1],
    ]
    one_trial = in_shares(recipe, {0: missing[0]}, place, 2)
    assert [share.num_results for share in one_trial] == [2, 1]
    many = in_shares(recipe, missing_runs(recipe, METHODS, range(20), place), place, 60)
    assert {share.num_results for share in many} == {1}


def test_two_workers_fill_one_store_as_one_process_does(tmp_path, whole):
    messages, _ = train(tmp_path)
    assert messages[0] == "digits: 4 + 3 + 2 models on cpu, cpu."
    assert lines(tmp_path) == whole
    assert not list((tmp_path / "checkpoints").iterdir())
    assert train(tmp_path) == (
        [f"9 of 9 results are read from {tmp_path / 'digits.jsonl'}, not trained again."],
        0,
    )


@pytest.mark.parametrize(
    ("event", "when", "side_by_side"), [("on_epoch", 1, None), ("on_epoch", 20, 1), ("on_result", 1, None)]
)
def test_a_worker_that_is_killed_leaves_no_trace_in_the_store(tmp_path, whole, event, when, side_by_side):
    messages, _ = train(tmp_path, side_by_side=side_by_side, **{event: kill_one(when)})
    assert lines(tmp_path) == whole
    told = [text for text in messages if "SIGKILL" in text]
    # Later than the first epoch, the worker may just have finished.
    assert len(told) == 1 or (when, event) != (1, "on_epoch")
    assert all(text.startswith("digits: the process on cpu was ended by SIGKILL; its ") for text in told)
    assert not list((tmp_path / "checkpoints").iterdir())


def test_trials_that_kill_every_process_are_an_error_and_the_rest_is_kept(tmp_path, whole):
    train_some = {"methods": ["spv"], "seeds": SEEDS, "place": Place(tmp_path)}
    run_trials(lab_worker.small_recipe(), **train_some, spread=TWO)
    deadly = replace(lab_worker.small_recipe(), model=lab_worker.deadly_model)
    with pytest.raises(
        RuntimeError, match=r"ended by SIGKILL, as 2 before it with the same trials: if the RAM"
    ):
        train(tmp_path, recipe=deadly)
    assert lines(tmp_path) == {key: line for key, line in whole.items() if key[0] == "spv"}
    assert multiprocessing.active_children() == []


def test_an_error_of_a_worker_is_raised_here_and_ends_the_others(tmp_path):
    with pytest.raises(
        ValueError, match="Expected `batch_size` to be at most the number of training"
    ) as caught:
        train(tmp_path, recipe=replace(lab_worker.small_recipe(), batch_size=1000))
    if sys.version_info >= (3, 11):
        assert "In the process on cpu:" in caught.value.__notes__[0]
    assert multiprocessing.active_children() == []


def test_an_interrupt_ends_all_workers_and_keeps_what_was_finished(tmp_path, whole):
    def interrupt(count):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, on_result=interrupt)
    assert multiprocessing.active_children() == []
    kept = lines(tmp_path)
    assert 0 < len(kept) < len(whole)
    _, epochs = train(tmp_path)
    assert epochs < count_epochs(
        lab_worker.small_recipe(),
        missing_runs(lab_worker.small_recipe(), METHODS, SEEDS, Place(tmp_path / "new")),
    )
    assert lines(tmp_path) == whole


def test_a_teacher_is_trained_once_before_the_trials(tmp_path):
    teacher = replace(lab_worker.small_recipe(), name="digits-teacher")
    taught = replace(lab_worker.small_recipe(), name="digits-taught", teacher=teacher)
    heard = []
    arguments = {"methods": ["scan", "wpv"], "seeds": [0, 1]}
    spread = run_trials(
        taught,
        **arguments,
        place=Place(tmp_path / "two"),
        spread=TWO,
        listener=Listener(on_result=lambda result: heard.append(result.recipe)),
    )
    assert heard == ["digits-teacher"] + 4 * ["digits-taught"]
    alone = run_trials(taught, **arguments, place=Place(tmp_path / "one"))
    assert [each.test_error for each in spread] == [each.test_error for each in alone]


def test_models_are_not_kept_by_several_processes(tmp_path):
    with pytest.raises(ValueError, match="Expected no `spread` with `keep_models`"):
        run_trials(
            lab_worker.small_recipe(),
            methods=METHODS,
            seeds=SEEDS,
            place=Place(tmp_path),
            keep_models=True,
            spread=TWO,
        )

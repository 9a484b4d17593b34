"""Trials: branches equal separate runs, a killed run goes on as if nothing had been, nothing runs twice."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import activebias as ab
import lab_worker
from activebias.lab import Listener, Noise, Place, get_recipe, run_trials
from activebias.lab.experiment.prepared import load_data, prepare
from activebias.lab.one_by_one import build_run
from activebias.lab.trials import count_epochs, missing_runs
from activebias.training.checkpoints import Checkpoint
from activebias.training.randomness import derived_generator, derived_seed
from processes import start

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the curves of the worker's trial when nothing happens to it, one by one and side by side."""
    return {
        number: curves(lab_worker.run(tmp_path_factory.mktemp("whole"), side_by_side=number))
        for number in (1, None)
    }


def epochs_to_train(recipe, methods, seeds, place):
    return count_epochs(recipe, missing_runs(recipe, methods, seeds, place))


def curves(results):
    return {result.method: (result.test_error, result.train_error) for result in results}


def same(first, second):
    """Compare states: dicts of dicts of tensors, bit by bit; what a run has drawn ahead does not matter."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    return first == second


@pytest.mark.parametrize("method", ab.METHODS)
def test_a_branch_equals_a_run_of_its_own(method):
    recipe = replace(get_recipe("digits"), epochs=4, burn_in=2, batch_size=50).limited(220)
    data = prepare(recipe, load_data(recipe), seed=3, device=CPU)
    chosen = ab.get_method(method)
    group = [each for each in ab.METHODS.values() if (each.order == "scan") == (chosen.order == "scan")]
    shared, branch, alone = (
        build_run(recipe, data, methods, seed=3) for methods in (group[::-1], [chosen], [chosen])
    )
    for _ in range(2):
        shared.train_epoch()
    state = shared.state_dict()
    other = build_run(recipe, data, [group[0]], seed=3)
    other.load_state_dict(state)
    other.train_epoch()  # whose training must not touch what the others branch from
    branch.load_state_dict(state)
    for _ in range(4):
        alone.train_epoch()
    for _ in range(2):
        branch.train_epoch()
    ours, theirs = branch.state_dict(), alone.state_dict()
    for part in ("model", "optimiser", "test_error", "train_error"):
        assert same(ours[part], theirs[part]), part
    for part in ("history", "scores", "num_skipped"):
        assert same(ours["biases"][method][part], theirs["biases"][method][part]), part


def test_the_loop_is_the_one_of_the_readme():
    recipe = replace(get_recipe("digits"), epochs=3, burn_in=1, batch_size=32, noise=None).limited(200)
    data = prepare(recipe, load_data(recipe), seed=5, device=CPU)
    run = build_run(recipe, data, [ab.get_method("wpv")], seed=5)
    model = recipe.model(data.dataset, derived_generator(5, "weights"))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    bias = ab.ActiveBias("wpv", num_instances=200, num_classes=10, burn_in=1, seed=derived_seed(5, "order"))
    samples = torch.utils.data.TensorDataset(data.train.inputs[0], data.train.targets)
    loader = torch.utils.data.DataLoader(
        ab.with_index(samples), batch_size=32, sampler=bias.sampler(batch_size=32), drop_last=True
    )
    for epoch in range(3):
        run.train_epoch()
        bias.set_epoch(epoch)
        for index, (inputs, targets) in loader:
            optimiser.zero_grad()
            bias.loss(model(inputs), targets, index).backward()
            optimiser.step()
    for ours, theirs in zip(run.model.parameters(), model.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)
    # 200 // 32 = 6 batches an epoch: 192 visits, and the entry that every history begins with.
    assert int(run.biases["wpv"].history.values()[1].sum()) == 200 + 3 * 192


def test_a_shared_run_does_not_go_beyond_the_burn_in():
    recipe = replace(get_recipe("digits"), burn_in=1).limited(150)
    data = prepare(recipe, load_data(recipe), seed=0, device=CPU)
    run = build_run(recipe, data, [ab.get_method("scan"), ab.get_method("wd")], seed=0)
    run.train_epoch()
    with pytest.raises(RuntimeError, match="burn-in ended after epoch 1: branch"):
        run.train_epoch()
    with pytest.raises(ValueError, match="all scanning or all drawing"):
        build_run(recipe, data, [ab.get_method("scan"), ab.get_method("sd")], seed=0)
    with pytest.raises(ValueError, match="no history of wpv"):
        build_run(recipe, data, [ab.get_method("wpv")], seed=0).load_state_dict(run.state_dict())


def test_methods_of_a_trial_share_weights_noise_and_burn_in(tmp_path):
    recipe = lab_worker.small_recipe()
    results = curves(
        run_trials(recipe, methods=["scan", "wd", "wpv", "uni", "sd"], seeds=[1], place=Place(tmp_path))
    )
    assert results["scan"][0][:3] == results["wd"][0][:3] == results["wpv"][0][:3]
    assert results["uni"][0][:3] == results["sd"][0][:3]
    assert len({result for result, _ in results.values()}) == 5


def test_trials_differ_in_noise_weights_and_order():
    recipe = replace(get_recipe("digits"), noise=Noise("uniform_other", 0.2))
    dataset = load_data(recipe)
    first, second = (prepare(recipe, dataset, seed=seed, device=CPU) for seed in (0, 1))
    assert (first.train.targets != second.train.targets).float().mean() > 0.2
    runs = [
        build_run(recipe, data, [ab.get_method("scan")], seed=k) for k, data in enumerate((first, second))
    ]
    assert not torch.equal(*(next(run.model.parameters()) for run in runs))
    orders = []
    for run in runs:
        bias = run.biases["scan"]
        bias.set_epoch(0)
        orders.append(list(bias.sampler(batch_size=10)))
    assert orders[0] != orders[1]


def test_the_global_random_state_is_left_alone(tmp_path):
    torch.manual_seed(7)
    before = torch.get_rng_state()
    run_trials(lab_worker.small_recipe().shortened(2), methods=["spv"], seeds=[0], place=Place(tmp_path))
    assert torch.equal(torch.get_rng_state(), before)


def test_nothing_is_computed_twice(tmp_path):
    recipe, place = lab_worker.small_recipe(), Place(tmp_path)
    assert epochs_to_train(recipe, ["scan", "wpv", "spv"], [0, 1], place) == 2 * (2 * 3 + 3 * 3)
    first = run_trials(recipe, methods=["scan", "spv"], seeds=[0], place=place)
    epochs = []
    listener = Listener(on_epoch=epochs.append)
    assert epochs_to_train(recipe, ["scan", "wpv", "spv"], [0], place) == 6
    both = run_trials(recipe, methods=["scan", "wpv", "spv"], seeds=[0], place=place, listener=listener)
    assert {done.method for done in epochs} == {None, "wpv"}
    assert len(epochs) == 6
    assert [result for result in both if result.method != "wpv"] == first
    assert run_trials(recipe, methods=["scan"], seeds=[0], place=place, listener=listener) == first[:1]
    assert len(epochs) == 6
    assert not list(tmp_path.glob("checkpoints/*"))


# Side by side methods' epochs are over together: 3 of the burn-in, then 2 at a time; then the other order.
@pytest.mark.parametrize(
    ("num_epochs", "in_the_middle", "side_by_side"),
    [(2, False, 1), (4, True, 1), (10, True, 1), (2, False, None), (5, True, None), (12, True, None)],
)
def test_a_killed_run_goes_on_as_if_nothing_had_happened(
    tmp_path, whole, num_epochs, in_the_middle, side_by_side
):
    process = start(lab_worker.run_and_die, tmp_path / "killed", num_epochs, in_the_middle, side_by_side)
    process.join(120)
    assert process.exitcode == -9
    seen = []
    resumed = lab_worker.run(tmp_path / "killed", Listener(on_epoch=seen.append), side_by_side)
    total = epochs_to_train(lab_worker.small_recipe(), lab_worker.METHODS, [0], Place(tmp_path / "nowhere"))
    assert len(seen) == total - num_epochs
    for method, errors in curves(resumed).items():
        for ours, theirs in zip(errors, whole[side_by_side][method], strict=True):
            assert ours == theirs
    assert not list((tmp_path / "killed" / "checkpoints").iterdir())


def test_a_damaged_checkpoint_only_costs_its_epochs(tmp_path, whole, caplog):
    recipe, place = lab_worker.small_recipe(), Place(tmp_path)
    path = place.checkpoint(recipe, 0, "scan").path
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half a file")
    results = run_trials(recipe, methods=["scan"], seeds=[0], place=place)
    assert "cannot be read" in caplog.text
    assert curves(results)["scan"] == whole[1]["scan"]


@pytest.mark.parametrize("epoch", [2, 5])  # in the burn-in, and after it
def test_a_stopped_run_of_another_release_begins_again(tmp_path, whole, caplog, epoch):
    recipe, place = lab_worker.small_recipe(), Place(tmp_path, interval=0.0, side_by_side=1)

    def stop(done):
        if done.epoch == epoch:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_trials(recipe, methods=["scan"], seeds=[0], place=place, listener=Listener(on_epoch=stop))
    for path in place.checkpoint_files(recipe, "*.pt"):
        state = torch.load(path, weights_only=True)
        for bias in state["biases"].values():
            bias["format"] -= 1
        torch.save(state, path)
    results = run_trials(recipe, methods=["scan"], seeds=[0], place=place)
    assert "is of another release: training begins again" in caplog.text
    assert curves(results)["scan"] == whole[1]["scan"]
    assert not list((tmp_path / "checkpoints").iterdir())


def test_another_process_may_write_beside_a_checkpoint_that_is_removed(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path / "trial" / "own.pt")
    checkpoint.write({})
    other = tmp_path / "trial" / "other.pt"
    other.touch()
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter(()))  # as it was a moment ago
    checkpoint.remove()
    assert other.exists()
    assert not checkpoint.path.exists()


def test_a_burn_in_of_other_methods_is_not_taken(tmp_path, whole):
    recipe, place = lab_worker.small_recipe(), Place(tmp_path, interval=0.0)

    def stop(done):
        if done.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_trials(recipe, methods=["scan"], seeds=[0], place=place, listener=Listener(on_epoch=stop))
    results = run_trials(recipe, methods=["wpv"], seeds=[0], place=place)
    assert curves(results)["wpv"] == whole[1]["wpv"]


@pytest.mark.parametrize("side_by_side", [1, 4])
def test_a_stopped_run_of_another_rule_is_not_gone_on_with(tmp_path, side_by_side):
    place = Place(tmp_path, interval=0.0, side_by_side=side_by_side)
    emphasises = ab.Method("mine", statistic=lambda e: e.variance, weights="emphasis")
    does_not = ab.Method("mine", statistic=emphasises.statistic)

    def stop(done):
        if done.epoch == 5:
            raise KeyboardInterrupt

    def train(method, listener=None):
        arguments = {"seeds": [0, 1], "place": place, "listener": listener}
        return run_trials(lab_worker.small_recipe(), methods=[method], **arguments)

    with pytest.raises(KeyboardInterrupt):
        train(emphasises, Listener(on_epoch=stop))
    assert list(tmp_path.glob("checkpoints/*/*mine*" if side_by_side == 1 else "checkpoints/*/side*"))
    same = [result.test_error for result in train(does_not)]
    assert same == [result.test_error for result in train("scan")]


def test_batches_must_fit_the_data(tmp_path):
    with pytest.raises(
        ValueError, match="Expected `batch_size` to be at most the number of training examples, 50"
    ):
        run_trials(get_recipe("digits").limited(50), methods=["scan"], seeds=[0], place=Place(tmp_path))


@pytest.mark.parametrize("seeds", [[0, -1], [0, True], [1.0], ["0"], [None], [torch.tensor(1.5)]])
def test_seeds_are_checked_before_anything_is_trained(tmp_path, seeds):
    def trained(done):
        raise AssertionError("trained first")

    with pytest.raises(ValueError, match="Expected `seeds` to be integers of at least 0"):
        run_trials(
            lab_worker.small_recipe().shortened(2),
            methods=["scan"],
            seeds=seeds,
            place=Place(tmp_path),
            listener=Listener(on_epoch=trained),
        )


@pytest.mark.parametrize(
    "make", [lambda: torch.arange(2).numpy(), lambda: iter([0, 1, 0]), lambda: {0: 1, 1: 2}]
)
def test_seeds_of_any_kind(tmp_path, make):
    results = run_trials(
        lab_worker.small_recipe().shortened(2), methods=["scan"], seeds=make(), place=Place(tmp_path)
    )
    assert [result.seed for result in results] == [0, 1]


@pytest.mark.parametrize("side_by_side", [None, 1])
def test_a_teacher_does_not_see_the_validation_part(tmp_path, side_by_side):
    teacher = replace(lab_worker.small_recipe(), name="digits-teacher")
    taught = replace(lab_worker.small_recipe(), name="digits-taught", teacher=teacher).holding_out(0.2)
    assert taught.teacher.validation == 0.2
    place = Place(tmp_path, side_by_side=side_by_side)
    results = run_trials(taught, methods=["scan", "auto"], seeds=[0], place=place)
    assert all(len(result.validation_error) == taught.epochs for result in results)
    assert results[0].test_error != results[1].test_error
    assert taught.holding_out(None).config() == replace(taught, validation=None, teacher=teacher).config()
    dataset = load_data(taught)
    with pytest.raises(ValueError, match=r"240 training examples, but got one of 300: .*holding_out"):
        prepare(taught, dataset, seed=0, device=CPU, teacher=torch.rand(300, 10))

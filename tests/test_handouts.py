"""A batch that comes back is compared with the batches handed out: mistakes in a loop are right, or named."""

import copy
import itertools

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset

import activebias as ab
from processes import finish, start
from rank_worker import run
from training import digits, make_bias, make_loader

NOT_HANDED_OUT = r"came back, but .* was handed out.*with_index\(ConcatDataset"


def visits(bias):
    """How many visits the histories hold."""
    return int(bias.history.values()[1].sum()) - bias.num_instances


def record(bias, index):
    bias.record(index, torch.full((len(index),), 0.25))


def record_all(bias, loader):
    for index, _ in loader:
        record(bias, index)


def past_burn_in(method, num_instances=64, **options):
    """A bias whose instances differ in their scores."""
    bias = make_bias(method, num_instances=num_instances, **options)
    bias.set_epoch(0)
    bias.record(torch.arange(num_instances), torch.linspace(0, 1, num_instances))
    bias.set_epoch(1)
    return bias


# 1: a sampler made before the ranks are known


def sampler_before_the_ranks(folder, rank):
    bias = make_bias("scan", num_instances=32)
    early = bias.sampler(batch_size=4)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    bias.set_epoch(0)
    with pytest.raises(RuntimeError, match=r"made for 1 rank\(s\), but 2 train.*init_process_group"):
        next(iter(early))
    late = torch.tensor(list(bias.sampler(batch_size=4)))
    gathered = [torch.empty_like(late) for _ in range(2)]
    dist.all_gather(gathered, late)
    assert sorted(torch.cat(gathered).tolist()) == list(range(32))
    # Each rank has the whole order where something else shards it.
    assert sorted(bias.sampler(batch_size=4, shard=False)) == list(range(32))
    (folder / f"{rank}").touch()
    dist.barrier()


def test_a_sampler_made_before_the_ranks_are_known_is_refused(tmp_path):
    finish(*(start(sampler_before_the_ranks, tmp_path, rank) for rank in range(2)))
    assert sorted(file.name for file in tmp_path.iterdir() if file.name in "01") == ["0", "1"]


# 2: two samplers


def test_a_second_sampler_does_not_change_the_steps_of_the_first_loader():
    bias = make_bias("wpv", num_instances=256)
    loader = make_loader(bias, batch_size=32)
    bias.sampler(batch_size=256)
    bias.set_epoch(0)
    for number, (index, _) in enumerate(loader, 1):
        record(bias, index)
        assert visits(bias) == 32 * number


def test_two_loaders_of_one_epoch_share_its_instances():
    bias = make_bias("scan", num_instances=64)
    first, second = make_loader(bias, batch_size=16), make_loader(bias, batch_size=8)
    bias.set_epoch(0)
    seen = []
    for loader, number in ((first, 2), (second, 4)):
        for index, _ in itertools.islice(loader, number):
            record(bias, index)
            seen += index.tolist()
    assert sorted(seen) == list(range(64))


# 3, 4 and 6: iterators that only look


@pytest.mark.parametrize("method", ["scan", "uni", "spv", "isd"])
@pytest.mark.parametrize("looks", [1, 3, 20])
def test_iterators_that_only_look_change_nothing(method, looks):
    results = []
    for look in (False, True):
        bias = past_burn_in(method)
        loader, trained = make_loader(bias, batch_size=8), []
        for number, (index, _) in enumerate(loader):
            if look and number in (0, 3):
                for _ in range(looks):
                    list(loader)
                    next(iter(loader))
            bias.record(index, torch.linspace(0, 1, 8))
            trained += index.tolist()
        results.append((trained, bias.scores.tolist(), visits(bias)))
    assert results[0] == results[1]


def test_draws_follow_the_scores_after_the_whole_epoch_was_looked_at():
    bias = ab.ActiveBias("sd", num_instances=200, num_classes=2, window=1, remove_outliers=False)
    bias.set_epoch(0)
    bias.record(torch.arange(200), torch.ones(200))
    sampler = bias.sampler(batch_size=50)
    assert len(list(sampler)) == 200
    order = iter(sampler)
    index = torch.tensor([next(order) for _ in range(50)])
    hard = index[0]
    bias.record(index, (index != hard).float())
    following = [next(order) for _ in range(50)]
    assert following.count(int(hard)) > 10  # its P is one half


def test_two_iterators_of_one_loader_both_come_to_their_end():
    bias = past_burn_in("spv")
    loader = make_loader(bias, batch_size=16)
    older, newer = iter(loader), iter(loader)
    batches = [next(older)[0], next(newer)[0]]
    for index in batches[:1]:
        record(bias, index)
    assert len(list(older)) == len(list(newer)) == 3


def test_an_older_iterator_goes_on_after_a_newer_one_was_trained_on():
    bias = make_bias("scan", num_instances=64)
    loader = make_loader(bias, batch_size=16)
    bias.set_epoch(0)
    older, newer = iter(loader), iter(loader)
    first, again = next(older)[0], next(newer)[0]
    assert torch.equal(first, again)
    record(bias, again)
    record(bias, next(newer)[0])
    next(older)  # the second batch, trained on through the newer iterator
    record(bias, next(older)[0])
    record(bias, next(older)[0])
    assert visits(bias) == 64


def test_looking_in_the_middle_of_an_accumulated_step_drops_no_visits():
    bias = make_bias("wpv", num_instances=64)
    inputs, targets = digits(64)
    data = ab.with_index(TensorDataset(inputs, targets))
    loader = DataLoader(data, batch_size=4, sampler=bias.sampler(batch_size=16))
    bias.set_epoch(0)
    for number, (index, _) in enumerate(loader):
        record(bias, index)
        if number % 4 == 1:
            next(iter(loader))
    assert visits(bias) == 64


def test_a_step_that_is_left_and_begun_again_counts_once():
    bias = make_bias("wpv", num_instances=32)
    sampler = bias.sampler(batch_size=16)
    bias.set_epoch(0)
    order = iter(sampler)
    record(bias, [next(order) for _ in range(4)])
    for index in torch.tensor(list(sampler)).split(4):  # after a break: the whole step comes again
        record(bias, index)
    assert bias.history.values()[1].sum(1).tolist() == [2] * 32


# 5: what comes back is not what was handed out


def strangers():
    inputs, targets = digits(64)
    whole, half = TensorDataset(inputs, targets), torch.arange(32)
    parts = [ab.with_index(Subset(whole, half.tolist())), ab.with_index(Subset(whole, (half + 32).tolist()))]
    permuted = torch.randperm(64, generator=torch.Generator().manual_seed(0)).tolist()
    return ConcatDataset(parts), Subset(ab.with_index(whole), permuted)


@pytest.mark.parametrize("method", ["wpv", "spv"])
@pytest.mark.parametrize("case", [0, 1])
def test_an_index_of_an_inner_data_set_is_refused(method, case):
    bias = past_burn_in(method)
    loader = DataLoader(strangers()[case], batch_size=16, sampler=bias.sampler(batch_size=16))
    with pytest.raises(ValueError, match=NOT_HANDED_OUT):
        record_all(bias, loader)


@pytest.mark.parametrize("method", ["wpv", "spv"])
def test_the_outermost_data_set_with_an_index_is_right(method):
    inputs, targets = digits(64)
    whole = TensorDataset(inputs, targets)
    permuted = torch.randperm(64, generator=torch.Generator().manual_seed(0)).tolist()
    for data in (
        ConcatDataset([Subset(whole, range(32)), Subset(whole, range(32, 64))]),
        Subset(whole, permuted),
    ):
        bias = past_burn_in(method)
        loader = DataLoader(ab.with_index(data), batch_size=16, sampler=bias.sampler(batch_size=16))
        for index, (x, _) in loader:
            assert torch.equal(x, torch.stack([data[i][0] for i in index]))
            record(bias, index)
        assert visits(bias) == 128


def test_positions_in_the_batch_are_no_index_and_a_batch_comes_back_once():
    bias = past_burn_in("wpv")
    index, _ = next(iter(make_loader(bias, batch_size=16)))
    logits, targets = torch.randn(16, 10), torch.zeros(16, dtype=torch.int64)
    before = bias.scores
    with pytest.raises(ValueError, match=NOT_HANDED_OUT):
        bias.loss(logits, targets, torch.arange(16))
    bias.weight(torch.arange(16))  # looking is free
    assert torch.equal(bias.scores, before)
    bias.loss(logits, targets, index)
    with pytest.raises(ValueError, match="every batch handed out has come back already"):
        bias.loss(logits, targets, index)


@pytest.mark.parametrize("method", ["wpv", "sd"])
def test_batches_of_a_finished_loop_may_be_trained_on_after_a_look(method):
    """The loop's iterator is gone, and another one handed out last."""
    bias = past_burn_in(method)
    loader = make_loader(bias, batch_size=16)
    batches = [index for index, _ in loader]
    next(iter(loader))
    for index in batches:
        record(bias, index)
    assert visits(bias) == 128


def test_buffers_may_be_used_again_before_the_step_is_complete():
    """The visits of the first parts of a step wait: they must not change with the caller's tensors."""
    bias = make_bias("wpv", num_instances=64)
    bias.set_epoch(0)
    index, prob = torch.empty(8, dtype=torch.int64), torch.empty(8)
    for part in torch.tensor(list(bias.sampler(batch_size=32))).split(8):
        bias.record(index.copy_(part), prob.copy_((1 + part) / 100))
    torch.testing.assert_close(bias.history.latest(torch.arange(64)), (1 + torch.arange(64)) / 100)


def test_two_loops_that_both_train_are_refused():
    """The batches of the loop that is behind count as trained on: the other loop went past them."""
    bias = past_burn_in("wpv")
    behind, ahead = (iter(make_loader(bias, batch_size=size)) for size in (16, 48))
    record(bias, next(behind)[0])
    index, _ = next(behind)
    record(bias, next(ahead)[0])
    with pytest.raises(ValueError, match="another loop over the epoch went past it: train in one loop"):
        record(bias, index)


def test_a_batch_larger_than_the_step_is_refused():
    bias = make_bias("wpv", num_instances=64)
    inputs, targets = digits(64)
    data = ab.with_index(TensorDataset(inputs, targets))
    bias.set_epoch(0)
    for batch_size in (64, 24):  # 24 does not divide 32
        loader = DataLoader(data, batch_size=batch_size, sampler=bias.sampler(batch_size=32))
        with pytest.raises(ValueError, match=r"batch_size|came back"):
            record_all(bias, loader)


@pytest.mark.parametrize("skipped", [0, 1, 3, 4, 5])
def test_a_skipped_micro_batch_leaves_the_steps_where_they_are(skipped):
    bias = make_bias("wpv", num_instances=64)
    inputs, targets = digits(64)
    data = ab.with_index(TensorDataset(inputs, targets))
    loader = DataLoader(data, batch_size=4, sampler=bias.sampler(batch_size=16))
    bias.set_epoch(0)
    for number, (index, _) in enumerate(loader):
        if number == skipped:
            continue
        record(bias, index)
        if number > skipped and number % 4 == 3:  # the step is complete: its visits are in
            assert visits(bias) == 4 * number
    bias.set_epoch(1)
    assert visits(bias) == 60


@pytest.mark.parametrize("method", ["wpv", "spv"])
def test_a_skipped_batch_before_a_resume_is_not_trained_on_and_no_other_comes_twice(method):
    bias = past_burn_in(method)
    order = torch.tensor(list(bias.sampler(batch_size=8))).split(8)
    for number in (0, 1, 3, 4):
        record(bias, order[number])
    again = make_bias(method, num_instances=64)
    again.load_state_dict(bias.state_dict())
    again.set_epoch(1)
    rest = torch.tensor(list(again.sampler(batch_size=8))).split(8)
    assert len(rest) == 3
    assert all(torch.equal(*pair) for pair in zip(rest, order[5:], strict=True))


# 9: a pass that does not train


def test_a_pass_over_the_same_loader_after_an_epoch_is_told_what_to_do():
    bias = make_bias("wpv", num_instances=64)
    loader = make_loader(bias, batch_size=16)
    bias.set_epoch(0)
    for index, _ in loader:
        record(bias, index)
    with pytest.raises(RuntimeError, match=r"set_epoch\(1\).*training accuracy, needs a loader of its own"):
        list(loader)


# 10: smaller ones


def test_a_large_weight_does_not_overflow_half_precision():
    bias = ab.ActiveBias("wtc", num_instances=200_000, num_classes=2, window=1, remove_outliers=False)
    bias.set_epoch(0)
    for part in torch.arange(200_000).split(50_000):
        bias.record(part, torch.ones(50_000))
    bias.record([0], [0.5])
    assert bias.weight([0]) > 65_504
    loss = bias.weigh(torch.ones(1, dtype=torch.float16, requires_grad=True), [0.5], [0])
    assert loss.isfinite()
    loss.backward()


def copy_with_a_group(rank, num_ranks):
    bias = ab.ActiveBias("wpv", num_instances=8, num_classes=2, group=dist.new_group([0, 1]))
    other = copy.deepcopy(bias)
    for one in (bias, other):
        one.set_epoch(0)
        one.record([rank], [0.25])
    return {"visits": [visits(bias), visits(other)]}


def test_a_bias_with_a_process_group_can_be_copied(tmp_path):
    finish(*(start(run, copy_with_a_group, tmp_path, rank, 2) for rank in range(2)))
    for rank in range(2):
        assert (tmp_path / f"{rank}.json").read_text() == '{"visits": [2, 2]}'


def test_images_of_logits_are_refused_whatever_their_sides():
    bias = ab.ActiveBias("wpv", num_instances=64, num_classes=4)
    bias.set_epoch(0)
    with pytest.raises(ValueError, match=r"one or two dimensions.*permute"):
        bias.loss(
            torch.randn(2, 4, 4, 4), torch.zeros(2, 4, 4, dtype=torch.int64), torch.arange(32).view(2, 4, 4)
        )


@pytest.mark.parametrize("method", ["spv", "uni"])
def test_another_batch_size_after_a_resume_draws_no_short_step(method):
    """As on another number of ranks: three steps of 16 are under way, and go on as steps of 32."""
    bias = past_burn_in(method, num_instances=128)
    order = iter(bias.sampler(batch_size=16))
    batches = [[next(order) for _ in range(16)] for _ in range(4)]
    record(bias, batches[0])
    again = make_bias(method, num_instances=128)
    again.load_state_dict(bias.state_dict())
    again.set_epoch(1)
    handed_out = again._order.hand_out(again.sampler(batch_size=32).plan)
    sizes = [len(step) for step in handed_out]
    assert sizes == [32, 32, 32, 16]
    assert list(again.sampler(batch_size=32))[:48] == list(itertools.chain(*batches[1:]))


def test_compiling_the_whole_step_names_the_fix():
    torch.compiler.reset()
    bias = past_burn_in("wpv")

    @torch.compile(backend="eager", fullgraph=True)
    def step(logits, targets, index):
        return bias.loss(logits, targets, index)

    bias.set_epoch(2)
    with pytest.raises(Exception, match=r"`model = torch\.compile\(model\)`"):
        step(torch.randn(2, 10), torch.tensor([0, 1]), torch.tensor([0, 1]))


def test_numbers_passed_over_are_the_numbers_drawn():
    """A new iterator passes over the draws of the steps that were trained on, in other portions."""
    for draw in (
        lambda number, generator: torch.rand(number, dtype=torch.float64, generator=generator),
        lambda number, generator: torch.randint(1000, (number,), generator=generator),
    ):
        parts, whole = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)
        together = np.concatenate([draw(number, parts).numpy() for number in (7, 64, 1, 200)])
        assert np.array_equal(together, draw(272, whole).numpy())
        assert torch.equal(parts.get_state(), whole.get_state())

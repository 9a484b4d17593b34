"""A bias that was pickled or deep-copied, as scikit-learn and joblib do it, goes on like the original."""

import copy
import pickle

import pytest
import torch

import activebias as ab


@pytest.mark.parametrize("method", ["wtc", "spv", "scan"])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda bias: pickle.loads(pickle.dumps(bias))])
def test_a_copy_goes_on_like_the_original(method, duplicate):
    bias = ab.ActiveBias(method, num_instances=20, num_classes=2)
    sampler = bias.sampler(batch_size=4)
    bias.set_epoch(0)
    batches = iter(sampler)
    bias.record([next(batches) for _ in range(4)], torch.linspace(0.1, 0.9, 4))
    other = duplicate(bias)
    rest = []
    for one in (bias, other):
        batches = iter(one.sampler(batch_size=4))
        one.record([next(batches) for _ in range(4)], [0.2, 0.3, 0.9, 0.6])
        rest.append(list(one.sampler(batch_size=4)))
    assert rest[0] == rest[1]
    assert torch.equal(bias.history.values()[0], other.history.values()[0])
    assert torch.equal(bias.scores, other.scores)
    # The copy has a memory of its own.
    other.record(rest[1][:4], [0.5, 0.5, 0.5, 0.5])
    assert not torch.equal(bias.history.values()[1], other.history.values()[1])


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda bias: pickle.loads(pickle.dumps(bias))])
@pytest.mark.parametrize("has_callback", [False, True])
def test_the_sampler_of_a_copy_is_told_the_epoch(duplicate, has_callback):
    """Trainers tell a sampler the epoch; Lightning's callback has left its mark in the original."""
    bias = ab.ActiveBias("wtc", num_instances=8, num_classes=2)
    bias._order.has_callback = has_callback
    sampler = duplicate(bias).sampler(batch_size=4)
    sampler.set_epoch(0)
    assert sampler.order.has_callback == has_callback
    assert sorted(sampler) == list(range(8))

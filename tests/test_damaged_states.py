"""A state with a value that no state has is refused, and nothing changes."""

import random

import pytest
import torch

from training import make_bias

NAN = float("nan")


def visits_waiting(index, prob):
    return {"index": torch.tensor(index), "prob": torch.tensor(prob)}


DAMAGES = {
    "scores": lambda state: state["scores"]["values"].fill_(NAN),
    "scores without names": lambda state: state.update(scores=torch.zeros(3)),
    "their sum": lambda state: state["scores"]["total"].fill_(NAN),
    "entries": lambda state: state["history"]["values"][3].fill_(NAN),
    "counts": lambda state: state["history"]["count"].fill_(100),
    "skipped": lambda state: state["num_skipped"].fill_(-1),
    "waiting index": lambda state: state.update(waiting=visits_waiting([1.0], [0.5])),
    "waiting prob": lambda state: state.update(waiting=visits_waiting([1], [NAN])),
    "waiting outside": lambda state: state.update(waiting=visits_waiting([32], [0.5])),
    "position": lambda state: state["order"].update(position=-1),
    "position beyond": lambda state: state["order"].update(position=33),
    "position NaN": lambda state: state["order"].update(position=NAN),
    "come": lambda state: state["order"].update(come=-1),
    "draws": lambda state: state["order"].update(pending=torch.zeros(1)),
    "draws outside": lambda state: state["order"].update(pending=torch.tensor([32])),
    "too many draws": lambda state: state["order"].update(pending=torch.zeros(33, dtype=torch.int64)),
    "generator": lambda state: state["order"].update(generator=torch.zeros(5056, dtype=torch.uint8)),
    "order": lambda state: state.update(order=[]),
    "no warning": lambda state: state["validation"].pop("has_warned"),
    "warning": lambda state: state["validation"].update(has_warned=None),
    "error": lambda state: state["validation"].update(latest=NAN),
    "burn-in": lambda state: state["validation"].update(burn_in_end=-1),
}


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_value_is_refused_and_nothing_changes(damage, window):
    other, bias = (make_bias("spv", num_instances=32, window=window) for _ in range(2))
    other.set_epoch(0)
    other.record(torch.arange(32), torch.linspace(0, 1, 32))
    state = other.state_dict()
    damage(state)
    bias.set_epoch(0)
    bias.record([1], [0.9])
    bias.set_epoch(1)
    expected, scores = list(bias.sampler(batch_size=8)), bias.scores
    with pytest.raises(ValueError, match="damaged or does not fit"):
        bias.load_state_dict(state)
    assert bias.epoch == 1
    assert torch.equal(bias.scores, scores)
    assert bias.history.values()[1].sum().item() == 33
    assert list(bias.sampler(batch_size=8)) == expected


@pytest.mark.parametrize("window", [None, 2, 3, 200])
@pytest.mark.parametrize("num_visits", [0, 1, 2, 3, 5, 7])
def test_every_state_that_a_bias_gives_is_taken(window, num_visits):
    bias, again = (make_bias("wpv", num_instances=4, window=window) for _ in range(2))
    bias.set_epoch(0)
    for _ in range(num_visits):
        bias.record([0, 1], [0.5, 1.0])
    again.load_state_dict(bias.state_dict())
    assert torch.equal(again.history.values()[0], bias.history.values()[0])


def content(value):
    """Return a state with every tensor as bytes, to compare."""
    if isinstance(value, dict):
        return {name: content(each) for name, each in value.items()}
    return value.numpy().tobytes() if isinstance(value, torch.Tensor) else value


def test_a_file_with_a_flipped_bit_is_refused_or_read_whole(tmp_path):
    """torch reads damaged numbers without a word; the zip's checksums tell."""
    bias = make_bias("wpv", num_instances=64)
    bias.set_epoch(0)
    bias.record(torch.arange(64), torch.linspace(0.1, 0.9, 64))
    path = tmp_path / "bias.pt"
    bias.save(path)
    whole, expected = path.read_bytes(), content(bias.state_dict())
    generator, num_refused = random.Random(0), 0
    for _ in range(150):
        damaged = bytearray(whole)
        damaged[generator.randrange(len(whole))] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        again = make_bias("wpv", num_instances=64)
        try:
            again.load(path)
        except ValueError:
            num_refused += 1
            assert again.epoch is None
        else:
            assert content(again.state_dict()) == expected
    assert num_refused > 50


@pytest.mark.skipif(
    not hasattr(torch.serialization, "set_crc32_options"), reason="before torch 2.6 they are always written"
)
def test_checksums_are_written_even_where_torch_was_told_not_to(tmp_path):
    bias = make_bias("wpv", num_instances=4)
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        bias.save(tmp_path / "bias.pt")
        assert not torch.serialization.get_crc32_options()
    finally:
        torch.serialization.set_crc32_options(before)
    bias.load(tmp_path / "bias.pt")

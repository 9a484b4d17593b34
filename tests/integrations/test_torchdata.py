"""torchdata's StatefulDataLoader resumes mid-epoch, by what was recorded."""

import pytest
import torch

import activebias as ab

pytest.importorskip("torchdata", reason="torchdata is not installed: pip install 'activebias[torchdata]'")

from torchdata.stateful_dataloader import StatefulDataLoader

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*use of fork\\(\\) may lead to deadlocks:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),  # torchdata 0.11 calls it
]


def make(method: str, num_workers: int) -> tuple[ab.ActiveBias, StatefulDataLoader]:
    bias = ab.ActiveBias(method, num_instances=30, num_classes=2)
    sampler = bias.sampler(batch_size=4)
    return bias, StatefulDataLoader(range(30), batch_size=4, sampler=sampler, num_workers=num_workers)


def train(bias, loader, epochs, stop_after=None) -> list[list[int]]:
    seen = []
    for epoch in epochs:
        bias.set_epoch(epoch)
        for index in loader:
            bias.record(index, (index * 7 % 10 + epoch) / 20)
            seen.append(index.tolist())
            if len(seen) == stop_after:
                return seen
    return seen


# Draws that were prefetched lag by what depends on when a run began: with workers only a scan repeats.
@pytest.mark.parametrize(("method", "num_workers"), [("wpv", 0), ("wpv", 2), ("spv", 0)])
def test_only_the_batches_not_yet_trained_on_come(method, num_workers):
    whole = train(*make(method, num_workers), range(3))
    bias, loader = make(method, num_workers)
    first = train(bias, loader, range(3), stop_after=11)
    states = bias.state_dict(), loader.state_dict()
    bias, loader = make(method, num_workers)
    bias.load_state_dict(states[0])
    loader.load_state_dict(states[1])
    assert first + train(bias, loader, range(bias.epoch, 3)) == whole


def test_both_states_load_without_running_code(tmp_path):
    bias, loader = make("spv", 0)
    train(bias, loader, range(1), stop_after=3)
    torch.save({"bias": bias.state_dict(), "loader": loader.state_dict()}, tmp_path / "state.pt")
    assert set(torch.load(tmp_path / "state.pt", weights_only=True)) == {"bias", "loader"}


def test_example(run_example, plain_accuracy):
    assert run_example("stateful_dataloader.py") == plain_accuracy

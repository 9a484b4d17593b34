"""Peers and learning rates per model on a GPU: a run equals the same run on a CPU, graphs included."""

from dataclasses import replace

import pytest
import torch

from activebias.lab import Optimiser
from activebias.lab.experiment.prepared import prepare
from activebias.lab.experiment.sides import Setting, Side, find_side
from activebias.lab.peers import PEERS
from activebias.lab.side_by_side import Lane, SideBySide, TrialData
from activebias.lab.side_by_side.momentum import HalfPrecisionSGD
from side_by_side_cases import made_up, small

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: run `make test-gpu`"),
]
SEEDS = (3, 8)
CPU = torch.device("cpu")


def side_of(name, rate):
    """Return a side whose peer changes something within a few steps."""
    method, setting = find_side(name)
    if setting.peer is None:
        return Side(method, Setting(rate=rate))
    return Side(method, Setting(setting.peer, 0.9 if name == "ema" else setting.peer.values[-1], rate))


def begin(recipe, dataset, names, device, rates=(1.0, 0.5)):
    prepared = [prepare(recipe, dataset, seed=seed, device=CPU) for seed in SEEDS]
    sides = [side_of(name, rate) for name in names for rate in rates]
    sides.sort(key=lambda side: (side.method.name, side.setting.rank))
    lanes = [Lane(seed, *side) for side in sides for seed in SEEDS]
    return SideBySide.begin(TrialData(recipe, prepared, SEEDS, torch.device(device)), lanes, emphasises=True)


def train(run):
    while run.epoch < run.trials.recipe.epochs:
        run.train_epoch()
    return run


def small_case(name):
    """Return a recipe, its data and sides, so small that a CPU trains them in seconds."""
    recipe, dataset, _ = small(name)
    recipe = replace(recipe, half_precision=False, batch_size=8, epochs=5, validation=0.2)
    if name == "mnist-fc":  # all peers: this net has no kernel of its own to compile
        optimiser = Optimiser("sgd", 0.1, momentum=0.9)
        return replace(recipe, optimiser=optimiser), dataset, ["scan", "wtc", *PEERS, "wtc+sce"]
    return recipe, dataset, ["scan", "elr", "wtc+sce"]  # Adam, whose rates differ between models


def state_of(run, lane):
    """Return the values of a lane that training changes: weights, the peer's memory and average."""
    values = {name: value[lane].detach().cpu() for name, value in run.stack.parameters.items()}
    peer = run.peers.state_dict()[lane]
    values |= {f"average of {name}": value.cpu() for name, value in peer.get("average", {}).items()}
    return values | ({"memory": peer["rows"].cpu()} if "rows" in peer else {})


def share_apart(ours, theirs, tolerance):
    """Return the share of numbers that differ by more than the tolerance; 1 if there are other numbers."""
    if ours.keys() != theirs.keys():
        return 1.0
    near = [
        torch.isclose(ours[key], value, rtol=tolerance, atol=tolerance).flatten()
        for key, value in theirs.items()
    ]
    return 1 - torch.cat(near).float().mean().item()


def assert_equal_runs(ours, theirs, tolerance):
    """Compare runs lane by lane, and make sure that the comparison would see a wrong peer or rate."""
    states = [state_of(theirs, lane) for lane in range(len(theirs.lanes))]
    for lane, side in enumerate(theirs.lanes):
        assert share_apart(state_of(ours, lane), states[lane], tolerance) <= 0.01, side
        others = [
            other for number, other in enumerate(states)
            if number != lane and theirs.lanes[number].seed == side.seed
        ]  # fmt: skip
        assert min(share_apart(states[lane], other, tolerance) for other in others) > 0.02, side
    for own, other in zip(ours.validation_error, theirs.validation_error, strict=True):
        assert (own.cpu() - other).abs().mean() < 5


# On a CPU an error of 1e-6 in the initial weights moves the results by 2e-6 and by 2e-5. cuDNN may round the
# convolutions of qt-cnn to TF32.
@pytest.mark.parametrize(("name", "tolerance"), [("mnist-fc", 5e-4), ("qt-cnn", 2e-3)])
def test_a_gpu_trains_peers_as_a_cpu_does(name, tolerance):
    ours, theirs = (train(begin(*small_case(name), device)) for device in ("cuda", "cpu"))
    assert any(replayed._graph is not None for replayed in ours._replayed.values())
    assert_equal_runs(ours, theirs, tolerance)


def test_peers_learn_in_half_precision():
    recipe, _, _ = small("mnist-cnn")
    recipe = replace(recipe, batch_size=20, epochs=16, optimiser=Optimiser("sgd", 0.02, momentum=0.9))
    names = ["scan", "wtc", *PEERS, "wtc+label-smoothing"]
    run = train(begin(recipe, made_up("digits", count=200), names, "cuda"))
    assert run.stack.half_precision
    assert any(replayed._graph is not None for replayed in run._replayed.values())
    assert all(torch.equal(copy, value.bfloat16()) for value, copy in run.stack.copies.items())
    assert all(value.isfinite().all() for value in run.stack.parameters.values())
    first, last = run.train_error[0], run.train_error[-1]
    learnt = {lane.side.name for lane, was, now in zip(run.lanes, first, last, strict=True) if now < was - 5}
    # The other losses have a smaller slope at first.
    assert learnt >= {
        "scan", "wtc", "ema", "label-smoothing", "infobatch", "importance", "wtc+label-smoothing",
    }  # fmt: skip


def test_half_precision_steps_have_a_rate_per_model():
    generator = torch.Generator("cuda").manual_seed(0)
    values = torch.randn(3, 5001, device="cuda", generator=generator)
    ours = values.clone().requires_grad_()
    copy_ = values.bfloat16().requires_grad_()
    rates = torch.tensor([0.1, 0.3, 1.0], device="cuda")
    optimiser = HalfPrecisionSGD(
        [{"params": [ours], "weight_decay": 5e-4}], {ours: copy_}, rate=rates, momentum=0.9
    )
    theirs = [value.clone().requires_grad_() for value in values]
    references = [
        torch.optim.SGD([each], lr=rate, momentum=0.9, weight_decay=5e-4)
        for each, rate in zip(theirs, rates.tolist(), strict=True)
    ]
    for _ in range(3):
        gradient = torch.randn(values.shape, device="cuda", generator=generator).bfloat16()
        copy_.grad = gradient
        optimiser.step()
        for each, reference, part in zip(theirs, references, gradient.float(), strict=True):
            each.grad = part.clone()
            reference.step()
    torch.testing.assert_close(ours.detach(), torch.stack([each.detach() for each in theirs]))

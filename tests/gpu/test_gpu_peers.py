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


def train(recipe, dataset, names, rates, device, epochs=4):
    prepared = [prepare(recipe, dataset, seed=seed, device=CPU) for seed in SEEDS]
    sides = []
    for name in names:
        method, setting = find_side(name)
        value = setting.peer.values[-1] if setting.peer else 0.0
        sides += [Side(method, Setting(setting.peer, value, rate)) for rate in rates]
    sides.sort(key=lambda side: (side.method.name, side.setting.rank))
    lanes = [Lane(seed, *side) for side in sides for seed in SEEDS]
    run = SideBySide.begin(TrialData(recipe, prepared, SEEDS, torch.device(device)), lanes, emphasises=True)
    for _ in range(epochs):
        run.train_epoch()
    return run


@pytest.mark.parametrize("name", ["qt-cnn", "mnist-cnn", "cifar100-rn27"])
def test_a_gpu_trains_peers_as_a_cpu_does(name):
    recipe, dataset, _ = small(name)
    recipe = replace(recipe, half_precision=False, batch_size=4, validation=0.2)
    if name == "mnist-cnn":  # see test_side_by_side.py: at larger rates rounding errors grow
        recipe = replace(recipe, optimiser=Optimiser("sgd", 1e-4, momentum=0.9, factor=0.1, milestones=(2,)))
    # A rounding error may exchange two losses that are all but equal, and importance draws by them.
    exact = [each for each in PEERS if each not in ("importance", "infobatch")]
    names = ["scan", "wtc", *exact, "wtc+sce"]
    ours, theirs = (train(recipe, dataset, names, (1.0, 0.5), device) for device in ("cuda", "cpu"))
    assert any(replayed._graph is not None for replayed in ours._replayed.values())
    for key, value in theirs.stack.parameters.items():
        near = torch.isclose(ours.stack.parameters[key].cpu(), value, rtol=5e-3, atol=5e-3)
        assert (~near).float().mean() <= 0.01, key
    for own, other in zip(ours.validation_error, theirs.validation_error, strict=True):
        assert (own - other).abs().mean() < 5


@pytest.mark.parametrize("name", ["mnist-cnn", "cifar100-rn27"])
def test_peers_learn_in_half_precision(name):
    recipe, _, _ = small(name)
    dataset = made_up("digits" if name == "mnist-cnn" else "images", count=200)
    recipe = replace(recipe, batch_size=20, epochs=16, optimiser=Optimiser("sgd", 0.02, momentum=0.9))
    run = train(
        recipe, dataset, ["scan", "wtc", *PEERS, "wtc+label-smoothing"], (1.0, 0.5), "cuda", epochs=16
    )
    assert run.stack.half_precision
    assert any(replayed._graph is not None for replayed in run._replayed.values())
    assert all(torch.equal(copy, value.bfloat16()) for value, copy in run.stack.copies.items())
    assert all(value.isfinite().all() for value in run.stack.parameters.values())
    first, last = run.train_error[0], run.train_error[-1]
    learnt = {lane.side.name for lane, was, now in zip(run.lanes, first, last, strict=True) if now < was - 5}
    # The other losses have a smaller slope at first, and an average hardly moves in so few steps.
    assert learnt >= {"scan", "wtc", "label-smoothing", "infobatch", "importance", "wtc+label-smoothing"}


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

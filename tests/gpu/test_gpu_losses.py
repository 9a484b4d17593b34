"""The other losses on a real GPU: the CPU's values, and no waiting for the device."""

import pytest
import torch
from torch.nn import functional as F

import activebias as ab

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

WEIGHT = torch.tensor([0.2, 1.0, 3.0, 0.0, 0.7])
LABELS = torch.randint(5, (32,), generator=torch.Generator().manual_seed(0))
CASES = {
    "plain": ((), LABELS, {}),
    "ignored": ((), torch.where(torch.arange(32) % 5 == 0, -100, LABELS), {}),
    "class weight": ((), LABELS, {"class_weight": WEIGHT}),
    "class weight on the host": ((), LABELS, {"class_weight": WEIGHT.tolist()}),
    "smoothed": ((), LABELS, {"class_weight": WEIGHT, "label_smoothing": 0.1}),
    "sample weight": ((), LABELS, {"sample_weight": torch.linspace(0, 2, 32)}),
    "shares": ((), F.one_hot(LABELS, 5) * 0.8 + 0.04, {}),
    "words": ((3,), LABELS[:, None].repeat(1, 3), {}),
    "sequences": ((3,), LABELS[:, None].repeat(1, 3), {"sequences": True}),
}


def train(device, shape, targets, options, *, multi_label=False):
    """Train three epochs by hand; return losses, gradients, scores and weights on the CPU."""
    words = bool(shape) and not options.get("sequences")
    settings = {"num_classes": 5, "window": 5, "max_weight": 3, "multi_label": multi_label}
    bias = ab.ActiveBias("wpv", num_instances=96 if words else 32, device=device, **settings)
    if not words:
        bias.sampler(batch_size=32)
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(32, *shape, 5, generator=generator).to(device) for _ in range(12)]
    targets, index = targets.to(device), torch.arange(32, device=device)
    index = torch.arange(96, device=device).view(32, 3) if words else index
    options = {name: each.to(device) if torch.is_tensor(each) else each for name, each in options.items()}
    losses = []
    for epoch in range(3):
        bias.set_epoch(epoch)
        if device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")
        for logits in inputs[4 * epoch : 4 * epoch + 4]:
            loss = bias.loss(logits.requires_grad_(), targets, index, **options)
            loss.backward()
            losses.append(loss.detach())
        torch.cuda.set_sync_debug_mode("default")
    gradients = [logits.grad for logits in inputs]
    return [each.cpu() for each in (*losses, *gradients, bias.scores, bias.weights())]


@pytest.mark.parametrize("case", CASES)
def test_a_loss_is_the_cpus_and_waits_for_nothing(case):
    for here, there in zip(train("cpu", *CASES[case]), train("cuda", *CASES[case]), strict=True):
        torch.testing.assert_close(there, here, rtol=1e-4, atol=1e-5)


def test_several_labels_an_example():
    targets = (torch.rand(32, 5, generator=torch.Generator().manual_seed(2)) > 0.5).float()
    results = [train(device, (), targets, {}, multi_label=True) for device in ("cpu", "cuda")]
    for here, there in zip(*results, strict=True):
        torch.testing.assert_close(there, here, rtol=1e-4, atol=1e-5)


def test_the_class_156_in_uint8_is_no_ignored_target():
    logits, labels = torch.randn(8, 200), torch.full((8,), 156)
    bias = ab.ActiveBias("scan", num_instances=8, num_classes=200, device="cuda")
    bias.set_epoch(0)
    given = labels.to(torch.uint8).cuda()
    loss = bias.loss(logits.cuda(), given, torch.arange(8, device="cuda"), label_smoothing=0.1)
    torch.testing.assert_close(loss.cpu(), F.cross_entropy(logits, labels, label_smoothing=0.1))


def test_the_weight_of_an_ignored_target_may_be_anything():
    logits, own = torch.randn(32, 5), torch.linspace(0.1, 2, 32)
    targets = torch.where(torch.arange(32) == 3, -100, LABELS)
    bias = ab.ActiveBias("scan", num_instances=32, num_classes=5, device="cuda")
    bias.set_epoch(0)
    spoilt = torch.where(targets == -100, float("nan"), own).cuda()
    loss = bias.loss(logits.cuda(), targets.cuda(), torch.arange(32, device="cuda"), sample_weight=spoilt)
    each, own = F.cross_entropy(logits, targets, reduction="none"), torch.where(targets == -100, 0, own)
    torch.testing.assert_close(loss.cpu(), (own * each).sum() / own.sum())


def test_binary_targets_may_be_shares():
    logits, shares = torch.randn(8), torch.linspace(0, 1, 8)
    bias = ab.ActiveBias("scan", num_instances=8, num_classes=2, device="cuda")
    bias.set_epoch(0)
    loss = bias.loss(logits.cuda(), shares.cuda(), torch.arange(8, device="cuda"))
    torch.testing.assert_close(loss.cpu(), F.binary_cross_entropy_with_logits(logits, shares))

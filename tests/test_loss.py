"""The loss and its halves: right values, right gradients, right probabilities."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.overrides import TorchFunctionMode

import activebias as ab
from training import digits, make_bias, make_model


def emphasising_bias(method="wpv", num_instances=40, num_classes=10, **options):
    """A bias past its burn-in whose weights differ."""
    bias = ab.ActiveBias(method, num_instances=num_instances, num_classes=num_classes, **options)
    bias.set_epoch(0)
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        bias.record(torch.arange(num_instances), torch.rand(num_instances, generator=generator))
    assert bias.weights().std() > 0.02 or bias.method.weights == "equal"
    return bias


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_class_logits(label_smoothing):
    bias = emphasising_bias()
    logits = torch.randn(8, 10, generator=torch.Generator().manual_seed(0))
    targets, index = torch.arange(8), torch.arange(8) * 3
    each = cross_entropy(logits, targets, reduction="none", label_smoothing=label_smoothing)
    expected = (bias.weight(index) * each).mean()
    loss = bias.loss(logits, targets, index, label_smoothing=label_smoothing)
    torch.testing.assert_close(loss, expected)
    recorded = bias.history.values(index)[0][:, -1]
    torch.testing.assert_close(recorded, logits.softmax(-1)[torch.arange(8), targets])


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
def test_token_logits_with_ignored_tokens(label_smoothing):
    bias = emphasising_bias("wtc")
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, 10, generator=generator)
    targets = torch.randint(10, (3, 5), generator=generator)
    targets[0, 3:] = targets[2, 1:] = -100
    index = torch.arange(15).view(3, 5)
    index[targets == -100] = -1  # padding carries no index
    counted = targets != -100
    each = cross_entropy(logits[counted], targets[counted], reduction="none", label_smoothing=label_smoothing)
    expected = (bias.weight(index[counted]) * each).mean()
    loss = bias.loss(logits, targets, index, label_smoothing=label_smoothing)
    torch.testing.assert_close(loss, expected)
    assert bias.history.values()[1].sum(1).tolist() == [6 if i in index[counted] else 5 for i in range(40)]


def test_a_batch_in_which_every_token_is_ignored_has_loss_zero():
    bias = emphasising_bias()
    logits = torch.randn(2, 3, 10, requires_grad=True)
    loss = bias.loss(logits, torch.full((2, 3), -100), torch.zeros(2, 3, dtype=torch.int64))
    loss.backward()
    assert loss.item() == 0
    assert logits.grad.abs().sum() == 0


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_binary_logits(label_smoothing, dtype):
    bias = emphasising_bias(num_classes=2)
    logits = torch.randn(8, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1], dtype=dtype)
    index = torch.arange(8)
    smooth = targets.float() * (1 - label_smoothing) + label_smoothing / 2
    each = binary_cross_entropy_with_logits(logits, smooth, reduction="none")
    expected = (bias.weight(index) * each).mean()
    torch.testing.assert_close(bias.loss(logits, targets, index, label_smoothing=label_smoothing), expected)
    recorded = bias.history.values(index)[0][:, -1]
    torch.testing.assert_close(recorded, torch.where(targets > 0, logits.sigmoid(), 1 - logits.sigmoid()))


def test_ignored_binary_logits_may_be_nan():
    bias = emphasising_bias(num_classes=2)
    logits = torch.tensor([1.0, float("nan")], requires_grad=True)
    loss = bias.loss(logits, torch.tensor([1, -100]), torch.tensor([0, 1]))
    assert loss.isfinite()


def test_reductions():
    logits, targets, index = torch.randn(8, 10), torch.arange(8), torch.arange(8)
    results = {
        reduction: emphasising_bias().loss(logits, targets, index, reduction=reduction)
        for reduction in ("none", "sum", "mean")
    }
    torch.testing.assert_close(results["none"].sum(), results["sum"])
    torch.testing.assert_close(results["none"].mean(), results["mean"])
    with pytest.raises(ValueError, match="'mean', 'sum' or 'none'"):
        emphasising_bias().loss(logits, targets, index, reduction="median")


def test_losses_that_are_integers_are_not_rounded_again():
    bias = make_bias("wtc", num_instances=4)
    bias.set_epoch(0)
    bias.record([0, 1], [0.9, 0.6])
    bias.set_epoch(1)
    weights = bias.weight([0, 1])
    weighed = bias.weigh(torch.tensor([10, 10]), [0.5, 0.5], [0, 1], reduction="none")
    torch.testing.assert_close(weighed, 10 * weights)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.int16])
def test_targets_of_any_integer_type(dtype):
    bias = make_bias("wpv", num_instances=4)
    bias.set_epoch(0)
    logits = torch.tensor([[2.0] + [0.0] * 9, [0.0] * 10])
    targets = torch.tensor([0, 3])
    expected = cross_entropy(logits, targets)
    torch.testing.assert_close(bias.loss(logits, targets.to(dtype), [0, 1]), expected)


def test_filling_counts_neither_with_ignored_labels_nor_without_a_reduction():
    # Rank 0 of 2 in the last step of 7 instances: it has two of the three that are left.
    def last_step(call):
        bias = ab.ActiveBias("scan", num_instances=7, num_classes=2)
        order = iter(bias.sampler(batch_size=2, num_replicas=2, rank=0))
        bias.set_epoch(0)
        for _ in range(2):
            value = call(bias, [next(order), next(order)])
        return float(value) / math.log(2)

    logits, share = torch.zeros(2, 2), 2 / 1.5
    labels, ignored = torch.tensor([1, 0]), torch.tensor([1, -100])
    losses, probs = torch.full((2,), math.log(2)), torch.full((2,), 0.5)
    assert last_step(lambda bias, index: bias.loss(logits, labels, index)) == pytest.approx(share)
    # The mean is over this rank's own labels, and the rank counts for the instances that it has.
    assert last_step(lambda bias, index: bias.loss(logits, ignored, index)) == pytest.approx(share)
    none = last_step(lambda bias, index: bias.weigh(losses, probs, index, reduction="none").mean())
    assert none == pytest.approx(share)


def test_weigh_equals_its_two_halves():
    whole, halves = emphasising_bias(), emphasising_bias()
    losses, prob, index = torch.rand(8), torch.rand(8), torch.arange(8)
    expected = (halves.weight(index) * losses).mean()
    halves.record(index, prob)
    torch.testing.assert_close(whole.weigh(losses, prob, index), expected)
    assert torch.equal(whole.scores, halves.scores)


@pytest.mark.parametrize("autocast", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_give_float32_probabilities(dtype, autocast):
    bias = emphasising_bias()
    logits = torch.randn(8, 10).to(dtype)
    with torch.autocast("cpu", dtype=dtype, enabled=autocast):
        loss = bias.loss(logits, torch.arange(8), torch.arange(8))
    assert loss.dtype == torch.float32
    recorded = bias.history.values(torch.arange(8))[0][:, -1]
    torch.testing.assert_close(recorded, logits.float().softmax(-1).diagonal())


@pytest.mark.parametrize("method", list(ab.METHODS))
@pytest.mark.parametrize("micro_batch", [8, 16])
def test_accumulated_gradients_equal_those_of_the_full_batch(method, micro_batch):
    inputs, targets = digits(40)
    index = torch.randperm(40, generator=torch.Generator().manual_seed(0))[:32]
    gradients, scores = [], []
    for size in (32, micro_batch):
        bias, model = emphasising_bias(method), make_model()
        bias.sampler(batch_size=32)
        for part in index.split(size):
            loss = bias.loss(model(inputs[part]), targets[part], part)
            (loss * len(part) / 32).backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
        scores.append(bias.scores)
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-7, rtol=1e-5)
    torch.testing.assert_close(scores[1], scores[0])


def test_micro_batches_may_come_in_one_buffer():
    index, prob = torch.randperm(16).view(4, 4), torch.rand(4, 4)
    own, reused = (ab.ActiveBias("wpv", num_instances=16, num_classes=2) for _ in range(2))
    buffers = torch.empty_like(index[0]), torch.empty_like(prob[0])
    for bias in (own, reused):
        bias.sampler(batch_size=16)
        bias.set_epoch(0)
    for part in zip(index, prob, strict=True):
        own.record(*part)
        for buffer, new in zip(buffers, part, strict=True):
            buffer.copy_(new)
        reused.record(*buffers)
    assert torch.equal(reused.history.values()[0], own.history.values()[0])


def test_lists_arrays_and_tensors_are_the_same():
    kinds = {"list": list, "array": np.array, "tensor": torch.tensor, "int32": lambda x: np.array(x, "int32")}
    results = []
    for kind in kinds.values():
        bias = ab.ActiveBias("wpv", num_instances=5, num_classes=2)
        bias.set_epoch(0)
        bias.record(kind([0, 3]), [0.75, 0.25])
        results.append(torch.as_tensor(bias.weight(kind([0, 3, 1]))))
    assert all(torch.equal(result, results[0]) for result in results)


def test_an_own_method_with_an_own_statistic():
    method = ab.Method("peak", statistic=lambda e: (e.mean - 0.3) ** 2, order="emphasis", weights="equal")
    bias = ab.ActiveBias(method, num_instances=4, num_classes=2)
    bias.set_epoch(0)
    bias.record([0, 1], [0.1, 0.9])
    expected = torch.tensor([0.0, 0.16, 0.04, 0.04])  # means 0.3, 0.7, 0.5, 0.5
    torch.testing.assert_close(bias.scores, expected)
    torch.testing.assert_close(bias.probabilities(), (0.5 / 4 + 0.5 * expected / expected.sum()).double())


@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0:RuntimeWarning")  # torch's advice
def test_the_whole_step_may_be_compiled_and_the_compiler_stays_out_of_the_loss():
    torch.compiler.reset()
    compiled, plain, traced = emphasising_bias(), emphasising_bias(), []

    def backend(graph, inputs):
        traced.extend(node.name for node in graph.graph.nodes if node.op.startswith("call"))
        return graph.forward

    step = torch.compile(
        lambda logits, targets, index: compiled.loss(logits * 1.0, targets, index), backend=backend
    )
    for seed in range(3):
        logits = torch.randn(8, 10, generator=torch.Generator().manual_seed(seed))
        targets, index = torch.arange(8), torch.arange(8) + seed
        torch.testing.assert_close(step(logits, targets, index), plain.loss(logits, targets, index))
    torch.testing.assert_close(compiled.scores, plain.scores)
    assert traced == ["mul"]


class LateCopies(TorchFunctionMode):
    """As from a GPU: a copy to the CPU that nobody waits for holds rubbish when it is read."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        options = kwargs or {}
        result = function(*args, **options)
        late = function is torch.Tensor.to and options.get("non_blocking") and not result.is_cuda
        return torch.ones_like(result) if late else result


def test_what_comes_from_a_gpu_is_waited_for():
    logits = torch.randn(2, 4, 10, generator=torch.Generator().manual_seed(0))
    targets, index = torch.arange(8).view(2, 4), torch.arange(8).view(2, 4)
    targets[1, 2:] = -100
    biases = [emphasising_bias(), emphasising_bias()]
    losses = [biases[0].loss(logits, targets, index)]
    with LateCopies():
        losses.append(biases[1].loss(logits, targets, index))
    torch.testing.assert_close(losses[1], losses[0])
    for late, here in zip(biases[1].history.values(), biases[0].history.values(), strict=True):
        torch.testing.assert_close(late, here)

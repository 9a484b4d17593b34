"""Losses in unusual forms: odd types and shapes, autocast, smoothed binary losses, weights in mid-step."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import activebias as ab
from activebias import checks
from training import digits, make_model

WEIGHT = torch.tensor([0.2, 1.0, 3.0, 0.0, 0.7])


pytestmark = pytest.mark.usefixtures("both_devices")


def make(method="scan", num_classes=5, **options):
    bias = ab.ActiveBias(method, num_instances=8, num_classes=num_classes, **options)
    bias.set_epoch(0)
    return bias


def batch():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(8, 5, generator=generator)
    return logits, torch.randint(5, (8,), generator=generator), torch.arange(8)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weight", [[0.5, 2.0], [0.0, 1.0]])
def test_class_weights_of_binary_logits_are_those_of_two_classes(label_smoothing, weight):
    logits, targets = torch.randn(8), torch.tensor([0, 1, 1, -100, 1, 0, 0, 1])
    two_classes = torch.stack([torch.zeros(8), logits], 1)
    options = {"label_smoothing": label_smoothing}
    loss = make(num_classes=2).loss(logits, targets, range(8), class_weight=weight, **options)
    expected = F.cross_entropy(two_classes, targets, weight=torch.tensor(weight), **options)
    torch.testing.assert_close(loss, expected)


def test_class_weights_of_binary_shares_are_those_of_two_classes():
    logits, shares, weight = torch.randn(8), torch.rand(8), torch.tensor([0.5, 2.0])
    two_classes, both = torch.stack([torch.zeros(8), logits], 1), torch.stack([1 - shares, shares], 1)
    loss = make(num_classes=2).loss(logits, shares, range(8), class_weight=weight, reduction="sum")
    torch.testing.assert_close(loss, F.cross_entropy(two_classes, both, weight=weight, reduction="sum"))


@pytest.mark.parametrize("kind", ["labels", "shares"])
def test_autocast_does_not_round_the_loss(kind):
    logits, targets, index = batch()
    targets = targets if kind == "labels" else torch.rand(8, 5).softmax(-1)
    with torch.autocast("cpu", torch.bfloat16):
        loss = make().loss(logits, targets, index, class_weight=WEIGHT, label_smoothing=0.3)
    expected = F.cross_entropy(logits, targets, weight=WEIGHT, label_smoothing=0.3)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.uint16, torch.uint64])
def test_labels_of_any_integer_type(dtype):
    logits, targets, index = batch()
    loss = make().loss(logits.double(), targets.to(dtype), index, class_weight=WEIGHT)
    torch.testing.assert_close(loss, F.cross_entropy(logits.double(), targets, weight=WEIGHT.double()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_shares_of_any_float_type(dtype):
    logits, _, index = batch()
    shares = torch.rand(8, 5).softmax(-1).to(dtype)
    torch.testing.assert_close(make().loss(logits, shares, index), F.cross_entropy(logits, shares.float()))


@pytest.mark.parametrize("as_given", [torch.nn.Parameter, np.asarray], ids=["parameter", "numpy"])
def test_pairs_of_logits_and_targets_of_other_kinds(as_given):
    logits, targets, index = batch()
    bias, other = make("wtc"), make("wtc")
    bias.record(index, (as_given(logits), np.asarray(targets)))
    other.record(index, (logits, targets))
    assert torch.equal(bias.scores, other.scores)


def test_two_numbers_are_two_probabilities():
    bias, other = make("wtc"), make("wtc")
    bias.record([0, 1], (torch.tensor(0.9), torch.tensor(0.4)))
    other.record([0, 1], [0.9, 0.4])
    assert torch.equal(bias.scores, other.scores)


def test_sequences_of_as_many_binary_words_as_classes():
    logits, targets = torch.randn(4, 2), torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, -100]])
    loss = make(num_classes=2).loss(logits, targets, range(4), sequences=True)
    counted = targets != -100
    expected = F.binary_cross_entropy_with_logits(logits[counted], targets[counted])
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize(
    ("logits", "targets", "message"),
    [
        (torch.tensor(0.3), torch.tensor(1), r"expected shape \(5,\)"),
        (torch.ones(2, 3, 5), torch.ones(2, 3, 5) / 5, r"of words need `bias\.weigh`"),
        (torch.ones(2, 5, 4, 4), torch.ones(2, 4, 4).long(), "where every pixel is an instance"),
    ],
)
def test_shapes_that_do_not_fit(logits, targets, message):
    with pytest.raises(ValueError, match=message):
        make().loss(logits, targets, [0, 1])


def test_shares_have_no_class_to_ignore():
    logits, _, index = batch()
    with pytest.raises(ValueError, match="`ignore_index` is a class"):
        make().loss(logits, torch.full((8, 5), 0.2), index, ignore_index=0)


def test_a_loss_that_is_none():
    with pytest.raises(TypeError, match="one loss per instance, but got None"):
        make().weigh(None, torch.full((8,), 0.5), range(8))


def test_a_largest_weight_may_be_a_number_of_numpys():
    assert make("wpv", max_weight=np.float32(2)).max_weight == 2


def gradient(accumulate, reduction):
    """Return the gradient of one step of 16 weighted instances, in `accumulate` batches."""
    inputs, targets = digits(16)
    model, own = make_model(), torch.linspace(0.1, 2, 16)
    bias = ab.ActiveBias("wtc", num_instances=16, num_classes=10)
    loader = bias.loader(TensorDataset(inputs, targets), 16 // accumulate, accumulate=accumulate)
    bias.set_epoch(0)
    for index, (x, y) in loader:
        loss = bias.loss(model(x), y, index, sample_weight=own[index], reduction=reduction)
        (loss / own.sum() if reduction == "sum" else loss).backward()
    return model[0].weight.grad


def test_a_weighted_mean_over_several_batches_is_a_sum_divided_by_the_steps_weights():
    torch.testing.assert_close(gradient(4, "sum"), gradient(1, "mean"))


def test_a_bias_of_several_labels_says_so_and_its_state_fits_a_later_sampler():
    bias = make("wtc", multi_label=True)
    assert repr(bias).startswith("ActiveBias('wtc', num_instances=8, num_classes=5, multi_label=True, epoch=")
    bias.record([3], torch.full((1, 5), 0.9))
    later = ab.ActiveBias("wtc", num_instances=8, num_classes=5, multi_label=True)
    later.sampler(batch_size=4)
    later.load_state_dict(bias.state_dict())
    assert torch.equal(later.scores, bias.scores)


def test_a_wrong_index_of_examples_on_a_gpu_is_noticed(monkeypatch):
    """There it is not compared batch by batch."""
    monkeypatch.setattr(checks, "to_compare", lambda index: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    for wrong in (False, True):
        bias = ab.ActiveBias("wtc", num_instances=8, num_classes=5, multi_label=True)
        loader = bias.loader(TensorDataset(torch.randn(8, 5)), 4)
        bias.set_epoch(0)
        for index, (x,) in loader:
            bias.loss(x, x > 0, torch.arange(4) if wrong else index)
        if wrong:
            with pytest.warns(UserWarning, match="were not those handed out"):
                bias.set_epoch(1)
        bias.set_epoch(1)


@pytest.mark.parametrize("form", ["plain", "weighted", "words"])
def test_the_mean_of_an_empty_batch_is_0(form):
    # As the mean of a batch in which no target counts. torch's mean is NaN, which a GPU could not tell.
    bias = make("wpv")
    shape = (0, 3) if form == "words" else (0,)
    options = {"sample_weight": torch.ones(0)} if form == "weighted" else {}
    logits = torch.zeros(*shape, 5, requires_grad=True)
    targets = torch.zeros(shape, dtype=torch.int64)
    for reduction in ("mean", "sum"):
        loss = bias.loss(logits, targets, targets, reduction=reduction, **options)
        loss.backward()
        assert loss.item() == 0
    assert bias.loss(logits, targets, targets, reduction="none", **options).shape == shape
    ignored = torch.full((2,), checks.IGNORED)
    assert bias.loss(torch.zeros(2, 5, requires_grad=True), ignored, [0, 1]).item() == 0

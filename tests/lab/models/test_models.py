"""The models are those of the specification: sizes, initial weights, regularisers, and that they learn."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from activebias.lab.models import (
    DigitsMLP,
    DistillationTeacher,
    LabModel,
    MnistCNN,
    ResidualNet,
    SentenceCNN,
    SigmoidNet,
    SoftmaxRegression,
    TaggingCNN,
    augment,
    standardise,
)
from activebias.training.dropout import Dropout
from activebias.training.layers import truncated_normal

# Deviation of a standard normal that is cut at ±2.
CUT_DEVIATION = 0.8796


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


VECTORS = torch.randn(40, 50, generator=generator(9))
MEAN = 255 * torch.rand(3, 32, 32, generator=generator(8))

MODELS = {
    "mnist-cnn": lambda g: MnistCNN(generator=g),
    "cifar10-lr": lambda g: SoftmaxRegression(MEAN, generator=g),
    "cifar100-rn27": lambda g: ResidualNet(2, generator=g),
    "cifar100-rn63": lambda g: ResidualNet(5, generator=g),
    "qt-cnn": lambda g: SentenceCNN(VECTORS, num_classes=6, generator=g),
    "conll2003-cnn": lambda g: TaggingCNN(VECTORS, num_shapes=7, num_classes=17, generator=g),
    "mnist-fc": lambda g: SigmoidNet(generator=g),
    "teacher": lambda g: DistillationTeacher(generator=g),
    "digits": lambda g: DigitsMLP(generator=g),
}
IMAGE_SHAPES = {
    "mnist-cnn": (1, 28, 28),
    "cifar10-lr": (3, 32, 32),
    "cifar100-rn27": (3, 32, 32),
    "cifar100-rn63": (3, 32, 32),
    "mnist-fc": (1, 28, 28),
    "teacher": (1, 28, 28),
    "digits": (1, 8, 8),
}


def inputs_for(row, leading, seed=0):
    if row in IMAGE_SHAPES:
        high = 17 if row == "digits" else 256
        return torch.randint(high, (*leading, *IMAGE_SHAPES[row]), generator=generator(seed)).to(torch.uint8)
    if row == "qt-cnn":
        return torch.randint(1, 40, (*leading, 9), generator=generator(seed))
    words = torch.randint(0, 40, (*leading, 9), generator=generator(seed))
    shapes = torch.randint(0, 7, (*leading, 9), generator=generator(seed + 1))
    return torch.stack([words, shapes], dim=-1)


# Worked out by hand: weights + biases, layer by layer.
PARAMETERS = {
    "mnist-cnn": (25 * 1 * 32 + 32) + (25 * 32 * 64 + 64) + (3136 * 512 + 512) + (512 * 10 + 10),
    "cifar10-lr": 3073 * 10,
    # convolutions of the stages; batch-norm channels twice; fully connected
    "cifar100-rn27": 432 + 9216 + 32256 + 129024 + 2 * (64 + 112 + 224 + 64) + 6500,
    "cifar100-rn63": 432 + 23040 + 87552 + 350208 + 2 * (160 + 304 + 608 + 64) + 6500,
    "qt-cnn": 50 * (2 + 3 + 4) * 64 + 3 * 64 + 192 * 6 + 6,
    "conll2003-cnn": 7 * 5 + (55 * 3 * 100 + 100) + 2 * (100 * 3 * 100 + 100) + 100 * 17 + 17,
    "mnist-fc": 784 * 100 + 100 + 100 * 10 + 10,
    "teacher": 9 * 32 + 9 * 32 * 64 + 9 * 64 * 128 + 2048 * 625 + 625 * 10,
    "digits": 64 * 64 + 64 + 64 * 10 + 10,
}
NUM_CLASSES = {"cifar100-rn27": 100, "cifar100-rn63": 100, "qt-cnn": 6, "conll2003-cnn": 17}


@pytest.mark.parametrize("row", MODELS)
def test_sizes(row):
    model = MODELS[row](generator())
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[row]
    inputs = inputs_for(row, (3,))
    logits = model(inputs)
    per_token = (9,) if row == "conll2003-cnn" else ()
    assert logits.shape == (3, *per_token, NUM_CLASSES.get(row, 10))
    assert logits.dtype == torch.float32
    assert isinstance(model, LabModel)
    assert model.double()(inputs).dtype == torch.float64


@pytest.mark.parametrize("row", MODELS)
def test_a_seed_is_a_model_and_the_global_state_stays(row):
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    first, second, other = (MODELS[row](generator(seed)) for seed in (4, 4, 5))
    inputs = inputs_for(row, (3,))
    assert torch.equal(first(inputs), second(inputs))
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name
    weights = dict(other.named_parameters())
    assert all(not torch.equal(p, weights[n]) for n, p in first.named_parameters() if p.dim() > 1)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)


def check_spread(weight, deviation, limit=None):
    tolerance = 5 * deviation / math.sqrt(2 * weight.numel())
    assert weight.std().item() == pytest.approx(deviation, abs=tolerance)
    assert abs(weight.mean().item()) < 5 * deviation / math.sqrt(weight.numel())
    if limit is not None:
        assert weight.abs().max().item() <= limit * (1 + 1e-6)


@pytest.mark.parametrize("row", ["mnist-cnn", "mnist-fc"])
def test_truncated_normal_weights(row):
    model = MODELS[row](generator())
    for layer in model.children():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            check_spread(layer.weight, 0.1 * CUT_DEVIATION, limit=0.2)
            bias = 0.0 if row == "mnist-fc" or layer is model.convolution_1 else 0.1
            assert torch.equal(layer.bias, torch.full_like(layer.bias, bias))


def test_a_seed_has_the_same_truncated_normal_weights_with_every_torch():
    """The stored trials (torch 2.11) began from these; `nn.init.trunc_normal_` of torch 2.13 draws others."""
    weights = truncated_normal(0.1, torch.Generator().manual_seed(0))((4,))
    expected = torch.tensor([-0.000895651, 0.069354959, -0.124154732, -0.104170956])
    torch.testing.assert_close(weights, expected, rtol=1e-6, atol=0)


def test_other_initial_weights():
    check_spread(MODELS["cifar10-lr"](generator()).weight, 1e-4)
    wide = SoftmaxRegression(MEAN, generator=generator(), spread=1e-3)
    check_spread(wide.weight, 1e-3)
    net = ResidualNet(2, generator=generator())
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            check_spread(module.weight, math.sqrt(2 / (9 * module.out_channels)))
            assert module.bias is None
    check_spread(net.output.weight, 1 / 8, limit=math.sqrt(3 / 64))
    assert not net.output.bias.any()
    teacher = DistillationTeacher(generator=generator())
    for module in teacher.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            check_spread(module.weight, 0.01)
            assert module.bias is None
    sentence = MODELS["qt-cnn"](generator())
    for convolution in sentence.convolutions:
        check_spread(convolution.weight, 0.1 * CUT_DEVIATION, limit=0.2)
    limit = math.sqrt(6 / (192 + 6))
    check_spread(sentence.output.weight, limit / math.sqrt(3), limit=limit)
    tagging = MODELS["conll2003-cnn"](generator())
    for convolution in tagging.convolutions:
        limit = math.sqrt(6 / (3 * (convolution.in_channels + 100)))
        check_spread(convolution.weight, limit / math.sqrt(3), limit=limit)


# What a raw image becomes before the first layer.
@pytest.mark.parametrize(
    ("row", "layer", "prepared"),
    [
        ("mnist-cnn", "convolution_1", lambda x: (x - 127.5) / 255),
        ("mnist-fc", "hidden", lambda x: x.flatten(1) / 255),
        ("teacher", "convolutions.0", lambda x: x / 255),
        ("digits", "hidden", lambda x: x.flatten(1) / 16),
        ("cifar100-rn27", "first", standardise),
    ],
)
def test_raw_pixels_are_prepared(row, layer, prepared):
    model, images, seen = MODELS[row](generator()), inputs_for(row, (2,)), []
    handle = model.get_submodule(layer).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(images)
    handle.remove()
    torch.testing.assert_close(seen[0], prepared(images.float()))


def test_softmax_regression_is_a_linear_map_with_a_constant_feature():
    model, images = MODELS["cifar10-lr"](generator()), inputs_for("cifar10-lr", (2,))
    pixels = (images.double() - MEAN.double()).flatten(1)
    features = torch.cat([pixels, torch.ones(2, 1)], dim=1)
    torch.testing.assert_close(
        model(images).double(), features @ model.weight.double().T, rtol=1e-4, atol=1e-4
    )


def half_square(*tensors):
    return sum(float((t.detach().double() ** 2).sum()) for t in tensors) / 2


def test_regularisers_by_hand():
    models = {row: make(generator()) for row, make in MODELS.items()}
    cnn = models["mnist-cnn"]
    net = models["cifar100-rn27"]
    weights = [p for name, p in net.named_parameters() if p.dim() > 1]
    assert len(weights) == 14
    last = [models[row].output for row in ("qt-cnn", "conll2003-cnn")]
    expected = {
        "mnist-cnn": 5e-4
        * half_square(cnn.hidden.weight, cnn.hidden.bias, cnn.output.weight, cnn.output.bias),
        "cifar10-lr": 0.5 * 0.01 * float((models["cifar10-lr"].weight.detach().double() ** 2).sum()),
        "cifar100-rn27": 2e-4 * half_square(*weights),
        "qt-cnn": 0.01 * half_square(last[0].weight, last[0].bias),
        "conll2003-cnn": 0.001 * half_square(last[1].weight, last[1].bias),
        "mnist-fc": 0.0,
        "teacher": 0.0,
        "digits": 0.0,
    }
    for row, value in expected.items():
        regulariser = models[row].regulariser()
        assert regulariser.shape == ()
        assert regulariser.item() == pytest.approx(value, rel=1e-5), row
    (slope,) = torch.autograd.grad(cnn.regulariser(), cnn.hidden.weight)
    torch.testing.assert_close(slope, 5e-4 * cnn.hidden.weight.detach())


@pytest.mark.parametrize(("units", "norms"), [(2, 13), (5, 31)])
def test_residual_layers_are_the_papers_table(units, norms):
    net = ResidualNet(units, generator=generator())
    batch_norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]
    convolutions = [module for module in net.modules() if isinstance(module, nn.Conv2d)]
    assert len(batch_norms) == norms
    # The paper counts 26 and 62 convolutions: twice as many.
    assert len(convolutions) == norms
    assert all(norm.eps == 1e-3 for norm in batch_norms)
    assert [c.stride[0] for c in convolutions].count(2) == 2
    assert [unit.shared for unit in net.units] == [True] + [False] * (3 * units - 1)
    widths = [unit.convolution_2.out_channels for unit in net.units]
    assert widths == [16] * units + [32] * units + [64] * units


def silenced(unit):
    with torch.no_grad():
        unit.convolution_2.weight.zero_()
    return unit


def test_shortcuts():
    net = ResidualNet(2, generator=generator())
    values = torch.randn(2, 16, 32, 32, generator=generator(1))
    first = silenced(net.units[0])
    normed = (values - values.mean((0, 2, 3), keepdim=True)) / torch.sqrt(
        values.var((0, 2, 3), keepdim=True, correction=0) + 1e-3
    )
    activated = torch.where(normed < 0, 0.1 * normed, normed)
    torch.testing.assert_close(first(values), activated)
    assert torch.equal(silenced(net.units[1])(values), values)
    narrowing = silenced(net.units[2])(values)
    assert narrowing.shape == (2, 32, 16, 16)
    pooled = values.view(2, 16, 16, 2, 16, 2).mean((3, 5))
    torch.testing.assert_close(narrowing[:, 8:24], pooled)
    assert not narrowing[:, :8].any()
    assert not narrowing[:, 24:].any()


class TrainingLoss(nn.Module):
    """Loss and regulariser in one forward pass: how K models are trained side by side."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs, targets):
        logits = self.model(inputs)
        loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten())
        return loss + self.model.regulariser()


@pytest.mark.parametrize("row", [row for row in MODELS if row != "cifar100-rn63"])
def test_side_by_side_is_one_by_one(row):
    modules = [TrainingLoss(MODELS[row](generator(seed))) for seed in range(3)]
    inputs = inputs_for(row, (3, 6))
    shape = (3, 6, 9) if row == "conll2003-cnn" else (3, 6)
    targets = torch.randint(NUM_CLASSES.get(row, 10), shape, generator=generator(2))
    rate = 1e-6 if row == "cifar10-lr" else 0.01
    parameters, buffers = stack_module_state(modules)
    template = copy.deepcopy(modules[0])

    def one(parameters, buffers, inputs, targets):
        return functional_call(template, (parameters, buffers), (inputs, targets))

    optimizer = torch.optim.SGD(parameters.values(), rate)
    together = []
    for _ in range(3):
        losses = vmap(one)(parameters, buffers, inputs, targets)
        optimizer.zero_grad()
        losses.sum().backward()
        optimizer.step()
        together.append(losses.detach())
    for number, module in enumerate(modules):
        optimizer = torch.optim.SGD(module.parameters(), rate)
        for step in range(3):
            loss = module(inputs[number], targets[number])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            torch.testing.assert_close(together[step][number], loss.detach(), rtol=1e-4, atol=1e-5)
        for name, value in module.state_dict().items():
            stacked = parameters[name] if name in parameters else buffers[name]
            torch.testing.assert_close(stacked[number].detach(), value, rtol=1e-3, atol=1e-4)


def test_tags_do_not_depend_on_the_padding():
    model = MODELS["conll2003-cnn"](generator()).eval()
    tokens = torch.randint(1, 7, (2, 5, 2), generator=generator())
    padded = F.pad(tokens, (0, 0, 0, 4))
    padded[:, 5:, 1] = 3  # a shape where no word is must not count either
    torch.testing.assert_close(model(padded)[:, :5], model(tokens))


def test_words_are_fixed_and_shapes_are_learned():
    for row in ("qt-cnn", "conll2003-cnn"):
        model = MODELS[row](generator())
        assert "vectors" in dict(model.named_buffers())
        assert not model.vectors[0].any()
        assert torch.equal(model.vectors[1:], VECTORS[1:])
        assert VECTORS[0].any()  # the caller's table stays as it was
    assert model.shapes.requires_grad
    assert model.shapes.shape == (7, 5)


def test_sentence_cnn_against_plain_windows():
    model = MODELS["qt-cnn"](generator()).eval()
    words = torch.tensor([[3, 1, 4, 1, 5, 0]])
    vectors = model.vectors[words[0]]
    features = []
    for convolution, width in zip(model.convolutions, (2, 3, 4), strict=True):
        windows = torch.stack([vectors[start : start + width].T for start in range(6 - width + 1)])
        scores = torch.einsum("wdk,fdk->wf", windows, convolution.weight) + convolution.bias
        features.append(scores.clamp(min=0).amax(0))
    torch.testing.assert_close(model(words)[0], model.output(torch.cat(features)))


@pytest.mark.parametrize("row", MODELS)
def test_a_wrong_shape_is_refused(row):
    with pytest.raises(ValueError, match=r"Expected `\w+` of shape \(B, .*, but got \(2, 5, 5, 5, 5\)"):
        MODELS[row](generator())(torch.zeros(2, 5, 5, 5, 5, dtype=torch.int64))


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match=r"\(B, 1, 28, 28\), but got \(2, 1, 28, 27\)"):
        MnistCNN(generator=generator())(torch.zeros(2, 1, 28, 27))
    with pytest.raises(ValueError, match=r"`units` .* at least 1, but got 0"):
        ResidualNet(0, generator=generator())
    with pytest.raises(ValueError, match="`keep` to be above 0 and at most 1, but got 0"):
        Dropout(0, generator=generator())
    with pytest.raises(ValueError, match=r"`mean` .* but got torch.uint8"):
        SoftmaxRegression(torch.zeros(3, 32, 32, dtype=torch.uint8), generator=generator())
    with pytest.raises(ValueError, match=r"`vectors` .* but got torch.float32 of shape \(50,\)"):
        SentenceCNN(torch.zeros(50), num_classes=6, generator=generator())
    with pytest.raises(ValueError, match=r"`num_shapes` .* at least 1, but got 0"):
        TaggingCNN(VECTORS, num_shapes=0, num_classes=3, generator=generator())
    with pytest.raises(ValueError, match=r"`words` of length at least 4 .* but got 3"):
        MODELS["qt-cnn"](generator())(torch.ones(2, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="`words` of dtype int32 or int64"):
        MODELS["qt-cnn"](generator())(torch.ones(2, 5))
    with pytest.raises(ValueError, match=r"`images` of shape \(B, C, H, W\), but got \(3, 32, 32\)"):
        augment(torch.zeros(3, 32, 32), generator())

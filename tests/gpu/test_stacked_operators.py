"""The operators of training side by side on a GPU: they equal torch's."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, vmap

from activebias.lab.models import ResidualNet, draw_shifts, standardise
from activebias.lab.side_by_side.images import cropped, standardised
from activebias.lab.side_by_side.layers import StackableDropout
from activebias.lab.side_by_side.momentum import HalfPrecisionSGD
from activebias.lab.side_by_side.patches import (
    Affine,
    Layer,
    Use,
    activate,
    arrange,
    convolve,
    input_gradient,
    weight_gradient,
)
from activebias.lab.side_by_side.stacking import Stack
from activebias.training.dropout import Dropout

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: run `make test-gpu`"),
]


def close(ours, theirs, tolerance):
    """Compare relative to the largest value: a sum of many terms may cancel."""
    assert ((ours.float() - theirs.float()).abs().max() / theirs.float().abs().max()).item() < tolerance


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)], ids=["float32", "bf16"]
)
@pytest.mark.parametrize(
    ("inputs", "outputs", "width", "stride", "padding", "size"),
    [
        (1, 32, 5, 1, 2, 28),
        (32, 64, 5, 1, 2, 14),
        (16, 16, 3, 1, 1, 9),
        (16, 32, 3, 2, 1, 8),
        (32, 16, 4, 3, 0, 11),
        (64, 64, 3, 1, 1, 8),
        (3, 7, 4, 3, 0, 11),
    ],
)
def test_convolutions_of_many_models(dtype, tolerance, inputs, outputs, width, stride, padding, size):
    from activebias.lab.side_by_side.convolution import stacked_convolution

    generator = torch.Generator("cuda").manual_seed(0)
    values = torch.randn(3, 5, size, size, inputs, device="cuda", generator=generator).to(dtype)
    weight = torch.randn(3, width, width, inputs, outputs, device="cuda", generator=generator).to(dtype)
    bias = torch.randn(3, outputs, device="cuda", generator=generator).to(dtype)
    ours = [tensor.clone().requires_grad_() for tensor in (values, weight, bias)]
    result = stacked_convolution(*ours, stride, padding, padding)
    gradient = torch.randn(result.shape, device="cuda", generator=generator).to(dtype)
    result.backward(gradient)
    for model in range(3):
        theirs = [tensor[model].double().requires_grad_() for tensor in (values, weight, bias)]
        expected = F.conv2d(
            theirs[0].movedim(-1, 1), theirs[1].permute(3, 2, 0, 1), theirs[2], stride=stride, padding=padding
        ).movedim(1, -1)
        expected.backward(gradient[model].double())
        close(result[model], expected, tolerance)
        for own, other in zip(ours, theirs, strict=True):
            close(own.grad[model], other.grad, tolerance)


LAYERS = [
    Layer(3, 16, 1, 32, 4),
    Layer(16, 16, 1, 32, 16),
    Layer(16, 32, 2, 32, 16),
    Layer(32, 32, 1, 16, 32),
    Layer(32, 64, 2, 16, 32),
    Layer(64, 64, 1, 8, 64),
]


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)], ids=["float32", "bf16"]
)
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: f"{layer.inner}-{layer.outer}")
def test_convolutions_by_patches(layer, dtype, tolerance):
    """Outputs with a shortcut, both gradients, sums for the norms, and what evaluation makes of it."""
    generator = torch.Generator("cuda").manual_seed(0)

    def random(*shape):
        return torch.randn(3, *shape, device="cuda", generator=generator).to(dtype)

    values, before = (random(10, layer.size, layer.size, layer.stored) for _ in range(2))
    values[..., layer.inner :] = 0
    weight = random(layer.outer, layer.inner, 3, 3)
    gradient, shortcut = (random(10, layer.size_out, layer.size_out, layer.outer) for _ in range(2))
    norms = [Affine(random(size).float(), random(size).float(), 0.1) for size in (layer.inner, layer.outer)]
    kernels = ["moments", "activate", "gradient"][: 3 if layer.inner > 3 else 2]
    arranged = arrange(tuple(Use(kernel, layer, 0) for kernel in kernels), [weight])
    outputs, sums = convolve(layer, values, arranged[0], shortcut)
    raw, activated = activate(layer, values, arranged[1], norms[1], shortcut, raw=True)
    of_weight = weight_gradient(layer, values, gradient)
    of_values = None
    if layer.inner > 3:
        of_values, of_sums = input_gradient(layer, gradient, arranged[2], before, norms[0])
    for model in range(3):
        inputs = values[model, ..., : layer.inner].double().movedim(-1, 1).requires_grad_()
        kernel = weight[model].double().requires_grad_()
        product = F.conv2d(inputs, kernel, stride=layer.stride, padding=1)
        product.backward(gradient[model].double().movedim(-1, 1))
        expected = product.detach().movedim(1, -1) + shortcut[model].double()
        close(outputs[model], expected, tolerance)
        close(raw[model], expected, tolerance)
        normed = expected * norms[1].scale[model] + norms[1].shift[model]
        close(activated[model], F.leaky_relu(normed, 0.1), tolerance)
        close(sums[0, :, model].sum((0, 1)), expected.sum((0, 1, 2)), tolerance)
        close(sums[1, :, model].sum((0, 1)), expected.square().sum((0, 1, 2)), tolerance)
        close(of_weight[model], kernel.grad, tolerance)
        if of_values is not None:
            positive = before[model].double() * norms[0].scale[model] + norms[0].shift[model] > 0
            behind = inputs.grad.movedim(1, -1) * torch.where(positive, 1.0, 0.1)
            close(of_values[model], behind, tolerance)
            close(of_sums[0, :, model].sum((0, 1)), behind.sum((0, 1, 2)), tolerance)
            close(of_sums[1, :, model].sum((0, 1)), (behind * before[model]).sum((0, 1, 2)), tolerance)


def test_residual_nets_as_one():
    """Logits, gradients and running statistics of the whole net, against torch's layers in float64."""
    models = [ResidualNet(2, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    generator = torch.Generator().manual_seed(5)
    for model in models:
        for name, value in (*model.named_parameters(), *model.named_buffers()):
            if "norm" in name and value.is_floating_point():
                value.data += 0.3 * torch.rand(value.shape, generator=generator)
    images = torch.randint(256, (3, 7, 3, 32, 32), generator=generator, dtype=torch.uint8)
    weight = torch.randn(3, 7, 100, generator=generator).cuda()
    stack = Stack.of(models, torch.device("cuda"))
    logits = stack.logits([images.cuda()])
    (logits * weight).sum().backward()
    predicted = stack.predict([images[0].cuda()])

    def exactly(model, images):
        return model.output(model.last_norm(model.units(model.first(images))).mean((2, 3)))

    for number, model in enumerate(models):
        model.cuda().double()
        expected = exactly(model, standardise(images[number].cuda(), torch.float64))
        (expected * weight[number]).sum().backward()
        close(logits[number], expected, 1e-5)
        for name, value in model.named_parameters():
            close(stack.parameters[name].grad[number], value.grad, 1e-4)
        for name, value in model.named_buffers():
            close(stack.buffers[name][number], value, 1e-5)
        model.eval()
        close(predicted[number], exactly(model, standardise(images[0].cuda(), torch.float64)), 1e-5)


def test_images_are_cut_flipped_and_standardised():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (9, 3, 32, 32), generator=generator, dtype=torch.uint8)
    images[4] = 17  # flat: becomes zeros
    index = torch.randint(9, (4, 6), generator=generator)
    shifts = torch.stack([draw_shifts(6, generator) for _ in range(4)])
    cut = cropped(images.cuda(), index.cuda(), shifts.cuda())
    assert torch.equal(cut.cpu(), cropped(images, index, shifts))
    ours = standardised(images.cuda(), torch.float32)
    torch.testing.assert_close(ours[..., :3].movedim(-1, 1).cpu(), standardise(images))
    assert not ours[..., 3].any()


def test_pooling_of_many_models():
    from activebias.lab.side_by_side.pool import stacked_pool

    values = torch.randn(2, 3, 6, 8, 5, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    ours, theirs = (values.clone().requires_grad_() for _ in range(2))
    result = stacked_pool(ours)
    expected = (
        F.max_pool2d(F.relu(theirs.flatten(0, 1).movedim(-1, 1)), 2).movedim(1, -1).unflatten(0, (2, 3))
    )
    assert torch.equal(result, expected)
    gradient = torch.randn_like(result)
    for tensor in (result, expected):
        tensor.backward(gradient)
    assert torch.equal(ours.grad, theirs.grad)


@pytest.mark.parametrize(("keep", "shape", "row_length"), [(0.5, (6, 40), None), (0.75, (5, 7, 11), 8000)])
def test_dropout_of_many_models(keep, shape, row_length):
    generators = [torch.Generator().manual_seed(seed) for seed in range(3)]
    layers = [Dropout(keep, generator=generator, row_length=row_length).cuda() for generator in generators]
    layer = StackableDropout(copy.deepcopy(layers[0]))
    state = {name: torch.stack([getattr(each, name) for each in layers]) for name in ("seed", "step")}
    values = torch.randn(3, *shape, device="cuda")
    ours, theirs = (values.clone().requires_grad_() for _ in range(2))
    for _ in range(3):
        result = vmap(lambda *given: functional_call(layer, given[0], given[1:]))(state, ours)
        expected = torch.stack([each(value) for each, value in zip(layers, theirs, strict=True)])
        torch.testing.assert_close(result, expected)
        gradient = torch.randn_like(result)
        for tensor in (result, expected):
            tensor.backward(gradient)
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert state["step"].tolist() == [3, 3, 3]


def test_half_precision_steps_are_those_of_sgd():
    generator = torch.Generator("cuda").manual_seed(0)
    first, second = (torch.randn(size, device="cuda", generator=generator) for size in ((3, 5000), (3, 7)))
    ours, theirs = ([value.clone().requires_grad_() for value in (first, second)] for _ in range(2))
    copy_ = ours[0].detach().bfloat16().requires_grad_()
    groups = [[{"params": [p[0]], "weight_decay": 5e-4}, {"params": [p[1]]}] for p in (ours, theirs)]
    rate = torch.tensor(0.1, device="cuda")
    optimiser = HalfPrecisionSGD(groups[0], {ours[0]: copy_}, rate=rate, momentum=0.9)
    reference = torch.optim.SGD(groups[1], lr=0.1, momentum=0.9)
    for _ in range(4):
        gradients = [torch.randn(p.shape, device="cuda", generator=generator) for p in ours]
        copy_.grad, ours[1].grad = gradients[0].bfloat16(), gradients[1]
        theirs[0].grad, theirs[1].grad = gradients[0].bfloat16().float(), gradients[1].clone()
        optimiser.step()
        reference.step()
        optimiser.zero_grad()
        assert copy_.grad is None
        assert ours[1].grad is None
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, other)
        torch.testing.assert_close(
            optimiser.state[own]["momentum_buffer"], reference.state[other]["momentum_buffer"]
        )
    assert torch.equal(copy_, ours[0].bfloat16())

"""The models' random parts draw from what they are given, evenly, and repeat themselves."""

import copy
import math

import pytest
import torch
from torch.func import vmap

from activebias.lab.models import DistillationTeacher, MnistCNN, augment, crop_and_flip, standardise
from activebias.training.dropout import Dropout, counter_noise


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def random_images(*shape, seed=0):
    return torch.randint(256, shape, generator=generator(seed)).to(torch.uint8)


def test_standardise():
    images = random_images(4, 3, 32, 32)
    images[0] = 7
    values = standardise(images)
    torch.testing.assert_close(values[1:].mean((1, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(values[1:].std((1, 2, 3), correction=0), torch.ones(3))
    assert not values[0].any()
    # A nearly flat image: the deviation is held at 1 / sqrt(3072).
    images[0, 0, 0, 0] = 8
    assert standardise(images)[0].max().item() == pytest.approx(math.sqrt(3072), rel=1e-3)


def test_crop_and_flip_against_a_loop():
    images = random_images(6, 3, 32, 32)
    top, left = torch.tensor([0, 4, 2, 1, 3, 2]), torch.tensor([4, 0, 2, 3, 1, 2])
    flip = torch.tensor([False, True, False, True, False, True])
    result = crop_and_flip(images, top, left, flip)
    assert result.dtype == torch.uint8
    for number in range(6):
        padded = torch.zeros(3, 36, 36, dtype=torch.uint8)
        padded[:, 2:34, 2:34] = images[number]
        crop = padded[:, top[number] : top[number] + 32, left[number] : left[number] + 32]
        expected = crop.flip(2) if flip[number] else crop
        assert torch.equal(result[number], expected)
    several = vmap(crop_and_flip)(*(t.view(2, 3, *t.shape[1:]) for t in (images, top, left, flip)))
    assert torch.equal(several.view_as(result), result)


def test_augment_draws_every_shift_and_flip_evenly():
    # One bright pixel in the middle, one to its right: their places tell shift and flip.
    images = torch.zeros(5000, 1, 32, 32, dtype=torch.uint8)
    images[:, :, 16, 15], images[:, :, 16, 16] = 1, 2
    before = torch.get_rng_state()
    result = augment(images, generator(0))
    assert torch.equal(result, augment(images, generator(0)))
    assert not torch.equal(result, augment(images, generator(1)))
    assert torch.equal(torch.get_rng_state(), before)
    places = (result == 1).flatten(1).int().argmax(1)
    rows, columns = places // 32, places % 32
    flipped = columns > (result == 2).flatten(1).int().argmax(1) % 32
    assert flipped.float().mean().item() == pytest.approx(0.5, abs=0.04)
    for shift in (rows - 16, torch.where(flipped, columns - 16, columns - 15)):
        assert sorted(shift.unique().tolist()) == [-2, -1, 0, 1, 2]
        assert torch.bincount(shift + 2).float().div(5000).sub(0.2).abs().max() < 0.03


def test_dropout_masks():
    layer = Dropout(0.75, generator=generator())
    ones = torch.ones(400, 500)
    first, second = layer(ones), layer(ones)
    assert first.unique().tolist() == pytest.approx([0, 1 / 0.75])
    kept = torch.stack([first, second]).flatten(1) > 0
    assert kept.float().mean(1).tolist() == pytest.approx([0.75, 0.75], abs=0.005)
    # Nothing in common: between steps, neighbours, seeds.
    other = Dropout(0.75, generator=generator(1))(ones).flatten() > 0
    pairs = [
        (kept[0], kept[1]),
        (kept[0][1:], kept[0][:-1]),
        (kept[0][500:], kept[0][:-500]),
        (kept[0], other),
    ]
    for one, two in pairs:
        assert abs(torch.corrcoef(torch.stack([one, two]).float())[0, 1].item()) < 0.01
    assert layer.eval()(ones) is ones
    assert layer.step.item() == 2


def test_counter_noise_is_uniform():
    seeds = torch.randint(2**62, (50,), generator=generator())
    noise = torch.stack([counter_noise(seed, torch.tensor(3), torch.arange(20_000)) for seed in seeds])
    assert noise.min() >= 0
    assert noise.max() < 2**32
    # Every bit is set half of the time (one million draws: 5 standard errors are 0.0025).
    for bit in range(32):
        assert ((noise >> bit) & 1).float().mean().item() == pytest.approx(0.5, abs=0.0025)
    counts = torch.bincount((noise >> 24).flatten(), minlength=256).double()
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum().item()
    assert 255 - 5 * math.sqrt(510) < chi_square < 255 + 5 * math.sqrt(510)
    # Consecutive steps and neighbouring seeds, too, agree on no more than chance.
    steps = torch.stack(
        [counter_noise(torch.tensor(5), torch.tensor(step), torch.arange(20_000)) for step in range(20)]
    )
    near = torch.stack(
        [counter_noise(torch.tensor(seed), torch.tensor(0), torch.arange(20_000)) for seed in range(20)]
    )
    for rows in (steps, near):
        correlation = torch.corrcoef(rows.double()) - torch.eye(20)
        assert correlation.abs().max() < 5.5 / math.sqrt(20_000)


def test_dropout_state_is_saved():
    model, images = MnistCNN(generator=generator()), random_images(4, 1, 28, 28)
    model(images)
    resumed = MnistCNN(generator=generator(1))
    resumed.load_state_dict(copy.deepcopy(model.state_dict()))
    assert torch.equal(model(images), resumed(images))
    teacher = DistillationTeacher(generator=generator())
    seeds = [module.seed.item() for module in teacher.modules() if isinstance(module, Dropout)]
    assert len(set(seeds)) == 4

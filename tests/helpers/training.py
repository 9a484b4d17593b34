"""A small, fully seeded training run on scikit-learn's digits, shared by the tests."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import activebias as ab


def digits(num_instances=300):
    data = load_digits()
    inputs = torch.tensor(data.data[:num_instances] / 16.0, dtype=torch.float32)
    return inputs, torch.tensor(data.target[:num_instances])


def make_model(seed=0, num_inputs=64, num_classes=10):
    """A net whose weights come from a generator of its own."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(num_inputs, 32), nn.Tanh(), nn.Linear(32, num_classes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model


def make_bias(method, num_instances=300, **options):
    return ab.ActiveBias(method, num_instances=num_instances, num_classes=10, burn_in=1, seed=3, **options)


def make_loader(bias, batch_size=32, inputs=None, targets=None, **options):
    if inputs is None:
        inputs, targets = digits(bias.num_instances)
    dataset = ab.with_index(TensorDataset(inputs, targets))
    return DataLoader(dataset, batch_size=batch_size, sampler=bias.sampler(batch_size=batch_size), **options)


def step(model, optimizer, bias, inputs, targets, index):
    loss = bias.loss(model(inputs), targets, index)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def flat_weights(model):
    return np.concatenate([parameter.detach().numpy().ravel() for parameter in model.parameters()])

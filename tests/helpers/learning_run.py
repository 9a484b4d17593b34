"""A small net that learns the curve of `auto` on digits with wrong labels."""

from itertools import pairwise

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import activebias as ab

NUM_TRAINING, NUM_VALIDATION = 600, 300


def digits(share_wrong=0.2, seed=0):
    """Return training, validation and test set; a share of the labels of the first two is wrong."""
    images, labels = load_digits(return_X_y=True)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=generator)
    images, clean = torch.tensor(images / 16).float()[order], torch.tensor(labels)[order]
    wrong = torch.rand(len(clean), generator=generator) < share_wrong
    noisy = torch.where(wrong, torch.randint(10, clean.shape, generator=generator), clean)
    ends = (0, NUM_TRAINING, NUM_TRAINING + NUM_VALIDATION, len(clean))
    parts = [slice(*pair) for pair in pairwise(ends)]
    labels = (noisy, noisy, clean)
    sets = [TensorDataset(images[part], each[part]) for part, each in zip(parts, labels, strict=True)]
    return sets, wrong[:NUM_TRAINING]


class Training:
    """A small net in training on digits."""

    def __init__(self, method="auto", *, seed=0, burn_in=2, share_wrong=0.2, rate=0.1, **options):
        (self.train, self.validation, self.test), self.wrong = digits(share_wrong, seed)
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=rate, momentum=0.9)
        self.bias = ab.ActiveBias(
            method, num_instances=NUM_TRAINING, num_classes=10, burn_in=burn_in, seed=seed, **options
        )
        self.loader = self.bias.loader(self.train, 50)

    def epochs(self, first, last):
        for epoch in range(first, last):
            self.bias.set_epoch(epoch)
            for index, (inputs, targets) in self.loader:
                loss = self.bias.loss(self.model(inputs), targets, index)
                self.optimiser.zero_grad()
                loss.backward()
                self.optimiser.step()
            self.bias.learn(self.model, self.loader, self.validation)
        return self

    @property
    def curve(self):
        return self.bias._memory.curve

    def error(self):
        self.model.eval()
        with torch.no_grad():
            predicted = self.model(self.test.tensors[0]).argmax(1)
        self.model.train()
        return (predicted != self.test.tensors[1]).double().mean().item()

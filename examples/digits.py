"""Shared by the examples: scikit-learn's digits (no download), a small network, and its accuracy."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

EPOCHS = 8
BATCH_SIZE = 64
NUM_CLASSES = 10
LEARNING_RATE = 0.1
BURN_IN = 2

_images, _labels = load_digits(return_X_y=True)
IMAGES = torch.tensor(_images / 16, dtype=torch.float32)
LABELS = torch.tensor(_labels)
_order = torch.randperm(len(LABELS), generator=torch.Generator().manual_seed(0))
TEST, TRAIN = _order[:450], _order[450:]


def train_set() -> TensorDataset:
    """Return the 1,347 training instances."""
    return TensorDataset(IMAGES[TRAIN], LABELS[TRAIN])


def make_model(seed: int = 0) -> nn.Sequential:
    """Return the network, initialised from its own seed: every example starts at the same weights."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, NUM_CLASSES))


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    """Return the accuracy on the 450 test instances."""
    return float((model(IMAGES[TEST]).argmax(-1) == LABELS[TEST]).float().mean())


def report(value: float) -> None:
    """Print the line that every example ends with."""
    print(f"final accuracy: {value:.4f}", flush=True)

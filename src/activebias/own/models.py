"""The models for the user's data. They are small, because a model that memorises cannot find wrong labels.

A model is built from its name, its arguments (both are in the run folder) and a generator.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from activebias.runs.folder import RunFolder
from activebias.training.dropout import Dropout
from activebias.training.layers import conv1d, conv2d, linear, normal, xavier


class SmallCNN(nn.Module):
    """Three 3×3 convolutions (16, 32, 64) with ReLU and max-pool 2, mean over 4×4 places, dropout, FC.

    >>> model = SmallCNN(1, 3, mean=[127.5], std=[64.0], generator=torch.Generator().manual_seed(0))
    >>> model(torch.zeros(2, 1, 32, 32, dtype=torch.uint8)).shape
    torch.Size([2, 3])
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        num_channels: int,
        num_classes: int,
        *,
        mean: list[float],
        std: list[float],
        generator: torch.Generator,
    ) -> None:
        """Use the mean and standard deviation of the training pixels (0 to 255) of every channel."""
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))
        initial = xavier(generator)
        self.convolutions = nn.ModuleList(
            conv2d(inputs, outputs, 3, initial, bias=0.0)
            for inputs, outputs in pairwise((num_channels, 16, 32, 64))
        )
        self.dropout = Dropout(0.5, generator=generator)
        self.output = linear(64 * 16, num_classes, initial, bias=0.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, C) for raw images (B, channels, H, W), H and W at least 32."""
        values = (images.to(self.mean.dtype) - self.mean) / self.std
        for convolution in self.convolutions:
            values = F.max_pool2d(F.relu(convolution(values)), 2)
        values = F.adaptive_avg_pool2d(values, 4).flatten(1)
        logits: Tensor = self.output(self.dropout(values))
        return logits


class RowNet(nn.Module):
    """Numbers through a hidden layer of 64, words through a mean of learned vectors; then dropout and FC.

    >>> model = RowNet(4, 0, 3, generator=torch.Generator().manual_seed(0))
    >>> model(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    >>> model = RowNet(0, 100, 3, generator=torch.Generator().manual_seed(0))
    >>> model(torch.zeros(2, 0), torch.tensor([[5, 7], [9, 0]]), torch.tensor([[0.5, 0.5], [1, 0]])).shape
    torch.Size([2, 3])
    """

    def __init__(
        self, num_features: int, num_words: int, num_classes: int, *, generator: torch.Generator
    ) -> None:
        """Give the numbers of numeric features and of hashed words; either may be 0."""
        super().__init__()
        initial = xavier(generator)
        self.hidden = linear(num_features, 64, initial, bias=0.0) if num_features else None
        self.words = None
        if num_words:
            self.words = nn.EmbeddingBag(
                num_words, 64, mode="sum", padding_idx=0, _weight=normal(0.1, generator)((num_words, 64))
            )
        self.dropout = Dropout(0.5, generator=generator)
        self.output = linear(64 * (bool(num_features) + bool(num_words)), num_classes, initial, bias=0.0)

    def forward(self, features: Tensor, words: Tensor | None = None, share: Tensor | None = None) -> Tensor:
        """Return logits (B, C) for features (B, F), and words (B, L) with their shares of the text."""
        parts = [] if self.hidden is None else [F.relu(self.hidden(features))]
        if self.words is not None and words is not None:
            parts.append(self.words(words, per_sample_weights=share))
        logits: Tensor = self.output(self.dropout(torch.cat(parts, dim=1)))
        return logits


class SmallTagger(nn.Module):
    """Learned word vectors (50) and word shapes (5), 3 convolutions of width 3 with 100 filters, FC per word.

    Like the lab's `TaggingCNN`, but with learned word vectors: no download is needed.

    >>> model = SmallTagger(9, 4, 5, generator=torch.Generator().manual_seed(0))
    >>> model(torch.tensor([[[1, 1], [2, 3], [0, 0]]])).shape
    torch.Size([1, 3, 5])
    """

    def __init__(
        self, num_words: int, num_shapes: int, num_classes: int, *, generator: torch.Generator
    ) -> None:
        """Give the sizes of the vocabularies, including padding (0)."""
        super().__init__()
        initial = xavier(generator)
        self.words = nn.Embedding(
            num_words, 50, padding_idx=0, _weight=normal(0.3, generator)((num_words, 50))
        )
        self.shapes = nn.Embedding(num_shapes, 5, padding_idx=0, _weight=initial((num_shapes, 5)))
        self.convolutions = nn.ModuleList(
            conv1d(inputs, outputs, 3, initial, bias=0.01, same=True)
            for inputs, outputs in pairwise((55, 100, 100, 100))
        )
        self.output = linear(100, num_classes, initial, bias=0.01)
        self.input_dropout = Dropout(0.5, generator=generator)
        self.hidden_dropout = Dropout(0.5, generator=generator)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (B, L, C) for tokens (B, L, 2): the numbers of the word and of its shape."""
        words, shapes = tokens.unbind(dim=2)
        present = (words != 0).unsqueeze(1)
        values = torch.cat([self.words(words), self.shapes(shapes)], dim=2)
        values = self.input_dropout(values).transpose(1, 2) * present
        for convolution in self.convolutions:
            values = F.relu(convolution(values)) * present
        logits: Tensor = self.output(self.hidden_dropout(values.transpose(1, 2)))
        return logits


class LinearHead(nn.Module):
    """Dropout and one linear layer over embeddings.

    >>> model = LinearHead(4, 3, generator=torch.Generator().manual_seed(0))
    >>> model(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, num_features: int, num_classes: int, *, generator: torch.Generator) -> None:
        """Give the size of an embedding."""
        super().__init__()
        self.dropout = Dropout(0.5, generator=generator)
        self.output = linear(num_features, num_classes, xavier(generator), bias=0.0)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Return logits (B, C) for standardised embeddings (B, D)."""
        logits: Tensor = self.output(self.dropout(embeddings))
        return logits


# The name of a model that `find_issues` got from the user.
OWN_MODEL = "a model of your own"
MODELS = {"SmallCNN": SmallCNN, "RowNet": RowNet, "SmallTagger": SmallTagger, "LinearHead": LinearHead}


def build_model(description: Mapping[str, Any], generator: torch.Generator) -> nn.Module:
    """Build the model that {"name": …, "arguments": {…}} describes, with new weights."""
    if description.get("name") not in MODELS:
        raise ValueError(
            f"Expected the model to be one of {', '.join(MODELS)}, but got {description.get('name')!r}."
        )
    model: nn.Module = MODELS[description["name"]](**description["arguments"], generator=generator)
    return model


def load_model(run: RunFolder, *, best: bool = False) -> nn.Module:
    """Return the trained model of a run on the user's data, in evaluation mode.

    It has the weights of the end, or with `best` those of the epoch with the lowest validation error. That
    error is too low for new data, since the epoch was chosen by it.
    """
    if run.info.model.get("name") == OWN_MODEL:
        raise ValueError(
            f"{run.path} was trained with a model of your own: build the model, and load "
            "`run.model_state()` into it."
        )
    model = build_model(run.info.model, torch.Generator())
    model.load_state_dict(run.model_state(best=best))
    return model.eval()

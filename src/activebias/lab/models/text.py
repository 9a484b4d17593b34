"""The text models: Kim's sentence CNN (row qt-cnn) and the tagging CNN (rows conll2003-cnn, ontonotes5-cnn).

Both take row numbers of a fixed table of word vectors; row 0 is padding, a vector of zeros.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from activebias.training.dropout import Dropout
from activebias.training.layers import (
    conv1d,
    expect_integers,
    expect_shape,
    half_squares,
    linear,
    truncated_normal,
    xavier,
)

PADDING = 0
"""The row number of padding, for words and shapes."""

# More values than a sentence has at any layer, so that dropout masks do not depend on the padding.
_MOST_VALUES = 1 << 20


class SentenceCNN(nn.Module):
    """Convolutions of widths 2, 3, 4 (64 filters each), ReLU, max over time, dropout, FC.

    Pad all sentences of a data set to one length, as the base implementation does: windows over the padding
    are part of the maximum (their value is the filter's bias).

    >>> model = SentenceCNN(torch.zeros(9, 50), num_classes=6, generator=torch.Generator().manual_seed(0))
    >>> model(torch.tensor([[1, 2, 3, 4, 0], [5, 6, 0, 0, 0]])).shape
    torch.Size([2, 6])
    """

    vectors: Tensor

    def __init__(self, vectors: Tensor, *, num_classes: int, generator: torch.Generator) -> None:
        """Keep the word vectors (words, dimensions) as a buffer; draw the weights from `generator`."""
        super().__init__()
        self.register_buffer("vectors", _table(vectors))
        initial = truncated_normal(0.1, generator)
        self.convolutions = nn.ModuleList(
            conv1d(vectors.shape[1], 64, width, initial, bias=0.1, same=False) for width in (2, 3, 4)
        )
        self.output = linear(3 * 64, num_classes, xavier(generator), bias=0.1)
        self.dropout = Dropout(0.5, generator=generator)

    def forward(self, words: Tensor) -> Tensor:
        """Return logits (B, C) for words (B, L), L at least 4 (the widest filter)."""
        expect_shape("words", words, ("B", "L"))
        expect_integers("words", words)
        if words.shape[1] < 4:
            raise ValueError(
                "Expected `words` of length at least 4 (the widest filter), "
                f"but got {words.shape[1]}; pad with {PADDING}."
            )
        values = self.vectors[words].transpose(1, 2).to(self.output.weight.dtype)
        pooled = [F.relu(convolution(values)).amax(dim=2) for convolution in self.convolutions]
        logits: Tensor = self.output(self.dropout(torch.cat(pooled, dim=1)))
        return logits

    def regulariser(self) -> Tensor:
        """Return 0.01 · ½‖·‖² over the fully connected layer, bias included."""
        return 0.01 * half_squares(*self.output.parameters())

    def weight_decay(self) -> dict[str, float]:
        """Return the regulariser's strength by parameter."""
        return {"output.weight": 0.01, "output.bias": 0.01}


class TaggingCNN(nn.Module):
    """Word vectors, learned 5-dimensional word shapes; 3 convolutions of width 3, 100 filters; FC per token.

    Dropout is at the input and before the FC layer. Padded positions are zeros at every layer, so that a
    sentence's tags do not depend on its padding.

    >>> generator = torch.Generator().manual_seed(0)
    >>> model = TaggingCNN(torch.zeros(9, 50), num_shapes=4, num_classes=17, generator=generator)
    >>> tokens = torch.tensor([[[1, 1], [2, 3], [0, 0]]])  # (B, L, 2): word, shape
    >>> model(tokens).shape
    torch.Size([1, 3, 17])
    """

    vectors: Tensor

    def __init__(
        self,
        vectors: Tensor,
        *,
        num_shapes: int,
        num_classes: int,
        generator: torch.Generator,
        keep: tuple[float, float] = (0.5, 0.75),
    ) -> None:
        """Keep the word vectors (words, dimensions) as a buffer; draw the weights from `generator`.

        `keep` holds the keep probabilities of dropout at the input and at the hidden layer.
        """
        super().__init__()
        self.register_buffer("vectors", _table(vectors))
        if num_shapes < 1:
            raise ValueError(
                f"Expected `num_shapes` (padding included) to be at least 1, but got {num_shapes}."
            )
        initial = xavier(generator)
        self.shapes = nn.Parameter(initial((num_shapes, 5)))
        widths = (vectors.shape[1] + 5, 100, 100, 100)
        self.convolutions = nn.ModuleList(
            conv1d(inputs, outputs, 3, initial, bias=0.01, same=True) for inputs, outputs in pairwise(widths)
        )
        self.output = linear(100, num_classes, initial, bias=0.01)
        self.input_dropout = Dropout(keep[0], generator=generator, row_length=_MOST_VALUES)
        self.hidden_dropout = Dropout(keep[1], generator=generator, row_length=_MOST_VALUES)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (B, L, C) for tokens (B, L, 2): the row numbers of the word and of its shape."""
        expect_shape("tokens", tokens, ("B", "L", 2))
        expect_integers("tokens", tokens)
        words, shapes = tokens.unbind(dim=2)
        present = (words != PADDING).unsqueeze(1)
        # As a product, because the gradient of a look-up of so few rows is slow on a GPU.
        shape_values = F.one_hot(shapes, len(self.shapes)).to(self.shapes.dtype) @ self.shapes
        values = torch.cat([self.vectors[words].to(shape_values.dtype), shape_values], dim=2)
        values = self.input_dropout(values).transpose(1, 2) * present
        for convolution in self.convolutions:
            values = F.relu(convolution(values)) * present
        logits: Tensor = self.output(self.hidden_dropout(values.transpose(1, 2)))
        return logits

    def regulariser(self) -> Tensor:
        """Return 0.001 · ½‖·‖² over the fully connected layer, bias included."""
        return 0.001 * half_squares(*self.output.parameters())

    def weight_decay(self) -> dict[str, float]:
        """Return the regulariser's strength by parameter."""
        return {"output.weight": 0.001, "output.bias": 0.001}


def _table(vectors: Tensor) -> Tensor:
    if vectors.dim() != 2 or not vectors.is_floating_point():
        raise ValueError(
            "Expected `vectors` to be floating point of shape (words, dimensions), "
            f"but got {vectors.dtype} of shape {tuple(vectors.shape)}."
        )
    table = vectors.detach().to(torch.float32, copy=True)
    table[PADDING] = 0.0
    return table

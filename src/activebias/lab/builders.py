"""Builds the recipes' models for the data of a trial, with the trial's generator."""

import torch
from torch import nn
from torch.nn import functional

from activebias.lab import models
from activebias.lab.data import Dataset
from activebias.training.words import SHAPE_NAMES


def digits_mlp(dataset: Dataset, generator: torch.Generator) -> nn.Module:
    """Build the net of the digits."""
    return models.DigitsMLP(generator=generator, num_classes=dataset.num_classes)


def mnist_cnn(dataset: Dataset, generator: torch.Generator) -> nn.Module:
    """Build the convolutional net of MNIST."""
    return models.MnistCNN(generator=generator, num_classes=dataset.num_classes)


def sigmoid_net(dataset: Dataset, generator: torch.Generator) -> nn.Module:
    """Build the small sigmoid net of MNIST."""
    return models.SigmoidNet(generator=generator, num_classes=dataset.num_classes)


def distillation_teacher(dataset: Dataset, generator: torch.Generator) -> nn.Module:
    """Build the teacher of mnist-fc-distill."""
    return models.DistillationTeacher(generator=generator, num_classes=dataset.num_classes)


def softmax_regression(dataset: Dataset, generator: torch.Generator, spread: float = 1e-4) -> nn.Module:
    """Build softmax regression on pixels minus their mean."""
    # In parts, because all pixels of 50,000 images as floating point would take 1.2 GB.
    pixels = dataset.train.inputs[0]
    total = torch.stack([part.sum(0, dtype=torch.float64) for part in torch.split(pixels, 1000)]).sum(0)
    mean = (total / len(pixels)).float()
    return models.SoftmaxRegression(mean, generator=generator, num_classes=dataset.num_classes, spread=spread)


def softmax_regression_wide_start(dataset: Dataset, generator: torch.Generator) -> nn.Module:
    """Build softmax regression with ten times the spread of initial weights."""
    return softmax_regression(dataset, generator, spread=1e-3)


def residual_2(dataset: Dataset, generator: torch.Generator) -> nn.Module:
    """Build the residual net with two units per stage."""
    return models.ResidualNet(2, generator=generator, num_classes=dataset.num_classes)


def residual_5(dataset: Dataset, generator: torch.Generator) -> nn.Module:
    """Build the residual net with five units per stage."""
    return models.ResidualNet(5, generator=generator, num_classes=dataset.num_classes)


def _vectors(dataset: Dataset) -> torch.Tensor:
    if dataset.embedding is None:
        raise ValueError(
            f"The data set {dataset.name} has no word vectors, which its model keeps fixed: load it with the "
            "option `vectors`."
        )
    return dataset.embedding


def sentence_cnn(dataset: Dataset, generator: torch.Generator) -> nn.Module:
    """Build the sentence CNN on the data's word vectors."""
    return models.SentenceCNN(_vectors(dataset), num_classes=dataset.num_classes, generator=generator)


def sentence_cnn_of_unit_vectors(dataset: Dataset, generator: torch.Generator) -> nn.Module:
    """Build the sentence CNN on word vectors of length 1."""
    vectors = functional.normalize(_vectors(dataset), dim=1)
    return models.SentenceCNN(vectors, num_classes=dataset.num_classes, generator=generator)


def tagging_cnn(
    dataset: Dataset, generator: torch.Generator, keep: tuple[float, float] = (0.5, 0.75)
) -> nn.Module:
    """Build the tagging CNN; `keep` holds the keep probabilities of dropout at the input and hidden layer."""
    return models.TaggingCNN(
        _vectors(dataset),
        num_shapes=len(SHAPE_NAMES),
        num_classes=dataset.num_classes,
        generator=generator,
        keep=keep,
    )

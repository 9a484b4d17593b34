"""The toy example of the paper's figure 2: logistic regression in two dimensions, outliers left and right.

The weight of the x-axis is fixed at 0.5, so that the path of the other two parameters, `w[1]` and `b`, can be
drawn. The caller decides the weight of an instance: `train_toy` asks for weights and returns probabilities.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

X_WEIGHT = 0.5
"""The fixed weight of the x-axis."""

SPREAD = 2.5
"""The standard deviation σ of the clean classes."""


@dataclass(frozen=True)
class ToyData:
    """Points (N, 2), labels -1 or 1 (N,), and which points are outliers (N,)."""

    points: Tensor
    labels: Tensor
    is_outlier: Tensor

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.labels)


def draw_toy(generator: torch.Generator, *, num_clean: int = 200, num_outliers: int = 20) -> ToyData:
    """Draw two classes above and below a tilted line, and outliers of the wrong class on both far sides.

    The clean classes are Gaussians of standard deviation σ = 2.5 around ±½ σ² (0.5, 1), for which
    logistic regression has its optimum at the weights (0.5, 1) and b = 0: the boundary 0.5 x + y = 0. An
    outlier of class 1 lies far left and low, an outlier of class -1 far right and high. To fit the outliers,
    the model has to turn its boundary away from the clean boundary.

    >>> data = draw_toy(torch.Generator().manual_seed(0))
    >>> len(data), int(data.is_outlier.sum()), int(data.labels.sum())
    (220, 20, 0)
    """
    for name, number in (("num_clean", num_clean), ("num_outliers", num_outliers)):
        if number < 0 or number % 2:
            raise ValueError(
                f"Expected `{name}` to be even (half a class) and not below 0, but got {number}."
            )
    clean_labels = _signs(num_clean)
    center = 0.5 * SPREAD**2 * torch.tensor([X_WEIGHT, 1.0], dtype=torch.float64)
    clean = clean_labels[:, None] * center + SPREAD * _normal((num_clean, 2), generator)
    outlier_labels = _signs(num_outliers)
    outlier_center = SPREAD * torch.tensor([-5.0, -0.75], dtype=torch.float64)
    outliers = outlier_labels[:, None] * outlier_center + _normal((num_outliers, 2), generator)
    return ToyData(
        points=torch.cat([clean, outliers]),
        labels=torch.cat([clean_labels, outlier_labels]),
        is_outlier=torch.arange(num_clean + num_outliers) >= num_clean,
    )


def toy_probabilities(data: ToyData, parameters: Tensor) -> Tensor:
    """Return `p(y_i|x_i)`, (..., N) for parameters (..., 2): w[1] and b."""
    w, b = parameters[..., :1], parameters[..., 1:]
    return torch.sigmoid(data.labels * (X_WEIGHT * data.points[:, 0] + w * data.points[:, 1] + b))


def train_toy(
    weights_of: Callable[[Tensor], Tensor],
    record: Callable[[Tensor, Tensor], object],
    *,
    data: ToyData,
    generator: torch.Generator,
    num_epochs: int = 60,
    batch_size: int = 10,
    learning_rate: float = 0.15,
    start: tuple[float, float] = (0.0, 0.0),
    on_epoch: Callable[[int], object] | None = None,
) -> Tensor:
    """Train (w[1], b) by mini-batch SGD without replacement.

    In every iteration `weights_of(index)` returns the weights v of the batch. After the update,
    `record(index, prob)` receives the p(y|x) of the batch before the update. `on_epoch(epoch)` is called
    before each epoch. Returns the parameters at the start and after every iteration, (T + 1, 2). With the
    core: `weights_of=bias.weight, record=bias.record, on_epoch=bias.set_epoch`.

    >>> generator = torch.Generator().manual_seed(0)
    >>> path = train_toy(
    ...     lambda index: torch.ones(len(index)),
    ...     lambda index, prob: None,
    ...     data=draw_toy(generator),
    ...     generator=generator,
    ...     num_epochs=2,
    ... )
    >>> path.shape
    torch.Size([45, 2])
    """
    for name, number in (("num_epochs", num_epochs), ("batch_size", batch_size)):
        if number < 1:
            raise ValueError(f"Expected `{name}` to be at least 1, but got {number}.")
    parameters = torch.tensor(start, dtype=torch.float64)
    # The features of the parameters: the y-coordinate for w[1], the constant 1 for b.
    inputs = torch.stack([data.points[:, 1], torch.ones_like(data.labels)], dim=1)
    path = [parameters]
    for epoch in range(num_epochs):
        if on_epoch is not None:
            on_epoch(epoch)
        for index in torch.split(torch.randperm(len(data), generator=generator), batch_size):
            weights = weights_of(index).to(torch.float64)
            if weights.shape != index.shape:
                raise ValueError(
                    f"Expected `weights_of` to give weights of shape {tuple(index.shape)}, "
                    f"but got {tuple(weights.shape)}."
                )
            batch = ToyData(data.points[index], data.labels[index], data.is_outlier[index])
            prob = toy_probabilities(batch, parameters)
            slope = -(weights * (1 - prob) * batch.labels) @ inputs[index] / len(index)
            parameters = parameters - learning_rate * slope
            path.append(parameters)
            record(index, prob)
    return torch.stack(path)


def clean_parameters(data: ToyData) -> Tensor:
    """Return the (w[1], b) that fit the clean points best (Newton's method): the goal of the training.

    >>> clean_parameters(draw_toy(torch.Generator().manual_seed(0)))
    tensor([1.0712, 0.1961], dtype=torch.float64)
    """
    clean = ~data.is_outlier
    part = ToyData(data.points[clean], data.labels[clean], data.is_outlier[clean])
    inputs = torch.stack([part.points[:, 1], torch.ones_like(part.labels)], dim=1)
    parameters = torch.zeros(2, dtype=torch.float64)
    for _ in range(25):
        prob = toy_probabilities(part, parameters)
        slope = -((1 - prob) * part.labels) @ inputs
        curvature = inputs.T @ ((prob * (1 - prob))[:, None] * inputs)
        step: Tensor = torch.linalg.solve(curvature, slope)
        parameters = parameters - step
        if float(step.abs().max()) < 1e-12:
            return parameters
    raise RuntimeError(
        "Newton's method did not converge: the clean points of `data` can be separated without error; "
        "draw more clean points."
    )


def boundary_height(parameters: Tensor, x: Tensor) -> Tensor:
    """Return the y of the boundary `0.5 x + w[1] y + b = 0`, (..., M) for parameters (..., 2) and x (M,).

    >>> boundary_height(torch.tensor([1.0, 0.5]), torch.tensor([0.0, 1.0]))
    tensor([-0.5000, -1.0000])
    """
    return -(X_WEIGHT * x + parameters[..., 1:]) / parameters[..., :1]


def _signs(number: int) -> Tensor:
    return torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(number // 2)


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=generator)

"""Compares methods on a user's model, with data in RAM."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from activebias import Method
from activebias.lab.data import Dataset, Examples
from activebias.lab.experiment.place import Listener, Place, check_folder
from activebias.lab.experiment.recipe import Noise, Optimiser, Recipe
from activebias.lab.experiment.results import TrialResult
from activebias.lab.trials import run_trials
from activebias.training.examples import IGNORE
from activebias.training.fingerprint import build_seeded, digest_of, digest_of_outputs, first_few, probe
from activebias.training.randomness import derived_seed


def compare(
    model: Callable[[], nn.Module],
    train: tuple[Any, Any],
    test: tuple[Any, Any],
    *,
    methods: str | Method | Sequence[str | Method] = ("scan", "wpv", "wtc"),
    trials: int = 5,
    epochs: int = 30,
    burn_in: int = 5,
    batch_size: int = 64,
    optimiser: Optimiser | None = None,
    window: int | None = None,
    noise: Noise | str | float | None = None,
    name: str = "own",
    out: str | Path = "runs",
    device: str = "cpu",
    listener: Listener | None = None,
) -> list[TrialResult]:
    """Train your model with every method, in the paper's protocol, and return the results.

    `activebias.lab.comparison_table(results)` shows them. Stored results with the same settings, model and
    data are read from `out`, with a message, and not computed again. A stopped run resumes from its
    checkpoint. A model is identified by its layers and by its seeded outputs for a few training inputs.

    Args:
        model: builds a new model with random initial weights. It is called with a seeded random state, so
            that trials can be repeated and all methods of a trial start with the same weights. The model may
            have a method `regulariser()`, whose value is added to the loss.
        train, test: inputs and int labels, as arrays or tensors. The model receives batches of the inputs
            unchanged. In tagging, labels are (sentences, words), padded with -100.
        methods: names of the paper's methods, or your own `Method`s; one, several, or "scan,wpv".
        trials: the number of trials; their seeds are 0 to trials - 1.
        epochs: the number of epochs, larger than `burn_in`: methods differ only after the burn-in.
        burn_in, batch_size, window: as in `activebias.ActiveBias`.
        optimiser: by default SGD with learning rate 0.1 and momentum 0.9.
        noise: label noise for the training labels: a `Noise`, or a value as on the command line, such as
            0.1 or "uniform_other:0.2".
        name: the name of the results in the store.
        out: the folder of the store.
        device: the device to train on.
        listener: receives epochs, results and messages; by default, messages go to stderr.

    >>> import tempfile
    >>> inputs = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    >>> labels = (inputs[:, 0] > 0).long()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = compare(
    ...         lambda: nn.Linear(4, 2), (inputs[:40], labels[:40]), (inputs[40:], labels[40:]),
    ...         methods=["scan", "wpv"], trials=1, epochs=4, burn_in=1, batch_size=10, out=folder)
    >>> [(result.method, len(result.test_error)) for result in results]
    [('scan', 4), ('wpv', 4)]
    """
    check_folder(Path(out), "out")
    methods, noise = _methods(methods), _noise(noise)
    parts = {"train": _examples("train", train), "test": _examples("test", test)}
    num_classes = _num_classes(parts)
    few = first_few(parts["train"])
    outputs = probe(model, few.inputs, device)
    _check_outputs(outputs[0], few.targets.shape, parts)
    names = tuple(str(number) for number in range(num_classes))
    dataset = Dataset(name, parts["train"], parts["test"], num_classes, names)
    recipe = Recipe(
        name=name,
        title=f"{name}: the user's model and data",
        data=f"own data {digest_of(list(parts.values()))[:16]}",
        architecture=f"{_layers(model)}\ncomputes {digest_of_outputs(outputs)}",
        model=lambda _, generator: build_seeded(model, int(torch.randint(2**62, (), generator=generator))),
        optimiser=optimiser or Optimiser("sgd", 0.1, momentum=0.9),
        batch_size=batch_size,
        epochs=epochs,
        burn_in=burn_in,
        window=window,
        methods=tuple(method if isinstance(method, str) else method.name for method in methods),
        trials=trials,
        noise=noise,
    )
    _check_burn_in(recipe)
    return run_trials(
        recipe,
        methods=methods,
        seeds=range(trials),
        place=Place(Path(out), device=device),
        dataset=dataset,
        listener=listener or Listener(on_message=lambda text: print(text, file=sys.stderr)),
    )


def _methods(methods: str | Method | Sequence[str | Method]) -> list[str | Method]:
    if isinstance(methods, str):
        return [word.strip() for word in methods.split(",")]
    return [methods] if isinstance(methods, Method) else list(methods)


def _noise(noise: Noise | str | float | None) -> Noise | None:
    if noise is not None and not isinstance(noise, Noise):
        noise = Noise.parse(str(noise))
    if noise is not None and noise.kind == "human":
        raise ValueError(
            "Expected `noise` to be of a kind that is drawn, such as uniform_other:0.2, but got human: "
            "human labels exist for CIFAR only. Pass human labels of your data in `train`."
        )
    return noise


def _check_burn_in(recipe: Recipe) -> None:
    """Raise if the burn-in covers all epochs: then all methods would be equal."""
    if recipe.burn_in >= recipe.epochs:
        raise ValueError(
            f"Expected `burn_in` to be less than `epochs`, {recipe.epochs}, but got {recipe.burn_in}: "
            "no instance would be emphasised, and all methods would be equal. Train longer, or pass a "
            "smaller `burn_in`."
        )


def _num_classes(parts: dict[str, Examples]) -> int:
    """Return the number of classes; labels must count from 0."""
    for name, part in parts.items():
        if len(part) == 0:
            raise ValueError(f"Expected `{name}` to hold at least one example, but it is empty.")
        negative = part.targets[part.targets < 0]
        wrong = negative[negative != IGNORE] if part.targets.dim() == 2 else negative
        if len(wrong):
            raise ValueError(
                f"Expected `{name}` to have labels from 0 on (and -100 after a sentence's end, in tagging), "
                f"but got {int(wrong[0])}: number the classes from 0."
            )
    num_classes = 1 + int(max(part.targets.max() for part in parts.values()))
    if num_classes < 2:
        raise ValueError(
            "Expected `train` and `test` to have labels of at least two classes, 0 and 1, but got one."
        )
    return num_classes


def _check_outputs(outputs: object, labels: torch.Size, parts: dict[str, Examples]) -> None:
    """Raise if the model's outputs do not fit the labels, before training starts."""
    if not isinstance(outputs, Tensor):
        raise TypeError(
            "Expected `model` to give a tensor with one output per class, but got "
            f"{type(outputs).__name__}: wrap it in a module that returns the logits."
        )
    if outputs.shape[:-1] != labels:
        raise ValueError(
            f"Expected `model` to give one output per class, for labels of shape {tuple(labels)} a tensor "
            f"({', '.join(map(str, labels))}, classes), but got {tuple(outputs.shape)}."
        )
    number = outputs.shape[-1]
    for name, part in parts.items():
        largest = int(part.targets.max())
        if largest >= number:
            raise ValueError(
                f"Expected `{name}` to have labels that the model has outputs for, 0 to {number - 1}, but "
                f"got {largest}: number the classes from 0, or give the model {largest + 1} outputs."
            )


def _examples(name: str, pair: tuple[Any, Any]) -> Examples:
    try:
        inputs, targets = pair
    except (TypeError, ValueError):
        raise TypeError(
            f"Expected `{name}` to be a pair (inputs, labels), but got {type(pair).__name__}."
        ) from None
    labels = torch.as_tensor(targets)
    if labels.is_floating_point():
        raise TypeError(
            f"Expected `{name}` to have integer labels, but got {labels.dtype}: class numbers from 0."
        )
    lengths = (labels != -100).sum(1) if labels.dim() == 2 else None
    return Examples((torch.as_tensor(inputs),), labels.long(), lengths)


def _layers(model: Callable[[], nn.Module]) -> str:
    """Return the model's layers as text, readable for a person in the store."""
    return str(build_seeded(model, derived_seed(0, "description")))

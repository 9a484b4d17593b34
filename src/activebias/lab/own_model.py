"""The comparison of methods on a user's own model, with data in memory."""

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
    """Train a model of your own by every method, in the paper's protocol, and return the results.

    `activebias.lab.comparison_table(results)` shows them. What was computed before under the same settings,
    model and data is read from the store in `out`, and a message says so; a run that was stopped goes on
    where it was. A model is known by its layers and by what it computes, seeded, for a few training inputs.

    Args:
        model: builds a new model with random initial weights. It is called under a random state of its own,
            so that trials can be repeated and the methods of a trial begin with the same weights. A method
            `regulariser()` of the model, if it has one, is added to the loss.
        train, test: inputs and int labels, arrays or tensors; the inputs go to the model in batches as they
            are. In tagging, labels are (sentences, words) with -100 after a sentence's end.
        methods: names of the paper's methods, or `Method`s of your own; one, several, or "scan,wpv".
        trials: how many seeds, 0 to trials - 1.
        epochs: how many there are; more than those of the burn-in, after which the methods begin to differ.
        burn_in, batch_size, window: as in `activebias.ActiveBias`.
        optimiser: SGD with learning rate 0.1 and momentum 0.9 unless told otherwise.
        noise: label noise to add to the training labels: a `Noise`, or what the command line takes, such as
            0.1 or "uniform_other:0.2".
        name: under which results are stored.
        out: the folder of the store.
        device: where to train.
        listener: is told about epochs and results; without one, messages go to the error stream.

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
        title=f"{name}: a model and data of one's own",
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
            "labels that people gave are those of CIFAR. Pass such labels of your own in `train`."
        )
    return noise


def _check_burn_in(recipe: Recipe) -> None:
    """Refuse a training in which all methods would be the same: that is no finding about them."""
    if recipe.burn_in >= recipe.epochs:
        raise ValueError(
            f"Expected `burn_in` to be less than `epochs`, {recipe.epochs}, but got {recipe.burn_in}: "
            "nothing would be emphasised, and no method differ from another. Train longer, or pass a smaller "
            "`burn_in`."
        )


def _num_classes(parts: dict[str, Examples]) -> int:
    """Return how many classes the labels are of; they must be counted from 0."""
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
    """Refuse a model whose outputs do not fit the labels, before torch does so in the middle of a trial."""
    if not isinstance(outputs, Tensor):
        raise TypeError(
            "Expected `model` to give a tensor of one output a class, but got "
            f"{type(outputs).__name__}: wrap it in a module that returns the logits."
        )
    if outputs.shape[:-1] != labels:
        raise ValueError(
            f"Expected `model` to give one output a class, for labels of shape {tuple(labels)} a tensor "
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
    """Return the model's layers as text, which a person can read in the store."""
    return str(build_seeded(model, derived_seed(0, "description")))

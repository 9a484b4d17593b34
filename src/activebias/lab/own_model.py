"""Compares methods on a user's model and data, over repeated splits."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from activebias import MemorisationWarning, Method
from activebias.lab.data import Dataset, Examples
from activebias.lab.experiment.place import Listener, Place, check_folder
from activebias.lab.experiment.recipe import Noise, Optimiser, Recipe
from activebias.lab.experiment.splitting import Split, split_rows
from activebias.lab.own_arrays import read_arrays
from activebias.lab.split_comparison import SplitComparison, compare_splits
from activebias.training.fingerprint import build_seeded, digest_of, digest_of_outputs, first_few, probe
from activebias.training.randomness import derived_seed

# The default method and label smoothing, each alone and together; and easy instances, for wrong labels.
METHODS: Final = ("scan", "wtc", "label-smoothing", "wtc+label-smoothing", "we")
EPOCHS: Final = 30
SPLITS: Final = 10


def compare(
    model: Callable[[], nn.Module],
    data: Any,
    *,
    methods: str | Method | Sequence[str | Method] = METHODS,
    splits: int = SPLITS,
    minutes: float | None = None,
    epochs: int = EPOCHS,
    burn_in: int | None = None,
    batch_size: int | None = None,
    optimiser: Optimiser | None = None,
    window: int | None = None,
    search: bool = False,
    noise: Noise | str | float | None = None,
    validation: float = 0.2,
    test: float = 0.2,
    name: str = "own",
    out: str | Path = "runs",
    device: str = "cpu",
    side_by_side: int | None = None,
    listener: Listener | None = None,
    quiet: bool = False,
) -> SplitComparison:
    """Train your model with every method on repeated splits of your data, and test the differences.

    In every split the data is divided into a training, a validation and a test part, the same for all
    methods. The validation error chooses the epoch; the test error is reported. `print` the result for a
    table and a verdict.

    Models are trained side by side if their layers allow it, otherwise one by one. Progress is shown on
    stderr. Stored results with the same settings, model and data are read from `out`, with a message, and
    not computed again; a stopped comparison resumes. A model is identified by its layers and by its seeded
    outputs for a few inputs.

    Args:
        model: builds a new model with random initial weights. It is called with a seeded random state, so
            that splits can be repeated and all methods of a split start with the same weights. The model may
            have a method `regulariser()`, whose value is added to the loss.
        data: a pair (inputs, labels), or a data set of such pairs. Inputs are numbers: an array, a tensor,
            a DataFrame or a list. Floating point inputs get the type of the model's weights. Labels are
            integers or words; in tagging integers (sentences, words), padded with -100.
        methods: names of methods ("auto" too), or your own `Method`s; one, several, or "scan,wtc".
        splits: the number of splits.
        minutes: a budget. If it is too small for all splits, fewer splits are finished.
        epochs: the number of epochs, larger than `burn_in`: methods differ only after the burn-in.
        burn_in: the number of epochs without emphasis; by default a fifth of the epochs.
        batch_size: by default 64, or less for small data: about 20 batches an epoch, of at least 8.
        optimiser: by default Adam with learning rate 0.002.
        window: as in `activebias.ActiveBias`.
        search: train every method with the learning rate times 1/3, 1, 3 and 10, and a peer with two or
            three values of its parameter; in each split the setting with the lowest validation error counts.
        noise: label noise for the training labels: a `Noise`, or a value as on the command line, such as
            0.1 or "uniform_other:0.2". The labels of the other parts stay as they are.
        validation, test: the shares of the examples in these parts.
        name: the name of the results in the store.
        out: the folder of the store.
        device: the device to train on.
        side_by_side: the most models that are trained at once; by default as many as fit and save time.
        listener: receives epochs, results and messages, in place of the progress on stderr.
        quiet: show no progress.

    >>> import tempfile
    >>> inputs = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    >>> labels = ["yes" if value > 0 else "no" for value in inputs[:, 0]]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = compare(lambda: nn.Linear(4, 2), (inputs, labels), methods="scan,wtc", splits=2,
    ...                     epochs=4, out=folder, quiet=True)
    >>> [(result.method, result.seed, len(result.test_error)) for result in found.results]
    [('scan', 0, 4), ('wtc', 0, 4), ('scan', 1, 4), ('wtc', 1, 4)]
    """
    check_folder(Path(out), "out")
    if splits < 1:
        raise ValueError(f"Expected `splits` to be at least 1, but got {splits}.")
    examples, class_names = read_arrays(data)
    examples = _in_type_of(model, examples)
    outputs = _probe(model, examples, device)
    _check_outputs(outputs[0], first_few(examples).targets.shape, examples)
    split, chosen = Split(validation, test), _methods(methods)
    num_train = len(split_rows(examples, split, 0).train)
    burn_in = default_burn_in(epochs) if burn_in is None else burn_in
    recipe = Recipe(
        name=name,
        title=f"{name}: the user's model and data",
        data=f"own data {digest_of([examples])[:16]}",
        architecture=f"{_layers(model)}\ncomputes {digest_of_outputs(outputs)}",
        model=lambda _, generator: build_seeded(model, int(torch.randint(2**62, (), generator=generator))),
        optimiser=optimiser or Optimiser("adam", 0.002),
        batch_size=batch_size or min(64, max(num_train // 20, 8), num_train),
        epochs=epochs,
        burn_in=burn_in,
        window=window,
        methods=tuple(method if isinstance(method, str) else method.name for method in chosen),
        trials=splits,
        noise=_noise(noise),
        split=split,
    )
    found = compare_splits(
        recipe,
        Dataset(name, examples, examples, len(class_names), class_names),
        chosen,
        place=Place(Path(out), device=device, side_by_side=side_by_side),
        minutes=minutes,
        listener=listener,
        quiet=quiet,
        search=search,
    )
    for warning in found.warnings:
        warnings.warn(warning, MemorisationWarning, stacklevel=2)
    return found


def default_burn_in(epochs: int) -> int:
    """Return a fifth of the epochs, as in the quick start and most of the paper's experiments."""
    return epochs // 5


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
            "human labels exist for CIFAR only. Pass human labels of your data in `data`."
        )
    return noise


def _in_type_of(model: Callable[[], nn.Module], examples: Examples) -> Examples:
    """Return the examples with floating point inputs in the type of the model's weights."""
    (inputs,) = examples.inputs
    if not inputs.is_floating_point():
        return examples
    weights = build_seeded(model, derived_seed(0, "description")).parameters()
    wanted = next((weight.dtype for weight in weights if weight.is_floating_point()), torch.float32)
    return Examples((inputs.to(wanted),), examples.targets, examples.lengths)


def _probe(model: Callable[[], nn.Module], examples: Examples, device: str) -> list[Tensor]:
    few = first_few(examples)
    try:
        return probe(model, few.inputs, device)
    except (RuntimeError, ValueError, IndexError) as error:
        (inputs,) = few.inputs
        hint = "" if inputs.is_floating_point() else " If the model needs fractions, give float inputs."
        raise ValueError(
            f"Expected `model` to take a batch of `data`'s inputs, {inputs.dtype} of shape "
            f"{tuple(inputs.shape)}, but it raised {type(error).__name__}: {error}.{hint}"
        ) from error


def _check_outputs(outputs: object, labels: torch.Size, examples: Examples) -> None:
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
    number, largest = outputs.shape[-1], int(examples.targets.max())
    if largest >= number:
        raise ValueError(
            f"Expected `model` to have an output for every class of `data`, {largest + 1}, but it has "
            f"{number}: give the model {largest + 1} outputs."
        )


def _layers(model: Callable[[], nn.Module]) -> str:
    """Return the model's layers as text, readable for a person in the store."""
    return str(build_seeded(model, derived_seed(0, "description")))

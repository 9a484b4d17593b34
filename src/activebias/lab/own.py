"""The comparison of methods on a user's own model and data."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from activebias import Method
from activebias.lab.data import Dataset, Examples
from activebias.lab.randomness import derived_seed
from activebias.lab.recipe import Noise, Optimiser, Recipe
from activebias.lab.store import TrialResult
from activebias.lab.trials import Listener, Place, run_trials


def compare(
    model: Callable[[], nn.Module],
    train: tuple[Any, Any],
    test: tuple[Any, Any],
    *,
    methods: Sequence[str | Method] = ("scan", "wpv", "wtc"),
    trials: int = 5,
    epochs: int = 30,
    burn_in: int = 5,
    batch_size: int = 64,
    optimiser: Optimiser | None = None,
    window: int | None = None,
    noise: Noise | None = None,
    name: str = "own",
    out: str | Path = "runs",
    device: str = "cpu",
    listener: Listener | None = None,
) -> list[TrialResult]:
    """Train a model of your own by every method, in the paper's protocol, and return the results.

    `activebias.lab.comparison_table(results)` shows them. What was computed before under the same settings,
    model and data is read from the store in `out`; a run that was stopped goes on where it was.

    Args:
        model: builds a new model with random initial weights. It is called under a random state of its own,
            so that trials can be repeated and the methods of a trial begin with the same weights. A method
            `regulariser()` of the model, if it has one, is added to the loss.
        train, test: inputs and int labels, arrays or tensors; the inputs go to the model in batches as they
            are. In tagging, labels are (sentences, words) with -100 after a sentence's end.
        methods: names of the paper's methods, or `Method`s of your own.
        trials: how many seeds, 0 to trials - 1.
        epochs, burn_in, batch_size, window: as in `activebias.ActiveBias`.
        optimiser: SGD with learning rate 0.1 and momentum 0.9 unless told otherwise.
        noise: label noise to add to the training labels.
        name: under which results are stored.
        out: the folder of the store.
        device: where to train.
        listener: is told about epochs and results.

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
    parts = [_examples("train", train), _examples("test", test)]
    num_classes = 1 + int(max(part.targets.max() for part in parts))
    if num_classes < 2:
        raise ValueError("`train` and `test` must have labels of at least two classes, 0 and 1, but got one.")
    names = tuple(str(number) for number in range(num_classes))
    dataset = Dataset(name, parts[0], parts[1], num_classes, names)
    recipe = Recipe(
        name=name,
        title=f"{name}: a model and data of one's own",
        data=f"own data {digest_of(parts)[:16]}",
        architecture=_description(model),
        model=lambda _, generator: _seeded(model, int(torch.randint(2**62, (), generator=generator))),
        optimiser=optimiser or Optimiser("sgd", 0.1, momentum=0.9),
        batch_size=batch_size,
        epochs=epochs,
        burn_in=burn_in,
        window=window,
        methods=tuple(method if isinstance(method, str) else method.name for method in methods),
        trials=trials,
        noise=noise,
    )
    return run_trials(
        recipe,
        methods=methods,
        seeds=range(trials),
        place=Place(Path(out), device=device),
        dataset=dataset,
        listener=listener,
    )


def _examples(name: str, pair: tuple[Any, Any]) -> Examples:
    try:
        inputs, targets = pair
    except (TypeError, ValueError):
        raise TypeError(f"`{name}` must be a pair (inputs, labels), but got {type(pair).__name__}.") from None
    labels = torch.as_tensor(targets)
    if labels.is_floating_point():
        raise TypeError(f"`{name}` must have integer labels, but got {labels.dtype}: class numbers from 0.")
    lengths = (labels != -100).sum(1) if labels.dim() == 2 else None
    return Examples((torch.as_tensor(inputs),), labels.long(), lengths)


def digest_of(parts: Sequence[Examples]) -> str:
    """Return what tells these tensors from others, so that results of other data are not taken for theirs."""
    digest = hashlib.sha256()
    for part in parts:
        for tensor in (*part.inputs, part.targets):
            digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def _description(model: Callable[[], nn.Module]) -> str:
    """Return the model's layers, by which results of one architecture are told from another's."""
    return str(_seeded(model, derived_seed(0, "description")))


def _seeded(model: Callable[[], nn.Module], seed: int) -> nn.Module:
    if isinstance(model, nn.Module):
        raise TypeError(
            "`model` must be a function that builds a new model for every trial, such as `lambda: Net()`, "
            f"but got a {type(model).__name__} itself."
        )
    # A model of the user's own draws from torch's global state: lend it one, and put the old one back.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        built = model()
    if not isinstance(built, nn.Module):
        raise TypeError(f"`model` must build a torch.nn.Module when called, but gave {type(built).__name__}.")
    return built

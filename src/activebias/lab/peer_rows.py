"""The rows of docs/peers.md: recipes with several kinds of label noise, shortened, in order of importance."""

from dataclasses import replace
from typing import Final

from activebias.lab.cookbook import get_recipe
from activebias.lab.experiment.recipe import Noise, Recipe
from activebias.lab.peers import PEERS
from activebias.lab.protocol import SEARCH_SEEDS, Protocol
from activebias.lab.significance import WEIGHTING_METHODS

# The training examples of the rows by data set, before a part is held out (trec: the recipe takes 1,000).
_EXAMPLES: Final = {"mnist": 60_000, "cifar10": 50_000, "trec": 1_000, "wnut17": 3_394, "digits": 1_297}
PAIRS: Final = ("wtc+label-smoothing", "wtc+sce", "we+elr", "auto+label-smoothing")
SIDES: Final = (*WEIGHTING_METHODS, "auto", *PEERS, *PAIRS)


def _row(name: str, base: str, title: str, *, epochs: int | None = None, noise: str = "0") -> Recipe:
    recipe = get_recipe(base)
    if epochs is not None:
        recipe = recipe.compressed(epochs)
    return replace(recipe, name=name, title=title, noise=Noise.parse(noise), row=None)


def peer_rows() -> dict[str, Protocol]:
    """Return the protocol of every row by the row's name.

    >>> rows = peer_rows()
    >>> list(rows)[:2], rows["mnist-cnn-40"].recipe.noise.fraction
    (['mnist-cnn-0', 'mnist-cnn-10'], 0.4)
    """
    recipes = [
        _row("mnist-cnn-0", "mnist-cnn", "MNIST CNN, clean labels", epochs=40),
        *(
            _row(
                f"mnist-cnn-{share}",
                "mnist-cnn",
                f"MNIST CNN, {share} % of the labels redrawn",
                epochs=40,
                noise=str(share / 100),
            )
            for share in (10, 20, 40)
        ),
        _row(
            "mnist-cnn-flips-20",
            "mnist-cnn",
            "MNIST CNN, 20 % of the labels of five classes flipped",
            epochs=40,
            noise="class_dependent:0.2",
        ),
        _row("mnist-fc", "mnist-fc", "MNIST, 784-100-10 sigmoid net"),
        _row("cifar10-lr", "cifar10-lr", "CIFAR-10, softmax regression on pixels"),
        _row("cifar10-rn27", "cifar10-rn27", "CIFAR-10, residual net", epochs=60),
        *(
            _row(
                f"cifar10-rn27-{annotation}",
                "cifar10-rn27",
                f"CIFAR-10, residual net, CIFAR-10N labels ({annotation}, {share} % wrong)",
                epochs=60,
                noise=f"human:{annotation}",
            )
            for annotation, share in (("aggregate", 9), ("worst", 40))
        ),
        _row("qt-cnn", "qt-cnn", "TREC question type, sentence CNN"),
        _row("wnut17-cnn", "wnut17-cnn", "WNUT-17 named entities, tagging CNN (100 - entity F1)"),
        _row("digits-0", "digits", "Digits, clean labels"),
        *(
            _row(
                f"digits-{share}",
                "digits",
                f"Digits, {share} % of the labels wrong",
                noise=f"uniform_other:{share / 100}",
            )
            for share in (20, 40)
        ),
        _row(
            "digits-flips-30",
            "digits",
            "Digits, 30 % of the labels flipped",
            noise="class_dependent:0.3",
        ),
    ]
    return {
        recipe.name: replace(Protocol.of(recipe, _sides(recipe)), search_seeds=_search_seeds(recipe))
        for recipe in recipes
    }


def _search_seeds(recipe: Recipe) -> tuple[int, ...]:
    """Return more seeds for digits and questions: 130 and 100 validation examples tell little."""
    small = recipe.data in ("digits", "trec")
    return tuple(range(SEARCH_SEEDS[0], SEARCH_SEEDS[0] + 5)) if small else SEARCH_SEEDS


def _sides(recipe: Recipe) -> list[str]:
    """Return the sides that can train on the recipe's data."""
    if recipe.metric == "error":
        return list(SIDES)
    return [name for name in SIDES if name not in PEERS or PEERS[name].can_tag]


def num_trials(recipe: Recipe) -> int:
    """Return the number of trials of a row: 10, of residual nets 5, of digits 20."""
    if recipe.data == "digits":
        return 20
    return 5 if recipe.name.startswith("cifar10-rn") else 10


def steps_an_epoch(recipe: Recipe) -> int:
    """Return the number of steps of an epoch, without the examples that are held out.

    >>> steps_an_epoch(peer_rows()["mnist-cnn-0"].recipe)
    843
    """
    examples = _EXAMPLES[recipe.data]
    return (examples - round((recipe.validation or 0) * examples)) // recipe.batch_size

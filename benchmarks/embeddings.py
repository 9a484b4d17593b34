"""How much do the word vectors move the differences to Scan? Scan, WD and WTC with three other embeddings.

    python benchmarks/embeddings.py --device cuda --out results/studies
    python benchmarks/embeddings.py --recipe conll2003-cnn --trials 5 --device cuda --out results/studies

The paper's vectors are not available, and GloVe (50 dimensions) stands in for them. Here the same trials are
trained with random vectors, with GloVe times 0.3, and with GloVe reduced to 25 dimensions by PCA. Results go
into a store of their own, and the next call goes on where this one stopped. The trials with GloVe come from
the result store. Prints, for every embedding, the paired differences to Scan, and how far they moved from
those of the same trials with GloVe.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from uni import compared, spread

from activebias.lab import Listener, Place, ResultStore, get_recipe, run_trials
from activebias.lab.data.vectors import PADDING, UNKNOWN, reduce_dimensions
from activebias.lab.experiment.prepared import load_data
from activebias.lab.experiment.results import METRICS
from activebias.lab.paper import paper_value

METHODS = ("scan", "wd", "wtc")
SCALE, DIMENSIONS = 0.3, 25
GLOVE = "glove"


def random_vectors(vectors: Tensor) -> Tensor:
    """Return normal vectors with the spread of the given ones: a word has an identity, and no meaning."""
    generator = torch.Generator().manual_seed(0)
    drawn = vectors[UNKNOWN + 1 :].std() * torch.randn(vectors.shape, generator=generator)
    drawn[PADDING] = 0
    return drawn


def reduced(vectors: Tensor) -> Tensor:
    """Return the vectors by PCA, as the reader of vectors does it: the unknown word is the mean."""
    words = reduce_dimensions(vectors[UNKNOWN + 1 :], DIMENSIONS)
    return torch.cat([words.new_zeros(1, DIMENSIONS), words.mean(0, keepdim=True), words])


EMBEDDINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "random": random_vectors,
    "scaled": lambda vectors: SCALE * vectors,
    "pca": reduced,
}


def with_vectors(recipe, embedding):
    """Return the recipe under a name of its own, which separates its results from those with GloVe."""
    return replace(
        recipe,
        name=f"{recipe.name}-{embedding}",
        architecture=f"{recipe.architecture}({embedding} vectors)",
    )


def train(recipe, embeddings, seeds, place):
    """Train what the store lacks; return {embedding: results}."""
    dataset = load_data(recipe, place.data)
    listener = Listener(on_message=lambda text: print(text, flush=True))
    results = {}
    for embedding in embeddings:
        variant = replace(dataset, embedding=EMBEDDINGS[embedding](dataset.embedding))
        results[embedding] = run_trials(
            with_vectors(recipe, embedding),
            methods=METHODS,
            seeds=seeds,
            place=place,
            dataset=variant,
            listener=listener,
        )
        seconds = sum(result.seconds for result in results[embedding])
        print(f"{recipe.name}, {embedding} vectors: {seconds:.0f} s of training", flush=True)
    return results


def differences(results, method, metric):
    """Return {seed: the error of a method minus Scan's}."""
    errors = {
        name: {result.seed: result.metric(metric) for result in results if result.method == name}
        for name in (method, "scan")
    }
    return {seed: errors[method][seed] - errors["scan"][seed] for seed in errors[method]}


def show(recipe, results, metric):
    """Print a line for every embedding: Scan, the differences to it, and how far they moved from GloVe's."""
    others = METHODS[1:]
    heads = [head for name in others for head in (f"{name} - scan", "moved by")]
    print(f"\n{recipe.name}, {metric}\n\n| vectors | n | scan | " + " | ".join(heads) + " |")
    print("|---|" + "---:|" * (2 + len(heads)))
    for embedding, group in results.items():
        scan = [result.metric(metric) for result in group if result.method == "scan"]
        cells = [embedding, str(len(scan)), spread(scan)]
        for method in others:
            ours = differences(group, method, metric)
            moved = {} if embedding == GLOVE else differences(results.get(GLOVE, ()), method, metric)
            cells += [compared(ours, dict.fromkeys(ours, 0.0)), compared(ours, moved) if moved else "–"]
        print("| " + " | ".join(cells) + " |")
    paper = {method: paper_value(recipe.row, method, metric) for method in METHODS} if recipe.row else {}
    if paper and all(paper.values()):
        cells = [f"{paper[name][0] - paper['scan'][0]:+.2f} | –" for name in others]
        print(f"| the paper's | – | {paper['scan'][0]} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--recipe", choices=("qt-cnn", "conll2003-cnn", "wnut17-cnn"), default="qt-cnn", metavar="RECIPE"
    )
    parser.add_argument("--embeddings", nargs="+", choices=EMBEDDINGS, default=list(EMBEDDINGS))
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--epochs", type=int, help="for a try: so many epochs")
    parser.add_argument("--limit", type=int, help="for a try: so many examples")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--store", type=Path, default=Path("results"), help="holds the trials with GloVe")
    parser.add_argument("--out", type=Path, default=Path("results/studies"))
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    recipe = get_recipe(arguments.recipe)
    recipe = recipe if arguments.epochs is None else recipe.shortened(arguments.epochs)
    recipe = recipe if arguments.limit is None else recipe.limited(arguments.limit)
    # A group takes a minute or two: no checkpoints.
    place = Place(arguments.out, arguments.data, arguments.device, interval=math.inf)
    seeds = range(arguments.trials)
    glove = [
        result
        for result in ResultStore(arguments.store).load(recipe.name, recipe.config())
        if result.method in METHODS and result.seed in seeds
    ]
    results = {GLOVE: glove} if glove else {}
    results |= train(recipe, arguments.embeddings, seeds, place)
    for metric in METRICS:
        show(recipe, results, metric)


if __name__ == "__main__":
    main()

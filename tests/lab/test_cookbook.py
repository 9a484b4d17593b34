"""The recipes: what the paper's experiments say, and that each of them runs from its files to its results."""

import functools
from dataclasses import replace

import pytest
import torch

import made_up
from activebias.lab import RECIPES, Noise, Optimiser, Place, get_recipe, run_trials
from activebias.lab.data import status
from activebias.lab.experiment.prepared import load_data
from activebias.lab.experiment.results import METRICS, config_hash
from activebias.lab.paper import paper_rows, paper_value

ALL = 11
# Data, methods, trials, epochs, burn-in, batch, window, optimiser, learning rates at epochs 0, 10 and 100.
TABLE = {
    "mnist-cnn": ("mnist", ALL, 20, 80, 2, 64, None, "sgd", 0.01, 0.01 * 0.95**10, 0.01 * 0.95**100),
    "noisy-mnist-cnn": ("mnist", ALL, 20, 80, 2, 64, None, "sgd", 0.01, 0.01 * 0.95**10, 0.01 * 0.95**100),
    "cifar10-lr": ("cifar10", ALL, 30, 30, 10, 100, None, "sgd", 3e-5, 3e-5 / 4, 3e-5 / 2**20),
    "cifar10-lr-as-printed": ("cifar10", ALL, 30, 30, 10, 100, None, "sgd", 1e-6, 1e-6 / 4, 1e-6 / 2**20),
    "cifar10-lr-wide-start": ("cifar10", ALL, 30, 30, 10, 100, None, "sgd", 1e-6, 1e-6 / 4, 1e-6 / 2**20),
    "cifar100-rn27": ("cifar100", 5, 20, 150, 90, 128, None, "sgd", 0.1, 0.1, 0.001),
    "cifar100-rn63": ("cifar100", 5, 20, 150, 50, 128, None, "sgd", 0.1, 0.1, 0.001),
    "qt-cnn": ("trec", ALL, 100, 250, 50, 64, None, "adam", 1e-3, 1e-3, 1e-3),
    "qt-cnn-unit-vectors": ("trec", ALL, 100, 250, 50, 64, None, "adam", 1e-3, 1e-3, 1e-3),
    "conll2003-cnn": ("conll2003", 5, 10, 200, 30, 128, 5, "adam", 5e-4, 5e-4, 5e-4),
    "conll2003-cnn-dropouts-swapped": ("conll2003", 5, 10, 200, 30, 128, 5, "adam", 5e-4, 5e-4, 5e-4),
    "ontonotes5-cnn": ("ontonotes5", 5, 10, 200, 30, 128, 5, "adam", 5e-4, 5e-4, 5e-4),
    "mnist-fc": ("mnist", 5, 10, 60, 20, 128, None, "sgd", 0.1, 0.1, 0.1),
    "mnist-fc-distill": ("mnist", 5, 10, 60, 20, 128, None, "sgd", 0.1, 0.1, 0.1),
}


@pytest.mark.parametrize("name", TABLE)
def test_recipes_are_the_papers_experiments(name):
    recipe = get_recipe(name)
    data, methods, trials, epochs, burn_in, batch_size, window, kind, *rates = TABLE[name]
    assert (recipe.data, len(recipe.methods), recipe.trials) == (data, methods, trials)
    assert (recipe.epochs, recipe.burn_in, recipe.batch_size, recipe.window) == (
        epochs,
        burn_in,
        batch_size,
        window,
    )
    assert recipe.optimiser.kind == kind
    assert [recipe.optimiser.learning_rate_at(epoch) for epoch in (0, 10, 100)] == pytest.approx(rates)
    assert recipe.optimiser.momentum == (0.9 if name.startswith(("mnist-cnn", "noisy", "cifar100")) else 0)
    assert recipe.noise == (Noise("uniform", 0.1) if name == "noisy-mnist-cnn" else None)
    assert recipe.augmentation == ("crop and flip" if name.startswith("cifar100") else None)
    assert recipe.metric == ("entity F1" if window else "error")


def test_every_row_of_the_paper_has_a_recipe_with_its_methods():
    rows = {get_recipe(name).row: get_recipe(name) for name in RECIPES}
    assert set(paper_rows()) <= set(rows)
    for row in paper_rows():
        for method in rows[row].methods:
            assert paper_value(row, method, "best_test_error") is not None, (row, method)


def test_names_and_configurations_are_unique():
    assert [get_recipe(name).name for name in RECIPES] == list(RECIPES)
    assert len({config_hash(get_recipe(name).config()) for name in RECIPES}) == len(RECIPES)


def test_what_affects_the_numbers_is_in_the_configuration():
    recipe = get_recipe("mnist-fc-distill")
    changed = [
        recipe.shortened(30),
        recipe.limited(10),
        replace(recipe, noise=Noise("uniform", 0.1)),
        replace(recipe, window=5),
        replace(recipe, teacher=recipe.teacher.shortened(1)),
        replace(recipe, optimiser=Optimiser("sgd", 0.2)),
    ]
    assert len({config_hash(each.config()) for each in [recipe, *changed]}) == 1 + len(changed)
    same = replace(recipe, title="other", trials=3, methods=("scan",), notes=("a",))
    assert config_hash(same.config()) == config_hash(recipe.config())


def test_shortened_recipes_keep_their_proportion_and_emphasise():
    short = get_recipe("cifar100-rn27").shortened(15)
    assert (short.epochs, short.burn_in) == (15, 9)
    assert get_recipe("mnist-fc").shortened(1).burn_in == 0


def test_half_precision_is_for_sgd_on_a_gpu():
    recipe, cpu, gpu = get_recipe("mnist-cnn"), torch.device("cpu"), torch.device("cuda")
    assert recipe.in_half_precision(gpu)
    assert not recipe.in_half_precision(cpu)
    assert not replace(recipe, half_precision=False).in_half_precision(gpu)
    assert not replace(recipe, optimiser=Optimiser("adam", 0.001)).in_half_precision(gpu)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda: get_recipe("mnist-fx"), "Did you mean 'mnist-fc'"),
        (lambda: get_recipe("digits").shortened(0), "Expected `epochs` to be at least 1, but got 0"),
        (lambda: Noise.parse("many"), "Expected `noise` to be a share such as 0.1"),
        (lambda: Noise.parse("odd:0.1"), "Expected `noise` to be of a kind among uniform,"),
        (lambda: Noise.parse("1.5"), r"share of labels in \[0, 1\], but got 1.5"),
        (lambda: Optimiser("sdg", 0.1), "Expected `kind` to be sgd, adam or rmsprop"),
        (lambda: Optimiser("sgd", 0.0), "Expected `learning_rate` to be above 0"),
        (lambda: replace(get_recipe("digits"), batch_size=0), "Expected `batch_size` to be at least 1"),
    ],
)
def test_refusals(action, message):
    with pytest.raises(ValueError, match=message):
        action()


def test_noise_texts():
    assert Noise.parse("0") is None
    assert Noise.parse("class_dependent:0.3") == Noise("class_dependent", 0.3)
    assert Noise.parse("human") == Noise("human")


@pytest.fixture(scope="module")
def data_for(tmp_path_factory):
    """Return the data set of a recipe, real where it is here, made up elsewhere; each is read once."""

    @functools.cache
    def read(name):
        recipe = next(r for r in map(get_recipe, RECIPES) if r.data == name)
        states = {entry.name: entry.state for entry in status()}
        needed = [name]
        if recipe.architecture in ("SentenceCNN", "TaggingCNN"):
            needed.append("embeddings")
        if all(states[each] == "present" for each in needed):
            return load_data(recipe)
        root = tmp_path_factory.mktemp("made up")
        made_up.write(name, root, 130)
        return load_data(replace(recipe, data_options={"verify": False}), root)

    return read


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_runs_from_its_data_to_its_results(name, data_for, tmp_path):
    torch.set_num_threads(1)
    recipe = get_recipe(name).shortened(2)
    recipe = replace(recipe, burn_in=min(1, recipe.burn_in), batch_size=20)
    if recipe.teacher is not None:
        recipe = replace(recipe, teacher=replace(recipe.teacher.shortened(1), batch_size=20))
    recipe = recipe.limited(41)
    full = data_for(recipe.data)
    train, test = (part.select(torch.arange(min(41, len(part)))) for part in (full.train, full.test))
    dataset = replace(full, train=train, test=test)
    methods = [method for method in ("wpv", "spv") if method in recipe.methods] or ["scan"]
    results = run_trials(
        recipe, methods=methods, seeds=[0], place=Place(tmp_path), dataset=dataset, keep_models=True
    )
    assert [result.method for result in results] == methods
    for result in results:
        assert len(result.test_error) == 2
        assert all(0 <= result.metric(metric) <= 100 for metric in METRICS)
        path = Place(tmp_path).model_path(recipe, result.method, 0)
        state = torch.load(path, weights_only=True)
        assert set(state["biases"]) == {result.method}
    if recipe.noise is not None:
        assert 0 < results[0].details["wrong_labels"] < 41


@pytest.mark.parametrize(
    ("name", "keep"), [("conll2003-cnn", (0.5, 0.75)), ("conll2003-cnn-dropouts-swapped", (0.75, 0.5))]
)
def test_what_dropout_keeps_in_tagging(name, keep, data_for):
    recipe = get_recipe(name)
    model = recipe.model(data_for(recipe.data), torch.Generator())
    assert (model.input_dropout.keep, model.hidden_dropout.keep) == keep

"""`ab.audit`: what it says about a history, whatever form that has, and what it refuses."""

import numpy as np
import pytest
import torch

import activebias as ab
from activebias.runs.auditing import CHUNK, LEAST_PROBABILITY, summarise


def trained(num_instances=6, num_classes=4, epochs=5, **options):
    """Return a bias with one visit an epoch, and the probabilities (N, epochs) that were recorded."""
    bias = ab.ActiveBias("scan", num_instances=num_instances, num_classes=num_classes, **options)
    prob = np.random.default_rng(0).random((num_instances, epochs)).astype(np.float32)
    for epoch in range(epochs):
        bias.set_epoch(epoch)
        bias.record(np.arange(num_instances), prob[:, epoch])
    return bias, prob


def test_the_numbers_are_those_of_the_visits_without_the_prior():
    bias, prob = trained()
    found = ab.audit(bias)
    np.testing.assert_allclose(found.confidence, prob.mean(1), rtol=1e-6)
    np.testing.assert_allclose(found.variability, prob.std(1), rtol=1e-6)
    np.testing.assert_allclose(found.correctness, (prob > 0.5).mean(1))
    weights = prob.var(0) / prob.var(0).sum()
    geometric = np.exp(np.log(prob.astype(np.float64).clip(LEAST_PROBABILITY)) @ weights)
    np.testing.assert_allclose(found.plausibility, geometric, rtol=1e-6)
    np.testing.assert_allclose(found.score, 1 - geometric, rtol=1e-6)
    assert (found.visits == 5).all()
    assert found.order.tolist() == np.argsort(geometric).tolist()
    assert len(found) == 6


@pytest.mark.parametrize("window", [1, 3, 5, 6, 7])
@pytest.mark.parametrize("storage", ["float32", "float16"])
def test_a_window_leaves_its_visits_and_never_the_prior(window, storage):
    # Windows of 5 and 6 are where the ring is filled exactly, without and with the prior in it.
    bias, prob = trained(window=window, storage=storage, num_classes=10)
    found = ab.audit(bias)
    assert (found.visits == min(window, 5)).all()
    np.testing.assert_allclose(found.confidence, prob[:, -window:].mean(1), atol=5e-4)


def test_bias_history_and_arrays_say_the_same():
    bias, _ = trained()
    arrays = bias.history.values()
    for history, options in ((bias.history, {}), (arrays, {"prior": 1 / 4})):
        found = ab.audit(history, **options)
        np.testing.assert_array_equal(found.score, ab.audit(bias).score)
    as_numpy = tuple(tensor.numpy() for tensor in arrays)
    np.testing.assert_array_equal(ab.audit(as_numpy, prior=0.25).score, ab.audit(bias).score)
    np.testing.assert_allclose(
        ab.audit(as_numpy).confidence * 6, ab.audit(bias).confidence * 5 + 0.25, rtol=1e-6
    )


def test_values_alone_are_all_visits():
    found = ab.audit([[0.25, 0.75], [0.5, 0.5]])
    assert found.visits.tolist() == [2, 2]
    assert found.correctness.tolist() == [0.5, 0.0]


def test_never_visited_is_unknown_and_stands_last():
    bias = ab.ActiveBias("scan", num_instances=4, num_classes=2)
    bias.set_epoch(0)
    bias.record([1, 3], [0.9, 0.2])
    found = ab.audit(bias, labels=[0, 0, 0, 0], believed=[1, 0, 1, 1])
    assert found.order.tolist() == [3, 1, 0, 2]
    assert found.visits.tolist() == [0, 1, 0, 1]
    for values in (found.score, found.confidence, found.variability, found.correctness, found.plausibility):
        assert np.isnan(values).tolist() == [True, False, True, False]
    assert found.suspected.tolist() == [False, False, False, True]
    assert ab.audit(bias).suspected.tolist() == [False, False, False, True]


def test_nothing_recorded_at_all():
    found = ab.audit(ab.ActiveBias("wpv", num_instances=3, num_classes=2))
    assert found.order.tolist() == [0, 1, 2]
    assert not found.suspected.any()
    assert ab.audit(np.zeros((2, 0))).visits.tolist() == [0, 0]


def test_a_single_visit_has_no_variability():
    found = ab.audit([[0.3]])
    assert (found.variability[0], found.confidence[0]) == (0, pytest.approx(0.3))


def test_equal_scores_stand_in_the_order_of_the_data_set():
    values = np.tile(np.float32([[0.9, 0.9], [0.2, 0.2], [0.2, 0.2]]), (50, 1))
    order = ab.audit(values).order
    assert order.tolist() == sorted(range(150), key=lambda number: (number % 3 == 0, number))


def test_a_visit_counts_as_much_as_it_tells_instances_apart():
    # At the first visit nothing is known, at the last everything is memorised: the second decides.
    history = np.float32([[0.1, 0.9, 1.0], [0.1, 0.2, 1.0], [0.1, 0.8, 1.0]])
    np.testing.assert_allclose(ab.audit(history).plausibility, history[:, 1], rtol=1e-6)
    # Where no visit does, all count the same.
    np.testing.assert_allclose(ab.audit(history[:1]).plausibility, 0.09 ** (1 / 3), rtol=1e-6)


def test_a_visit_that_few_instances_have_counts_for_them_only():
    values = np.float32([[0.2, 0.9], [0.8, 0.0], [0.2, 0.1]])
    valid = np.array([[True, True], [True, False], [True, True]])
    found = ab.audit((values, valid))
    first, second = values[:, 0].var(), values[[0, 2], 1].var()
    expected = np.exp((first * np.log(0.2) + second * np.log(0.9)) / (first + second))
    np.testing.assert_allclose(found.plausibility[:2], [expected, 0.8], rtol=1e-6)


def test_a_rival_tells_wrong_from_difficult():
    history = [[0.3, 0.3], [0.3, 0.3], [0.9, 0.9]]
    probabilities = np.float32([[0.3, 0.65, 0.05], [0.3, 0.35, 0.35], [0.9, 0.05, 0.05]])
    labels = [0, 0, 0]
    found = ab.audit(history, labels, probabilities)
    np.testing.assert_allclose(found.rival, [0.65, 0.35, 0.05], rtol=1e-6)
    np.testing.assert_allclose(found.score, [0.65 / 0.95, 0.35 / 0.65, 0.05 / 0.95], rtol=1e-6)
    assert found.believed.tolist() == [1, 1, 0]
    assert found.suspected.tolist() == [True, True, False]
    np.testing.assert_array_equal(found.score, ab.audit(history, rival=found.rival).score)
    # A sum over the epochs serves as well as a mean, and a tensor as well as an array.
    summed = ab.audit(history, labels, torch.tensor(probabilities) * 7)
    np.testing.assert_allclose(summed.score, found.score, rtol=1e-6)


def test_parts_are_put_together_in_order():
    # More instances than are read at a time.
    bias = ab.ActiveBias("scan", num_instances=CHUNK + 3, num_classes=2, window=1)
    bias.set_epoch(0)
    bias.record([0, CHUNK, CHUNK + 2], [0.9, 0.8, 0.1])
    found = ab.audit(bias)
    assert found.order[:3].tolist() == [CHUNK + 2, CHUNK, 0]
    assert len(found) == CHUNK + 3
    pair = ab.audit(bias.history.values(), prior=0.5)
    np.testing.assert_array_equal(pair.order, found.order)


def test_a_visit_that_found_the_label_impossible_does_not_outweigh_the_rest():
    found = summarise([[0.0, 1.0, 1.0, 1.0]], np.ones((1, 4), bool), np.ones(4))
    assert found.plausibility[0] == pytest.approx(0.001**0.25)


def test_it_finds_flipped_labels():
    from sklearn.datasets import load_digits
    from sklearn.metrics import average_precision_score

    digits = load_digits()
    inputs = torch.tensor(digits.data / 16, dtype=torch.float32)
    generator = torch.Generator().manual_seed(0)
    true = torch.tensor(digits.target)
    flipped = torch.rand(len(true), generator=generator) < 0.15
    labels = torch.where(flipped, (true + torch.randint(1, 10, true.shape, generator=generator)) % 10, true)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    bias = ab.ActiveBias("wtc", num_instances=len(labels), num_classes=10, burn_in=5, storage="float16")
    sampler, total = bias.sampler(batch_size=128), torch.zeros(len(labels), 10)
    for epoch in range(15):
        bias.set_epoch(epoch)
        for index in torch.tensor(list(sampler)).split(128):
            logits = model(inputs[index])
            total[index] += logits.detach().softmax(1)
            loss = bias.loss(logits, labels[index], index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    found = ab.audit(bias, labels, total)
    assert average_precision_score(flipped, found.score) > 0.985
    assert average_precision_score(flipped, ab.audit(bias).score) > 0.975
    believed_true = found.believed[flipped.numpy()] == true[flipped].numpy()
    assert believed_true.mean() > 0.9


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (([0.5, 0.5],), {}, ValueError, "shape \\(N, T\\)"),
        ((np.zeros((0, 3)),), {}, ValueError, "N at least 1"),
        (([["a"]],), {}, TypeError, "`history` to hold numbers, but got text such as 'a': convert it"),
        (("history.pt",), {}, TypeError, "`history` .* such as 'history.pt': if that is a file, load it"),
        (([[1.5]],), {}, ValueError, "in \\[0, 1\\], but got 1.5"),
        (([[float("nan")]],), {}, ValueError, "False in `valid`"),
        ((([[0.5]],),), {}, ValueError, "pair"),
        ((([[0.5]], [[1]]),), {}, ValueError, "`valid` to hold one boolean"),
        ((([[0.5]], [[True, True]]),), {}, ValueError, "shape \\(1, 1\\)"),
        (([[0.5]],), {"prior": 0.9}, ValueError, "`prior`"),
        (([[0.5]], [0.0]), {}, TypeError, "`labels` to hold classes as integers"),
        (([[0.5]], [0, 1]), {}, ValueError, "`labels` to hold one class per instance, shape \\(1,\\)"),
        (([[0.5]], ["cat"]), {}, TypeError, "`labels` .* text such as 'cat': number the classes, from 0 on"),
        (([[0.5]], np.array(["cat"], object)), {}, TypeError, "`labels` .* 'cat': number the classes"),
        (([[0.5]], "labels.csv"), {}, TypeError, "`labels` .* 'labels.csv': if that is a file, load it"),
        (([[0.5]], [0], ["cat"]), {}, TypeError, "`believed` to hold numbers, but got text such as 'cat'"),
        (([[0.5]], None, [0]), {}, ValueError, "`labels` beside `believed`.* pass `labels`, or leave"),
        (([[0.5]], None, [[0.5, 0.5]]), {}, ValueError, "`labels` beside `believed`"),
        (([[0.5]], [0], [0, 1]), {}, ValueError, "`believed`"),
        (([[0.5]], [0], [[0, 1]]), {}, ValueError, "class probabilities .* got int64 of shape"),
        (([[0.5]], [0], np.zeros((1, 0))), {}, ValueError, "got float64 of shape \\(1, 0\\)"),
        (
            ([[0.5]] * 2, [0, 0], [[0.5, 0.5], [3.0, -1.5]]),
            {},
            ValueError,
            "got -1.5 for instance 1: logits .*",
        ),
        (([[0.5]], [0], [[2.0, -1.0]]), {}, ValueError, "logits need a softmax first"),
        (([[0.5]], [0], [[0.5, float("nan")]]), {}, ValueError, "finite .* got nan for instance 0"),
        (([[0.5]], [0], [[0.5, float("inf")]]), {}, ValueError, "finite .* got inf for instance 0"),
        (([[0.5]], [2], [[0.5, 0.5]]), {}, ValueError, "from 0 to 1"),
        (([[0.5]],), {"rival": [2.0]}, ValueError, "`rival`"),
        (([[0.5]],), {"rival": [0.1, 0.2]}, ValueError, "`rival`"),
    ],
)
def test_what_is_refused(arguments, options, error, message):
    with pytest.raises(error, match=message):
        ab.audit(*arguments, **options)


def test_a_history_knows_its_own_prior():
    bias, _ = trained()
    with pytest.raises(ValueError, match="Leave it out"):
        ab.audit(bias, prior=0.25)


def test_the_function_stays_a_function_whatever_is_imported(fresh_python):
    # A module of the same name would take its place in the package as soon as anyone imports it.
    code = "import activebias.runs.auditing, activebias as ab; ab.audit([[0.5]]); assert callable(ab.audit)"
    assert fresh_python(code) == (0, "", "")


def probabilities(*shape):
    drawn = np.random.default_rng(0).random(shape)
    return drawn / drawn.sum(-1, keepdims=True)


def test_pred_probs_in_place_of_a_history():
    pred_probs, labels = probabilities(50, 4), np.arange(50) % 4
    found = ab.audit(labels=labels, pred_probs=pred_probs)
    own = pred_probs[np.arange(50), labels]
    others = pred_probs.copy()
    others[np.arange(50), labels] = 0
    np.testing.assert_allclose(found.score, others.max(1) / (others.max(1) + own.clip(LEAST_PROBABILITY)))
    assert found.believed.tolist() == pred_probs.argmax(1).tolist()
    assert (found.visits == 1).all()
    tensors = ab.audit(labels=torch.tensor(labels), pred_probs=torch.tensor(pred_probs).float())
    np.testing.assert_allclose(tensors.score, found.score, rtol=1e-5)


def test_pred_probs_of_several_models_are_visits():
    pred_probs, labels = probabilities(3, 50, 4), np.arange(50) % 4
    found = ab.audit(labels=labels, pred_probs=pred_probs)
    same = ab.audit(pred_probs[:, np.arange(50), labels].T, labels, pred_probs.mean(0))
    np.testing.assert_allclose(found.score, same.score)
    assert (found.visits == 3).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "a `history` or `pred_probs` to audit, but got neither"),
        ({"pred_probs": probabilities(5, 3)}, "`labels` beside `pred_probs`"),
        ({"pred_probs": probabilities(5, 3), "labels": [0] * 5, "rival": [0.5] * 5}, "`pred_probs` replaces"),
        ({"pred_probs": probabilities(5, 3), "labels": [3] * 5}, "from 0 to 2, the classes of `pred_probs`"),
        ({"pred_probs": probabilities(5, 3), "labels": [0] * 4}, r"shape \(5,\), but got \(4,\)"),
        ({"pred_probs": np.full((5, 3), 2.0), "labels": [0] * 5}, "sums from 6 to 6: logits need a softmax"),
        ({"pred_probs": np.full((5, 3), np.nan), "labels": [0] * 5}, "logits need a softmax"),
        ({"pred_probs": np.ones(5), "labels": [0] * 5}, r"\(N, C\), or \(M, N, C\) of M models, but got"),
        ({"pred_probs": np.ones((5, 1), int), "labels": [0] * 5}, "floats of shape"),
    ],
)
def test_pred_probs_that_cannot_be_audited(given, message):
    with pytest.raises(ValueError, match=message):
        ab.audit(**given)

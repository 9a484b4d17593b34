"""Class and sample weights, shares as targets, several labels, sequences: torch's own losses, weighed."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import activebias as ab

WEIGHT = torch.tensor([0.2, 1.0, 3.0, 0.0, 0.7])


pytestmark = pytest.mark.usefixtures("both_devices")


def make(method="scan", num_classes=5, num_instances=24, **options):
    """Return a bias past its burn-in; its weights differ, except those of scan."""
    bias = ab.ActiveBias(method, num_instances=num_instances, num_classes=num_classes, **options)
    bias.set_epoch(0)
    generator = torch.Generator().manual_seed(1)
    shape = (num_instances, num_classes) if bias.multi_label else (num_instances,)
    for _ in range(3):
        bias.record(torch.arange(num_instances), torch.rand(shape, generator=generator))
    return bias


def batch(*shape, num_classes=5, seed=0):
    """Return logits that need gradients, targets, and an index."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*shape, num_classes, generator=generator).requires_grad_()
    index = torch.randperm(24, generator=generator)[: torch.Size(shape).numel()].view(shape)
    return logits, torch.randint(num_classes, shape, generator=generator), index


def latest(bias, index):
    """Return the latest entries of the histories."""
    values, valid = bias.history.values(index.flatten())
    return values.gather(1, valid.sum(1, keepdim=True) - 1).view(index.shape)


def assert_equal_with_gradients(ours, expected, inputs):
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)
    gradients = [torch.autograd.grad(loss, inputs, retain_graph=True)[0] for loss in (ours, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("shape", [(8,), (3, 4)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_class_weights_mean_the_same_as_in_torch(shape, label_smoothing, reduction):
    bias = make()
    logits, targets, index = batch(*shape)
    targets.view(-1)[2] = -100
    options = {"label_smoothing": label_smoothing, "reduction": reduction}
    loss = bias.loss(logits, targets, index, class_weight=WEIGHT, **options)
    expected = F.cross_entropy(logits.view(-1, 5), targets.view(-1), weight=WEIGHT, **options)
    if reduction == "none":
        torch.testing.assert_close(loss.view(-1), expected)
    else:
        assert_equal_with_gradients(loss, expected, logits)
    counted = targets != -100
    plain = logits.softmax(-1)[counted].gather(1, targets[counted][:, None]).squeeze(1)
    torch.testing.assert_close(latest(bias, index)[counted], plain)


def test_class_weights_of_binary_logits():
    logits, targets, index = torch.randn(6), torch.tensor([0, 1, 1, 0, 1, 0]), torch.arange(6)
    loss = make(num_classes=2).loss(logits, targets, index, class_weight=[0.5, 2.0])
    pair = torch.stack([torch.zeros(6), logits], 1)
    torch.testing.assert_close(loss, F.cross_entropy(pair, targets, weight=torch.tensor([0.5, 2.0])))


@pytest.mark.parametrize("method", ["scan", "wpv"])
def test_sample_weights_multiply_ours(method):
    bias = make(method)
    logits, targets, index = batch(8)
    own, ours = torch.rand(8), bias.weight(index)
    each = F.cross_entropy(logits, targets, reduction="none")
    loss = bias.loss(logits, targets, index, sample_weight=own)
    assert_equal_with_gradients(loss, (ours * own * each).sum() / own.sum(), logits)
    both = make(method).loss(logits, targets, index, sample_weight=own, class_weight=WEIGHT)
    factor = own * WEIGHT[targets]
    torch.testing.assert_close(both, (ours * factor * each).sum() / factor.sum())


def test_sample_weights_of_sentences_and_of_words():
    logits, targets, index = batch(3, 4)
    targets[1, 2:] = -100
    own = torch.tensor([1.0, 0.0, 2.5])
    each = F.cross_entropy(logits.view(-1, 5), targets.view(-1), reduction="none").view(3, 4)
    factor = own[:, None] * (targets != -100)
    expected = (factor * each).sum() / factor.sum()
    torch.testing.assert_close(make().loss(logits, targets, index, sample_weight=own), expected)
    of_words = own[:, None].expand(3, 4)
    torch.testing.assert_close(make().loss(logits, targets, index, sample_weight=of_words), expected)


def test_weights_that_are_all_zero_give_no_loss():
    logits, targets, index = batch(8)
    assert make().loss(logits, targets, index, sample_weight=torch.zeros(8)) == 0


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_targets_may_be_shares_of_the_classes(label_smoothing, weight):
    bias = make()
    logits, _, index = batch(8)
    shares = torch.rand(8, 5).softmax(-1)
    loss = bias.loss(logits, shares, index, class_weight=weight, label_smoothing=label_smoothing)
    expected = F.cross_entropy(logits, shares, weight=weight, label_smoothing=label_smoothing)
    assert_equal_with_gradients(loss, expected, logits)
    torch.testing.assert_close(latest(bias, index), (shares * logits.softmax(-1)).sum(1).detach())


def test_one_hot_shares_are_class_labels():
    logits, targets, index = batch(8)
    soft, hard = make("wpv"), make("wpv")
    loss = soft.loss(logits, F.one_hot(targets, 5).float(), index)
    torch.testing.assert_close(loss, hard.loss(logits, targets, index))
    torch.testing.assert_close(soft.scores, hard.scores)


def test_shares_of_two_classes_and_binary_targets_of_words_are_told_apart_by_the_index():
    logits, shares = torch.randn(3, 2), torch.tensor([[0.9, 0.1], [0.0, 1.0], [0.5, 0.5]])
    loss = make(num_classes=2).loss(logits, shares, [0, 1, 2])
    torch.testing.assert_close(loss, F.cross_entropy(logits, shares))
    words = make(num_classes=2).loss(logits, shares, torch.arange(6).view(3, 2))
    torch.testing.assert_close(words, F.binary_cross_entropy_with_logits(logits, shares))


def test_binary_targets_may_be_shares():
    bias = make(num_classes=2)
    logits, shares = torch.randn(4), torch.tensor([0.05, 0.5, 1.0, 0.0])
    loss = bias.loss(logits, shares, torch.arange(4))
    torch.testing.assert_close(loss, F.binary_cross_entropy_with_logits(logits, shares))
    sigmoid = logits.sigmoid()
    torch.testing.assert_close(latest(bias, torch.arange(4)), shares * sigmoid + (1 - shares) * (1 - sigmoid))


def test_mixup_records_both_instances():
    """The two labels of a mixed input are two words of one sentence, weighted by their shares."""
    bias = make("wpv")
    logits, targets, index = batch(6)
    order, share = torch.randperm(6), 0.7
    pair = torch.stack([index, index[order]], 1)
    ours = bias.weight(pair)
    loss = bias.loss(
        logits[:, None].expand(-1, 2, -1),
        torch.stack([targets, targets[order]], 1),
        pair,
        sample_weight=torch.tensor([share, 1 - share]).expand(6, 2),
    )
    first, second = (
        F.cross_entropy(logits, labels, reduction="none") for labels in (targets, targets[order])
    )
    expected = (ours[:, 0] * share * first + ours[:, 1] * (1 - share) * second).mean()
    assert_equal_with_gradients(loss, expected, logits)
    assert bias.history.values(index)[1].sum(1).tolist() == [6] * 6  # 4 before, and one for each part


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_several_labels_an_example(weight, dtype):
    bias = make(multi_label=True)
    logits, index = torch.randn(6, 5).requires_grad_(), torch.tensor([3, 0, 7, 8, 23, 1])
    targets = (torch.rand(6, 5) > 0.5).to(dtype)
    loss = bias.loss(logits, targets, index, class_weight=weight)
    expected = F.binary_cross_entropy_with_logits(logits, targets.float(), weight=weight)
    assert_equal_with_gradients(loss, expected, logits)
    sigmoid = logits.sigmoid()
    prob = torch.where(targets > 0, sigmoid, 1 - sigmoid)
    torch.testing.assert_close(latest(bias, index[:, None] * 5 + torch.arange(5)), prob.detach())


def test_several_labels_are_weighed_one_by_one_and_unknown_ones_do_not_count():
    bias = make("wpv", multi_label=True)
    logits, index = torch.randn(4, 5), torch.arange(4)
    targets = (torch.rand(4, 5) > 0.5).float()
    targets[0, 2] = targets[3] = -100
    ours = bias.weight(index)
    assert ours.shape == (4, 5)
    assert ours.std() > 0.1
    counted = targets != -100
    each = F.binary_cross_entropy_with_logits(logits[counted], targets[counted], reduction="none")
    torch.testing.assert_close(bias.loss(logits, targets, index), (ours[counted] * each).mean())


@pytest.mark.parametrize("num_labels", [2, 5])
def test_known_labels_alone_are_numbered_as_words(num_labels):
    """Unlike with `multi_label`, unknown labels are no instances: the mean weight of the known ones is 1."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(2, (12, num_labels), generator=generator).float()
    targets[torch.rand(12, num_labels, generator=generator) < 0.3] = -100
    known = targets != -100
    x = 3 * torch.randn(12, num_labels, generator=generator)
    tokens = ab.TokenIndex(known.sum(1))
    biases = [
        ab.ActiveBias("wtc", num_instances=tokens.num_instances, num_classes=2),
        ab.ActiveBias("wtc", num_instances=12, num_classes=num_labels, multi_label=True),
    ]
    for bias in biases:
        loader = bias.loader(list(zip(x, targets, strict=True)), 4, num_sequences=12)
        for epoch in range(2):
            bias.set_epoch(epoch)
            for index, (logits, y) in loader:
                words = index if bias.multi_label else tokens.of_labels(index, y)
                loss = bias.loss(logits.requires_grad_(), y, words)
    torch.testing.assert_close(biases[0].weights().mean(), torch.ones(()))
    assert abs(biases[1].weights()[known.flatten()].mean() - 1) > 0.03
    mine, theirs = biases[0].history.values()[0], biases[1].history.values()[0][known.flatten()]
    torch.testing.assert_close(mine, theirs)
    scan = ab.ActiveBias("scan", num_instances=tokens.num_instances, num_classes=2)
    scan.set_epoch(0)
    loss = scan.loss(x.requires_grad_(), targets, tokens.of_labels(torch.arange(12), targets))
    assert_equal_with_gradients(loss, F.binary_cross_entropy_with_logits(x[known], targets[known]), x)


def test_a_loader_of_examples_with_several_labels():
    bias = ab.ActiveBias("wtc", num_instances=10, num_classes=3, multi_label=True)
    loader = bias.loader([(torch.randn(4), torch.ones(3)) for _ in range(10)], 4)
    bias.set_epoch(0)
    for index, (x, y) in loader:
        bias.loss(x[:, :3], y, index)
    assert bias.history.values()[1].sum(1).tolist() == [2] * 30
    with pytest.raises(ValueError, match="has come back already"):
        bias.loss(torch.ones(2, 3), torch.ones(2, 3), [0, 1])


def test_draws_do_not_fit_several_labels():
    with pytest.raises(ValueError, match="labels of an example"):
        ab.ActiveBias("spv", num_instances=10, num_classes=3, multi_label=True).sampler(batch_size=2)


def test_sequences_as_instances():
    bias = make("wpv")
    logits, targets, _ = batch(3, 4)
    targets[1, 1:] = targets[2] = -100
    index = torch.tensor([5, 9, 2])
    ours = bias.weight(index)
    each = F.cross_entropy(logits.view(-1, 5), targets.view(-1), reduction="none").view(3, 4)
    loss = bias.loss(logits, targets, index, sequences=True)
    assert_equal_with_gradients(loss, (ours[:, None] * each).sum() / 5, logits)
    visits = bias.history.values(index)[1].sum(1)
    assert visits.tolist() == [5, 5, 4]  # a sequence in which nothing counts is not visited
    torch.testing.assert_close(
        latest(bias, index)[:2], torch.exp(-each.detach()[:2].sum(1) / torch.tensor([4, 1]))
    )
    plain = make().loss(logits, targets, index, sequences=True)
    torch.testing.assert_close(plain, F.cross_entropy(logits.view(-1, 5), targets.view(-1)))


def test_probabilities_from_logits_and_targets():
    logits, targets, index = batch(8)
    losses, prob = torch.rand(8), logits.softmax(-1).gather(1, targets[:, None]).squeeze(1)
    biases = [make("wpv") for _ in range(4)]
    pair = biases[0].weigh(losses, (logits, targets), index)
    torch.testing.assert_close(pair, biases[1].weigh(losses, prob, index))
    biases[2].record(index, (logits, targets))
    biases[3].record(index, prob)
    for bias in biases[1:]:
        torch.testing.assert_close(bias.scores, biases[0].scores)


def test_a_pair_of_logits_and_targets_is_a_tuple():
    logits, targets, index = batch(8)
    with pytest.raises(TypeError, match=r"`prob` to be one array .* a pair of logits and targets is a tuple"):
        make().weigh(torch.ones(8), [logits.requires_grad_(), targets], index)


def test_ignored_targets_of_a_pair_do_not_count():
    logits, targets, index = batch(2, 4)
    targets[0, 2:] = -100
    index[0, 2:] = -1
    losses = torch.rand(2, 4)
    losses[0, 3] = float("nan")
    loss = make().weigh(losses, (logits, targets), index)
    torch.testing.assert_close(loss, losses[targets != -100].mean())
    half = torch.ones(2, 4, dtype=torch.bool)
    half[1] = False
    loss = make().weigh(losses, (logits, targets), index, mask=half)
    torch.testing.assert_close(loss, losses[0, :2].mean())


def test_sample_weights_of_a_loss_of_ones_own():
    losses, own, index = torch.rand(8), torch.rand(8), torch.arange(8)
    loss = make().weigh(losses, torch.full((8,), 0.5), index, sample_weight=own)
    torch.testing.assert_close(loss, (losses * own).sum() / own.sum())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"class_weight": torch.ones(4)}, ValueError, r"one weight per class, shape \(5,\)"),
        ({"class_weight": [1, 1, 1, 1, -1]}, ValueError, "finite weights of at least 0"),
        ({"class_weight": [1, 1, 1, 1, float("nan")]}, ValueError, "finite weights of at least 0"),
        ({"class_weight": [True] * 5}, TypeError, "`class_weight` to hold weights"),
        ({"class_weight": "balanced"}, TypeError, "a list, an array or a tensor, but got 'balanced'"),
        (
            {"sample_weight": [[1], [1, 2]]},
            TypeError,
            r"`sample_weight` to be one array or tensor, but got a l",
        ),
        ({"sample_weight": torch.ones(7)}, ValueError, r"shape of the targets, \(8,\), but got \(7,\)"),
        ({"sample_weight": torch.ones(8, 1)}, ValueError, "`sample_weight` to have the shape"),
        ({"sequences": True}, ValueError, r"targets of shape \(sequences, tokens\)"),
    ],
)
def test_wrong_options(options, error, message):
    logits, targets, index = batch(8)
    bias = make()
    with pytest.raises(error, match=message):
        bias.loss(logits, targets, index, **options)
    assert bias.history.values()[1].sum() == 24 * 4  # nothing was recorded


def test_shares_that_are_none():
    for wrong in (torch.ones(2, 5), -torch.ones(2, 5), torch.zeros(2, 5)):
        with pytest.raises(ValueError, match="shares of the classes"):
            make().loss(torch.ones(2, 5), wrong, [0, 1])
    with pytest.raises(ValueError, match=r"labels of shape \(2,\).*`argmax.*multi_label=True"):
        make().loss(torch.ones(2, 5), torch.ones(2, 5).long(), [0, 1])
    with pytest.raises(ValueError, match=r"labels from 0 to 1.*but got 1.5"):
        make(num_classes=2).loss(torch.ones(2), torch.tensor([0.5, 1.5]), [0, 1])


def test_shapes_of_several_labels():
    bias = make(multi_label=True)
    with pytest.raises(ValueError, match=r"`targets` of shape \(examples, 5\).*\(2, 5\) and \(2,\)"):
        bias.loss(torch.ones(2, 5), torch.tensor([0, 1]), [0, 1])
    with pytest.raises(ValueError, match="one index per example"):
        bias.loss(torch.ones(2, 5), torch.ones(2, 5), torch.zeros(2, 5, dtype=torch.int64))
    if not bias._memory.on_gpu:
        with pytest.raises(ValueError, match="from 0 to"):
            bias.record([24], torch.ones(1, 5))


class Wide(TorchDispatchMode):
    """Counts the tensors of at least `size` numbers that operations make."""

    def __init__(self, size):
        super().__init__()
        self.size, self.number = size, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        given = {x.untyped_storage().data_ptr() for x in args if isinstance(x, torch.Tensor)}
        made = [
            x for x in (result if isinstance(result, tuple) else (result,)) if isinstance(x, torch.Tensor)
        ]
        self.number += sum(
            x.numel() >= self.size and x.untyped_storage().data_ptr() not in given for x in made
        )
        return result


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("soft", [False, True])
def test_many_classes_take_no_more_memory_than_torchs_own_loss(label_smoothing, weighted, soft):
    num_classes, numbers, options = 5000, [], {"label_smoothing": label_smoothing}
    weight = torch.ones(num_classes) if weighted else None
    bias = ab.ActiveBias("scan", num_instances=24, num_classes=num_classes)
    bias.set_epoch(0)
    logits, targets, index = batch(8, num_classes=num_classes)
    targets = torch.rand(8, num_classes).softmax(-1) if soft else targets
    ours = lambda: bias.loss(logits, targets, index, class_weight=weight, **options)  # noqa: E731
    torchs = lambda: F.cross_entropy(logits, targets, weight=weight, **options)  # noqa: E731
    for call in (ours, torchs):
        with Wide(8 * num_classes) as wide:
            call().backward()
        numbers.append(wide.number)
    # The softmax of soft targets comes when torch's products are freed.
    assert numbers[0] <= numbers[1] + soft


@pytest.mark.parametrize("shape", [(8,), (2, 4)])
@pytest.mark.parametrize("option", [None, "class_weight", "sample_weight"])
def test_a_resumed_training_goes_on_exactly(shape, option):
    value = WEIGHT if option == "class_weight" else torch.rand(shape)
    options = {} if option is None else {option: value}
    whole, first = make("wpv", max_weight=3), make("wpv", max_weight=3)
    for bias in (whole, first):
        bias.loss(*batch(*shape), **options)
    second = ab.ActiveBias("wpv", num_instances=24, num_classes=5, max_weight=3)
    second.load_state_dict(first.state_dict())
    losses = [bias.loss(*batch(*shape, seed=5), **options) for bias in (whole, second)]
    assert losses[0] == losses[1]
    with pytest.raises(ValueError, match=r"max_weight=3\.0 there, None here"):
        ab.ActiveBias("wpv", num_instances=24, num_classes=5).load_state_dict(first.state_dict())

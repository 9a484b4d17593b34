"""Each model learns a small batch by heart."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

from activebias.lab.models import (
    DigitsMLP,
    DistillationTeacher,
    MnistCNN,
    ResidualNet,
    SentenceCNN,
    SigmoidNet,
    SoftmaxRegression,
    TaggingCNN,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


MEAN = torch.full((3, 32, 32), 80.0)

# Model, shape of its images, and the optimiser (that of its row where it is quick enough).
ROWS = {
    "mnist-cnn": (MnistCNN, (1, 28, 28), lambda p: torch.optim.SGD(p, 0.01, momentum=0.9)),
    "cifar10-lr": (
        lambda generator: SoftmaxRegression(MEAN, generator=generator),
        (3, 32, 32),
        lambda p: torch.optim.SGD(p, 1e-6),
    ),
    "cifar100-rn27": (
        lambda generator: ResidualNet(2, generator=generator),
        (3, 32, 32),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    ),
    "mnist-fc": (SigmoidNet, (1, 28, 28), lambda p: torch.optim.Adam(p, 1e-2)),
    "teacher": (DistillationTeacher, (1, 28, 28), lambda p: torch.optim.RMSprop(p, 1e-3)),
    "digits": (DigitsMLP, (1, 8, 8), lambda p: torch.optim.Adam(p, 1e-2)),
}


def fit(model, inputs, targets, optimizer, *, most=150):
    """Train on one batch until every prediction is right, and return the error at the end."""
    for step in range(most):
        loss = F.cross_entropy(model.train()(inputs).flatten(0, -2), targets.flatten()) + model.regulariser()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 4:
            with torch.no_grad():
                wrong = (model.eval()(inputs).argmax(-1) != targets).float().mean().item()
            if wrong == 0:
                break
    return wrong


@pytest.mark.parametrize("row", ROWS)
def test_it_learns_real_digits(row):
    make, (channels, height, width), optimiser = ROWS[row]
    digits = load_digits()
    images = torch.from_numpy(digits.images[:16]).float()[:, None]
    if row != "digits":
        images = F.interpolate(images * 255 / 16, size=(height, width)).expand(-1, channels, -1, -1)
    images, targets = images.to(torch.uint8), torch.from_numpy(digits.target[:16])
    model = make(generator=generator())
    assert fit(model, images, targets, optimiser(model.parameters())) == 0


def made_up_questions():
    kinds = ["who wrote {}", "where is {}", "when did {} end", "how many {} are there", "what does {} mean"]
    things = ["the book", "a river", "one war", "red stars", "this word", "old ships", "the sea"]
    return [(kind, text.format(thing)) for thing in things for kind, text in enumerate(kinds)][:32]


def trec_questions(folder):
    lines = (folder / "train_1000.label").read_text(encoding="latin-1").splitlines()[:32]
    kinds = sorted({line.split(":")[0] for line in lines})
    return [(kinds.index(line.split(":")[0]), line.split(" ", 1)[1]) for line in lines]


@pytest.mark.parametrize("source", ["made up", "trec"])
def test_the_sentence_cnn_learns(source, real_data):
    questions = made_up_questions() if source == "made up" else trec_questions(real_data("trec"))
    words = sorted({word for _, text in questions for word in text.split()})
    longest = max(len(text.split()) for _, text in questions)
    inputs = torch.zeros(32, longest, dtype=torch.int64)
    for row, (_, text) in enumerate(questions):
        numbers = [1 + words.index(word) for word in text.split()]
        inputs[row, : len(numbers)] = torch.tensor(numbers)
    vectors = torch.randn(len(words) + 1, 50, generator=generator(1))
    model = SentenceCNN(vectors, num_classes=6, generator=generator())
    targets = torch.tensor([kind for kind, _ in questions])
    assert fit(model, inputs, targets, torch.optim.Adam(model.parameters(), 1e-3)) == 0


def wnut_sentences(folder):
    sentences = [[]]
    for line in (folder / "wnut17train.conll").read_text(encoding="utf-8").splitlines()[:3000]:
        if line.strip():
            sentences[-1].append(tuple(line.split("\t")[:2]))
        else:
            sentences.append([])
    return [sentence for sentence in sentences if any(tag != "O" for _, tag in sentence)][:32]


def made_up_sentences():
    names = ["Anna", "Berlin", "Otto", "Rome"]
    plain = ["went", "to", "saw", "from", "again"]
    draw = np.random.default_rng(0)
    sentences = []
    for _ in range(32):
        words = [str(draw.choice(names if draw.random() < 0.4 else plain)) for _ in range(8)]
        sentences.append([(word, "U-NAME" if word in names else "O") for word in words])
    return sentences


@pytest.mark.parametrize("source", ["made up", "wnut17"])
def test_the_tagging_cnn_learns(source, real_data):
    sentences = made_up_sentences() if source == "made up" else wnut_sentences(real_data("wnut17"))
    words = sorted({word for sentence in sentences for word, _ in sentence})
    tags = sorted({tag for sentence in sentences for _, tag in sentence})
    longest = max(len(sentence) for sentence in sentences)
    tokens = torch.zeros(32, longest, 2, dtype=torch.int64)
    targets = torch.full((32, longest), -100)
    for row, sentence in enumerate(sentences):
        for place, (word, tag) in enumerate(sentence):
            tokens[row, place] = torch.tensor([1 + words.index(word), 1 + int(word[:1].isupper())])
            targets[row, place] = tags.index(tag)
    vectors = torch.randn(len(words) + 1, 50, generator=generator(1))
    model = TaggingCNN(vectors, num_shapes=3, num_classes=len(tags), generator=generator())
    optimizer = torch.optim.Adam(model.parameters(), 4e-3)
    counted = targets != -100
    for _ in range(120):
        loss = F.cross_entropy(model(tokens)[counted], targets[counted]) + model.regulariser()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    right = (model.eval()(tokens).argmax(-1) == targets)[counted].float().mean().item()
    assert right > 0.99

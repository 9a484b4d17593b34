"""Class weights, soft labels, several labels, mixup, and a loss of your own."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import activebias as ab
from digits import (
    BATCH_SIZE,
    BURN_IN,
    EPOCHS,
    IMAGES,
    LABELS,
    LEARNING_RATE,
    NUM_CLASSES,
    TEST,
    TRAIN,
    accuracy,
    make_model,
    report,
)


def train(
    bias: ab.ActiveBias,
    model: nn.Module,
    images: torch.Tensor,
    targets: torch.Tensor,
    class_weight: torch.Tensor | None = None,
) -> nn.Module:
    """Train a model on targets of any kind."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    loader = bias.loader(TensorDataset(images, targets), BATCH_SIZE)
    for epoch in range(EPOCHS):
        bias.set_epoch(epoch)
        for index, (x, y) in loader:
            loss = bias.loss(model(x), y, index, class_weight=class_weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


def class_weights() -> float:
    """Train where four of ten classes are rare, and weigh each class by the inverse of its frequency."""
    # Of the classes 0 to 3 every fifth image stays.
    rare = LABELS[TRAIN] < 4
    kept = TRAIN[~rare | (torch.arange(len(TRAIN)) % 5 == 0)]
    frequency = LABELS[kept].bincount(minlength=NUM_CLASSES) / len(kept)
    bias = ab.ActiveBias("wtc", num_instances=len(kept), num_classes=NUM_CLASSES, burn_in=BURN_IN)
    # The weight of an image is the weight of its class times the weight of the method. As in torch, the mean
    # divides by the sum of the class weights. The history holds the plain p(y|x).
    weight = 1 / (NUM_CLASSES * frequency)
    return accuracy(train(bias, make_model(), IMAGES[kept], LABELS[kept], class_weight=weight))


def soft_labels() -> float:
    """Train on the votes of five annotators, each of whom guesses at one image in five."""
    generator = torch.Generator().manual_seed(0)
    labels = LABELS[TRAIN][:, None].expand(-1, 5)
    guesses = torch.rand(labels.shape, generator=generator) < 0.2
    votes = torch.where(guesses, torch.randint(NUM_CLASSES, labels.shape, generator=generator), labels)
    # Float targets (B, C) are shares of the classes: here the share of the votes. p(y|x) is Σ_c t_c p_c.
    shares = nn.functional.one_hot(votes, NUM_CLASSES).float().mean(1)
    bias = ab.ActiveBias("wtc", num_instances=len(TRAIN), num_classes=NUM_CLASSES, burn_in=BURN_IN)
    return accuracy(train(bias, make_model(), IMAGES[TRAIN], shares))


def several_labels() -> float:
    """Train three yes-or-no labels of every image, and return the share of the right ones."""
    names = ("even", "prime", "above four")
    meaning = torch.tensor([[n % 2 == 0, n in (2, 3, 5, 7), n > 4] for n in range(NUM_CLASSES)])
    # Targets (B, C) of zeros and ones, one column a label. The loss is the binary cross-entropy.
    targets = meaning[LABELS[TRAIN]].float()
    # `num_instances` counts the images. Each pair of an image and a label has a history and a weight.
    bias = ab.ActiveBias(
        "wtc", num_instances=len(TRAIN), num_classes=len(names), burn_in=BURN_IN, multi_label=True
    )
    model = nn.Sequential(make_model(), nn.ReLU(), nn.Linear(NUM_CLASSES, len(names)))
    train(bias, model, IMAGES[TRAIN], targets)
    # Row i * num_classes + c of the weights is label c of image i.
    image, label = divmod(int(bias.weights().argmax()), len(names))
    print(f"largest weight: is image {image}, labelled {LABELS[TRAIN][image]}, {names[label]}?")
    with torch.no_grad():
        return float(((model(IMAGES[TEST]) > 0) == meaning[LABELS[TEST]]).float().mean())


def train_by(make_loss, **options) -> float:
    """Train with a loss of (model, bias, index, images, labels), and return the accuracy."""
    dataset = TensorDataset(IMAGES[TRAIN], LABELS[TRAIN])
    bias = ab.ActiveBias(
        "wtc", num_instances=len(dataset), num_classes=NUM_CLASSES, burn_in=BURN_IN, **options
    )
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    loader = bias.loader(dataset, BATCH_SIZE)
    for epoch in range(EPOCHS):
        bias.set_epoch(epoch)
        for index, (x, y) in loader:
            loss = make_loss(model, bias, index, x, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return accuracy(model)


def mixup(model: nn.Module, bias: ab.ActiveBias, index, x, y) -> torch.Tensor:
    """Return the loss of mixed images: each has two labels, which are two instances with their shares."""
    share, order = torch.rand(()), torch.randperm(len(x))
    logits = model(share * x + (1 - share) * x[order])
    return bias.loss(
        logits[:, None].expand(-1, 2, -1),
        torch.stack([y, y[order]], 1),
        torch.stack([index, index[order]], 1),
        sample_weight=torch.stack([share, 1 - share]).expand(len(x), 2),
    )


def focal(model: nn.Module, bias: ab.ActiveBias, index, x, y) -> torch.Tensor:
    """Return the focal loss, as a loss of your own: the bias takes p(y|x) from logits and targets."""
    logits = model(x)
    plain = nn.functional.cross_entropy(logits, y, reduction="none")
    return bias.weigh((1 - torch.exp(-plain)) ** 2 * plain, (logits, y), index)


def main() -> float:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"class weights: accuracy {class_weights():.4f}")
    print(f"mixup: accuracy {train_by(mixup):.4f}")
    print(f"focal loss, no weight above 3: accuracy {train_by(focal, max_weight=3):.4f}")
    print(f"several labels: {several_labels():.4f} of the labels are right")
    print("soft labels:")
    return soft_labels()


if __name__ == "__main__":
    report(main())

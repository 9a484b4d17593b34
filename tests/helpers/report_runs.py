"""Run folders for the report's tests: a real training on digits, and made-up ones, large or hostile."""

import numpy as np
import torch
from sklearn.datasets import load_digits

import activebias as ab
from activebias.runs.contents import Inputs, Instances, Predictions, RunInfo
from activebias.runs.folder import write_run

FLIPPED = 0.2


def train_digits(path, *, method="wtc", seed=0, epochs=30, burn_in=5):
    """Train on digits with a fifth of the labels flipped, write the run, and return (folder, flipped)."""
    images, label = load_digits(return_X_y=True)
    generator = np.random.default_rng(7)
    images = images.reshape(-1, 8, 8).astype(np.uint8)[generator.permutation(len(label))]
    label = label[np.random.default_rng(7).permutation(len(label))].astype(np.int64)
    flipped = generator.random(len(label)) < FLIPPED
    label[flipped] = (label[flipped] + generator.integers(1, 10, flipped.sum())) % 10
    parts = np.split(np.arange(len(label)), [1437])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the net is so small that a second thread only costs
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        trained = _train(images, label, parts, method, seed, epochs, burn_in)
    torch.set_num_threads(threads)
    bias, model, curves, mean, predicted = trained
    train, held_out = parts
    info = RunInfo(
        kind="images",
        title="Digits with a fifth of the labels flipped",
        method=method,
        seed=seed,
        epochs=epochs,
        burn_in=burn_in,
        window=None,
        class_names=tuple("0123456789"),
        num_instances=len(train),
        source="scikit-learn digits",
        curves=curves,
    )
    index = np.arange(len(train))
    instances = Instances(
        label=label[train],
        believed=mean.argmax(1),
        believed_prob=mean.max(1),
        label_prob=mean[index, label[train]],
        rival_prob=rivals(mean, label[train]),
        weight=bias.weights().numpy().astype(np.float32),
        position=train,
    )
    inputs = Inputs(images=images[train], names=tuple(f"digit_{k:04d}.png" for k in train))
    validation = Predictions(
        position=held_out,
        label=label[held_out],
        predicted=predicted.argmax(1),
        probability=predicted.max(1),
    )
    folder = write_run(
        path,
        info,
        bias=bias,
        model=model.state_dict(),
        instances=instances,
        inputs=inputs,
        validation=validation,
    )
    return folder, flipped[train]


def rivals(mean, label):
    """Return the mean probability of the strongest class but the label's."""
    others = mean.copy()
    others[np.arange(len(label)), label] = 0
    return others.max(1)


def _train(images, label, parts, method, seed, epochs, burn_in):
    x, y = torch.from_numpy(images.reshape(-1, 64)).float() / 16, torch.from_numpy(label)
    train, held_out = (torch.from_numpy(part) for part in parts)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    bias = ab.ActiveBias(method, num_instances=len(train), num_classes=10, burn_in=burn_in, seed=seed)
    curves, mean = {"train_error": [], "validation_error": []}, torch.zeros(len(train), 10)
    for epoch in range(epochs):
        bias.set_epoch(epoch)
        for index in torch.tensor(list(bias.sampler(batch_size=64))).split(64):
            optimizer.zero_grad()
            bias.loss(model(x[train][index]), y[train][index], index).backward()
            optimizer.step()
        with torch.no_grad():
            after, predicted = model(x[train]).softmax(1), model(x[held_out]).softmax(1)
        mean += after / epochs
        for name, given, part in (("train", after, train), ("validation", predicted, held_out)):
            curves[f"{name}_error"].append(100 * float((given.argmax(1) != y[part]).float().mean()))
    return bias, model, curves, mean.numpy(), predicted.numpy()


def make_run(path, *, num, class_names, inputs, kind="images", epochs=4, unseen=0, **changes):
    """Write a run whose numbers are drawn, for what no training of seconds gives."""
    generator = np.random.default_rng(0)
    label = np.arange(num) % len(class_names)
    right = generator.random(num) > 0.1
    right |= num < 10
    believed = np.where(right, label, (label + 1) % len(class_names))
    bias = ab.ActiveBias("wtc", num_instances=num, num_classes=len(class_names), seed=0)
    for epoch in range(epochs):
        bias.set_epoch(epoch)
        level = np.where(right, 0.5 + 0.4 * epoch / epochs, 0.15)
        prob = np.clip(level + generator.normal(0, 0.12, num), 0, 1)
        bias.record(np.arange(num - unseen), prob[: num - unseen])
    sure = generator.uniform(0.5, 1, num).astype(np.float32)
    extra = {name: changes.pop(name) for name in ("sentence", "word", "conflict") if name in changes}
    info = {
        "kind": kind,
        "title": f"{num} made-up instances",
        "method": "wtc",
        "seed": 0,
        "epochs": epochs,
        "burn_in": 1,
        "window": None,
        "class_names": tuple(class_names),
        "num_instances": num,
        "source": "made up",
        "curves": {
            name: [50.0 / (k + 1) for k in range(epochs)] for name in ("train_error", "validation_error")
        },
    }
    instances = Instances(
        label=label,
        believed=believed,
        believed_prob=sure,
        label_prob=np.where(right, sure, 1 - sure).astype(np.float32),
        rival_prob=np.where(right, 1 - sure, sure).astype(np.float32),
        weight=bias.weights().numpy().astype(np.float32),
        position=np.arange(num),
        **extra,
    )
    one = np.array([0])
    return write_run(
        path,
        RunInfo(**info | changes),
        bias=bias,
        model={},
        instances=instances,
        inputs=inputs,
        validation=Predictions(position=one, label=one, predicted=one, probability=np.float32([0.5])),
    )

"""One rank of a distributed run: trains digits with DistributedDataParallel and writes what it knows."""

import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import activebias as ab
from activebias import evidence
from processes import finish, start
from training import digits, make_bias, make_model

GLOBAL_BATCH = 32


def run(target, folder, rank, num_ranks, *arguments):
    """Set up gloo, call `target`, write its result, and leave without gloo's unreliable tear-down."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=num_ranks
    )
    result = target(rank, num_ranks, *arguments)
    with open(folder / f"{rank}.json", "w") as file:
        json.dump(result, file)
        file.flush()
        os.fsync(file.fileno())
    dist.barrier()
    os._exit(0)


def run_ranks(folder, num_ranks, target, *arguments):
    """Run `target` on that many ranks and return what each of them wrote."""
    folder = folder / f"{num_ranks}"
    folder.mkdir()
    finish(*(start(run, target, folder, rank, num_ranks, *arguments) for rank in range(num_ranks)))
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(num_ranks)]


def train(rank, num_ranks, method, num_instances=150, accumulate=1):
    """Train two epochs; return what this rank recorded, drew and learnt."""
    inputs, targets = digits(num_instances)
    bias = make_bias(method, num_instances=num_instances)
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch_size = GLOBAL_BATCH // num_ranks
    loader = DataLoader(
        ab.with_index(TensorDataset(inputs, targets)),
        batch_size=batch_size // accumulate,
        sampler=bias.sampler(batch_size=batch_size),
    )
    drawn = []
    for epoch in range(2):
        bias.set_epoch(epoch)
        for number, (index, (batch, labels)) in enumerate(loader, 1):
            drawn.append(index.tolist())
            loss = bias.loss(model(batch), labels, index)
            (loss / accumulate).backward()
            if number % accumulate == 0 or number == len(loader):
                optimizer.step()
                optimizer.zero_grad()
        if rank == 0:
            bias.state_dict()  # never communicates: a save on one rank must not wait for the others
    return report(bias, model.module, drawn)


def learn(rank, num_ranks, method="auto", num_instances=150):
    """Train four epochs under DistributedDataParallel, learn after each; return what this rank learnt."""
    evidence.LARGEST_STEPS = 0.8  # the steps are limited
    inputs, targets = digits(num_instances + 50)
    train_set, validation = (
        TensorDataset(inputs[part], targets[part])
        for part in (slice(num_instances), slice(num_instances, None))
    )
    bias = make_bias(method, num_instances=num_instances)
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = bias.loader(train_set, GLOBAL_BATCH // num_ranks)
    drawn = []
    for epoch in range(4):
        bias.set_epoch(epoch)
        for index, (batch, labels) in loader:
            drawn.append(index.tolist())
            loss = bias.loss(model(batch), labels, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        bias.learn(model, loader, validation)
    learnt = bias._memory.curve
    return report(bias, model.module, drawn) | {
        "curve": learnt.scores.tolist(),
        "factor": float(learnt.factor),
        "num_learnt": learnt.num_learnt,
        "explained": bias.explain(),
    }


def weigh_otherwise(rank, num_ranks, kind):
    """Train on targets or with weights of another kind; the last batch of an epoch is padded."""
    inputs, targets = digits(37)
    bias = ab.ActiveBias("wpv", num_instances=37, num_classes=10, multi_label=kind == "labels")
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = bias.loader(TensorDataset(inputs, targets), 16 // num_ranks)
    drawn, own = [], torch.linspace(0.1, 2, 37)
    for epoch in range(2):
        bias.set_epoch(epoch)
        for index, (batch, labels) in loader:
            drawn.append(index.tolist())
            other = (index + 5) % 37
            share = 0.5 + own[index][:, None] / 4
            if kind == "mixup":
                batch = share * batch + (1 - share) * inputs[other]
            logits, options = model(batch), {}
            if kind == "class":
                options["class_weight"] = torch.linspace(0.5, 3, 10)
            elif kind == "sample":
                options["sample_weight"] = own[index]
            elif kind == "labels":
                labels = nn.functional.one_hot(labels, 10)
            elif kind == "soft":
                labels = 0.8 * nn.functional.one_hot(labels, 10) + 0.02
                options["sample_weight"] = own[index]
            elif kind == "sequences":  # of one to three tokens
                labels = torch.where(torch.arange(3) <= (index % 3)[:, None], labels[:, None], -100)
                logits, options["sequences"] = torch.stack([logits, logits / 2, 2 * logits], 1), True
            elif kind == "mixup":
                logits = logits[:, None].expand(-1, 2, -1)
                labels, index = torch.stack([labels, targets[other]], 1), torch.stack([index, other], 1)
                options["sample_weight"] = torch.cat([share, 1 - share], 1)
            optimizer.zero_grad()
            bias.loss(logits, labels, index, **options).backward()
            optimizer.step()
    return report(bias, model.module, drawn)


def learn_weights_and_count_waits(rank, num_ranks):
    """Return what learnt weights are told, and how often several labels exchanged their number first."""
    bias = ab.ActiveBias("wpv", num_instances=8, num_classes=10, multi_label=True)
    loader = bias.loader(TensorDataset(*digits(8)), 2)
    exchange, sizes = bias._ranks.exchange, []
    bias._ranks.exchange = lambda *visits, size: (sizes.append(size), exchange(*visits, size=size))[1]
    bias.set_epoch(0)
    for index, (_, labels) in loader:
        labels = nn.functional.one_hot(labels, 10)
        learnt = torch.ones(len(index), requires_grad=True)
        try:
            bias.loss(torch.zeros(len(index), 10), labels, index, sample_weight=learnt)
        except ValueError as error:
            message = str(error)
        bias.loss(torch.zeros(len(index), 10), labels, index, sample_weight=learnt.detach())
    return {"message": message, "sizes": sizes, "visits": int(bias.history.values()[1].sum())}


def weigh_by_hand(rank, num_ranks, reduction=None):
    """Use the two halves, with a loss of one's own, on a data set whose last batch must be filled up.

    With a `reduction`, `weigh` does both, and the mean is taken by hand.
    """
    inputs, targets = digits(37)
    bias = make_bias("wpv", num_instances=37)
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(
        ab.with_index(TensorDataset(inputs, targets)),
        batch_size=16 // num_ranks,
        sampler=bias.sampler(batch_size=16 // num_ranks),
    )
    drawn = []
    for epoch in range(3):
        bias.set_epoch(epoch)
        for index, (batch, labels) in loader:
            drawn.append(index.tolist())
            losses = nn.functional.cross_entropy(model(batch), labels, reduction="none")
            probs = losses.detach().neg().exp()
            if reduction is None:
                loss = (bias.weight(index) * losses).mean()
                bias.record(index, probs)
            else:
                loss = bias.weigh(losses, probs, index, reduction=reduction).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return report(bias, model.module, drawn)


def accumulate_weighted(rank, num_ranks, num_parts):
    """Accumulate each step in parts, weighted by their sizes."""
    inputs, targets = digits(29)
    bias = make_bias("wpv", num_instances=29)
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = bias.sampler(batch_size=16 // num_ranks)
    drawn = []
    for epoch in range(3):
        bias.set_epoch(epoch)
        for step in torch.tensor(list(sampler)).split(16 // num_ranks):
            drawn.append(step.tolist())
            optimizer.zero_grad()
            for index in step.chunk(num_parts):
                loss = bias.loss(model(inputs[index]), targets[index], index)
                (loss * len(index) / len(step)).backward()
            optimizer.step()
    return report(bias, model.module, drawn)


def tag(rank, num_ranks, lengths):
    """Tag 21 sentences of the given lengths: ranks have different numbers of words in a step."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor(lengths)
    tokens = ab.TokenIndex(lengths)
    words = torch.randn(21, 8, 6, generator=generator)
    tags = torch.randint(10, (21, 8), generator=generator)
    tags[torch.arange(8) >= lengths[:, None]] = -100
    bias = ab.ActiveBias("wtc", num_instances=tokens.num_instances, num_classes=10, burn_in=1, window=5)
    model = DistributedDataParallel(make_model(num_inputs=6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    sampler = bias.sampler(batch_size=8 // num_ranks, num_sequences=21)
    loader = DataLoader(ab.with_index(TensorDataset(words, tags)), batch_size=8 // num_ranks, sampler=sampler)
    drawn = []
    for epoch in range(3):
        bias.set_epoch(epoch)
        for sentence, (batch, labels) in loader:
            drawn.append(sentence.tolist())
            width = int((labels != -100).sum(1).max())  # each rank pads to its own longest sentence
            batch, labels = batch[:, :width], labels[:, :width]
            loss = bias.loss(model(batch), labels, tokens(sentence, width))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return report(bias, model.module, drawn)


def report(bias, model, drawn):
    values, valid = bias.history.values()
    return {
        "drawn": drawn,
        "values": values.tolist(),
        "valid": valid.tolist(),
        "scores": bias.scores.tolist(),
        "weights": [parameter.detach().flatten().tolist() for parameter in model.parameters()],
        "position": bias._order.position,
    }


def end_burn_in(rank, num_ranks):
    """Train with automatic burn-ins; return in which epochs this rank emphasised, by who reported."""
    return {whose: end_one_burn_in(rank, num_ranks, whose) for whose in ("own", "first")}


def end_one_burn_in(rank, num_ranks, whose):
    bias = ab.ActiveBias("wtc", num_instances=8, num_classes=2, burn_in="auto")
    seen = []
    for epoch, error in enumerate([0.5, 0.4, 0.3, 0.31, 0.3, 0.33, 0.2, 0.2]):
        bias.set_epoch(epoch)
        seen.append(bias.emphasises)
        bias.record(torch.arange(rank, 8, num_ranks), torch.full((8 // num_ranks,), 0.4))
        if whose == "own":  # alone, no rank would stop here: only the mean saturates
            bias.report_validation_error(error + (0.05 if (epoch + rank) % 2 else -0.05))
        elif rank == 0:
            bias.report_validation_error(error)
    return seen

"""One rank under a trainer: its own way to wrap a model, and numbers of ranks that change on resume."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import activebias as ab
from activebias.checkpoint import write_checkpoint
from training import digits, make_bias, make_model

GLOBAL_BATCH, EPOCHS = 32, 3
METHODS = ("wtc", "stc")  # of the runs that resume


class Wrapped(NamedTuple):
    """A model and an optimiser in the hands of a trainer."""

    model: Callable[[torch.Tensor], torch.Tensor]
    learn: Callable[[torch.Tensor], None]  # from a loss
    weights: Callable[[], list[torch.Tensor]]  # of the whole model
    prepare: Callable[[Any], Any] = lambda loader: loader
    shard: bool = True  # False where the trainer deals the batches out


def compare_with_plain(wrap, num_ranks, num_instances):
    """Train by scan, in the same order without a bias, and by wtc; `wrap` gives a new model each time."""
    inputs, targets = digits(num_instances)
    result, order = {}, []
    for method in ("scan", "wtc"):
        wrapped, bias = wrap(), make_bias(method, num_instances=num_instances)
        size = GLOBAL_BATCH // num_ranks
        sampler = bias.sampler(batch_size=size, shard=wrapped.shard)
        loader = DataLoader(ab.with_index(TensorDataset(inputs, targets)), batch_size=size, sampler=sampler)
        loader = wrapped.prepare(loader)
        for epoch in range(EPOCHS):
            getattr(loader, "set_epoch", bias.set_epoch)(epoch)
            bias.set_epoch(epoch)  # on several ranks Accelerate's loader tells the bias since 1.7
            for index, (batch, labels) in loader:
                order += [index] if method == "scan" else []
                wrapped.learn(bias.loss(wrapped.model(batch), labels, index))
        result[method] = {"weights": flat(wrapped.weights()), "scores": bias.scores.tolist()}
    wrapped = wrap()
    for index in order:
        wrapped.learn(nn.functional.cross_entropy(wrapped.model(inputs[index]), targets[index]))
    result["plain"] = {"weights": flat(wrapped.weights())}
    return result


def flat(tensors):
    return torch.cat([tensor.detach().flatten() for tensor in tensors]).tolist()


def learn_by(optimizer, backward=torch.Tensor.backward):
    """Return a function that makes an optimiser's step."""

    def learn(loss):
        optimizer.zero_grad()
        backward(loss)
        optimizer.step()

    return learn


def shard_fully(rank, num_ranks, num_instances):
    """Train with torch's `fully_shard`, which divides the parameters among the ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    mesh = init_device_mesh("cpu", (num_ranks,))

    def wrap():
        model = make_model()
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh)
        assert isinstance(model, FSDPModule)
        learn = learn_by(torch.optim.SGD(model.parameters(), lr=0.1))
        return Wrapped(model, learn, lambda: [each.full_tensor() for each in model.parameters()])

    return compare_with_plain(wrap, num_ranks, num_instances)


def train_a_part(rank, num_ranks, folder, until):
    """Train on from the checkpoints to a number of steps; rank 0 saves."""

    def save_last(number, save):
        if number == until:
            save()

    return {
        method: train_to(rank, num_ranks, folder / f"{method}.pt", method, until, after_step=save_last)
        for method in METHODS
    }


def train_to(rank, num_ranks, file, method, until, *, after_step=lambda number, save: None):
    """Train on from a checkpoint, if there is one, to a number of steps; return what was learnt."""
    inputs, targets = digits(150)  # the fifth and last step of an epoch has 22 instances
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    bias = make_bias(method, num_instances=150)
    parts = {"model": model, "optimizer": optimizer, "bias": bias}
    number = first = 0
    if file.exists():
        state = torch.load(file, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        number = first = state["number"]

    def save():
        if rank == 0:
            state = {name: part.state_dict() for name, part in parts.items()}
            write_checkpoint({**state, "number": number}, file)

    parallel = DistributedDataParallel(model) if num_ranks > 1 else model
    loader = bias.loader(TensorDataset(inputs, targets), GLOBAL_BATCH // num_ranks)
    while number < until:
        bias.set_epoch(number // 5)
        for index, (batch, labels) in loader:
            optimizer.zero_grad()
            bias.loss(parallel(batch), labels, index).backward()
            optimizer.step()
            number += 1
            after_step(number, save)
            if number == until:
                break
    values, valid = bias.history.values()
    return {
        "first": first,
        "values": values.tolist(),
        "valid": valid.tolist(),
        "scores": bias.scores.tolist(),
        "weights": flat(model.parameters()),
    }

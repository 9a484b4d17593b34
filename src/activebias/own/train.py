"""Trains a small model on the user's data, and writes a run folder.

After every epoch the model predicts both parts once more, without training. The mean of these class
probabilities over the epochs is the belief about each instance. It includes the early epochs, in which the
model has not yet memorised wrong labels. Validation instances are never trained on: the probabilities of
their labels after every epoch are their history. With several judges (`activebias.own.judges`) the history of
both parts is the average of theirs.

A method that learns (`auto`) learns from the validation part.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from activebias import ActiveBias
from activebias.internal import has_learnt
from activebias.own.data import OwnData
from activebias.own.judges import Judged, average_judges, check_judges
from activebias.own.models import build_model
from activebias.own.settings import BurnIn
from activebias.runs.beliefs import instances_of, joined, predictions_of
from activebias.runs.contents import Instances, RunInfo
from activebias.runs.folder import RunFolder, check_target, write_run
from activebias.runs.outcome import outcome_of, plural, resuming
from activebias.training.checkpoints import Checkpoint, checkpoint_beside
from activebias.training.entities import EntityScorer
from activebias.training.evaluation import evaluate
from activebias.training.fingerprint import build_seeded, digest_of, digest_of_settings
from activebias.training.loop import OBSERVED_STATE, OnEpoch, Run, Task
from activebias.training.randomness import derived_generator, derived_seed

LEARNT_FROM_VALIDATION = (
    "The method learnt its emphasis from the validation part, so the validation error is a little optimistic."
)


def train_own(
    data: OwnData,
    out: Path,
    *,
    model: Callable[[], nn.Module] | None = None,
    method: str = "wtc",
    epochs: int = 30,
    burn_in: BurnIn = "auto",
    judges: int = 1,
    seed: int = 0,
    device: str = "cpu",
    on_epoch: OnEpoch = lambda seen: None,
    on_message: Callable[[str], object] = lambda text: None,
) -> RunFolder:
    """Train a small model on the user's data, or the one that `model` builds, and write the folder `out`.

    With several `judges` as many models are trained, one after the other. The audit averages them. The run
    folder holds the weights of the first, which trains as it would alone. A stopped run resumes from its
    checkpoints, and `on_message` gets a sentence about it.
    """
    if epochs < 1:
        raise ValueError(f"Expected `epochs` to be at least 1, but got {epochs}: give a number of epochs.")
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"`device` is {device}, but torch sees no CUDA device here: use 'cpu'.")
    check_target(out)
    check_judges(judges, data)
    checkpoints: list[Checkpoint] = []

    def train(part: OwnData, judge: int) -> Run:
        own_seed = seed if judge == 0 else derived_seed(seed, f"judge {judge}")
        run = build_run(
            part, model=model, method=method, burn_in=burn_in, seed=own_seed, device=torch.device(device)
        )
        if judges > 1:
            for observer in run.observers:
                observer.keep_epochs()
        settings = {
            "state": OBSERVED_STATE,
            "method": method,
            "burn_in": burn_in,
            "seed": own_seed,
            "judged": judges > 1,
            "model": str(run.model),
            "data": digest_of([part.train, part.validation]),
        }
        who = f"Judge {judge + 1} of {judges}" if judges > 1 else ""
        path = out if judge == 0 else out.with_name(f"{out.name}.judge-{judge}")
        checkpoints.append(checkpoint_beside(path, digest_of_settings(settings)))
        with suitable_threads(data, model):
            run.train(epochs, checkpoints[-1], on_epoch, lambda epoch: on_message(resuming(epoch, who)))
        if not all(torch.isfinite(each.mean_beliefs(run.epoch)).all() for each in run.observers):
            checkpoints[-1].remove()
            raise ValueError(
                "The outputs of the model became NaN or infinite within "
                f"{plural(epochs, 'epoch', 'epochs')}: lower `learning_rate`, which was "
                f"{data.learning_rate:g}."
            )
        return run

    run = train(data, 0)
    judged = None if judges == 1 else average_judges(data, run, judges, train, seed)
    training = {
        "optimiser": "adam",
        "learning_rate": data.learning_rate,
        "batch_size": run.task.batch_size,
    }
    if data.kind == "tagging":
        training["error"] = "wrong words" if run.task.scorer is None else "100 - entity F1"
    info = RunInfo(
        kind=data.kind,
        title=f"{Path(data.source).name}: {len(data.class_names)} classes",
        source=data.source,
        class_names=data.class_names,
        num_instances=run.bias.num_instances,
        seed=seed,
        model=data.model | training,
        skipped=data.skipped,
        notes=(*data.notes, *([LEARNT_FROM_VALIDATION] if has_learnt(run.bias) else [])),
        num_validation=len(run.observers[1].beliefs),
        judges={} if judged is None else {"number": judges, "epochs": judged.epochs},
        settings={**data.settings, "burn_in": burn_in},
        **outcome_of(run.bias, run.train_error, run.test_error, run.warnings, judges=judges),
    )
    folder = write_run(
        out,
        info,
        bias=run.bias,
        model=run.model.state_dict(),
        best_model=run.best_model,
        instances=_instances(data, run, judged),
        inputs=data.inputs,
        validation=predictions_of(evaluate(run.model, run.task.test), data.validation_position),
        validation_history=run.observers[1].history,
        judges_history=None if judged is None else judged.history,
        conflicts=data.conflicts.rows,
        emphasis=run.emphasis,
    )
    for checkpoint in checkpoints:
        checkpoint.remove()
    return folder


@contextmanager
def suitable_threads(data: OwnData, model: Callable[[], nn.Module] | None) -> Iterator[None]:
    """Train the small nets of tables and text with one thread: with two they are slower."""
    before = torch.get_num_threads()
    if data.kind != "images" and model is None:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _instances(data: OwnData, run: Run, judged: Judged | None) -> Instances:
    """Return the instances of both parts, with their origin and the beliefs of the model or the judges."""
    mean = [observer.mean_beliefs(run.epoch) for observer in run.observers]
    if judged is not None:
        number = run.bias.num_instances
        mean = [judged.beliefs[:number], judged.beliefs[number:]]
    train = instances_of(mean[0], data.train.targets, data.train_position, bias=run.bias)
    held_out = instances_of(mean[1], data.validation.targets, data.validation_position)
    sizes = [1] * len(data.identity)
    if data.train.lengths is not None and data.validation.lengths is not None:
        sizes = [*data.train.lengths.tolist(), *data.validation.lengths.tolist()]
    return replace(
        joined([train, held_out]),
        conflict=data.conflicts.groups if data.conflicts.groups.any() else None,
        identity=np.repeat(data.identity, sizes),
    )


def build_run(
    data: OwnData,
    *,
    model: Callable[[], nn.Module] | None,
    method: str,
    burn_in: BurnIn,
    seed: int,
    device: torch.device,
) -> Run:
    """Build model, optimiser (Adam) and bias from the seed; "auto" lets the bias end the burn-in."""
    tokens = data.tokens
    if model is None:
        net = build_model(data.model, derived_generator(seed, "weights")).to(device)
    else:
        net = build_seeded(model, derived_seed(seed, "weights")).to(device)
    bias = ActiveBias(
        method,
        num_instances=len(data.train) if tokens is None else tokens.num_instances,
        num_classes=len(data.class_names),
        burn_in=burn_in,
        window=data.window,
        device=device,
        seed=derived_seed(seed, "order"),
    )
    validation = data.validation.to(device)
    task = Task(
        train=data.train.to(device),
        test=validation,
        batch_size=batch_size_for(len(data.train), most=128 if tokens is None else 16),
        seed=seed,
        drop_last=False,
        tokens=tokens,
        scorer=_scorer(data),
        validation=validation if bias.method.learns else None,
    )
    optimiser = torch.optim.Adam(net.parameters(), lr=data.learning_rate)
    return Run(task, net, optimiser, {bias.method.name: bias}, observed=True)


def batch_size_for(num_examples: int, *, most: int = 128) -> int:
    """Return a power of two from 8 to `most` with at least 20 steps per epoch, if possible.

    For sentences `most` is 16, because a sentence has many instances.

    >>> [batch_size_for(number) for number in (100, 1000, 60000)]
    [8, 32, 128]
    """
    return min(max(1 << (num_examples // 20).bit_length() >> 1, 8), most)


def _scorer(data: OwnData) -> EntityScorer | None:
    """Return a scorer of entities, or None if the tags are not entities (such as parts of speech)."""
    if data.kind != "tagging":
        return None
    try:
        return EntityScorer(data.class_names)
    except ValueError:
        return None

"""`bias.learn`: the method `auto` learns its curve after an epoch; `explain` and `curve` show the curve."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from activebias import losses
from activebias._arrays import as_tensor, native
from activebias._compile import as_written
from activebias.alignments import MEMBERS, VALIDATION, Members, Sources, alignments
from activebias.curve import Curve, in_words
from activebias.epoch_items import epoch_generator
from activebias.evidence import FIRST_ROUNDS, between, is_usable, knot_means, step_factor
from activebias.indexing import TokenIndex
from activebias.learning_data import GIVE_FORWARD, Part, moved, share_examples, usual_forward
from activebias.memory import InstanceMemory
from activebias.statistics import Estimate, estimate

if TYPE_CHECKING:
    from activebias.active_bias import ActiveBias

# Small data sets learn in some epochs only, so that learning takes this share of the examples trained.
PART = 0.05

Forward = Callable[[nn.Module, Any], tuple[torch.Tensor, torch.Tensor]]


def learn_curve(
    bias: "ActiveBias",
    model: nn.Module,
    training: Any,
    validation: Any,
    *,
    tokens: TokenIndex | None = None,
    forward: Forward | None = None,
) -> None:
    """Let the method `auto` learn its curve; call it after every epoch. Other methods learn nothing.

    It costs about as much as training on 5 % of an epoch's examples. On a small data set it therefore
    returns at once in most epochs. The model is evaluated, not changed; batch norms and dropout are as in
    evaluation.

    Args:
        model: the model in training, on one device. DistributedDataParallel is taken off, and a compiled
            model runs as it is written.
        training: the training set in the order of the index, or a DataLoader of it, such as `bias.loader`'s.
        validation: examples of the same form that are not trained on, or a DataLoader of them. Wrong labels
            among them do little harm.
        tokens: in tagging, the `TokenIndex` of the training set.
        forward: from the model and a batch, without index, to (logits, targets). By default a batch is a
            tuple, (*inputs, targets), or a dict with the targets in "labels".
    """
    if not bias.method.learns:
        return
    model = getattr(model, "_orig_mod", model)  # inside torch.compile's
    model = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    if not isinstance(model, nn.Module):
        raise TypeError(f"Expected `model` to be a torch.nn.Module, but got {type(model).__name__}.")
    parameters = whole_parameters(model)
    parts = [Part(name, data) for name, data in (("training", training), ("validation", validation))]
    ordered = bias.num_instances if tokens is None else tokens.num_sequences
    if len(parts[0].dataset) != ordered:
        raise ValueError(
            f"Expected `training` to be the training set, {ordered} examples in the order of the index, but "
            f"got {len(parts[0].dataset)}{'' if tokens else '; in tagging, give `tokens=` too'}."
        )
    if share_examples(*(part.dataset for part in parts)):
        warnings.warn(
            "`validation` has examples of the training set, and its loss falls with every instance that is "
            "memorised: give `bias.learn` examples that are not trained on.",
            stacklevel=2,
        )
    device = parameters[0].device

    def losses_of(part: Part, examples: torch.Tensor) -> tuple[losses.PerInstance, torch.Tensor]:
        logits, targets = (forward or usual_forward)(model, moved(part.batch(examples), device))
        if not isinstance(logits, torch.Tensor):
            raise TypeError(
                f"Expected the model to return logits, but got {type(logits).__name__}: {GIVE_FORWARD}."
            )
        words = tokens is not None or logits.dim() == 3
        found = losses.cross_entropy(logits, targets, num_classes=bias.num_classes, words=words)
        if tokens is None and found.loss.dim() == 2:  # whole sequences: the mean over their words
            found = found.where_counted().of_sequences()
            assert found.share is not None
            found = found._replace(loss=found.loss / found.share.clamp(min=1))
        return found, targets

    def of_training(examples: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found, targets = losses_of(parts[0], examples)
        return counted(found, tokens.of_labels(examples, targets.cpu()) if tokens else examples)

    def of_validation(examples: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return labelled(*losses_of(parts[1], examples), bias.num_classes)

    sources = Sources(
        parameters,
        of_training,
        len(parts[0].dataset),
        of_validation,
        len(parts[1].dataset),
        min((part.batch_size for part in parts if part.batch_size), default=MEMBERS),
        tokens,
    )
    with evaluating(model):
        learn_from(bias, sources)


def whole_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that are trained; raise if there are none, or a rank has only a part of them."""
    parameters = [value for value in model.parameters() if value.requires_grad]
    if not parameters:
        raise ValueError(
            "Expected `model` to have parameters that are trained, but none requires a gradient: give "
            "`bias.learn` the model that the optimiser trains."
        )
    if any(type(value).__name__ == "DTensor" for value in parameters):
        raise NotImplementedError(
            "`bias.learn` needs whole parameters, but this model's are sharded (FSDP, tensor parallelism): "
            "leave `bias.learn` out, and method 'auto' emphasises by the rule p̄ (1 - p̄)."
        )
    return parameters


def counted(found: losses.PerInstance, instances: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the losses, and the instances with -1 where an entry does not count."""
    instances = instances.to(found.loss.device)
    return found.loss, instances if found.mask is None else torch.where(found.mask, instances, -1)


def labelled(
    found: losses.PerInstance, targets: torch.Tensor, num_classes: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the losses and their labels; soft targets and whole sequences have the label `num_classes`."""
    labels = torch.full_like(found.loss, num_classes, dtype=torch.int64)
    if targets.shape == found.loss.shape:
        whole = targets.long()
        labels = torch.where(targets == whole, whole, labels)  # binary targets may be shares
    return counted(found, labels)


def explain(bias: "ActiveBias") -> str:
    """Return one sentence about the curve that the method `auto` has learnt; reads every history."""
    text = in_words(*_weights_and_share(bias)[1:])
    if (factor := step_factor_of(bias)) < 0.995:
        text += f" All weights are multiplied by {factor:.2g}, so that steps stay near plain training's."
    return text if has_learnt(bias) else f"Nothing is learnt yet, and the rule p̄ (1 - p̄) holds. {text}"


def curve_of(bias: "ActiveBias") -> tuple[torch.Tensor, torch.Tensor]:
    """Return the curve of the method `auto` as it stands: p̄, and the weight of an instance with that p̄.

    These weights have the mean 1. `bias.weight` multiplies all of them by the factor that limits the steps.
    """
    return _weights_and_share(bias)[:2]


def _weights_and_share(bias: "ActiveBias") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    curve = bias._memory.curve
    if curve is None:
        raise ValueError(f"Method {bias.method.name!r} has no curve: only 'auto' and 'sauto' learn one.")
    share = Members.of(means_of(bias._memory)).share
    weights = curve.weights(share)
    if bias.max_weight is not None:
        limit, lift = bias._memory.scores.bound(bias.max_weight)
        weights = weights.clamp(max=float(limit)) + float(lift)
    return knot_means(), weights, share


def step_factor_of(bias: "ActiveBias") -> float:
    """Return the factor of all weights in this epoch, which limits the steps; 1 without emphasis."""
    curve = bias._memory.curve
    return float(curve.factor) if curve is not None and bias.emphasises else 1.0


def has_learnt(bias: "ActiveBias") -> bool:
    """Return whether the method has learnt a curve; False for methods that learn nothing."""
    curve = bias._memory.curve
    return curve is not None and curve.num_learnt > 0


def weights_at(bias: "ActiveBias", means: Sequence[float]) -> list[float]:
    """Return the weight of an instance with such a p̄, by the curve as it stands."""
    weights = curve_of(bias)[1]
    below, part = between(torch.tensor(means, dtype=torch.float64, device="cpu"))
    found: list[float] = ((1 - part) * weights[below] + part * weights[below + 1]).tolist()
    return found


def warn_if_unlearnt(bias: "ActiveBias", epoch: int) -> None:
    """Warn once if `auto` has emphasised a whole epoch without having learnt, or without learning on."""
    curve, begin = bias._memory.curve, bias.burn_in_end
    emphasised = bias.epoch is not None and begin is not None and epoch > begin
    if curve is None or curve.has_warned or not emphasised:
        return
    if curve.last_epoch is None:
        state = "has learnt nothing, so it emphasises by the rule p̄ (1 - p̄)"
    elif curve.called is not None and curve.called != bias.epoch and bias._order.recorded:
        state = f"emphasises as it did after epoch {curve.called}, and limits its steps as it did then"
    else:
        return
    curve.has_warned = True
    warnings.warn(
        f"Method {bias.method.name!r} {state}: call `bias.learn(model, training_set, validation_set)` after "
        "every epoch.",
        stacklevel=3,
    )


def means_of(memory: InstanceMemory) -> torch.Tensor:
    """Return p̄ of all instances, without outliers; reads every history."""
    found = []
    for index in memory.history.chunks():
        entries, count = memory.history.entries(native(index))
        found.append(as_tensor(estimate(entries, count, remove_outliers=memory.remove_outliers).mean))
    return torch.cat(found)


def follow_curve(memory: InstanceMemory, curve: Curve, means: torch.Tensor) -> None:
    """Score all instances, of which p̄ is given, by a curve that has changed."""
    means = native(means.to(memory.device))
    memory.scores.replace(as_tensor(curve(Estimate(means, means, means))))


def limit_steps(memory: InstanceMemory, curve: Curve, means: torch.Tensor) -> None:
    """Choose the factor of all weights for the next epoch: see `step_factor`."""
    every = native(torch.arange(memory.num_instances, device=memory.device))
    found = as_tensor(memory.scores.weight(every)).double()
    as_tensor(curve.factor).copy_(step_factor(found, means.to(memory.device)))


@torch.inference_mode(False)  # a tensor made under inference can have no part in a gradient
def learn_from(bias: "ActiveBias", sources: Sources) -> None:
    """Learn, if it is time: the burn-in ends with this epoch or is over, and enough examples were trained."""
    memory, epoch = bias._memory, bias._require_epoch()
    curve = memory.curve
    assert curve is not None
    curve.called = epoch
    lasts = bias.burn_in_end is None  # an automatic burn-in, which the next `set_epoch` may end
    if not (lasts or bias._validation.burn_in_is_over(epoch + 1)) or curve.last_epoch == epoch:
        return
    means = means_of(memory)
    members = Members.of(means)
    cost = cost_of(int(members.number.clamp(max=MEMBERS).sum()), sources.num_validation)
    passed = math.inf if curve.last_epoch is None else epoch - curve.last_epoch
    # Negative: the epochs began again.
    if not (lasts or 0 <= passed < rounds_between(cost, sources.num_training)):
        _learn_rounds(bias, sources, members, epoch)
        follow_curve(memory, curve, means)
    limit_steps(memory, curve, means)


def _learn_rounds(bias: "ActiveBias", sources: Sources, members: Members, epoch: int) -> None:
    """Measure alignments and learn from them: one round, or several the first time."""
    curve = bias._memory.curve
    assert curve is not None
    for number in range(1 if curve.num_learnt else FIRST_ROUNDS):
        generator = epoch_generator(bias.seed, epoch, 1 + number)
        aligned, labels = alignments(bias, sources, members, curve.trust, generator)
        _warn_of_useless(aligned[0])
        curve.learn(aligned, labels, members.share, members.known, epoch)
        if not is_usable(aligned[0]):
            break


def _warn_of_useless(aligned: torch.Tensor) -> None:
    """Warn of alignments that are NaN or infinite, and of a validation loss without a gradient."""
    if not aligned.isfinite().all():
        warnings.warn(
            "Gradients in `bias.learn` are NaN or infinite, so parts of the curve stay as they are: look for "
            "NaN or infinity in the training and the validation set, and in the model's parameters.",
            stacklevel=6,
        )
    elif not aligned.any():
        warnings.warn(
            "`bias.learn` has learnt nothing: the validation loss has no gradient. Check that the logits "
            "depend on the model's trainable parameters, that not all validation labels are ignored, and "
            "that the model gives some of them more than the share of their class divided by e; labels with "
            "less count as wrong.",
            stacklevel=6,
        )


def cost_of(num_members: int, num_validation: int) -> int:
    """Return what a round costs, in training examples.

    A validation example has one forward and two backward passes: 5/3 of a training example.

    >>> cost_of(13 * MEMBERS, 5_000)
    2539
    """
    return num_members + math.ceil(5 * min(VALIDATION, num_validation) / 3)


def rounds_between(cost: int, num_training: int) -> int:
    """Return the epochs between two rounds of learning: a round of `cost` examples is PART of theirs."""
    return math.ceil(cost / (PART * num_training))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put every module into evaluation for a while; compiled ones run as they are written.

    In evaluation cuDNN refuses the gradient of a recurrent net.
    """
    trained = [module for module in model.modules() if module.training]
    recurrent = any(isinstance(module, nn.RNNBase) for module in trained)
    enabled = torch.backends.cudnn.enabled  # alone: torch's `flags` would set all others to their defaults
    model.eval()
    torch.backends.cudnn.enabled = enabled and not recurrent
    try:
        with as_written():
            yield
    finally:
        torch.backends.cudnn.enabled = enabled
        for module in trained:
            module.training = True

"""How a model's own loss pairs logits and labels: a causal model predicts the next word."""

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from activebias.internal import IGNORED

# The largest difference of the model's own loss to the cross-entropy of its logits that counts as rounding.
TOLERANCES = {torch.float32: 1e-3, torch.float64: 1e-3}
HALF_TOLERANCE = 3e-2
# Other labels are tried for at most this many classes, at most this many times.
MOST_CLASSES, MOST_TURNS = 1000, 8
# The third argument of these losses is the weight of the classes.
TORCH_LOSSES = (functional.cross_entropy, functional.nll_loss, functional.binary_cross_entropy_with_logits)


def base_model(model: Any) -> Any:
    """Return the model inside PEFT's wrapper."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def predicts_the_next_word(model: Any) -> bool:
    """Return whether the model's kind is known to shift the labels: it is causal, without an encoder."""
    model = base_model(model)
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return False
    names = {each.__name__ for each in type(model).__mro__}
    return bool(names & set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())) or any(
        name.endswith(("ForCausalLM", "ForConditionalGeneration")) for name in names
    )


def targets_of(labels: torch.Tensor, *, shift: bool, padding: int = IGNORED) -> torch.Tensor:
    """Return the targets of the logits: the labels, or with `shift` the labels of the next position."""
    return functional.pad(labels[:, 1:], (0, 1), value=padding) if shift and labels.dim() > 1 else labels


def check_own_loss(
    model: torch.nn.Module,
    base: Any,
    inputs: dict[str, Any],
    label: str,
    shift: bool,
    class_weight: torch.Tensor | None = None,
) -> torch.Tensor | None:
    """Return the class weights to train with: the given ones, or those of the model's own loss, or None.

    Raise if the model's own loss is not the cross-entropy of its logits, with or without class weights. The
    model is evaluated on the first batch, and on its inputs with other labels: class weights change a mean
    loss only if its labels have different weights. Gradients and dropout are off.
    """
    labels = inputs["labels"]
    if not _takes(base_model(base), label):
        if labels.dim() > 1 and not labels.is_floating_point():
            raise ValueError(
                f"{type(base).__name__} takes no labels, so it is not known which word its logits predict: "
                "pass `shift_labels=True` for the next word, `shift_labels=False` for the word itself."
            )
        return class_weight
    if labels.is_floating_point():
        labels = labels.clamp(min=0)  # models may leave unknown labels out, or take them for numbers
    first = _evaluated(model, inputs, label, labels)
    if first is None:
        return class_weight  # of another shape: `bias.loss` says which one it needs
    rounds = [(first, labels)]
    for other in _other_labels(labels, first.logits.shape[-1]):
        if (found := _evaluated(model, inputs, label, other)) is not None:
            rounds.append((found, other))
    for weight in first.class_weights if class_weight is None else [class_weight]:
        if _explains(weight, rounds, shift):
            return weight
    if _explains(None, rounds, shift):
        return class_weight
    expected, got = _loss(first.logits, labels, shift), float(first.loss.mean())
    message = (
        f"Expected the loss of {type(base).__name__} to be the cross-entropy of its logits, {expected:.4f} "
        f"for the first batch, but got {got:.4f}"
    )
    if labels.dim() > 1 and _explains(None, rounds[:1], not shift):
        which = "do not predict" if shift else "predict"
        raise ValueError(f"{message}: its logits {which} the next word; pass `shift_labels={not shift}`.")
    raise ValueError(
        f"{message}: the model weighs the classes or adds another loss, which would be left out. Pass the "
        "weights of the classes as `class_weight=…`; or `compute_loss_func=…`, which returns the loss of "
        f"every label (`reduction='none'`); or `shift_labels={shift}` to train on cross-entropy alone."
    )


class OwnLoss(NamedTuple):
    """Logits and loss of a model that is given labels, and the class weights that it passes to torch."""

    logits: torch.Tensor
    loss: torch.Tensor
    class_weights: list[torch.Tensor]


class _SeeWeights(TorchFunctionMode):
    """Keeps the weights that torch's losses are called with.

    Losses alone do not always show them: all classes have the same loss if the last layer begins with zeros.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[torch.Tensor] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in TORCH_LOSSES:
            weight = args[2] if len(args) > 2 else kwargs.get("weight")
            self.weights += [] if weight is None else [weight.detach()]
        return func(*args, **kwargs)


def _other_labels(labels: torch.Tensor, num_classes: int) -> Iterator[torch.Tensor]:
    """Yield labels with other classes at the same places; the last class of each is the first of the next.

    Their number depends on the number of classes only. Ranks that share the parameters (FSDP, ZeRO 3) must
    evaluate the model equally often, but their batches have different numbers of labels.
    """
    counted = labels != IGNORED
    number = int(counted.sum())
    if labels.is_floating_point() or num_classes > MOST_CLASSES:
        return
    for turn in range(min(num_classes - 1, MOST_TURNS)):
        other = labels.clone()
        other[counted] = (torch.arange(number) + turn * max(number - 1, 1)).remainder(num_classes).to(labels)
        yield other


def _explains(weight: torch.Tensor | None, rounds: list[tuple[OwnLoss, torch.Tensor]], shift: bool) -> bool:
    """Return whether every loss is the cross-entropy of its logits with these class weights."""
    return all(_equal(own.loss, _loss(own.logits, labels, shift, weight)) for own, labels in rounds)


def _takes(model: Any, name: str) -> bool:
    parameters = inspect.signature(model.forward).parameters
    return name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


@torch.no_grad()
def _evaluated(
    model: torch.nn.Module, inputs: dict[str, Any], label: str, labels: torch.Tensor
) -> OwnLoss | None:
    """Return logits and loss for the labels; None if there are none, or the logits have another shape."""
    training = [module for module in model.modules() if module.training]
    rest = {name: value for name, value in inputs.items() if name != "labels"}
    model.eval()
    try:
        with _SeeWeights() as seen:
            outputs = model(**rest, **{label: labels})
    finally:
        for module in training:
            module.training = True
    logits, own = _get(outputs, "logits", 1), _get(outputs, "loss", 0)
    shape = labels.shape[:-1] if labels.is_floating_point() else labels.shape
    one_logit = not labels.is_floating_point() and logits is not None and logits.shape[-1:] == (1,)
    if logits is None or own is None or one_logit or logits.shape[:-1] != shape:
        return None
    return OwnLoss(logits, own, [each for each in seen.weights if each.shape == logits.shape[-1:]])


def _get(outputs: Any, name: str, position: int) -> torch.Tensor | None:
    if isinstance(outputs, dict):
        return outputs.get(name)
    return outputs[position] if isinstance(outputs, tuple) and len(outputs) > position else None


def _loss(
    logits: torch.Tensor, labels: torch.Tensor, shift: bool, weight: torch.Tensor | None = None
) -> float:
    """Return the mean cross-entropy; of several labels an example the binary one."""
    logits = logits.float()
    weight = None if weight is None else weight.to(logits)
    if labels.is_floating_point():
        return float(functional.binary_cross_entropy_with_logits(logits, labels.float(), weight))
    targets = targets_of(labels, shift=shift).flatten()
    return float(functional.cross_entropy(logits.flatten(0, -2), targets, weight, ignore_index=IGNORED))


def _equal(own: torch.Tensor, loss: float) -> bool:
    """Compare within the rounding of the model's precision; a batch without labels has no mean."""
    difference = abs(float(own.float().mean()) - loss)
    return not difference > TOLERANCES.get(own.dtype, HALF_TOLERANCE) * max(abs(loss), 1e-3)

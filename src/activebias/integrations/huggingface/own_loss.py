"""How a model's own loss pairs logits and labels: a causal model predicts the next word."""

import inspect
from typing import Any

import torch
from torch.nn import functional
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from activebias.internal import IGNORED

# What the model's own loss may differ by from the cross-entropy of its logits: float32, and half precision.
TOLERANCES = {torch.float32: 1e-3, torch.float64: 1e-3}
HALF_TOLERANCE = 3e-2


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
    """Return what the logits of every position predict: the labels, or the labels of the next position."""
    return functional.pad(labels[:, 1:], (0, 1), value=padding) if shift and labels.dim() > 1 else labels


def check_own_loss(
    model: torch.nn.Module, base: Any, inputs: dict[str, Any], label: str, shift: bool
) -> None:
    """Raise if the model's own loss of a batch is not the cross-entropy of its logits.

    The model is evaluated once: without gradients, and without dropout.
    """
    labels = inputs["labels"]
    if not _takes(base_model(base), label):
        if labels.dim() > 1:
            raise ValueError(
                f"{type(base).__name__} takes no labels, so it is not known which word its logits predict: "
                "pass `shift_labels=True` for the next word, `shift_labels=False` for the word itself."
            )
        return
    arguments = {name: value for name, value in inputs.items() if name != "labels"}
    outputs = _evaluated(model, {**arguments, label: labels})
    logits, own = _get(outputs, "logits", 1), _get(outputs, "loss", 0)
    if logits is None or own is None or logits.shape[:-1] != labels.shape:
        return  # of another shape: `bias.loss` says which one it needs
    losses = {
        shifts: _cross_entropy(logits, targets_of(labels, shift=shifts)) for shifts in (shift, not shift)
    }
    if _equal(own, losses[shift]):
        return
    message = (
        f"Expected the loss of {type(base).__name__} to be the cross-entropy of its logits, "
        f"{losses[shift]:.4f} for the first batch, but got {float(own.mean()):.4f}"
    )
    if labels.dim() > 1 and _equal(own, losses[not shift]):
        which = "do not predict" if shift else "predict"
        raise ValueError(f"{message}: its logits {which} the next word; pass `shift_labels={not shift}`.")
    raise ValueError(
        f"{message}: the model weighs the classes or adds another loss, which would be left out. Pass "
        "`compute_loss_func=…`, which returns the loss of every label with these weights "
        f"(`reduction='none'`), or `shift_labels={shift}` to train on cross-entropy alone."
    )


def _takes(model: Any, name: str) -> bool:
    parameters = inspect.signature(model.forward).parameters
    return name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


@torch.no_grad()
def _evaluated(model: torch.nn.Module, inputs: dict[str, Any]) -> Any:
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        return model(**inputs)
    finally:
        for module in training:
            module.training = True


def _get(outputs: Any, name: str, position: int) -> torch.Tensor | None:
    if isinstance(outputs, dict):
        return outputs.get(name)
    return outputs[position] if isinstance(outputs, tuple) and len(outputs) > position else None


def _cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> float:
    return float(
        functional.cross_entropy(logits.flatten(0, -2).float(), targets.flatten(), ignore_index=IGNORED)
    )


def _equal(own: torch.Tensor, loss: float) -> bool:
    """Compare within the rounding of the model's precision; a batch without labels has no mean."""
    difference = abs(float(own.float().mean()) - loss)
    return not difference > TOLERANCES.get(own.dtype, HALF_TOLERANCE) * max(abs(loss), 1e-3)

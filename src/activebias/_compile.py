"""Keep torch.compile out of functions that change the state, and out of `bias.learn`."""

import functools
import inspect
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar, cast

import torch

Function = TypeVar("Function", bound=Callable[..., Any])

REASON = (
    "the bias changes its state, which no compiled graph may hold: compile the model, `model = "
    "torch.compile(model)`, and not the whole step, or compile the step without `fullgraph=True`"
)


def eager(function: Function) -> Function:
    """Keep torch.compile out of `function`: a graph would replace it, and the state would stand still.

    `torch.compiler.disable` as a decorator would import the compiler with this module, seconds for nothing.
    So `keep_out` asks for it, once the compiler is imported.
    """
    functions: list[Callable[..., Any]] = [function]

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        if len(functions) == 1 and torch.compiler.is_compiling():
            keep_out()  # the compiler came in the middle of an epoch
        return functions[-1](*arguments, **options)

    _to_keep_out.append(functions)
    return cast(Function, call)


_to_keep_out: list[list[Callable[..., Any]]] = []


def keep_out() -> None:
    """Disable the compiler in every `eager` function, if it is imported; called before every epoch."""
    if "torch._dynamo" not in sys.modules:
        return
    for functions in _to_keep_out:
        if len(functions) == 1:
            disable = cast(Callable[..., Callable[..., Any]], torch.compiler.disable)
            takes_reason = "reason" in inspect.signature(disable).parameters  # since torch 2.7
            functions.append(disable(functions[0], **({"reason": REASON} if takes_reason else {})))


def as_written() -> AbstractContextManager[object]:
    """Return a context in which compiled models run as they are written.

    A compiled graph lasts for one backward pass from torch 2.6 on, and `bias.learn` needs two.
    """
    if "torch._dynamo" not in sys.modules or not hasattr(torch.compiler, "set_stance"):  # since torch 2.6
        return nullcontext()
    return cast(AbstractContextManager[object], torch.compiler.set_stance("force_eager"))

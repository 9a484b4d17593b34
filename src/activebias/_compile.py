"""What must stay out of torch.compile."""

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def eager(function: Function) -> Function:
    """Keep torch.compile out of `function`: what it traces it would replace, and the state would stand still.

    `torch.compiler.disable` as a decorator would import the compiler with this module, seconds for nothing.
    So it is asked only when somebody else has: without the compiler there is nothing to keep out.
    """
    kept_out: list[Function] = []

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        if not kept_out and "torch._dynamo" in sys.modules:
            kept_out.append(cast(Callable[[Function], Function], torch.compiler.disable)(function))
        return (kept_out[0] if kept_out else function)(*arguments, **options)

    return cast(Function, call)

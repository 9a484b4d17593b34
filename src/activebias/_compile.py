"""What must stay out of torch.compile."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def eager(function: Function) -> Function:
    """Keep torch.compile out of `function`: what it traces it would replace, and the state would stand still.

    `torch.compiler.disable` as a decorator would import the compiler with this module, seconds for nothing.
    """

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        if torch.compiler.is_compiling():
            disable = cast(Callable[[Any], Any], torch.compiler.disable)
            return disable(function)(*arguments, **options)
        return function(*arguments, **options)

    return cast(Function, call)

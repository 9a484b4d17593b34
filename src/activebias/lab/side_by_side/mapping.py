"""The `vmap` rule of operators of K models: the mapped dimension is merged with the models' dimension."""

from typing import Any

from torch import Tensor


def join_models(operator: Any, *where: int) -> None:
    """Let an operator (`torch.library.custom_op`) treat a mapped dimension as more models.

    Models are the first dimension of the operator's tensors. For several outputs, `where` gives the models'
    dimension of each output. For a single output it is the first dimension.
    """

    def rule(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        size = info.batch_size
        outputs = operator(
            *(
                _joined(argument, dim, size) if isinstance(argument, Tensor) else argument
                for argument, dim in zip(arguments, in_dims, strict=True)
            )
        )
        if not where:
            return outputs.unflatten(0, (size, -1)), 0
        parted = (output.unflatten(dim, (size, -1)) for output, dim in zip(outputs, where, strict=True))
        return tuple(parted), where

    operator.register_vmap(rule)


def _joined(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """Return the tensor with the mapped dimension merged into the first; other tensors are expanded."""
    mapped = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return mapped.flatten(0, 1)

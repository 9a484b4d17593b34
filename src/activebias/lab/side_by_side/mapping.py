"""How an operator of K models runs under `vmap`: the dimension that is mapped over joins the models'."""

from typing import Any

from torch import Tensor


def join_models(operator: Any, *where: int) -> None:
    """Let an operator (`torch.library.custom_op`) take a mapped dimension as more models.

    Models are the first dimension of the tensors that it takes. Of several outputs `where` names the models'
    dimension in each; a single one needs none and has them first too.
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
    """Return the tensor with the mapped dimension in the first; what is not mapped is the same for all."""
    mapped = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return mapped.flatten(0, 1)

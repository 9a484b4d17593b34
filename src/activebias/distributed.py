"""The exchange of (index, probability) between ranks: the one thing they must tell each other."""

import torch
import torch.distributed as dist


def ranks(group: dist.ProcessGroup | None) -> tuple[int, int]:
    """Return this process's rank and the number of ranks: (0, 1) outside of torch.distributed."""
    if not dist.is_available() or not dist.is_initialized():
        return 0, 1
    return dist.get_rank(group), dist.get_world_size(group)


def exchange(
    index: torch.Tensor, prob: torch.Tensor, *, size: int | None, group: dist.ProcessGroup | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the visits of all ranks, in the order of the ranks, on every rank.

    Ranks may have different numbers of visits. With `size`, which none may exceed, nothing waits: shorter
    ones are filled up. Without it the sizes are exchanged first, which on a GPU waits for the device.

    An index travels as int64 and the bits of its probability beside it: as floats, 49999 would arrive as
    49920 in bfloat16.
    """
    device = index.device
    if dist.get_backend(group) == "nccl":
        device = torch.device("cuda", torch.cuda.current_device())
    if size is None:
        size = _largest(index.numel(), device, group)
    message = torch.full((2, size), -1, dtype=torch.int64, device=device)
    message[0, : index.numel()] = index
    message[1, : index.numel()] = prob.view(torch.int32)
    num_ranks = dist.get_world_size(group)
    gathered = message.new_empty(num_ranks, 2, size)
    dist.all_gather(list(gathered.unbind(0)), message, group=group)
    all_index, all_prob = gathered.to(index.device).unbind(1)
    all_prob = all_prob.reshape(-1).to(torch.int32).view(torch.float32)
    return all_index.reshape(-1), all_prob


def _largest(size: int, device: torch.device, group: dist.ProcessGroup | None) -> int:
    largest = torch.tensor([size], device=device)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    return int(largest)


def mean_over_ranks(value: float | None, group: dist.ProcessGroup | None) -> float | None:
    """Return the mean of what the ranks that have a value give; None if none has. Every rank must call it."""
    if ranks(group)[1] == 1:
        return value
    device = torch.device("cpu")
    if dist.get_backend(group) == "nccl":
        device = torch.device("cuda", torch.cuda.current_device())
    message = torch.tensor([value or 0.0, float(value is not None)], dtype=torch.float64, device=device)
    dist.all_reduce(message, group=group)
    total, count = message.tolist()
    return total / count if count else None

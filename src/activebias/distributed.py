"""The ranks that train together, and the numbers that they tell each other."""

from typing import Any

import torch
import torch.distributed as dist


class Ranks:
    """The ranks of a process group; without torch.distributed there is one."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        """Hold the group, None for all ranks; torch.distributed need not be set up yet."""
        self.group = group

    def __deepcopy__(self, memo: object) -> "Ranks":
        """Share the group: a process has one, and torch cannot copy it."""
        return self

    def rank(self) -> int:
        """Return which rank this process is."""
        return dist.get_rank(self.group) if dist.is_available() and dist.is_initialized() else 0

    def number(self) -> int:
        """Return how many ranks there are."""
        return dist.get_world_size(self.group) if dist.is_available() and dist.is_initialized() else 1

    def exchange(
        self, index: torch.Tensor, prob: torch.Tensor, *, size: int | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the visits of all ranks, in the order of the ranks, on every rank; padding has the index -1.

        Ranks may have different numbers of visits. With `size`, which none may exceed, nothing waits: shorter
        messages are padded. Without it the sizes are exchanged first, which on a GPU waits for the device.

        An index travels as int64 and the bits of its probability beside it: as floats, 49999 would arrive as
        49920 in bfloat16.
        """
        device = self._device_of_messages(index.device)
        if size is None:
            largest = torch.tensor([index.numel()], device=device)
            dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=self.group)
            size = int(largest)
        message = torch.full((2, size), -1, dtype=torch.int64, device=device)
        message[0, : index.numel()] = index
        message[1, : index.numel()] = prob.view(torch.int32)
        gathered = message.new_empty(self.number(), 2, size)
        dist.all_gather(list(gathered.unbind(0)), message, group=self.group)
        all_index, all_prob = gathered.to(index.device).unbind(1)
        all_prob = all_prob.reshape(-1).to(torch.int32).view(torch.float32)
        return all_index.reshape(-1), all_prob

    def summed(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return the sum of the tensors of all ranks, on the device of `numbers`."""
        if self.number() == 1:
            return numbers
        message = numbers.to(self._device_of_messages(numbers.device), copy=True)
        dist.all_reduce(message, group=self.group)
        return message.to(numbers.device)

    def total(self, number: Any, device: torch.device) -> torch.Tensor:
        """Return the sum of a number over all ranks, on `device`."""
        if not isinstance(number, torch.Tensor):
            number = torch.full((), number, device=device)  # `as_tensor` would wait for a GPU
        return self.summed(number.float()).to(device)

    def mean(self, value: float | None) -> float | None:
        """Return the mean over the ranks that have a value, None if none has. Every rank must call it."""
        numbers = torch.tensor([value or 0.0, value is not None], dtype=torch.float64, device="cpu")
        total, count = self.summed(numbers).tolist()
        return total / count if count else None

    def _device_of_messages(self, device: torch.device) -> torch.device:
        if dist.get_backend(self.group) == "nccl":
            return torch.device("cuda", torch.cuda.current_device())
        return device

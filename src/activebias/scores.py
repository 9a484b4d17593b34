"""The score of every instance with its running sum, and the emphasis that follows from them."""

from typing import Any

import torch

from activebias import emphasis
from activebias._arrays import Array, as_tensor, cast, namespace, native, zero_unless
from activebias.drawing import BlockSums, draw, draw_directly, draw_many, padded_length
from activebias.history import Visits
from activebias.methods import Method

# A pass over the data set costs about as much as drawing a 64th of it through the tree of sums.
INSTANCES_PER_DRAW = 64


class Scores:
    """s_i of all instances and Σs, kept up to date batch by batch: the data set is never scanned.

    A method without a statistic has no scores to keep: everything is as if all were 0.
    """

    def __init__(self, method: Method, num_instances: int, *, initial: float, device: torch.device) -> None:
        """Begin with every score at `initial`."""
        self.method = method
        self.num_instances = num_instances
        self._total = torch.zeros((), dtype=torch.float64, device=device)
        # A running sum keeps a residue; that every score is 0 must be known exactly.
        self._num_positive = torch.zeros((), dtype=torch.int64, device=device)
        self._sums: BlockSums | None = None
        length = 0 if method.statistic is None else padded_length(num_instances)
        self._values = torch.zeros(length, dtype=torch.float32, device=device)
        if method.statistic is not None:
            self._values[:num_instances] = initial
            self._total += self._values.sum(dtype=torch.float64)
            self._num_positive += (self._values > 0).sum()
        if method.order == "emphasis":
            self._sums = BlockSums(self._values)
        self._make_views()

    def _make_views(self) -> None:
        self._native_values, self._native_total = native(self._values), native(self._total)
        self._native_num_positive = native(self._num_positive)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the NumPy views out of a pickle or deep copy: there they would be arrays of their own."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_native")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the views anew."""
        vars(self).update(state)
        self._make_views()

    @property
    def num_bytes(self) -> int:
        """How many bytes the scores take, with the sums that draws need."""
        return self._values.nbytes + (self._sums.num_bytes if self._sums else 0)

    def values(self, index: torch.Tensor | None = None) -> torch.Tensor:
        """Return a copy of the scores, of all instances or of the given ones."""
        if self.method.statistic is None:
            number = self.num_instances if index is None else index.numel()
            return torch.zeros(number, dtype=torch.float32, device=self._total.device)
        return self._values[: self.num_instances].clone() if index is None else self._values[index]

    def mean(self) -> Array:
        """Return ε = mean(s) over the whole data set."""
        total = self._native_total
        # NumPy takes longer to divide a single number than Python does.
        return (total if isinstance(total, torch.Tensor) else total.item()) / self.num_instances

    def update(self, visits: Visits, scores: Array) -> None:
        """Take over the new scores of a batch; visits to the row that does not count leave no trace."""
        values, index = self._native_values, visits.index
        xp = namespace(scores)
        scores = cast(scores, "float32")
        if isinstance(scores, torch.Tensor):
            scores = xp.where(index < self.num_instances, scores, 0)
        if self._sums is None:
            before = values[index]
            change = cast(scores, "float64") - before
            turned = cast(scores > 0, "int64") - cast(before > 0, "int64")
            if not isinstance(visits.rank, int):  # a repeated instance changes once
                change, turned = (xp.where(visits.rank == 0, each, 0) for each in (change, turned))
            values[index] = scores
            self._native_num_positive += turned.sum()
            total = self._native_total + change.sum()
            self._native_total[...] = zero_unless(self._native_num_positive > 0, total)
        else:
            values[index] = scores
            self._sums.update(index)
            self._native_total[...] = self._sums.total()

    def weight(self, index: Array) -> torch.Tensor:
        """Return v of the given instances."""
        if self.method.weights == "equal":
            return torch.ones(index.shape, dtype=torch.float32, device=self._total.device)
        weights = emphasis.weights(self._native_values[native(index)], self.mean())
        if self.method.weights == "importance":
            weights = 1 / weights
        return as_tensor(cast(weights, "float32"))

    def probabilities(self) -> torch.Tensor:
        """Return P of all instances, float64."""
        return as_tensor(emphasis.probabilities(self.values()))

    def largest_emphasis(self) -> float:
        """Return max(e) / mean(e); waits for the device."""
        return float(as_tensor(emphasis.weights(native(self.values()), self.mean())).max())

    def draw(self, num_samples: int, generator: torch.Generator) -> torch.Tensor:
        """Draw from P; the random numbers come from the CPU, so that every device draws the same."""
        if self._sums is None:
            return torch.randint(self.num_instances, (num_samples,), generator=generator, device="cpu")
        values = self._values[: self.num_instances]
        if num_samples >= self.num_instances:
            return torch.from_numpy(draw_many(values.cpu().numpy(), num_samples, generator))
        uniform = torch.rand(num_samples, dtype=torch.float64, generator=generator, device="cpu")
        uniform = native(uniform.to(values.device))
        if num_samples * INSTANCES_PER_DRAW >= self.num_instances:
            return as_tensor(draw_directly(native(values), uniform)).cpu()
        return as_tensor(draw(self._sums, self.num_instances, uniform)).cpu()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return a copy of the scores and their sum."""
        return {
            "values": self._values[: self.num_instances].clone(),
            "total": self._total.clone(),
            "num_positive": self._num_positive.clone(),
        }

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take over what `state_dict` returned."""
        self._values[: self.num_instances] = state["values"].to(self._values.device)
        self._total.copy_(state["total"])
        self._num_positive.copy_(state["num_positive"])
        if self._sums is not None:
            self._sums.rebuild()

"""The paper's eleven methods, and two that learn: a statistic, an order of instances, a weight."""

from dataclasses import dataclass
from typing import Literal, get_args

from activebias._names import did_you_mean
from activebias.statistics import (
    Statistic,
    difficulty,
    easiness,
    prediction_variance,
    threshold_closeness,
)

# "scan": without replacement, a new permutation each epoch. "uniform": with replacement.
# "emphasis": with replacement, P(i) = e_i / Σe.
Order = Literal["scan", "uniform", "emphasis"]

# "equal": 1. "emphasis": v_i = e_i / N. "importance": v_i = N / e_i, which undoes the order's bias.
Weighting = Literal["equal", "emphasis", "importance"]


@dataclass(frozen=True)
class Method:
    """How to emphasise: a statistic s of each instance, and the order and the weight that follow from s.

    A method of your own needs a name and a statistic, a function from an `Estimate` of tensors to scores ≥ 0,
    one per instance and from its own estimate alone (the other instances of a call are arbitrary):

    >>> by_variance = Method("wvar", statistic=lambda e: e.variance, weights="emphasis")
    """

    name: str
    statistic: Statistic | None = None
    order: Order = "scan"
    weights: Weighting = "equal"
    learns: bool = False

    def __post_init__(self) -> None:
        """Refuse combinations that mean nothing."""
        for field, allowed in (("order", get_args(Order)), ("weights", get_args(Weighting))):
            if (value := getattr(self, field)) not in allowed:
                raise ValueError(
                    f"Expected Method argument `{field}` to be one of {allowed}, but got {value!r}."
                )
        if not self.name or not isinstance(self.name, str):
            raise ValueError(
                f"Expected Method argument `name` to be a non-empty string, but got {self.name!r}."
            )
        if self.statistic is None and "emphasis" in (self.order, self.weights):
            raise ValueError(f"Method {self.name!r} emphasises, so it needs a `statistic`.")
        if self.weights == "importance" and self.order != "emphasis":
            raise ValueError(
                f"Method {self.name!r}: `weights='importance'` corrects the order 'emphasis', "
                f"but its order is {self.order!r}."
            )

    @property
    def is_own(self) -> bool:
        """Whether this is a method of the user's own, not one of the paper's.

        >>> METHODS["wpv"].is_own, Method("mine").is_own
        (False, True)
        """
        return ALL_METHODS.get(self.name) != self


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("uni", order="uniform"),
        Method("scan", order="scan"),
        Method("sd", difficulty, order="emphasis"),
        Method("isd", difficulty, order="emphasis", weights="importance"),
        Method("se", easiness, order="emphasis"),
        Method("spv", prediction_variance, order="emphasis"),
        Method("stc", threshold_closeness, order="emphasis"),
        Method("wd", difficulty, weights="emphasis"),
        Method("we", easiness, weights="emphasis"),
        Method("wpv", prediction_variance, weights="emphasis"),
        Method("wtc", threshold_closeness, weights="emphasis"),
    )
}


# Not the paper's: a curve over p̄ in place of the statistic, learnt from a validation part (`bias.learn`).
# Until then they are `wtc` and `stc`.
LEARNING_METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("auto", threshold_closeness, weights="emphasis", learns=True),
        Method("sauto", threshold_closeness, order="emphasis", learns=True),
    )
}
ALL_METHODS = METHODS | LEARNING_METHODS


def get_method(method: str | Method) -> Method:
    """Return the method of that name, or `method` itself when it is one.

    Names are read as the paper writes them too:

    >>> get_method("SGD-WPV").name
    'wpv'
    """
    if isinstance(method, Method):
        ours = ALL_METHODS.get(method.name, method)
        if ours != method:
            raise ValueError(
                f"{method.name!r} is one of our methods, which tables, stores and checkpoints know by its "
                "name: give a Method of your own another name."
            )
        return ours
    if not isinstance(method, str):
        raise TypeError(f"Expected `method` to be a name or a Method, but got {type(method).__name__}.")
    name = method.lower().removeprefix("sgd-")
    if name not in ALL_METHODS:
        raise ValueError(
            f"Expected `method` to be one of {', '.join(ALL_METHODS)}, but got {method!r}."
            f"{did_you_mean(name, ALL_METHODS)}"
        )
    return ALL_METHODS[name]

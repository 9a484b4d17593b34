"""The identity of a user's method in a result, beside its name."""

import re

from activebias import Method

# Method, seed and rule: the identity of a result within a recipe and configuration.
RunKey = tuple[str, int, str | None]


def rule_of(method: Method) -> str | None:
    """Return a text of how a user's method emphasises; None for the paper's methods.

    Statistics are functions, which cannot be compared: a changed statistic needs a new name.

    >>> from activebias import METHODS
    >>> rule_of(METHODS["wpv"])
    >>> rule_of(Method("mine", statistic=lambda e: e.variance, weights="emphasis"))
    'order scan, weights emphasis'
    """
    if not method.is_own:
        return None
    return f"order {method.order}, weights {method.weights}"


def run_name(method: Method) -> str:
    """Return the name of the method in the files of an unfinished run.

    >>> from activebias import METHODS
    >>> run_name(METHODS["wpv"]), run_name(Method("mine", statistic=lambda e: e.variance, order="emphasis"))
    ('wpv', 'mine-emphasis-equal')
    """
    return name_by_rule(method.name, rule_of(method))


def name_by_rule(name: str, rule: str | None) -> str:
    """Return the `run_name` of a method, given the name and the rule in a result.

    >>> name_by_rule("wpv", None), name_by_rule("mine", "order emphasis, weights equal")
    ('wpv', 'mine-emphasis-equal')
    >>> name_by_rule("wtc+gce", "q 0.5, learning rate × 0.333")
    'wtc+gce-q-0.5-learning-rate-x-0.333'
    """
    if rule is None:
        return name
    rule = rule.removeprefix("order ").replace(", weights ", "-").replace("×", "x")
    words = re.sub(r"[^\w.]+", "-", rule)
    return f"{name}-{words}"

"""What a result has to remember of a method of one's own, beside its name."""

from activebias import Method

# Method, seed and rule: what a result goes by within a recipe and configuration.
RunKey = tuple[str, int, str | None]


def rule_of(method: Method) -> str | None:
    """Return how a method of one's own emphasises; None for the paper's, whose names say it.

    The statistic is a function, which has no text to compare: a changed one needs a new name.

    >>> from activebias import METHODS
    >>> rule_of(METHODS["wpv"])
    >>> rule_of(Method("mine", statistic=lambda e: e.variance, weights="emphasis"))
    'order scan, weights emphasis'
    """
    if not method.is_own:
        return None
    return f"order {method.order}, weights {method.weights}"


def run_name(method: Method) -> str:
    """Return what the files of a run under way are called by.

    >>> from activebias import METHODS
    >>> run_name(METHODS["wpv"]), run_name(Method("mine", statistic=lambda e: e.variance, order="emphasis"))
    ('wpv', 'mine-emphasis-equal')
    """
    return name_by_rule(method.name, rule_of(method))


def name_by_rule(name: str, rule: str | None) -> str:
    """Return the `run_name` of a method of which a result tells name and rule.

    >>> name_by_rule("wpv", None), name_by_rule("mine", "order emphasis, weights equal")
    ('wpv', 'mine-emphasis-equal')
    """
    return name if rule is None else f"{name}-{rule.removeprefix('order ').replace(', weights ', '-')}"

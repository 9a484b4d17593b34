"""The conclusion of a comparison in one sentence."""

from collections.abc import Callable, Sequence

from activebias.lab.baselines import against_halves, halves_text, without_baseline
from activebias.lab.experiment.results import TrialResult
from activebias.lab.result_tables import display_name
from activebias.lab.significance import Comparison, against_baselines_of, by_method, our_finding


def conclusion(results: Sequence[TrialResult], named: Callable[[str], str] = display_name) -> str:
    """Return the methods that differ significantly from their baseline, the others, and pairs by halves.

    `named` gives the name of a method in the sentence.
    """
    values = by_method(results, "best_test_error")
    return conclusion_of(against_baselines_of(values), against_halves(values), named, "best test error")


def conclusion_of(
    items: Sequence[Comparison], pairs: Sequence[Comparison], named: Callable[[str], str], measure: str
) -> str:
    """Return the conclusion from the sides against their baselines, and the pairs against their halves."""
    alone = without_baseline([item.method for item in items])
    tested = [item for item in items if item.baseline is not None]
    by_name = {item.method: item for item in items}
    if not tested:
        return f"There is nothing to compare: {alone or 'give a method beside the baseline.'}"
    if all(our_finding(item) is None for item in tested):
        return f"{_why_untested(tested)} {alone}".strip()
    parts = []
    for baseline in dict.fromkeys(item.baseline for item in tested if item.baseline is not None):
        group = [item for item in tested if item.baseline == baseline and our_finding(item) is not None]
        base = by_name[baseline]
        phrases = []
        for finding, words in (("better", "better"), ("worse", "worse")):
            found = [item for item in group if our_finding(item) == finding]
            if found:
                verb = "is" if len(found) == 1 else "are"
                phrases.append(f"{_named(found, named)} {verb} {words}")
        same = [item for item in group if our_finding(item) == "no difference"]
        if same:
            verb = "does not differ" if len(same) == 1 else "do not differ"
            phrases.append(f"{_named(same, named)} {verb} beyond chance")
        if phrases:
            parts.append(
                f"against {named(baseline)} ({base.mean:.2f} % {measure}, mean of {base.n} "
                f"trials) {', '.join(phrases)}"
            )
    text = "; ".join(parts)
    untested = [item for item in tested if our_finding(item) is None]
    sentences = [
        f"{text[0].upper()}{text[1:]} (paired test, p < 0.05 after Holm's correction).",
        f"Not tested: {_named(untested, named)}. {_why_untested(untested)}" if untested else "",
        alone,
        halves_text(items, pairs),
    ]
    return " ".join(filter(None, sentences))


def _why_untested(items: Sequence[Comparison]) -> str:
    """Explain why no method could be tested against its baseline."""
    if any(item.test is not None and item.test.n > 1 for item in items):
        why = "The difference to the baseline is the same number in all trials, which makes a test impossible"
    elif all(item.n == 1 for item in items):
        why = "One trial per method shows nothing about the methods"
    else:
        why = "Methods and baselines have fewer than two trials in common, which makes a test impossible"
    return f"{why}: run more trials (--trials)."


def _named(items: Sequence[Comparison], named: Callable[[str], str]) -> str:
    """Return names and means, the smallest error first."""
    texts = [f"{named(item.method)} ({item.mean:.2f})" for item in sorted(items, key=_mean)]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _mean(item: Comparison) -> float:
    return item.mean

"""Two runs compared on the validation rows that both have, with the same label.

The validation errors of two runs are not comparable if the split was drawn anew, or if labels of the
validation part were corrected: then the error falls although the model is no better.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Any, final

from activebias.runs.folder import RunFolder

# With fewer common rows, or fewer rows that only one of the runs gets right, nothing can be said.
FEWEST_ROWS = 100
FEWEST_CHANGES = 6


@final
@dataclass(frozen=True)
class BeforeAfter:
    """The comparison of two runs on their common validation instances, whose labels are the same.

    `num_before` and `num_after` are the sizes of the validation parts. `relabelled` counts the instances of
    both parts whose label has changed. `fixed` are right only in the run after, `broken` only in the run
    before. `better` and `worse` are the inputs with more fixed than broken instances, and with fewer: in
    tagging an input is a sentence, whose words are not independent.
    """

    num_before: int
    num_after: int
    num_common: int
    relabelled: int
    wrong_before: int
    wrong_after: int
    fixed: int
    broken: int
    better: int
    worse: int

    @property
    def errors(self) -> tuple[float, float]:
        """The errors before and after, in per cent of the common instances."""
        number = max(self.num_common, 1)
        return 100 * self.wrong_before / number, 100 * self.wrong_after / number

    @property
    def is_same_part(self) -> bool:
        """Whether both runs validate on the same instances with the same labels."""
        return self.num_before == self.num_after == self.num_common

    @property
    def p_value(self) -> float:
        """The exact sign test: could better and worse inputs differ as much by chance?"""
        number, fewer = self.better + self.worse, min(self.better, self.worse)
        share: float = sum(comb(number, k) for k in range(fewer + 1)) / 2**number
        return min(1.0, 2 * share)

    @property
    def is_enough(self) -> bool:
        """Whether there are enough common instances to compare the errors."""
        return self.num_common >= FEWEST_ROWS

    def sentences(self, what: str) -> list[str]:
        """Return the comparison in plain words."""
        if not self.num_common:
            return [
                f"The runs have no validation {what} with the same label in common, so their errors cannot "
                "be compared. Train the second run with `--like` and the first."
            ]
        before, after = self.errors
        found = [
            f"On the {self.num_common:,} {what} that both validate on, with the same label, {before:.1f} % "
            f"were predicted wrong before and {after:.1f} % after: {self.fixed:,} fixed, {self.broken:,} "
            "broken."
        ]
        if not self.is_enough:
            found.append(
                f"That is too few {what} to compare two errors (fewer than {FEWEST_ROWS}): a first run with "
                "a larger `--validation` part has more."
            )
        else:
            test = f"sign test{' over sentences' if what == 'words' else ''}, p = "
            if self.better + self.worse < FEWEST_CHANGES or self.p_value > 0.05:
                found.append(f"No difference is seen ({test}{self.p_value:.2f}).")
            else:
                better = "better" if self.better > self.worse else "worse"
                found.append(
                    f"The second run is {better} ({test}{self.p_value:.2g}). These are two trainings: other "
                    "seeds give other differences."
                )
        return found if self.is_same_part else [*found, self._left_out()]

    def _left_out(self) -> str:
        numbers = {
            "with another label": self.relabelled,
            "only in the first run": self.num_before - self.num_common - self.relabelled,
            "only in the second run": self.num_after - self.num_common - self.relabelled,
        }
        texts = [f"{number:,} {where}" for where, number in numbers.items() if number]
        return (
            f"Left out: {', '.join(texts)}. The errors of the whole validation parts include them, and are "
            "not comparable."
        )


def compare_before_after(before: RunFolder, after: RunFolder) -> BeforeAfter | None:
    """Compare two runs on the inputs that validate in both; None if the runs do not know their inputs."""
    first, second = _validated(before), _validated(after)
    if first is None or second is None:
        return None
    common = [key for key in first if key in second]
    right = [(first[key], second[key]) for key in common]
    change: Counter[Any] = Counter()
    for key, (was, now) in zip(common, right, strict=True):
        change[key[0]] += now - was
    inputs = [Counter(each[:-2] for each in part) for part in (first, second)]
    return BeforeAfter(
        num_before=len(first),
        num_after=len(second),
        num_common=len(common),
        relabelled=sum((inputs[0] & inputs[1]).values()) - len(common),
        wrong_before=sum(not was for was, _ in right),
        wrong_after=sum(not now for _, now in right),
        fixed=sum(now and not was for was, now in right),
        broken=sum(was and not now for was, now in right),
        better=sum(number > 0 for number in change.values()),
        worse=sum(number < 0 for number in change.values()),
    )


def compare_with_first(runs: Sequence[RunFolder]) -> list[BeforeAfter]:
    """Compare the first run with each of the others; an empty list if a run does not know its inputs."""
    found = [compare_before_after(runs[0], run) for run in runs[1:]]
    return [each for each in found if each is not None] if None not in found else []


def _validated(folder: RunFolder) -> dict[tuple[Any, ...], bool] | None:
    """Return for every validation instance whether it was predicted right.

    The key has the input's digest, the word in tagging, the label, and the number among equal ones.
    """
    instances = folder.instances()
    if instances.identity is None or not folder.info.num_validation:
        return None
    start = folder.info.num_instances
    identity = instances.identity[start:].tolist()
    words = [0] * len(identity) if instances.word is None else instances.word[start:].tolist()
    seen: Counter[tuple[Any, ...]] = Counter()
    found = {}
    for digest, word, row in zip(identity, words, folder.validation(), strict=True):
        key = (digest, word, row["label"])
        found[(*key, seen[key])] = row["label"] == row["predicted"]
        seen[key] += 1
    return found

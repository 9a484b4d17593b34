"""Pairs, a method and a peer together (WE+ELR), against each half alone, in all rows that are trained."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from activebias.lab.experiment.store import ResultStore
from activebias.lab.peer_rows import PAIRS, peer_rows
from activebias.lab.peer_table import Compared, difference_cells, errors_by_seed, num_failed, side_title
from activebias.lab.result_tables import Cell, TextTable
from activebias.lab.significance import estimate

_COLUMNS: Final = ("pair", "row", "n", "test error %", "the method alone %", "the peer alone %")


class _Trained(NamedTuple):
    """The test errors of a pair in a row, by seed, and those of its halves, method and peer."""

    pair: str
    row: str
    errors: Mapping[int, float]
    halves: tuple[Mapping[int, float], Mapping[int, float]]
    failed: tuple[bool, bool]  # whether a trial failed, of the pair or of the half

    def against(self, half: int) -> Compared:
        """Return the comparison with a half: 0 is the method, 1 the peer."""
        return Compared(self.errors, self.halves[half], self.failed[half])


def pair_table(store: ResultStore) -> TextTable:
    """Return a line for every pair and row that has trials; p-values are corrected over their column."""
    trained = [each for pair in PAIRS for each in _trained(pair, store)]
    cells = [
        difference_cells(
            {f"{each.pair} {each.row}": each.against(half) for each in trained if each.halves[half]}
        )
        for half in (0, 1)
    ]
    rows = tuple(
        (
            Cell(side_title(each.pair)),
            Cell(each.row),
            Cell(str(len(each.errors))),
            *(Cell(_mean(errors)) for errors in (each.errors, *each.halves)),
            *(column.get(f"{each.pair} {each.row}", Cell("–")) for column in cells),
        )
        for each in trained
    )
    return TextTable("Pairs", (*_COLUMNS, "pair - method", "pair - peer"), rows, ())


def _trained(pair: str, store: ResultStore) -> list[_Trained]:
    """Return the rows in which a pair has trials."""
    found = []
    method, peer = pair.split("+")
    for row, protocol in peer_rows().items():
        results = protocol.results(store)
        errors, failed = errors_by_seed(results), num_failed(results)
        if errors.get(pair):
            halves = errors.get(method, {}), errors.get(peer, {})
            fails = tuple(bool(failed[pair] or failed.get(half)) for half in (method, peer))
            found.append(_Trained(pair, row, errors[pair], halves, (fails[0], fails[1])))
    return found


def _mean(errors: Mapping[int, float]) -> str:
    if not errors:
        return "–"
    mean, stderr = estimate(errors.values())
    return f"{mean:.2f}" if stderr is None else f"{mean:.2f} ± {stderr:.2f}"

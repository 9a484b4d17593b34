"""docs/peers.md and its figure from the stored results: `python -m activebias.lab.peer_page RESULTS PAGE`."""

import math
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Final

from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.results import TrialResult
from activebias.lab.experiment.store import ResultStore
from activebias.lab.figures import save_figure
from activebias.lab.peer_figure import peer_figure
from activebias.lab.peer_pairs import pair_table
from activebias.lab.peer_rows import num_trials, peer_rows, steps_an_epoch
from activebias.lab.peer_table import failed_notes, protocol_table, side_title
from activebias.lab.peers import PEERS, Peer
from activebias.lab.protocol import RATES, SEARCH_SEEDS, Protocol
from activebias.lab.result_tables import listing

_WIDTH = 110
_FIGURE: Final = "figures/peers.png"
CONFIRMED: Final = "confirmed"  # the folder, in that of the results, of trials on other seeds
(_SEED,) = SEARCH_SEEDS


def page(store: ResultStore, notes: Path) -> str:
    """Return the page.

    `notes` is a file, if it exists: when to use what, which stands before the protocol, and then a section
    "## Pairs", which stands behind the tables of the pairs.
    """
    text = notes.read_text(encoding="utf-8") if notes.exists() else ""
    when, _, about_pairs = text.partition("\n## Pairs\n")
    parts = ["# Peers: what people use instead", _QUESTION, *filter(None, [when.strip()])]
    if trained_rows(store):
        parts.append(f"![Test error of every side, row by row]({_FIGURE})")
        parts += [*_pairs(store), *filter(None, [about_pairs.strip()])]
    parts += ["## The protocol", _PROTOCOL + _passes(), _COMMANDS]
    for protocol in peer_rows().values():
        parts += [f"## {protocol.recipe.name}", *_row(protocol, store)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def trained_rows(store: ResultStore) -> list[Protocol]:
    """Return the rows that have trials."""
    return [protocol for protocol in peer_rows().values() if any(protocol.results(store).values())]


def _pairs(store: ResultStore) -> list[str]:
    """Return the paragraphs about pairs, from the trials and from those that confirm them on other seeds."""
    parts = ["## Pairs", _PAIRS, pair_table(store).to_markdown().split("\n", 2)[2]]
    confirmed = pair_table(ResultStore(store.folder / CONFIRMED))
    if confirmed.rows:
        parts += [_CONFIRMED, confirmed.to_markdown().split("\n", 2)[2]]
    return parts


def _row(protocol: Protocol, store: ResultStore) -> list[str]:
    """Return the paragraphs of a row."""
    recipe, results = protocol.recipe, protocol.results(store)
    if not results:
        return [f"{recipe.title}: not trained yet."]
    trials = list(chain(*results.values()))
    if trials:
        facts = _facts(recipe, trials)
    else:
        facts = f"{recipe.title}: {len(results)} of {len(protocol.names)} sides are searched, no trial yet."
    if missing := [side_title(name) for name in protocol.names if name not in results]:
        facts += f" Neither searched nor trained yet: {', '.join(missing)}."
    edge = sum(chosen.side.setting.rate == max(RATES) for chosen in protocol.chosen(store).values())
    if edge > len(results) / 2:
        facts += (
            f" {edge} of {len(results)} sides chose the largest learning rate of the search: a better rate "
            "may lie beyond."
        )
    device = "cpu" if {result.device for result in trials} == {"cpu"} else "cuda"
    command = f"python benchmarks/peers.py --device {device} --out results/peers --rows {recipe.name}"
    if 0 < len(_seeds(trials)) < num_trials(recipe):
        command += f" --trials {len(_seeds(trials))}"
    table = replace(protocol_table(protocol, store), title="", notes=())
    parts = [_filled(facts), f"```sh\n{command}\n```", table.to_markdown().split("\n", 2)[2]]
    return [*parts, *map(_filled, failed_notes(results))]


def _facts(recipe: Recipe, trials: Sequence[TrialResult]) -> str:
    """Return sentences about the trials of a row; those of each machine have a sentence of their own."""
    seeds, steps = _seeds(trials), steps_an_epoch(recipe)
    planned = "" if len(seeds) >= num_trials(recipe) else f" of {num_trials(recipe)} planned"
    parts = [
        f"{recipe.title}.",
        f"{len(seeds)} trials{planned} (seeds {seeds[0]} to {seeds[-1]}),",
        f"{recipe.epochs} epochs of {steps} steps with {recipe.batch_size} instances.",
    ]
    by_machine: dict[str, list[TrialResult]] = {}
    for result in trials:
        by_machine.setdefault(_machine(result), []).append(result)
    for machine, group in sorted(by_machine.items()):
        seconds = math.fsum(result.seconds for result in group) / len(group)
        together = sorted({result.details.get("side_by_side", 1) for result in group})
        sides = listing([side_title(name) for name in dict.fromkeys(result.method for result in group)])
        parts += [
            f"{machine}{f', {sides}' if len(by_machine) > 1 else ''};",
            f"{listing(list(map(str, together)))} models side by side.",
            f"A model's share of the group's time is {seconds:.1f} s a trial",
            f"and {1000 * seconds / (recipe.epochs * steps):.2f} ms a step.",
        ]
    return " ".join(parts)


def _seeds(trials: Sequence[TrialResult]) -> list[int]:
    return sorted({result.seed for result in trials})


def _machine(result: TrialResult) -> str:
    precision = result.details.get("precision")
    return result.device if precision is None else f"{result.device} ({precision})"


def _passes() -> str:
    """Return the point about the passes of a step."""
    usual = Peer.passes
    others = "; ".join(f"`{peer.name}` {peer.passes}" for peer in PEERS.values() if peer.passes != usual)
    text = (
        f"Passes a step: {usual}. Two peers need less: {others}. Here both run the whole backward pass, with "
        'weights of 0, and save no time. The sides of a row train together in a few groups, and "s a trial" '
        "divides the time of a group equally: the tables do not show the cost of a single peer. A side that "
        "was trained later has groups of its own."
    )
    return "\n" + textwrap.fill(text, _WIDTH, initial_indent="- ", subsequent_indent="  ")


def _filled(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_long_words=False)


_PAIRS = """
A pair is a method and a peer together: the loss of the peer, weighed by the method. The table compares each
pair with the method alone and with the peer alone. Each of the three has its own search. Differences of the
test error are paired by seed, with the p-value after Holm's correction over the column; bold below 0.05.
After "med" a trial failed, and medians and ranks are used (see [the protocol](#the-protocol))."""

_CONFIRMED = """
WE+ELR and auto+label-smoothing were chosen on seeds 0 to 9 of digits. The next table has fresh seeds, 20 to
39, with the settings of the same search:

```sh
python benchmarks/peers.py --device cpu --out results/peers/confirmed --trials 20 --first-seed 20 \\
  --rows digits-0 digits-20 digits-40 digits-flips-30 \\
  --sides scan we wtc auto label-smoothing sce elr we+elr auto+label-smoothing
```"""

_QUESTION = """
Is weighing by history better than the losses and samplers that people use today? A peer is such a loss or
sampler. A side of a table is a method, a peer, or both together (WTC+SCE). Every side, plain training (Scan)
included, gets the same search and the same trials."""

_PROTOCOL = f"""- A tenth of the training data is held out. Its labels are as noisy as the rest.
- Search: the learning rate of the recipe times 1/3, 1, 3 and 10, and two or three values of the side's own
  parameter, in short runs (40 % of the epochs, schedule and burn-in in proportion) with seed {_SEED} (digits
  and questions: five seeds from {_SEED} on). The setting with the lowest error on the held-out part is
  chosen. "Searched" is the budget: models × epochs.
- Trials: the chosen setting with seeds 0 to 9 (residual nets 0 to 4, digits 0 to 19) once a row is complete.
- "Validation" is the lowest error on the held-out part over the epochs. "Test error" is the error of that
  epoch (of equal epochs the last) on the test data. "Best epoch" is the paper's metric, the lowest error on
  the test data. Errors are means ± standard errors.
- "Against Scan" and "against WTC" are differences in "test error", paired by seed, with the p-value of a
  t-test after Holm's correction over the column; bold below 0.05. After "med" a trial failed, and median and
  ranks are used: see the note below the table.
- [`auto`](methods/auto.md) learns its curve, 13 numbers, from the held-out part that also chooses setting and
  epoch. So `auto` has the same data as the other sides. But its "validation" is a little too low: do not
  compare it with the "validation" of other sides. The search compares only rates of `auto` with each other.
- InfoBatch saves no time here: it trains further passes in the steps that it saves.
- The peers are in `src/activebias/lab/peers/`, one file each, with formula and source. The same comparison on
  another recipe: `activebias compare RECIPE --methods scan,wtc,gce,sce --search`."""

_COMMANDS = """```sh
python benchmarks/peers.py --device cuda --out results/peers --seconds 1500   # continues where it stopped
# fewer trials of some sides, in a folder of their own: half a minute on a CPU
python benchmarks/peers.py --device cpu --out runs/peers --rows digits-40 --trials 3 --sides scan wtc gce elr
python -m activebias.lab.peer_page results/peers docs/peers.md                # writes this page: `make peers`
```"""


def main(folder: Path, out: Path) -> None:
    """Write the page and its figure."""
    store = ResultStore(folder)
    out.write_text(page(store, folder / "notes.md"), encoding="utf-8")
    if rows := trained_rows(store):
        for path in save_figure(peer_figure(rows, store), out.parent / _FIGURE):
            if path.suffix != ".png":
                path.unlink()  # the page shows the PNG only


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m activebias.lab.peer_page RESULTS PAGE")
    main(Path(sys.argv[1]), Path(sys.argv[2]))

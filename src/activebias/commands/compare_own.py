"""`activebias compare --images | --csv | --conll`: the methods on data of one's own, over repeated splits."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import torch
import typer

from activebias.commands.choosing import find_place
from activebias.commands.shared import print_json, say, show
from activebias.lab.baselines import without_baseline
from activebias.lab.data import Dataset, Examples
from activebias.lab.experiment.recipe import Metric, Optimiser, Recipe
from activebias.lab.experiment.sides import find_side
from activebias.lab.experiment.splitting import Split, split_rows
from activebias.lab.own_model import EPOCHS, METHODS, SPLITS, default_burn_in
from activebias.lab.split_comparison import SplitComparison, compare_splits
from activebias.own.data import VALIDATION_SHARE, OwnData
from activebias.own.models import build_model
from activebias.own.train import batch_size_for
from activebias.training.entities import EntityScorer
from activebias.training.examples import joined
from activebias.training.fingerprint import digest_of

if TYPE_CHECKING:
    from activebias.lab.experiment.place import Place

# The nouns of the examples.
_EXAMPLES: Final = {"images": "images", "table": "rows", "text": "rows", "tagging": "sentences"}


@final
@dataclass(frozen=True)
class Source:
    """The data that a user names on the command line: one of a folder, a table and a tagged file."""

    images: Path | None
    csv: Path | None
    target: str | None
    conll: Path | None

    @property
    def path(self) -> Path:
        """The folder or file."""
        return self.images or self.csv or self.conll or Path()

    def read(self, *, quiet: bool) -> OwnData:
        """Read the data as `activebias train` reads it."""
        from activebias.own.images import read_images
        from activebias.own.tables import read_table
        from activebias.own.tagged import read_tagged
        from activebias.training.progress import show_reading

        if self.images is not None:
            with show_reading("images", quiet=quiet) as on_image:
                return read_images(self.images, validation=VALIDATION_SHARE, seed=0, on_image=on_image)
        if self.csv is not None and self.target is not None:
            return read_table(self.csv, target=self.target, validation=VALIDATION_SHARE, seed=0)
        return read_tagged(self.path, validation=VALIDATION_SHARE, seed=0)


def compare_own(
    source: Source,
    *,
    methods: str | None,
    splits: int | None,
    minutes: float | None,
    epochs: int | None,
    burn_in: int | None,
    search: bool,
    out: Path,
    device: str,
    side_by_side: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compare the methods on the user's data, and show table, verdict and figure."""
    place = find_place(out, None, device, side_by_side)
    names = _methods(methods, is_tagging=source.conll is not None)
    epochs = EPOCHS if epochs is None else epochs
    burn_in = default_burn_in(epochs) if burn_in is None else burn_in
    if burn_in >= epochs:
        raise typer.BadParameter(
            f"`--burn-in {burn_in}` leaves no epoch to emphasise instances in: use less than {epochs} epochs."
        )
    own = source.read(quiet=quiet or as_json)
    if not as_json:
        for note in own.notes:
            # Only a run folder has this file.
            say(note.replace(" The run folder's conflicts.csv lists them.", ""))
        if own.skipped:
            first = own.skipped[0]
            say(f"Skipped: {len(own.skipped)}. The first is {first['what']}: {first['why']}.")
    if own.kind != "images":
        torch.set_num_threads(1)  # the nets are so small that a second thread makes them slower
    recipe, dataset = _experiment(own, names, splits or SPLITS, epochs, burn_in)
    found = compare_splits(
        recipe,
        dataset,
        names,
        place=place,
        minutes=minutes,
        quiet=quiet or as_json,
        examples=_EXAMPLES[own.kind],
        search=search,
    )
    _tell(found, place, as_json=as_json)


def _tell(found: SplitComparison, place: "Place", *, as_json: bool) -> None:
    name = f"{found.name}-search" if found.searched else found.name  # both figures stay
    figure, _ = found.save_figure(place.folder / "figures" / name)
    if as_json:
        print_json(found.to_dict() | {"figure": str(figure)})
        return
    show(found.table().to_rich())
    for line in found.notes():
        show(line)
    for warning in found.warnings:
        say(f"Warning: {warning}")
    show("")
    show(found.verdict)
    if found.next_step:
        show(found.next_step)
    show(f"Figure: {figure}. Results: {found.store}.")


def _methods(text: str | None, *, is_tagging: bool) -> list[str]:
    """Return the names of the methods and peers; a wrong name is a usage error."""
    try:
        words = METHODS if text is None else [word for word in text.split(",") if word.strip()]
        sides = [find_side(word.strip()) for word in words]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    drawing = [side.name for side in sides if side.method.order != "scan"]
    if is_tagging and drawing:
        raise typer.BadParameter(
            "The words of a sentence train together: use scan, wd, we, wpv, wtc or auto, not "
            f"{', '.join(drawing)}."
        )
    names = list(dict.fromkeys(side.name for side in sides))
    if not set(names) - {"scan", "uni"}:
        raise typer.BadParameter("Expected `--methods` to name a method and its baseline, such as scan,wtc.")
    if alone := without_baseline(names):
        raise typer.BadParameter(f"{alone} For example: scan,wtc or uni,spv.")
    return names


def _experiment(
    own: OwnData, methods: list[str], splits: int, epochs: int, burn_in: int
) -> tuple[Recipe, Dataset]:
    """Return the experiment: the model and the settings of `activebias train`, on repeated splits."""
    examples = _whole(own)
    name = "own-" + (re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(own.source).resolve().stem).strip("-.") or "data")
    split = Split()
    num_train = len(split_rows(examples, split, 0).train)
    recipe = Recipe(
        name=name,
        title=f"{name}: {len(own.class_names)} classes",
        data=f"own data {digest_of([examples])[:16]}",
        architecture=f"{own.model['name']} {sorted(own.model['arguments'].items())}",
        model=lambda _, generator: build_model(own.model, generator),
        optimiser=Optimiser("adam", own.learning_rate),
        batch_size=min(batch_size_for(num_train, most=16 if examples.is_tagging else 128), num_train),
        epochs=epochs,
        burn_in=burn_in,
        window=own.window,
        methods=tuple(methods),
        trials=splits,
        metric=_metric(own),
        split=split,
    )
    return recipe, Dataset(name, examples, examples, len(own.class_names), own.class_names)


def _metric(own: OwnData) -> Metric:
    """Return entity F1 if the tags are entities."""
    if own.kind != "tagging":
        return "error"
    try:
        EntityScorer(own.class_names)
    except ValueError:
        return "error"
    return "entity F1"


def _whole(own: OwnData) -> Examples:
    """Return the examples of both parts, in the order of the source."""
    order = torch.tensor([*own.train_position, *own.validation_position]).argsort()
    return joined(own.train, own.validation).select(order)

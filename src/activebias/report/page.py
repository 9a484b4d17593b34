"""The report: one HTML file without external resources."""

import base64
import hashlib
import html
import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from activebias import __version__
from activebias.internal import replacing
from activebias.report import summary
from activebias.report.before_after import with_before_after
from activebias.report.classes import class_rows
from activebias.report.encoding import Blobs, quantised, script_json, visits_kept
from activebias.report.repeats import repeats
from activebias.report.thumbnails import Thumbnails, make_thumbnails
from activebias.report.view import Field, RunView, view_run
from activebias.runs.before_after import BeforeAfter, compare_with_first
from activebias.runs.contents import Emphasis
from activebias.runs.folder import RunFolder

SCRIPTS = (
    "dom.js",
    "data.js",
    "plots.js",
    "map.js",
    "detail.js",
    "table.js",
    "grid.js",
    "decisions.js",
    "classes.js",
    "main.js",
)
IMAGE_BUDGET = 10_000_000
TEXT_BUDGET = 16_000_000
# Longer texts are cut: the beginning is enough to judge a suspect in a table.
LONGEST_TEXT = 2000
# More lines in one chart are one area.
MOST_LEARNT = 12

SCORE = (
    "The evidence against the label, from 0 to 1: the probability of the strongest other class compared with "
    "the probability of the label, over the visits in training."
)
CORRECTNESS = "The share of the visits at which the label had a probability above one half."


def write_report(
    runs: Sequence[RunFolder], out: str | os.PathLike[str], *, image_budget: int = IMAGE_BUDGET
) -> Path:
    """Write the report of one or more runs atomically to the file `out`.

    `image_budget` is the most bytes of pictures in the file, over all runs. If the pictures need more, only
    the most suspicious instances have a picture.
    """
    if not runs:
        raise ValueError("Expected at least one run to report on, but got none.")
    if image_budget < 0:
        raise ValueError(f"Expected `image_budget` to be 0 or more bytes, but got {image_budget}.")
    out = Path(out)
    if out.is_dir():
        raise ValueError(
            f"{out} is a folder: `out` names the HTML file to write, such as {out / 'report.html'}."
        )
    text = render(
        [view_run(run) for run in runs], image_budget=image_budget, before_after=compare_with_first(runs)
    )
    with replacing(out) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return out


def render(
    views: Sequence[RunView], *, image_budget: int = IMAGE_BUDGET, before_after: Sequence[BeforeAfter] = ()
) -> str:
    """Return the page for the given runs; `before_after` compares the first with each of the others."""
    blobs = Blobs()
    names = distinct_names(views)
    runs = [
        _run_data(view, name, blobs, image_budget // len(views), TEXT_BUDGET // len(views))
        for view, name in zip(views, names, strict=True)
    ]
    data: dict[str, Any] = {"runs": runs}
    if len(views) > 1:
        table = summary.comparison(views, names) | repeats(views, names)
        data["comparison"] = with_before_after(table, views, names, before_after)
    parts = {"score": SCORE, "correctness": CORRECTNESS, "blobs": blobs.html()}
    return fill("page.html", title=runs[0]["title"], scripts=SCRIPTS, data=data, **parts)


def fill(template: str, *, title: str, scripts: Sequence[str], data: Mapping[str, Any], **parts: str) -> str:
    """Return a page that is complete in itself: `parts` are put into the template, plotly comes first."""
    sources = [plotly_source(), *map(asset, scripts)]
    names = {"version": html.escape(__version__), "title": html.escape(title)}
    head = Template(asset("head.html")).substitute(
        policy=html.escape(content_policy(sources)), style=asset("style.css"), **names
    )
    return Template(asset(template)).substitute(
        head=head,
        written=datetime.now(timezone.utc).strftime("%d %B %Y"),
        data=script_json(data),
        scripts="\n".join(f"<script>{source}</script>" for source in sources),
        **names,
        **parts,
    )


def distinct_names(views: Sequence[RunView]) -> list[str]:
    """Return a different name for every run; runs with the same name are numbered."""
    names = [view.name for view in views]
    return [
        name if names.count(name) == 1 else f"{name} ({names[:number].count(name) + 1})"
        for number, name in enumerate(names)
    ]


def content_policy(scripts: Sequence[str]) -> str:
    """Return the Content-Security-Policy: no network, and only the page's own scripts.

    Scripts are allowed by their hashes, so that scripts in the data never run. Plotly's WebGL compiles its
    drawing commands, which needs 'unsafe-eval'. It also sets styles, which needs inline styles.
    """
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src 'unsafe-eval' {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def plotly_source() -> str:
    """Return plotly.js from the Python package plotly."""
    try:
        source = resources.files("plotly").joinpath("package_data/plotly.min.js").read_text("utf-8")
    except ModuleNotFoundError:
        raise RuntimeError("The report needs plotly: pip install 'activebias[report]'") from None
    # Browsers convert line ends to \n before they compare hashes.
    return source.replace("\r\n", "\n")


def asset(name: str) -> str:
    """Return a file of the folder `assets`."""
    return resources.files("activebias.report").joinpath("assets", name).read_text("utf-8")


def _run_data(view: RunView, name: str, blobs: Blobs, image_budget: int, text_budget: int) -> dict[str, Any]:
    """Return the data of a run for the page; arrays are given by the numbers of their blocks."""
    info = view.info
    pictures = None if view.images is None else make_thumbnails(view.images, view.audit.order, image_budget)
    fields, num_texts = fit_texts(view, text_budget)
    kept = visits_kept(len(view.instances), view.values.shape[1])
    return {
        "name": name,
        "title": info.title,
        "subtitle": summary.subtitle(view),
        "kind": info.kind,
        "digest": _digest(view),
        "method": info.method,
        "epochs": info.epochs,
        "burn_in": info.burn_in,
        "judges": info.num_judges,
        "class_names": list(info.class_names),
        "name_order": _name_order(info.class_names),
        "curves": {key: [_finite(v) for v in values] for key, values in info.curves.items()},
        "emphasis": None if view.emphasis is None else _emphasis_data(view.emphasis),
        "emphasis_note": summary.emphasis_note(view),
        "classes": class_rows(view),
        "figures": summary.figures(view),
        "sentences": summary.sentences(view),
        "warnings": list(info.warnings),
        "advice": summary.advice(view),
        "skipped": [dict(each) for each in info.skipped],
        "curves_note": summary.curves_note(view),
        "budget": _budget_text(view, pictures, num_texts, len(kept)),
        "columns": {key: blobs.add_numbers(values) for key, values in _columns(view).items()},
        "fields": [_field_data(field, blobs) for field in fields],
        "images": None if pictures is None or not pictures.sheets else _image_data(pictures, blobs),
        "history": {
            **blobs.add_numbers(quantised(view.values[:, kept], view.visited[:, kept])),
            "visits": _visit_numbers(view)[kept].tolist(),
        },
    }


def _emphasis_data(emphasis: Emphasis) -> dict[str, Any]:
    """Return the learnt curve of the epochs, evenly spaced if they are many, the last one included."""
    number = len(emphasis.epochs)
    kept = np.linspace(0, number - 1, min(number, MOST_LEARNT)).round().astype(np.int64)
    return {
        "epochs": emphasis.epochs[kept].tolist(),
        "means": emphasis.means.tolist(),
        "weights": emphasis.weights[kept].tolist(),
    }


def _columns(view: RunView) -> dict[str, Any]:
    instances, found = view.instances, view.audit
    columns = {name: getattr(instances, name) for name in ("label", "believed", "position")}
    columns |= {name: getattr(instances, name) for name in ("believed_prob", "label_prob")}
    columns["weight"] = np.where(instances.in_validation, np.nan, instances.weight)  # they have none
    columns |= {
        name: getattr(found, name) for name in ("score", "confidence", "variability", "correctness", "visits")
    }
    columns["suspect"] = view.suspected.astype(np.int64)
    if instances.validates is not None:
        columns["validates"] = instances.validates.astype(np.int64)
    for name in ("word", "conflict"):
        if (values := getattr(instances, name)) is not None:
            columns[name] = values
    return columns


def _digest(view: RunView) -> str:
    """Return a digest of the source and the labels: decisions in a browser belong to them."""
    instances = view.instances
    content = (instances.position.astype("<i8").tobytes(), instances.label.astype("<i8").tobytes())
    return hashlib.sha256(b"".join((view.info.source.encode(), *content))).hexdigest()[:16]


def _visit_numbers(view: RunView) -> Any:
    """Number the entries of the history: visits from 1, the prior 0."""
    starts_with_prior = view.values.shape[1] > 0 and not view.visited[:, 0].any()
    return np.arange(view.values.shape[1]) + (0 if starts_with_prior else 1)


def _name_order(names: Sequence[str]) -> list[int]:
    """Return the rank of every class, sorted by name, numbers by value."""

    def key(code: int) -> tuple[int, float, str]:
        name = names[code]
        return (0, float(name), "") if name.isdecimal() and name.isascii() else (1, 0.0, name.casefold())

    places = [0] * len(names)
    for place, code in enumerate(sorted(range(len(names)), key=key)):
        places[code] = place
    return places


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _field_data(field: Field, blobs: Blobs) -> dict[str, Any]:
    return {
        "name": field.name,
        "texts": blobs.add_texts(field.texts),
        "codes": blobs.add_numbers(field.codes),
        "identifies": field.identifies,
    }


def _image_data(pictures: Thumbnails, blobs: Blobs) -> dict[str, Any]:
    return {
        "sheets": [blobs.add(sheet, pack=False) for sheet in pictures.sheets],
        "mime": "image/webp",
        "cell": list(pictures.cell),
        "across": pictures.across,
        "places": blobs.add_numbers(pictures.places.astype(np.int64)),
    }


def fit_texts(view: RunView, budget: int) -> tuple[list[Field], int]:
    """Cut long texts; over the budget, keep only the texts of the most suspicious instances.

    Returns the fields and the number of instances with texts. An instance without a text has the code after
    the last text, which the page shows as empty.
    """
    fields = [
        field._replace(
            texts=[t if len(t) <= LONGEST_TEXT else t[: LONGEST_TEXT - 1] + "…" for t in field.texts]
        )
        for field in view.fields
    ]
    total = len(view.instances)
    if sum(len(text) for field in fields for text in field.texts) <= budget:
        return fields, total
    order = view.audit.order
    costs = np.zeros(total)
    for field in fields:
        lengths = np.array([len(text) for text in field.texts])
        # A text counts once, for the most suspicious instance that has it.
        _, first = np.unique(field.codes[order], return_index=True)
        costs[first] += lengths[field.codes[order][first]]
    num_kept = int(np.searchsorted(np.cumsum(costs), budget, side="right"))
    return [_keep_texts(field, order[:num_kept], total) for field in fields], num_kept


def _keep_texts(field: Field, members: Any, total: int) -> Field:
    used, codes = np.unique(field.codes[members], return_inverse=True)
    all_codes = np.full(total, len(used), dtype=np.int64)
    all_codes[members] = codes
    return field._replace(texts=[field.texts[code] for code in used], codes=all_codes)


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e6 else f"{num_bytes / 1e3:.0f} KB"


def _budget_text(view: RunView, pictures: Thumbnails | None, num_texts: int, num_visits: int) -> str:
    """Describe the pictures, texts and visits in the file, and how many were left out."""
    total = len(view.instances)
    parts = []
    if pictures is not None and pictures.num_shown < total:
        parts.append(
            f"To limit its size, the file holds pictures of the {pictures.num_shown:,} most suspicious of "
            f"{total:,} instances ({_size(pictures.num_bytes)}). A larger --image-budget shows more."
        )
    elif pictures is not None:
        parts.append(f"The file holds pictures of all {total:,} instances ({_size(pictures.num_bytes)}).")
    if num_texts < total:
        parts.append(f"It holds texts of the {num_texts:,} most suspicious of {total:,} instances.")
    if num_visits < view.values.shape[1]:
        parts.append(f"The small charts show {num_visits} of {view.values.shape[1]} visits, evenly spaced.")
    return " ".join(parts)

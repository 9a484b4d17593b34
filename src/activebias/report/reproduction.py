"""The page of a reproduction: one HTML file with the curves, tables and verdicts of all rows."""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

from activebias.internal import replacing
from activebias.report.page import fill, plotly_source

_SCRIPTS = ("dom.js", "plots.js", "reproduction.js")


class Cell(NamedTuple):
    """The text of a cell, whether it is bold, and the section of the page that it leads to."""

    text: str
    bold: bool = False
    section: str | None = None


@final
@dataclass(frozen=True)
class Table:
    """A table of text; the first cell of a row names it."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()


@final
@dataclass(frozen=True)
class Curve:
    """The mean test error of a method by epoch, in per cent. Baselines have no colour of their own."""

    name: str
    mean: Sequence[float]
    stderr: Sequence[float] | None
    colour: str | None
    dash: Literal["solid", "dot", "dash"] = "solid"


@final
@dataclass(frozen=True)
class Row:
    """A row of the paper: verdicts, tables, curves; `limits` are the errors that the plot shows."""

    name: str
    title: str
    verdicts: Sequence[str]
    notes: Sequence[str]
    tables: Sequence[Table]
    curves: Sequence[Curve]
    burn_in: int
    first_epoch: int
    limits: tuple[float, float]


def check_file(out: Path) -> None:
    """Raise if the page could not be written to `out`, before hours of training."""
    if out.is_dir():
        raise ValueError(
            f"{out} is a folder: name the HTML file to write, such as {out / 'reproduction.html'}."
        )
    plotly_source()


def write_reproduction(
    rows: Sequence[Row], out: Path, *, title: str, sentences: Sequence[str], overview: Table
) -> Path:
    """Write the page atomically to the file `out`."""
    text = fill(
        "reproduction.html",
        title=title,
        scripts=_SCRIPTS,
        data={"rows": [_data(row) for row in rows]},
        sentences=_paragraphs(sentences),
        overview=_table(overview),
        rows="\n".join(map(_section, rows)),
    )
    with replacing(out) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return out


def _data(row: Row) -> Mapping[str, Any]:
    """Return the plot of a row for the script; three decimals are more than a screen shows."""

    def rounded(values: Iterable[float]) -> list[float]:
        return [round(value, 3) for value in values]

    curves = [
        {
            "name": curve.name,
            "mean": rounded(curve.mean),
            "stderr": None if curve.stderr is None else rounded(curve.stderr),
            "colour": curve.colour,
            "dash": curve.dash,
        }
        for curve in row.curves
    ]
    return {
        "name": row.name,
        "curves": curves,
        "burn_in": row.burn_in,
        "first_epoch": row.first_epoch,
        "epochs": max((len(curve.mean) for curve in row.curves), default=0),
        "limits": list(row.limits),
    }


def _section(row: Row) -> str:
    name, title = html.escape(row.name), html.escape(row.title)
    described = "Mean test error over the epochs, one curve per method; the tables below hold the numbers."
    parts = [
        f'  <section id="{name}" class="row" aria-labelledby="heading-{name}">',
        f'<h2 id="heading-{name}">{title} <small>{name}</small></h2>',
        f'<div class="verdicts">{_paragraphs(row.verdicts)}</div>',
        f'<ul id="legend-{name}" class="legend"></ul>',
        f'<div id="plot-{name}" class="plot" role="img" aria-label="{described}"></div>',
        *map(_table, row.tables),
        *(f'<p class="note">{html.escape(note)}</p>' for note in row.notes),
        "  </section>",
    ]
    return "\n".join(parts)


def _paragraphs(sentences: Iterable[str]) -> str:
    return "\n".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)


def _table(table: Table) -> str:
    title = html.escape(table.title)
    kinds = [""] + [' class="number"'] * (len(table.columns) - 1)
    head = "".join(
        f'<th scope="col"{kind}>{html.escape(text)}</th>'
        for kind, text in zip(kinds, table.columns, strict=True)
    )
    body = "\n".join(
        "<tr>"
        + "".join(
            f'<th scope="row">{_content(cell)}</th>' if number == 0 else f"<td{kind}>{_content(cell)}</td>"
            for number, (kind, cell) in enumerate(zip(kinds, row, strict=True))
        )
        + "</tr>"
        for row in table.rows
    )
    notes = "".join(f'<p class="note">{html.escape(note)}</p>' for note in table.notes)
    return (
        f'<h3>{title}</h3>\n<div class="table-scroll" tabindex="0" role="region" aria-label="{title}">'
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>\n{notes}"
    )


def _content(cell: Cell) -> str:
    text = html.escape(cell.text)
    if cell.section is not None:
        text = f'<a href="#{html.escape(cell.section)}">{text}</a>'
    return f"<strong>{text}</strong>" if cell.bold else text

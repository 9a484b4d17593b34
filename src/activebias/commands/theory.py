"""`activebias theory`: numerical checks of the paper's theory."""

from typing import TYPE_CHECKING, Annotated

import typer

from activebias.commands.shared import Debug, Json, print_json, reports_errors, show

if TYPE_CHECKING:
    from activebias.lab.result_tables import TextTable
    from activebias.lab.theory import TheoryFigures

app = typer.Typer()


@app.command(epilog="Example: activebias theory --seed 1")
@reports_errors
def theory(
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the artificial data.")] = 0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check the paper's theory (logistic regression) numerically."""
    from dataclasses import asdict

    from activebias.lab.theory import check_all

    checked = check_all(seed)
    if as_json:
        print_json(asdict(checked))
    else:
        show(_table(checked).to_rich())


def _table(checked: "TheoryFigures") -> "TextTable":
    """Return the results of the checks as a table."""
    from activebias.lab.result_tables import Cell, TextTable

    total = checked.total_variance
    rows = [
        ("Equation 3, Hessian against autograd", "relative error", checked.hessian.relative_error),
        ("Equation 3 with weights v", "relative error", checked.hessian.weighted_relative_error),
    ]
    for item in checked.variance:
        what = f"Equation 4, variance of p, {item.num_instances} instances"
        rows += [
            (what, "median relative error", item.median_relative_error),
            (what, "rank correlation", item.rank_correlation),
        ]
    rows += [
        ("Equation 5, total variance = N_T · dim(w)", "relative error", total.exact_relative_error),
        ("  without the weights", "relative error", total.unweighted_relative_error),
        ("  with the weights of ActiveBias (ε = mean)", "relative error", total.smoothed_relative_error),
        ("  with a slightly wrong p", "relative error", total.stale_relative_error),
        (
            f"History of {checked.history.num_epochs} epochs of SGD",
            "rank correlation",
            checked.history.rank_correlation,
        ),
    ]
    cells = tuple((Cell(what), Cell(kind), Cell(f"{value:.2g}")) for what, kind, value in rows)
    explained = (
        "Equation 5 is exact for its own weights; each indented line violates one of its conditions.",
    )
    return TextTable("Theory, logistic regression", ("check", "figure", "value"), cells, explained)

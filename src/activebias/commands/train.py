"""`activebias train`: trains one model on the user's data or on a recipe, and writes a run folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from activebias.commands.shared import (
    Conll,
    Csv,
    Data,
    Debug,
    Device,
    Images,
    Json,
    NoiseText,
    OnceCommand,
    Quiet,
    RecipeOrData,
    Target,
    print_json,
    refuse_given,
    refuse_path,
    refuse_without_target,
    reports_errors,
    require_one_source,
    say,
    show,
)

if TYPE_CHECKING:
    from activebias.own.data import OwnData
    from activebias.own.settings import BurnIn, Settings
    from activebias.runs.contents import RunInfo
    from activebias.runs.folder import RunFolder

app = typer.Typer()

SHOWN = 5

# Why an option is for own data only, or for recipes only.
REASONS = {
    "--burn-in": "a recipe has its own",
    "--judges": "a recipe trains one model",
    "--embeddings": "a recipe has its own model",
    "--validation": "a recipe has its own test part",
    "--target": "a recipe has its own labels",
    "--like": "a recipe always has the same parts",
    "--noise": "own data is taken as it is",
    "--data": "give own data by --images, --csv or --conll",
}


@app.command(cls=OnceCommand, epilog="Example: activebias train --images photos --out runs/photos")
@reports_errors
def train(
    recipe_name: RecipeOrData = None,
    images: Images = None,
    csv: Csv = None,
    target: Target = None,
    conll: Conll = None,
    validation: Annotated[
        str | None,
        typer.Option(
            "--validation", help="Share of own data to validate on (default: 0.2), or a file or folder."
        ),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option("--like", help="A run on own data: its split, and its settings that are not given."),
    ] = None,
    method: Annotated[
        str | None, typer.Option("--method", help="One method (default: wtc); auto learns its emphasis.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Seed of all random numbers (default: 0).")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option("--epochs", min=1, help="Epochs (default: 30; a recipe's own).")
    ] = None,
    burn_in: Annotated[
        str | None,
        typer.Option("--burn-in", help="For own data: epochs without emphasis; auto (default) finds them."),
    ] = None,
    judges: Annotated[
        int | None,
        typer.Option(
            "--judges", min=1, help="Models that the audit of own data averages: 1 (default), or 3 and more."
        ),
    ] = None,
    embeddings: Annotated[
        Path | None,
        typer.Option("--embeddings", help="A .npy file, an embedding per row: linear models train on them."),
    ] = None,
    noise: NoiseText = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The run folder (default: in runs, with the data's name).")
    ] = None,
    data: Data = None,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train one model and write a run folder, for `activebias audit` and `activebias report`."""
    option = require_one_source(recipe_name, images, csv, conll)
    if method is not None:
        _check_method(method)
    silent = quiet or as_json
    if recipe_name is not None:
        refuse_path(recipe_name)
        of_own_data = {"--burn-in": burn_in, "--judges": judges, "--embeddings": embeddings}
        of_own_data |= {"--validation": validation, "--target": target, "--like": like}
        refuse_given(of_own_data, "own data", REASONS)
        folder = _train_recipe(
            recipe_name, method or "wtc", seed or 0, epochs, noise, out, data, device, silent
        )
    else:
        refuse_given({"--noise": noise, "--data": data}, "recipes", REASONS)
        if (target is not None and csv is None) or (csv is not None and target is None and like is None):
            refuse_without_target(csv)
        source = images or csv or conll or Path()
        settings = _settings(
            like,
            source,
            option,
            target=target,
            validation=None if validation is None else _share_or_path(validation),
            method=method,
            seed=seed,
            epochs=epochs,
            burn_in=None if burn_in is None else _epochs_or_auto(burn_in),
            judges=judges,
        )
        path = out or Path("runs") / source.resolve().stem
        _check_out(path, like)
        examples = _with_embeddings(_read(images, csv, conll, settings, silent), embeddings, like)
        if not as_json:
            for line in examples.notes:
                say(line)
        folder = _train_own(examples, path, settings, device, silent)
    if as_json:
        print_json(_facts(folder, like))
    else:
        _tell(folder)
        if like is not None:
            _tell_before_after(like, folder)


def _check_method(method: str) -> None:
    """Refuse a wrong method before the data is read."""
    from activebias import get_method

    try:
        get_method(method)
    except ValueError as error:
        raise typer.BadParameter(
            f"{error} For several methods, peers (elr) and pairs (wtc+label-smoothing) use `activebias "
            "compare`."
        ) from None


def _settings(like: Path | None, source: Path, option: str, **given: Any) -> "Settings":
    """Return the options that are given, the others as in the run `like`, or else the usual ones."""
    from dataclasses import replace

    from activebias.own.settings import Settings, settings_like
    from activebias.runs.folder import read_run

    settings = Settings() if like is None else settings_like(read_run(like), source, option)
    separate = isinstance(settings.validation, Path) and isinstance(given["validation"], Path)
    if like is not None and given["validation"] is not None and not separate:
        raise typer.BadParameter("`--like` keeps the validation part of its run: leave out --validation.")
    return replace(settings, **{name: value for name, value in given.items() if value is not None})


def _check_out(path: Path, like: Path | None) -> None:
    from activebias.runs.folder import check_target

    if like is not None and path.resolve() == like.resolve():
        raise ValueError(f"{path} is the run of `--like`, and would be replaced: choose another `--out`.")
    check_target(path)


def _train_recipe(
    name: str,
    method: str,
    seed: int,
    epochs: int | None,
    noise: str | None,
    out: Path | None,
    data: Path | None,
    device: str,
    quiet: bool,
) -> "RunFolder":
    from activebias.commands.choosing import find_methods, find_place, find_recipe
    from activebias.lab.run_folder import train_recipe
    from activebias.training.progress import show_training

    recipe = find_recipe(name, noise=noise, epochs=epochs)
    (method_name,) = find_methods(method, recipe)[:1]
    path = out or Path("runs") / f"{recipe.name}-{method_name}-{seed}"
    place = find_place(path.parent, data, device)
    with show_training(recipe.name, recipe.epochs, quiet=quiet) as on_epoch:
        return train_recipe(
            recipe, path, place=place, method=method_name, seed=seed, on_epoch=on_epoch, on_message=say
        )


def _read(
    images: Path | None, csv: Path | None, conll: Path | None, settings: "Settings", quiet: bool
) -> "OwnData":
    from activebias.own.images import read_images
    from activebias.own.tables import read_table
    from activebias.own.tagged import read_tagged
    from activebias.training.progress import show_reading

    validation, seed = settings.validation, settings.seed
    if images is not None:
        with show_reading("images", quiet=quiet) as on_image:
            return read_images(
                images,
                validation=validation,
                seed=seed,
                size=settings.size,
                grey=settings.grey,
                on_image=on_image,
            )
    if csv is not None and settings.target is not None:
        return read_table(csv, target=settings.target, validation=validation, seed=seed)
    assert conll is not None  # the command line names one source
    return read_tagged(conll, validation=validation, seed=seed)


def _with_embeddings(own: "OwnData", path: Path | None, like: Path | None) -> "OwnData":
    from activebias.own.embeddings import read_embeddings, with_embeddings
    from activebias.runs.folder import read_run

    if path is not None:
        return with_embeddings(own, read_embeddings(path), str(path))
    if like is not None and "embeddings" in read_run(like).info.settings:
        raise ValueError(
            f"{like} was trained on embeddings: give `--embeddings` in the order of the new data. Images "
            "that were moved to another folder are in another order."
        )
    return own


def _train_own(own: "OwnData", path: Path, settings: "Settings", device: str, quiet: bool) -> "RunFolder":
    from activebias import get_method
    from activebias.commands.devices import find_device
    from activebias.own.embeddings import usual_judges
    from activebias.own.train import train_own
    from activebias.training.progress import show_training

    chosen = get_method(settings.method)
    if own.kind == "tagging" and chosen.order != "scan":
        raise typer.BadParameter(
            f"The words of a sentence train together: use scan, wd, we, wpv, wtc or auto, not {chosen.name}."
        )
    name = Path(own.source).name
    judges = usual_judges(own) if settings.judges is None else settings.judges
    with show_training(name, settings.epochs, num_models=judges, quiet=quiet) as on_epoch:
        return train_own(
            own,
            path,
            method=chosen.name,
            epochs=settings.epochs,
            burn_in=settings.burn_in,
            judges=judges,
            seed=settings.seed,
            device=find_device(device),
            on_epoch=on_epoch,
            on_message=say,
        )


def _share_or_path(text: str) -> float | Path:
    try:
        share = float(text)
    except ValueError:
        return Path(text)
    if not 0 < share < 1:
        raise typer.BadParameter(
            f"Expected `--validation` to be a share above 0 and below 1, or a file, but got {text}."
        )
    return share


def _epochs_or_auto(text: str) -> "BurnIn":
    if text == "auto":
        return "auto"
    if not text.isdecimal():
        raise typer.BadParameter(f"Expected `--burn-in` to be auto or a number of epochs, but got {text!r}.")
    return int(text)


def _tell_before_after(like: Path, folder: "RunFolder") -> None:
    """Compare the run with the run before, on the validation rows that both have."""
    from activebias.runs.before_after import compare_before_after
    from activebias.runs.contents import THINGS
    from activebias.runs.folder import read_run

    if (found := compare_before_after(read_run(like), folder)) is not None:
        show(f"Compared with {like}: {' '.join(found.sentences(THINGS[folder.info.kind]))}")


def _facts(folder: "RunFolder", like: Path | None) -> dict[str, Any]:
    """Return the JSON object for --json."""
    from dataclasses import asdict

    from activebias.runs.before_after import compare_before_after
    from activebias.runs.folder import read_run

    info = folder.info
    found = None if like is None else compare_before_after(read_run(like), folder)
    errors = {name: min(curve) for name, curve in info.curves.items()}
    return {
        "run": str(folder.path),
        "kind": info.kind,
        "method": info.method,
        "seed": info.seed,
        "epochs": info.epochs,
        "burn_in": info.burn_in,
        "num_instances": info.num_instances,
        "num_validation": info.num_validation,
        "num_classes": len(info.class_names),
        "judges": info.num_judges,
        "best_validation_error": errors["validation_error"],
        "last_validation_error": info.curves["validation_error"][-1],
        "best_train_error": errors["train_error"],
        "warnings": list(info.warnings),
        "skipped": list(info.skipped),
        "notes": list(info.notes),
        "explanation": info.explanation,
        "model": str(folder.path / "model.pt"),
        "best_model": None if folder.best_model_file is None else str(folder.best_model_file),
        "conflicts": None if folder.conflicts_file is None else str(folder.conflicts_file),
        **({} if found is None else {"before_after": asdict(found)}),
    }


def _tell(folder: "RunFolder") -> None:
    """Show the results of the training and the next commands in one paragraph."""
    from activebias.runs.contents import THINGS
    from activebias.runs.outcome import error_measure, plural

    info = folder.info
    for each in info.skipped[:SHOWN]:
        say(f"Skipped {each['what']}: {each['why']}.")
    if len(info.skipped) > SHOWN:
        say(f"Skipped {len(info.skipped) - SHOWN} more: run.json lists them.")
    for warning in info.warnings:
        say(f"Warning: {warning}")
    what = THINGS[info.kind]
    curve = info.curves["validation_error"]
    best, best_epoch = min(curve), curve.index(min(curve)) + 1
    kept = ", kept in best.pt" if folder.best_model_file is not None and best_epoch < info.epochs else ""
    validates = f", validated on {info.num_validation}" if info.num_validation else ""
    measure = "test error" if "recipe" in info.model else "validation error"
    if info.kind == "tagging":
        measure = f"{measure} ({error_measure(info)})"
    sentences = [
        f"Trained on {info.num_instances} {what} of {len(info.class_names)} classes{validates}: {measure} "
        f"{curve[-1]:.1f} % after {plural(info.epochs, 'epoch', 'epochs')} (best {best:.1f} % after epoch "
        f"{best_epoch}{kept}), training error {info.curves['train_error'][-1]:.1f} %.",
        *_about_emphasis(info),
    ]
    if info.num_judges > 1:
        sentences.append(f"These numbers are those of the first of {info.num_judges} judges.")
    sentences.append(f"The run folder is {folder.path}.")
    if folder.conflicts_file is not None:
        sentences.append(f"Some inputs have different labels: see {folder.conflicts_file}.")
    show(
        f"{' '.join(sentences)} Next: `activebias audit {folder.path}` ranks the labels that may be wrong, "
        f"and `activebias report {folder.path}` writes an HTML report."
    )


def _about_emphasis(info: "RunInfo") -> Iterator[str]:
    """Yield sentences about the burn-in, and about the curve that a method has learnt."""
    from activebias.runs.outcome import plural

    if info.method not in ("scan", "uni") and info.burn_in < info.epochs:
        burn_in = plural(info.burn_in, "epoch", "epochs")
        yield f"The burn-in took {burn_in}, then {info.method} emphasised instances."
    if info.explanation:
        yield info.explanation
        if "recipe" not in info.model:
            yield "It learnt from the validation part, whose error is a little optimistic."

"""The commands that use models: predict, evaluate and show.

A refusal comes before the estimators are imported, in the functions that need them: this takes seconds.
"""

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa
import typer

from gaussguru._tables.contents import FileLimits, TableError, quoted
from gaussguru._tables.files import write_tables, writing, written_format
from gaussguru._utils.types import ColumnCells, MixedArray, Record
from gaussguru.cli import console, options
from gaussguru.cli.console import AsJson, Force, Quiet, app, cell, count

if TYPE_CHECKING:
    from gaussguru._tables.model import Model
    from gaussguru._tables.schema import Data, TablePart
    from gaussguru.report.page import Report


def _load(model: str, file: str | None, limits: FileLimits) -> "Model":
    """Return a model, to be used on a file if one is given."""
    if model == file == "-":
        raise TableError("MODEL and FILE cannot both be standard input")
    for path in filter(None, (model, file)):  # before the reader of models is imported
        if path != "-" and not os.path.exists(path):
            raise TableError(f"{path} cannot be read: {os.strerror(errno.ENOENT)}")
    from gaussguru.models import read_model

    found = read_model(model, limits=limits)
    if file is not None and (texts := found.card.get("encoded")):
        raise TableError(
            f"{model} was saved in Python and encodes {', '.join(map(quoted, texts[:5]))} itself: predict there, by "
            "gaussguru.models.load_model"
        )
    return found


ON_TRAINING_ROWS = "The model was fitted to this file: its scores promise too much for other rows."


@app.command()
@options.with_options
def predict(
    model: options.ModelFile,
    file: options.File,
    *,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="OUT", help="CSV, or Parquet by its name; - is standard output.")
    ] = "-",
    each: Annotated[
        bool, typer.Option("--each", help="Add the probability of every class. Calibrated models always do.")
    ] = False,
    remeasure: Annotated[
        float | None,
        typer.Option(
            metavar="FACTOR",
            help="Add remeasure_gain: the expected drop in the error probability of the row if it is measured "
            "again and its errors become FACTOR times as large, from 0 (exact) to 1. Measure the largest gains "
            "first. Missing values stay missing; rows with limits have no gain.",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="COL", help="Copy this column of FILE (an identifier) to the output.")
    ] = None,
    reading: options.InputOptions,
    force: Force = False,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Predict every row of FILE, in order and in bounded memory.

    Columns are found by name; others are ignored. The output has a label and its probability for each row.

    A model that was fitted with error columns (error-bars) gives calibrated probabilities, which account for the errors
    of the row and the overlap of the classes, and adds a column for each class.

    Other models (guru) give the probability that noise, of the model and of the error columns, does not change the
    label; flip_probability, that it does; and radius, the shortest displacement that changes the label, in units of
    sigma. Kernels have no radius, and no probabilities for more than two classes.

    Example: gaussguru predict stars.model new.csv --keep name -o classes.csv
    """
    console.talk.quiet = quiet
    options.check_new_output(output, force=force, as_json=json)
    loaded, kept = _load(model, file, reading.limits), keep or []
    kind = "csv" if output == "-" else written_format(output)
    if remeasure is not None:
        from gaussguru._tables.model import shrunk_errors

        if not loaded.is_calibrated or not loaded.layout.has_errors:
            raise TableError("--remeasure needs a model that was fitted to error columns, with --classifier error-bars")
        shrunk_errors(np.zeros(1), remeasure)  # checks it
    names = loaded.column_names(each=each, remeasure=remeasure is not None)
    kinds = {"number": pa.int64(), "bool": pa.bool_(), "text": pa.string()}
    types = {"label": kinds[loaded.card["labels"]]} | dict.fromkeys(names[1:], pa.float64())
    if clash := [name for name in kept if name in types]:
        raise TableError(f"--keep {clash[0]} would have the name of a column of the prediction")
    notes: list[str] = []
    with closing(reading.open(file)) as table, console.busy("predicting") as status:

        def tables() -> Iterator[Record]:
            from gaussguru._tables.schema import read_parts

            done = without_gain = 0
            rows = loaded.rows_together
            for part in read_parts(table, loaded.layout, labels=False, keep=kept, most_rows=rows, notes=notes):
                done += len(part.complete)
                columns = _predicted(loaded, part, types, each=each, remeasure=remeasure)
                yield columns
                if remeasure is not None:
                    without_gain += columns["remeasure_gain"].null_count - int((~part.complete).sum())
                if status is not None:
                    status.update(f"predicting: {done} rows", table.share)
            if without_gain:
                rows_with = count(without_gain, "row")
                notes.append(f"remeasure_gain is empty in {rows_with} with limits, where the gain is not known")
            if not done:
                yield {name: pa.array([], types.get(name, pa.string())) for name in [*kept, *types]}

        with writing(output, force=force) as out:
            n_rows = write_tables(out, tables(), kind)
        console.warn([*table.notes, *notes])
    console.say(f"{table.name}: {count(n_rows, 'row')} predicted" + ("" if output == "-" else f", wrote {output}"))
    if json:
        console.tell({"rows": n_rows, "output": output, "columns": [*kept, *types]})


def _predicted(model: "Model", part: "TablePart", types: Record, *, each: bool, remeasure: float | None) -> Record:
    """Return the columns of a prediction, empty for rows that are not complete."""
    found = model.predict(part.X, part.X_err, each=each, remeasure=remeasure) if part.complete.any() else {}
    columns = dict(part.kept)
    for name, kind in types.items():
        columns[name] = pa.nulls(len(part.complete), kind)
        if found:
            values = np.zeros(len(part.complete), dtype=found[name].dtype)
            values[part.complete] = found[name]
            is_empty = np.isnan(values) if name == "remeasure_gain" else False  # of rows with limits
            columns[name] = pa.array(values, kind, mask=~part.complete | is_empty)
    return columns


@app.command()
@options.with_options
def evaluate(
    model: options.ModelFile,
    file: options.File,
    *,
    noise_levels: Annotated[
        str | None,
        typer.Option(
            metavar="LEVELS",
            help="guru: standard deviations of added noise, as 0,0.1,1, in units of sigma (of the scaled features, if "
            "they were scaled). Default: 0 to 1 times the spread of the features. error-bars: factors of the errors; "
            "noise is added to match. Default: 1,1.5,2,3.",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COL", help="Name the rows that are most wrong by this column (an identifier), too."),
    ] = None,
    report: Annotated[
        str | None, typer.Option(metavar="HTML", help="Write a report with pictures and a model card.")
    ] = None,
    reading: options.InputOptions,
    force: Force = False,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare predictions for FILE with its labels: accuracy, probabilities, robustness to noise.

    Every row counts once: a column of weights that the fit used is not used here.

    If the model was fitted to FILE, the first line says so. Then comes a verdict: better or worse than the class
    frequencies, those of FILE, and whether the probabilities came true. Then come scores, beside those of the
    frequencies; frequency, recall and confusions of
    every class; and the rows that are most wrong, whose true class has the least probability.

    Model with error columns (error-bars): expected accuracy is the accuracy that its probabilities promise. A
    table compares it with the accuracy reached, separately for small, medium and large errors (a third of the rows
    each; "size" is the median size of the errors: of --model linear in units of the overlap of the classes, else the
    root of their mean share in the variance of the columns). The last table shows how the model does when all errors
    are larger.

    Other models (guru): expected accuracy is the accuracy under the errors of FILE or, if it has none, under the noise
    of the model. The table shows the accuracy when noise of each level is added.

    Example: gaussguru evaluate stars.model test.csv
    """
    console.talk.quiet = quiet
    levels = None
    if noise_levels is not None:
        levels = options.parse_numbers(noise_levels, "--noise-levels must be numbers with commas between them")
    if report == "-":
        raise TableError("--report must be the name of a file; standard output has the evaluation")
    if report is not None and keep:
        raise TableError("--keep is not for --report, which names rows by their numbers: leave one of them out")
    if report is not None:
        console.check_output(report, force=force)
    loaded = _load(model, file, reading.limits)
    from gaussguru._tables.judging import evaluate_model
    from gaussguru._tables.schema import TablePart, read_all, read_parts

    with closing(reading.open(file)) as table, console.busy("evaluating") as status:
        # A report looks at the samples more than once; else they pass by in parts.
        whole = None if report is None else read_all(table, loaded.layout)
        rows = loaded.rows_together
        notes: list[str] = []
        given = read_parts(table, loaded.layout, labels=True, keep=keep or (), most_rows=rows, notes=notes)
        parts: Iterable[Any] = given if whole is None else [whole]
        n_rows, seen = 0, list[tuple[MixedArray, Record]]()

        def samples() -> Iterator[Any]:
            nonlocal n_rows
            for part in parts:
                n_rows += part.n_rows
                # A whole table may have lost rows, which are then counted without them.
                is_part = isinstance(part, TablePart)
                seen.append((part.complete, part.kept) if is_part else (np.ones(len(part.y), dtype=bool), {}))
                if status is not None:
                    status.update(f"evaluating: {n_rows} rows", table.share)
                yield part.X, part.X_err, loaded.labels(part.y, table.name)

        result = evaluate_model(loaded, samples(), levels)
        console.warn(table.notes)
        if "most_wrong" in result:
            result["most_wrong"] = _named(seen, **result["most_wrong"])
        result = {"verdict": result.pop("verdict"), "rows": result.pop("rows"), "rows_left_out": 0} | result
        result["rows_left_out"] = n_rows - result["rows"]
        console.warn(notes)
        known, digest = loaded.card.get("data", {}).get("sha256"), table.sha256()
        # That of a file that was read in parts is one of the digests of all files.
        result["training_rows"] = known in (digest, hashlib.sha256(digest.encode()).hexdigest())
        if whole is not None and report is not None:
            page = _report(loaded, whole, result, title=f"{model} on {file}", sha256=digest)
            with writing(report, force=force) as out:
                out.write(page.html().encode())
            console.say(f"wrote {report}")
    if json:
        console.tell({"model": model, "file": file, **result})
        return
    _print_evaluation(result)


def _named(seen: list[tuple[MixedArray, Record]], row: list[int], **columns: list[Any]) -> ColumnCells:
    """Return columns on some rows, given by their places among those that were evaluated, with numbers and names.

    Numbers are those in the file, from 1. ``seen`` has, of every part, which rows were evaluated, and the columns of
    names.
    """
    numbers = 1 + np.flatnonzero(np.concatenate([complete for complete, _ in seen]))[row]
    kept = {name: pa.chunked_array([each[name] for _, each in seen]) for name in seen[0][1]}
    names = {name: [cells[int(number) - 1].as_py() for number in numbers] for name, cells in kept.items()}
    return {"row": numbers.tolist(), **names, **columns}


def _print_evaluation(result: Record) -> None:
    """Print the verdict, scores beside those of the class frequencies, and tables."""
    curve, baseline = result.pop("robustness"), result.pop("baseline")
    tables = [result.pop(name, None) for name in ("classes", "reliability", "most_wrong")]
    if len(tables[0]["class"]) > 15:  # JSON has all confusions
        tables[0] = {name: values for name, values in tables[0].items() if not name.startswith("as ")}
    method = curve.pop("method")
    if method == "analytic":
        curve = {name: values for name, values in curve.items() if name != "error" or any(values)}
    curve = {"standard_error" if name == "error" else name: values for name, values in curve.items()}
    if result.pop("training_rows"):
        print(f"{ON_TRAINING_ROWS}\n")
    print(f"{result.pop('verdict')}\n")
    for name, value in result.items():
        beside = f"   class frequencies {cell(baseline[name])}" if name in baseline and value is not None else ""
        print(f"{name.replace('_', ' '):18}{cell(value) or 'none'}{beside}")
    for table in (*tables, curve):
        if table:
            print()
            console.show_table({name.replace("_", " "): values for name, values in table.items()})


def _report(model: "Model", data: "Data", result: Record, *, title: str, sha256: str) -> "Report":
    """Return a report of what an evaluation found, in the same units, and of what the model was fitted to."""
    from gaussguru.report import evaluation_report

    samples, y = model.seen(data.X, data.X_err), model.labels(data.y, data.name)
    levels = result["robustness"]["noise_level"]
    how: Record = {"noise_levels": levels, "absolute": True, "feature_names": model.layout.features}
    page = evaluation_report(model.classifier, samples, y, title=title, **how)
    if result["training_rows"]:
        page.lead(ON_TRAINING_ROWS, first=True)
    groups = {name: value for name, value in model.card.items() if isinstance(value, dict)}
    others = {name: value for name, value in model.card.items() if name not in groups}
    page.heading("Trained on").text(
        "Above, features are in the units of the classifier: "
        + ("scaled to standard deviation 1 in the training data" if model.card.get("scaled") else "not scaled")
        + f". The evaluated file has {data.n_rows} rows and the SHA-256 {sha256}."
    )
    return page.card({"model": others, **groups})


@app.command()
def show(model: options.ModelFile, max_unpacked: options.MaxUnpacked = 100) -> None:
    """Print the card of a model as JSON: its columns, data, parameters, proof and versions."""
    console.tell(_load(model, None, options.limits_of(unpacked=max_unpacked)).card)

"""The commands that learn from tables: columns, fit and path.

A refusal comes before the estimators are imported, in the functions that need them: this takes seconds.
"""

import tempfile
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from gaussguru._tables.base import TableReader
from gaussguru._tables.contents import TableError, quoted
from gaussguru._tables.files import files_of, write_tables, writing, written_format
from gaussguru._tables.layout import Layout
from gaussguru._tables.plan import Plan
from gaussguru._utils.types import Record
from gaussguru.cli import console, options
from gaussguru.cli.console import AsJson, Force, Quiet, app, count

if TYPE_CHECKING:
    from gaussguru._tables.model import Model
    from gaussguru._tables.schema import Data


@app.command()
@options.with_options
def columns(
    file: options.File,
    *,
    target: options.Target = None,
    chosen: options.ColumnOptions,
    reading: options.InputOptions,
    json: AsJson = False,
) -> None:
    """Show the plan of FILE: what 'gaussguru fit' with these options would take every column for.

    Values, their errors, limit flags, correlations, categories, identifiers; unit, and empty cells in the first rows.
    DOUBTFUL columns must be named before a fit; the last line has options that settle them.

    Example: gaussguru columns stars.csv --target class
    """
    with closing(reading.open(files_of(file)[0])) as table:
        plan = Plan.of(table, target, chosen)
        console.warn(table.notes)
    if json:
        shown = [column._asdict() for column in plan.columns]
        doubtful = {name: reason for name, (reason, _) in plan.doubtful.items()}
        console.tell({"file": file, "rows_looked_at": plan.n_rows, "columns": shown, "summary": plan.summary,
              "notes": plan.notes, "doubtful": doubtful, "options": plan.settled_by})  # fmt: skip
        return
    if plan.columns:
        parts = zip(*plan.columns, strict=True)
        console.show_table(dict(zip(("column", "role", "reason", "unit", "missing"), map(list, parts), strict=True)))
        print()
    print(f"{plan.summary} (by the first {count(plan.n_rows, 'row')})")
    for note in plan.notes:
        print(note)
    if plan.doubtful:
        print(f"{count(len(plan.doubtful), 'doubtful column')}; these options settle them: {' '.join(plan.settled_by)}")


@app.command()
@options.with_options
def fit(
    file: options.File,
    *,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="MODEL", help="Where to write the model; - is standard output.")
    ],
    target: options.Target = None,
    classifier: Annotated[
        str | None,
        options.one_of(
            options.CLASSIFIERS,
            "error-bars: errors were made when the values were measured; nothing to tune, calibrated probabilities. "
            "guru: errors are noise yet to come; options --sigma to --tol. "
            "Default: error-bars if there are error columns, else guru.",
        ),
    ] = None,
    bars: options.ErrorBarOptions,
    guru: options.GuruOptions,
    chosen: options.ColumnOptions,
    fitting: options.FitOptions,
    reading: options.InputOptions,
    test_size: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Hold out this share of the rows, as 0.25, or of the --groups, and judge the model by them.",
        ),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Fit on the Dask cluster with this scheduler; its workers read FILE."),
    ] = None,
    force: Force = False,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit a classifier to FILE and save it.

    Error columns are recognised by the names that archives give them ('x_err'; 'x_err1', 'x_err2'; 'e_x'; ...), and
    with them limit flags, correlations, categories and identifiers: 'gaussguru columns' shows the plan. A column that
    may be something else than a feature is refused unless an option names it. The model file has everything that
    predictions need: columns, scaling, how to treat missing values.

    FILE may also be a directory, or a quoted pattern, of files with the same columns. Several files, and files of more
    than 2 GB or an eighth of the memory, are converted once to arrays in the directory for temporary files and read in
    parts.

    Example: gaussguru fit stars.csv --target class -o stars.model
    """
    console.talk.quiet = quiet
    options.check_new_output(output, force=force, as_json=json)
    if test_size is not None and not 0 < test_size < 1:
        raise TableError(f"--test-size must be between 0 and 1, as 0.25; got {test_size:g}")
    files = files_of(file)
    with closing(reading.open(files[0])) as table:
        plan = Plan.of(table, target, chosen)
        layout = plan.check(["gaussguru", *console.given_arguments])
        kind = classifier or ("error-bars" if layout.errors or layout.limits else "guru")
        asked = _asked_options(file, layout, kind, bars, guru, needs_folds=test_size is None)
        parameters = {**fitting.parameters, **asked.parameters}
        from gaussguru._tables.streaming import is_large

        in_parts = dask is not None or is_large(files)
        asked.check(file, layout, in_parts=in_parts)
        if in_parts and test_size is not None:
            raise TableError(
                f"{file}: --test-size needs a table that is read into memory; give other files to evaluate"
            )
        read = None if in_parts else (*_read(table, layout), table.sha256())
    if read is None:
        fitted, summary, digest = _fit_streamed(files, layout, kind, dask, reading, parameters)
    else:
        fitted, summary, digest = _fit_in_memory(*read, kind, test_size, parameters)
    fitted.card["data"]["sha256"] = digest
    fitted.card["columns"] = plan.as_dict()
    from gaussguru.models import save_model

    save_model(fitted, output, force=force)
    console.say(f"read {summary}")
    _say_plan(plan)
    _say_fit(fitted.card)
    if output != "-":
        console.say(f"wrote {output}")
    if json:
        console.tell(fitted.card)
    if not fitted.card["fit"].get("converged", True):  # nothing is claimed of a pool
        raise typer.Exit(console.ExitCode.NOT_CERTIFIED)


def _asked_options(
    file: str, layout: Layout, kind: str, bars: options.ErrorBarOptions, guru: options.GuruOptions, *, needs_folds: bool
) -> options.ErrorBarOptions | options.GuruOptions:
    """Return the options of a classifier; raise if one of the other was given, or groups that nothing needs."""
    if kind == "guru":
        for option in options.given_options(bars):
            raise TableError(f"{option} needs --classifier error-bars, the default if there are error columns")
        if layout.groups and needs_folds and isinstance(guru.level, float):
            raise TableError(
                f"--groups {layout.groups} is for a cross-validation, which --sigma {guru.sigma} does not need"
            )
        return guru
    why = f", the default because of error columns ({layout.error_columns[0]!r}, ...)," if layout.error_columns else ""
    for option in options.given_options(guru):
        raise TableError(
            f"{file}: {option} needs --classifier guru; error-bars{why} chooses its settings by cross-validation: "
            "leave the option out, or give --classifier guru or --no-errors"
        )
    return bars


def _fit_in_memory(
    data: "Data", summary: str, digest: str, kind: str, test_size: float | None, parameters: Record
) -> tuple["Model", str, str]:
    """Return a model of a table in memory, with its scores on rows that were held out, if any were."""
    from gaussguru._tables.fitting import fit_model, split_rows
    from gaussguru._tables.judging import evaluate_model

    if test_size is None:
        with console.busy(f"fitting {summary}"):
            return fit_model(data, classifier=kind, **parameters), summary, digest
    data, held_out = split_rows(data, test_size)
    with console.busy(f"fitting {summary}"):
        fitted = fit_model(data, classifier=kind, **parameters)
    scores = evaluate_model(fitted, [(held_out.X, held_out.X_err, fitted.labels(held_out.y, held_out.name))])
    names = ("verdict", "rows", "accuracy", "balanced_accuracy", "log_loss", "brier_score", "auc", "baseline")
    fitted.card["held_out"] = {name: scores[name] for name in names if name in scores}
    return fitted, summary, digest


def _fit_streamed(
    files: list[str], layout: Layout, kind: str, dask: str | None, reading: options.InputOptions, parameters: Record
) -> tuple["Model", str, str | None]:
    """Return a model of files that are read in parts, what was read in words, and their digest where it is known."""
    from gaussguru._tables.fitting import fit_model
    from gaussguru._tables.streaming import convert, rows_on_cluster

    features = count(len(layout.features), "feature")
    if dask is not None:
        cluster = rows_on_cluster(files, layout, dask, sep=reading.sep, decimal=reading.decimal)
        with console.busy(f"fitting on {dask}"), cluster as rows:
            model = fit_model(rows, classifier=kind, **parameters)
            return model, f"{rows.name}: {count(rows.n_rows, 'row')}, {features}", None
    with tempfile.TemporaryDirectory(prefix="gaussguru-") as directory:
        with console.busy("converting") as shown:
            progress = getattr(shown, "update", lambda text: None)
            rows, digest = convert(files, reading.open, layout, directory, progress)
        summary = f"{rows.name}: {count(rows.n_rows, 'row')}, {features}, in parts"
        with console.busy(f"fitting {summary}"):
            return fit_model(rows, classifier=kind, **parameters), summary, digest


def _say_plan(plan: Plan) -> None:
    """Tell in a few lines which columns are used, and how."""
    if plan.columns:
        console.say(plan.summary)
    for note in plan.notes:
        console.say(note)


def _say_fit(card: Record) -> None:
    """Tell in a few lines how a fit went."""
    console.warn(card["fit"]["warnings"])
    if card["fit"].get("method") == "pool":
        _say_pool(card)
    else:
        for line in _fit_in_words(card):
            console.say(line)
    if "held_out" in card:
        words = "{verdict} ({rows} rows held out: accuracy {accuracy:.4f}, log loss {log_loss:.4f})"
        console.say(words.format(**card["held_out"]))


def _say_pool(card: Record) -> None:
    """Say how good the members of a pool are, and what error bars are worth."""
    from gaussguru.report.pool import pool_in_words, pool_table

    found, scores = card["fit"], card["cross_validation"]
    members = count(len(found["members"]["member"]), "member")
    accuracy = f"training accuracy {found['training_accuracy']:.4f}"
    console.say(f"pool of {members} (cross-validated log loss {found['cv_log_loss']:.4f}), {accuracy}")
    console.say_table(pool_table(scores))
    for line in (*pool_in_words(scores, "--use-error-sizes"), *_least_reliable(card)):
        console.say(line.rstrip("."))


def _least_reliable(card: Record) -> Iterator[str]:
    if card["layout"]["errors"]:
        least = sorted(card["reliability"].items(), key=lambda pair: pair[1])[:3]
        known = ", ".join(f"{quoted(name)} {share:.2f}" for name, share in least)
        yield f"least reliable features (1: exact): {known}"


def _fit_in_words(card: Record) -> Iterator[str]:
    """Yield lines on how a fit went."""
    from gaussguru.report.reliability import kappa_in_words

    found = card["fit"]
    accuracy = f"training accuracy {found['training_accuracy']:.4f}"
    if "method" in found:
        chosen = f"linear, ridge {found['ridge']:.3g}"
        yield f"{chosen} (cross-validated log loss {found['cv_log_loss']:.4f}), {accuracy}"
        yield from _least_reliable(card)
        scaled = card["parameters"]["scale_errors"]
        yield kappa_in_words(found["kappa"], found["kappa_pvalue"], scaled=scaled).rstrip(".")
    else:
        scores = {name.removeprefix("cv_"): score for name, score in found.items() if name.startswith("cv_")}
        held_out = [f" (cross-validated {name} {score:.4f})" for name, score in scores.items() if score is not None]
        yield f"sigma {found['sigma']:.4g}{''.join(held_out)}, {accuracy}"
        baseline, reached = found.get("accuracy_of_frequencies"), scores.get("accuracy")
        if baseline is not None and reached is not None and reached <= baseline:
            yield f"NO BETTER than the most frequent class alone: accuracy {baseline:.4f}"
    if found["gap"] is None:
        yield "at a maximum of the likelihood" if found["converged"] else "NOT at a maximum of the likelihood"
    else:
        proof = "proven optimal" if found["certified"] else "NOT proven optimal"
        gaps = f"gap {found['gap']:.2g}, {found['relative_gap']:.1e} relative"
        yield f"{proof}: objective {found['objective']:.6g}, {gaps}"


def _read(table: TableReader, layout: Layout) -> tuple["Data", str]:
    """Return a whole table, and in words what was read."""
    from gaussguru._errors.missing import unmeasured
    from gaussguru._tables.schema import read_all

    with console.busy("reading"):
        data = read_all(table, layout, learning=True)
    console.warn(table.notes)
    parts = [f"{data.name}: {count(data.n_rows, 'row')}"]
    if len(data.y) < data.n_rows:
        parts.append(f"{data.n_rows - len(data.y)} of them left out")
    parts.append(count(len(data.layout.features), "feature"))
    if layout.errors:
        parts.append(f"{len(layout.errors)} of them with errors")
    if data.X_err is not None and (n_gaps := int(unmeasured(data.X_err, data.X.shape).sum())):
        parts.append(f"{count(n_gaps, 'value')} not measured")
    if unnamed := table.columns.count(""):
        parts.append(f"{count(unnamed, 'column')} without a name not used")
    parts.append(f"labels in {quoted(layout.target)}" if layout.target else "labels")
    return data, ", ".join(parts)


@app.command()
@options.with_options
def path(
    file: options.File,
    *,
    target: options.Target = None,
    sigmas: Annotated[str, typer.Option(help="Number of noise levels, or a list of them, as 0.1,0.3,1.")] = "20",
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="OUT", help="Write the table as CSV or Parquet.")
    ] = None,
    linear: options.LinearOptions,
    chosen: options.ColumnOptions,
    fitting: options.FitOptions,
    reading: options.InputOptions,
    force: Force = False,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit linear classifiers to FILE at a series of noise levels.

    For each sigma: the norm of the weights, the accuracy on FILE, the cross-validated score, and the duality gap,
    which bounds the distance of the objective to its optimum.

    Example: gaussguru path stars.csv --target class
    """
    console.talk.quiet = quiet
    if output is not None:
        options.check_new_output(output, force=force, as_json=json)
    kind = "csv" if output in (None, "-") else written_format(output)
    levels = options.parse_numbers(sigmas, "--sigmas must be a whole number, or numbers with commas between them")
    wanted = int(levels[0]) if "," not in sigmas and levels[0].is_integer() else levels
    with closing(reading.open(file)) as table:
        plan = Plan.of(table, target, chosen)
        data, summary = _read(table, plan.check(["gaussguru", *console.given_arguments]))
    from gaussguru._tables.fitting import path_table

    with console.busy(f"fitting {summary}"):
        table_of_levels, notes = path_table(data, wanted, **linear.parameters, **fitting.parameters)
    console.say(f"read {summary}")
    _say_plan(plan)
    console.warn(notes)
    if output is not None:
        with writing(output, force=force) as out:
            write_tables(out, [table_of_levels], kind)
        if output != "-":
            console.say(f"wrote {output}")
    if json:
        console.tell({"file": file, **table_of_levels})
    elif output is None:
        console.show_table({name.replace("_", " "): values for name, values in table_of_levels.items()})

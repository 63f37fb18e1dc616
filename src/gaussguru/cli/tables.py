"""The commands on tables: columns, fit, predict, evaluate, path and show.

A refusal comes before the estimators are imported, in the functions that need them: this takes seconds.
"""

import errno
import hashlib
import math
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa
import typer

from gaussguru._tables.files import (
    FORMATS,
    FileLimits,
    TableError,
    TableReader,
    files_of,
    open_table,
    quoted,
    write_tables,
    writing,
    written_format,
)
from gaussguru._tables.layout import MISSING, MISSING_ERROR, Layout
from gaussguru._tables.plan import Options, Plan
from gaussguru.cli.console import (
    NOT_CERTIFIED,
    AsJson,
    Force,
    Quiet,
    app,
    busy,
    cell,
    check_output,
    count,
    given_arguments,
    say,
    say_table,
    show_table,
    talk,
    tell,
    warn,
)

if TYPE_CHECKING:
    from gaussguru._tables.model import Model
    from gaussguru._tables.schema import Data, TablePart
    from gaussguru.report.page import Report

# Names that options take, those of the library, which is not imported for a refusal.
CLASSIFIERS = ("error-bars", "guru")
MODELS = ("auto", "linear", "rbf", "boosting", "population")
KERNELS = ("chi2", "cosine", "laplacian", "linear", "poly", "polynomial", "rbf", "sigmoid")
NOISES = ("isotropic", "axis")
LOSSES = ("gaussian", "logistic", "quadratic", "moment")


def one_of(names: Iterable[str], help: str, *flags: str) -> Any:
    """Return an option that takes one of some names."""
    known = list(names)

    def check(value: str | None) -> str | None:
        if value is not None and value not in known:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(known)}.")
        return value

    return typer.Option(*flags, metavar="NAME", callback=check, help=f"{help} One of {', '.join(known)}.")


# Options that several commands have.
File = Annotated[
    str, typer.Argument(metavar="FILE", help="CSV, Parquet, libsvm, FITS, VOTable, Excel, ...; - is standard input.")
]
ModelFile = Annotated[
    str, typer.Argument(metavar="MODEL", help="A file that 'gaussguru fit' wrote; - is standard input.")
]
Target = Annotated[
    str | None,
    typer.Option(metavar="COL", help="Column with the labels: text, integers, or true/false. Not used for libsvm."),
]
Features = Annotated[
    list[str] | None,
    typer.Option(metavar="COL", help="Use this column as a feature; repeat for more. Default: by the plan of columns."),
]
Drop = Annotated[list[str] | None, typer.Option(metavar="COL", help="Ignore this column and its errors; repeatable.")]
DropDoubtful = Annotated[
    bool, typer.Option("--drop-doubtful", help="Ignore all columns that --drop would settle; see 'gaussguru columns'.")
]
As = Annotated[
    list[str] | None,
    typer.Option(
        "--as",
        metavar="ROLE:COL",
        help="Use this column as a value, whatever its name (value:COL), or as a category (category:COL); repeatable.",
    ),
]
Category = Annotated[
    list[str] | None,
    typer.Option(metavar="COL", help="A feature for each level but the first of this column; as --as category:COL."),
]
ErrPattern = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="How error columns are named, with {x} for the name of the value, as '{x}_fehler'; counts before the "
        "names of archives; repeatable.",
    ),
]
ErrorFactor = Annotated[
    float | None, typer.Option(metavar="F", help="Multiply the errors by this, to make them standard deviations.")
]
ErrorLevel = Annotated[
    float | None, typer.Option(metavar="P", help="The errors are half the width of intervals of this level, as 0.9.")
]
Na = Annotated[
    list[str] | None,
    typer.Option(metavar="NUMBERS", help="Numbers that stand for no value or no error, as --na=-9999,99; repeatable."),
]
MissingError = Annotated[
    str | None,
    one_of(
        MISSING_ERROR,
        "A value whose error is empty. refuse: refuse the file. unmeasured: do not use the value. exact: error 0.",
    ),
]
Log = Annotated[
    list[str] | None,
    typer.Option(metavar="COL", help="Use the logarithm of this column, with errors to match; repeatable."),
]
Replicates = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAMES",
        help="Columns that measure the same quantity, as 'x{1,2,3}': their mean is the feature, their spread within "
        "rows its error; repeatable.",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        metavar="COL",
        help="Column with the weight of each row, from 0 on, in the fit and its cross-validation. It is no feature, "
        "and predictions do not need it. Scaling and --test-size count all rows the same.",
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(
        metavar="COL",
        help="Column with the group of each row: rows of a group stay in one fold of the cross-validation, and "
        "--test-size holds out whole groups. It is no feature; for tables that are read into memory.",
    ),
]
Errors = Annotated[bool, typer.Option("--errors/--no-errors", help="Use the error columns, or ignore them.")]
MissingRule = Annotated[
    str | None,
    one_of(
        MISSING,
        "What to do with missing values. error: refuse the file. drop: leave out the row (its prediction is empty). "
        "mean: use the mean of the column. unmeasured: predict the value, with its error, from the rest of the row. "
        "Predictions do the same. Default: unmeasured if there are error columns, else error.",
    ),
]
Scale = Annotated[
    bool,
    typer.Option(
        "--scale/--no-scale",
        help="Scale every column to mean 0 and standard deviation 1. Errors are scaled too, and sigma is in these "
        "units.",
    ),
]
NoiseModel = Annotated[str, one_of(NOISES, "Noise in any direction, or along the feature axes only.")]
LossName = Annotated[
    str,
    one_of(
        LOSSES,
        "gaussian is the expected hinge loss; logistic and quadratic approximate it; moment is the largest one "
        "under any noise of that covariance.",
    ),
]
Ridge = Annotated[float, typer.Option(help="Ridge penalty. The noise alone already regularises.")]
Balanced = Annotated[bool, typer.Option("--balanced", help="Give all classes the same weight.")]
Folds = Annotated[int, typer.Option(help="Number of cross-validation folds. Columns are scaled once, before.")]
Tol = Annotated[float, typer.Option(help="Largest duality gap, relative to the objective at zero.")]
Jobs = Annotated[int | None, typer.Option(help="Number of threads. Default: all cores.")]
InputFormat = Annotated[
    str | None, one_of(FORMATS, "Format of FILE. Default: by its content, then its name, else csv.", "--format")
]
Which = Annotated[
    str | None,
    typer.Option("--table", metavar="NAME", help="Name or number of the table, in FITS, VOTable and Excel: default 1."),
]
Sep = Annotated[str | None, typer.Option(help="CSV separator. Default: found from the header.")]
Decimal = Annotated[str, typer.Option(help="CSV decimal point.")]
MaxColumns = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Largest number of columns. Default: 60000; for libsvm 2000000."),
]
MaxLine = Annotated[float, typer.Option(metavar="MB", help="Longest line, up to 2000 MB.")]
MaxUnpacked = Annotated[
    float,
    typer.Option(
        metavar="MB",
        help="Refuse a compressed file that unpacks to more, and to more than 100 times its size.",
    ),
]
MaxClasses = Annotated[
    int | None,
    typer.Option(metavar="N", min=2, help="Most classes. Default: 20, or a tenth of the rows if that is more."),
]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="OUT", help="CSV, or Parquet by its name; - is standard output.")
]


def parse_sigma(text: str) -> Any:
    """Return a noise level, a list of them, or "cv"."""
    if text == "cv":
        return text
    levels = parse_numbers(text, "--sigma must be a number, numbers with commas between them, or cv")
    return levels[0] if len(levels) == 1 else levels


def parse_numbers(text: str, expected: str) -> list[float]:
    """Return numbers with commas between them."""
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise TableError(f"{expected}; got {text!r}") from None


@dataclass(frozen=True)
class GuruOptions:
    """Options that only the classifier guru has, with their defaults."""

    sigma: str = "cv"
    kernel: str = "linear"
    scale: bool = True
    noise: str = "isotropic"
    loss: str = "gaussian"
    l2: float = 0.0
    tol: float = 1e-6
    # gamma, degree and components: of kernels alone, and not looked at without one.
    of_kernel: tuple[str, float, int | None] = field(default=("scale", 3, None), compare=False)

    @property
    def parameters(self) -> dict[str, Any]:
        """What :func:`fit_model` is given."""
        shared = {"sigma": parse_sigma(self.sigma), "scale": self.scale}
        shared |= {"loss": self.loss, "l2": self.l2, "tol": self.tol}
        if self.kernel == "linear":
            return shared | {"noise": self.noise}
        if self.noise != "isotropic":
            raise TableError(f"--noise {self.noise} is for --kernel linear")
        gamma, degree, components = self.of_kernel
        level = gamma if gamma in ("scale", "auto") else parse_numbers(gamma, "--gamma must be a number")[0]
        kernel = {"kernel": self.kernel, "gamma": level, "degree": degree}
        return shared | kernel | {"n_components": components, "random_state": 0}

    def check_errors(self, file: str, layout: Layout) -> None:
        """Raise if a kernel would have errors, or any of these classifiers limits."""
        from gaussguru._tables.fitting import check_no_limits

        check_no_limits(file, layout)
        if self.kernel != "linear" and layout.has_errors:
            what = f"{layout.error_columns[0]!r}, ..." if layout.error_columns else "--missing unmeasured"
            raise TableError(f"{file}: --kernel {self.kernel} takes no errors ({what}); --no-errors leaves them out")

    def check_parts(self, file: str) -> None:
        """Raise if there is a kernel, of a table that is read in parts."""
        if self.kernel != "linear":
            raise TableError(
                f"{file}: --kernel {self.kernel} needs a table that is read into memory; use some of its rows"
            )


# Models whose features may be sizes of errors.
WITH_SIZES = ("auto", "boosting")


@dataclass(frozen=True)
class ErrorBarOptions:
    """Options that only the classifier error-bars has, with their defaults."""

    model: str = "auto"
    gaussians: str = "auto"
    scale_errors: bool = False
    use_error_sizes: bool = False

    @property
    def parameters(self) -> dict[str, Any]:
        """What :func:`fit_model` is given."""
        if self.scale_errors and self.model != "linear":
            raise TableError(f"--scale-errors is for --model linear; got --model {self.model}")
        if self.use_error_sizes and self.model not in WITH_SIZES:
            raise TableError(f"--use-error-sizes is for --model {' or '.join(WITH_SIZES)}; got --model {self.model}")
        return {
            "model": self.model,
            "n_components": self._n_components,
            "scale_errors": self.scale_errors,
            "use_error_sizes": self.use_error_sizes,
        }

    def check_errors(self, file: str, layout: Layout) -> None:
        """Errors are what it is for."""

    def check_parts(self, file: str) -> None:
        """All of it can be fitted in parts; a pool is fitted to a subsample."""

    @property
    def _n_components(self) -> int | str:
        if self.gaussians == "auto":
            return self.gaussians
        if not self.gaussians.isdecimal() or not 1 <= int(self.gaussians[:9]) <= 100:
            raise TableError(f"--gaussians must be a whole number from 1 to 100, or auto; got {self.gaussians!r}")
        return int(self.gaussians)


def _given(others: GuruOptions | ErrorBarOptions) -> Iterator[str]:
    """Yield the options of the other classifier that are not as by default, as they were written."""
    for option in fields(others):
        name, value = option.name.replace("_", "-"), getattr(others, option.name)
        if option.compare and value != option.default:
            flags = {True: f"--{name}", False: f"--no-{name}"}
            text = f"{value:g}" if isinstance(value, float) else value
            yield flags[value] if isinstance(value, bool) else f"--{name} {text}"


def _say_plan(plan: Plan) -> None:
    """Tell in a few lines which columns are used, and how."""
    if plan.columns:
        say(plan.summary)
    for note in plan.notes:
        say(note)


@app.command()
def columns(
    file: File,
    target: Target = None,
    err_pattern: ErrPattern = None,
    errors: Errors = True,
    error_factor: ErrorFactor = None,
    error_level: ErrorLevel = None,
    missing: MissingRule = None,
    missing_error: MissingError = None,
    na: Na = None,
    features: Features = None,
    drop: Drop = None,
    drop_doubtful: DropDoubtful = False,
    as_: As = None,
    category: Category = None,
    log: Log = None,
    replicates: Replicates = None,
    weights: Weights = None,
    groups: Groups = None,
    format: InputFormat = None,
    which: Which = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    max_columns: MaxColumns = None,
    max_line: MaxLine = 16,
    max_unpacked: MaxUnpacked = 100,
    json: AsJson = False,
) -> None:
    """Show the plan of FILE: what 'gaussguru fit' with these options would take every column for.

    Values, their errors, limit flags, correlations, categories, identifiers; unit, and empty cells in the first rows.
    DOUBTFUL columns must be named before a fit; the last line has options that settle them.

    Example: gaussguru columns stars.csv --target class
    """
    chosen_columns = Options(
        features or (), drop or (), drop_doubtful, _named_roles(as_, category), err_pattern or (), errors, error_factor,
        error_level, missing, missing_error, _na(na), log or (), replicates or (), weights, groups,
    )  # fmt: skip
    limits = _limits(max_columns, max_line, max_unpacked)
    first = files_of(file)[0]
    with closing(open_table(first, format=format, which=which, sep=sep, decimal=decimal, limits=limits)) as table:
        plan = Plan.of(table, target, chosen_columns)
        warn(table.notes)
    if json:
        shown = [column._asdict() for column in plan.columns]
        settled = {"doubtful": {name: reason for name, (reason, _) in plan.doubtful.items()}}
        tell({"file": file, "rows_looked_at": plan.n_rows, "columns": shown, "summary": plan.summary,
              "notes": plan.notes, **settled, "options": plan.settled_by})  # fmt: skip
        return
    if plan.columns:
        parts = zip(*plan.columns, strict=True)
        show_table(dict(zip(("column", "role", "reason", "unit", "missing"), map(list, parts), strict=True)))
        print()
    print(f"{plan.summary} (by the first {count(plan.n_rows, 'row')})")
    for note in plan.notes:
        print(note)
    if plan.doubtful:
        print(f"{count(len(plan.doubtful), 'doubtful column')}; these options settle them: {' '.join(plan.settled_by)}")


@app.command()
def fit(
    file: File,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="MODEL", help="Where to write the model; - is standard output.")
    ],
    target: Target = None,
    classifier: Annotated[
        str | None,
        one_of(
            CLASSIFIERS,
            "error-bars: errors were made when the values were measured; nothing to tune, calibrated probabilities. "
            "guru: errors are noise yet to come; options --sigma to --tol. "
            "Default: error-bars if there are error columns, else guru.",
        ),
    ] = None,
    model: Annotated[
        str,
        one_of(
            MODELS,
            "error-bars: auto is a pool of classifiers, weighted by held-out rows; rbf, boosting and population are "
            "those members alone. linear is one calibrated linear score, for one formula that can be read.",
        ),
    ] = "auto",
    gaussians: Annotated[
        str,
        typer.Option(metavar="N", help="error-bars: number of Gaussians in the population of true values, or auto."),
    ] = "auto",
    scale_errors: Annotated[
        bool, typer.Option("--scale-errors", help="error-bars, --model linear: fit a common factor of all errors.")
    ] = False,
    use_error_sizes: Annotated[
        bool,
        typer.Option(
            "--use-error-sizes",
            help="error-bars: the sizes of the errors are features, too. They may tell the class, because classes were "
            "measured differently; not for rows that were selected or measured in another way.",
        ),
    ] = False,
    sigma: Annotated[
        str,
        typer.Option(
            help="guru: standard deviation of the noise on every feature. A number, in units of the scaled columns "
            "(with --no-scale: of the file); a list to choose from, as 0.1,0.3,1; or cv, which also finds the list. "
            "Error columns add to it; with 0 only they count."
        ),
    ] = "cv",
    kernel: Annotated[
        str,
        one_of(
            KERNELS,
            "guru: linear, or a kernel. A kernel takes no error columns; its sigma is in units of the kernel space.",
        ),
    ] = "linear",
    gamma: Annotated[
        str, typer.Option(help="For the kernels rbf, poly, sigmoid, laplacian, chi2: scale, auto or a number.")
    ] = "scale",
    degree: Annotated[float, typer.Option(help="For the kernel poly.")] = 3,
    components: Annotated[
        int | None, typer.Option(help="Restrict a kernel to this many random rows, for large files.")
    ] = None,
    scale: Scale = True,
    err_pattern: ErrPattern = None,
    errors: Errors = True,
    error_factor: ErrorFactor = None,
    error_level: ErrorLevel = None,
    missing: MissingRule = None,
    missing_error: MissingError = None,
    na: Na = None,
    features: Features = None,
    drop: Drop = None,
    drop_doubtful: DropDoubtful = False,
    as_: As = None,
    category: Category = None,
    log: Log = None,
    replicates: Replicates = None,
    weights: Weights = None,
    groups: Groups = None,
    noise: NoiseModel = "isotropic",
    loss: LossName = "gaussian",
    l2: Ridge = 0.0,
    balanced: Balanced = False,
    folds: Folds = 5,
    tol: Tol = 1e-6,
    jobs: Jobs = None,
    format: InputFormat = None,
    which: Which = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    max_classes: MaxClasses = None,
    max_columns: MaxColumns = None,
    max_line: MaxLine = 16,
    max_unpacked: MaxUnpacked = 100,
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
    talk.quiet = quiet
    _check_output(output, force, json)
    if test_size is not None and not 0 < test_size < 1:
        raise TableError(f"--test-size must be between 0 and 1, as 0.25; got {test_size:g}")
    guru = GuruOptions(sigma, kernel, scale, noise, loss, l2, tol, (gamma, degree, components))
    bars = ErrorBarOptions(model, gaussians, scale_errors, use_error_sizes)
    chosen_columns = Options(
        features or (), drop or (), drop_doubtful, _named_roles(as_, category), err_pattern or (), errors, error_factor,
        error_level, missing, missing_error, _na(na), log or (), replicates or (), weights, groups,
    )  # fmt: skip
    limits = _limits(max_columns, max_line, max_unpacked)
    how: dict[str, Any] = {"format": format, "which": which, "sep": sep, "decimal": decimal, "limits": limits}
    files = files_of(file)
    with closing(open_table(files[0], **how)) as table:
        plan = Plan.of(table, target, chosen_columns)
        layout = plan.check(["gaussguru", *given_arguments])
        chosen = classifier or ("error-bars" if layout.errors or layout.limits else "guru")
        asked, others = (bars, guru) if chosen == "error-bars" else (guru, bars)
        _check_asked(file, layout, chosen, others)
        asked.check_errors(file, layout)
        if groups and test_size is None and chosen == "guru" and isinstance(parse_sigma(sigma), float):
            raise TableError(f"--groups {groups} is for a cross-validation, which --sigma {sigma} does not need")
        from gaussguru._tables.fitting import fit_model, split_rows
        from gaussguru._tables.streaming import is_large
        from gaussguru.models import save_model

        shared = {"folds": folds, "max_classes": max_classes, "n_jobs": jobs, **asked.parameters}
        shared["class_weight"] = "balanced" if balanced else None
        read = None if dask is not None or is_large(files) else (*_read(table, layout), table.sha256())
    held_out: Data | None = None
    if read is None:
        asked.check_parts(file)
        if test_size is not None:
            raise TableError(
                f"{file}: --test-size needs a table that is read into memory; give other files to evaluate"
            )
        fitted, summary, digest = _fit_streamed(files, layout, chosen, dask, how, shared)
    else:
        data, summary, digest = read
        if test_size is not None:
            data, held_out = split_rows(data, test_size)
        with busy(f"fitting {summary}"):
            fitted = fit_model(data, classifier=chosen, **shared)
    fitted.card["data"]["sha256"] = digest
    fitted.card["columns"] = plan.as_dict()
    if held_out is not None:
        _judge(fitted, held_out)
    save_model(fitted, output, force=force)
    found = fitted.card["fit"]
    say(f"read {summary}")
    _say_plan(plan)
    warn(found["warnings"])
    if found.get("method") == "pool":
        _say_pool(fitted.card)
    else:
        for line in _fit_in_words(fitted.card):
            say(line)
    if held_out is not None:
        say(
            "{verdict} ({rows} rows held out: accuracy {accuracy:.4f}, log loss {log_loss:.4f})".format(
                **fitted.card["held_out"]
            )
        )
    if output != "-":
        say(f"wrote {output}")
    if json:
        tell(fitted.card)
    if not found.get("converged", True):  # nothing is claimed of a pool
        raise typer.Exit(NOT_CERTIFIED)


def _judge(fitted: "Model", held_out: "Data") -> None:
    """Add to the card of a model its scores on rows that were held out."""
    from gaussguru._tables.fitting import evaluate_model

    y = fitted.labels(held_out.y, held_out.name)
    found = evaluate_model(fitted, [(held_out.X, held_out.X_err, y)])
    names = ("verdict", "rows", "accuracy", "balanced_accuracy", "log_loss", "brier_score", "auc", "baseline")
    fitted.card["held_out"] = {name: found[name] for name in names if name in found}


def _fit_streamed(
    files: list[str], layout: Layout, chosen: str, dask: str | None, how: dict[str, Any], shared: dict[str, Any]
) -> tuple["Model", str, str | None]:
    """Return a model of files that are read in parts, what was read in words, and their digest where it is known."""
    from gaussguru._tables.fitting import fit_model
    from gaussguru._tables.streaming import convert, rows_on_cluster

    features = count(len(layout.features), "feature")
    if dask is not None:
        given = {name: how[name] for name in ("sep", "decimal")}
        with busy(f"fitting on {dask}"), rows_on_cluster(files, layout, dask, **given) as rows:
            model = fit_model(rows, classifier=chosen, **shared)
            return model, f"{rows.name}: {count(rows.n_rows, 'row')}, {features}", None
    with tempfile.TemporaryDirectory(prefix="gaussguru-") as directory:
        with busy("converting") as shown:
            progress = getattr(shown, "update", lambda text: None)
            rows, digest = convert(files, lambda path: open_table(path, **how), layout, directory, progress)
        summary = f"{rows.name}: {count(rows.n_rows, 'row')}, {features}, in parts"
        with busy(f"fitting {summary}"):
            return fit_model(rows, classifier=chosen, **shared), summary, digest


def _check_asked(file: str, layout: Layout, chosen: str, others: GuruOptions | ErrorBarOptions) -> None:
    """Raise if an option was given that is of the other classifier."""
    for option in _given(others):
        if chosen == "guru":
            raise TableError(f"{option} needs --classifier error-bars, the default if there are error columns")
        why = (
            f", the default because of error columns ({layout.error_columns[0]!r}, ...),"
            if layout.error_columns
            else ""
        )
        raise TableError(
            f"{file}: {option} needs --classifier guru; error-bars{why} chooses its settings by cross-validation: "
            "leave the option out, or give --classifier guru or --no-errors"
        )


def _say_pool(card: dict[str, Any]) -> None:
    """Say how good the members of a pool are, and what error bars are worth."""
    from gaussguru.report.pool import pool_in_words, pool_table

    found, scores = card["fit"], card["cross_validation"]
    members = count(len(found["members"]["member"]), "member")
    accuracy = f"training accuracy {found['training_accuracy']:.4f}"
    say(f"pool of {members} (cross-validated log loss {found['cv_log_loss']:.4f}), {accuracy}")
    say_table(pool_table(scores))
    for line in (*pool_in_words(scores, "--use-error-sizes"), *_least_reliable(card)):
        say(line.rstrip("."))


def _least_reliable(card: dict[str, Any]) -> Iterator[str]:
    if card["layout"]["errors"]:
        least = sorted(card["reliability"].items(), key=lambda pair: pair[1])[:3]
        known = ", ".join(f"{quoted(name)} {share:.2f}" for name, share in least)
        yield f"least reliable features (1: exact): {known}"


def _fit_in_words(card: dict[str, Any]) -> Iterator[str]:
    """Yield lines on how a fit went."""
    from gaussguru.report.reliability import kappa_in_words

    found = card["fit"]
    accuracy = f"training accuracy {found['training_accuracy']:.4f}"
    if "method" in found:
        level = f"ridge {found['ridge']:.3g}" if found["sigma"] is None else f"sigma {found['sigma']:.3g}"
        chosen = f"linear, method {found['method']}, {level}"
        yield f"{chosen} (cross-validated log loss {found['cv_log_loss']:.4f}), {accuracy}"
        yield from _least_reliable(card)
        scaled = card["parameters"]["scale_errors"]
        yield kappa_in_words(found["kappa"], found["kappa_pvalue"], scaled=scaled).rstrip(".")
    else:
        chosen = "" if found["cv_accuracy"] is None else f" (cross-validated accuracy {found['cv_accuracy']:.4f})"
        yield f"sigma {found['sigma']:.4g}{chosen}, {accuracy}"
    if found["gap"] is None:
        yield "at a maximum of the likelihood" if found["converged"] else "NOT at a maximum of the likelihood"
    else:
        proof = "proven optimal" if found["certified"] else "NOT proven optimal"
        gaps = f"gap {found['gap']:.2g}, {found['relative_gap']:.1e} relative"
        yield f"{proof}: objective {found['objective']:.6g}, {gaps}"


def _named_roles(given: list[str] | None, categories: list[str] | None) -> list[str]:
    return [*(given or ()), *(f"category:{name}" for name in categories or ())]


def _na(texts: list[str] | None) -> list[float]:
    expected = "--na must be numbers with commas between them, as -9999,99"
    return [number for text in texts or () for number in parse_numbers(text, expected)]


def _read(table: TableReader, layout: Layout) -> tuple["Data", str]:
    """Return a whole table, and in words what was read."""
    from gaussguru._tables.schema import deviations, read_all

    with busy("reading"):
        data = read_all(table, layout, learning=True)
    warn(table.notes)
    parts = [f"{data.name}: {count(data.n_rows, 'row')}"]
    if len(data.y) < data.n_rows:
        parts.append(f"{data.n_rows - len(data.y)} of them left out")
    parts.append(count(len(data.layout.features), "feature"))
    if layout.errors:
        parts.append(f"{len(layout.errors)} of them with errors")
    if data.X_err is not None and (unmeasured := int(np.isinf(deviations(data.X_err)).sum())):
        parts.append(f"{count(unmeasured, 'value')} not measured")
    if unnamed := table.columns.count(""):
        parts.append(f"{count(unnamed, 'column')} without a name not used")
    parts.append(f"labels in {quoted(layout.target)}" if layout.target else "labels")
    return data, ", ".join(parts)


def _check_output(output: str, force: bool, as_json: bool) -> None:
    """Raise before any work if the output cannot be written, or if standard output would have two things."""
    if output == "-" and as_json:
        raise TableError("--json and -o - both want standard output; give -o a file")
    if output != "-":
        check_output(output, force=force)


def _limits(columns: int | None = None, line: float = 16, unpacked: float = 100) -> FileLimits:
    """Return what files may ask for, from numbers of columns and of MB."""
    for option, value, most in (("--max-line", line, 2000), ("--max-unpacked", unpacked, 1e9)):
        if not 0 < value <= most:
            raise TableError(f"{option} must be above 0 and at most {most:g} (MB); got {value:g}")
    return FileLimits(columns, math.ceil(line * 1e6), math.ceil(unpacked * 1e6))


def _load(model: str, file: str | None, limits: FileLimits) -> "Model":
    """Return a model, to be used on a file if one is given."""
    if model == file == "-":
        raise TableError("MODEL and FILE cannot both be standard input")
    for path in filter(None, (model, file)):  # before the reader of models is imported
        if path != "-" and not os.path.exists(path):
            raise TableError(f"{path} cannot be read: {os.strerror(errno.ENOENT)}")
    from gaussguru.models import read_model

    return read_model(model, limits=limits)


@app.command()
def predict(
    model: ModelFile,
    file: File,
    output: Output = "-",
    each: Annotated[
        bool, typer.Option("--each", help="Add the probability of every class. Calibrated models always do.")
    ] = False,
    remeasure: Annotated[
        float | None,
        typer.Option(
            metavar="FACTOR",
            help="Add remeasure_gain: the expected drop in the error probability of the row if it is measured "
            "again and its errors become FACTOR times as large, from 0 (exact) to 1. Measure the largest gains "
            "first. Missing values stay missing.",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="COL", help="Copy this column of FILE (an identifier) to the output.")
    ] = None,
    format: InputFormat = None,
    which: Which = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    max_columns: MaxColumns = None,
    max_line: MaxLine = 16,
    max_unpacked: MaxUnpacked = 100,
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
    talk.quiet = quiet
    _check_output(output, force, json)
    limits = _limits(max_columns, max_line, max_unpacked)
    how: dict[str, Any] = {"format": format, "which": which, "sep": sep, "decimal": decimal, "limits": limits}
    loaded, kept = _load(model, file, limits), keep or []
    kind = "csv" if output == "-" else written_format(output)
    if remeasure is not None:
        _check_remeasure(loaded, remeasure)
    names = loaded.column_names(each=each, remeasure=remeasure is not None)
    types = {"label": _LABEL_TYPES[loaded.card["labels"]]} | dict.fromkeys(names[1:], pa.float64())
    if clash := [name for name in kept if name in types]:
        raise TableError(f"--keep {clash[0]} would have the name of a column of the prediction")
    notes: list[str] = []
    with closing(open_table(file, **how)) as table, busy("predicting") as status:

        def tables() -> Iterator[dict[str, Any]]:
            from gaussguru._tables.schema import read_parts

            done = 0
            rows = loaded.rows_together
            for part in read_parts(table, loaded.layout, labels=False, keep=kept, most_rows=rows, notes=notes):
                done += len(part.complete)
                yield _predicted(loaded, part, types, each=each, remeasure=remeasure)
                if status is not None:
                    status.update(f"predicting: {done} rows", table.share)
            if not done:
                yield {name: pa.array([], types.get(name, pa.string())) for name in [*kept, *types]}

        with writing(output, force=force) as out:
            n_rows = write_tables(out, tables(), kind)
        warn([*table.notes, *notes])
    say(f"{table.name}: {count(n_rows, 'row')} predicted" + ("" if output == "-" else f", wrote {output}"))
    if json:
        tell({"rows": n_rows, "output": output, "columns": [*kept, *types]})


_LABEL_TYPES = {"number": pa.int64(), "bool": pa.bool_(), "text": pa.string()}


def _check_remeasure(model: "Model", factor: float) -> None:
    """Raise before any work if gains of measuring again cannot be had."""
    from gaussguru._tables.model import shrunk_errors

    if not model.is_calibrated or not model.layout.has_errors:
        raise TableError("--remeasure needs a model that was fitted to error columns, with --classifier error-bars")
    if model.layout.limits:
        name = quoted(model.layout.error_columns[-1])
        raise TableError(
            f"--remeasure is not for models with a column of limits ({name}), even an empty one; fit without it"
        )
    shrunk_errors(np.zeros(1), factor)


def _predicted(
    model: "Model", part: "TablePart", types: dict[str, Any], *, each: bool, remeasure: float | None
) -> dict[str, Any]:
    """Return the columns of a prediction, empty for rows that are not complete."""
    found = model.predict(part.X, part.X_err, each=each, remeasure=remeasure) if part.complete.any() else {}
    columns = dict(part.kept)
    for name, kind in types.items():
        values = np.zeros(len(part.complete), dtype=found[name].dtype if found else np.float64)
        if found:
            values[part.complete] = found[name]
            columns[name] = pa.array(values, kind, mask=~part.complete)
        else:
            columns[name] = pa.nulls(len(part.complete), kind)
    return columns


@app.command()
def evaluate(
    model: ModelFile,
    file: File,
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
    format: InputFormat = None,
    which: Which = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    max_columns: MaxColumns = None,
    max_line: MaxLine = 16,
    max_unpacked: MaxUnpacked = 100,
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
    talk.quiet = quiet
    levels = None
    if noise_levels is not None:
        levels = parse_numbers(noise_levels, "--noise-levels must be numbers with commas between them")
    if report == "-":
        raise TableError("--report must be the name of a file; standard output has the evaluation")
    if report is not None and keep:
        raise TableError("--keep is not for --report, which names rows by their numbers: leave one of them out")
    if report is not None:
        check_output(report, force=force)
    limits = _limits(max_columns, max_line, max_unpacked)
    how: dict[str, Any] = {"format": format, "which": which, "sep": sep, "decimal": decimal, "limits": limits}
    loaded = _load(model, file, limits)
    from gaussguru._tables.fitting import evaluate_model
    from gaussguru._tables.schema import read_all, read_parts

    with closing(open_table(file, **how)) as table, busy("evaluating") as status:
        # A report looks at the samples more than once; else they pass by in parts.
        whole = None if report is None else read_all(table, loaded.layout)
        rows = loaded.rows_together
        notes: list[str] = []
        given = read_parts(table, loaded.layout, labels=True, keep=keep or (), most_rows=rows, notes=notes)
        parts = given if whole is None else [whole]
        n_rows, used = 0, _UsedRows()

        def samples() -> Iterator[Any]:
            nonlocal n_rows
            for part in parts:
                n_rows += part.n_rows
                used.add(part)
                if status is not None:
                    status.update(f"evaluating: {n_rows} rows", table.share)
                yield part.X, part.X_err, loaded.labels(part.y, table.name)

        result = evaluate_model(loaded, samples(), levels)
        warn(table.notes)
        if "most_wrong" in result:
            result["most_wrong"] = used.named(**result["most_wrong"])
        result = {"verdict": result.pop("verdict"), "rows": result.pop("rows"), "rows_left_out": 0} | result
        result["rows_left_out"] = n_rows - result["rows"]
        warn(notes)
        known, digest = loaded.card.get("data", {}).get("sha256"), table.sha256()
        # That of a file that was read in parts is one of the digests of all files.
        result["training_rows"] = known in (digest, hashlib.sha256(digest.encode()).hexdigest())
        if whole is not None and report is not None:
            page = _report(loaded, whole, result, title=f"{model} on {file}", sha256=digest)
            with writing(report, force=force) as out:
                out.write(page.html().encode())
            say(f"wrote {report}")
    if json:
        tell({"model": model, "file": file, **result})
        return
    _print_evaluation(result)


# Classes whose confusions are printed; JSON has all of them.
MOST_CONFUSIONS = 15


class _UsedRows:
    """The numbers in the file, from 1, of rows that were evaluated, and kept columns of them."""

    def __init__(self) -> None:
        self.numbers, self.kept, self.n_rows = list[Any](), list[dict[str, Any]](), 0

    def add(self, part: "TablePart | Data") -> None:
        """Add the rows of a part; a whole table may have lost rows, which are then counted without them."""
        from gaussguru._tables.schema import TablePart

        complete = part.complete if isinstance(part, TablePart) else np.ones(len(part.y), dtype=bool)
        self.numbers.append(self.n_rows + 1 + np.flatnonzero(complete))
        self.kept.append(part.kept if isinstance(part, TablePart) else {})
        self.n_rows += len(complete)

    def named(self, row: list[int], **columns: list[Any]) -> dict[str, list[Any]]:
        """Return columns on some rows, given by their places among those that were evaluated, with their names."""
        numbers = np.concatenate(self.numbers)[row]
        kept = {
            name: [pa.chunked_array([part[name] for part in self.kept])[int(number) - 1].as_py() for number in numbers]
            for name in self.kept[0]
        }
        return {"row": numbers.tolist(), **kept, **columns}


def _print_evaluation(result: dict[str, Any]) -> None:
    """Print the verdict, scores beside those of the class frequencies, and tables."""
    curve, baseline = result.pop("robustness"), result.pop("baseline")
    tables = [result.pop(name, None) for name in ("classes", "reliability", "most_wrong")]
    if len(tables[0]["class"]) > MOST_CONFUSIONS:
        tables[0] = {name: values for name, values in tables[0].items() if not name.startswith("as ")}
    method = curve.pop("method")
    if method == "analytic":
        curve = {name: values for name, values in curve.items() if name != "error" or any(values)}
    curve = {"standard_error" if name == "error" else name: values for name, values in curve.items()}
    if result.pop("training_rows"):
        print("The model was fitted to this file: its scores promise too much for other rows.\n")
    print(f"{result.pop('verdict')}\n")
    for name, value in result.items():
        beside = f"   class frequencies {cell(baseline[name])}" if name in baseline and value is not None else ""
        print(f"{name.replace('_', ' '):18}{cell(value) or 'none'}{beside}")
    for table in (*tables, curve):
        if table:
            print()
            show_table({name.replace("_", " "): values for name, values in table.items()})


def _report(model: "Model", data: "Data", result: dict[str, Any], *, title: str, sha256: str) -> "Report":
    """Return a report of what an evaluation found, in the same units, and of what the model was fitted to."""
    from gaussguru.report import evaluation_report

    samples, y = model.seen(data.X, data.X_err), model.labels(data.y, data.name)
    levels = result["robustness"]["noise_level"]
    page = evaluation_report(model.classifier, samples, y, title=title, noise_levels=levels, absolute=True)
    groups = {name: value for name, value in model.card.items() if isinstance(value, dict)}
    others = {name: value for name, value in model.card.items() if name not in groups}
    page.heading("Trained on").text(
        "Above, features are in the units of the classifier: "
        + ("scaled to standard deviation 1 in the training data" if model.card.get("scaled") else "not scaled")
        + f". The evaluated file has {data.n_rows} rows and the SHA-256 {sha256}."
    )
    return page.card({"model": others, **groups})


@app.command()
def path(
    file: File,
    target: Target = None,
    sigmas: Annotated[str, typer.Option(help="Number of noise levels, or a list of them, as 0.1,0.3,1.")] = "20",
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="OUT", help="Write the table as CSV or Parquet.")
    ] = None,
    scale: Scale = True,
    err_pattern: ErrPattern = None,
    errors: Errors = True,
    error_factor: ErrorFactor = None,
    error_level: ErrorLevel = None,
    missing: MissingRule = None,
    missing_error: MissingError = None,
    na: Na = None,
    features: Features = None,
    drop: Drop = None,
    drop_doubtful: DropDoubtful = False,
    as_: As = None,
    category: Category = None,
    log: Log = None,
    replicates: Replicates = None,
    noise: NoiseModel = "isotropic",
    loss: LossName = "gaussian",
    l2: Ridge = 0.0,
    balanced: Balanced = False,
    folds: Annotated[int, typer.Option(help="Number of cross-validation folds; 0 for none.")] = 5,
    tol: Tol = 1e-6,
    jobs: Jobs = None,
    format: InputFormat = None,
    which: Which = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    max_classes: MaxClasses = None,
    max_columns: MaxColumns = None,
    max_line: MaxLine = 16,
    max_unpacked: MaxUnpacked = 100,
    force: Force = False,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit linear classifiers to FILE at a series of noise levels.

    For each sigma: the norm of the weights, the accuracy on FILE, the cross-validated accuracy, and the duality gap,
    which bounds the distance of the objective to its optimum.

    Example: gaussguru path stars.csv --target class
    """
    talk.quiet = quiet
    if output is not None:
        _check_output(output, force, json)
    kind = "csv" if output in (None, "-") else written_format(output)
    levels = parse_numbers(sigmas, "--sigmas must be a whole number, or numbers with commas between them")
    wanted = int(levels[0]) if "," not in sigmas and levels[0].is_integer() else levels
    chosen_columns = Options(
        features or (), drop or (), drop_doubtful, _named_roles(as_, category), err_pattern or (), errors, error_factor,
        error_level, missing, missing_error, _na(na), log or (), replicates or (),
    )  # fmt: skip
    limits = _limits(max_columns, max_line, max_unpacked)
    how: dict[str, Any] = {"format": format, "which": which, "sep": sep, "decimal": decimal, "limits": limits}
    with closing(open_table(file, **how)) as table:
        plan = Plan.of(table, target, chosen_columns)
        data, summary = _read(table, plan.check(["gaussguru", *given_arguments]))
    options: dict[str, Any] = {"noise": noise, "loss": loss, "l2": l2, "tol": tol, "n_jobs": jobs}
    options |= {"scale": scale, "folds": folds, "max_classes": max_classes}
    options["class_weight"] = "balanced" if balanced else None
    from gaussguru._tables.fitting import path_table

    with busy(f"fitting {summary}"):
        columns, notes = path_table(data, wanted, **options)
    say(f"read {summary}")
    _say_plan(plan)
    warn(notes)
    if output is not None:
        with writing(output, force=force) as out:
            write_tables(out, [columns], kind)
        if output != "-":
            say(f"wrote {output}")
    if json:
        tell({"file": file, **columns})
    elif output is None:
        show_table({name.replace("_", " "): values for name, values in columns.items()})


@app.command()
def show(model: ModelFile, max_unpacked: MaxUnpacked = 100) -> None:
    """Print the card of a model as JSON: its columns, data, parameters, proof and versions."""
    tell(_load(model, None, _limits(unpacked=max_unpacked)).card)

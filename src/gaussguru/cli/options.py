"""Options of several commands, in groups: how a table is read, which columns are used, how a classifier is fitted."""

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property, wraps
from typing import Annotated, Any

import typer

from gaussguru._errors.columns import MISSING, MISSING_ERROR
from gaussguru._tables.base import TableReader
from gaussguru._tables.contents import FileLimits, TableError
from gaussguru._tables.files import FORMATS, open_table
from gaussguru._tables.layout import Layout
from gaussguru._tables.options import Options
from gaussguru._utils.types import Record
from gaussguru.cli.console import check_output

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


def option(default: Any, help: str, *flags: str, names: Iterable[str] = (), **more: Any) -> Any:
    """Return a field of a dataclass of options, with its default; ``names`` are those that it takes."""
    shown = one_of(names, help, *flags) if names else typer.Option(*flags, help=help, **more)
    return field(default=default, metadata={"option": shown})


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of the dataclasses that its parameters have as types."""
    given = inspect.signature(command).parameters.values()
    groups: Record = {each.name: each.annotation for each in given if is_dataclass(each.annotation)}
    options = []
    for each in given:
        for part in fields(groups[each.name]) if each.name in groups else ():
            # One that may be given more than once is None where it is not given.
            kind, default = (list[str] | None, None) if part.default == () else (part.type, part.default)
            kind = Annotated[kind, part.metadata["option"]]
            options.append(inspect.Parameter(part.name, each.kind, default=default, annotation=kind))
        options += [] if each.name in groups else [each]

    @wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            given = {part: values.pop(part.name) for part in fields(group)}
            values[name] = group(**{part.name: value for part, value in given.items() if value is not None})
        command(**values)

    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in options}
    return run


# Arguments, and options without a group.
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
_UNPACKED = "Refuse a compressed file that unpacks to more, and to more than 100 times its size."
MaxUnpacked = Annotated[float, typer.Option(metavar="MB", help=_UNPACKED)]


def check_new_output(output: str, *, force: bool, as_json: bool) -> None:
    """Raise before any work if the output cannot be written, or if standard output would have two things."""
    if output == "-" and as_json:
        raise TableError("--json and -o - both want standard output; give -o a file")
    if output != "-":
        check_output(output, force=force)


def limits_of(columns: int | None = None, line: float = 16, unpacked: float = 100) -> FileLimits:
    """Return what files may ask for, from numbers of columns and of MB."""
    for option, value, most in (("--max-line", line, 2000), ("--max-unpacked", unpacked, 1e9)):
        if not 0 < value <= most:
            raise TableError(f"{option} must be above 0 and at most {most:g} (MB); got {value:g}")
    return FileLimits(columns, math.ceil(line * 1e6), math.ceil(unpacked * 1e6))


@dataclass(frozen=True)
class InputOptions:
    """How a table is read."""

    format: str | None = option(
        None, "Format of FILE. Default: by its content, then its name, else csv.", names=FORMATS
    )
    table: str | None = option(
        None, "Name or number of the table, in FITS, VOTable and Excel: default 1.", metavar="NAME"
    )
    sep: str | None = option(None, "CSV separator. Default: found from the header.")
    decimal: str = option(".", "CSV decimal point.")
    max_columns: int | None = option(
        None, "Largest number of columns. Default: 60000; for libsvm 2000000.", metavar="N", min=1
    )
    max_line: float = option(16, "Longest line, up to 2000 MB.", metavar="MB")
    max_unpacked: float = option(100, _UNPACKED, metavar="MB")

    @cached_property
    def limits(self) -> FileLimits:
        """What files may ask for."""
        return limits_of(self.max_columns, self.max_line, self.max_unpacked)

    def open(self, path: str) -> TableReader:
        """Open a table."""
        return open_table(
            path, format=self.format, which=self.table, sep=self.sep, decimal=self.decimal, limits=self.limits
        )


@dataclass(frozen=True)
class ColumnOptions(Options):
    """Which columns are used, and how."""

    features: Sequence[str] = option(
        (), "Use this column as a feature; repeat for more. Default: by the plan of columns.", metavar="COL"
    )
    drop: Sequence[str] = option((), "Ignore this column and its errors; repeatable.", metavar="COL")
    drop_doubtful: bool = option(
        False, "Ignore all columns that --drop would settle; see 'gaussguru columns'.", "--drop-doubtful"
    )
    roles: Sequence[str] = option(
        (), "Use this column as a value, whatever its name (value:COL), or as a category (category:COL); repeatable.",
        "--as", metavar="ROLE:COL",
    )  # fmt: skip
    category: Sequence[str] = option(
        (), "A feature for each level but the first of this column; as --as category:COL.", metavar="COL"
    )
    err_pattern: Sequence[str] = option(
        (), "How error columns are named, with {x} for the name of the value, as '{x}_fehler'; counts before the names "
        "of archives; repeatable.", metavar="PATTERN",
    )  # fmt: skip
    errors: bool = option(True, "Use the error columns, or ignore them.", "--errors/--no-errors")
    error_factor: float | None = option(
        None, "Multiply the errors by this, to make them standard deviations.", metavar="F"
    )
    error_level: float | None = option(
        None, "The errors are half the width of intervals of this level, as 0.9.", metavar="P"
    )
    missing: str | None = option(
        None, "What to do with missing values. error: refuse the file. drop: leave out the row (its prediction is "
        "empty). mean: use the mean of the column. unmeasured: predict the value, with its error, from the rest of the "
        "row. Predictions do the same. Default: unmeasured if there are error columns, else error.", names=MISSING,
    )  # fmt: skip
    missing_error: str | None = option(
        None, "A value whose error is empty. refuse: refuse the file. unmeasured: do not use the value. exact: error "
        "0.", names=MISSING_ERROR,
    )  # fmt: skip
    na: Sequence[str] = option(
        (), "Numbers and words that stand for no value or no error, as --na=-9999,99,---; repeatable.", metavar="CELLS"
    )
    log: Sequence[str] = option(
        (), "Use the logarithm of this column, with errors to match; repeatable.", metavar="COL"
    )
    replicates: Sequence[str] = option(
        (), "Columns that measure the same quantity, as 'x{1,2,3}': their mean is the feature, their spread within "
        "rows its error; repeatable.", metavar="NAMES",
    )  # fmt: skip
    weights: str | None = option(
        None, "Column with the weight of each row, from 0 on, in the fit and its cross-validation. It is no feature, "
        "and predictions do not need it. Scaling and --test-size count all rows the same.", metavar="COL",
    )  # fmt: skip
    groups: str | None = option(
        None, "Column with the group of each row: rows of a group stay in one fold of the cross-validation, and "
        "--test-size holds out whole groups. It is no feature; not for --dask.", metavar="COL",
    )  # fmt: skip


@dataclass(frozen=True)
class FitOptions:
    """How any classifier is fitted."""

    balanced: bool = option(False, "Give all classes the same weight.", "--balanced")
    folds: int = option(5, "Number of cross-validation folds; 'path' takes 0. Columns are scaled once, before.")
    jobs: int | None = option(None, "Number of threads. Default: all cores.")
    max_classes: int | None = option(
        None, "Most classes. Default: 20, or a tenth of the rows if that is more.", metavar="N", min=2
    )

    @property
    def parameters(self) -> Record:
        """Parameters of a fit."""
        weights = "balanced" if self.balanced else None
        return {"folds": self.folds, "max_classes": self.max_classes, "n_jobs": self.jobs, "class_weight": weights}


@dataclass(frozen=True)
class LinearOptions:
    """Options of linear classifiers of noise yet to come."""

    scale: bool = option(
        True, "guru: scale every column to mean 0 and standard deviation 1. Errors are scaled too, and sigma is in "
        "these units.", "--scale/--no-scale",
    )  # fmt: skip
    noise: str = option("isotropic", "guru: noise in any direction, or along the feature axes only.", names=NOISES)
    loss: str = option(
        "gaussian",
        "guru: gaussian is the expected hinge loss; logistic and quadratic approximate it; moment is the largest one "
        "under any noise of that covariance.",
        names=LOSSES,
    )
    l2: float = option(0.0, "guru: ridge penalty. The noise alone already regularises.")
    tol: float = option(1e-6, "guru: largest duality gap, relative to the objective at zero.")
    scoring: str = option(
        "accuracy", "guru: score by which cross-validation chooses sigma, as scikit-learn names it.",
        names=("accuracy", "balanced_accuracy", "f1_macro", "matthews_corrcoef", "neg_log_loss", "roc_auc_ovr"),
    )  # fmt: skip

    @property
    def parameters(self) -> Record:
        """Parameters of a fit."""
        return {option.name: getattr(self, option.name) for option in fields(LinearOptions)}


def parse_numbers(text: str, expected: str) -> list[float]:
    """Return numbers with commas between them."""
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise TableError(f"{expected}; got {text!r}") from None


@dataclass(frozen=True)
class GuruOptions(LinearOptions):
    """Options that only the classifier guru has."""

    sigma: str = option(
        "cv", "guru: standard deviation of the noise on every feature. A number, in units of the scaled columns (with "
        "--no-scale: of the file); a list to choose from, as 0.1,0.3,1; or cv, which also finds the list. Error "
        "columns add to it; with 0 only they count.",
    )  # fmt: skip
    kernel: str = option(
        "linear", "guru: linear, or a kernel. A kernel takes no error columns; its sigma is in units of the kernel "
        "space.", names=KERNELS,
    )  # fmt: skip
    gamma: str = option("scale", "For the kernels rbf, poly, sigmoid, laplacian, chi2: scale, auto or a number.")
    degree: float = option(3, "For the kernel poly.")
    components: int | None = option(None, "Restrict a kernel to this many random rows, for large files.")

    @property
    def level(self) -> Any:
        """A noise level, a list of them, or "cv"."""
        if self.sigma == "cv":
            return self.sigma
        levels = parse_numbers(self.sigma, "--sigma must be a number, numbers with commas between them, or cv")
        return levels[0] if len(levels) == 1 else levels

    @property
    def parameters(self) -> Record:
        """Parameters of a fit."""
        shared = super().parameters | {"sigma": self.level}
        if self.kernel == "linear":
            return shared
        if shared.pop("noise") != "isotropic":
            raise TableError(f"--noise {self.noise} is for --kernel linear")
        number = "--gamma must be a number"
        gamma = self.gamma if self.gamma in ("scale", "auto") else parse_numbers(self.gamma, number)[0]
        kernel = {"kernel": self.kernel, "gamma": gamma, "degree": self.degree}
        return shared | kernel | {"n_components": self.components, "random_state": 0}

    def check(self, file: str, layout: Layout, *, in_parts: bool) -> None:
        """Raise if a kernel would have errors or a table in parts, or any of these classifiers limits."""
        from gaussguru._tables.fitting import check_no_limits

        check_no_limits(file, layout)
        if self.kernel == "linear":
            return
        if layout.has_errors:
            what = f"{layout.error_columns[0]!r}, ..." if layout.error_columns else "--missing unmeasured"
            raise TableError(f"{file}: --kernel {self.kernel} takes no errors ({what}); --no-errors leaves them out")
        if in_parts:
            raise TableError(
                f"{file}: --kernel {self.kernel} needs a table that is read into memory; use some of its rows"
            )


@dataclass(frozen=True)
class ErrorBarOptions:
    """Options that only the classifier error-bars has."""

    model: str = option(
        "auto", "error-bars: auto is a pool of classifiers, weighted by held-out rows; rbf, boosting and population "
        "are those members alone. linear is one calibrated linear score, for one formula that can be read.",
        names=MODELS,
    )  # fmt: skip
    gaussians: str = option(
        "auto", "error-bars: number of Gaussians in the population of true values, or auto.", metavar="N"
    )
    scale_errors: bool = option(
        False, "error-bars, --model linear: fit a common factor of all errors.", "--scale-errors"
    )
    use_error_sizes: bool = option(
        False, "error-bars: the sizes of the errors are features, too. They may tell the class, because classes were "
        "measured differently; not for rows that were selected or measured in another way.", "--use-error-sizes",
    )  # fmt: skip

    @property
    def parameters(self) -> Record:
        """Parameters of a fit."""
        if self.scale_errors and self.model != "linear":
            raise TableError(f"--scale-errors is for --model linear; got --model {self.model}")
        if self.use_error_sizes and self.model not in ("auto", "boosting"):
            raise TableError(f"--use-error-sizes is for --model auto or boosting; got --model {self.model}")
        n_components: str | int = self.gaussians
        if self.gaussians != "auto":
            if not self.gaussians.isdecimal() or not 1 <= int(self.gaussians[:9]) <= 100:
                raise TableError(f"--gaussians must be a whole number from 1 to 100, or auto; got {self.gaussians!r}")
            n_components = int(self.gaussians)
        sizes = {"scale_errors": self.scale_errors, "use_error_sizes": self.use_error_sizes}
        return {"model": self.model, "n_components": n_components, **sizes}

    def check(self, file: str, layout: Layout, *, in_parts: bool) -> None:
        """Any errors will do, and tables in parts: a pool is fitted to a subsample."""


def given_options(options: GuruOptions | ErrorBarOptions) -> Iterator[str]:
    """Yield the options that are not as by default, as they were written."""
    for option in fields(options):
        name, value = option.name.replace("_", "-"), getattr(options, option.name)
        if value != option.default:
            flags = {True: f"--{name}", False: f"--no-{name}"}
            text = f"{value:g}" if isinstance(value, float) else value
            yield flags[value] if isinstance(value, bool) else f"--{name} {text}"

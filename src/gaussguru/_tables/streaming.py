"""Models of tables that do not fit in memory: files that are converted once to arrays on disk, or read by a cluster.

Serves the command, and errors name its options.
"""

import glob
import hashlib
import math
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from gaussguru._data.streams import Part
from gaussguru._errors import Limits
from gaussguru._estimators.cross_validation import GuruClassifierCV
from gaussguru._estimators.error_bar import ErrorBarClassifier
from gaussguru._estimators.linear import GuruClassifier
from gaussguru._linalg import Array
from gaussguru._tables.files import Table, TableError, format_of
from gaussguru._tables.fitting import (
    check_features,
    classes_of,
    describe_error_bars,
    for_codes,
    messages_of,
)
from gaussguru._tables.schema import Layout, deviations, read_parts
from gaussguru.models import Model
from gaussguru.preprocessing import WithErrors
from gaussguru.sources import Arrays, Dask, Mapped, Source, needed

# Bytes of a table beyond which it is not read into memory, and the part of the memory that it may take there: a fit
# needs two to three times as much.
LARGE, SHARE = 2 << 30, 1 / 8


def files_of(path: str) -> list[str]:
    """Return the files that a path, a directory or a pattern stands for."""
    if os.path.isdir(path):
        found = sorted(str(each) for each in Path(path).rglob("*") if each.is_file() and not each.name.startswith("."))
    elif glob.has_magic(path) and not os.path.exists(path):
        found = sorted(each for each in glob.glob(path, recursive=True) if os.path.isfile(each))
    else:
        return [path]
    if not found:
        raise TableError(f"no file in {path}" if os.path.isdir(path) else f"no file fits {path}")
    return found


def _name_of(files: Sequence[str]) -> str:
    return files[0] if len(files) == 1 else f"{len(files)} files from {files[0]} on"


def is_large(files: Sequence[str]) -> bool:
    """Return whether files are to be read in parts: several, or one that is large."""
    if len(files) > 1 or not os.path.isfile(files[0]):
        return len(files) > 1
    # libsvm is not read in parts: it is tried as long as it may fit.
    most = LARGE if format_of(files[0]) == "libsvm" else min(LARGE, SHARE * _memory())
    return _table_bytes(files[0]) > most


def _table_bytes(path: str) -> int:
    """Return about what a table takes in memory: text as much as on disk, Parquet what its columns unpack to."""
    if format_of(path) == "parquet":
        with suppress(pa.ArrowException, OSError):  # whoever reads it says what is wrong
            about = pyarrow.parquet.read_metadata(path)
            return int(8 * about.num_rows * about.num_columns)
    return os.path.getsize(path)


def _memory() -> float:
    """Return the bytes of memory of this machine, or of the container that this process is in; no limit if unknown."""
    limits = [math.inf]
    with suppress(AttributeError, OSError, ValueError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError, ValueError):  # "max" where there is none
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(limits)


class Cached(NamedTuple):
    """Tables as arrays on disk: values, errors, and numbers of the labels, whose texts these are."""

    name: str
    X: NDArray[Any]
    X_err: NDArray[Any] | Limits | None
    codes: NDArray[Any]
    texts: list[str]
    layout: Layout
    n_rows: int
    scaler: Any
    sha256: str


def convert(
    files: Sequence[str],
    opened: Callable[[str], Table],
    layout_of: Callable[[Table], Layout],
    directory: str,
    progress: Callable[[str], None],
) -> Cached:
    """Convert tables to arrays in a directory, reading each once; all must have the columns of the first."""
    layout: Layout | None = None
    paths = [os.path.join(directory, name) for name in ("values", "labels", "errors", "limits")]
    places: dict[str, int] = {}
    scaler, digest, n_rows = StandardScaler(), hashlib.sha256(), 0
    with ExitStack() as stack:
        values, labels, errors, limits = (stack.enter_context(open(path, "wb")) for path in paths)
        for path in files:
            with closing(opened(path)) as table:
                layout = layout or layout_of(table)
                _check_layout(layout)
                for part in read_parts(table, layout, labels=True):
                    assert part.y is not None
                    n_rows += part.n_rows
                    if len(part.y):
                        X = part.X.to_numpy()
                        scaler.partial_fit(part.X)
                        values.write(np.ascontiguousarray(X).data)
                        numbers = [places.setdefault(text, len(places)) for text in part.y]
                        labels.write(np.array(numbers, dtype=np.int32).data)
                        if part.X_err is not None:
                            errors.write(np.ascontiguousarray(deviations(part.X_err)).data)
                        if isinstance(part.X_err, Limits):
                            limits.write(part.X_err.sides.data)
                    progress(f"converting {path}: {n_rows} rows")
                digest.update(table.sha256().encode())
    assert layout is not None
    if not places:
        raise TableError(f"{files[0]} has no rows that can be used")

    def mapped(path: str, dtype: Any) -> Any:
        return np.memmap(path, dtype=dtype, mode="r") if os.path.getsize(path) else None

    def table_of(path: str, dtype: Any) -> Any:
        found = mapped(path, dtype)
        return None if found is None else found.reshape(-1, len(layout.features))

    X, codes = table_of(paths[0], np.float64), mapped(paths[1], np.int32)
    X_err, sides = table_of(paths[2], np.float64), table_of(paths[3], np.int8)
    X_err = X_err if sides is None else Limits(X_err, sides)
    return Cached(_name_of(files), X, X_err, codes, list(places), layout, n_rows, scaler, digest.hexdigest())


def _check_layout(layout: Layout) -> None:
    if layout.target is None:
        raise TableError("libsvm files are read into memory: one file of at most 2 GB")
    if layout.missing == "mean":
        raise TableError("--missing mean is for files that are read into memory; give --missing drop")


def _scaled(mean: Array, scale: Array, part: Part) -> Part:
    """Return samples divided by scales after means were subtracted."""
    X_err = None if part.X_err is None else part.X_err / scale
    return part._replace(X=(part.X - mean) / scale, X_err=X_err)


def fit_cached(
    cached: Cached,
    *,
    folds: int,
    max_classes: int | None,
    classifier: str,
    sigma: Any = "cv",
    scale: bool = True,
    **options: Any,
) -> Model:
    """Fit a model to converted tables."""
    kind, classes, ranks = classes_of(cached.name, cached.texts, cached.layout, len(cached.codes), max_classes)
    codes = _Ranked(cached.codes, ranks)
    source: Source = Arrays(cached.X)
    about = _About(cached.name, cached.layout, cached.n_rows, len(codes), kind, classes)
    if classifier == "error-bars":
        return _fit_error_bars(source, codes, cached.X_err, about, folds, options)
    steps: list[tuple[str, Any]] = []
    if scale:
        source = Mapped(source, partial(_scaled, cached.scaler.mean_, cached.scaler.scale_))
        steps = [("scale", _step(cached.scaler, cached.layout))]
    found, fit = _fitted(source, codes, cached.X_err, len(codes), sigma, folds, options)
    return _model(steps, found, about, fit, {"scaled": scale, "spread": 1.0})


def _step(scaler: StandardScaler, layout: Layout) -> Any:
    """Return the step of a model that scales, with error bars if there are any."""
    if not layout.has_errors:
        return scaler
    some = pd.DataFrame(scaler.mean_ + scaler.scale_ * np.array([[1.0], [-1.0]]), columns=layout.features)
    return WithErrors(StandardScaler()).fit(some)  # two samples with these means and deviations


class _Ranked:
    """Label numbers as places among the classes, some at a time."""

    def __init__(self, codes: NDArray[Any], ranks: NDArray[Any]) -> None:
        self.codes, self.ranks, self.shape = codes, ranks, codes.shape
        self.ndim = 1

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, where: Any) -> NDArray[Any]:
        found: NDArray[Any] = self.ranks[self.codes[where]]
        return found


class _About(NamedTuple):
    """What a card says of the data."""

    name: str
    layout: Layout
    n_rows: int
    n_used: int
    kind: str
    classes: NDArray[Any]


def _fit_error_bars(source: Any, y: Any, X_err: Any, about: _About, folds: int, options: dict[str, Any]) -> Model:
    """Fit population and classifier of measurements to all rows of a source, whose labels are numbers."""
    check_features(about.name, len(about.layout.features))
    given = for_codes(options, about.classes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = ErrorBarClassifier(cv=folds, random_state=0, **given).fit(source, y, X_err=X_err)
        accuracy = found.score(source, y, X_err=X_err)
    found.set_params(**{name: value for name, value in options.items() if name == "class_weight"})
    fit, more = describe_error_bars(found, about.classes, about.n_used, accuracy, about.layout.features, folds)
    fit |= {"passes": found.population_.n_passes_, "warnings": messages_of(caught)}
    return _model([], found, about, fit, more)


def _fitted(
    source: Any, y: Any, X_err: Any, n_rows: int, sigma: Any, folds: int, options: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Return a classifier that was fitted to a source, and how that went."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if isinstance(sigma, str | list | tuple):
            found: Any = GuruClassifierCV(20 if sigma == "cv" else sigma, cv=folds, **options)
        else:
            found = GuruClassifier(sigma, **options)
        found.fit(source, y, X_err=X_err)
    scores = getattr(found, "scores_", None)
    fit = {
        "sigma": float(found.sigma),
        "objective": float(found.objective_),
        "gap": float(found.dual_gap_),
        "relative_gap": float(found.dual_gap_) / (n_rows * (len(found.classes_) - 1)),
        "certified": bool(found.converged_),
        "converged": bool(found.converged_),
        "iterations": int(found.n_iter_),
        "passes": float(found.n_passes_),
        "training_accuracy": found.score(source, y, X_err=X_err),
        "cv_accuracy": None if scores is None else float(scores.mean(axis=1).max()),
        "warnings": messages_of(caught),
    }
    return found, fit


def _model(steps: list[tuple[str, Any]], found: Any, about: _About, fit: dict[str, Any], more: dict[str, Any]) -> Model:
    found.classes_ = about.classes
    # The first step is given a frame, and the next what that makes of it.
    found.__dict__.pop("feature_names_in_", None)
    if not steps:
        found.feature_names_in_ = np.asarray(about.layout.features, dtype=object)
    card = {
        "data": {"name": about.name, "rows": about.n_rows, "rows_used": about.n_used},
        "layout": asdict(about.layout),
        "labels": about.kind,
        "classes": found.classes_.tolist(),
        "classifier": type(found).__name__,
        "parameters": {
            key: value
            for key, value in found.get_params(deep=False).items()
            if isinstance(value, int | float | str | None)
        },
        "fit": fit,
    } | more
    return Model(Pipeline([*steps, ("classify", found)]), card)


# --- a cluster ----------------------------------------------------------------------------------------------


def fit_on_cluster(
    files: Sequence[str],
    layout: Layout,
    address: str,
    *,
    sep: str | None,
    decimal: str,
    folds: int,
    max_classes: int | None,
    classifier: str,
    sigma: Any = "cv",
    scale: bool = True,
    **options: Any,
) -> Model:
    """Fit a classifier to files that the workers of a Dask cluster read themselves."""
    _check_layout(layout)
    if layout.two_sided or layout.limits or layout.missing == "drop":
        raise TableError("--dask takes values with one column of errors each, and has no --missing drop")
    frames = needed("dask.dataframe", "--dask", "dask")
    dask, distributed = needed("dask", "--dask", "dask"), needed("distributed", "--dask", "dask")
    names = [os.path.abspath(path) for path in files]
    with distributed.Client(address, timeout="20s", set_as_default=True):
        used = [*layout.features, *layout.error_columns, str(layout.target)]
        if format_of(files[0]) == "parquet":
            frame = frames.read_parquet(names, columns=used)
        else:
            frame = frames.read_csv(names, sep=sep or ",", decimal=decimal, usecols=used)
        tasks = [dask.delayed(_labels_in)(part, layout.target) for part in frame[[layout.target]].to_delayed()]
        seen = dask.compute(*tasks)
        texts, n_rows = sorted(set().union(*(found for found, _ in seen))), sum(n for _, n in seen)
        X = frame[layout.features].astype(np.float64)
        kind, classes, ranks = classes_of(_name_of(files), texts, layout, n_rows, max_classes)
        place = dict(zip(texts, ranks.tolist(), strict=True))
        about = _About(_name_of(files), layout, n_rows, n_rows, kind, classes)
        units = pd.Series(0.0, index=layout.features), pd.Series(1.0, index=layout.features)
        steps: list[tuple[str, Any]] = []
        if scale and classifier != "error-bars":  # that scales by itself
            means, scales = units = X.mean().compute(), X.std(ddof=0).compute().replace(0.0, 1.0)
            scaler = StandardScaler()
            scaler.fit(pd.DataFrame(np.vstack([means + scales, means - scales]), columns=layout.features))
            steps = [("scale", _step(scaler, layout))]
        source, errors = _on_workers(frame, layout, place, *units)
        if classifier == "error-bars":
            return _fit_error_bars(source, LABEL, errors, about, folds, options)
        found, fit = _fitted(source, LABEL, errors, n_rows, sigma, folds, options)
    return _model(steps, found, about, fit, {"scaled": scale, "spread": 1.0})


def _labels_in(part: Any, target: str) -> tuple[set[str], int]:
    """Return the texts of labels, and the number of rows."""
    return set(part[target].astype(str)), len(part)


# The column of label numbers, and how the names of columns of errors begin, in frames on a cluster.
LABEL, ERROR = "__gaussguru_label", "__gaussguru_error_"


def _on_workers(
    frame: Any, layout: Layout, place: dict[str, int], means: Any, scales: Any
) -> tuple[Dask, list[str] | None]:
    """Return values, errors and label numbers as one frame, and the columns of errors.

    Frames made of some columns each need not have the same partitions: Dask reads small files together.
    """
    own = {name: name + layout.err_suffix for name in layout.errors}
    columns = [ERROR + name for name in layout.features] if own else []

    def of(part: Any) -> Any:
        values = {name: (part[name].astype(np.float64) - means[name]) / scales[name] for name in layout.features}
        for name in layout.features if own else ():
            values[ERROR + name] = part[own[name]] / scales[name] if name in own else 0.0 * values[name]
        values[LABEL] = part[layout.target].astype(str).map(place).astype(np.int64)
        return pd.DataFrame(values)

    kinds = dict.fromkeys([*layout.features, *columns], np.float64) | {LABEL: np.int64}
    return Dask(frame.map_partitions(of, meta=kinds), columns=layout.features), columns or None

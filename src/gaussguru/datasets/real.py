"""Loaders of real data sets: those of the thesis, and some that have an error bar for every value.

A loader looks in the directory ``data_home``, or else in the one that the environment variable ``GAUSSGURU_DATA``
names; then for the copy in scikit-learn; then on OpenML, through scikit-learn, which caches downloads. The checksum of
the data is verified in each case.
"""

import hashlib
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat
from sklearn import datasets
from sklearn.utils import Bunch

from gaussguru._errors import Measured
from gaussguru._estimators.validation import check_choice
from gaussguru._linalg import Array


class DataNotFoundError(FileNotFoundError):
    """A data set was not found in any of the searched places."""


def load_wine(*, data_home: Any = None, return_X_y: bool = False, as_frame: bool = False) -> Any:
    """Return wine: 178 samples of 13 chemical measurements, of 3 growers.

    Parameters
    ----------
    data_home : path, default=None
        A directory that may hold ``wine.npz``; None: the environment variable ``GAUSSGURU_DATA``, if it is set.
    return_X_y : bool, default=False
    as_frame : bool, default=False
        Whether X is a DataFrame and y a Series of pandas.

    Returns
    -------
    Bunch or (X, y)
        ``data``, ``target`` (0, 1, ...), ``feature_names``, ``target_names``, and ``source``, where it was found.
    """
    return _given(_load(_WINE, data_home), return_X_y, as_frame)


def load_ionosphere(*, data_home: Any = None, return_X_y: bool = False, as_frame: bool = False) -> Any:
    """Return ionosphere: 351 radar returns of 34 numbers in [-1, 1], bad or good (target 1).

    Parameters
    ----------
    data_home : path, default=None
        A directory that may hold ``ionosphere.npz``; None: the environment variable ``GAUSSGURU_DATA``, if it is set.
    return_X_y : bool, default=False
    as_frame : bool, default=False
        Whether X is a DataFrame and y a Series of pandas.

    Returns
    -------
    Bunch or (X, y)
        As for :func:`load_wine`.
    """
    return _given(_load(_IONOSPHERE, data_home), return_X_y, as_frame)


def load_pima(*, data_home: Any = None, return_X_y: bool = False, as_frame: bool = False) -> Any:
    """Return Pima diabetes: 768 women, 8 measurements in their own units, diabetes or not (target 1 if so).

    Impossible zeros (a blood pressure of 0) are values that were not measured; they are returned as they are.

    Parameters
    ----------
    data_home : path, default=None
        A directory that may hold ``pima.npz``; None: the environment variable ``GAUSSGURU_DATA``, if it is set.
    return_X_y : bool, default=False
    as_frame : bool, default=False
        Whether X is a DataFrame and y a Series of pandas.

    Returns
    -------
    Bunch or (X, y)
        As for :func:`load_wine`.
    """
    return _given(_load(_PIMA, data_home), return_X_y, as_frame)


def load_splice(
    *, coding: str = "numbers", data_home: Any = None, return_X_y: bool = False, as_frame: bool = False
) -> Any:
    """Return splice: 3190 pieces of DNA, 60 letters long: a boundary of one kind (EI), the other (IE), or none (N).

    Parameters
    ----------
    coding : {"numbers", "indicators"}, default="numbers"
        "numbers": 60 features, A, G, C, T as 1, 2, 3, 4 (as LIBSVM does). "indicators": 240 features, one for each
        letter in each place. A letter that stands for several, such as N for any, is their mean.
    data_home : path, default=None
        A directory that may hold ``splice_nominal.npz``; None: the environment variable ``GAUSSGURU_DATA``, if it is
        set.
    return_X_y : bool, default=False
    as_frame : bool, default=False
        Whether X is a DataFrame and y a Series of pandas.

    Returns
    -------
    Bunch or (X, y)
        As for :func:`load_wine`.
    """
    check_choice("coding", coding, ("numbers", "indicators"))
    bunch = _load(_SPLICE, data_home)
    letters = np.array([[letter in meant for letter in "AGCT"] for meant in _LETTERS.values()], dtype=np.float64)
    letters /= letters.sum(axis=1, keepdims=True)
    shares = letters[bunch.data.astype(np.int64)]
    if coding == "numbers":
        bunch.data = shares @ [1.0, 2.0, 3.0, 4.0]
    else:
        bunch.data = shares.reshape(len(shares), -1)
        bunch.feature_names = [f"{name} {letter}" for name in bunch.feature_names for letter in "AGCT"]
    return _given(bunch, return_X_y, as_frame)


def load_usps(
    *, n_samples: int = 11000, data_home: Any = None, return_X_y: bool = False, as_frame: bool = False
) -> Any:
    """Return USPS: digits from envelopes, 16 x 16 pixels between 0 (paper) and 1 (ink), row by row.

    Parameters
    ----------
    n_samples : {11000, 9298}, default=11000
        Which of two versions: Roweis's 1100 images of each digit, which the thesis uses, or the older one, of 7291
        images for training and 2007 for testing.
    data_home : path, default=None
        A directory that may hold ``usps_all_11000.npz`` (or Roweis's ``usps_all.mat``) or ``usps_9298.npz``; None: the
        environment variable ``GAUSSGURU_DATA``, if it is set.
    return_X_y : bool, default=False
    as_frame : bool, default=False
        Whether X is a DataFrame and y a Series of pandas.

    Returns
    -------
    Bunch or (X, y)
        As for :func:`load_wine`.
    """
    if n_samples not in _USPS:
        raise ValueError(f"n_samples must be one of {sorted(_USPS)}, the versions of USPS; got {n_samples!r}")
    return _given(_load(_USPS[n_samples], data_home), return_X_y, as_frame)


def load_wdbc(*, data_home: Any = None, return_X_y: bool = False, as_frame: bool = False) -> Any:
    """Return breast tumours: 569 samples, 10 properties of nuclei with standard errors; malignant (target 1) or not.

    The values are means over the nuclei of an image, and the errors their standard errors, from the variation between
    nuclei. scikit-learn has the data
    (:func:`sklearn.datasets.load_breast_cancer`, the columns "mean ..." and "... error"), so no file is needed.

    Parameters
    ----------
    data_home : path, default=None
        A directory that may hold ``wdbc_mean_se.npz``; None: the environment variable ``GAUSSGURU_DATA``, if it is set.
    return_X_y : bool, default=False
        Whether to return a :class:`gaussguru.errors.Measured`, values and errors in one, and the labels.
    as_frame : bool, default=False
        Whether values and errors are DataFrames and the labels a Series of pandas.

    Returns
    -------
    Bunch or (Measured, y)
        ``data``, ``error`` (standard deviations, infinite where ``data`` is NaN), ``target`` (0, 1, ...),
        ``feature_names``, ``target_names``, ``source``, where it was found, and what else a data set has.
    """
    return _given(_load_catalogue(_WDBC, data_home), return_X_y, as_frame)


def load_fermi(*, task: str = "pulsar", data_home: Any = None, return_X_y: bool = False, as_frame: bool = False) -> Any:
    """Return gamma-ray sources of the 3FGL catalogue: 7 features, logarithms of fluxes and hardness ratios.

    Parameters
    ----------
    task : {"pulsar", "blazar"}, default="pulsar"
        "pulsar": 1908 sources, pulsar (target 1) or active galaxy. "blazar": the 1144 of them that are known to be a
        quasar (FSRQ, target 1) or a BL Lac object.
    data_home : path, default=None
        A directory with ``fermi3fgl_err.npz``; None: the environment variable ``GAUSSGURU_DATA``, if it is set.
    return_X_y, as_frame : bool, default=False
        As for :func:`load_wdbc`.

    Returns
    -------
    Bunch or (Measured, y)
        As for :func:`load_wdbc`.
    """
    check_choice("task", task, ("pulsar", "blazar"))
    bunch = _load_catalogue(_FERMI, data_home)
    kind = bunch.pop("y_fine")
    if task == "blazar":
        bunch = _rows(bunch, (kind == "fsrq") | (kind == "bll"))
        bunch.target = (kind[(kind == "fsrq") | (kind == "bll")] == "fsrq").astype(np.int64)
        bunch.target_names = np.array(["bll", "fsrq"])
    return _given(bunch, return_X_y, as_frame)


def load_koi(*, data_home: Any = None, return_X_y: bool = False, as_frame: bool = False) -> Any:
    """Return Kepler objects of interest: 6694 samples, 10 features; confirmed planets (target 1) and false positives.

    Several objects share a star: pass ``groups``, the stars, to cross-validation to keep them together. Objects with
    follow-up observations have smaller errors, so the sizes of the errors alone predict the class in part.

    Parameters
    ----------
    data_home : path, default=None
        A directory with ``koi_err.npz``; None: the environment variable ``GAUSSGURU_DATA``, if it is set.
    return_X_y, as_frame : bool, default=False
        As for :func:`load_wdbc`.

    Returns
    -------
    Bunch or (Measured, y)
        As for :func:`load_wdbc`, and ``groups``.
    """
    bunch = _load_catalogue(_KOI, data_home)
    bunch.groups = bunch.pop("kepid")
    bunch = _rows(bunch, bunch.target < 2)
    bunch.target_names = bunch.target_names[:2]
    return _given(bunch, return_X_y, as_frame)


def load_snpcc(*, data_home: Any = None, return_X_y: bool = False, as_frame: bool = False) -> Any:
    """Return simulated supernovae: 10667 samples, 24 fluxes in 4 bands and 6 time windows; type Ia (target 1) or not.

    Parameters
    ----------
    data_home : path, default=None
        A directory with ``snpcc_des_err.npz``; None: the environment variable ``GAUSSGURU_DATA``, if it is set.
    return_X_y, as_frame : bool, default=False
        As for :func:`load_wdbc`.

    Returns
    -------
    Bunch or (Measured, y)
        As for :func:`load_wdbc`, and ``spec_confirmed``, whether a spectrum was taken (mostly of bright ones).
    """
    bunch = _load_catalogue(_SNPCC, data_home)
    bunch.spec_confirmed = bunch.spec_confirmed.astype(bool)
    return _given(bunch, return_X_y, as_frame)


def load_chandra(*, data_home: Any = None, return_X_y: bool = False, as_frame: bool = False) -> Any:
    """Return X-ray sources: 2941 samples, 14 features, 8 classes; a quarter of the values is missing.

    Parameters
    ----------
    data_home : path, default=None
        A directory with ``chandra_muwclass_err.npz``; None: the environment variable ``GAUSSGURU_DATA``, if it is set.
    return_X_y, as_frame : bool, default=False
        As for :func:`load_wdbc`.

    Returns
    -------
    Bunch or (Measured, y)
        As for :func:`load_wdbc`; values that were not measured are NaN, with infinite errors.
    """
    return _given(_load_catalogue(_CHANDRA, data_home), return_X_y, as_frame)


# What each letter of the data stands for.
_LETTERS = {"A": "A", "G": "G", "C": "C", "T": "T", "N": "AGCT", "D": "AGT", "R": "AG", "S": "CG"}


@dataclass(frozen=True)
class _Stored:
    """A data set that is found somewhere.

    Parameters
    ----------
    name : what it is called
    file : the file of a data directory, without ``.npz``: arrays X and y
    checksum : of the rows, in any order, as whole multiples of ``unit``
    shape : of X
    features, classes : their names
    unit : every value is a whole multiple of it
    openml : its number there
    tidy : brings X and y of a directory or of OpenML (raw strings, other units or labels) into the units promised
    also : another file of the directory, and what reads it
    bundled : scikit-learn's own loader
    """

    name: str
    file: str
    checksum: str
    shape: tuple[int, int]
    features: list[str]
    classes: list[str]
    unit: float
    openml: int | None = None
    tidy: Callable[[NDArray[Any], NDArray[Any]], tuple[Any, Any]] = lambda X, y: (X, y)
    also: tuple[str, Callable[[Path], tuple[Any, Any]]] | None = None
    bundled: Callable[..., Any] | None = None


def _load(stored: _Stored, data_home: Any) -> Bunch:
    raw_X, raw_y, source = _find(stored, data_home)
    try:
        X, y = stored.tidy(raw_X, raw_y)
        X, y = np.ascontiguousarray(X, dtype=np.float64), np.asarray(y).astype(np.int64)
        found = checksum(X, y, stored.unit) if X.shape == stored.shape else f"none: X has shape {X.shape}"
    except (KeyError, ValueError, IndexError) as error:
        found = f"none: {error}"
    if found != stored.checksum:
        raise _not_it(stored.name, source, found, stored.checksum)
    return Bunch(
        data=X,
        target=y,
        feature_names=list(stored.features),
        target_names=np.array(stored.classes),
        source=source,
    )


@dataclass(frozen=True)
class _Catalogue:
    """A data set with error bars, in a file of its own.

    Parameters
    ----------
    name : what it is called
    file : the file of a data directory, without ``.npz``: arrays X, X_err, y and feature_names
    checksum : of values, errors and labels, in any order of the rows, as whole multiples of ``UNIT``
    shape : of X
    classes : the labels of the file, in the order of their numbers, and their names
    also : other arrays of the file, a value for each sample
    bundled : returns the same arrays without a file
    """

    name: str
    file: str
    checksum: str
    shape: tuple[int, int]
    classes: dict[Any, str]
    also: tuple[str, ...] = ()
    bundled: Callable[[], dict[str, Any]] | None = None


# Values and errors of a catalogue are compared to so many digits after the point.
UNIT = 1e-6


def _load_catalogue(stored: _Catalogue, data_home: Any) -> Bunch:
    arrays, source = _find_catalogue(stored, data_home)
    X, error = (np.ascontiguousarray(arrays[key], dtype=np.float64) for key in ("X", "X_err"))
    try:
        labels = np.array([list(stored.classes).index(label) for label in arrays["y"].tolist()], dtype=np.int64)
        found = f"none: X has shape {X.shape}, X_err {error.shape}"
        if X.shape == error.shape == stored.shape:
            found = checksum(np.nan_to_num(np.hstack([X, error])), labels, UNIT)
    except ValueError as problem:
        found = f"none: {problem}"
    if found != stored.checksum:
        raise _not_it(stored.name, source, found, stored.checksum)
    return Bunch(
        data=X,
        error=np.where(np.isnan(X), np.inf, error),
        target=labels,
        feature_names=[str(name) for name in arrays["feature_names"]],
        target_names=np.array(list(stored.classes.values())),
        source=source,
        **{name: arrays[name] for name in stored.also},
    )


def _find_catalogue(stored: _Catalogue, data_home: Any) -> tuple[dict[str, Any], str]:
    """Return the arrays of a data set with error bars, and where they were found."""
    directory = _directory(data_home)
    names = ("X", "X_err", "y", "feature_names", *stored.also)
    wanted = f"{stored.file}.npz with arrays {', '.join(names)}"
    if directory is not None:
        path = directory / f"{stored.file}.npz"
        if path.exists():
            try:
                with np.load(path, allow_pickle=False) as file:
                    return {name: file[name] for name in names}, str(path)
            except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
                raise ValueError(f"{path} must be a file {wanted}; it cannot be read: {error}") from error
    if stored.bundled is not None:
        return stored.bundled(), "scikit-learn"
    looked = f"there is no {stored.file}.npz in {directory}" if directory else "no data directory is set"
    raise DataNotFoundError(
        f"{stored.name} was not found: {looked}, and neither scikit-learn nor OpenML has it with its errors. Put "
        f"{wanted} ({stored.shape[0]} samples of {stored.shape[1]} features) into a directory and name it with "
        "data_home= or the environment variable GAUSSGURU_DATA"
    )


def _bundled_wdbc() -> dict[str, Any]:
    own = datasets.load_breast_cancer()
    columns = list(own.feature_names)
    names = [name.removeprefix("mean ") for name in columns if name.startswith("mean ")]
    return {
        "X": own.data[:, [columns.index(f"mean {name}") for name in names]],
        "X_err": own.data[:, [columns.index(f"{name} error") for name in names]],
        "y": 1 - own.target,  # there malignant is 0
        "feature_names": names,
    }


def _rows(bunch: Bunch, mine: NDArray[np.bool_]) -> Bunch:
    """Return some of the samples, with all that has one value for each."""
    per_sample = {
        key: value for key, value in bunch.items() if isinstance(value, np.ndarray) and len(value) == len(mine)
    }
    return Bunch(**{**bunch, **{key: value[mine] for key, value in per_sample.items()}})


def _given(bunch: Bunch, return_X_y: bool, as_frame: bool) -> Any:
    if as_frame:
        import pandas as pd  # noqa: PLC0415 - optional

        for table in {"data", "error"} & set(bunch):
            bunch[table] = pd.DataFrame(bunch[table], columns=bunch.feature_names)
        bunch.target = pd.Series(bunch.target, name="target")
    if not return_X_y:
        return bunch
    return Measured(bunch.data, bunch.error) if "error" in bunch else bunch.data, bunch.target


def _not_it(name: str, source: str, found: str, expected: str) -> ValueError:
    return ValueError(
        f"{source} is not the data set {name}: its checksum is {found}, and that of the data set "
        f"{expected}. Replace it, or remove it and another source is tried"
    )


def _find(stored: _Stored, data_home: Any) -> tuple[Any, Any, str]:
    """Return X, y as they are where they are found first, and where that is."""
    directory = _directory(data_home)
    if directory is not None:
        path = directory / f"{stored.file}.npz"
        if path.exists():
            try:
                with np.load(path, allow_pickle=False) as file:
                    return file["X"], file["y"], str(path)
            except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
                message = f"{path} must be an .npz file with arrays X and y; it cannot be read: {error}"
                raise ValueError(message) from error
        if stored.also and (directory / stored.also[0]).exists():
            path = directory / stored.also[0]
            try:
                return *stored.also[1](path), str(path)
            except (OSError, KeyError, ValueError) as error:
                raise ValueError(f"{path} is not what holds {stored.name}; it cannot be read: {error}") from error
    if stored.bundled is not None:
        return *stored.bundled(return_X_y=True), "scikit-learn"
    looked = f"there is no {stored.file}.npz in {directory}" if directory else "no data directory is set"
    if stored.openml is not None:
        try:
            bunch = datasets.fetch_openml(data_id=stored.openml, as_frame=False, parser="liac-arff")
        except (OSError, ValueError) as error:
            looked += f", and OpenML ({stored.openml}) cannot be read: {error}"
        else:
            return _decoded(bunch), bunch.target, f"OpenML {stored.openml}"
    else:
        looked += ", and neither scikit-learn nor OpenML has it"
    files = " or ".join([f"{stored.file}.npz with arrays X and y", *([stored.also[0]] if stored.also else [])])
    raise DataNotFoundError(
        f"{stored.name} was not found: {looked}. Put {files} ({stored.shape[0]} samples of {stored.shape[1]} features) "
        "into a directory and name it with data_home= or the environment variable GAUSSGURU_DATA"
    )


def _directory(data_home: Any) -> Path | None:
    given = data_home or os.environ.get("GAUSSGURU_DATA")
    if not given:
        return None
    directory = Path(given).expanduser()
    if not directory.is_dir():
        named = "data_home" if data_home else "the environment variable GAUSSGURU_DATA"
        raise NotADirectoryError(f"{named} must name a directory; got {str(given)!r}, which is none")
    return directory


def _decoded(bunch: Any) -> NDArray[Any]:
    """Return the features of an OpenML data set, names in place of the numbers of categories."""
    categories = bunch.get("categories") or {}
    columns = [
        np.asarray(categories[name])[column.astype(np.int64)] if name in categories else column
        for name, column in zip(bunch.feature_names, np.asarray(bunch.data).T, strict=True)
        if name.lower() != "instance_name"  # of splice: the name of a sample, no feature
    ]
    return np.column_stack(columns)


def checksum(X: Array, y: NDArray[np.int64], unit: float) -> str:
    """Return the SHA-256 of samples and labels, whatever their order; values are rounded to multiples of ``unit``."""
    rows = np.column_stack([np.rint(X / unit).astype("<i8"), y.astype("<i8")])
    return hashlib.sha256(b"".join(sorted(hashlib.sha256(row.tobytes()).digest() for row in rows))).hexdigest()


def _coded(names: list[str]) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Return what numbers labels by the names that OpenML has for them; numbers stay."""

    def tidy(X: Any, y: Any) -> tuple[Any, Any]:
        return X, y if np.issubdtype(y.dtype, np.number) else [names.index(str(label)) for label in y]

    return tidy


def _tidy_splice(X: Any, y: Any) -> tuple[Any, Any]:
    numbers = {letter: number for number, letter in enumerate(_LETTERS)}
    return np.vectorize(lambda letter: numbers[str(letter).strip()])(X), [
        ["EI", "IE", "N"].index(str(label).strip()) for label in y
    ]


def _tidy_usps(X: Any, y: Any) -> tuple[Any, Any]:
    if X.dtype == np.uint8:
        return X / 255, y
    if X.min() < 0:  # from -1 to 1, and digit d is class d + 1, as in LIBSVM's copy
        return (X.astype(np.float64) + 1) / 2, y.astype(np.float64) - 1
    return X.astype(np.float64), y


def _read_roweis(path: Path) -> tuple[Any, Any]:
    """Return the images of ``usps_all.mat``: 256 pixels, column by column, times 1100 images, times 1, 2, ..., 9, 0."""
    images = loadmat(path)["data"].transpose(2, 1, 0).reshape(-1, 16, 16).transpose(0, 2, 1)
    return np.ascontiguousarray(images).reshape(len(images), 256), (np.arange(len(images)) // 1100 + 1) % 10


_WINE = _Stored(
    "wine",
    "wine",
    checksum="222aedd249f88b2af96188530d84a046ff2729434dfe0b99c8031efa3f25da11",
    shape=(178, 13),
    features=[
        "alcohol", "malic_acid", "ash", "alcalinity_of_ash", "magnesium", "total_phenols", "flavanoids",
        "nonflavanoid_phenols", "proanthocyanins", "color_intensity", "hue", "od280/od315_of_diluted_wines", "proline",
    ],
    classes=["class_0", "class_1", "class_2"],
    unit=1e-6,
    bundled=datasets.load_wine,
)  # fmt: skip
_IONOSPHERE = _Stored(
    "ionosphere",
    "ionosphere",
    checksum="fc38eced0aed48e38b729c4b2adfee1aa63caa982d00d63756a54507a2d78f0d",
    shape=(351, 34),
    features=[f"a{number:02d}" for number in range(1, 35)],
    classes=["bad", "good"],
    unit=1e-5,
    openml=59,
    tidy=_coded(["b", "g"]),
)
_PIMA = _Stored(
    "Pima diabetes",
    "pima",
    checksum="54e5ab14fcff8a85d27a1f7beabf77e5e99bff09a191e46601142fa684a4e287",
    shape=(768, 8),
    features=["pregnant", "glucose", "pressure", "triceps", "insulin", "mass", "pedigree", "age"],
    classes=["negative", "positive"],
    unit=1e-3,
    openml=37,
    tidy=_coded(["tested_negative", "tested_positive"]),
)
_SPLICE = _Stored(
    "splice",
    "splice_nominal",
    checksum="715fa27b5068e649412d952d35793195716203c8be9755aa569a6300a66f79df",
    shape=(3190, 60),
    features=[f"place {place}" for place in (*range(-30, 0), *range(1, 31))],
    classes=["EI", "IE", "N"],
    unit=1.0,
    openml=46,
    tidy=_tidy_splice,
)
_PIXELS = [f"pixel {row} {column}" for row in range(16) for column in range(16)]
_USPS = {
    11000: _Stored(
        "USPS (11000 samples)",
        "usps_all_11000",
        checksum="606fd7e9f71e16ea83f2f3fc4b804a5b1aad998f340664272ecaf3b5202168f9",
        shape=(11000, 256),
        classes=list("0123456789"),
        unit=1 / 255,
        also=("usps_all.mat", _read_roweis),
        features=_PIXELS,
        tidy=_tidy_usps,
    ),
    9298: _Stored(
        "USPS (9298 samples)",
        "usps_9298",
        checksum="93ee88d189e255421d754e325efe3d1ecb35a208e872ea8904085b8b848f4874",
        shape=(9298, 256),
        classes=list("0123456789"),
        unit=1 / 2000,
        openml=41082,
        features=_PIXELS,
        tidy=_tidy_usps,
    ),
}
_WDBC = _Catalogue(
    "breast tumours with standard errors",
    "wdbc_mean_se",
    checksum="39737bcc3e749b762e15cb2684bcaea5b2ab847088a446b9560af40de222ab3f",
    shape=(569, 10),
    classes={0: "benign", 1: "malignant"},
    bundled=_bundled_wdbc,
)
_FERMI = _Catalogue(
    "Fermi 3FGL",
    "fermi3fgl_err",
    checksum="41f7295ac6bf5bb3307b3ae25fd3ac980da623aa95274dcf91b6bd040e0c6843",
    shape=(1908, 7),
    classes={"AGN": "AGN", "PSR": "PSR"},
    also=("y_fine",),
)
_KOI = _Catalogue(
    "Kepler objects of interest",
    "koi_err",
    checksum="a5066f62d8356fcce4d94ed63548317b1239200dbb68252ab833d60eff8e9e16",
    shape=(8991, 10),
    classes={"FALSE POSITIVE": "false positive", "CONFIRMED": "confirmed", "CANDIDATE": "candidate"},
    also=("kepid",),
)
_SNPCC = _Catalogue(
    "supernovae of the photometric classification challenge",
    "snpcc_des_err",
    checksum="780c151abc3f04725042caa4d55cccdd535a1179a7da76f91a55fb74c16653a5",
    shape=(10667, 24),
    classes={0: "other", 1: "Ia"},
    also=("spec_confirmed",),
)
_CHANDRA = _Catalogue(
    "Chandra sources of 8 classes",
    "chandra_muwclass_err",
    checksum="fcad3f1c1190c556d5dbcb2383bc808a6cc457a895270687d8cbb450a65ff921",
    shape=(2941, 14),
    classes={label: label for label in ("AGN", "CV", "HM-STAR", "HMXB", "LM-STAR", "LMXB", "NS", "YSO")},
)

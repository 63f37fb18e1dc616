"""Loaders of the thesis's real data sets.

A loader looks in the directory ``data_home``, or else in the one that the environment variable ``GAUSSGURU_DATA``
names; then for the copy in scikit-learn; then it asks OpenML, through scikit-learn, which keeps what it has fetched.
Whatever is found must have the checksum of the data set: nothing is ever taken for it that is not.
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

from gaussguru._estimators.validation import check_choice
from gaussguru._linalg import Array


class DataNotFoundError(FileNotFoundError):
    """A data set is in none of the places where it was looked for."""


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

    Zeros that cannot be (a blood pressure of 0) are values that were not measured; they are returned as they are.

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
        raise ValueError(
            f"{source} is not the data set {stored.name}: its checksum is {found}, and that of the data set "
            f"{stored.checksum}. Replace it, or remove it and another source is tried"
        )
    return Bunch(
        data=X,
        target=y,
        feature_names=list(stored.features),
        target_names=np.array(stored.classes),
        source=source,
    )


def _given(bunch: Bunch, return_X_y: bool, as_frame: bool) -> Any:
    if as_frame:
        import pandas as pd  # noqa: PLC0415 - optional

        bunch.data = pd.DataFrame(bunch.data, columns=bunch.feature_names)
        bunch.target = pd.Series(bunch.target, name="target")
    return (bunch.data, bunch.target) if return_X_y else bunch


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

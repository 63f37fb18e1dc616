"""Loaders of the real data sets of the thesis.

A loader looks in the directory ``data_home``, or else in the one that the environment variable ``GAUSSGURU_DATA``
names; then for the copy in scikit-learn; then on OpenML, through scikit-learn, which caches downloads. The checksum of
the data is verified in each case.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import loadmat
from sklearn import datasets
from sklearn.utils import Bunch

from gaussguru._utils.checks import check_choice
from gaussguru._utils.types import Directory, Labels, Record, Values
from gaussguru.datasets.storage import Arrays, StoredData, in_form


def load_wine(*, data_home: Directory = None, return_X_y: bool = False, as_frame: bool = False) -> Any:
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
    stored = StoredData(
        "wine", "wine", "222aedd249f88b2af96188530d84a046ff2729434dfe0b99c8031efa3f25da11", (178, 13),
        lambda arrays: (arrays["X"], arrays["y"]), unit=1e-6, classes=["class_0", "class_1", "class_2"],
        features=(
            "alcohol", "malic_acid", "ash", "alcalinity_of_ash", "magnesium", "total_phenols", "flavanoids",
            "nonflavanoid_phenols", "proanthocyanins", "color_intensity", "hue", "od280/od315_of_diluted_wines",
            "proline",
        ),
        bundled=lambda: dict(zip("Xy", datasets.load_wine(return_X_y=True), strict=True)),
    )  # fmt: skip
    return in_form(_load(stored, data_home), return_X_y, as_frame)


def load_ionosphere(*, data_home: Directory = None, return_X_y: bool = False, as_frame: bool = False) -> Any:
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
    stored = StoredData(
        "ionosphere", "ionosphere", "fc38eced0aed48e38b729c4b2adfee1aa63caa982d00d63756a54507a2d78f0d", (351, 34),
        _coded(["b", "g"]), unit=1e-5, classes=["bad", "good"],
        features=tuple(f"a{number:02d}" for number in range(1, 35)), openml=59,
    )  # fmt: skip
    return in_form(_load(stored, data_home), return_X_y, as_frame)


def load_pima(*, data_home: Directory = None, return_X_y: bool = False, as_frame: bool = False) -> Any:
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
    stored = StoredData(
        "Pima diabetes", "pima", "54e5ab14fcff8a85d27a1f7beabf77e5e99bff09a191e46601142fa684a4e287", (768, 8),
        _coded(["tested_negative", "tested_positive"]), unit=1e-3, classes=["negative", "positive"],
        features=("pregnant", "glucose", "pressure", "triceps", "insulin", "mass", "pedigree", "age"), openml=37,
    )  # fmt: skip
    return in_form(_load(stored, data_home), return_X_y, as_frame)


def load_splice(
    *, coding: str = "numbers", data_home: Directory = None, return_X_y: bool = False, as_frame: bool = False
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
    stored = StoredData(
        "splice", "splice_nominal", "715fa27b5068e649412d952d35793195716203c8be9755aa569a6300a66f79df", (3190, 60),
        _splice_numbers, unit=1.0, classes=["EI", "IE", "N"],
        features=tuple(f"place {k}" for k in (*range(-30, 0), *range(1, 31))), openml=46,
    )  # fmt: skip
    bunch = _load(stored, data_home)
    letters = np.array([[letter in meant for letter in "AGCT"] for meant in _LETTERS.values()], dtype=np.float64)
    letters /= letters.sum(axis=1, keepdims=True)
    shares = letters[bunch.data.astype(np.int64)]
    if coding == "numbers":
        bunch.data = shares @ [1.0, 2.0, 3.0, 4.0]
    else:
        bunch.data = shares.reshape(len(shares), -1)
        bunch.feature_names = [f"{name} {letter}" for name in bunch.feature_names for letter in "AGCT"]
    return in_form(bunch, return_X_y, as_frame)


def load_usps(
    *, n_samples: int = 11000, data_home: Directory = None, return_X_y: bool = False, as_frame: bool = False
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
    return in_form(_load(_USPS[n_samples], data_home), return_X_y, as_frame)


# The letters of splice, by number in the file, and the bases that each may be.
_LETTERS = {"A": "A", "G": "G", "C": "C", "T": "T", "N": "AGCT", "D": "AGT", "R": "AG", "S": "CG"}


def _load(stored: StoredData, data_home: Directory) -> Bunch:
    _, X, y, source = stored.load(data_home)
    names = {"feature_names": list(stored.features), "target_names": np.array(stored.classes)}
    return Bunch(data=X, target=y, **names, source=source)


def _coded(names: list[str]) -> Callable[[Arrays], tuple[Values, Labels]]:
    """Return the function that numbers labels by their names on OpenML; numbers stay."""

    def prepare(arrays: Arrays) -> tuple[Values, Labels]:
        X, y = arrays["X"], arrays["y"]
        return X, y if np.issubdtype(y.dtype, np.number) else [names.index(str(label)) for label in y]

    return prepare


def _splice_numbers(arrays: Arrays) -> tuple[Values, Labels]:
    numbers = {letter: number for number, letter in enumerate(_LETTERS)}
    return np.vectorize(lambda letter: numbers[str(letter).strip()])(arrays["X"]), [
        ["EI", "IE", "N"].index(str(label).strip()) for label in arrays["y"]
    ]


def _usps_ink(arrays: Arrays) -> tuple[Values, Labels]:
    """Return pixels between 0 and 1, and digits."""
    X, y = arrays["X"], arrays["y"]
    if X.dtype == np.uint8:
        return X / 255, y
    if X.min() < 0:  # LIBSVM's copy: from -1 to 1, and digit d is class d + 1
        return (X.astype(np.float64) + 1) / 2, y.astype(np.float64) - 1
    return X.astype(np.float64), y


def _read_roweis(path: Path) -> Arrays:
    """Return the images of ``usps_all.mat``: 256 pixels, column by column, times 1100 images, times 1, 2, ..., 9, 0."""
    images = loadmat(path)["data"].transpose(2, 1, 0).reshape(-1, 16, 16).transpose(0, 2, 1)
    digits = (np.arange(len(images)) // 1100 + 1) % 10
    return {"X": np.ascontiguousarray(images).reshape(len(images), 256), "y": digits}


_DIGITS: Record = {
    "classes": list("0123456789"),
    "features": tuple(f"pixel {row} {column}" for row in range(16) for column in range(16)),
}
_USPS = {
    11000: StoredData(
        "USPS (11000 samples)", "usps_all_11000", "606fd7e9f71e16ea83f2f3fc4b804a5b1aad998f340664272ecaf3b5202168f9",
        (11000, 256), _usps_ink, unit=1 / 255, **_DIGITS, other_file=("usps_all.mat", _read_roweis),
    ),
    9298: StoredData(
        "USPS (9298 samples)", "usps_9298", "93ee88d189e255421d754e325efe3d1ecb35a208e872ea8904085b8b848f4874",
        (9298, 256), _usps_ink, unit=1 / 2000, **_DIGITS, openml=41082,
    ),
}  # fmt: skip

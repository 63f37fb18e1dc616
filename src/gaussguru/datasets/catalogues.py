"""Loaders of real data sets that have an error bar for every value.

A loader looks in the directory ``data_home``, or else in the one that the environment variable ``GAUSSGURU_DATA``
names; then for the copy in scikit-learn. The checksum of the data is verified in each case.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.utils import Bunch

from gaussguru._utils.checks import check_choice
from gaussguru._utils.types import Directory, Labels, Record, Values
from gaussguru.datasets.storage import Arrays, StoredData, in_form


def load_wdbc(*, data_home: Directory = None, return_X_y: bool = False, as_frame: bool = False) -> Any:
    """Return breast tumours: 569 samples, 10 properties of nuclei with standard errors; malignant (target 1) or not.

    The values are means over the nuclei of an image, and the errors their standard errors, from the variation between
    nuclei. scikit-learn has the data
    (:func:`sklearn.datasets.load_breast_cancer`, the columns "mean ..." and "... error"), so no file is needed.

    Parameters
    ----------
    data_home : path, default=None
        A directory that may hold ``wdbc_mean_se.npz``; None: the environment variable ``GAUSSGURU_DATA``, if it is set.
    return_X_y : bool, default=False
        Whether to return a :class:`gaussguru.Measured`, values and errors in one, and the labels.
    as_frame : bool, default=False
        Whether values and errors are DataFrames and the labels a Series of pandas.

    Returns
    -------
    Bunch or (Measured, y)
        ``data``, ``error`` (standard deviations, infinite where ``data`` is NaN), ``target`` (0, 1, ...),
        ``feature_names``, ``target_names``, ``source``, where it was found, and what else a data set has.
    """
    bunch = _load(
        data_home, "breast tumours with standard errors", "wdbc_mean_se",
        "39737bcc3e749b762e15cb2684bcaea5b2ab847088a446b9560af40de222ab3f", (569, 10), {0: "benign", 1: "malignant"},
        bundled=_bundled_wdbc,
    )  # fmt: skip
    return in_form(bunch, return_X_y, as_frame)


def load_fermi(
    *, task: str = "pulsar", data_home: Directory = None, return_X_y: bool = False, as_frame: bool = False
) -> Any:
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
    bunch = _load(
        data_home, "Fermi 3FGL", "fermi3fgl_err", "41f7295ac6bf5bb3307b3ae25fd3ac980da623aa95274dcf91b6bd040e0c6843",
        (1908, 7), {"AGN": "AGN", "PSR": "PSR"}, also=("y_fine",),
    )  # fmt: skip
    kind = bunch.pop("y_fine")
    if task == "blazar":
        is_blazar = (kind == "fsrq") | (kind == "bll")
        bunch = _rows_of(bunch, is_blazar)
        bunch.target = (kind[is_blazar] == "fsrq").astype(np.int64)
        bunch.target_names = np.array(["bll", "fsrq"])
    return in_form(bunch, return_X_y, as_frame)


def load_koi(*, data_home: Directory = None, return_X_y: bool = False, as_frame: bool = False) -> Any:
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
    bunch = _load(
        data_home, "Kepler objects of interest", "koi_err",
        "a5066f62d8356fcce4d94ed63548317b1239200dbb68252ab833d60eff8e9e16", (8991, 10),
        {"FALSE POSITIVE": "false positive", "CONFIRMED": "confirmed", "CANDIDATE": "candidate"}, also=("kepid",),
    )  # fmt: skip
    bunch.groups = bunch.pop("kepid")
    bunch = _rows_of(bunch, bunch.target < 2)
    bunch.target_names = bunch.target_names[:2]
    return in_form(bunch, return_X_y, as_frame)


def load_snpcc(*, data_home: Directory = None, return_X_y: bool = False, as_frame: bool = False) -> Any:
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
    bunch = _load(
        data_home, "supernovae of the photometric classification challenge", "snpcc_des_err",
        "780c151abc3f04725042caa4d55cccdd535a1179a7da76f91a55fb74c16653a5", (10667, 24), {0: "other", 1: "Ia"},
        also=("spec_confirmed",),
    )  # fmt: skip
    bunch.spec_confirmed = bunch.spec_confirmed.astype(bool)
    return in_form(bunch, return_X_y, as_frame)


def load_chandra(*, data_home: Directory = None, return_X_y: bool = False, as_frame: bool = False) -> Any:
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
    bunch = _load(
        data_home, "Chandra sources of 8 classes", "chandra_muwclass_err",
        "fcad3f1c1190c556d5dbcb2383bc808a6cc457a895270687d8cbb450a65ff921", (2941, 14),
        {label: label for label in ("AGN", "CV", "HM-STAR", "HMXB", "LM-STAR", "LMXB", "NS", "YSO")},
    )  # fmt: skip
    return in_form(bunch, return_X_y, as_frame)


def _load(
    data_home: Directory, name: str, file: str, checksum: str, shape: tuple[int, int], classes: dict[str | int, str],
    also: tuple[str, ...] = (), bundled: Callable[[], Arrays] | None = None,
) -> Bunch:  # fmt: skip
    """Return a data set with errors; ``classes`` maps labels of the file to names, ``also`` names further arrays."""
    labels, names = list(classes), list(classes.values())

    def prepare(arrays: Arrays) -> tuple[Values, Labels]:
        X, error = (np.asarray(arrays[name], dtype=np.float64) for name in ("X", "X_err"))
        if X.shape != error.shape:
            raise ValueError(f"X has shape {X.shape}, X_err {error.shape}")
        return np.nan_to_num(np.hstack([X, error])), [labels.index(label) for label in arrays["y"].tolist()]

    # Values and errors are compared to six digits after the point.
    parts = ("X", "X_err", "y", "feature_names", *also)
    stored = StoredData(name, file, checksum, shape, prepare, 1e-6, names, arrays=parts, bundled=bundled)
    arrays, _, target, source = stored.load(data_home)
    X, error = (np.ascontiguousarray(arrays[name], dtype=np.float64) for name in ("X", "X_err"))
    return Bunch(
        data=X, error=np.where(np.isnan(X), np.inf, error), target=target,
        feature_names=[str(name) for name in arrays["feature_names"]], target_names=np.array(names), source=source,
        **{name: arrays[name] for name in also},
    )  # fmt: skip


def _rows_of(bunch: Bunch, mask: NDArray[np.bool_]) -> Bunch:
    """Return the samples of a mask, with every array that has one value for each sample."""
    per_sample = {
        key: value[mask] for key, value in bunch.items() if isinstance(value, np.ndarray) and len(value) == len(mask)
    }
    return Bunch(**{**bunch, **per_sample})


def _bundled_wdbc() -> Record:
    sklearn_bunch = datasets.load_breast_cancer()
    columns = list(sklearn_bunch.feature_names)
    names = [name.removeprefix("mean ") for name in columns if name.startswith("mean ")]
    return {
        "X": sklearn_bunch.data[:, [columns.index(f"mean {name}") for name in names]],
        "X_err": sklearn_bunch.data[:, [columns.index(f"{name} error") for name in names]],
        "y": 1 - sklearn_bunch.target,  # there malignant is 0
        "feature_names": names,
    }

"""Data sets in files: search for them, verify their checksums, and return them in the form that was asked for."""

import hashlib
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.utils import Bunch

from gaussguru import Measured
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import Directory, Labels, Record, Values

Arrays = Record


class DataNotFoundError(FileNotFoundError):
    """A data set is in none of the searched places."""


@dataclass(frozen=True)
class StoredData:
    """A data set, the places that may have it, and its checksum.

    Parameters
    ----------
    name : its name in messages
    file : name of the file in a data directory, without ``.npz``
    checksum : see :func:`checksum`
    shape : shape of X
    prepare : returns the values, (n_samples, any number), and the labels that the checksum covers, from the arrays
    unit : every value is a whole multiple of it
    classes : names of the classes, by label
    features : names of the features; () if the file has them
    arrays : names of the arrays of the file
    other_file : another file of the directory, and the function that reads its arrays
    bundled : returns the arrays of scikit-learn's copy
    openml : number of the data set on OpenML
    """

    name: str
    file: str
    checksum: str
    shape: tuple[int, int]
    prepare: Callable[[Arrays], tuple[Values, Labels]]
    unit: float
    classes: list[str]
    features: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ("X", "y")
    other_file: tuple[str, Callable[[Path], Arrays]] | None = None
    bundled: Callable[[], Arrays] | None = None
    openml: int | None = None

    def load(self, data_home: Directory) -> tuple[Arrays, Array, NDArray[np.int64], str]:
        """Return the arrays, the prepared values and labels, and their source; raise if the checksum differs."""
        arrays, source = self._find(data_home)
        try:
            values, labels = self.prepare(arrays)
            values, labels = np.ascontiguousarray(values, dtype=np.float64), np.asarray(labels).astype(np.int64)
            shape = np.shape(arrays["X"])
            digest = checksum(values, labels, self.unit) if shape == self.shape else f"none: X has shape {shape}"
        except (KeyError, ValueError, IndexError) as error:
            digest = f"none: {error}"
        if digest != self.checksum:
            raise ValueError(
                f"{source} is not the data set {self.name}: its checksum is {digest}, and that of the data set "
                f"{self.checksum}. Replace it, or remove it and another source is tried"
            )
        return arrays, values, labels, source

    def _find(self, data_home: Directory) -> tuple[Arrays, str]:
        """Return the arrays from the first place that has them, and this place."""
        directory = _data_directory(data_home)
        if directory is not None:
            path = directory / f"{self.file}.npz"
            if path.exists():
                try:
                    with np.load(path, allow_pickle=False) as file:
                        return {name: file[name] for name in self.arrays}, str(path)
                except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
                    message = f"{path} must be an .npz file with arrays {', '.join(self.arrays)}; it cannot be read"
                    raise ValueError(f"{message}: {error}") from error
            if self.other_file is not None and (path := directory / self.other_file[0]).exists():
                try:
                    return self.other_file[1](path), str(path)
                except (OSError, KeyError, ValueError) as error:
                    raise ValueError(f"{path} must hold {self.name}; it cannot be read: {error}") from error
        if self.bundled is not None:
            return self.bundled(), "scikit-learn"
        searched = f"there is no {self.file}.npz in {directory}" if directory else "no data directory is set"
        if self.openml is not None:
            try:
                return _from_openml(self.openml), f"OpenML {self.openml}"
            except (OSError, ValueError) as error:
                searched += f", and OpenML ({self.openml}) cannot be read: {error}"
        else:
            searched += ", and neither scikit-learn nor OpenML has it"
        files = f"{self.file}.npz with arrays {', '.join(self.arrays)}"
        files += f" or {self.other_file[0]}" if self.other_file is not None else ""
        raise DataNotFoundError(
            f"{self.name} was not found: {searched}. Put {files} ({self.shape[0]} samples of {self.shape[1]} features) "
            "into a directory and name it with data_home= or the environment variable GAUSSGURU_DATA"
        )


def _data_directory(data_home: Directory) -> Path | None:
    given = data_home or os.environ.get("GAUSSGURU_DATA")
    if not given:
        return None
    directory = Path(given).expanduser()
    if not directory.is_dir():
        name = "data_home" if data_home else "the environment variable GAUSSGURU_DATA"
        raise NotADirectoryError(f"{name} must name a directory; got {str(given)!r}, which is none")
    return directory


def _from_openml(number: int) -> Arrays:
    """Return X and y of an OpenML data set; names of categories replace their numbers."""
    bunch = datasets.fetch_openml(data_id=number, as_frame=False, parser="liac-arff")
    categories = bunch.get("categories") or {}
    columns = [
        np.asarray(categories[name])[column.astype(np.int64)] if name in categories else column
        for name, column in zip(bunch.feature_names, np.asarray(bunch.data).T, strict=True)
        if name.lower() != "instance_name"  # the name of a sample of splice, not a feature
    ]
    return {"X": np.column_stack(columns), "y": bunch.target}


def checksum(X: Array, y: NDArray[np.int64], unit: float) -> str:
    """Return the SHA-256 of samples and labels in any order; values are rounded to multiples of ``unit``."""
    rows = np.column_stack([np.rint(X / unit).astype("<i8"), y.astype("<i8")])
    return hashlib.sha256(b"".join(sorted(hashlib.sha256(row.tobytes()).digest() for row in rows))).hexdigest()


def in_form(bunch: Bunch, return_X_y: bool, as_frame: bool) -> Any:
    """Return a data set as a Bunch, or as X (with "error", a Measured) and y; as pandas tables if ``as_frame``."""
    if as_frame:
        import pandas as pd  # noqa: PLC0415 - optional

        for table in {"data", "error"} & set(bunch):
            bunch[table] = pd.DataFrame(bunch[table], columns=bunch.feature_names)
        bunch.target = pd.Series(bunch.target, name="target")
    if not return_X_y:
        return bunch
    return Measured(bunch.data, bunch.error) if "error" in bunch else bunch.data, bunch.target

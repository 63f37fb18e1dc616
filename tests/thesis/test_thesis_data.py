"""Toy problems, loaders and splits: what is promised of the data, where it is looked for, and what is refused."""

import numpy as np
import pytest
import sklearn.datasets
from scipy.io import savemat
from scipy.stats import norm
from sklearn.utils import Bunch
from support.data import _DIRECTORY

from gaussguru import thesis
from gaussguru.datasets import DataNotFoundError
from gaussguru.datasets.storage import checksum
from gaussguru.thesis.data import _LETTERS, _USPS

LOADERS = {
    "ionosphere": (thesis.load_ionosphere, (351, 34), [126, 225]),
    "pima": (thesis.load_pima, (768, 8), [500, 268]),
    "splice_nominal": (thesis.load_splice, (3190, 60), [767, 768, 1655]),
    "usps_all_11000": (thesis.load_usps, (11000, 256), [1100] * 10),
}
PRESENT = [name for name in LOADERS if (_DIRECTORY / f"{name}.npz").exists()]


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Leave nothing but what a test names: no directory, no OpenML."""
    monkeypatch.delenv("GAUSSGURU_DATA", raising=False)

    def refuse(**_):
        raise OSError("no network")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", refuse)


# --- toy problems -----------------------------------------------------------------------------------------

TOYS = [
    thesis.make_gaussians,
    thesis.make_narrow_gaussians,
    thesis.make_radial,
    thesis.make_gaussian_ring,
    lambda n=200, **options: thesis.make_gaussian_ring(n, n_classes=4, **options),
]


@pytest.mark.parametrize("make", TOYS)
def test_toys_are_seeded_and_of_the_size_asked_for(make):
    X, y = make(150, random_state=3)
    assert X.shape == (150, 2)
    assert y.shape == (150,)
    again, other = make(150, random_state=3), make(150, random_state=4)
    np.testing.assert_array_equal(X, again[0])
    assert not np.array_equal(X, other[0])
    with pytest.raises(ValueError, match="n_samples"):
        make(1)


@pytest.mark.parametrize(("n_classes", "expected"), [(3, 0.987), (4, 0.959)])
def test_the_ring_can_be_told_apart_as_well_as_promised(n_classes, expected):
    X, y = thesis.make_gaussian_ring(200_000, n_classes=n_classes, random_state=0)
    centres = np.array([X[y == label].mean(axis=0) for label in range(n_classes)])
    nearest = np.argmin(((X[:, np.newaxis] - centres) ** 2).sum(axis=2), axis=1)
    assert abs(np.mean(nearest == y) - expected) < 1.5e-3
    if n_classes == 4:  # two independent signs, each right with this probability
        assert abs(norm.cdf(2.88 / np.sqrt(2)) ** 2 - expected) < 1e-3


# --- loaders ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESENT)
def test_a_directory_is_looked_in_first(name, monkeypatch):
    load, shape, counts = LOADERS[name]
    bunch = load(data_home=_DIRECTORY)
    assert bunch.data.shape == shape == (len(bunch.target), len(bunch.feature_names))
    assert bunch.data.dtype == np.float64
    assert np.bincount(bunch.target).tolist() == counts
    assert len(bunch.target_names) == len(counts)
    assert bunch.source == str(_DIRECTORY / f"{name}.npz")
    monkeypatch.setenv("GAUSSGURU_DATA", str(_DIRECTORY))
    X, y = load(return_X_y=True)
    np.testing.assert_array_equal(X, bunch.data)
    np.testing.assert_array_equal(y, bunch.target)


def test_wine_is_scikit_learns_copy():
    bunch, own = thesis.load_wine(), sklearn.datasets.load_wine()
    np.testing.assert_array_equal(bunch.data, own.data)
    np.testing.assert_array_equal(bunch.target, own.target)
    assert bunch.feature_names == own.feature_names
    assert bunch.source == "scikit-learn"


@pytest.mark.skipif("usps_all_11000" not in PRESENT, reason="no USPS here")
def test_both_versions_of_usps_and_roweis_own_file(tmp_path):
    X, y = thesis.load_usps(data_home=_DIRECTORY, return_X_y=True)
    assert (X.min(), X.max()) == (0.0, 1.0)
    old, labels = thesis.load_usps(n_samples=9298, data_home=_DIRECTORY, return_X_y=True)
    assert np.bincount(labels).tolist() == [1553, 1269, 929, 824, 852, 716, 834, 792, 708, 821]
    assert old.min() >= 0
    assert old.max() <= 1
    # As Roweis stores them: pixels column by column, digits 1, 2, ..., 9, 0.
    blocks = [np.rint(255 * X[y == digit]).astype(np.uint8) for digit in (*range(1, 10), 0)]
    stored = np.stack([block.reshape(-1, 16, 16).transpose(0, 2, 1).reshape(-1, 256).T for block in blocks], axis=-1)
    savemat(tmp_path / "usps_all.mat", {"data": stored})
    again = thesis.load_usps(data_home=tmp_path)
    assert again.source.endswith("usps_all.mat")
    assert checksum(again.data, again.target, 1 / 255) == _USPS[11000].checksum


@pytest.mark.skipif("splice_nominal" not in PRESENT, reason="no splice here")
def test_codings_of_splice():
    numbers, _ = thesis.load_splice(data_home=_DIRECTORY, return_X_y=True)
    shares, _ = thesis.load_splice(coding="indicators", data_home=_DIRECTORY, return_X_y=True)
    assert shares.shape == (3190, 240)
    np.testing.assert_allclose(shares.reshape(3190, 60, 4).sum(axis=2), 1.0)
    np.testing.assert_allclose(shares.reshape(3190, 60, 4) @ [1, 2, 3, 4], numbers)
    with np.load(_DIRECTORY / "splice_nominal.npz") as file:
        letters = file["X"]
    for letter, value in {"A": 1, "G": 2, "C": 3, "T": 4, "N": 2.5, "R": 1.5, "S": 2.5, "D": 7 / 3}.items():
        np.testing.assert_allclose(numbers[letters == letter], value)
    with pytest.raises(ValueError, match=r"coding.*'numbers'.*'ordinal'|coding.*'ordinal'"):
        thesis.load_splice(coding="ordinal", data_home=_DIRECTORY)


def _from_openml(monkeypatch, bunch):
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", lambda **_: bunch)


@pytest.mark.skipif(len(PRESENT) < len(LOADERS), reason="not all data here")
def test_openml_is_asked_last_and_its_ways_are_undone(monkeypatch):
    """Its rows in another order, its own names of classes, categories as numbers, a column of names."""
    order = np.random.default_rng(0).permutation
    with np.load(_DIRECTORY / "ionosphere.npz") as file:
        X, y = file["X"], np.array(["b", "g"], dtype=object)[file["y"]]
    rows = order(len(y))
    names = [f"a{i}" for i in range(34)]
    _from_openml(monkeypatch, Bunch(data=X[rows], target=y[rows], feature_names=names, categories={}))
    bunch = thesis.load_ionosphere()
    assert bunch.source == "OpenML 59"
    np.testing.assert_array_equal(bunch.target, (y[rows] == "g").astype(int))

    with np.load(_DIRECTORY / "splice_nominal.npz") as file:
        X, y = file["X"], file["y"].astype(object)
    letters = sorted(_LETTERS)
    numbers = np.searchsorted(letters, X).astype(np.float64)
    data = np.column_stack([np.arange(len(y)), numbers])
    names = ["Instance_name", *(f"attribute_{i}" for i in range(1, 61))]
    categories = dict.fromkeys(names[1:], letters) | {"Instance_name": [f"n{i}" for i in range(len(y))]}
    _from_openml(monkeypatch, Bunch(data=data, target=y, feature_names=names, categories=categories))
    found, _ = thesis.load_splice(return_X_y=True)
    stored, _ = thesis.load_splice(data_home=_DIRECTORY, return_X_y=True)
    np.testing.assert_array_equal(found, stored)

    with np.load(_DIRECTORY / "usps_9298.npz") as file:
        X, y = 2 * file["X"].astype(np.float64) - 1, (file["y"] + 1).astype(str).astype(object)
    _from_openml(monkeypatch, Bunch(data=X, target=y, feature_names=[f"v{i}" for i in range(256)]))
    found, labels = thesis.load_usps(n_samples=9298, return_X_y=True)
    stored, expected = thesis.load_usps(n_samples=9298, data_home=_DIRECTORY, return_X_y=True)
    np.testing.assert_allclose(found, stored, atol=1e-6)
    np.testing.assert_array_equal(labels, expected)


def test_what_is_not_found_says_what_to_do(tmp_path, monkeypatch):
    with pytest.raises(
        DataNotFoundError, match=r"no data directory.*OpenML \(37\).*no network.*pima\.npz.*GAUSSGURU_DATA"
    ):
        thesis.load_pima()
    with pytest.raises(DataNotFoundError, match=r"no usps_all_11000\.npz in .*neither.*usps_all\.mat.*11000 samples"):
        thesis.load_usps(data_home=tmp_path)
    with pytest.raises(NotADirectoryError, match="data_home"):
        thesis.load_pima(data_home=tmp_path / "none")
    monkeypatch.setenv("GAUSSGURU_DATA", str(tmp_path / "none"))
    with pytest.raises(NotADirectoryError, match="GAUSSGURU_DATA"):
        thesis.load_wine()
    with pytest.raises(ValueError, match="9298"):
        thesis.load_usps(n_samples=7291, data_home=tmp_path)


@pytest.mark.parametrize("content", [b"", b"no data", "missing", "shape", "values", "labels", "words"])
def test_nothing_else_is_taken_for_a_data_set(tmp_path, content):
    path = tmp_path / "ionosphere.npz"
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((351, 34)), rng.integers(0, 2, 351)
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "missing":
        np.savez(path, X=X)
    elif content == "shape":
        np.savez(path, X=X[:300], y=y[:300])
    elif content == "labels":
        np.savez(path, X=X, y=np.array(["x"] * 351))
    elif content == "words":
        np.savez(path, X=X.astype("U8"), y=np.array(["g"] * 351))
    else:
        np.savez(path, X=X, y=y)
    with pytest.raises(ValueError, match=r"ionosphere\.npz (is not the data set ionosphere|must be an \.npz file)"):
        thesis.load_ionosphere(data_home=tmp_path)


def test_a_checksum_minds_values_and_labels_but_no_order():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 5, (30, 3)) / 4, rng.integers(0, 3, 30)
    rows = rng.permutation(30)
    assert checksum(X, y, 0.25) == checksum(X[rows] + 1e-9, y[rows], 0.25)
    assert checksum(X, y, 0.25) != checksum(X, np.roll(y, 1), 0.25)
    before = checksum(X, y, 0.25)
    X[4, 1] += 0.25
    assert checksum(X, y, 0.25) != before


def test_frames_have_the_names_of_the_features():
    X, y = thesis.load_wine(return_X_y=True, as_frame=True)
    bunch = thesis.load_wine()
    assert list(X.columns) == bunch.feature_names
    np.testing.assert_array_equal(X, bunch.data)
    np.testing.assert_array_equal(y, bunch.target)


# --- splits -----------------------------------------------------------------------------------------------


def test_splits_have_the_sizes_of_the_thesis_and_share_no_sample():
    X = np.arange(768, dtype=float)[:, np.newaxis]
    split = thesis.thesis_split("pima", X, X[:, 0], random_state=0)
    assert [len(part) for part in split] == [200, 200, 100, 100, 468, 468]
    assert len(np.unique(np.concatenate([split.y_train, split.y_valid, split.y_test]))) == 768
    again = thesis.thesis_split("pima", X, X[:, 0], random_state=0)
    np.testing.assert_array_equal(split.y_test, again.y_test)
    short = thesis.thesis_split("ionosphere", X[:351], X[:351, 0])  # one sample fewer than the thesis has
    assert len(short.y_test) == 151
    with pytest.raises(ValueError, match="768 samples in the thesis"):
        thesis.thesis_split("pima", X[:700], X[:700, 0])
    with pytest.raises(ValueError, match="name"):
        thesis.thesis_split("iris", X, X[:, 0])

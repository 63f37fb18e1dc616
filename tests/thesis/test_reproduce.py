"""The thesis's tables and figures: numbers as printed, choices by validation, and runs that outlive a kill."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.svm import SVC
from support.data import _DIRECTORY

from gaussguru import GuruClassifier
from gaussguru.datasets import DataNotFoundError
from gaussguru.thesis import reproduce, search
from gaussguru.thesis.figures import FIGURES, digits
from gaussguru.thesis.run import EXPERIMENTS
from gaussguru.thesis.search import FittedCandidate, Grids, choose
from gaussguru.thesis.store import Store, StoreError
from gaussguru.thesis.tables import BINARY, KERNEL, KERNELS, MULTICLASS

THESIS = Path(__file__).parents[3] / "shared" / "thesis.tex"
TABLES = {"binResults": BINARY, "kerResults": KERNEL, "multResults": MULTICLASS}


# --- what the thesis prints -------------------------------------------------------------------------------


def plain(name):
    return re.sub(r"[^a-z0-9]", "", name.lower())


@pytest.mark.skipif(not THESIS.exists(), reason="no thesis here")
@pytest.mark.parametrize("label", TABLES)
def test_numbers_are_those_of_the_thesis(label):
    text = THESIS.read_text(encoding="utf-8", errors="replace")
    table = re.findall(r"\\begin{table}(.*?)\\end{table}", text, flags=re.DOTALL)
    (rows,) = [each for each in table if label in each]
    printed = {}
    for line in rows.split("\\\\"):
        name, *cells = (cell.replace("\\hline", "").strip() for cell in line.split("&"))
        if cells and re.fullmatch(r"[\d.]+", cells[0]):
            printed[plain(name)] = tuple(float(cell) for cell in cells)
    ours = {plain(TABLES[label].problems[name].title): each for name, each in TABLES[label].printed.items()}
    ours = {name.replace("standardised", ""): each for name, each in ours.items()}
    assert ours == printed


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_tables_have_a_search_for_every_cell(table):
    assert set(table.repeats) == set(table.problems)
    assert set(table.printed) <= set(table.problems)
    assert {len(each) for each in table.printed.values()} == {len(table.theirs)}
    for quick in (False, True):
        cells = table.cells(quick)
        assert len({json.dumps(cell, sort_keys=True) for cell in cells}) == len(cells)
        assert [cell["seed"] for cell in cells] == sorted(cell["seed"] for cell in cells)
    assert set(KERNELS) == set(KERNEL.problems)


def test_grids_are_those_of_the_thesis():
    full, quick = Grids.of(False), Grids.of(True)
    assert (full.sigmas[0], full.sigmas[-1], len(full.sigmas)) == (2.0**20, 2.0**-20, 41)
    assert (full.rates[0], full.rates[-1], len(full.rates)) == (4.0**-10, 4.0**10, 21)
    assert (full.penalties[0], full.penalties[-1], len(full.penalties)) == (4.0**-15, 4.0**15, 31)
    for name in ("sigmas", "coarse_sigmas", "rates", "penalties"):
        assert set(getattr(quick, name)) < set(getattr(full, name))


# --- choices ----------------------------------------------------------------------------------------------


def tiny(seed=0):
    return BINARY.problems["toy-a"].parts(seed)


def test_the_first_of_the_best_on_validation_is_tested():
    split = tiny()
    constant = [FittedCandidate({"k": k}, lambda X, k=k: np.full(len(X), k)) for k in (1, -1, 1)]
    rule = [FittedCandidate({"k": k}, lambda X: np.where(X[:, 0] > 0, 1, -1), converged=k == 4) for k in (3, 4)]
    result = choose(iter([*constant, *rule]), split, seed=0)
    assert result["chosen"] == [{"k": 3}]
    assert result["converged"] == [False]
    assert result["test"] == [np.mean(np.where(split.X_test[:, 0] > 0, 1, -1) == split.y_test)]
    assert (result["candidates"], result["unconverged"]) == (5, 1)


def test_noise_is_uniform_on_validation_and_test_and_the_same_for_every_method():
    split, seen = tiny(), []

    def predict(X):
        seen.append(X.copy())
        return np.ones(len(X))

    for _ in range(2):
        choose(iter([FittedCandidate({}, predict)]), split, seed=5, noise_levels=(0.0, 2.0))
    np.testing.assert_array_equal(seen[0], split.X_valid)
    for first, second in zip(seen[:4], seen[4:], strict=True):
        np.testing.assert_array_equal(first, second)
    noise = np.concatenate([seen[2] - split.X_valid, seen[3] - split.X_test])
    assert np.abs(noise).max() <= 2
    assert abs(noise.std() - 2 / np.sqrt(3)) < 0.1


def test_candidates_are_the_classifiers_they_say():
    split, grids = tiny(), replace(Grids.of(True), sigmas=np.array([2.0, 0.5]), penalties=np.array([0.1, 10.0]))
    for candidate in search.exact(split, grids):
        model = GuruClassifier(candidate.parameters["sigma"]).fit(split.X_train, split.y_train)
        np.testing.assert_array_equal(candidate.predict(split.X_test), model.predict(split.X_test))
    for candidate in search.linear_svm(split, grids):
        model = SVC(kernel="linear", C=candidate.parameters["C"]).fit(split.X_train, split.y_train)
        np.testing.assert_array_equal(candidate.predict(split.X_test), model.predict(split.X_test))
    small = replace(grids, coarse_sigmas=np.array([1.0]), rates=np.array([0.25]))
    (found,) = search.stochastic("sgd")(split, small)
    assert found.parameters == {"sigma": 1.0, "eta0": 0.25}
    assert np.mean(found.predict(split.X_test) == split.y_test) > 0.85
    kernel = {"kernel": "rbf", "gamma": 0.5}
    for make in (search.kernel_exact, search.kernel_stochastic, search.kernel_svm):
        for candidate in make(**kernel)(split, small):
            assert set(np.unique(candidate.predict(split.X_test))) <= {-1, 1}
    three = MULTICLASS.problems["toy-3"].parts(0)
    for candidate in search.joint_svm(three, grids):
        assert np.mean(candidate.predict(three.X_test) == three.y_test) > 0.9


def test_what_is_not_proven_or_was_given_up_is_said(monkeypatch):
    three, grids = MULTICLASS.problems["toy-3"].parts(0), replace(Grids.of(True), sigmas=np.array([1.0, 0.5]))
    monkeypatch.setattr(search, "TOL", 1e-300)
    assert [each.converged for each in search.exact(three, grids)] == [False, False]
    monkeypatch.setattr(search, "LIBLINEAR_PASSES", 0)  # all of them seem to have been given up
    assert [each.converged for each in search.joint_svm(three, grids)] == [False] * search.GIVEN_UP


def test_problems_are_split_seeded_and_scaled_by_their_training_part():
    one, again, other = (BINARY.problems["toy-b"].parts(seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.X_test, again.X_test)
    assert not np.array_equal(one.X_test, other.X_test)
    wine = MULTICLASS.problems["wine-standardised"].parts(0)
    np.testing.assert_allclose(wine.X_train.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(wine.X_train.std(axis=0), 1)
    assert np.abs(wine.X_test.mean(axis=0)).max() > 1e-3


# --- results that last ------------------------------------------------------------------------------------


def test_a_store_keeps_what_it_was_given(tmp_path):
    path = tmp_path / "deep" / "results.jsonl"
    with Store(path) as store:
        store.add({"a": 1, "b": "x"}, {"test": [0.1 + 0.2]}, seconds=1.0)
        store.add({"a": 2}, None)
        assert {"b": "x", "a": 1} in store
        with pytest.raises(StoreError, match="another process"):
            Store(path)
    with Store(path) as store:
        assert len(store) == 2
        assert store[{"b": "x", "a": 1}] == {"test": [0.1 + 0.2]}
        assert {"a": 3} not in store
        with pytest.raises(ValueError, match="JSON compliant"):
            store.add({"a": 3}, float("nan"))
    assert len(path.read_text().splitlines()) == 2


def test_a_line_cut_off_is_dropped_and_the_rest_is_kept(tmp_path):
    path = tmp_path / "results.jsonl"
    with Store(path) as store:
        for number in range(3):
            store.add({"n": number}, number)
    whole = path.read_bytes()
    ends = [place for place, letter in enumerate(whole) if letter == ord("\n")]
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with Store(path) as store:
            assert len(store) == sum(end < cut for end in ends)
            store.add({"n": 9}, "new")
        with Store(path) as store:
            assert store[{"n": 9}] == "new"
    path.write_bytes(whole + b"{}\n")
    with pytest.raises(StoreError, match=r"line 4 .*remove the line"):
        Store(path)


# --- runs -------------------------------------------------------------------------------------------------

SCRIPT = """
import sys
from gaussguru.thesis import reproduce
reproduce(["variants"], output=sys.argv[1], quick=True, n_jobs=2)
"""


def lines(path):
    return path.read_bytes().splitlines() if path.exists() else []


def without_time(line):
    return {name: part for name, part in json.loads(line).items() if name != "seconds"}


def test_a_killed_run_goes_on_where_it_was(tmp_path):
    """Killed with SIGKILL, whole group, at two moments: the same results at the end, each line written once."""
    path = tmp_path / "killed" / "results.jsonl"
    for wanted in (1, 3):
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path.parent)], start_new_session=True)
        while len(lines(path)) < wanted and process.poll() is None:
            time.sleep(0.01)
        before = [line for line in lines(path) if line.endswith(b"}")]
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert not (path.parent / "quick").exists()
    said = []
    reproduce(["variants"], output=path.parent, quick=True, n_jobs=1, tell=said.append)
    after = lines(path)
    assert after[: len(before)] == before  # nothing that was there was computed again
    assert said[0].reused >= len(before) >= 3
    assert len({json.dumps(without_time(line)["key"], sort_keys=True) for line in after}) == len(after)
    reproduce(["variants"], output=tmp_path / "whole", quick=True, n_jobs=1)
    order = lambda line: json.dumps(line, sort_keys=True)  # noqa: E731
    whole = lines(tmp_path / "whole" / "results.jsonl")
    assert sorted(map(without_time, after), key=order) == sorted(map(without_time, whole), key=order)
    again = []
    reproduce(["variants"], output=path.parent, quick=True, n_jobs=1, tell=again.append)
    assert lines(path) == after
    assert again[0].reused == len(after)
    assert (path.parent / "quick" / "variants.png").stat().st_size > 1000


def test_a_table_shows_mean_and_standard_error_beside_the_thesis(tmp_path):
    with Store(tmp_path / "results.jsonl") as store:
        empty = BINARY.table(store, quick=True)
        assert empty.rows[0] == ["Toy (a)", "92.5", "92.5", "-", "-", "-", "0"]
        for cell in BINARY.cells(True, ["toy-a"]):
            levels = 11 if cell["method"] in BINARY.noisy else 1
            cut_off = cell["method"] == "GURU (sgd)" and cell["seed"] == 1
            store.add(cell, {"test": [0.9 + 0.02 * cell["seed"]] * levels, "converged": [not cut_off] * levels})
        table = BINARY.table(store, quick=True)
    assert table.rows[0] == ["Toy (a)", "92.5", "92.5", "91.00 ± 1.00", "91.00 ± 1.00 *", "91.00 ± 1.00", "2"]
    assert table.columns == ["", "thesis GURU", "thesis SVM", "GURU (exact)", "GURU (sgd)", "SVM", "seeds"]
    text = table.markdown().splitlines()
    assert text[0].startswith("### ")
    assert {line.count("|") for line in text[2:-2]} == {8}
    assert text[-1].startswith("\\* for some seeds")


def test_names_and_data_are_checked_before_work(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"names.*'figure-1'"):
        reproduce(["figure-1"], output=tmp_path)
    assert not list(tmp_path.iterdir())
    monkeypatch.delenv("GAUSSGURU_DATA", raising=False)
    with pytest.raises(DataNotFoundError, match="usps_all_11000"):
        reproduce(["variants", "digits"], output=tmp_path / "new", data_home=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", FIGURES)
def test_figures_need_no_data_and_say_what_their_axes_are(name, tmp_path):
    figure = FIGURES[name]()
    for ax in figure.axes:
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        assert ax.get_title() or figure.get_suptitle()
    figure.savefig(tmp_path / "figure.png")


@pytest.mark.skipif(not (_DIRECTORY / "usps_all_11000.npz").exists(), reason="no USPS here")
def test_digits_of_the_adversary():
    figure = digits(_DIRECTORY)
    assert [ax.get_title() for ax in figure.axes] == ["USPS 3 vs. 5", "USPS 5 vs. 8", "USPS 7 vs. 9"]
    taken = {text.get_text() for text in figure.axes[0].texts}
    assert taken == {"3", "5"}


def test_every_experiment_has_a_title_and_something_to_show():
    for name, experiment in EXPERIMENTS.items():
        assert re.fullmatch(r"[a-z-]+", name)
        assert experiment.title
        assert experiment.table or experiment.draw
    assert {"binary", "kernel", "multiclass"} < set(EXPERIMENTS)

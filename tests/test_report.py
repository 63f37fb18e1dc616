"""Reports are whole pages, stand alone, and say what the library computes."""

import base64
import hashlib
import json
import re
import warnings
from html.parser import HTMLParser
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, confusion_matrix, log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, PowerTransformer, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from gaussguru import (
    ErrorBarClassifier,
    GuruClassifier,
    GuruClassifierCV,
    KernelGuruClassifier,
    PopulationClassifier,
)
from gaussguru._measured.under_noise import with_larger_errors
from gaussguru.calibration import CalibratedWithErrorsCV
from gaussguru.errors import Limits, LowRank, Measured
from gaussguru.inspection import coefficients, feature_importance
from gaussguru.plotting import RobustnessCurveDisplay, style
from gaussguru.population import Deconvolve, predictive_of_errors
from gaussguru.preprocessing import WithErrors
from gaussguru.report import evaluation_report, model_card
from gaussguru.report.card import data_hash
from gaussguru.report.page import Report, new_axes
from gaussguru.report.reliability import by_error_size, draw_reliability, error_sizes, kappa_in_words
from gaussguru.robustness import (
    certified_radius,
    expected_accuracy,
    flip_probability,
    remeasure_gain,
)

mpl.use("Agg")
HOSTILE = """<script>alert("x")</script>&'"><img src=x onerror=alert(1)>"""
VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """What a page consists of; raises where tags do not match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.tables, self.headings = [], [], [], [], []
        self.texts, self.paragraphs, self.captions = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("th", "td"):
            self.tables[-1][-1].append("")
        if tag == "h2":
            self.headings.append("")
        if tag == "p":
            self.texts.append("")
        if tag == "figcaption":
            self.captions.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag == "p" and self.headings:
            self.paragraphs.append((self.headings[-1], self.texts[-1]))

    def handle_data(self, data):
        if {"th", "td"} & set(self.open):
            self.tables[-1][-1][-1] += data
        if self.open and self.open[-1] == "h2":
            self.headings[-1] += data
        if self.open and self.open[-1] == "p":
            self.texts[-1] += data
        if self.open and self.open[-1] == "figcaption":
            self.captions[-1] += data

    def table(self, *names):
        """Return the rows of the table whose header begins with these names."""
        (found,) = (table for table in self.tables if table[0][: len(names)] == list(names))
        return found[1:]


def drawings(text):
    return [base64.b64decode(code).decode() for code in re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', text)]


def check_alone(text):
    """Check that a page asks for nothing else and runs nothing."""
    page = Page(text)
    assert not {"script", "link", "iframe", "object", "base", "a"} & set(page.tags)
    for name, value in page.attributes:
        assert not name.startswith("on")
        assert name != "href"
        assert name != "src" or value.startswith("data:image/svg+xml;base64,")
    assert "http" not in text
    assert "url(" not in text
    assert "@import" not in text
    for drawing in drawings(text):
        assert "<svg" in drawing
        assert "<script" not in drawing
        # A drawing refers to its own parts, and names its languages.
        assert all(link.startswith("#") for link in re.findall(r'xlink:href="([^"]*)"', drawing))
    return page


def figure():
    ax = new_axes()
    ax.plot([0, 1], [1, 0])
    return ax


def test_page_is_whole_and_deterministic():
    def made():
        report = Report("Title", date="2026-01-02")
        report.heading("First").text("Some text.").table(["a", "b"], [["x", 1.23456], ["y", None]], caption="Numbers")
        return report.figure(figure(), caption="A line").card({"group": {"name": True, "list": [1, 2]}}).html()

    page = check_alone(made())
    assert made() == made()
    assert page.tags.count("html") == page.tags.count("h1") == 1
    assert page.tables[0] == [["a", "b"], ["x", "1.235"], ["y", "n/a"]]
    assert page.tables[1] == [["group"], ["name", "yes"], ["list", "1, 2"]]
    assert ("alt", "A line") in page.attributes
    assert "2026-01-02" in made()


def test_everything_is_escaped():
    report = Report(HOSTILE, date=HOSTILE).heading(HOSTILE).text(HOSTILE)
    report.table([HOSTILE, "b"], [[HOSTILE, 1]], caption=HOSTILE).figure(figure(), caption=HOSTILE, alt=HOSTILE)
    report.card({HOSTILE: {HOSTILE: HOSTILE, "map": {HOSTILE: HOSTILE}, "list": [HOSTILE]}})
    page = check_alone(report.html())
    assert page.tags.count("img") == 1
    assert page.headings == [HOSTILE]
    assert page.tables[0] == [[HOSTILE, "b"], [HOSTILE, "1"]]
    assert ("alt", HOSTILE) in page.attributes


def test_numbers_are_aligned_column_by_column():
    text = (
        Report("")
        .table(["name", "number", "share", "text"], [["a", 1, "50.00 %", "5 %"], ["b", 2.5, None, "c"]])
        .html()
    )
    assert '<th scope="col" class="number">number</th><th scope="col" class="number">share</th>' in text
    assert '<th scope="col">name</th>' in text
    assert '<th scope="col">text</th>' in text
    assert Page(Report("").table(["a", "b"], []).html()).tables == [[["a", "b"]]]
    with pytest.raises(ValueError, match="zip"):
        Report("").table(["a"], [["b", "c"]])


def test_saving_is_all_or_nothing(tmp_path):
    path = tmp_path / "report.html"
    assert Report("one", date="now").save(path) == path
    before = path.read_text()
    broken = Report("two")
    broken._parts.append(None)
    with pytest.raises(TypeError):
        broken.save(str(path))
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError):
        Report("three").save(tmp_path / "none" / "report.html")


def test_figures_may_be_displays_axes_or_figures():
    shown = RobustnessCurveDisplay(np.arange(2.0), np.ones(2), np.zeros(2)).plot(figure())
    texts = [Report("", date="").figure(each).html() for each in (figure(), figure().figure)]
    assert texts[0] == texts[1]
    assert len(drawings(Report("").figure(shown).html())) == 1


def test_hash_is_that_of_the_values():
    X, y = np.arange(6.0).reshape(3, 2), np.array(["a", "b", "a"])
    code = data_hash(X, y)
    assert code == data_hash(X.astype(np.float32), y.tolist())
    assert code == data_hash(np.asfortranarray(X), y)
    assert code == data_hash(X.tolist(), y)
    text = b"X:(3, 2);" + X.astype("<f8").tobytes() + b"names:y:(3,);1:a\x001:b\x001:aX_err:"
    assert code == hashlib.sha256(text).hexdigest()
    frame = pd.DataFrame(X, columns=["p", "q"])
    different = [
        data_hash(X + 1e-12, y),
        data_hash(X, y[::-1][[0, 2, 1]]),
        data_hash(X.reshape(2, 3), y),
        data_hash(frame, y),
        data_hash(frame.rename(columns={"p": "r"}), y),
        data_hash(sp.csr_array(X), y),
        data_hash(X, y, np.ones(3)),
        data_hash(X, y, np.ones((3, 2))),
        data_hash(X, y, Limits(np.ones((3, 2)), np.zeros((3, 2)))),
        data_hash(X, y, Limits(np.ones((3, 2)), np.ones((3, 2)))),
        data_hash(X, y, LowRank(np.ones((3, 2, 1)))),
        data_hash(X, y, LowRank(np.ones((3, 2, 1)), np.ones(3))),
        data_hash(np.array([["u", "v"]] * 3), y),
        code,
    ]
    assert len(set(different)) == len(different)
    shuffled = sp.csr_array((np.array([1.0, 2.0]), np.array([1, 0]), np.array([0, 2])), shape=(1, 2))
    assert data_hash(shuffled, [1]) == data_hash(sp.csr_array(np.array([[2.0, 1.0]])), [1])
    assert not shuffled.has_sorted_indices  # left as it was


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    return X.iloc[:, :10], np.array(["malignant", "benign"])[y]


def test_card_of_a_pipeline(cancer):
    X, y = cancer
    model = make_pipeline(StandardScaler(), GuruClassifierCV([0.1, 1.0], cv=3)).fit(X, y)
    card = model_card(model, X, y)
    assert json.loads(json.dumps(card)) == card
    final = model[-1]
    assert card["model"]["steps"] == "StandardScaler → GuruClassifierCV"
    assert card["model"]["sigma"] == final.sigma_
    assert card["model"]["classes"] == ["benign", "malignant"]
    assert card["certificate"] == {
        "objective": final.objective_, "duality gap": final.dual_gap_, "converged": True, "iterations": final.n_iter_,
    }  # fmt: skip
    assert card["data of the evaluation"]["samples"] == len(y)
    assert card["data of the evaluation"]["samples by class"] == {
        "benign": int(np.sum(y == "benign")),
        "malignant": int(np.sum(y != "benign")),
    }
    assert card["data of the evaluation"]["feature names"] == list(X.columns)
    assert card["data of the evaluation"]["sha256 of the values"] == data_hash(X, y)
    assert card["software"]["numpy"] == np.__version__
    search = GridSearchCV(model, {"guruclassifiercv__l2": [0.0]}).fit(X, y)
    assert model_card(search, X, y)["certificate"].keys() == card["certificate"].keys()
    assert "certificate" not in model_card(LogisticRegression(max_iter=5000).fit(X, y), X, y)


def test_card_says_when_a_fit_did_not_converge(cancer):
    X, y = cancer
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make_pipeline(StandardScaler(), GuruClassifier(0.1, max_iter=1)).fit(X, y)
    assert model_card(model, X, y)["certificate"]["converged"] is False
    page = check_alone(evaluation_report(model, X, y).html())
    assert any("did not reach the requested tolerance" in text for text in page.texts)


def test_evaluation_says_what_the_library_computes(cancer, tmp_path):
    X, y = cancer
    model = make_pipeline(StandardScaler(), GuruClassifierCV([0.1, 0.5, 2.0], cv=3)).fit(X[::2], y[::2])
    X, y = X[1::2], y[1::2]
    report = evaluation_report(model, X, y, title=HOSTILE, date="2026-01-01")
    page = check_alone(report.save(tmp_path / "a.html").read_text())
    assert report.html() == evaluation_report(model, X, y, title=HOSTILE, date="2026-01-01").html()
    assert page.headings == [
        "Accuracy", "Confusion matrix", "Weights of the features", "Accuracy under noise", "Doubtful predictions",
        "Choice of the noise level", "Certificate", "Model card",
    ]  # fmt: skip
    shares = {row[0]: row[1] for row in page.table("", "model")}
    assert shares["accuracy"] == f"{100 * model.score(X, y):.2f} %"
    shares_of_classes = {row[0]: row[2] for row in page.table("", "model")}
    assert shares_of_classes["accuracy"] == f"{100 * max(np.mean(y == 'benign'), np.mean(y != 'benign')):.2f} %"
    assert page.texts[1].startswith(f"Better than the class frequencies: accuracy {model.score(X, y):.2f} against ")
    assert float(shares["AUC"]) == pytest.approx(roc_auc_score(y, model.decision_function(X)), abs=1e-4)
    weights = {row[0]: float(row[1]) for row in page.table("feature", "weight")}
    for name, weight in weights.items():
        j = list(X.columns).index(name)
        spread = model[0].transform(X)[:, j].std()
        assert weight == pytest.approx(model[1].coef_[0, j] * spread, rel=1e-3)
    assert len(weights) == X.shape[1]
    assert shares["expected accuracy"] == f"{100 * expected_accuracy(model, X, y):.2f} %"
    counts = [[int(cell) for cell in row[1:3]] for row in page.table("true class")]
    np.testing.assert_array_equal(counts, confusion_matrix(y, model.predict(X)))
    curve = {float(row[0]): row[1] for row in page.table("noise level")}
    spread = np.broadcast_to(X.std(ddof=0).to_numpy(), X.shape)
    assert curve[0.0] == shares["accuracy"]
    assert curve[1.0] == f"{100 * expected_accuracy(model, X, y, X_err=spread):.2f} %"
    scaled = model[0].transform(X)
    flips = flip_probability(model, X)
    radius = np.abs(scaled @ model[1].coef_[0] + model[1].intercept_) / np.linalg.norm(model[1].coef_)
    groups = page.table("probability of a change")
    assert [int(row[1]) for row in groups] == np.histogram(flips, [0, 0.001, 0.01, 0.1, 0.25, 1.0])[0].tolist()
    for row in page.table("index"):  # that of the table, where it is not 0, 1, 2, ...
        i = X.index.get_loc(int(row[0]))
        assert row[3] == f"{100 * flips[i]:.2f} %"
        assert row[4] == f"{radius[i]:.4g}"
        assert row[1:3] == [model.predict(X)[i], y[i]]
    assert len(drawings(report.html())) == 2
    assert "distances are in units of the transformed features" in report.html()
    plain = check_alone(evaluation_report(model, X.reset_index(drop=True), y).html())
    assert [X.index[int(row[0]) - 1] for row in plain.table("row")] == [int(row[0]) for row in page.table("index")]


def test_evaluation_with_error_bars_and_what_was_not_measured(cancer):
    X, y = cancer
    X = X.to_numpy().copy()
    X_err = 0.3 * X.std(axis=0) * np.ones_like(X)
    X_err[3, 1], X[3, 1] = np.inf, np.nan
    model = make_pipeline(WithErrors(StandardScaler()), GuruClassifier(0.1)).fit(Measured(X, X_err), y)
    report = evaluation_report(model, X, y, X_err)
    page = check_alone(report.html())
    assert report._parts == evaluation_report(model, Measured(X, X_err), y)._parts
    shares = {row[0]: row[1] for row in page.table("", "model")}
    assert shares["expected accuracy"] == f"{100 * expected_accuracy(model, X, y, X_err=X_err):.2f} %"
    curve = {float(row[0]): row[1] for row in page.table("noise level")}
    assert curve[1.0] == shares["expected accuracy"]
    assert "Left out" not in page.headings


def measurements(n=300, n_classes=2, selected=False):
    """Return measured values with a name for each feature, true errors, and labels; errors may depend on these."""
    rng = np.random.default_rng(0)
    k = np.arange(n) % n_classes
    E = rng.uniform(0.1, 1.5, (n, 3)) * (1 + 2 * k[:, np.newaxis] * selected) * [1.0, 0.1, 2.0]
    X = rng.standard_normal((n, 3)) + 2 * np.eye(3)[k] + E * rng.standard_normal((n, 3))
    return pd.DataFrame(X, columns=["alpha", "beta", "gamma"]), E, np.array(["no", "yes", "perhaps"])[k]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_evaluation_of_measurements_says_what_the_library_computes(n_classes):
    X, E, y = measurements(n_classes=n_classes)
    X.iloc[4, 1] = np.nan
    model = ErrorBarClassifier(model="linear", cv=3).fit(X, y, X_err=E)
    report = evaluation_report(model, X, y, E, title=HOSTILE, date="2026-01-01", remeasure=0.25)
    page = check_alone(report.html())
    assert report.html() == evaluation_report(model, Measured(X, E), y, title=HOSTILE, date="2026-01-01",
                                              remeasure=0.25).html()  # fmt: skip
    assert page.headings == [
        "Accuracy", "Confusion matrix", "Weights of the features", "Population and reliability", "Probabilities",
        "Accuracy with larger errors",
        "Measure these again", "Doubtful predictions",
        "Model card", "Left out",
    ]  # fmt: skip
    expected = model.predict_proba(X, E)
    shares = {row[0]: row[1] for row in page.table("", "model")}
    assert shares["accuracy"] == f"{100 * model.score(X, y, X_err=E):.2f} %"
    assert shares["expected accuracy"] == f"{100 * expected.max(axis=1).mean():.2f} %"
    # The least reliable feature has the largest errors, and one value of another was not measured.
    rows = page.table("feature", "reliability")
    assert [row[0] for row in rows] == ["gamma", "alpha", "beta"]
    reliability = model.population_.reliability(X.to_numpy(), np.where(np.isnan(X), np.inf, E))
    assert [float(row[1]) for row in rows] == pytest.approx(np.sort(reliability), abs=6e-4)
    assert [row[2] for row in rows] == ["0.00 %", "0.00 %", "0.33 %"]
    area = predictive_of_errors(np.where(np.isnan(X), np.inf, E), y)
    assert any(f"ROC curve of {area:.3f}" in text and "Warning" not in text for text in page.texts)
    assert float(shares["log loss"]) == pytest.approx(log_loss(y, expected), abs=6e-5)
    truth, chance = (y == "yes", expected[:, 1]) if n_classes == 2 else (y, expected)
    assert float(shares["Brier score"]) == pytest.approx(brier_score_loss(truth, chance), abs=6e-5)
    rows = page.table("errors", "samples")
    assert [row[0] for row in rows] == ["small", "medium", "large"]
    assert [int(row[1]) for row in rows] == [100] * 3
    right = model.predict(X, E) == y
    _, spread = model.margin_and_spread(X, E)
    order = np.argsort(spread if n_classes == 2 else np.square(spread).sum(axis=1))
    for row, part in zip(rows, np.array_split(order, 3), strict=True):
        assert row[3:5] == [f"{100 * expected.max(axis=1)[part].mean():.2f} %", f"{100 * right[part].mean():.2f} %"]
    known = np.where(np.isnan(X), np.inf, E)
    better = np.where(np.isinf(known), np.inf, 0.25 * E)
    gain = remeasure_gain(model, X, known, better)
    each = remeasure_gain(model, X, known, better, per_feature=True)
    rows = page.table("row", "predicted", "true", "probability", "gain")
    assert [int(row[0]) - 1 for row in rows] == np.argsort(-gain, kind="stable")[:10].tolist()
    for row in rows:
        i = int(row[0]) - 1
        assert row[1:5] == [
            model.predict(X, E)[i], y[i], f"{100 * expected[i].max():.2f} %", f"{100 * gain[i]:.2f} %"
        ]  # fmt: skip
        assert row[5:] == [X.columns[np.argmax(each[i])], f"{100 * each[i].max():.2f} %"]
    assert len(drawings(report.html())) == 3


def test_errors_that_depend_on_the_class_are_a_warning():
    X, E, y = measurements(selected=True)
    model = ErrorBarClassifier(model="linear", cv=3).fit(X, y, X_err=E)
    page = check_alone(evaluation_report(model, X, y, E).html())
    (warned,) = (text for text in page.texts if "Warning: the errors depend on the class" in text)
    assert float(re.search(r"ROC curve of (\d\.\d+)", warned)[1]) > 0.75


def test_evaluation_of_calibrated_pipelines_and_of_exact_values():
    X, E, y = measurements()
    around = make_pipeline(WithErrors(StandardScaler()), Deconvolve(), CalibratedWithErrorsCV(GuruClassifier(0.3)))
    inside = CalibratedWithErrorsCV(make_pipeline(Deconvolve(), GuruClassifier(0.3)))
    shares = []
    for model in (around, inside):
        model.fit(Measured(X, E), y)
        page = check_alone(evaluation_report(model, X, y, E, noise_levels=[1.0]).html())
        assert page.headings[2:5] == ["Weights of the features", "Population and reliability", "Probabilities"]
        weights = [float(row[1]) for row in page.table("feature", "weight")]
        np.testing.assert_allclose(
            sorted(np.abs(weights)), sorted(np.abs(coefficients(model, Measured(X, E)).per_spread[0])), rtol=1e-3
        )
        shares.append([(row[0], float(row[1])) for row in page.table("feature", "reliability")])
    # Scaling changes no reliability.
    assert [name for name, _ in shares[0]] == [name for name, _ in shares[1]]
    assert [share for _, share in shares[0]] == pytest.approx([share for _, share in shares[1]], abs=2e-3)
    plain = CalibratedWithErrorsCV(GuruClassifier(0.3)).fit(X, y, X_err=E)
    page = check_alone(evaluation_report(plain, X, y, LowRank(np.ones((300, 3, 1)), E)).html())
    assert "without a population" in left_out(page)["Population and reliability"]
    assert "standard deviations" in left_out(page)["Measure these again"]
    exact = ErrorBarClassifier(model="linear", cv=3).fit(X, y)
    page = check_alone(evaluation_report(exact, X, y).html())
    assert [row[0] for row in page.table("errors", "samples")] == ["all"]
    assert any("The fit had no error bars." in text for text in page.texts)
    assert "these samples have none" in left_out(page)["Error bars"]
    for bad in (-0.1, 1.5, np.nan):
        with pytest.raises(ValueError, match="remeasure"):
            evaluation_report(exact, X, y, remeasure=bad)
    with pytest.raises(ValueError, match="noise_levels must be 1 or more"):
        evaluation_report(inside, X, y, E, noise_levels=[0.5])
    with pytest.raises(ValueError, match="y must hold labels among"):
        evaluation_report(inside, X, np.where(y == "no", "never", y), E)


@pytest.mark.parametrize(
    "model",
    [
        ErrorBarClassifier(n_components=1, cv=2),
        ErrorBarClassifier(DecisionTreeClassifier(max_depth=2), model="boosting", n_components=1, cv=2),
        PopulationClassifier(1),
    ],
    ids=["pool", "given", "populations"],
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_evaluation_of_probabilities_without_a_score(model, n_classes):
    X, E, y = measurements(n=90, n_classes=n_classes)
    X.iloc[4, 1] = np.nan
    model = clone(model).fit(X, y, X_err=E)
    report = evaluation_report(model, X, y, E, noise_levels=[1.0, 2.0])
    page = check_alone(report.html())
    expected = model.predict_proba(X, E)
    shares = {row[0]: row[1] for row in page.table("", "model")}
    assert shares["accuracy"] == f"{100 * model.score(X, y, X_err=E):.2f} %"
    assert shares["expected accuracy"] == f"{100 * expected.max(axis=1).mean():.2f} %"
    assert float(shares["log loss"]) == pytest.approx(log_loss(y, expected), abs=6e-5)
    assert [row[0] for row in page.table("errors", "samples")] == ["small", "medium", "large"]
    assert page.table("noise level", "accuracy")[0][1] == shares["accuracy"]
    importance = feature_importance(model, X, y, E)
    order = np.argsort(-importance.importance, kind="stable")
    assert [row[:2] for row in page.table("feature", "rise of log loss")] == [
        [X.columns[j], f"{importance.importance[j]:.4f}"] for j in order
    ]
    pooled = isinstance(model, ErrorBarClassifier)
    if pooled:
        gain = remeasure_gain(model, X, np.where(np.isnan(X), np.inf, E), np.where(np.isnan(X), np.inf, 0.5 * E))
        rows = page.table("row", "predicted", "true", "probability", "gain")
        assert [int(row[0]) - 1 for row in rows] == np.argsort(-gain, kind="stable")[:10].tolist()
    else:
        reason = left_out(page)["Measure these again"]
        assert "spread" in reason or "decision_function" in reason
    assert ("Members of the pool" in page.headings) == pooled
    if pooled:
        scores = model.cv_scores_
        losses = {row[0]: row[2] for row in page.table("on held-out samples", "weight")}
        for name, loss in zip(scores["member"], scores["log_loss"], strict=True):
            shown = {"pool": "the pool", "errors ignored": "boosting, errors ignored",
                     "error sizes used": "boosting, error sizes used"}.get(name, name)  # fmt: skip
            assert losses[shown] == f"{loss:.4f}"
        card = model_card(model, X, y, E)["model"]
        assert list(card["members and weights"]) == list(model.members_)
        assert card["log loss on held-out samples"]["pool"] == pytest.approx(scores["log_loss"][-2], abs=1e-4)
    # Sizes: 0 of exact values, 1 of samples without any.
    errors = np.where(np.isnan(X), np.inf, E)
    errors[:2] = [[0.0] * 3, [np.inf] * 3]
    variances = np.array([X.to_numpy()[np.isfinite(errors[:, j]), j].var() for j in range(3)])
    variances = np.square(model.scale_) if pooled else variances
    finite = np.where(np.isinf(errors), 0.0, errors)
    parts = np.where(np.isinf(errors), 1.0, finite**2 / (finite**2 + variances))
    sizes = error_sizes(model, X, errors)
    np.testing.assert_allclose(sizes, np.sqrt(parts.mean(axis=1)))
    np.testing.assert_array_equal(sizes[:2], [0.0, 1.0])
    assert not error_sizes(model, X).any()


@pytest.mark.parametrize("steps", [(Deconvolve(1),), (WithErrors(PowerTransformer()),)], ids=["posteriors", "curved"])
@pytest.mark.parametrize("final", [GuruClassifier(0.3), KernelGuruClassifier(0.3)], ids=["linear", "kernel"])
def test_evaluation_of_labels_that_depend_on_error_bars(steps, final):
    X, E, y = measurements(n=90)
    model = clone(make_pipeline(*steps, final)).fit(Measured(X, E), y)
    X.iloc[4, 1] = np.nan
    seen = Measured(X, E)
    page = check_alone(evaluation_report(model, X, y, E, noise_levels=[0.0, 1.0]).html())
    shares = {row[0]: row[1] for row in page.table("", "model")}
    assert shares["accuracy"] == f"{100 * model.score(seen, y):.2f} %" == page.table("noise level", "accuracy")[0][1]
    assert shares["expected accuracy"] == f"{100 * expected_accuracy(model, X, y, X_err=E):.2f} %"
    assert "depends on the errors as well" in left_out(page)["Distance to the boundary"]
    doubt = float(page.table("row", "predicted")[0][3].rstrip(" %"))
    flips = (
        flip_probability(model, X, X_err=E) if hasattr(final, "noise") else 1 - model.predict_proba(seen).max(axis=1)
    )
    assert doubt == pytest.approx(100 * flips.max(), abs=6e-3)
    # Without error bars the values are exact, and the noise of a curve is in the units of the features.
    exact = X.fillna(0.0)
    page = check_alone(evaluation_report(model, exact, y, noise_levels=[0.0]).html())
    assert page.table("noise level", "accuracy")[0][1] == f"{100 * model.score(exact, y):.2f} %"


def test_groups_by_the_size_of_errors():
    sizes = np.array([3.0, 1.0, 2.0, 6.0, 5.0, 4.0])
    right = np.array([True, True, False, False, True, False])
    found = by_error_size(sizes, np.array([0.9, 0.8, 0.6, 0.5, 0.7, 1.0]), right)
    assert found.errors == ["small", "medium", "large"]
    assert found.rows == [2, 2, 2]
    assert found.size == [1.5, 3.5, 5.5]
    assert found.predicted == pytest.approx([0.7, 0.95, 0.6])
    assert found.observed == [0.5, 0.5, 0.5]
    assert found.standard_error == pytest.approx([np.sqrt(0.4) / 2, np.sqrt(0.09) / 2, np.sqrt(0.46) / 2])
    assert by_error_size(np.ones(6), np.full(6, 0.5), right)[:2] == (["all"], [6])
    # Many equal ones are together, and no group is empty.
    some = by_error_size(np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0]), np.full(6, 0.5), right)
    assert some.rows == [5, 1]
    ax = draw_reliability(new_axes(), np.ones(6), np.full(6, 0.5), right, "x")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["as predicted", "all samples"]


def test_whether_errors_matter_is_said_in_words():
    assert kappa_in_words(1.0, float("nan"), scaled=False) == "The fit had no error bars."
    for pvalue, words in ((1e-5, "matter: .*clearly worse"), (0.03, "probably matter"), (0.5, "no sign")):
        text = kappa_in_words(1.0, pvalue, scaled=False)
        assert re.search(rf"{words}.*p = {pvalue:.2g}.*used as stated", text)
    for kappa, words in (
        (0.0, "ignored"),
        (1.1, "about right"),
        (0.9, "about right"),
        (3.0, "larger"),
        (0.3, "smaller"),
    ):
        assert words in kappa_in_words(kappa, 0.001, scaled=True)


def test_larger_errors_are_added_to_the_values():
    X, E, _ = measurements(20_000)
    X.iloc[0, 0] = np.nan
    more = with_larger_errors(X, E, 3.0, np.random.default_rng(0))
    np.testing.assert_allclose(more.err[1:], 3 * E[1:])
    assert np.isnan(more.X.iloc[0, 0])
    assert np.isinf(more.err[0, 0])
    apart = (more.X - X).to_numpy()[1:] / E[1:]
    np.testing.assert_allclose(apart.std(axis=0), np.sqrt(8), rtol=0.03)  # 5 standard errors
    limits = with_larger_errors(X, Limits(E, np.zeros(E.shape)), 2.0, np.random.default_rng(0)).err
    assert isinstance(limits, Limits)
    np.testing.assert_allclose(limits.err[1:], 2 * E[1:])
    wide = with_larger_errors(X[1:], np.einsum("ij,jk->ijk", E[1:] ** 2, np.eye(3)), 2.0, np.random.default_rng(0))
    np.testing.assert_allclose(np.einsum("ijj->ij", wide.err), 4 * E[1:] ** 2)


def left_out(page):
    return dict(text.rstrip(".").split(": ", 1) for heading, text in page.paragraphs if heading == "Left out")


def test_evaluation_of_a_kernel():
    X, y = load_iris(return_X_y=True)
    two = y > 0
    model = make_pipeline(StandardScaler(), KernelGuruClassifier(0.3)).fit(X, two)
    page = check_alone(evaluation_report(model, X, two, noise_levels=[0.0, 0.5]).html())
    assert {"Accuracy under noise", "Doubtful predictions", "Certificate", "Left out"} <= set(page.headings)
    groups = page.table("probability of a change")
    least = model.predict_proba(X).min(axis=1)
    assert [int(row[1]) for row in groups] == np.histogram(least, [0, 0.001, 0.01, 0.1, 0.25, 1.0])[0].tolist()
    assert "not" in left_out(page)["Distance to the boundary"]
    curve = page.table("noise level")
    assert [row[0] for row in curve] == ["0", "0.5"]
    assert curve[0][1:] == [f"{100 * model.score(X, two):.2f} %", "0.00 %"]
    shares = {row[0]: row[1] for row in page.table("", "model")}
    expected = model.predict_proba(X)[np.arange(len(X)), two.astype(int)].mean()
    assert shares["expected accuracy"] == f"{100 * expected:.2f} %"
    three = KernelGuruClassifier(0.3).fit(X, y)
    assert "Doubtful predictions" in left_out(check_alone(evaluation_report(three, X, y, noise_levels=[0.0]).html()))


def test_evaluation_of_a_kernel_matrix():
    X, y = load_iris(return_X_y=True)
    K = X @ X.T
    page = check_alone(evaluation_report(KernelGuruClassifier(1.0, kernel="precomputed").fit(K, y), K, y).html())
    assert "kernel matrix" in left_out(page)["Accuracy under noise"]


def test_evaluation_of_many_classes(monkeypatch):
    monkeypatch.setattr("gaussguru.report.evaluation.MOST_LISTED", 2)
    X, y = load_iris(return_X_y=True)
    model = GuruClassifier(1.0).fit(X, y)
    page = check_alone(evaluation_report(model, X, y).html())
    matrix = confusion_matrix(y, model.predict(X))
    np.fill_diagonal(matrix, 0)
    rows = page.table("true class", "predicted")
    assert [int(row[2]) for row in rows] == sorted(matrix[matrix > 0], reverse=True)[:2]
    for true, wrong, count in rows:
        assert int(count) == matrix[int(true), int(wrong)]
    assert left_out(page) == {"Confusion matrix": "it would have 3 rows"}


def test_evaluation_of_what_scikit_learn_has():
    X, y = load_iris(return_X_y=True)
    page = check_alone(evaluation_report(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y), X, y).html())
    assert set(left_out(page)) == {"Doubtful predictions", "Certificate"}
    page = check_alone(evaluation_report(SVC().fit(X, y), X, y, noise_levels=[0.0, 1.0]).html())
    absent = {"Distance to the boundary", "Doubtful predictions", "Certificate", "Weights of the features"}
    assert set(left_out(page)) == absent
    assert len(page.table("noise level")) == 2
    words = pd.DataFrame({"colour": ["red", "green", "blue", "red"] * 5})
    model = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(words, [0, 1, 1, 0] * 5)
    page = check_alone(evaluation_report(model, words, [0, 1, 1, 0] * 5).html())
    assert "not finite numbers" in left_out(page)["Accuracy under noise"]
    X[0, 0] = np.nan
    model = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()).fit(X, y)
    page = check_alone(evaluation_report(model, X, y).html())
    assert "not finite numbers" in left_out(page)["Accuracy under noise"]


def test_evaluation_of_what_a_search_found():
    X, y = load_iris(return_X_y=True)
    inner = Pipeline([("nothing", "passthrough"), ("guru", GuruClassifier(0.3))])
    search = GridSearchCV(make_pipeline(StandardScaler(), inner), {"pipeline__guru__sigma": [0.3]}).fit(X, y)
    page = check_alone(evaluation_report(search, X, y).html())
    scaled = StandardScaler().fit_transform(X)
    radius = certified_radius(GuruClassifier(0.3).fit(scaled, y), scaled)
    for row in page.table("row"):
        assert row[4] == f"{radius[int(row[0]) - 1]:.4g}"


def test_evaluation_of_sparse_data_and_labels_never_seen():
    X, y = load_iris(return_X_y=True)
    model = GuruClassifier(0.3).fit(sp.csr_array(X[:100]), y[:100])
    page = check_alone(evaluation_report(model, sp.csr_array(X), y).html())
    assert [row[-1] for row in page.table("true class")][2] == "0.00 %"
    assert {row[0]: row[1] for row in page.table("", "model")}["accuracy"] == f"{100 * model.score(X, y):.2f} %"


def test_large_curves_take_a_part_of_the_samples_and_say_how_sure_they_are(monkeypatch):
    monkeypatch.setattr("gaussguru.report.evaluation.SAMPLED", 50)
    X, y = load_iris(return_X_y=True)
    y[::4] = 0  # so that no model is always right
    model = KernelGuruClassifier(0.3).fit(X, y)
    page = check_alone(evaluation_report(model, pd.DataFrame(X), y, noise_levels=[0.0]).html())
    assert any("for 50 of the 150 samples" in text for text in page.captions)
    ((_, share, error),) = page.table("noise level")
    p = float(share.removesuffix(" %")) / 100
    # Of 50 samples without replacement from 150, in all of which the accuracy is known.
    assert error == f"{100 * np.sqrt(p * (1 - p) / 50 * 2 / 3):.2f} %"
    assert abs(p - model.score(X, y)) < 4 * float(error.removesuffix(" %")) / 100
    assert any(f"{share} of these samples, and for {100 * model.score(X, y):.2f} % of all" in c for c in page.captions)
    monkeypatch.setattr("gaussguru.report.evaluation.CLOSED", 60)
    report = evaluation_report(GuruClassifier(0.3).fit(X, y), X, y, np.full(len(X), 0.1), noise_levels=[0.0])
    assert "for 60 of the 150 samples" in report.html()


def test_curves_of_many_classes_take_all_samples(monkeypatch):
    X, y = load_iris(return_X_y=True)
    y = 2 * y + (X[:, 0] > np.median(X[:, 0]))
    model = make_pipeline(StandardScaler(), GuruClassifier(0.5)).fit(X, y)
    few = check_alone(evaluation_report(model, X, y, noise_levels=[0.0, 0.5]).html())
    monkeypatch.setattr("gaussguru.report.evaluation.QUADRATURE", 100)
    many = check_alone(evaluation_report(model, X, y, noise_levels=[0.0, 0.5]).html())
    assert any("Mean over 100 draws of noise:" in text for text in many.captions)
    accuracy = {row[0]: row[1] for row in many.table("", "model")}["accuracy"]
    for page in (few, many):
        assert page.table("noise level")[0] == ["0", accuracy, "0.00 %"]
    exact, drawn = (float(page.table("noise level")[1][1].removesuffix(" %")) for page in (few, many))
    error = float(many.table("noise level")[1][2].removesuffix(" %"))
    assert abs(exact - drawn) < 4 * error + 0.2
    monkeypatch.setattr("gaussguru.report.evaluation.VALUES", 4000)
    page = check_alone(evaluation_report(model, X, y, noise_levels=[0.0]).html())
    assert any("Computed without drawing noise, for 100 of the 150 samples" in text for text in page.captions)


def test_faults_of_the_library_are_not_left_out(monkeypatch):
    def broken(*_, **__):
        raise ValueError("a fault")

    X, y = load_iris(return_X_y=True)
    model = GuruClassifier(0.3).fit(X, y)
    for name in ("certified_radius", "flip_probability", "expected_accuracy", "robustness_curve"):
        with monkeypatch.context() as patched:
            patched.setattr(f"gaussguru._measured.under_noise.{name}", broken)
            with pytest.raises(ValueError, match="a fault"):
                evaluation_report(model, X, y)


def test_words_with_hyphens_and_numbers_with_errors_are_not_broken():
    text = Report("").table(["as HM-STAR", "b"], [["K-GIANT", "96.93 ± 0.28"], ["x" * 30 + "-y", "1e-05"]]).html()
    assert 'as <span class="word">HM-STAR</span>' in text
    assert '<td class="number">96.93 ± 0.28</td>' in text
    assert '<td class="number">1e-05</td>' in text
    assert f"{'x' * 30}-y</th>" in text


def test_wide_figures_scroll_and_narrow_ones_fit_a_phone():
    wide = Report("").figure(style.figure(2)).html()
    assert "min-width:504px" in wide
    (least,) = re.findall(r"min-width:(\d+)px", Report("").figure(figure()).html())
    assert int(least) <= 320 - 32  # the smallest phone, without margins


def test_wrong_data_raises():
    X, y = load_iris(return_X_y=True)
    model = GuruClassifier(0.3).fit(X, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        evaluation_report(model, X, y[1:])
    with pytest.raises(ValueError, match="X_err must hold"):
        evaluation_report(model, X, y, np.ones(3))
    with pytest.raises(ValueError, match="noise_levels"):
        evaluation_report(model, X, y, noise_levels=[-1.0])
    with pytest.raises(ValueError, match="Mix of label"):
        evaluation_report(model, X, y.astype(str))
    with pytest.raises(NotFittedError):
        evaluation_report(GuruClassifier(), X, y)


def test_no_path_of_this_machine_in_a_report(cancer):
    X, y = cancer
    model = make_pipeline(StandardScaler(), GuruClassifier(0.5)).fit(X, y)
    assert str(Path.home()) not in evaluation_report(model, X, y).html()

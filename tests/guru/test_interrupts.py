"""Ctrl-C at any moment of a fit leaves no trace: not in the estimator, not in the limits of BLAS, no thread.

By hand, at random moments and with real signals as well:
``PYTHONPATH=tests python tests/guru/test_interrupts.py --interrupts 2000``.
"""

import _thread
import argparse
import collections
import faulthandler
import importlib
import pickle
import signal
import sys
import threading
import time
import traceback
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
import sklearn
from support.common import BLAS_THREADS, raised_blas, threaded_blas

import gaussguru
from gaussguru import AdversarialSVC, GuruClassifier, GuruClassifierCV, KernelGuruClassifier, TotalSVC, sigma_path

# A thread that takes longer than this to end has stayed behind.
GRACE_SECONDS = 5.0
# A fit here takes milliseconds: after this many seconds it hangs.
HANGS_SECONDS = 100.0
# Moments at which each kind of fit is interrupted in the suite.
MOMENTS = 6
BLAS = threaded_blas()
ROOT = Path(gaussguru.__file__).parent

# Small data is mapped over threads in several blocks.
MANY_BLOCKS = {
    "gaussguru._rows.threads.MANY_VALUES": 0,
    "gaussguru._rows.rows.BLOCK_BYTES": 1000,
    "gaussguru._rows.rows.POINTWISE_ROWS": 0,
}

rng = np.random.default_rng(0)
X = rng.standard_normal((80, 5))
Y = {n: np.argmax(X[:, :n] + 0.3 * rng.standard_normal((80, n)), axis=1) for n in (2, 4)}
X_ERR = rng.uniform(0.1, 0.5, X.shape)


class Interrupt:
    """Raise KeyboardInterrupt where Python looks for signals: at the start of a function, after one that is compiled.

    ``places`` are all such moments so far, as places in the source.
    """

    def __init__(self, moment=-1):
        self.moment = moment
        self.places = []

    def __call__(self, frame, event, _):
        if event in ("call", "c_return"):
            self.places.append((frame.f_code, frame.f_lineno, event))
            if len(self.places) == self.moment + 1:
                raise KeyboardInterrupt

    def watch(self, run):
        """Run a function and return the exception that interrupted it."""
        sys.setprofile(self)
        try:
            run()
        except KeyboardInterrupt as error:
            return error
        finally:
            sys.setprofile(None)
        return None


class Signals:
    """Have the operating system interrupt: after the first of some delays, in seconds, and again after each other."""

    def __init__(self, delays):
        self.delays = list(delays)
        self.armed = False

    def __call__(self, *_):
        if self.armed:
            self._next()
            raise KeyboardInterrupt

    def _next(self):
        if self.delays:
            signal.setitimer(signal.ITIMER_REAL, self.delays.pop(0))

    def watch(self, run):
        """Run a function and return the last exception that interrupted it."""
        error, before = None, signal.signal(signal.SIGALRM, self)
        try:
            try:
                self.armed = True
                self._next()
                run()
            finally:
                self.armed = False
        except KeyboardInterrupt as caught:
            error = caught
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        return error


class Case:
    """An estimator, fitted to half of the samples, and a fit to all of them."""

    def __init__(self, estimator, n_classes=2, method="fit", *, is_fit=True, **data):
        self.estimator, self.method, self.is_fit = estimator.set_params(n_jobs=2, tol=1e-2), method, is_fit
        self.data = {"X": X, "y": Y[n_classes], **data}

    @cached_property
    def before(self):
        """The estimator before the fit, pickled."""
        estimator = sklearn.clone(self.estimator)
        self.fit(estimator, slice(40))
        return pickle.dumps(estimator)

    @cached_property
    def uninterrupted(self):
        """The result of a fit without interrupts, its time, and all moments at which an interrupt is possible."""
        estimator, listener, began = pickle.loads(self.before), Interrupt(), time.perf_counter()
        assert listener.watch(lambda: self.fit(estimator)) is None
        return outcome(estimator), time.perf_counter() - began, listener.places

    def fit(self, estimator, part=slice(None)):
        given = {name: value[part] for name, value in self.data.items()}
        if self.method == "partial_fit":
            given["classes"] = np.unique(self.data["y"])
        getattr(estimator, self.method)(**given)


class PathAndFit(GuruClassifier):
    """A path before a fit."""

    def fit(self, X, y):
        sigma_path(X, y, n_sigmas=3, n_jobs=self.n_jobs)
        return super().fit(X, y)


class FitOrPredict(GuruClassifier):
    """A classifier that predicts when it is fitted again."""

    def fit(self, X, y):
        if not hasattr(self, "coef_"):
            return super().fit(X, y)
        self.decision_function(X)
        self.certificate(X, y)
        return self


CASES = {
    **{solver: Case(GuruClassifier(0.5, solver=solver)) for solver in ("newton", "dual")},
    **{solver: Case(GuruClassifier(0.5, solver=solver, random_state=0)) for solver in ("sgd", "sgd2")},
    "axis": Case(GuruClassifier(0.1, noise="axis")),
    "covariance": Case(GuruClassifier(0.5, noise=np.diag(np.arange(1.0, 6.0)))),
    "warm": Case(GuruClassifier(0.5, warm_start=True)),
    "classes": Case(GuruClassifier(0.5), 4),
    "classes-sgd2": Case(GuruClassifier(0.5, solver="sgd2", random_state=0), 4),
    "errors": Case(GuruClassifier(0.5), X_err=X_ERR),
    "errors-sgd": Case(GuruClassifier(0.5, solver="sgd", random_state=0), X_err=X_ERR),
    "errors-classes": Case(GuruClassifier(0.5), 4, X_err=X_ERR),
    "partial_fit": Case(GuruClassifier(0.5, solver="sgd", average=True), method="partial_fit"),
    "partial_fit-errors": Case(GuruClassifier(0.5, solver="sgd"), method="partial_fit", X_err=X_ERR),
    "partial_fit-classes": Case(GuruClassifier(0.5, solver="sgd2"), 4, method="partial_fit"),
    "kernel": Case(KernelGuruClassifier(0.1)),
    "kernel-classes": Case(KernelGuruClassifier(0.1, warm_start=True), 4),
    "kernel-sgd": Case(KernelGuruClassifier(0.1, solver="sgd")),
    "kernel-nystroem": Case(KernelGuruClassifier(0.1, n_components=20, random_state=0)),
    "adversarial": Case(AdversarialSVC(0.2)),
    "adversarial-classes": Case(AdversarialSVC(0.2), 4),
    "alternating": Case(AdversarialSVC(0.01, solver="alternating")),
    "total": Case(TotalSVC(0.1)),
    "cv": Case(GuruClassifierCV(2, cv=2)),
    "cv-classes": Case(GuruClassifierCV([0.5, 1.0], cv=2), 4),
    "cv-errors": Case(GuruClassifierCV([0.2, 1.0], cv=2), X_err=X_ERR),
    "path": Case(PathAndFit(0.5), is_fit=False),
    "prediction": Case(FitOrPredict(0.5), is_fit=False),
}


def outcome(estimator):
    kinds = np.ndarray | np.generic | float | int
    return {name: value for name, value in vars(estimator).items() if isinstance(value, kinds)}


def limits():
    return [library.num_threads for library in BLAS]


def shared(case):
    """Return the global state that a fit changes while it runs."""
    return (limits(), np.geterr(), sklearn.get_config()) if case.is_fit else (limits(),)


def is_inside(error):
    """Say whether the package was interrupted, and not the test around it."""
    return any(ROOT in Path(frame.filename).parents for frame in traceback.extract_tb(error.__traceback__))


def check_threads(count):
    deadline = time.monotonic() + GRACE_SECONDS
    while _thread._count() > count and time.monotonic() < deadline:
        time.sleep(1e-4)
    assert _thread._count() <= count  # one may be less: of a thread that was joined a little is left for a while


def check_no_trace(case, watch):
    """Fit while something may interrupt, and check that this left no trace; return whether there was an interrupt."""
    expected, *_ = case.uninterrupted
    estimator, around, n_threads = pickle.loads(case.before), shared(case), _thread._count()
    assert around[0] == [BLAS_THREADS] * len(BLAS)
    before = pickle.dumps(vars(estimator))
    # It is kept, and all its frames with it, as an interactive session keeps the last one.
    error = watch(lambda: case.fit(estimator))
    interrupted = error is not None and is_inside(error)
    if interrupted:
        assert pickle.dumps(vars(estimator)) == before
    assert shared(case) == around, f"{shared(case)} after {around}"
    check_threads(n_threads)
    assert shared(case) == around, f"{shared(case)} after {around}, when the threads had ended"
    if error is not None:
        estimator = estimator if interrupted else pickle.loads(case.before)
        case.fit(estimator)
    found = outcome(estimator)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    return interrupted


@pytest.fixture
def _many_threads(monkeypatch):
    """Use threads for small data, and for BLAS whatever the environment says; end fits that hang."""
    for name, value in MANY_BLOCKS.items():
        monkeypatch.setattr(name, value)
    # Python prints an interrupt in a finaliser and forgets it; the hook of pytest might be interrupted as well.
    monkeypatch.setattr(sys, "unraisablehook", id)
    faulthandler.dump_traceback_later(HANGS_SECONDS, exit=True, file=sys.__stderr__)
    with raised_blas():
        yield
    faulthandler.cancel_dump_traceback_later()


@pytest.mark.usefixtures("_many_threads")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_interrupt_leaves_no_trace(case):
    *_, places = case.uninterrupted
    first = [places.index(place) for place in dict.fromkeys(places)]
    chosen = np.linspace(0, len(first) - 1, MOMENTS + 2).astype(int)[1:-1]  # the ends are not in the package
    assert sum(check_no_trace(case, Interrupt(first[k]).watch) for k in chosen) >= 0.8 * MOMENTS


@pytest.mark.usefixtures("_many_threads")
@pytest.mark.parametrize("name", ["newton", "cv"])
def test_an_interrupt_wherever_threads_are_started_and_limits_set(name):
    case = CASES[name]
    *_, places = case.uninterrupted
    last = {place: moment for moment, place in enumerate(places)}
    first = {place: moment for moment, place in reversed(list(enumerate(places)))}
    mine = [place for place in first if Path(place[0].co_filename).name in ("threads.py", "threadpoolctl.py")]
    assert len(mine) > 30
    moments = {at[place] for at in (first, last) for place in mine}
    # Not quite all: threads may take another turn than the first time, and then a moment may be in a finaliser.
    assert sum(check_no_trace(case, Interrupt(moment).watch) for moment in moments) >= 0.9 * len(moments)


@pytest.mark.usefixtures("_many_threads")
@pytest.mark.parametrize("name", ["newton", "classes", "cv"])
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers")
def test_signals_one_after_the_other_leave_no_trace(name):
    case = CASES[name]
    _, seconds, _ = case.uninterrupted
    delays = [[part * seconds, *[1e-4] * n_more] for part in np.linspace(0.05, 0.6, 6) for n_more in (0, 3)]
    assert sum(check_no_trace(case, Signals(each).watch) for each in delays) > 0


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="this system sends no signals to threads")
def test_folds_that_nobody_waits_for_end():
    """A fold ends when the fit was interrupted, not when it is done, which would be 10 s later.

    polars has signals restart what they interrupt.
    """
    pytest.importorskip("polars")
    seen = []

    def scorer(model, X, y):
        seen.append(model.sigma)
        if len(seen) == 5:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.01)
        return 1.0

    n_threads = _thread._count()
    with pytest.raises(KeyboardInterrupt):
        GuruClassifierCV(np.geomspace(0.1, 10, 1000), cv=4, scoring=scorer, n_jobs=2).fit(X, Y[2])
    check_threads(n_threads)
    assert len(seen) < 100


def _run(n_interrupts, seed):
    """Interrupt fits at random and print figures; return how many left a trace."""
    for path, value in MANY_BLOCKS.items():
        module, name = path.rsplit(".", 1)
        setattr(importlib.import_module(module), name, value)
    rng, counts, places, failures = np.random.default_rng(seed), collections.Counter(), set(), 0
    sys.unraisablehook = id  # an interrupt in a finaliser: Python would print and forget it
    began, names = time.perf_counter(), list(CASES)
    while counts["moments"] + counts["signals"] + counts["several signals"] < n_interrupts:
        name = names[rng.integers(len(names))]
        case = CASES[name]
        raised_blas()
        np.seterr(divide="warn", over="warn", under="ignore", invalid="warn")
        faulthandler.dump_traceback_later(HANGS_SECONDS, exit=True)
        _, seconds, moments = case.uninterrupted
        kind = ("moments", "signals", "several signals")[rng.integers(3)]
        if kind == "moments":
            order = list(dict.fromkeys(moments))
            place = order[rng.integers(len(order))]
            how = Interrupt(int(rng.choice([k for k, other in enumerate(moments) if other == place])))
        else:
            delays = [rng.uniform(0, seconds), *rng.uniform(0, 1e-3, 5 if kind == "several signals" else 0)]
            how = Signals(delays)
        try:
            interrupted = check_no_trace(case, how.watch)
        except (Exception, KeyboardInterrupt):
            failures, interrupted = failures + 1, True
            print(f"{name}, {kind}:\n{traceback.format_exc()}", file=sys.stderr)
        counts[kind if interrupted else "too early or too late"] += 1
        if interrupted and kind == "moments":
            places.add(how.places[-1])
    faulthandler.cancel_dump_traceback_later()
    for kind, count in sorted(counts.items()):
        print(f"{count:6d}  {kind}")
    print(f"{len(places):6d}  different places in the source")
    print(f"{failures:6d}  left a trace, in {time.perf_counter() - began:.0f} s")
    return failures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="interrupt fits at random and look for traces")
    parser.add_argument("--interrupts", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    sys.exit(_run(arguments.interrupts, arguments.seed) > 0)

"""Contexts that interrupts cannot break, BLAS kept to one thread, and a pool of threads."""

import itertools
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from support.common import BLAS_THREADS, raised_blas, threaded_blas

from gaussguru._native._binding import CleanExit
from gaussguru._rows import threads
from gaussguru._rows.threads import Pool, PoolReleased, SingleBlas

every_order = pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
BLAS = threaded_blas()
FEW, MANY = [1] * len(BLAS), [BLAS_THREADS] * len(BLAS)


def limits():
    return [library.num_threads for library in BLAS]


@pytest.fixture(autouse=True)
def _threaded_blas():
    with raised_blas():
        assert limits() == MANY
        yield


class OfThread:
    """A library with a limit for each thread."""

    def __init__(self):
        self.local = threading.local()

    @property
    def num_threads(self):
        return getattr(self.local, "count", 4)

    def set_num_threads(self, count):
        self.local.count = count


@pytest.fixture
def of_thread(monkeypatch):
    library = OfThread()
    monkeypatch.setattr(threads, "_libraries", lambda: [library])
    return library


class Recorded(CleanExit):
    """What was called; each method fails as often as it is told to."""

    def __init__(self, acquire=(), release=()):
        self.called, self.errors = [], {"acquire": list(acquire), "release": list(release)}

    def acquire(self):
        self._call("acquire")
        return "acquired"

    def release(self):
        self._call("release")

    def wait(self):
        self.called.append("wait")

    def _call(self, name):
        self.called.append(name)
        if self.errors[name]:
            raise self.errors[name].pop()


def test_a_context_without_interrupts():
    with Recorded() as value:
        assert value == "acquired"
    context = Recorded()
    with pytest.raises(ZeroDivisionError), context:
        _ = 1 / 0
    assert context.called == ["acquire", "release", "wait"]


def test_a_release_is_done_however_often_it_is_interrupted():
    context = Recorded(release=[KeyboardInterrupt("last"), TimeoutError(), KeyboardInterrupt("first")])
    with pytest.raises(KeyboardInterrupt, match="last"), context:
        pass
    assert context.called == ["acquire", *["release"] * 4]


def test_an_interrupted_acquire_is_released():
    context = Recorded(acquire=[KeyboardInterrupt("acquire")], release=[KeyboardInterrupt("release")])
    with pytest.raises(KeyboardInterrupt, match="release"), context:
        pytest.fail("was entered")
    assert context.called == ["acquire", "release", "release"]


def test_a_release_that_always_fails_ends():
    class Failing(CleanExit):
        def release(self):
            raise OSError("for good")

    with pytest.raises(OSError, match="for good"), Failing():
        pass


def one_body():
    with SingleBlas():
        return limits()


def test_an_interrupt_at_every_bytecode_around_a_context():
    """Also where the interpreter of today does not look for signals: between entry, body and exit."""
    before = limits()
    for moment in itertools.count():
        count = 0

        def trace(frame, event, _, moment=moment):
            nonlocal count
            if frame.f_code is not one_body.__code__:
                return None
            frame.f_trace_opcodes = True
            count += event == "opcode"
            if event == "opcode" and count == moment + 1:
                raise KeyboardInterrupt
            return trace

        error, inside = None, None
        sys.settrace(trace)
        try:
            inside = one_body()
        except KeyboardInterrupt as caught:
            error = caught  # and all its frames
        finally:
            sys.settrace(None)
        assert limits() == before
        if error is None:
            break
    assert inside == FEW
    assert moment > 10


def test_limits_of_nested_contexts():
    with SingleBlas():
        with SingleBlas():
            assert limits() == FEW
        assert limits() == FEW
    assert limits() == MANY


@every_order
def test_who_leaves_last_lifts_the_limit(order):
    contexts = [SingleBlas() for _ in order]
    pools = [ThreadPoolExecutor(1) for _ in order]
    for pool, context in zip(pools, contexts, strict=True):
        pool.submit(context.__enter__).result()
        assert limits() == FEW
    for left, k in enumerate(order, 1):
        pools[k].submit(contexts[k].__exit__, None, None, None).result()
        assert limits() == (FEW if left < 3 else MANY)
    for pool in pools:  # all threads lived so long: to none of them threadpoolctl has given OpenBLAS
        pool.shutdown()


@every_order
def test_limits_of_threads_are_lifted_in_each(of_thread, order):
    contexts = [SingleBlas() for _ in order]
    pools = [ThreadPoolExecutor(1) for _ in order]

    def seen():
        return [pool.submit(lambda: of_thread.num_threads).result() for pool in pools]

    for k, pool in enumerate(pools):
        pool.submit(contexts[k].__enter__).result()
        assert seen() == [1] * (k + 1) + [4] * (2 - k)
    for left, k in enumerate(order, 1):
        pools[k].submit(contexts[k].__exit__, None, None, None).result()
        assert seen() == [4 if j in order[:left] else 1 for j in range(3)]
    for pool in pools:
        pool.shutdown()


def test_threads_of_a_pool_have_blas_of_one_thread(of_thread):
    with Pool(3) as mapped:
        assert list(mapped(lambda _: of_thread.num_threads, range(10))) == [1] * 10


def test_a_pool_keeps_the_order_and_passes_errors_on():
    def task(a, b):
        if a == 7:
            raise ValueError(f"no {a}")
        return a * b

    before = threading.active_count()
    with Pool(4) as mapped:
        assert list(mapped(task, range(5), range(5))) == [0, 1, 4, 9, 16]
        assert list(mapped(task, range(0), range(0))) == []
        with pytest.raises(ValueError, match="no 7"):
            list(mapped(task, range(9), range(9)))
        with pytest.raises(ValueError, match="no 7"):
            list(mapped(task, [7], [7]))
        assert list(mapped(task, np.arange(6), range(6))) == [0, 1, 4, 9, 16, 25]
        assert threading.active_count() == before + 4
    assert threading.active_count() == before


def test_a_pool_of_one_is_the_built_in_map():
    with Pool(1) as mapped:
        assert mapped is map
        assert limits() == FEW


def test_a_thread_that_cannot_start_is_an_error(monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch, Pool(2) as mapped:
        patch.setattr(threads.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start"):
            mapped(abs, [1, 2])
    assert limits() == MANY


def test_work_for_a_released_pool_ends():
    pool, seen = Pool(2), []
    with pool:
        steps = pool.here(seen.append, range(5))
        next(steps)
    with pytest.raises(PoolReleased):
        next(steps)
    assert seen == [0]


class Impatient(Pool):
    """A pool that an interrupt leaves while its threads work: nobody waits for them."""

    def wait(self):
        raise KeyboardInterrupt


@pytest.mark.parametrize("others", [0, 1])
def test_threads_that_go_on_for_a_pool_that_was_left_leave_the_limits_alone(others):
    begun, go_on, seen = [threading.Event() for _ in range(2)], threading.Event(), []

    def task(k):
        with SingleBlas():  # as a fit in a thread does
            begun[k].set()
            assert go_on.wait(20)
        with SingleBlas():
            seen.append(limits())

    contexts = [SingleBlas() for _ in range(others)]
    n_threads = threading.active_count()
    with suppress(KeyboardInterrupt), Impatient(2) as mapped:
        mapped(task, range(2))
        assert all(event.wait(20) for event in begun)
        for context in contexts:
            context.__enter__()
    assert threading.active_count() == n_threads + 2
    expected = FEW if others else MANY  # whoever is inside as well still needs it
    assert limits() == expected
    go_on.set()
    while threading.active_count() > n_threads:
        assert limits() == expected
    assert seen == [expected] * 2
    for context in contexts:
        context.__exit__(None, None, None)
    assert limits() == MANY


def test_a_pool_takes_the_limit_over_before_its_threads():
    first, begun, go_on = SingleBlas(), threading.Event(), threading.Event()
    first.__enter__()
    with suppress(KeyboardInterrupt), Impatient(2) as mapped:
        mapped(lambda k: (begun.set(), go_on.wait(20)), range(2))
        assert begun.wait(20)
        first.__exit__(None, None, None)
        assert limits() == FEW
    assert limits() == MANY
    go_on.set()


FORKED = """
import os, signal, threading, time, warnings
from gaussguru._rows.threads import SingleBlas

warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, where a process with threads forks
held = threading.Event()

def hold():
    with SingleBlas._lock:
        held.set()
        time.sleep(0.2)

thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    with SingleBlas():
        os._exit(0)
thread.join()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_while_another_thread_enters_leaves_the_child_free_to_enter():
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=60)

"""The ordered, bounded map."""

import threading

import numpy as np
import pytest

from cavity.engines.threads import Threads, thread_count


@pytest.fixture(params=[1, 2, 5])
def threads(request):
    pool = Threads(request.param)
    yield pool
    pool.close()


def test_results_come_in_the_order_of_the_items(threads):
    assert list(threads.map(lambda item: item**2, range(100))) == [k**2 for k in range(100)]


def test_items_are_drawn_only_a_little_ahead(threads):
    drawn = 0

    def items():
        nonlocal drawn
        for k in range(1000):
            drawn += 1
            yield k

    results = threads.map(lambda item: item, items())
    for k in range(10):
        assert next(results) == k
        assert drawn <= k + 1 + 2 * threads.n_threads
    results.close()


def test_an_error_in_a_worker_reaches_the_caller(threads):
    def fail(item):
        if item == 3:
            raise ZeroDivisionError("three")
        return item

    with pytest.raises(ZeroDivisionError, match="three"):
        list(threads.map(fail, range(50)))
    assert list(threads.map(lambda item: item, range(3))) == [0, 1, 2]  # and the pool lives on


def test_items_really_run_side_by_side():
    pool = Threads(2)
    both = threading.Barrier(2, timeout=30)
    assert sorted(pool.map(lambda item: both.wait(), range(2))) == [0, 1]
    pool.close()


@pytest.mark.parametrize("items", [[7], (7,), range(7, 8)], ids=["list", "tuple", "range"])
def test_one_item_is_computed_where_it_is(threads, items):
    assert list(threads.map(lambda item: (item, threading.get_ident()), items)) == [
        (7, threading.get_ident())
    ]


def test_numpy_does_not_warn_in_a_worker(threads):
    values = list(threads.map(lambda item: np.float64(item) / np.float64(0.0), range(1, 4)))
    assert values == [np.inf] * 3


def test_number_of_threads():
    assert thread_count(3) == 3
    assert thread_count(None) == thread_count(-1) >= 1
    assert thread_count(-2) == max(1, thread_count(-1) - 1)
    assert thread_count(-1000) == 1
    with pytest.raises(ValueError, match="n_jobs"):
        thread_count(0)

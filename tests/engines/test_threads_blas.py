"""BLAS threads are limited while anybody computes, and given back afterwards."""

import threading

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from cavity.engines.threads import compute_context, one_blas_thread


def limits():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.fixture(autouse=True)
def _two_threads():
    with threadpool_limits(2, user_api="blas"):
        yield


def test_threads_are_limited_inside_and_restored_outside():
    before = limits()
    assert before
    with one_blas_thread:
        assert limits() == [1] * len(before)
        with one_blas_thread:
            assert limits() == [1] * len(before)
        assert limits() == [1] * len(before)
    assert limits() == before


def test_an_error_inside_restores_them():
    before = limits()
    with pytest.raises(ZeroDivisionError), compute_context(1):
        1 / 0  # noqa: B018
    assert limits() == before


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_overlapping_users_restore_what_was_there_before_the_first(first_ends_first):
    before = limits()
    began, go_on, seen = threading.Event(), threading.Event(), []

    def second():
        with one_blas_thread:
            seen.append(limits())
            began.set()
            go_on.wait(60)

    other = threading.Thread(target=second)
    with one_blas_thread:
        other.start()
        assert began.wait(60)
        if not first_ends_first:
            go_on.set()
            other.join(60)
    go_on.set()
    other.join(60)
    assert seen == [[1] * len(before)]
    assert limits() == before

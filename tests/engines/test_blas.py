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


def test_overlapping_users_restore_what_was_there_before_the_first():
    """The first to begin ends first: its end must not lift the limit, the other's must."""
    before = limits()
    began, go_on = threading.Event(), threading.Event()

    def second():
        with one_blas_thread:
            began.set()
            go_on.wait(60)

    with one_blas_thread:
        other = threading.Thread(target=second)
        other.start()
        assert began.wait(60)
    assert limits() == [1] * len(before)
    go_on.set()
    other.join(60)
    assert limits() == before

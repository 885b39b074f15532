"""The one place that owns BLAS threads gives them back."""

from threadpoolctl import threadpool_info

from cavity.engines.threads import blas_threads


def limits():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_threads_are_limited_inside_and_restored_outside():
    with blas_threads(2):
        before = limits()
        with blas_threads(1):
            assert limits() == [1] * len(before)
        assert limits() == before
    assert before

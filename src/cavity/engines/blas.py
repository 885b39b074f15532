"""The one place that owns BLAS threads."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController


@lru_cache(maxsize=1)
def _controller() -> Any:
    # Looking for the loaded libraries takes milliseconds; what is loaded does not change.
    return ThreadpoolController()


def blas_threads(limit: int) -> AbstractContextManager[Any]:
    """A context in which every BLAS call uses at most `limit` threads.

    The engine runs one tile a thread and gives BLAS one thread each: on the shapes of a tile two BLAS
    threads are slower than one.
    """
    context: AbstractContextManager[Any] = _controller().limit(limits=limit, user_api="blas")
    return context

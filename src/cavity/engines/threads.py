"""Threads for the tiles of a pass, and the number of BLAS threads while they run.

NumPy releases the interpreter lock, so threads are enough. Only this module changes the number of BLAS
threads.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from cavity.memory import expect_large_arrays

if TYPE_CHECKING:
    from threadpoolctl import LibController


@lru_cache(maxsize=1)
def _blas_libraries() -> list[LibController]:
    # The search for loaded libraries takes milliseconds, and its result does not change.
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


class _Depth(threading.local):
    """How many limits the current thread is inside."""

    depth = 0


class _OneBlasThread:
    """Limits BLAS to one thread while a block of code runs, in several threads at once if need be.

    Some BLAS libraries keep the limit for the process, others for each thread that sets it. So every
    thread sets it for itself, and restores what the process had before its first user.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before: list[int] = []
        self._here = _Depth()

    def __enter__(self) -> None:
        depth = self._here.depth
        self._here.depth = depth + 1
        if depth:
            return
        with self._lock:
            if self._users == 0:
                self._before = [library.num_threads for library in _blas_libraries()]
            self._users += 1
            limit_blas_here()

    def __exit__(self, *_: object) -> None:
        self._here.depth -= 1
        if self._here.depth:
            return
        with self._lock:
            self._users -= 1
            for library, number in zip(_blas_libraries(), self._before, strict=True):
                library.set_num_threads(number)


def limit_blas_here() -> None:
    """Limit the BLAS calls of this thread to one thread each."""
    for library in _blas_libraries():
        library.set_num_threads(1)


one_blas_thread = _OneBlasThread()
"""A context with one thread a BLAS call: on the shapes of a tile two are slower than one."""


Item = TypeVar("Item")
Result = TypeVar("Result")


def thread_count(n_jobs: int | None) -> int:
    """Number of threads meant by scikit-learn's `n_jobs` (None: all cores; −1: all; −2: all but one).

    >>> thread_count(3)
    3
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this platform
        cores = os.cpu_count() or 1
    if n_jobs is None:
        return cores
    if n_jobs == 0:
        raise ValueError("n_jobs=0 has no meaning; use a positive number, or -1 for all cores")
    return n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs)


class Threads:
    """A pool that yields results in the order of its items, with two pending items a thread at most.

    A single item is computed in the thread of the caller. The pool is made when there are more: to start
    its threads takes as long as to predict a hundred rows.
    """

    def __init__(self, n_threads: int) -> None:
        expect_large_arrays()
        self.n_threads = n_threads

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.n_threads, initializer=limit_blas_here)

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Apply a function to every item; the results come in the order of the items."""
        quiet = partial(_quietly, function)
        if self.n_threads == 1 or (isinstance(items, Sized) and len(items) == 1):
            yield from map(quiet, items)
            return
        pending: deque[Future[Result]] = deque()
        try:
            for item in items:
                pending.append(self._pool.submit(quiet, item))
                if len(pending) >= 2 * self.n_threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()

    def both(self, first: Callable[[], Item], second: Callable[[], Result]) -> tuple[Item, Result]:
        """The results of two functions, called at the same time if there is more than one thread.

        >>> Threads(2).both(lambda: 1, lambda: 2)
        (1, 2)
        """
        if self.n_threads == 1:
            return first(), second()
        pending = self._pool.submit(_quietly, lambda _: second(), None)
        try:
            return first(), pending.result()
        except BaseException:
            pending.cancel()
            raise

    def close(self, *, wait: bool = True) -> None:
        """End the threads; if asked, wait until they have ended."""
        if "_pool" in vars(self):
            self._pool.shutdown(wait, cancel_futures=True)


def _quietly(function: Callable[[Item], Result], item: Item) -> Result:
    # NumPy's error state belongs to a thread. Callers check results that are not finite.
    with np.errstate(all="ignore"):
        return function(item)


@contextmanager
def compute_context(n_threads: int) -> Iterator[Threads]:
    """Threads for the tiles, one BLAS thread each, and no NumPy warnings."""
    threads = Threads(n_threads)
    try:
        with one_blas_thread, np.errstate(all="ignore"):
            yield threads
    except BaseException:
        threads.close()  # they may still use rows that are about to be released
        raise
    # They are idle. Waiting for them would let Ctrl-C discard a fit that is complete.
    threads.close(wait=False)

"""Shuffling beyond memory: windows of rows that are read together, and reading ahead in a thread.

A window is what is held in memory and shuffled. If it were one range of a file, a file that is sorted
by time or class would give windows that differ from each other. Therefore the table is cut into slices
(row groups, or parts of them where there are few), the slices are put in random order, and several are
read at the same time: each gives the window an equal share. The plan needs the sizes of the row groups
only, so that a pass can start at any window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import NamedTuple, TypeVar

BATCHES_AHEAD = 2
"""Minibatches that are read before they are asked for."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class _Made:
    item: object


@dataclass(frozen=True)
class _Ended:
    error: BaseException | None = None


def read_ahead(items: Iterator[Item], depth: int = 1) -> Generator[Item, None, None]:
    """The same items in the same order, with at most `depth` of them made before they are asked for.

    An error in `items` is raised where the item would have come. However the consumer stops (at the end,
    by an error, by dropping or closing the iterator) the thread ends, and `items` is closed inside it.

    >>> list(read_ahead(iter("abc"), depth=2))
    ['a', 'b', 'c']
    """
    made: SimpleQueue[_Made | _Ended] = SimpleQueue()
    room = Semaphore(depth)
    stop = Event()
    thread = Thread(target=_make, args=(items, made, room, stop), name="cavity-read-ahead", daemon=True)
    thread.start()
    try:
        while isinstance(result := made.get(), _Made):
            room.release()
            yield result.item  # type: ignore[misc]
            del result  # what has been used must not stay in memory while the next is waited for
        if result.error is not None:
            raise result.error
    finally:
        stop.set()
        room.release()
        thread.join()


def _make(
    items: Iterator[Item], made: SimpleQueue[_Made | _Ended], room: Semaphore, stop: Event
) -> None:
    end = _Ended()
    try:
        while True:
            # Room first, item second: an item is never made before there is room for it.
            room.acquire()
            if stop.is_set():
                break
            try:
                item = next(items)
            except StopIteration:
                break
            made.put(_Made(item))
            del item
    except BaseException as error:  # handed over to the consumer
        end = _Ended(error)
    finally:
        if isinstance(items, Generator):
            items.close()
        made.put(end)


_SLICES_OF_GROUP = 4
"""Number of slices of a row group at most. Rows before a slice must be decoded to reach it, so that k
slices of a row group cost (k + 1)/2 times the decoding of one."""
_SLICE_ROWS = 2**15
"""Rows of a slice of a divided row group at least."""


class RowGroupSlice(NamedTuple):
    """Rows start … stop − 1 of a row group, which are read one after the other."""

    group: int
    start: int
    stop: int


class WindowPart(NamedTuple):
    """Rows start … stop − 1 of a row group: the part of a slice that belongs to one window."""

    row_slice: RowGroupSlice
    start: int
    stop: int


Window = list[WindowPart]


def whole_groups(group_rows: Sequence[int]) -> list[RowGroupSlice]:
    """One slice for every row group."""
    return [RowGroupSlice(group, 0, rows) for group, rows in enumerate(group_rows)]


def row_group_slices(group_rows: Sequence[int], wanted: int) -> list[RowGroupSlice]:
    """Row groups, divided if there are fewer than `wanted`, as far as that is cheap.

    >>> row_group_slices([100, 80_000], wanted=8)
    [RowGroupSlice(group=0, start=0, stop=100), RowGroupSlice(group=1, start=0, stop=40000), \
RowGroupSlice(group=1, start=40000, stop=80000)]
    """
    parts = min(_SLICES_OF_GROUP, -(-wanted // max(1, len(group_rows))))
    result = []
    for group, rows in enumerate(group_rows):
        k = max(1, min(parts, rows // _SLICE_ROWS))
        result += [RowGroupSlice(group, rows * i // k, rows * (i + 1) // k) for i in range(k)]
    return result


def equal_windows(n_rows: int, most: int, size: int) -> list[int]:
    """Sizes of windows of at most `most` rows, equal to within one, each of at least one minibatch.

    >>> equal_windows(1_000_001, most=400_000, size=1_000)
    [333333, 333334, 333334]
    """
    count = max(1, min(-(-n_rows // most), n_rows // size))
    return [n_rows * (i + 1) // count - n_rows * i // count for i in range(count)]


def tiled_windows(n_rows: int, about: int, tile: int) -> list[int]:
    """Sizes of windows of about that many rows, all but the last a multiple of the tile.

    >>> tiled_windows(10_000, about=4_096, tile=1_500)
    [3000, 3000, 3000, 1000]
    """
    rows = tile * max(1, about // tile)
    return [min(rows, n_rows - i) for i in range(0, n_rows, rows)]


def balanced(n_slices: int, most: int) -> int:
    """How many of the slices to read at the same time: at most `most`, in rounds of equal size.

    >>> balanced(10, most=8)
    5
    """
    rounds = -(-n_slices // most)
    return -(-n_slices // rounds)


def interleaved(order: Sequence[RowGroupSlice], sizes: Sequence[int], n_open: int) -> list[Window]:
    """Windows of the given sizes from slices in the given order, `n_open` of them at a time.

    With n_open=1 the rows keep the order of the slices.

    >>> a, b = whole_groups([4, 2])
    >>> windows = interleaved([a, b], [2, 4], n_open=2)
    >>> [[(piece.row_slice.group, piece.start, piece.stop) for piece in window] for window in windows]
    [[(0, 0, 1), (1, 0, 1)], [(0, 1, 3), (1, 1, 2), (0, 3, 4)]]
    """
    waiting = deque(order)
    opened: deque[WindowPart] = deque()  # the rest of each open slice
    windows = []
    for size in sizes:
        share = -(-size // n_open)
        window: Window = []
        needed = size
        while needed:
            while waiting and len(opened) < n_open:
                row_slice = waiting.popleft()
                opened.append(WindowPart(row_slice, row_slice.start, row_slice.stop))
            row_slice, start, stop = opened.popleft()
            middle = start + min(share, needed, stop - start)
            window.append(WindowPart(row_slice, start, middle))
            needed -= middle - start
            if middle < stop:
                opened.append(WindowPart(row_slice, middle, stop))
        windows.append(window)
    return windows

"""Reading ahead: the next items are made in a thread while this one is used."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import TypeVar

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

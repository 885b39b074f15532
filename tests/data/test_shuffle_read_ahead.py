"""Reading ahead keeps the order, a bound, the errors, and leaves no thread behind."""

import threading

import pytest

from cavity.data.shuffle import read_ahead
from support import wait_until


def _threads():
    return [thread for thread in threading.enumerate() if thread.name == "cavity-read-ahead"]


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    assert not _threads()


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_the_same_items_in_the_same_order(depth):
    assert list(read_ahead(iter(range(100)), depth)) == list(range(100))


def test_no_items():
    assert list(read_ahead(iter(()))) == []


@pytest.mark.parametrize("depth", [1, 3])
def test_no_more_than_depth_items_are_made_in_advance(depth):
    made = []
    items = read_ahead((made.append(i) or i for i in range(20)), depth)
    for used in range(1, 5):
        next(items)
        wait_until(lambda count=used + depth: len(made) >= count)
        assert len(made) == used + depth
    items.close()


def test_the_next_item_is_made_while_this_one_is_used():
    started = threading.Event()

    def items():
        yield 1
        started.set()
        yield 2

    ahead = read_ahead(items())
    assert next(ahead) == 1
    assert started.wait(5.0)
    assert list(ahead) == [2]


def test_an_error_comes_where_the_item_would_have():
    def items():
        yield 1
        raise OSError("disk on fire")

    ahead = read_ahead(items(), depth=3)
    assert next(ahead) == 1
    with pytest.raises(OSError, match="disk on fire"):
        next(ahead)
    assert list(ahead) == []


@pytest.mark.parametrize("end", ["close", "drop", "error"])
def test_the_thread_ends_with_its_consumer(end):
    closed_in = []

    def items():
        try:
            yield from range(10**9)
        finally:
            closed_in.append(threading.current_thread().name)

    ahead = read_ahead(items(), depth=2)
    next(ahead)
    assert len(_threads()) == 1
    if end == "close":
        ahead.close()
    elif end == "drop":
        del ahead
    else:
        with pytest.raises(ZeroDivisionError):
            ahead.throw(ZeroDivisionError)
    assert not _threads()
    assert closed_in == ["cavity-read-ahead"]


def test_nothing_starts_before_the_first_item_is_asked_for():
    ahead = read_ahead(iter(range(3)))
    assert not _threads()
    ahead.close()

"""Plans of windows: every row once, equal sizes, many places at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cavity.data.shuffle import (
    balanced,
    equal_windows,
    interleaved,
    row_group_slices,
    tiled_windows,
    whole_groups,
)

GROUPS = st.lists(st.integers(1, 150_000), min_size=1, max_size=12)


@given(GROUPS, st.integers(1, 40), st.integers(1, 8), st.integers(3_000, 400_000), st.integers(1, 5_000))
def test_every_row_is_in_one_window(group_rows, wanted, n_open, most, size):
    cut = row_group_slices(group_rows, wanted)
    sizes = equal_windows(sum(group_rows), most, size)
    windows = interleaved(cut, sizes, balanced(len(cut), n_open))
    assert [sum(p.stop - p.start for p in window) for window in windows] == sizes
    at = {row_slice: row_slice.start for row_slice in cut}
    for piece in (piece for window in windows for piece in window):
        assert piece.start == at[piece.row_slice] < piece.stop <= piece.row_slice.stop
        at[piece.row_slice] = piece.stop
    assert all(stop == row_slice.stop for row_slice, stop in at.items())
    assert sum(row_slice.stop - row_slice.start for row_slice in cut) == sum(group_rows)


@given(GROUPS, st.integers(1, 8))
def test_no_more_slices_are_open_than_allowed(group_rows, n_open):
    cut = row_group_slices(group_rows, 10)
    n_windows = min(7, sum(group_rows))
    opened = set()
    for window in interleaved(
        cut, equal_windows(sum(group_rows), -(-sum(group_rows) // n_windows), 1), n_open
    ):
        for piece in window:
            opened.add(piece.row_slice)
            assert len(opened) <= n_open
            if piece.stop == piece.row_slice.stop:
                opened.remove(piece.row_slice)


def test_one_open_slice_is_the_order_of_the_file():
    windows = interleaved(whole_groups([5, 1, 9]), tiled_windows(15, about=8, tile=4), n_open=1)
    pieces = [(p.row_slice.group, p.start, p.stop) for window in windows for p in window]
    assert pieces == [(0, 0, 5), (1, 0, 1), (2, 0, 2), (2, 2, 9)]


def test_a_window_has_rows_of_every_open_slice():
    cut = row_group_slices([2**20], wanted=16)
    assert len(cut) == 4
    for window in interleaved(cut, equal_windows(2**20, 200_000, 1_000), n_open=4)[:-1]:
        assert len({piece.row_slice for piece in window}) == 4


@pytest.mark.parametrize(("n", "most", "size"), [(10, 3, 1), (1_000_001, 200_000, 1_000), (100, 10, 60)])
def test_windows_are_equal_and_hold_a_minibatch(n, most, size):
    sizes = np.array(equal_windows(n, most, size))
    assert sizes.sum() == n
    assert np.ptp(sizes) <= 1
    assert sizes.min() >= min(n, size)

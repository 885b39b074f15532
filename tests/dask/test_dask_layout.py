"""Shards depend on the rows alone, and sums on the shards alone."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from cavity.dask.layout import ShardLayout, spans
from cavity.dask.minibatches import shard_batches
from cavity.dask.tree import FAN_IN_LEVELS, add_up, climbed
from cavity.posterior import Naturals

rows = st.integers(1, 3_000_000)


@given(rows)
def test_shards_cover_all_rows_evenly(n):
    layout = ShardLayout.of(n)
    bounds = [layout.bounds(shard) for shard in range(layout.n_shards)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == n
    assert all(a[1] == b[0] for a, b in pairwise(bounds))
    sizes = {stop - start for start, stop in bounds}
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1


@given(rows, st.integers(1, 2_000))
def test_groups_are_whole_subtrees_and_enough_for_the_workers(n, n_workers):
    layout = ShardLayout.of(n)
    groups = layout.groups(n_workers)
    assert [shard for group in groups for shard in group] == list(range(layout.n_shards))
    assert len({len(group) for group in groups}) == 1
    assert len(groups) >= min(layout.n_shards, n_workers)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(1, 8))
def test_every_row_lies_where_spans_says(lengths, n_shards):
    n = sum(lengths)
    if n < n_shards:
        return
    layout = ShardLayout(n, n_shards)
    numbers = np.split(np.arange(n), np.cumsum(lengths)[:-1])
    needed, pieces = spans(lengths, layout, range(n_shards))
    found = [
        np.concatenate([numbers[needed[i]][start:stop] for i, start, stop in shard]) for shard in pieces
    ]
    for shard, actual in enumerate(found):
        assert_array_equal(actual, np.arange(*layout.bounds(shard)))


def parts(places, seed=0):
    rng = np.random.default_rng(seed)
    return {i: Naturals(rng.normal(size=(1, 2, 2)), rng.normal(size=(1, 2))) for i in places}


@given(st.sets(st.integers(0, 63), min_size=1), st.integers(0, 6))
def test_a_tree_climbed_in_stages_gives_the_same_bits(places, stage):
    leaves = parts(places)
    (whole,) = climbed(leaves, 6).values()
    (staged,) = climbed(climbed(leaves, stage), 6 - stage).values()
    assert_array_equal(staged.precision, whole.precision)
    assert_array_equal(staged.shift, whole.shift)


def test_the_reduction_task_adds_up_its_own_part_of_the_tree():
    leaves = parts(range(1 << FAN_IN_LEVELS))
    (whole,) = climbed(leaves, FAN_IN_LEVELS).values()
    assert_array_equal(add_up(list(leaves), list(leaves.values())).shift, whole.shift)


def test_adding_up_changes_none_of_its_inputs():
    leaves = parts(range(4))
    before = {i: part.precision.copy() for i, part in leaves.items()}
    climbed(leaves, 2)
    for i, part in leaves.items():
        assert_array_equal(part.precision, before[i])


@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 60))
def test_minibatches_take_every_row_once(n, n_shards, size):
    layout = ShardLayout(n, min(n, n_shards))
    batches = list(shard_batches(layout, size, np.random.default_rng(0)))
    seen = dict.fromkeys(range(layout.n_shards), 0)
    for batch in batches:
        for shard, draw in batch.items():
            k = layout.rows(shard)
            seen[shard] += k * (draw.part + 1) // draw.parts - k * draw.part // draw.parts
    assert seen == {shard: layout.rows(shard) for shard in range(layout.n_shards)}


def test_minibatches_can_be_skipped_and_follow_the_seed():
    layout = ShardLayout(10_000, 16)
    whole = list(shard_batches(layout, 100, np.random.default_rng(1)))
    rest = list(shard_batches(layout, 100, np.random.default_rng(1), skip=37))
    assert rest == whole[37:]
    assert whole != list(shard_batches(layout, 100, np.random.default_rng(2)))
    assert all(len(batch) == 8 for batch in whole)

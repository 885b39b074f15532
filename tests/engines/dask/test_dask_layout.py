"""Shards depend on the rows alone, and sums on the shards alone."""

import weakref
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from cavity.engines.dask.comm import Node, PartialSum, added, fold, total
from cavity.engines.dask.layout import ShardLayout, shard_batches, shard_pieces, slot_of
from cavity.gp.tiles import Sums

rows = st.integers(1, 3_000_000)


def sums(precision, shift):
    return Sums(1, 1, 1.0, precision, shift, 0.0, 0.0, 0.0)


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
def test_groups_are_alike_and_enough_for_the_workers(n, n_workers):
    layout = ShardLayout.of(n)
    groups = layout.groups(n_workers)
    assert [shard for group in groups for shard in group] == list(range(layout.n_shards))
    assert len({len(group) for group in groups}) == 1
    assert len(groups) >= min(layout.n_shards, n_workers)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(1, 8))
def test_every_row_lies_where_shard_pieces_says(lengths, n_shards):
    n = sum(lengths)
    if n < n_shards:
        return
    layout = ShardLayout(n, n_shards)
    numbers = np.split(np.arange(n), np.cumsum(lengths)[:-1])
    needed, pieces = shard_pieces(lengths, layout, range(n_shards))
    found = [
        np.concatenate([numbers[needed[i]][start:stop] for i, start, stop in shard]) for shard in pieces
    ]
    for shard, actual in enumerate(found):
        assert_array_equal(actual, np.arange(*layout.bounds(shard)))


def parts(shards, seed=0):
    rng = np.random.default_rng(seed)
    return {
        Node(0, i): sums(rng.normal(size=(1, 2, 2)), rng.normal(size=(1, 2))) for i in sorted(shards)
    }


def summed_by_halves(leaves, node):
    """What the tree means: the sum of a node's halves, or the one of them that is there."""
    if node.level == 0:
        return leaves.get(node)
    halves = [Node(node.level - 1, 2 * node.i + k) for k in (0, 1)]
    there = [part for half in halves if (part := summed_by_halves(leaves, half)) is not None]
    return there[0] if len(there) == 1 else added(*there) if there else None


@given(st.sets(st.integers(0, 63), min_size=1), st.lists(st.sets(st.integers(1, 63)), max_size=3))
def test_sums_have_the_same_bits_whoever_does_which_part(shards, stages):
    leaves = parts(shards)
    results, cuts = [PartialSum(tuple(leaves.items()))], {0, 64, *range(64)}
    for stage in stages:  # each with larger parts than the one before
        cuts &= {0, 64, *stage}
        extents = [range(*extent) for extent in pairwise(sorted(cuts))]
        flat = [item for result in results for item in result.nodes]
        results = [fold([f for f in flat if f[0].start in extent], extent) for extent in extents]
        for result, extent in zip(results, extents, strict=True):
            assert all(node.start in extent and node.stop - 1 in extent for node, _ in result.nodes)
            assert len(result.nodes) <= 2 * 6  # two nodes of a level at most
    whole = summed_by_halves(leaves, Node(6, 0))
    assert_array_equal(total(results, 64).precision, whole.precision)
    assert_array_equal(total(results, 64).shift, whole.shift)


def test_no_more_is_held_than_a_node_of_each_level():
    most = 0

    def one_by_one():
        nonlocal most
        for i in range(256):
            part = sums(np.full((1, 1, 1), float(i)), np.zeros((1, 1)))
            references.append(weakref.ref(part))
            most = max(most, sum(reference() is not None for reference in references))
            yield Node(0, i), part

    references = []
    ((_, part),) = fold(one_by_one(), range(256)).nodes
    assert part.precision == 255 * 256 / 2
    assert most <= 5


def test_adding_up_changes_none_of_its_inputs():
    leaves = parts(range(4))
    before = {i: part.precision.copy() for i, part in leaves.items()}
    total([PartialSum(tuple(leaves.items()))], 4)
    for i, part in leaves.items():
        assert_array_equal(part.precision, before[i])


@given(st.integers(1, 40), st.integers(1, 40))
def test_groups_are_dealt_evenly_and_in_order(n_groups, n_slots):
    dealt = [slot_of(group, n_groups, n_slots) for group in range(n_groups)]
    assert dealt == sorted(dealt)
    counts = np.bincount(dealt, minlength=n_slots)
    assert len(counts) == n_slots
    assert counts.max() - counts.min() <= 1


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

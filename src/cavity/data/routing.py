"""Routings: which leaf of the input space a row falls into.

A routing is a shallow decision tree on the labels, learned from a sample of the rows, which cuts where
the classes differ. Any fitted estimator with `apply` or `predict`, such as a clustering, can take its
place, and a tree can learn leaf numbers that a user gives. Minibatches of rows with leaves are drawn so
that each step touches few of them.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from cavity.data.source import (
    LoadedBlock,
    RowSource,
    SomeSource,
    Source,
    batch_count,
    even_parts,
    joined,
    rows_to_look_at,
    shuffled,
)
from cavity.typing import AnyArray, Array, IntArray

MOST_LEAVES = 10_000
"""Most leaves of a routing: a tree then has ten rows of its sample for each, and two bytes a row hold
the number of its leaf."""
SAMPLE_ROWS = 100_000
"""Rows of the sample that a routing is learned from, at most. The race learns a tree for each trial with
another number of leaves, and that should take seconds. It tries no leaves with more points than such a
sample has rows."""
_SAMPLE_VALUES = 20_000_000
"""Values of that sample, at most, if it has more than a thousand rows."""


class Routing(ABC):
    """Says which leaf a row falls into."""

    @property
    @abstractmethod
    def n_leaves(self) -> int:
        """Number K of leaves."""

    @abstractmethod
    def __call__(self, X: AnyArray) -> IntArray:
        """Numbers [t] of the leaves, 0 … K − 1, of dense rows X [t, d] in the units of the source."""


@dataclass(frozen=True)
class TreeRouting(Routing):
    """The leaves of a decision tree; arrays have one entry for each node, and node 0 is the root."""

    feature: IntArray
    """The feature that a node asks about; any, in a leaf."""
    threshold: Array
    """Rows with at most this value go left."""
    left: IntArray
    """The next node on the left; in a leaf, the node itself."""
    right: IntArray
    leaf: IntArray
    """The number of the leaf; −1 in other nodes."""

    @classmethod
    def of(cls, tree: Any) -> TreeRouting:
        """The routing of scikit-learn's `tree_`."""
        own = np.arange(tree.node_count)
        is_leaf = tree.children_left < 0
        numbers = np.full(tree.node_count, -1)
        numbers[is_leaf] = np.arange(int(is_leaf.sum()))
        return cls(
            np.where(is_leaf, 0, tree.feature),
            np.where(is_leaf, 0.0, tree.threshold),
            np.where(is_leaf, own, tree.children_left),
            np.where(is_leaf, own, tree.children_right),
            numbers,
        )

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return int(self.leaf.max()) + 1

    def __call__(self, X: AnyArray) -> IntArray:
        """Numbers [t] of the leaves of rows X [t, d]."""
        node, row = np.zeros(len(X), dtype=np.int64), np.arange(len(X))
        while True:
            goes_left = X[row, self.feature[node]] <= self.threshold[node]
            below = np.where(goes_left, self.left[node], self.right[node])
            if np.array_equal(below, node):
                return np.asarray(self.leaf[node])
            node = below


@dataclass(frozen=True)
class EstimatorRouting(Routing):
    """The leaves of a fitted estimator: different values of its `apply`, or else of its `predict`."""

    estimator: BaseEstimator
    values: AnyArray
    """[K − 1]: the values that the training rows have; all others are the last leaf, without rows."""

    @property
    def n_leaves(self) -> int:
        """Number of values, and one for those not seen in training."""
        return len(self.values) + 1

    def __call__(self, X: AnyArray) -> IntArray:
        """Numbers [t] of the leaves of rows X [t, d]."""
        return self.of_values(values_of_estimator(self.estimator, X))

    def of_values(self, found: AnyArray) -> IntArray:
        """Numbers [t] of the leaves of rows for which the estimator has said `found` [t]."""
        place = np.minimum(np.searchsorted(self.values, found), len(self.values) - 1)
        return np.where(self.values[place] == found, place, len(self.values))


def values_of_estimator(estimator: BaseEstimator, X: AnyArray) -> AnyArray:
    """What the `apply` of an estimator, or else its `predict`, says of rows X [t, d]: one value each."""
    name = "apply" if hasattr(estimator, "apply") else "predict"
    values = np.asarray(getattr(estimator, name)(X))
    if values.shape != (len(X),):
        raise ValueError(
            f"leaves={estimator!r}: its {name} gives an array of shape {values.shape} for {len(X)} "
            "rows, and one leaf for each row is needed; pass a single tree, or an estimator with predict"
        )
    return values


def learn_tree(
    source: RowSource, n_leaves: int, seed: int, held_out: IntArray | None = None
) -> TreeRouting:
    """A decision tree with at most so many leaves, learned on a sample of a source's rows.

    held_out: sorted numbers [k] of rows that take no part in training: it does not know their labels.

    It cuts where the classes differ. Of the leaves that a part of the rows may have, each side of a cut
    gets the share that it has of the rows. So no leaf has far fewer rows than others: each costs the
    algebra of its points once an epoch. Rows of one class are not cut, and there may be fewer leaves.
    """
    rows, most = source.take(_sampled(source, seed, held_out)), 2 * n_leaves - 1
    X = _single(rows.X)
    feature, threshold = np.zeros(most, np.int64), np.zeros(most)
    left, right = np.arange(most), np.arange(most)
    n_nodes, todo = 1, [(0, np.arange(len(X)), n_leaves)]
    while todo:
        node, part, k = todo.pop()
        weight = None if rows.weight is None else rows.weight[part]
        cut = None if k == 1 else _best_cut(X[part], rows.labels[part], weight, k, seed)
        if cut is None:
            continue
        feature[node], threshold[node] = cut
        goes_left = X[part, cut[0]] <= cut[1]
        k_left = min(max(1, round(k * float(goes_left.mean()))), k - 1)
        left[node], right[node] = n_nodes, n_nodes + 1
        todo.append((n_nodes, part[goes_left], k_left))
        todo.append((n_nodes + 1, part[~goes_left], k - k_left))
        n_nodes += 2
    is_leaf = left[:n_nodes] == np.arange(n_nodes)
    leaf = np.where(is_leaf, np.cumsum(is_leaf) - 1, -1)
    return TreeRouting(feature[:n_nodes], threshold[:n_nodes], left[:n_nodes], right[:n_nodes], leaf)


def _best_cut(
    X: Array, labels: IntArray, weight: Array | None, n_leaves: int, seed: int
) -> tuple[int, float] | None:
    """Feature and threshold that tell the classes of rows X [n, d] apart best; None if there are none.

    Each side has at least half as many rows as the n_leaves that share them have on average: so many
    are rounded to one leaf.
    """
    from sklearn.tree import DecisionTreeClassifier  # not above: it would slow `import cavity` down

    least = max(1, len(X) // (2 * n_leaves))
    stump = DecisionTreeClassifier(max_depth=1, min_samples_leaf=least, random_state=seed)
    with np.errstate(over="ignore", invalid="ignore"):  # sums of huge values, to look for NaN
        tree = stump.fit(X, labels, sample_weight=weight).tree_
    return (int(tree.feature[0]), float(tree.threshold[0])) if tree.node_count == 3 else None


def learn_from_numbers(
    source: RowSource, numbers: ArrayLike, seed: int, held_out: IntArray | None = None
) -> TreeRouting:
    """A decision tree that learns a user's leaf numbers [n] on a sample of a source's rows.

    numbers: numbers or words, one for each row that the user has passed. New rows have none: so the tree
    says where rows are, also those of the source. held_out: sorted numbers [k] of rows that take no part
    in training. What was said of them may come from their labels: the tree does not know it.
    """
    from sklearn.tree import DecisionTreeClassifier

    given = np.asarray(numbers)
    kept = source.expanded_to_input_rows(np.zeros(source.n_rows)) == 0.0
    if given.shape != kept.shape:
        raise ValueError(
            f"leaves is an array of shape {given.shape}, and X has {len(kept):,} rows; pass a leaf "
            "number for each row, how many leaves there are, or an estimator with apply or predict"
        )
    values, codes = np.unique(given[kept], return_inverse=True)
    _require_few(values, "leaves, an array,")
    chosen = _sampled(source, seed, held_out)
    tree = DecisionTreeClassifier(random_state=seed)
    with np.errstate(over="ignore", invalid="ignore"):  # sums of huge values, to look for NaN
        tree.fit(_single(source.take(chosen).X), codes[chosen])
    found = tree.classes_[tree.tree_.value[:, 0].argmax(axis=1)]
    routing = TreeRouting.of(tree.tree_)
    return replace(routing, leaf=np.where(routing.leaf < 0, -1, found))


def learn_from_estimator(source: Source, estimator: BaseEstimator) -> EstimatorRouting:
    """The routing of a fitted estimator, with the values that a source's rows have."""
    seen = [
        np.unique(values_of_estimator(estimator, block.load().X))
        for block in source.blocks(rows_to_look_at(source.n_features))
    ]
    return routing_by_values(estimator, seen)


def routing_by_values(estimator: BaseEstimator, seen: Iterable[AnyArray]) -> EstimatorRouting:
    """The routing of a fitted estimator, with the values that it has said of rows."""
    values = np.unique(np.concatenate(list(seen)))
    _require_few(values, f"leaves={estimator!r}")
    return EstimatorRouting(estimator, values)


def _require_few(values: AnyArray, words: str) -> None:
    """Refuse more different values than there can be leaves."""
    if len(values) >= MOST_LEAVES:
        raise ValueError(
            f"{words} has {len(values):,} different values on these rows; at most "
            f"{MOST_LEAVES:,} leaves are possible: pass a tree with fewer leaves, or a clustering"
        )


def leaves_of_rows(source: Source, routing: Routing) -> IntArray:
    """The leaf [n] of every row of a source, in one pass."""
    leaf = np.zeros(source.n_rows, dtype=np.int16)
    for block in source.blocks(rows_to_look_at(source.n_features)):
        leaf[block.index] = routing(block.load().X)
    return leaf


def _single(X: AnyArray) -> AnyArray:
    """Rows X [n, d] in single precision, in which scikit-learn compares values.

    Values beyond its range are at its ends. A routing need not move them: no threshold is larger.
    """
    most = np.finfo(np.float32).max
    return np.clip(X, -most, most).astype(np.float32)


def _sampled(source: RowSource, seed: int, held_out: IntArray | None) -> IntArray:
    """Sorted numbers of the rows that a routing is learned from: none of those held out [k]."""
    left_out = np.zeros(0, np.int64) if held_out is None else held_out
    n, most = source.n_rows - len(left_out), max(1_000, _SAMPLE_VALUES // source.n_features)
    drawn = np.random.default_rng(seed).choice(n, min(n, most, SAMPLE_ROWS), replace=False)
    # The i-th of the other rows has the number i, and one more for each held-out row before it.
    before = left_out - np.arange(len(left_out))
    return np.sort(drawn + np.searchsorted(before, drawn, side="right"))


def leaves_in_order(counts: IntArray, start: int, stop: int) -> IntArray:
    """The leaves of the rows `start` … `stop` − 1, if rows are in the order of their leaves.

    counts: [K], number of rows of each leaf.

    >>> leaves_in_order(np.array([2, 0, 3]), 1, 4)
    array([0, 2, 2])
    """
    return np.searchsorted(np.cumsum(counts), np.arange(start, stop), side="right")


def with_leaves(source: SomeSource, leaf: IntArray, rows_of_a_leaf: int | None = None) -> SomeSource:
    """The same rows with the number of the leaf [n] of each; the source itself is not changed.

    rows_of_a_leaf: see `leaf_batches`.
    """
    copied = copy.copy(source)
    copied.leaf, copied.rows_of_a_leaf = leaf, rows_of_a_leaf
    return copied


def leaf_batches(
    leaf: IntArray, size: int, rng: np.random.Generator, rows_of_a_leaf: int | None = None
) -> list[IntArray]:
    """Numbers of the rows of minibatches of about `size` rows, each from a few leaves.

    leaf: [n], the leaf of each row; rows_of_a_leaf: about how many of one leaf a minibatch has; None
    means as many as there are. The rows of each leaf, in random order, are cut into chunks of about this
    size. The chunks, in random order, make up the minibatches, whose sizes differ: a chunk is never cut,
    as the algebra of a leaf costs the same for few rows. Every row is in one of J minibatches, in each
    with the same probability. So J times the sums of a minibatch are without bias.

    >>> leaf = np.repeat([0, 1], [6_000, 2_000])
    >>> parts = leaf_batches(leaf, 1_000, np.random.default_rng(0))
    >>> len(parts), {len(part) for part in parts}, len(np.unique(np.concatenate(parts)))
    (8, {1000}, 8000)
    """
    n, together = len(leaf), rows_of_a_leaf or size
    order = shuffled(n, rng)
    order = order[np.argsort(leaf[order], kind="stable")]
    counts = np.bincount(leaf)
    chunks = [
        rows[part]
        for rows in np.split(order, np.cumsum(counts)[:-1])
        if len(rows)
        for part in even_parts(len(rows), max(1, round(len(rows) / together)))
    ]
    chunks = [chunks[number] for number in rng.permutation(len(chunks))]
    sizes = np.array([len(chunk) for chunk in chunks])
    middle = np.cumsum(sizes) - 0.5 * sizes
    turn = (middle * batch_count(n, size) / n).astype(np.int64)
    starts = np.flatnonzero(np.diff(turn)) + 1
    edges = [0, *starts.tolist(), len(chunks)]
    return [np.concatenate(chunks[i:j]) for i, j in pairwise(edges)]


def regrouped_batches(
    source: Source, size: int, rng: np.random.Generator, skip: int = 0
) -> Iterator[LoadedBlock]:
    """The minibatches of a source whose rows have leaves, regrouped so that each has few leaves.

    As many rows as one look at a source takes are held at a time, and divided by `leaf_batches`.
    """
    assert source.leaf is not None
    own = np.random.default_rng(rng.integers(2**63))
    n_together = max(1, rows_to_look_at(source.n_features) // size)
    blocks = source.batches(size, rng)
    while group := list(islice(blocks, n_together)):
        index = np.concatenate([np.asarray(block.index) for block in group])
        parts = leaf_batches(source.leaf[index], size, own, source.rows_of_a_leaf)
        if skip >= len(parts):
            skip -= len(parts)
            continue
        rows = joined([block.load() for block in group])
        share = len(index) / (source.n_rows * len(parts))
        for part in parts[skip:]:
            yield LoadedBlock(index[part], rows.take(part), share=share)
        skip = 0


def by_leaf(leaf: IntArray) -> list[tuple[int, IntArray]]:
    """Every leaf that occurs among leaf numbers [t], with the sorted positions of its rows.

    >>> by_leaf(np.array([3, 1, 3]))
    [(1, array([1])), (3, array([0, 2]))]
    """
    order = np.argsort(leaf, kind="stable")
    found, starts = np.unique(leaf[order], return_index=True)
    return [(int(k), part) for k, part in zip(found, np.split(order, starts[1:]), strict=True)]

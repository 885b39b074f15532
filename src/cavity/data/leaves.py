"""Rows of leaves: parts of the input space that have inducing points of their own."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np

from cavity.data.source import SomeSource, batch_count, even_parts, shuffled
from cavity.typing import IntArray

ROWS_OF_A_CHUNK = 512
"""About how many rows of one leaf a minibatch has: enough for products of matrices to be fast."""


def with_leaves(source: SomeSource, leaf: IntArray) -> SomeSource:
    """The same rows with the number of the leaf [n] of each; the source itself is not changed."""
    copied = copy.copy(source)
    copied.leaf = leaf
    return copied


def leaf_batches(
    leaf: IntArray, size: int, rng: np.random.Generator, skip: int = 0
) -> Iterator[IntArray]:
    """Sorted numbers of the rows of minibatches of about `size` rows, each from a few leaves.

    leaf: [n], the leaf of each row. The rows of a leaf, in random order, follow those of the leaf
    before, and the whole is cut into equal chunks. A minibatch has some chunks, drawn at random: every
    row is in one of them, and in each with the same probability, whatever the sizes of leaves.

    >>> leaf = np.repeat([0, 1], [6_000, 2_000])
    >>> parts = list(leaf_batches(leaf, 1_000, np.random.default_rng(0)))
    >>> len(parts), {len(part) for part in parts}, len(np.unique(np.concatenate(parts)))
    (8, {1000}, 8000)
    """
    n = len(leaf)
    order = shuffled(n, rng)
    order = order[np.argsort(leaf[order], kind="stable")]
    n_chunks = max(1, round(size / ROWS_OF_A_CHUNK))
    chunks = even_parts(n, n_chunks * batch_count(n, size))
    turn = rng.permutation(len(chunks)).reshape(-1, n_chunks)
    for numbers in turn[skip:]:
        yield np.sort(np.concatenate([order[chunks[number]] for number in numbers]))


def by_leaf(leaf: IntArray) -> list[tuple[int, IntArray]]:
    """Every leaf that occurs among leaf numbers [t], with the sorted positions of its rows.

    >>> by_leaf(np.array([3, 1, 3]))
    [(1, array([1])), (3, array([0, 2]))]
    """
    order = np.argsort(leaf, kind="stable")
    found, starts = np.unique(leaf[order], return_index=True)
    return [(int(k), part) for k, part in zip(found, np.split(order, starts[1:]), strict=True)]

"""Routings: which leaf a row falls into, and minibatches of a few leaves."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from cavity.data import ArraySource, routing
from cavity.data.routing import (
    TreeRouting,
    learn_from_estimator,
    learn_from_numbers,
    learn_tree,
    leaves_of_rows,
    regrouped_batches,
    with_leaves,
)
from cavity.data.sampling import hashed_rows
from cavity.data.weights import weighted_source


def table(n=2_000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    return X, (np.sin(3 * X[:, 0]) + X[:, 1] > 0).astype(np.int8)


def test_tree_divides_rows_as_scikit_learn_does():
    X, y = table()
    tree = DecisionTreeClassifier(max_leaf_nodes=9, random_state=0).fit(X, y)
    ours, theirs = TreeRouting.of(tree.tree_)(X), tree.apply(X)
    assert len(np.unique(ours)) == len(np.unique(theirs)) == 9
    assert len(np.unique(np.column_stack([ours, theirs]), axis=0)) == 9


def test_leaves_of_a_learned_tree_have_many_rows():
    X, y = table()
    routing = learn_tree(ArraySource(X, y), 8, seed=0)
    leaf = leaves_of_rows(ArraySource(X, y), routing)
    assert routing.n_leaves == 8
    assert np.bincount(leaf, minlength=8).min() >= 0.25 * len(X) / 8


@pytest.mark.parametrize("n_leaves", [2, 3, 16, 50])
def test_leaves_of_a_learned_tree_have_about_equally_many_rows(n_leaves):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5_000, 3))
    # The classes differ in a tenth of the rows: a tree that looks at nothing else cuts these alone.
    y = np.where(X[:, 0] > 1.3, rng.integers(0, 2, 5_000), rng.random(5_000) < 0.05).astype(np.int8)
    routing = learn_tree(ArraySource(X, y), n_leaves, seed=0)
    counts = np.bincount(leaves_of_rows(ArraySource(X, y), routing), minlength=routing.n_leaves)
    assert 0.9 * n_leaves <= routing.n_leaves <= n_leaves
    assert counts.min() >= 0.25 * len(X) / n_leaves
    assert counts.max() <= 2.5 * len(X) / n_leaves


def test_learned_tree_cuts_where_the_classes_differ():
    X, _ = table()
    routing = learn_tree(ArraySource(X, (X[:, 2] > 0.4).astype(np.int8)), 4, seed=0)
    assert routing.n_leaves == 2  # rows of one class are not cut
    np.testing.assert_array_equal(routing(X) == routing(X)[0], (X[:, 2] > 0.4) == (X[0, 2] > 0.4))


def test_tree_of_rows_of_one_label_is_one_leaf():
    X, y = table()
    routing = learn_tree(ArraySource(X, np.zeros_like(y)), 8, seed=0)
    assert routing.n_leaves == 1
    assert not routing(X).any()


def test_one_leaf_has_all_rows():
    X, y = table()
    routing = learn_tree(ArraySource(X, y), 1, seed=0)
    assert routing.n_leaves == 1
    assert not routing(X).any()


@pytest.mark.parametrize("sample", [500, 5_000])
def test_trees_do_not_know_what_is_said_of_held_out_rows(sample, monkeypatch):
    monkeypatch.setattr(routing, "SAMPLE_ROWS", sample)  # a part of the rows, and all of them
    X, y = table()
    held_out = hashed_rows(len(X), 400)
    changed = y.copy()
    changed[held_out] = 1 - y[held_out]
    for learn in (
        lambda said, without=None: learn_tree(ArraySource(X, said), 50, 0, without),
        lambda said, without=None: learn_from_numbers(ArraySource(X, y), said, 0, without),
    ):
        leaf = learn(y, held_out)(X)
        np.testing.assert_array_equal(leaf, learn(changed, held_out)(X))
        assert (leaf != learn(changed)(X)).any()


def test_trees_cut_values_beyond_single_precision():
    X, y = table()
    huge = X * np.array([1e39, 1e-3, 1e300])
    for tree in (
        learn_tree(ArraySource(huge, y), 30, seed=0),
        learn_from_numbers(ArraySource(huge, y), y, seed=0),
    ):
        assert {0, 1} <= set(tree.feature)
        ends = np.clip(huge, -np.finfo(np.float32).max, np.finfo(np.float32).max)
        np.testing.assert_array_equal(tree(huge), tree(ends))


def test_values_that_no_training_row_has_are_the_last_leaf():
    X, y = table()
    clusters = KMeans(4, n_init=1, random_state=0).fit(X)
    some = clusters.predict(X) != 2
    routing = learn_from_estimator(ArraySource(X[some], y[some]), clusters)
    assert routing.n_leaves == 4
    np.testing.assert_array_equal(routing(X)[~some], 3)
    assert routing(X)[some].max() == 2


def test_estimator_with_several_leaves_a_row_is_refused():
    X, y = table(200)
    forest = RandomForestClassifier(3, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match=r"its apply gives an array of shape \(200, 3\)"):
        learn_from_estimator(ArraySource(X, y), forest)


@pytest.mark.parametrize("sizes", [(4_000, 4_000), (7_000, 30, 1, 1_500)])
def test_minibatches_have_few_leaves_and_every_row_once(sizes):
    leaf = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    source = with_leaves(ArraySource(np.zeros((len(leaf), 1)), np.zeros(len(leaf), np.int8)), leaf)
    parts = list(source.batches(1_024, np.random.default_rng(1)))
    assert {part.share for part in parts} == {1.0 / len(parts)}
    assert max(len(part.index) for part in parts) < 1.6 * 1_024
    numbers = [len(np.unique(leaf[part.index])) for part in parts]
    assert np.mean(numbers) < 1.0 + len(sizes) / len(parts)
    np.testing.assert_array_equal(
        np.sort(np.concatenate([part.index for part in parts])), np.arange(len(leaf))
    )
    later = list(source.batches(1_024, np.random.default_rng(1), skip=3))
    for one, same in zip(later, parts[3:], strict=True):
        np.testing.assert_array_equal(one.index, same.index)


@pytest.mark.parametrize("skip", [0, 3, 10])
def test_minibatches_of_any_source_are_regrouped_by_leaf(skip, monkeypatch):
    monkeypatch.setattr("cavity.data.routing.rows_to_look_at", lambda _: 800)
    X, y = table(2_000)
    leaf = np.random.default_rng(0).integers(0, 4, size=2_000).astype(np.int16)
    source = with_leaves(ArraySource(X, y), leaf)
    source.batches = ArraySource(X, y).batches  # as a source reads them that knows no leaves
    parts = list(regrouped_batches(source, 100, np.random.default_rng(1)))
    index = np.concatenate([part.index for part in parts])
    np.testing.assert_array_equal(np.sort(index), np.arange(2_000))
    np.testing.assert_array_equal(np.concatenate([part.load().X for part in parts]), X[index])
    assert np.mean([len(np.unique(leaf[part.index])) for part in parts]) < 3.0
    later = list(regrouped_batches(source, 100, np.random.default_rng(1), skip))
    for one, same in zip(later, parts[skip:], strict=True):
        np.testing.assert_array_equal(one.index, same.index)


def test_weights_of_classes_stay_with_the_rows():
    X, y = table(100)
    weight = np.random.default_rng(0).uniform(size=100)
    rows = weighted_source(ArraySource(X, y, weight), np.arange(2), {0: 2.0, 1: 0.5})
    expected = weight * np.where(y == 1, 0.5, 2.0)
    np.testing.assert_allclose(rows.weight, expected)
    assert np.isclose(rows.total_weight, expected.sum())
    assert with_leaves(rows, np.zeros(100, np.int16)).leaf is not None
    assert rows.leaf is None

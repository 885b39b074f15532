"""Which leaf a row falls into, as operators of a graph."""

from __future__ import annotations

from functools import singledispatch

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.frozen import FrozenEstimator
from sklearn.tree import BaseDecisionTree

from cavity.data.routing import EstimatorRouting, Routing, TreeRouting
from cavity.export.onnx.graph import Value
from cavity.typing import IntArray


@singledispatch
def leaf_numbers(routing: Routing, X: Value) -> Value:
    """The leaf [N] of each of the raw rows X [N, d], as int64."""
    raise TypeError(f"leaves by {type(routing).__name__!r} have no ONNX form; use cavity.save")


@leaf_numbers.register
def _tree(routing: TreeRouting, X: Value) -> Value:
    return _end_of_path(routing, routing.leaf, X)


def _end_of_path(tree: TreeRouting, numbers: IntArray, X: Value) -> Value:
    """The number of the node in which each row ends, in float64 all along."""
    graph, n = X.graph, len(tree.feature)
    is_leaf = tree.left == np.arange(n)
    (ends,) = np.nonzero(is_leaf)
    found = X.op(
        "TreeEnsembleRegressor",
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=[0] * n,
        nodes_nodeids=list(range(n)),
        nodes_featureids=tree.feature.tolist(),
        nodes_modes=["LEAF" if end else "BRANCH_LEQ" for end in is_leaf],
        nodes_values_as_tensor=graph.tensor(tree.threshold),
        nodes_truenodeids=np.where(is_leaf, 0, tree.left).tolist(),
        nodes_falsenodeids=np.where(is_leaf, 0, tree.right).tolist(),
        target_treeids=[0] * len(ends),
        target_nodeids=ends.tolist(),
        target_ids=[0] * len(ends),
        target_weights_as_tensor=graph.tensor(numbers[ends].astype(np.float64)),
    )
    return found.cast(np.int64).flat()


@leaf_numbers.register
def _estimator(routing: EstimatorRouting, X: Value) -> Value:
    estimator = routing.estimator
    if isinstance(estimator, FrozenEstimator):
        estimator = estimator.estimator
    return _found_by(estimator, routing, X)


@singledispatch
def _found_by(estimator: BaseEstimator, routing: EstimatorRouting, X: Value) -> Value:
    """The leaf [N] that a user's estimator finds for the rows X [N, d]."""
    raise TypeError(
        f"leaves={estimator!r} have no ONNX form; those of a decision tree or KMeans of scikit-learn, "
        "and of a number of leaves, have one: save this model with cavity.save"
    )


@_found_by.register
def _tree_of_estimator(estimator: BaseDecisionTree, routing: EstimatorRouting, X: Value) -> Value:
    tree = estimator.tree_
    nodes = routing.of_values(np.arange(tree.node_count))
    return _end_of_path(TreeRouting.of(tree), nodes, X.cast(np.float32).cast(np.float64))


@_found_by.register(KMeans)
@_found_by.register(MiniBatchKMeans)
def _nearest_centre(estimator: KMeans | MiniBatchKMeans, routing: EstimatorRouting, X: Value) -> Value:
    centres = np.asarray(estimator.cluster_centers_, dtype=np.float64)
    origin = centres.mean(axis=0)
    centres = centres - origin
    distance = np.sum(centres**2, axis=1)[None] - 2.0 * ((X - origin) @ centres.T)
    nearest = distance.op("ArgMin", axis=1, keepdims=0)
    return X.graph.op("Gather", routing.of_values(np.arange(len(centres))), nearest)

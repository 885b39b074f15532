"""Models with leaves, exported."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from onnx_serving import run, run_columns
from sklearn.cluster import KMeans
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.tree import DecisionTreeClassifier

from cavity import SEPClassifier, TableClassifier
from cavity.data.routing import TreeRouting
from cavity.export.onnx import graph as onnx_graph
from cavity.export.onnx import to_onnx
from cavity.export.onnx.graph import Graph
from cavity.export.onnx.routing import leaf_numbers
from support import PINNED

SETTINGS = {name: value for name, value in PINNED.items() if name != "scaling"} | {"n_local": 8}


def stripes(n=400, seed=0):
    """Rows [n, 2] in float32, whose label changes often along the first column."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(0, 20, size=n), rng.normal(size=n)])
    return X.astype(np.float32), (np.sin(1.5 * X[:, 0]) + 0.3 * X[:, 1] > 0).astype(int)


def classifier(leaves=4, **parameters):
    given = {"n_inducing": 4, "batch_size": 200, "max_epochs": 2, "random_state": 0, "n_jobs": 1}
    return SEPClassifier(leaves=leaves, config=SETTINGS, **{**given, **parameters})


def far_and_near(rows):
    return np.vstack([rows, 30.0 * rows[:20], [[1e30, -1e30]]]).astype(np.float32)


def assert_served(fit, rows):
    served = run(to_onnx(fit), rows)
    assert_allclose(served["probabilities"], fit.predict_proba(rows), atol=1e-5)
    mean, variance = fit.latent_mean_and_variance(rows)
    assert_allclose(served["latent_mean"], mean, rtol=1e-5, atol=1e-5)
    assert_allclose(served["latent_variance"], variance, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("leaves", [1, 5, "tree", "frozen tree", "clusters"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_probabilities_are_those_of_the_estimator(leaves, n_classes):
    X, y = stripes()
    if n_classes == 3:
        y = np.where(X[:, 0] < 10, y, 2 * y)
    tree = DecisionTreeClassifier(max_leaf_nodes=5, random_state=0).fit(X, y)
    router = {
        "tree": tree,
        "frozen tree": FrozenEstimator(tree),
        "clusters": KMeans(4, random_state=0, n_init=1).fit(X),
    }.get(leaves, leaves)
    assert_served(classifier(router).fit(X, y), far_and_near(stripes(200, seed=1)[0]))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_white_noise_mean_functions_and_leaves_of_few_rows_agree():
    X, y = stripes()
    kernel = RBF(1.0) + WhiteKernel(0.3)
    fit = classifier(60, kernel=kernel, mean_function="linear", likelihood="logit").fit(X, y)
    assert len(set(fit.model_.local.leaves.sizes)) > 1
    assert_served(fit, far_and_near(stripes(200, seed=1)[0]))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_table_agrees():
    pandas = pytest.importorskip("pandas")
    X, y = stripes()
    frame = pandas.DataFrame({"along": X[:, 0], "kind": np.where(X[:, 1] > 0, "a", "b"), "late": y})
    fit = TableClassifier(classifier()).fit(frame, "late")
    dtypes = {"along": np.float32, "kind": object}
    exported = to_onnx(fit)
    columns = {name: frame[[name]].to_numpy(dtype) for name, dtype in dtypes.items()}
    served = run_columns(exported, columns)
    assert_allclose(served["probabilities"], fit.predict_proba(frame), atol=1e-5)


def test_rows_on_a_seam_go_where_the_tree_says():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1_000, 3))
    tree = DecisionTreeClassifier(max_leaf_nodes=60, random_state=0).fit(X, rng.integers(0, 2, 1_000))
    routing = TreeRouting.of(tree.tree_)
    rows = []
    for node in np.flatnonzero(routing.leaf < 0):
        value = routing.threshold[node]
        for near in (value, np.nextafter(value, np.inf), np.nextafter(value, -np.inf)):
            some = rng.normal(size=(3, 3))
            some[:, routing.feature[node]] = near
            rows.append(some)
    graph = Graph()
    numbers = leaf_numbers(routing, graph.input("X", float, ["N", 3]))
    graph.output(numbers, "leaf", np.int64, ["N"])
    X = np.vstack(rows)
    assert_array_equal(run_columns(graph.model("", {}), {"X": X})["leaf"], routing(X))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_has_no_form_is_refused(monkeypatch):
    X, y = stripes(200)
    boosted = GradientBoostingClassifier(n_estimators=2, random_state=0).fit(X, y)
    boosted.apply = lambda X: boosted.predict(X)
    fit = classifier(boosted, max_epochs=0.5).fit(X, y)
    with pytest.raises(TypeError, match=r"GradientBoostingClassifier.*have no ONNX form"):
        to_onnx(fit)
    monkeypatch.setattr(onnx_graph, "MOST_BYTES", 1_000)
    with pytest.raises(ValueError, match="a file of ONNX has at most 2"):
        to_onnx(classifier(max_epochs=0.5).fit(X, y))

"""partial_fit of models with leaves."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.tree import DecisionTreeClassifier

import cavity
from cavity import SEPClassifier
from support import PINNED

SETTINGS = {name: value for name, value in PINNED.items() if name != "scaling"} | {"n_local": 12}


def stripes(n=2_000, seed=0):
    """Rows [n, 2] whose label changes nine times along the first column: much to learn everywhere."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(0, 20, size=n), rng.normal(size=n)])
    latent = 3 * np.sin(1.5 * X[:, 0] + 0.3 * X[:, 1]) + rng.normal(size=n)
    return X, (latent > 0).astype(int)


X, LABELS = stripes()
X_STAR, LABELS_STAR = stripes(800, seed=1)


def classifier(leaves=4, **parameters):
    config = {**SETTINGS, **parameters.pop("config", {})}
    if leaves is None:
        del config["n_local"]
    given = {"n_inducing": 4, "scaling": "standard", "random_state": 0, "n_jobs": 1}
    return SEPClassifier(leaves=leaves, config=config, **{**given, **parameters})


def stream(model, X, labels, size=200):
    for i in range(0, len(X), size):
        model.partial_fit(X[i : i + size], labels[i : i + size], classes=[0, 1])
    return model


def nll(model, labels=LABELS_STAR):
    return -model.predict_log_proba(X_STAR)[np.arange(len(labels)), labels].mean()


@pytest.fixture(scope="module")
def streamed():
    return stream(classifier(config={"n_local": 24}), X, LABELS, 500)


def test_a_stream_ends_close_to_fit_and_beats_as_many_points_a_row(streamed):
    config = {"n_local": 24}
    whole = classifier(validation_fraction=None, batch_size=200, max_epochs=20, config=config)
    whole.fit(X, LABELS)
    assert nll(streamed) < nll(whole) + 0.02
    assert nll(streamed) < nll(stream(classifier(None, n_inducing=20), X, LABELS, 500)) - 0.02
    assert len(streamed.model_.local.leaves) == 4


def test_a_saved_stream_goes_on(streamed, tmp_path):
    streamed.save(tmp_path / "model.cavity")
    twins = [pickle.loads(pickle.dumps(streamed)), cavity.load(tmp_path / "model.cavity")]
    more = stripes(200, seed=3)
    expected = pickle.loads(pickle.dumps(streamed)).partial_fit(*more).predict_proba(X_STAR)
    for twin in twins:
        assert_array_equal(twin.partial_fit(*more).predict_proba(X_STAR), expected)


def test_a_window_follows_a_drift():
    faithful, forgetful = classifier(2), classifier(2, window_size=200)
    for model in (faithful, forgetful):
        stream(model, X[:400], LABELS[:400])
        stream(model, X[400:800], 1 - LABELS[400:800])
    assert nll(forgetful, 1 - LABELS_STAR) < nll(faithful, 1 - LABELS_STAR) - 0.1


@pytest.mark.parametrize("batch_size", [100, None])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_stream_after_a_fit_starts_from_its_predictions(batch_size):
    model = classifier(batch_size=batch_size, max_epochs=3).fit(X, LABELS)
    before = model.predict_proba(X_STAR)
    model.set_params(optimizer=None).partial_fit(X_STAR[:1], LABELS_STAR[:1])
    assert_allclose(model.predict_proba(X_STAR), before, atol=0.02)


def test_small_first_chunks_give_few_points_and_more_come_later():
    model = classifier(3).partial_fit(X[:20], LABELS[:20])
    assert max(model.model_.local.leaves.sizes) < 12
    stream(model, X[20:400], LABELS[20:400])
    assert model.model_.local.leaves.sizes == (12, 12, 12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_three_classes_and_an_estimator_that_routes():
    y = np.where(X[:, 0] < 10, LABELS, 2 * LABELS)
    tree = DecisionTreeClassifier(max_leaf_nodes=3, random_state=0).fit(X, y)
    model = classifier(tree)
    for part in np.array_split(np.arange(800), 2):
        model.partial_fit(X[part], y[part], classes=[0, 1, 2])
    assert model.predict_proba(X_STAR).shape == (800, 3)
    assert len(model.model_.local.leaves) == 4
    assert model.score(X[:800], y[:800]) > 0.7


def test_other_leaves_late_are_refused(streamed):
    model = pickle.loads(pickle.dumps(streamed)).set_params(leaves=None, config=None)
    with pytest.raises(ValueError, match="leaves=None, but the model that partial_fit goes on from has"):
        model.partial_fit(X[:50], LABELS[:50])
    plain = classifier(None).partial_fit(X[:200], LABELS[:200]).set_params(leaves=3)
    with pytest.raises(ValueError, match=r"leaves=3, but the model .* has none"):
        plain.partial_fit(X[:50], LABELS[:50])

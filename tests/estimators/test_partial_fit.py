"""partial_fit: a stream ends close to fit, carries its posterior over, and forgets if it should."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.exceptions import NotFittedError

from cavity import SEPClassifier, SVIClassifier
from cavity.inference.optimizers import Adam
from support import make, table

X, LABELS = make_moons(2000, noise=0.3, random_state=0)
X_STAR, LABELS_STAR = make_moons(1000, noise=0.3, random_state=1)
both = pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier])


def classifier(kind=SEPClassifier, **options):
    return make(kind, **{"n_inducing": 15, "random_state": 0, "n_jobs": 1, **options})


def stream(model, X, labels, size=100):
    for i in range(0, len(X), size):
        model.partial_fit(X[i : i + size], labels[i : i + size], classes=[0, 1])
    return model


def nll(model, X=X_STAR, labels=LABELS_STAR):
    return -model.predict_log_proba(X)[np.arange(len(labels)), labels].mean()


@pytest.fixture(scope="module")
def streamed():
    """Of each kind, a model that has seen all rows in chunks of 100."""
    return {kind: stream(classifier(kind), X, LABELS) for kind in (SEPClassifier, SVIClassifier)}


@both
def test_shuffled_chunks_end_close_to_fit(kind, streamed):
    """Test NLL within 0.02 nats of a fit that saw all rows as often as it liked; fit has 0.24."""
    whole = classifier(kind, validation_fraction=None, max_epochs=60).fit(X, LABELS)
    for model in (streamed[kind], stream(classifier(kind), X, LABELS, size=2_000)):
        assert nll(model) < nll(whole) + 0.02
        assert model.score(X_STAR, LABELS_STAR) > whole.score(X_STAR, LABELS_STAR) - 0.02


@both
@pytest.mark.parametrize("seed", range(2))
def test_the_order_of_the_chunks_matters_little(kind, seed, streamed):
    order = np.random.default_rng(seed).permutation(len(X))
    other = stream(classifier(kind), X[order], LABELS[order])
    assert abs(nll(streamed[kind]) - nll(other)) < 0.02


@both
def test_more_rows_are_better(kind):
    model = classifier(kind).partial_fit(X[:50], LABELS[:50])
    losses = [nll(model)]
    stream(model, X[50:], LABELS[50:])
    losses.append(nll(model))
    assert losses[1] < losses[0] < np.log(2)


@both
def test_what_was_learned_is_carried_over(kind, streamed):
    """A chunk that shows one corner only does not unlearn the others."""
    model = copy.deepcopy(streamed[kind])
    before = nll(model)
    corner = X[:, 0] > 1.5
    model.partial_fit(X[corner][:100], LABELS[corner][:100])
    assert nll(model) < before + 0.02


@both
def test_the_same_chunk_again_changes_little(kind):
    model = stream(classifier(kind), X, LABELS)
    before = model.predict_proba(X_STAR)
    model.partial_fit(X[:100], LABELS[:100])
    assert np.abs(model.predict_proba(X_STAR) - before).mean() < 0.02


@both
def test_the_first_chunk_moves_away_from_the_prior(kind):
    proba = classifier(kind).partial_fit(X[:100], LABELS[:100]).predict_proba(X_STAR)
    assert np.abs(proba - 0.5).max() > 0.3


@both
def test_memory_follows_a_drift(kind):
    """Labels swap half-way: who remembers 300 rows has turned round, who remembers all has not."""
    forgetful, faithful = classifier(kind, window_size=300), classifier(kind)
    for model in (forgetful, faithful):
        stream(model, X[:1000], LABELS[:1000])
        stream(model, X[1000:1600], 1 - LABELS[1000:1600])
    assert nll(forgetful, X_STAR, 1 - LABELS_STAR) < nll(faithful, X_STAR, 1 - LABELS_STAR) - 0.1
    assert forgetful.score(X_STAR, 1 - LABELS_STAR) > 0.8


@both
def test_a_fit_goes_on_as_a_stream(kind):
    model = classifier(kind).fit(X[:1000], LABELS[:1000])
    before = nll(model)
    stream(model, X[1000:], LABELS[1000:])
    assert nll(model) < before + 0.005
    assert model.predict(X_STAR).shape == (1000,)


def test_a_stream_keeps_the_points_that_a_fit_has_chosen_for_predictions():
    model = classifier(n_predicting=30, batch_size=100, max_epochs=3, validation_fraction=None)
    model.fit(X[:600], LABELS[:600])
    assert len(model.model_.Z) == 30
    model.partial_fit(X[600:900], LABELS[600:900])
    assert len(model.model_.Z) == 30


@both
@pytest.mark.parametrize("batch_size", [50, None])
def test_a_stream_after_a_fit_starts_from_its_predictions(kind, batch_size):
    """One more row among a thousand hardly changes anything, however the fit was trained."""
    epochs = 5 if batch_size else None
    model = classifier(kind, n_inducing=50, batch_size=batch_size, max_epochs=epochs)
    model.fit(X[:1000], LABELS[:1000])
    before = model.predict_proba(X_STAR)
    model.set_params(optimizer=None).partial_fit(X[1000:1001], LABELS[1000:1001])
    assert_allclose(model.predict_proba(X_STAR), before, atol=0.02)


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_single_precision_streams_predict_as_double_ones(kind, dtype):
    reference = stream(classifier(kind, n_inducing=50), X[:500], LABELS[:500])
    model = stream(classifier(kind, n_inducing=50), X[:500].astype(dtype), LABELS[:500])
    assert abs(nll(model) - nll(reference)) < 0.02


@both
def test_fit_forgets_the_stream(kind):
    after = stream(classifier(kind), X[:300], 1 - LABELS[:300])
    after.fit(X[:300], LABELS[:300])
    fresh = classifier(kind).fit(X[:300], LABELS[:300])
    assert_allclose(after.predict_proba(X_STAR), fresh.predict_proba(X_STAR), atol=1e-9)


def test_with_a_fixed_kernel_only_the_posterior_moves():
    model = classifier(optimizer=None).partial_fit(X[:100], LABELS[:100])
    theta, Z = model.kernel_.theta.copy(), model.inducing_points_.copy()
    stream(model, X[100:500], LABELS[100:500])
    assert_array_equal(model.kernel_.theta, theta)
    assert_allclose(model.inducing_points_, Z, rtol=1e-12)
    assert nll(model) < 0.5


def test_kernel_parameters_stay_inside_their_bounds():
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 2, size=len(X))
    model = classifier(optimizer=Adam(0.3), hyperprior_scale=None)
    for i in range(0, len(X), 50):
        model.partial_fit(X[i : i + 50], noise[i : i + 50], classes=[0, 1])
        lower, upper = model.kernel_.bounds.T
        assert (model.kernel_.theta >= lower - 1e-9).all()
        assert (model.kernel_.theta <= upper + 1e-9).all()
    assert np.isfinite(nll(model))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_saved_stream_goes_on(copied):
    model = stream(classifier(), X[:500], LABELS[:500])
    twin = copied(model)
    for one in (model, twin):
        stream(one, X[500:800], LABELS[500:800])
    assert_array_equal(twin.predict_proba(X_STAR), model.predict_proba(X_STAR))


def test_a_clone_has_no_past():
    twin = clone(stream(classifier(), X[:300], LABELS[:300]))
    with pytest.raises(NotFittedError):
        twin.predict(X_STAR)


def test_the_history_of_a_stream_is_one():
    model = stream(classifier(), X[:600], LABELS[:600], size=200)
    numbers = [entry.iteration for entry in model.history_]
    assert numbers == list(range(1, len(numbers) + 1))
    seconds = [entry.seconds for entry in model.history_]
    assert seconds == sorted(seconds)
    epochs = [entry.epochs for entry in model.history_]
    assert epochs == sorted(epochs)


@both
def test_there_is_no_evidence_of_rows_that_are_gone(kind):
    """A minibatch's estimate of the objective can be anything, positive too."""
    model = make(kind, n_inducing=10, tol=1e-2, random_state=0, n_jobs=1).fit(X[:300], LABELS[:300])
    assert model.log_marginal_likelihood() < 0.0
    assert np.isnan(model.partial_fit(X[300:600], LABELS[300:600]).log_marginal_likelihood())


def test_any_form_of_rows():
    dense = stream(classifier(), X[:300], LABELS[:300])
    thin = classifier()
    for i in range(0, 300, 100):
        thin.partial_fit(sparse.csr_matrix(X[i : i + 100]), LABELS[i : i + 100])
    assert_allclose(thin.predict_proba(X_STAR), dense.predict_proba(X_STAR))


class TestClasses:
    def test_may_come_one_by_one_if_they_are_announced(self):
        order = np.argsort(LABELS[:400], kind="stable")
        model = classifier()
        for part in np.split(order, 4):
            model.partial_fit(X[part], LABELS[part], classes=[0, 1])
        assert_array_equal(model.classes_, [0, 1])
        assert model.score(X_STAR, LABELS_STAR) > 0.6

    @pytest.mark.parametrize("names", [["no", "yes"], [False, True], [3, 7]], ids=str)
    def test_may_be_anything(self, names):
        y = np.array(names)[LABELS]
        model = classifier().partial_fit(X[:200], y[:200]).partial_fit(X[200:400], y[200:400])
        assert set(model.predict(X_STAR)) <= set(names)
        assert_array_equal(model.classes_, np.unique(y))

    def test_one_without_the_other_is_refused_with_a_way_out(self):
        with pytest.raises(ValueError, match="classes"):
            classifier().partial_fit(X[:10], np.zeros(10, dtype=int))

    @pytest.mark.parametrize("classes", [[0], []], ids=str)
    def test_must_be_two_at_least(self, classes):
        with pytest.raises(ValueError, match="classes"):
            classifier().partial_fit(X[:50], LABELS[:50], classes=classes)

    def test_must_be_those_of_the_rows(self):
        with pytest.raises(ValueError, match="label"):
            classifier().partial_fit(X[:50], LABELS[:50], classes=[1, 2])

    def test_a_third_one_late_is_named_and_changes_nothing(self):
        model = stream(classifier(), X[:300], LABELS[:300])
        before = model.predict_proba(X_STAR)
        late = LABELS[300:400].copy()
        late[70] = 2
        with pytest.raises(ValueError, match=r"2.*\[0, 1\]"):
            model.partial_fit(X[300:400], late)
        assert_array_equal(model.predict_proba(X_STAR), before)
        model.partial_fit(X[300:400], LABELS[300:400])

    def test_others_than_those_of_the_fit_are_refused(self):
        model = classifier().fit(X[:100], np.array(["a", "b"])[LABELS[:100]])
        with pytest.raises(ValueError, match="label"):
            model.partial_fit(X[:10], LABELS[:10])


class TestBadRows:
    @pytest.fixture
    def model(self):
        return stream(classifier(), X[:200], LABELS[:200])

    def test_of_another_width_are_named(self, model):
        before = model.predict_proba(X_STAR)
        with pytest.raises(ValueError, match=r"3 features.*2 features"):
            model.partial_fit(np.hstack([X[:20], X[:20, :1]]), LABELS[:20])
        assert_array_equal(model.predict_proba(X_STAR), before)

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_that_are_not_finite(self, model, value):
        spoilt = X[:20].copy()
        spoilt[3, 1] = value
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            model.partial_fit(spoilt, LABELS[:20])

    def test_with_labels_of_another_number(self, model):
        with pytest.raises(ValueError, match="inconsistent numbers"):
            model.partial_fit(X[:20], LABELS[:19])

    def test_that_are_none(self, model):
        with pytest.raises(ValueError, match="0 sample"):
            model.partial_fit(X[:0], LABELS[:0])

    def test_with_a_continuous_target(self, model):
        with pytest.raises(ValueError, match=r"continuous|Unknown label"):
            model.partial_fit(X[:20], np.linspace(0, 1, 20))

    def test_that_all_are_the_same(self):
        model = classifier().partial_fit(np.ones((20, 2)), LABELS[:20], classes=[0, 1])
        assert len(model.inducing_points_) == 1
        stream(model, *table(200))
        assert len(model.inducing_points_) == 15
        assert np.isfinite(model.predict_proba(X_STAR)).all()

    def test_a_single_one(self):
        model = classifier().partial_fit(X[:1], LABELS[:1], classes=[0, 1])
        for i in range(1, 30):
            model.partial_fit(X[i : i + 1], LABELS[i : i + 1], classes=[0, 1])
            assert len(model.inducing_points_) == min(i + 1, 15)
        assert np.isfinite(model.predict_proba(X_STAR)).all()

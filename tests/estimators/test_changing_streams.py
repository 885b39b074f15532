"""Between two chunks parameters may change, chunks may be odd, and a fit may follow."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_moons
from sklearn.exceptions import NotFittedError

from cavity import GFITCClassifier, SEPClassifier, SVIClassifier
from cavity.data import ArraySource
from cavity.engines.local import LocalEngine
from cavity.estimators import streaming
from cavity.inference.history import reporting
from cavity.inference.optimizers import Adadelta, SignRates
from support import make

both = pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier])
X, LABELS = make_moons(600, noise=0.3, random_state=0)


def classifier(kind=SEPClassifier, **options):
    return make(kind, **{"n_inducing": 10, "tol": 1e-2, "random_state": 0, "n_jobs": 1, **options})


def begun(kind=SEPClassifier, **options):
    return classifier(kind, **options).partial_fit(X[:200], LABELS[:200])


def theta_and_points(model):
    return model.kernel_.theta.copy(), model.inducing_points_.copy()


class TestParameters:
    @both
    @pytest.mark.parametrize("start", ["partial_fit", "fit"])
    def test_that_are_to_be_learned_no_more_stay(self, kind, start):
        model = getattr(classifier(kind), start)(X[:200], LABELS[:200])
        model.partial_fit(X[200:300], LABELS[200:300]).set_params(optimizer=None)
        theta, Z = theta_and_points(model)
        model.partial_fit(X[300:], LABELS[300:])
        assert_allclose(model.kernel_.theta, theta, rtol=1e-12)
        assert_allclose(model.inducing_points_, Z, rtol=1e-12)

    @both
    def test_inducing_points_may_be_held_and_let_go(self, kind):
        model = begun(kind).set_params(config={"learn_inducing": False})
        theta, Z = theta_and_points(model)
        model.partial_fit(X[200:400] + 3.0, LABELS[200:400])
        assert_allclose(model.inducing_points_, Z, rtol=1e-12)
        assert np.abs(model.kernel_.theta - theta).max() > 1e-4
        model.set_params(config={"learn_inducing": True}).partial_fit(X[400:] + 3.0, LABELS[400:])
        assert np.abs(model.inducing_points_ - Z).max() > 1.0

    def test_what_is_held_is_predicted_with(self):
        """q was made for the inducing points as they are, not as they were at the start."""
        model = begun()
        before = model.predict_proba(X)
        model.set_params(optimizer=None).partial_fit(X[:1], LABELS[:1])
        assert_allclose(model.predict_proba(X), before, atol=0.05)

    def test_the_hyperprior_stays_where_it_was(self):
        model = begun(learn_inducing=False)
        centre = model._centre.copy()
        for change in ({"config": None}, {"optimizer": None}, {"optimizer": "adam"}):
            model.set_params(**change).partial_fit(X[200:300], LABELS[200:300])
        assert_allclose(model._centre[: len(centre)], centre)
        assert np.abs(model.kernel_.theta - centre).max() > 1e-3

    @pytest.mark.parametrize("optimizer", [Adadelta(), SignRates(), None])
    def test_another_optimizer_takes_over(self, optimizer):
        model = begun().set_params(optimizer=optimizer)
        model.partial_fit(X[200:400], LABELS[200:400])
        model.set_params(optimizer="adam").partial_fit(X[400:], LABELS[400:])
        assert model.score(X, LABELS) > 0.8


@both
@pytest.mark.parametrize("optimizer", ["adam", None])
def test_a_whole_configuration_decides(kind, optimizer):
    config = classifier(kind, optimizer=optimizer).fit(X[:200], LABELS[:200]).config_
    model = kind(config=config).partial_fit(X[:200], LABELS[:200])
    assert model.config_.n_inducing == len(model.inducing_points_) == 10
    theta, Z = theta_and_points(model)
    model.partial_fit(np.r_[X[200:400], X[400:] + 3.0], LABELS[200:])
    assert np.array_equal(model.kernel_.theta, theta) == (optimizer is None)
    assert np.allclose(model.inducing_points_, Z, rtol=1e-12) == (optimizer is None)
    assert model.score(X, LABELS) > 0.8


class TestAFitAfterAStream:
    @both
    def test_may_go_on_from_it(self, kind):
        model = begun(kind, warm_start=True)
        before = theta_and_points(model)[1]
        model.fit(X, LABELS)
        assert model.score(X, LABELS) > 0.85
        assert_array_equal(before.shape, model.inducing_points_.shape)
        model.partial_fit(X, LABELS)
        assert model._weight_seen == 2 * len(X)

    @both
    @pytest.mark.parametrize("first", [None, "adam"])
    def test_or_a_fit_may_learn_more_or_less_than_the_one_before(self, kind, first):
        model = classifier(kind, warm_start=True, optimizer=first).fit(X[:100], LABELS[:100])
        theta = model.kernel_.theta
        model.set_params(optimizer=None if first else "adam").fit(X[:100], LABELS[:100])
        assert model.score(X, LABELS) > 0.75
        if first is None:
            assert_allclose(model._centre[: len(theta)], theta)


@pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier, GFITCClassifier])
def test_a_warm_start_on_another_number_of_features_is_named(kind):
    model = classifier(kind, warm_start=True).fit(X[:100], LABELS[:100])
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match=r"X has 4 features.*warm_start=True.* 2;.*warm_start=False"):
        model.fit(np.c_[X, X][:100], LABELS[:100])
    assert_array_equal(model.predict_proba(X), before)
    model.set_params(warm_start=False).fit(np.c_[X, X][:100], LABELS[:100])


class TestClasses:
    @pytest.mark.parametrize("start", ["partial_fit", "fit"])
    @pytest.mark.parametrize("classes", [[0, 1, 2], [0], [2, 3], ["0", "1"]], ids=str)
    def test_others_late_are_refused(self, start, classes):
        model = getattr(classifier(), start)(X[:100], LABELS[:100])
        with pytest.raises(ValueError, match=r"classes=\[.*\[0, 1\]"):
            model.partial_fit(X[100:200], LABELS[100:200], classes=classes)

    def test_the_same_in_any_order_are_not(self):
        begun().partial_fit(X[200:], LABELS[200:], classes=[1, 0])


def test_gradient_steps_are_refused_before_any_work():
    model = classifier(SVIClassifier, posterior_update="gradient")
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError, match="no attribute 'partial_fit'") as refused:
        model.partial_fit("no rows at all", None)
    assert 'use posterior_update="natural"' in str(refused.value.__cause__)
    assert hasattr(model.set_params(config={"posterior_update": "natural"}), "partial_fit")


class TestAFirstChunkThatIsSmall:
    def test_is_told(self):
        """Only if the points stay where they are: others come with later rows."""
        with pytest.warns(UserWarning, match=r"n_inducing=10: .* 4 inducing points; begin"):
            model = classifier(learn_inducing=False).partial_fit(X[:4], LABELS[:4], classes=[0, 1])
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # once is enough
            model.partial_fit(X[4:100], LABELS[4:100])
        assert len(model.inducing_points_) == 4
        model.set_params(config={"learn_inducing": True}).partial_fit(X[100:200], LABELS[100:200])
        assert len(model.inducing_points_) == 10

    def test_is_none_if_there_are_points(self):
        model = classifier(inducing_points=X[:20], n_inducing=100)
        assert len(model.partial_fit(X[:4], LABELS[:4], classes=[0, 1]).inducing_points_) == 20


def test_the_history_of_an_endless_stream_ends(monkeypatch):
    monkeypatch.setattr(streaming, "MOST_RECORDS", 20)
    model = classifier(batch_size=10)
    for i in range(0, len(X), 50):
        model.partial_fit(X[i : i + 50], LABELS[i : i + 50])
        assert len(model.history_) <= 20
        assert model.n_iter_ == model.history_[-1].iteration >= (i + 50) // 10
    numbers = [entry.iteration for entry in model.history_]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 1


def test_a_stream_after_a_fit_adds_to_its_iterations():
    model = classifier(batch_size=10, max_epochs=2).fit(X, LABELS)
    steps = model.n_iter_
    assert model.partial_fit(X[:50], LABELS[:50]).n_iter_ == steps + 5


class TestWhatFails:
    @pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier, GFITCClassifier])
    @pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
    def test_leaves_the_fit_before_it_whole(self, kind, error, monkeypatch):
        model = classifier(kind).fit(X[:100], LABELS[:100])
        before = model.predict_proba(X)

        def stopped(*_, **__):
            raise error("stopped")

        monkeypatch.setattr(LocalEngine, "run", stopped)
        with pytest.raises(error, match="stopped"):
            model.fit(np.c_[X, X], np.array(["no", "yes", "perhaps"])[np.arange(len(X)) % 3])
        assert model.n_features_in_ == 2
        assert_array_equal(model.classes_, [0, 1])
        assert_array_equal(model.predict_proba(X), before)

    @pytest.mark.parametrize("method", ["fit", "partial_fit"])
    def test_leaves_no_half_of_a_model(self, method):
        model = classifier()
        with pytest.raises(ValueError, match="class"):
            getattr(model, method)(X[:50], np.zeros(50, dtype=int))
        with pytest.raises(NotFittedError):
            model.predict(X)


@pytest.mark.parametrize("kind", [str, Path, lambda _: ArraySource(X, LABELS)])
def test_files_and_sources_are_for_fit(tmp_path, kind):
    with pytest.raises(TypeError, match=r"X is .*; partial_fit takes the rows of a chunk"):
        classifier().partial_fit(kind(tmp_path / "X.npy"), LABELS)


@pytest.mark.filterwarnings("ignore:the first chunk has too few")
def test_nothing_is_held_out_of_a_stream():
    watched = {"early_stopping": "validation"}
    assert classifier(**watched).partial_fit(X[:1], LABELS[:1], classes=[0, 1]).n_iter_ > 0
    assert_array_equal(begun(**watched).predict_proba(X), begun().predict_proba(X))


class BreakingOff:
    """A reporter that ends a fit in its eighth step."""

    def update(self, iteration, share):
        if iteration.iteration == 8:
            raise RuntimeError("enough")


def test_a_warm_start_that_fails_leaves_the_rows_their_sites():
    """What goes on from the fit before must not depend on what has failed in between."""
    model = classifier(warm_start=True, tol=1.0).fit(X, LABELS)
    before = model._training.sites.precision.copy()
    with pytest.raises(RuntimeError, match="enough"), reporting(BreakingOff()):
        model.fit(X, 1 - LABELS)
    assert_array_equal(model._training.sites.precision, before)


@pytest.mark.parametrize("memory", ["factors", "sites"])
def test_a_warm_start_heeds_another_memory_of_sites(memory):
    other = {"factors": "sites", "sites": "factors"}[memory]
    options = {"batch_size": 50, "max_epochs": 2, "warm_start": True}
    model = classifier(site_storage=other, **options).fit(X, LABELS)
    model.set_params(config={"site_storage": memory}).fit(X, LABELS)
    assert model.config_.site_storage == memory
    assert model.score(X, LABELS) > 0.85


def test_a_chunk_without_weight_changes_nothing():
    model = begun(class_weight={0: 1.0, 1: 1.0})
    before, steps = model.predict_proba(X), model.n_iter_
    model.partial_fit(X[:2], LABELS[:2], sample_weight=[0.0, 0.0])
    model.set_params(class_weight={0: 0.0}).partial_fit(X[LABELS == 0], LABELS[LABELS == 0])
    assert_array_equal(model.predict_proba(X), before)
    assert model.n_iter_ == steps
    with pytest.raises(ValueError, match="sample_weight of every row is zero"):
        classifier().partial_fit(X, LABELS, sample_weight=np.zeros(len(X)))


def test_a_generator_is_no_chunk():
    with pytest.raises(TypeError, match="X is a generator; partial_fit takes the rows of one chunk"):
        classifier().partial_fit((row for row in X), LABELS)


def test_classes_that_are_announced_must_be_of_one_kind():
    with pytest.raises(ValueError, match="classes has labels of the kinds NoneType and str"):
        classifier().partial_fit(X, np.where(LABELS, "a", "b"), classes=["a", "b", None])

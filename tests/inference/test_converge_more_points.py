"""More inducing points for predicting than for learning: what is computed, chosen, paid and repeated."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import cavity
from cavity import SEPClassifier, SVIClassifier
from cavity.gp.posterior import marginals
from cavity.gp.prior import Prior
from cavity.inference import candidates, decisions
from cavity.inference import converge as converge_module
from cavity.inference.converge import affordable_points, converge
from cavity.inference.history import Progress
from cavity.inference.rule import ExpectationPropagation
from cavity.inference.sweep import SweepOptions
from support import PINNED, make

RNG = np.random.default_rng(0)
X = RNG.uniform(-4.0, 4.0, (2_000, 2))
Y = (np.sin(3.0 * X[:, 0]) * np.sin(3.0 * X[:, 1]) > 0).astype(int)
"""A chessboard, which few inducing points cannot follow."""
CLASSES = Y + (X[:, 0] > 2.0)
pytestmark = pytest.mark.filterwarnings("ignore::cavity.estimators.endings.BoundWarning")
"""A chessboard is as steep as can be."""
SHORT = {"max_epochs": 40, "random_state": 0, "n_jobs": 1}


@pytest.fixture
def small_race(monkeypatch):
    monkeypatch.setattr(decisions, "DEFAULT_POINTS", 8)
    monkeypatch.setattr(candidates, "POINTS", 12)


@pytest.fixture
def tried(monkeypatch):
    numbers = []

    def watched(*args, compute=converge_module.with_points, **kwargs):
        found = compute(*args, **kwargs)
        numbers.append(found.n_points)
        return found

    monkeypatch.setattr(converge_module, "with_points", watched)
    return numbers


def test_it_is_the_posterior_at_the_learned_kernel_with_more_points():
    model = make(SEPClassifier, **PINNED, n_inducing=10, n_predicting=40, **SHORT).fit(X, Y)
    few = make(SEPClassifier, **PINNED, n_inducing=10, **SHORT).fit(X, Y)
    assert (len(model.inducing_points_), len(few.inducing_points_)) == (40, 10)
    assert_array_equal(model.inducing_points_[:10], few.inducing_points_)
    assert_array_equal(model.kernel_.theta, few.kernel_.theta)
    prior = Prior(few.kernel_, model.model_.Z, np.dtype(np.float64))
    engine = few._training.fresh()
    point = converge(
        engine, prior, ExpectationPropagation(model.model_.likelihood), options=SweepOptions(), tol=1e-7
    )
    rows = model.model_.scaling.apply(X[:50], np.dtype(np.float64))
    expected = marginals(rows, prior, point.posterior).mean[0]
    mean = model.latent_mean_and_variance(X[:50])[0] / model.inverse_temperature_
    assert_allclose(mean, expected, atol=0.01 * np.abs(expected).max())


def test_held_out_rows_choose_it_and_the_configuration_repeats_it(small_race, tried, tmp_path):
    # Twelve points learn the kernel of a coarse board well, and cannot follow the board.
    coarse = (np.sin(X[:, 0]) * np.sin(X[:, 1]) > 0).astype(int)
    given = {"residual_scale": 1.0, "trace_penalty": 0.0, "kernel_name": "rbf"}
    settings = {**SHORT, "max_epochs": 120, "scaling": "standard", "config": given}
    model = SEPClassifier(**settings, checkpoint=tmp_path / "fit").fit(X, coarse)
    number = len(model.inducing_points_)
    assert number > 2 * model.config_.n_inducing
    assert tried == [number]
    assert model.config_.n_predicting == number
    assert json.loads(json.dumps(model.config_.as_dict()))["n_predicting"] == number
    again = SEPClassifier(config=model.config_, n_jobs=1).fit(X, coarse)
    assert again.race_ is None
    assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.validation_log_loss_ == model.validation_log_loss_
    fewer = SEPClassifier(config=replace(model.config_, n_predicting=None), n_jobs=1).fit(X, coarse)
    assert fewer.validation_log_loss_ > model.validation_log_loss_
    model.save(tmp_path / "model")
    loaded = cavity.load(tmp_path / "model")
    assert loaded.config_ == model.config_
    assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_without_seconds_it_costs_at_most_the_training(small_race, tried):
    """Twice as many points cost four times as much a pass, and there are nine passes."""
    for epochs, number in ((40, True), (30, False)):
        SEPClassifier(**{**SHORT, "max_epochs": epochs}).fit(X, Y)
        assert bool(tried) is number
        tried.clear()


@pytest.mark.parametrize(
    ("gain", "kept"),
    [
        ([0.0, 0.0, 0.0, 0.0], False),
        ([0.02, 0.02, 0.0, 0.04], True),
        ([0.005, 0.005, 0.0, 0.01], False),  # not worth slower predictions
        ([0.3, -0.2, -0.1, 0.1], False),  # noise
    ],
)
def test_it_must_be_better_by_a_standard_error_and_a_hundredth(monkeypatch, gain, kept):
    before, counts = np.ones(4), np.ones(4)
    losses = iter([(before, counts), (before - gain, counts)])
    found = SimpleNamespace(point=SimpleNamespace(interrupted=False))
    monkeypatch.setattr(converge_module, "_losses", lambda *_: next(losses))
    monkeypatch.setattr(converge_module, "with_points", lambda *_: found)
    engine, rule = SimpleNamespace(n_rows=2_000), SimpleNamespace(n_latents=1)
    start = SimpleNamespace(prior=SimpleNamespace(Z=np.zeros((10, 2))))
    chosen = converge_module.chosen_points(engine, rule, start, SweepOptions(), 0, Progress(), 100.0)
    assert (chosen is found) is kept


@pytest.mark.parametrize("given", [{"n_inducing": 12}, {"n_predicting": None}])
def test_what_is_set_is_not_asked(small_race, tried, given):
    model = make(SEPClassifier, **given, **SHORT).fit(X, Y)
    assert model.race_ is not None
    assert model.config_.n_predicting is None
    assert tried == []


@pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier])
@pytest.mark.parametrize("labels", [Y, CLASSES], ids=["two", "three"])
def test_for_methods_and_classes(kind, labels):
    given = {"kernel_name": "matern32", "scaling": "robust", "n_inducing": 8, **SHORT, "max_epochs": 1}
    if kind is SEPClassifier:
        given = {**PINNED, **given}
    more = make(kind, **given, n_predicting=48).fit(X, labels)
    assert more.model_.posterior.naturals.precision.shape[1:] == (48, 48)
    assert np.isfinite(more.validation_log_loss_)


def test_there_are_at_most_as_many_as_rows_and_as_memory_allows(monkeypatch):
    assert affordable_points(100, 900, 1, passes=np.inf) == 900
    assert affordable_points(100, 150, 1, passes=np.inf) is None
    monkeypatch.setattr(converge_module, "available_bytes", lambda: 8 * converge_module._COPIES * 300**2)
    assert affordable_points(100, 900, 1, passes=np.inf) == 300
    assert affordable_points(100, 900, 3, passes=np.inf) is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"n_predicting": 5}, "n_predicting=5 is less than n_inducing=10"),
        ({"n_predicting": 0}, "n_predicting=0 is not possible"),
        ({"n_predicting": 20, "site_storage": "factors"}, "n_predicting=20 needs training by steps"),
        ({"n_predicting": 20, "optimizer": None}, "n_predicting=20 needs training by steps"),
    ],
)
def test_impossible_numbers_are_refused(given, words):
    with pytest.raises(ValueError, match=words):
        make(SEPClassifier, n_inducing=10, **given).fit(X, Y)

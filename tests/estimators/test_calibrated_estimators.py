"""Where estimators calibrate by default, and that everything which predicts knows of it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import ndtr
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning

from cavity import SEPClassifier, SVIClassifier
from cavity.gp.calibration import Calibration, leave_one_out_temperature
from cavity.inference import resolve, train
from cavity.plot.canvas import log_proba_at
from support import PINNED, interrupt_at, make, recalibrate, set_clock

X, Y = make_moons(400, noise=0.3, random_state=0)
THREE = Y + (X[:, 0] > 1.2)
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SHORT = {"n_inducing": 8, "max_epochs": 10, "tol": 1e-2, "random_state": 0}


SHARP = {"residual_scale": 0.0, "trace_penalty": 0.0}


def quick(cls, y, **options):
    return make(cls, **SHORT | options).fit(X, y)


@pytest.mark.parametrize("cls", [SEPClassifier, SVIClassifier])
@pytest.mark.parametrize("y", [Y, THREE], ids=["two classes", "three classes"])
def test_held_out_rows_calibrate_and_few_rows_hold_none_out(cls, y):
    model = quick(cls, y, validation_fraction=None)
    assert (model.inverse_temperature_, model.residual_variance_scale_) == (1.0, 1.0)
    assert model.n_validation_rows_ == 0
    model = quick(cls, y, validation_fraction=0.3)
    assert model.n_validation_rows_ == 120
    assert model.inverse_temperature_ != 1.0
    assert model.residual_variance_scale_ != 1.0
    assert 0.0 < model.validation_standard_error_ < model.validation_log_loss_ < np.log(len(set(y)))


def test_without_held_out_rows_the_residual_counts_as_in_training():
    model = quick(SEPClassifier, Y, residual_scale=0.2)
    assert (model.inverse_temperature_, model.residual_variance_scale_) == (1.0, 0.2)


def scores_of_a_fit(monkeypatch, cls, y, **options):
    """A fit, and the leave-one-out score at any inverse temperature."""
    found = []

    def spy(score):
        found.append(score)
        return leave_one_out_temperature(score)

    monkeypatch.setattr(train, "leave_one_out_temperature", spy)
    return quick(cls, y, **options), found[0]


@pytest.mark.parametrize("cls", [SEPClassifier, SVIClassifier])
@pytest.mark.parametrize("y", [Y, THREE], ids=["two classes", "three classes"])
def test_few_rows_are_calibrated_by_their_leave_one_out_scores(monkeypatch, cls, y):
    model, score = scores_of_a_fit(monkeypatch, cls, y)
    assert model.n_validation_rows_ == 0
    assert model.residual_variance_scale_ == 1.0
    c, logs = model.inverse_temperature_, np.linspace(-1.5, 1.5, 301)
    best = logs[np.argmax([score(np.exp(x)) - 2.0 * x**2 for x in logs])]
    assert abs(best) > 0.1
    assert np.log(c) == pytest.approx(best, abs=0.05)
    assert len(y) * -model.loo_log_loss_ == pytest.approx(score(c), rel=1e-9)
    assert -model.loo_log_loss_ == pytest.approx(model.loo_log_proba_.mean(), abs=1e-9)


def test_leave_one_out_scores_calibrate_no_model_without_the_penalty():
    """They are much too good then, since inducing points and kernel have followed the rows."""
    assert resolve(500).loo_calibration
    assert resolve(500, method="vi").loo_calibration
    assert not resolve(500, trace_penalty=0.0).loo_calibration
    assert not resolve(500, residual_scale=0.0).loo_calibration
    assert not resolve(500, optimizer=None).loo_calibration
    assert not resolve(500, validation_fraction=None).loo_calibration
    assert not resolve(500, own_validation=True).loo_calibration
    assert not resolve(2_000).loo_calibration


def test_leave_one_out_calibration_counts_weights_as_copies():
    copied = np.repeat(np.arange(200), 2)
    points = {"inducing_points": X[:8], "n_inducing": 8}
    options = {**SHORT, **points, "max_epochs": 5, "scaling": None}
    once = make(SEPClassifier, **options).fit(X[:200], Y[:200], sample_weight=np.full(200, 2.0))
    twice = make(SEPClassifier, **options).fit(X[copied], Y[copied])
    assert once.inverse_temperature_ == pytest.approx(twice.inverse_temperature_, rel=1e-6)


def test_a_budget_in_seconds_leaves_time_for_leave_one_out_calibration(monkeypatch):
    """Every look at the clock takes 2 ms, so that the machine's own speed has no say."""
    set_clock(monkeypatch, 2e-3)
    options = {**SHORT, "tol": 0.0, "max_epochs": 100_000, "max_seconds": 0.8}
    assert make(SEPClassifier, **options).fit(X, Y).inverse_temperature_ != 1.0


def test_few_separable_rows_are_predicted_with_more_confidence():
    rng = np.random.default_rng(0)
    rows, w = rng.normal(size=(1_200, 4)), rng.normal(size=4)
    labels = (rows @ w > 0.0).astype(int)
    nll = []
    for fraction in ("auto", None):
        model = SEPClassifier(random_state=0, validation_fraction=fraction).fit(rows[:200], labels[:200])
        nll.append(-model.predict_log_proba(rows[200:])[np.arange(1_000), labels[200:]].mean())
    assert model.inverse_temperature_ == 1.0
    assert nll[0] < 0.95 * nll[1]


def test_held_out_rows_are_in_the_posterior_at_the_end():
    model = quick(SEPClassifier, Y, validation_fraction=0.3, batch_size=100)
    assert np.isfinite(model.loo_log_proba_).all()
    assert -model.loo_log_loss_ == pytest.approx(model.loo_log_proba_.mean(), abs=1e-9)


def test_an_interrupted_fit_is_calibrated_all_the_same(monkeypatch):
    interrupt_at(monkeypatch, 9)  # of 16 minibatches
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = quick(SEPClassifier, Y, **PINNED, batch_size=50, max_epochs=2, validation_fraction=0.3)
    assert model.n_iter_ == 8
    assert model.inverse_temperature_ != 1.0


def test_it_mends_training_without_the_residual():
    """Training without the residual makes means that are too small for a prediction with all of it."""
    nll = []
    for b in (None, 1.0):
        model = quick(
            SEPClassifier, Y[:], validation_fraction=0.3, residual_scale=0.0, trace_penalty=0.0
        )
        if b is not None:
            recalibrate(model, 1.0, b)
        held_out, labels = make_moons(2_000, noise=0.3, random_state=1)
        nll.append(-model.predict_log_proba(held_out)[np.arange(2_000), labels].mean())
    assert nll[0] < nll[1]


def test_a_stream_goes_on_with_the_numbers_of_the_fit():
    model = recalibrate(quick(SEPClassifier, THREE), 1.3, 0.2)
    model.partial_fit(X[:50], THREE[:50])
    assert (model.inverse_temperature_, model.residual_variance_scale_) == (1.3, 0.2)
    assert model.model_.calibration == Calibration(1.3, 0.2)
    stream = SEPClassifier(n_inducing=8).partial_fit(X, THREE)
    assert (stream.inverse_temperature_, stream.residual_variance_scale_) == (1.0, 1.0)


@pytest.mark.parametrize("likelihood", ["probit", "logit"])
def test_all_predictions_know_both_numbers(likelihood):
    model = quick(SEPClassifier, Y, likelihood=likelihood)
    c, b = 1.7, 0.1
    e, v, s = model.model_.latent_parts(X)
    recalibrate(model, c, b)
    mean, variance = model.latent_mean_and_variance(X)
    assert_allclose(mean, c * e[0], rtol=1e-12)
    assert_allclose(variance, c**2 * (v[0] + b * s), rtol=1e-12)
    if likelihood == "probit":
        p = ndtr(c * e[0] / np.sqrt(1.0 + c**2 * (v[0] + b * s)))
        assert_allclose(model.predict_proba(X)[:, 1], p, rtol=1e-9)
    p = model.predict_proba(X)
    log_proba = model.model_.likelihood.predict_log_proba(c * e, c**2 * (v + b * s))
    assert_allclose(p, np.exp(log_proba), rtol=1e-12)
    assert_allclose(log_proba_at(model, X), log_proba, rtol=1e-12)
    assert_allclose(model.predict_uncertainty(X).total, -(p * np.log(p)).sum(axis=1), atol=1e-12)
    draws = model.sample_latent(X[:5], 20_000, random_state=0)
    assert_allclose(draws.mean(axis=1), mean[:5], atol=0.05 * np.sqrt(variance[:5].max()))
    assert_allclose(draws.var(axis=1), variance[:5], rtol=0.06)

"""Where estimators calibrate by default, and that everything which predicts knows of it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import ndtr
from sklearn.datasets import load_digits, make_moons
from sklearn.exceptions import ConvergenceWarning

from cavity import GFITCClassifier, SEPClassifier, SVIClassifier
from cavity.gp.calibration import Calibration
from cavity.plot.canvas import log_proba_at
from support import interrupt_at, make, recalibrate

X, Y = make_moons(400, noise=0.3, random_state=0)
THREE = Y + (X[:, 0] > 1.2)
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SHORT = {"n_inducing": 8, "max_epochs": 10, "tol": 1e-2, "random_state": 0}


def quick(cls, y, **options):
    return make(cls, **SHORT | options).fit(X, y)


@pytest.mark.parametrize("cls", [SEPClassifier, SVIClassifier, GFITCClassifier])
def test_by_default_three_classes_are_calibrated_and_two_are_not(cls):
    assert quick(cls, THREE).inverse_temperature_ > 1.02
    assert quick(cls, THREE, calibration=None).inverse_temperature_ == 1.0
    assert quick(cls, Y).inverse_temperature_ == 1.0
    assert quick(cls, Y, calibration="temperature").inverse_temperature_ != 1.0


@pytest.mark.parametrize("cls", [SEPClassifier, SVIClassifier])
def test_minibatches_are_calibrated(cls):
    minibatches = {"batch_size": 50, "max_epochs": 2}
    model = quick(cls, Y, **minibatches)
    assert model.inverse_temperature_ != 1.0
    assert -model.loo_log_loss_ == pytest.approx(model.loo_log_proba_.mean(), abs=1e-9)
    plain = quick(cls, Y, calibration=None, **minibatches)
    assert model.loo_log_loss_ <= plain.loo_log_loss_ + 1e-3
    mean, variance = model.latent_mean_and_variance(X)
    plain_mean, plain_variance = plain.latent_mean_and_variance(X)
    # One polishing sweep's worth of seconds is kept for it only where seconds bind.
    assert_allclose(mean, model.inverse_temperature_ * plain_mean, atol=1e-9)
    assert_allclose(variance, plain_variance, atol=1e-9)


def test_an_interrupted_fit_is_calibrated_all_the_same(monkeypatch):
    interrupt_at(monkeypatch, 9)  # of 16 minibatches
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = quick(SEPClassifier, Y, batch_size=50, max_epochs=2)
    assert model.n_iter_ == 8
    assert model.inverse_temperature_ != 1.0


def test_the_papers_scheme_is_not_calibrated():
    model = quick(SEPClassifier, THREE, batch_size=50, max_epochs=1, site_storage="factors")
    assert model.inverse_temperature_ == 1.0
    with pytest.raises(ValueError, match=r'calibration="temperature" with site_storage="factors"'):
        quick(SEPClassifier, Y, batch_size=50, site_storage="factors", calibration="temperature")


def test_held_out_digits_are_better_predicted():
    digits, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[600:1000], order[:600]
    nll, errors = [], []
    for how in ("auto", None):
        options = {"n_inducing": 30, "max_epochs": 20, "tol": 1e-2, "random_state": 0}
        model = make(SEPClassifier, calibration=how, **options).fit(digits[train], y[train])
        log_proba = model.predict_log_proba(digits[test])
        nll.append(-log_proba[np.arange(600), y[test]].mean())
        errors.append(np.mean(log_proba.argmax(axis=1) != y[test]))
    assert nll[0] < 0.85 * nll[1]
    assert errors[0] == pytest.approx(errors[1], abs=0.01)


def test_a_single_minibatch_does_not_make_it_sure_of_itself():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30_000, 5))
    labels = rows[:, 0] + 3.0 * rng.normal(size=30_000) > 0  # hardly anything to learn
    nll = []
    for how in ("auto", None):
        options = {"n_inducing": 20, "batch_size": 100, "max_seconds": 1e-9}
        model = make(SEPClassifier, calibration=how, random_state=0, **options)
        model.fit(rows[10_000:], labels[10_000:])
        assert model.n_iter_ == 1
        log_proba = model.predict_log_proba(rows[:10_000])
        nll.append(-log_proba[np.arange(10_000), labels[:10_000].astype(int)].mean())
    assert nll[0] < np.log(2.0) + 0.05 < nll[1]


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
    assert_allclose(variance, v[0] + b * s, rtol=1e-12)
    if likelihood == "probit":
        assert_allclose(
            model.predict_proba(X)[:, 1], ndtr(c * e[0] / np.sqrt(1.0 + v[0] + b * s)), rtol=1e-9
        )
    p = model.predict_proba(X)
    log_proba = model.model_.likelihood.predict_log_proba(c * e, v + b * s)
    assert_allclose(p, np.exp(log_proba), rtol=1e-12)
    assert_allclose(log_proba_at(model, X), log_proba, rtol=1e-12)
    assert_allclose(model.predict_uncertainty(X).total, -(p * np.log(p)).sum(axis=1), atol=1e-12)
    draws = model.sample_latent(X[:5], 20_000, random_state=0)
    assert_allclose(draws.mean(axis=1), mean[:5], atol=0.05 * np.sqrt(variance[:5].max()))
    assert_allclose(draws.var(axis=1), variance[:5], rtol=0.06)

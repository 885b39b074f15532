"""Uncertainty, out-of-distribution score and relevance as a user meets them."""

import pickle
from copy import copy

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF, DotProduct, WhiteKernel

import cavity
from cavity import GFITCClassifier, SEPClassifier, SVIClassifier
from support import make, recalibrate, set_tile_rows, table

X, LABELS = table(150)
FAR = 1e6 * np.array([[1.0, 1.0], [-1.0, 1.0], [0.0, -1.0]])
OPTIONS = {"n_inducing": 15, "random_state": 0, "n_jobs": 1, "tol": 1e-3}


@pytest.fixture(scope="module")
def fitted():
    return make(SEPClassifier, **OPTIONS).fit(X, LABELS)


@pytest.mark.parametrize("method", [SEPClassifier, SVIClassifier, GFITCClassifier])
@pytest.mark.parametrize("likelihood", ["probit", "logit"])
def test_far_from_the_data_knowledge_dominates(method, likelihood):
    # Amplitude 20: a function about which nothing is known is large on one side or the other.
    fit = make(method, 20.0 * RBF(1.0), optimizer=None, likelihood=likelihood, **OPTIONS).fit(X, LABELS)
    near, far = fit.predict_uncertainty(X), fit.predict_uncertainty(FAR)
    assert (far.epistemic > far.aleatoric).all()
    assert far.epistemic.min() > near.epistemic.max()
    assert np.mean(near.aleatoric) > np.mean(near.epistemic)


def test_total_is_the_entropy_of_the_predictions(fitted):
    p = fitted.predict_proba(X)
    assert_allclose(fitted.predict_uncertainty(X).total, -(p * np.log(p)).sum(axis=1), atol=1e-12)


def test_a_batch_is_its_rows(fitted):
    whole = np.array(fitted.predict_uncertainty(X)[:3])
    parts = [np.array(fitted.predict_uncertainty(X[i : i + 7])[:3]) for i in range(0, len(X), 7)]
    assert_allclose(whole, np.hstack(parts), atol=1e-11)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("method", [SEPClassifier, SVIClassifier, GFITCClassifier])
def test_an_interval_holds_its_share_of_the_calibrated_posterior(method, n_classes):
    """Draws of the latent function, as calibration has left it, fall outside it as often as they may."""
    edges = [-0.5, 0.5] if n_classes == 3 else [0.0]
    options = {**OPTIONS, "optimizer": None}
    fit = make(method, 5.0 * RBF(1.0), **options).fit(X, np.digitize(X[:, 0], edges))
    fit, rows = recalibrate(fit, 0.7, 0.3), X[:4]
    draws = fit.sample_latent(rows, 20_000, random_state=0)
    latents = draws.reshape(len(rows), -1, 20_000).transpose(1, 0, 2).reshape(-1, len(rows) * 20_000)
    p = fit.model_.likelihood.proba_given_latents(latents).reshape(n_classes, len(rows), -1)
    lower, upper = fit.predict_uncertainty(rows, level=0.8).interval
    assert lower.shape == upper.shape == (len(rows), n_classes)
    assert_allclose(np.mean(p < lower.T[:, :, None], axis=2), 0.1, atol=0.025)
    assert_allclose(np.mean(p > upper.T[:, :, None], axis=2), 0.1, atol=0.025)


def test_a_level_that_is_no_share_is_refused_before_any_work(fitted):
    with pytest.raises(ValueError, match="level=90"):
        fitted.predict_uncertainty(X, level=90)


@pytest.mark.parametrize("method", [SEPClassifier, SVIClassifier])
def test_three_classes(method):
    classes = np.digitize(X[:, 0], [-0.5, 0.5])
    fit = make(method, 20.0 * RBF(1.0), optimizer=None, **OPTIONS).fit(X, classes)
    near, far = fit.predict_uncertainty(X), fit.predict_uncertainty(FAR)
    assert_allclose(far.total, np.log(3.0), atol=1e-6)
    assert (far.epistemic > far.aleatoric).all()
    assert_allclose(near.aleatoric + near.epistemic, near.total)
    assert near.epistemic.min() >= 0.0
    assert np.median(fit.ood_score(X)) < 0.2
    assert_allclose(fit.ood_score(FAR), 1.0, atol=1e-9)
    assert fit.relevance_["x0"].lower > 0.5  # the classes are stripes of the first feature
    with pytest.raises(ValueError, match="no feature 'x9'; there are 'x0', 'x1'"):
        fit.relevance_["x9"]
    assert_allclose(fit.relevance_.value.sum(), 1.0)


class TestOutOfDistribution:
    def test_low_at_the_rows_and_one_far_away(self, fitted):
        assert np.median(fitted.ood_score(X)) < 0.2
        assert_allclose(fitted.ood_score(FAR), 1.0, atol=1e-9)
        assert fitted.ood_score(X).max() < 0.9

    def test_tiles_do_not_show(self, fitted, monkeypatch):
        whole = fitted.ood_score(X)
        set_tile_rows(monkeypatch, 7)
        assert_allclose(fitted.ood_score(X), whole, atol=1e-12)

    @pytest.mark.parametrize("b", [0.0, 0.01, 3.0])
    def test_a_calibrated_residual_leaves_its_ends_where_they_are(self, fitted, b):
        other = recalibrate(copy(fitted), 1.5, b)
        assert_allclose(other.ood_score(FAR), 1.0, atol=1e-9)
        assert np.median(other.ood_score(X)) < 0.3
        assert not np.allclose(other.ood_score(X), fitted.ood_score(X), rtol=1e-3)

    def test_rises_with_the_distance(self, fitted):
        path = np.linspace(2.0, 10.0, 9)[:, None] * [1.0, 1.0]
        assert (np.diff(fitted.ood_score(path)) >= -1e-12).all()

    def test_white_noise_is_not_want_of_knowledge(self):
        plain = make(SEPClassifier, RBF(1.0), optimizer=None, **OPTIONS).fit(X, LABELS)
        noisy = make(SEPClassifier, RBF(1.0) + WhiteKernel(1e-9), optimizer=None, **OPTIONS).fit(
            X, LABELS
        )
        loud = make(SEPClassifier, RBF(1.0) + WhiteKernel(2.0), optimizer=None, **OPTIONS).fit(X, LABELS)
        assert_allclose(noisy.ood_score(X), plain.ood_score(X), atol=1e-6)
        share = loud.latent_mean_and_variance(X)[1] - 2.0
        assert_allclose(loud.ood_score(X), np.clip(share, 0.0, 1.0), atol=1e-12)

    def test_a_kernel_of_noise_alone_knows_nothing(self):
        kernel = RBF(1.0) * WhiteKernel(1.0) + DotProduct(0.0, "fixed")
        fit = make(SEPClassifier, kernel, optimizer=None, scaling=None, **OPTIONS).fit(X, LABELS)
        score = fit.ood_score(np.zeros((1, 2)))
        assert score[0] == 1.0


class TestRelevance:
    def test_names_the_feature_that_matters(self):
        rng = np.random.default_rng(3)
        rows = rng.normal(size=(300, 3))
        labels = np.sin(2.0 * rows[:, 1]) + 0.2 * rng.normal(size=300) > 0
        fit = make(SEPClassifier, **OPTIONS).fit(rows, labels)
        assert fit.relevance_.ranked()[0].name == "x1"
        assert fit.relevance_["x1"].lower > 0.8
        assert fit.relevance_["x0"].upper < 0.1

    @pytest.mark.parametrize("scaling", ["standard", None])
    def test_units_do_not_matter(self, scaling):
        units = np.array([1e-3, 1e4])
        options = {"scaling": scaling, "learn_inducing": False, "optimizer": None, **OPTIONS}
        scales = np.ones(2) if scaling else units
        shift = 7.0 if scaling else 0.0
        one = make(SEPClassifier, RBF([0.9, 1.7]), inducing_points=X[:12], **options)
        other = make(
            SEPClassifier, RBF(scales * [0.9, 1.7]), inducing_points=X[:12] * units + shift, **options
        )
        one.fit(X, LABELS)
        other.fit(X * units + shift, LABELS)
        for part in ("value", "lower", "upper"):
            mine, theirs = getattr(one.relevance_, part), getattr(other.relevance_, part)
            assert_allclose(mine, theirs, atol=1e-6)
        assert_allclose(other.relevance_.lengthscale, units * one.relevance_.lengthscale, rtol=1e-9)

    def test_waits_until_asked_and_is_kept_out_of_copies(self, fitted):
        size = len(pickle.dumps(fitted))
        first = fitted.relevance_
        assert fitted.relevance_ is first
        assert_array_equal(fitted.feature_importances_, first.value)
        assert len(pickle.dumps(fitted)) == size
        fresh = make(SEPClassifier, optimizer=None, **OPTIONS).fit(X, LABELS)
        fresh._repr_html_()
        assert "_band" not in vars(fresh.relevance_)
        again = pickle.loads(pickle.dumps(fitted))
        assert_array_equal(again.relevance_.value, first.value)

    def test_survives_a_model_file(self, fitted, tmp_path):
        before = fitted.relevance_
        cavity.save(fitted, tmp_path / "model.cavity")
        again = cavity.load(tmp_path / "model.cavity")
        assert "_relevance_cache" not in vars(again)
        assert_allclose(again.relevance_.value, before.value)
        assert_allclose(again.predict_uncertainty(X).aleatoric, fitted.predict_uncertainty(X).aleatoric)

    def test_another_fit_has_another_relevance(self):
        fit = make(SEPClassifier, optimizer=None, **OPTIONS).fit(X, LABELS)
        before = fit.relevance_
        assert fit.fit(X[:, ::-1], LABELS).relevance_ is not before

    def test_feature_names_come_with_a_frame(self):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(X, columns=["wide", "long"])
        fit = make(SEPClassifier, optimizer=None, **OPTIONS).fit(frame, LABELS)
        assert fit.relevance_.names == ("wide", "long")

    def test_needs_a_fit(self):
        with pytest.raises(NotFittedError):
            _ = clone(SEPClassifier()).relevance_
        assert not hasattr(SEPClassifier(), "relevance_")

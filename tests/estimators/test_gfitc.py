"""GFITCClassifier: the n×n FITC evidence without an n×n matrix, climbed by L-BFGS."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.utils.estimator_checks import parametrize_with_checks

from cavity import GFITCClassifier, SEPClassifier
from cavity.estimators.endings import BoundWarning
from reference import (
    central_differences,
    expectation_propagation,
    fitc_covariance,
    fitc_cross_covariance,
    predict,
)
from support import make, points, signs, table

X, LABELS = table(60)
X_STAR, LABELS_STAR = table(200, seed=9)
KERNEL = ConstantKernel(1.5) * RBF([0.8, 1.2]) + WhiteKernel(0.1)
quietly = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def classifier(kind=GFITCClassifier, **options):
    options = {"kernel": KERNEL, "inducing_points": points(6), "scaling": None, **options}
    return make(kind, random_state=0, n_jobs=1, **options)


def at_fixed_kernel(kind=GFITCClassifier, **options):
    return classifier(kind, optimizer=None, tol=1e-11, max_epochs=1000, **options)


@pytest.fixture(scope="module")
def fitted():
    """Without a hyper-prior the amplitude grows up to its bound."""
    model = classifier(tol=1e-10, hyperprior_scale=None)
    with pytest.warns(BoundWarning, match="constant_value"):
        return model.fit(X, LABELS)


@quietly
@parametrize_with_checks([GFITCClassifier(n_inducing=8, max_iter=10)])
def test_every_check_of_scikit_learn(estimator, check):
    check(estimator)


class TestAtAFixedKernel:
    def test_the_evidence_is_that_of_fitc_and_of_sep(self):
        gfitc, sep = (at_fixed_kernel(kind).fit(X, LABELS) for kind in (GFITCClassifier, SEPClassifier))
        K, _ = fitc_covariance(KERNEL, X, points(6), gfitc.model_.prior.jitter)
        oracle = expectation_propagation(K, signs(LABELS))
        assert_allclose(gfitc.log_marginal_likelihood_value_, oracle.log_evidence, atol=1e-8)
        assert_allclose(
            gfitc.log_marginal_likelihood_value_, sep.log_marginal_likelihood_value_, atol=1e-8
        )
        assert_allclose(gfitc.loo_log_proba_, oracle.log_predictive, atol=1e-8)
        assert_allclose(gfitc.predict_proba(X_STAR), sep.predict_proba(X_STAR), atol=1e-8)

    def test_predictions_are_those_of_fitc(self):
        model = at_fixed_kernel().fit(X, LABELS)
        jitter = model.model_.prior.jitter
        K, _ = fitc_covariance(KERNEL, X, points(6), jitter)
        oracle = expectation_propagation(K, signs(LABELS))
        K_star = fitc_cross_covariance(KERNEL, X_STAR, X, points(6), jitter)
        mean, variance, log_proba = predict(oracle, K, K_star, KERNEL.diag(X_STAR))
        ours = model.latent_mean_and_variance(X_STAR)
        assert_allclose(ours[0], mean, atol=1e-8)
        assert_allclose(ours[1], variance, atol=1e-8)
        assert_allclose(model.predict_log_proba(X_STAR)[:, 1], log_proba, atol=1e-8)

    @pytest.mark.parametrize("likelihood", ["probit", "logit"])
    def test_both_likelihoods_have_the_fixed_point_of_sep(self, likelihood):
        one, other = (
            at_fixed_kernel(kind, likelihood=likelihood).fit(X, LABELS)
            for kind in (GFITCClassifier, SEPClassifier)
        )
        assert_allclose(
            one.log_marginal_likelihood_value_, other.log_marginal_likelihood_value_, atol=1e-8
        )
        assert_allclose(one.predict_proba(X_STAR), other.predict_proba(X_STAR), atol=1e-8)

    def test_a_kernel_without_free_parameters_at_points_that_stay_is_one(self):
        fixed = ConstantKernel(1.5, "fixed") * RBF([0.8, 1.2], "fixed")
        one = classifier(kernel=fixed, learn_inducing=False).fit(X, LABELS)
        other = at_fixed_kernel(kernel=fixed).fit(X, LABELS)
        assert_allclose(
            one.log_marginal_likelihood_value_, other.log_marginal_likelihood_value_, atol=1e-6
        )
        assert len(one.history_) == one.n_iter_ == 1

    def test_too_few_sweeps_are_said_so(self):
        with pytest.warns(ConvergenceWarning, match="max_iter"):
            classifier(optimizer=None, max_epochs=1).fit(X, LABELS)


class TestLearning:
    def test_raises_the_evidence_above_its_start_and_never_lowers_it(self, fitted):
        start = at_fixed_kernel(SEPClassifier).fit(X, LABELS).log_marginal_likelihood_value_
        values = [entry.objective for entry in fitted.history_]
        assert values == sorted(values)
        assert values[0] > start - 1e-6
        assert fitted.log_marginal_likelihood_value_ > start + 1.0
        assert_allclose(fitted.log_marginal_likelihood_value_, values[-1], atol=1e-4)

    def test_ends_where_the_evidence_is_flat(self, fitted):
        """In every kernel parameter that is not at a bound; by finite differences, not by its word."""
        theta = fitted.kernel_.theta
        lower, upper = fitted.kernel_.bounds.T
        free = (theta > lower + 1e-3) & (theta < upper - 1e-3)
        slope = central_differences(fitted.log_marginal_likelihood, theta, step=1e-3)
        assert np.abs(slope[free]).max() < 0.05

    def test_no_kernel_close_by_is_better(self, fitted):
        rng = np.random.default_rng(0)
        best = fitted.log_marginal_likelihood(fitted.kernel_.theta)
        lower, upper = fitted.kernel_.bounds.T
        for _ in range(5):
            theta = np.clip(fitted.kernel_.theta + 0.2 * rng.normal(size=len(lower)), lower, upper)
            assert fitted.log_marginal_likelihood(theta) < best + 1e-3

    @quietly
    def test_sep_learns_to_about_the_same_evidence(self, fitted):
        sep = classifier(
            SEPClassifier, hyperprior_scale=None, trace_penalty=0.0, max_epochs=600, tol=1e-6
        ).fit(X, LABELS)
        assert sep.log_marginal_likelihood_value_ < fitted.log_marginal_likelihood_value_ + 2.0
        assert sep.log_marginal_likelihood_value_ > fitted.log_marginal_likelihood_value_ - 4.0

    @quietly
    @pytest.mark.parametrize("learn_inducing", [True, False])
    def test_inducing_points_move_if_they_may(self, learn_inducing):
        model = classifier(learn_inducing=learn_inducing, max_epochs=10).fit(X, LABELS)
        moved = np.abs(model.inducing_points_ - points(6)).max() > 1e-6
        assert moved == learn_inducing

    @quietly
    def test_bounds_are_kept(self):
        kernel = ConstantKernel(1.0, (0.9, 1.1)) * RBF([1.0, 1.0], (0.95, 1.05))
        model = classifier(kernel=kernel, hyperprior_scale=None).fit(X, LABELS)
        lower, upper = kernel.bounds.T
        assert (model.kernel_.theta >= lower - 1e-12).all()
        assert (model.kernel_.theta <= upper + 1e-12).all()

    @quietly
    @pytest.mark.parametrize("likelihood", ["probit", "logit"])
    def test_predicts(self, likelihood):
        rows, labels = table(300)
        model = GFITCClassifier(
            n_inducing=15, likelihood=likelihood, max_iter=40, random_state=0, n_jobs=1
        ).fit(rows, labels)
        assert model.score(X_STAR, LABELS_STAR) > 0.88
        assert len(pickle.dumps(model)) < 100_000


def test_there_are_no_streams():
    assert not hasattr(classifier(), "partial_fit")
    assert hasattr(SEPClassifier(), "partial_fit")

"""What SEPClassifier promises beyond scikit-learn's contract."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sep_models import KERNEL, LABELS, LABELS_STAR, X_STAR, X, at_fixed_kernel, model
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from cavity import SEPClassifier
from reference import central_differences, expectation_propagation, fitc_covariance
from support import KERNELS, points, set_tile_rows, signs, table

quietly = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def fitted():
    return model(max_epochs=300, tol=1e-3).fit(X, LABELS)


class TestAtAFixedKernel:
    def test_reaches_the_fixed_point_of_fitc(self):
        fit = at_fixed_kernel().fit(X[:30], LABELS[:30])
        jitter = fit.model_.prior.jitter
        K, _ = fitc_covariance(KERNEL, X[:30], points(8), jitter)
        oracle = expectation_propagation(K, signs(LABELS[:30]))
        assert_allclose(fit.log_marginal_likelihood_value_, oracle.log_evidence, atol=1e-8)
        assert_allclose(fit.loo_log_proba_, oracle.log_predictive, atol=1e-8)

    def test_kernel_and_inducing_points_stay(self):
        fit = at_fixed_kernel().fit(X, LABELS)
        assert_array_equal(fit.kernel_.theta, KERNEL.theta)
        assert_allclose(fit.inducing_points_, points(8), rtol=1e-12)

    def test_tol_is_reached_without_a_warning(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            iterations = [
                at_fixed_kernel().set_params(config={"tol": tol}).fit(X, LABELS).n_iter_
                for tol in (1e-2, 1e-6, 1e-10)
            ]
        assert iterations == sorted(iterations)
        assert iterations[0] < iterations[-1] < 500

    def test_leave_one_out_is_close_to_leaving_rows_out(self):
        n = 25
        rows, labels = X[:n], LABELS[:n]
        whole = at_fixed_kernel().fit(rows, labels)
        left_out = np.empty(n)
        for i in range(n):
            others = np.arange(n) != i
            refit = at_fixed_kernel().fit(rows[others], labels[others])
            left_out[i] = refit.predict_log_proba(rows[i : i + 1])[0, labels[i]]
        assert_allclose(whole.loo_log_proba_, left_out, atol=0.05)
        trained_on = whole.predict_log_proba(rows)[np.arange(n), labels]
        assert np.abs(trained_on - left_out).max() > 0.2, "a case that tells nothing"

    def test_order_of_rows_changes_nothing(self):
        order = np.random.default_rng(0).permutation(len(X))
        one, other = at_fixed_kernel().fit(X, LABELS), at_fixed_kernel().fit(X[order], LABELS[order])
        assert_allclose(other.predict_proba(X_STAR), one.predict_proba(X_STAR), atol=1e-9)
        assert_allclose(other.loo_log_proba_, one.loo_log_proba_[order], atol=1e-9)

    def test_inducing_points_at_the_rows_make_it_a_full_process(self):
        kernel = ConstantKernel(1.5) * RBF(0.4)
        fit = at_fixed_kernel(kernel=kernel, inducing_points=X[:20]).fit(X[:20], LABELS[:20])
        oracle = expectation_propagation(kernel(X[:20]), signs(LABELS[:20]))
        assert_allclose(fit.log_marginal_likelihood_value_, oracle.log_evidence, atol=1e-6)


@quietly
class TestInvariance:
    def trained(self, **options):
        return model(**{"kernel": KERNEL, "inducing_points": points(8), "max_epochs": 25, **options})

    @pytest.mark.parametrize("n_jobs", [2, 3])
    def test_number_of_threads(self, monkeypatch, n_jobs):
        set_tile_rows(monkeypatch, 13)
        one, other = self.trained(n_jobs=1).fit(X, LABELS), self.trained(n_jobs=n_jobs).fit(X, LABELS)
        assert_allclose(other.kernel_.theta, one.kernel_.theta, rtol=1e-10)
        assert_allclose(other.predict_proba(X_STAR), one.predict_proba(X_STAR), rtol=1e-10)

    def test_threads_are_started_for_predictions_of_several_tiles_only(self, monkeypatch):
        at = self.trained().fit(X, LABELS)
        expected = at.predict_proba(X_STAR)
        at.set_params(n_jobs=3)
        n_started = 0

        def started(*args, **options):
            nonlocal n_started
            n_started += 1
            return ThreadPoolExecutor(*args, **options)

        monkeypatch.setattr("cavity.engines.threads.ThreadPoolExecutor", started)
        assert_array_equal(at.predict_proba(X_STAR), expected)
        assert_array_equal(at.predict(X_STAR[:1]), at.classes_[expected[:1].argmax(axis=1)])
        assert n_started == 0
        set_tile_rows(monkeypatch, 13)
        assert_allclose(at.predict_proba(X_STAR), expected, rtol=1e-10)
        assert n_started == 1

    @pytest.mark.parametrize("rows", [1, 13, 1000])
    def test_tile_size(self, monkeypatch, rows):
        one = self.trained().fit(X, LABELS)
        set_tile_rows(monkeypatch, rows)
        other = self.trained().fit(X, LABELS)
        assert_allclose(other.kernel_.theta, one.kernel_.theta, atol=1e-7)
        assert_allclose(other.predict_proba(X_STAR), one.predict_proba(X_STAR), atol=1e-7)

    def test_order_of_inducing_points(self):
        order = np.random.default_rng(0).permutation(8)
        one, other = (
            at_fixed_kernel(inducing_points=Z).fit(X, LABELS) for Z in (points(8), points(8)[order])
        )
        assert_allclose(other.predict_proba(X_STAR), one.predict_proba(X_STAR), atol=1e-7)

    def test_precision_of_the_data(self):
        low, high = (
            at_fixed_kernel(tol=1e-5).fit(X.astype(np.float32), LABELS),
            at_fixed_kernel().fit(X, LABELS),
        )
        assert low.model_.dtype == np.float32
        assert high.model_.dtype == np.float64
        assert_allclose(low.predict_proba(X_STAR), high.predict_proba(X_STAR), atol=5e-3)

    def test_precision_of_the_data_in_training(self):
        low, high = (self.trained(max_epochs=60).fit(X.astype(dtype), LABELS) for dtype in ("f4", "f8"))
        for fit in (low, high):
            assert fit.score(X_STAR, LABELS_STAR) > 0.8
        assert_allclose(
            low.log_marginal_likelihood_value_, high.log_marginal_likelihood_value_, rtol=0.05
        )

    def test_units_of_the_data(self):
        """Standardised inputs know neither scale nor offset."""
        scale, offset = np.array([1e3, 1e-6]), np.array([-5.0, 1e-3])
        one = model(max_epochs=25).fit(X, LABELS)
        other = model(max_epochs=25).fit(scale * X + offset, LABELS)
        assert_allclose(
            other.predict_proba(scale * X_STAR + offset), one.predict_proba(X_STAR), atol=1e-5
        )
        assert_allclose(
            other.inducing_points_, scale * one.inducing_points_ + offset, rtol=1e-4, atol=1e-8
        )

    @pytest.mark.parametrize("init_inducing", ["kmeans", "random", "greedy"])
    def test_a_seed_decides(self, init_inducing):
        options = {"inducing_points": init_inducing, "max_epochs": 10}
        one, same = (model(**options).fit(X, LABELS) for _ in range(2))
        assert_array_equal(one.predict_proba(X_STAR), same.predict_proba(X_STAR))
        other = model(**options).set_params(random_state=1).fit(X, LABELS)
        assert not np.array_equal(one.inducing_points_, other.inducing_points_)


class TestPrediction:
    def test_scores_labels_and_probabilities_agree(self, fitted):
        score, proba = fitted.decision_function(X_STAR), fitted.predict_proba(X_STAR)
        assert_allclose(proba[:, 1], norm.cdf(score))
        assert_allclose(proba.sum(axis=1), 1.0)
        assert_allclose(np.log(proba), fitted.predict_log_proba(X_STAR))
        assert_array_equal(fitted.predict(X_STAR), fitted.classes_[(score > 0).astype(int)])
        assert_array_equal(fitted.predict(X_STAR), fitted.classes_[proba.argmax(axis=1)])
        mean, variance = fitted.latent_mean_and_variance(X_STAR)
        assert_allclose(score, mean / np.sqrt(1 + variance))
        assert fitted.score(X_STAR, LABELS_STAR) == np.mean(fitted.predict(X_STAR) == LABELS_STAR)

    def test_far_from_the_data_it_returns_to_the_prior(self, fitted):
        far = 1e6 * np.ones((1, 2))
        mean, variance = fitted.latent_mean_and_variance(far)
        assert_allclose(mean, 0.0, atol=1e-8)
        amplitude = fitted.inverse_temperature_**2 * fitted.kernel_.k1.constant_value
        assert_allclose(variance, amplitude, rtol=1e-6)
        assert_allclose(fitted.predict_proba(far), 0.5)

    def test_rows_do_not_see_each_other(self, fitted, monkeypatch):
        one_by_one = np.vstack([fitted.predict_proba(row[None]) for row in X_STAR])
        assert_allclose(one_by_one, fitted.predict_proba(X_STAR), rtol=1e-9)
        set_tile_rows(monkeypatch, 7)
        assert_allclose(fitted.predict_proba(X_STAR), one_by_one, rtol=1e-9)

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    @pytest.mark.parametrize("noise", [0.0, 0.5])
    def test_samples_have_the_moments_of_the_latent_function(self, dtype, noise):
        kernel = KERNEL + WhiteKernel(noise, "fixed") if noise else KERNEL
        # Inducing points so dense that the covariance is all but singular.
        fit = model(kernel=kernel, n_inducing=60, optimizer=None).fit(X.astype(dtype), LABELS)
        mean, variance = fit.latent_mean_and_variance(X_STAR[:6])
        n = 40_000
        draws = fit.sample_latent(X_STAR[:6], n, random_state=0)
        assert draws.shape == (6, n)
        function_variance = variance - noise  # draws are of the noise-free function
        assert_allclose(draws.mean(axis=1), mean, atol=5 * np.sqrt(variance.max() / n) + 1e-4)
        assert_allclose(draws.var(axis=1), function_variance, rtol=0.05, atol=1e-3)

    def test_samples_are_joint(self, fitted):
        near = np.array([[0.1, 0.2], [0.1 + 1e-6, 0.2]])
        draws = fitted.sample_latent(near, 200, random_state=0)
        assert_allclose(draws[0], draws[1], atol=1e-2)
        assert draws[0].std() > 0.1
        assert_array_equal(draws, fitted.sample_latent(near, 200, random_state=0))


class TestEvidence:
    @quietly
    def test_gradient_is_that_of_finite_differences(self):
        fit = model(kernel=KERNELS["noisy"], max_epochs=10).fit(X, LABELS)
        theta = fit.kernel_.theta + 0.1
        value, gradient = fit.log_marginal_likelihood(theta, eval_gradient=True)
        assert value == fit.log_marginal_likelihood(theta)
        assert_allclose(
            gradient, central_differences(fit.log_marginal_likelihood, theta), rtol=1e-5, atol=1e-5
        )

    def test_of_the_fit(self, fitted):
        assert fitted.log_marginal_likelihood() == fitted.log_marginal_likelihood_value_
        again = fitted.log_marginal_likelihood(fitted.kernel_.theta)
        assert_allclose(again, fitted.log_marginal_likelihood_value_, atol=1e-3)

    def test_asking_does_not_change_the_fit(self, fitted):
        before = fitted.predict_proba(X_STAR)
        loo = fitted.loo_log_proba_.copy()
        fitted.log_marginal_likelihood(fitted.kernel_.theta + 1.0)
        assert_array_equal(fitted.predict_proba(X_STAR), before)
        assert_array_equal(fitted.loo_log_proba_, loo)

    def test_gradient_without_theta_is_refused(self, fitted):
        with pytest.raises(ValueError, match="theta"):
            fitted.log_marginal_likelihood(eval_gradient=True)


@quietly
class TestInducingPoints:
    @pytest.mark.parametrize("init_inducing", ["kmeans", "random", "greedy"])
    @pytest.mark.parametrize("n_inducing", [100, 1000])
    def test_as_many_as_rows_are_the_rows(self, init_inducing, n_inducing):
        fit = model(n_inducing=n_inducing, inducing_points=init_inducing, optimizer=None).fit(X, LABELS)
        assert fit.inducing_points_.shape == (100, 2)
        assert_allclose(np.sort(fit.inducing_points_, axis=0), np.sort(X, axis=0), atol=1e-12)

    def test_one_is_enough_to_run(self):
        fit = model(n_inducing=1, max_epochs=20).fit(X, LABELS)
        assert fit.inducing_points_.shape == (1, 2)
        assert np.isfinite(fit.predict_proba(X_STAR)).all()

    def test_ones_own_are_in_the_units_of_the_data(self):
        Z = 100 + 10 * points(4)
        fit = model(inducing_points=Z, n_inducing=50, optimizer=None).fit(100 + 10 * X, LABELS)
        assert_allclose(fit.inducing_points_, Z, rtol=1e-12)


def test_default_settings_learn_in_few_steps():
    rows, labels = table(500, seed=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = SEPClassifier(random_state=0).fit(rows, labels)
    assert fit.n_iter_ < 150  # of the 200 that it may take
    assert fit.score(X_STAR, LABELS_STAR) > 0.85

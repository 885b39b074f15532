"""Batch training: it climbs, it stops, it stays within bounds."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from cavity import SEPClassifier
from support import EVIDENCE_ONLY, KERNELS, make, table, watch_training

X, LABELS = table(120)
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def fit(kernel=None, **options):
    kernel = KERNELS["scaled-rbf-ard"] if kernel is None else kernel
    options = {"n_inducing": 10, "random_state": 0, "n_jobs": 1, **options}
    return make(SEPClassifier, kernel, **options).fit(X, LABELS)


@pytest.mark.parametrize("gradient", ["approximate", "exact"])
@pytest.mark.parametrize("optimizer", ["adam", "rprop"])
@pytest.mark.parametrize("learn_inducing", [True, False])
def test_training_raises_the_evidence(optimizer, gradient, learn_inducing):
    options = {"learn_inducing": learn_inducing, **EVIDENCE_ONLY}
    start = fit(optimizer=None, max_epochs=200, **options).log_marginal_likelihood_value_
    trained = fit(optimizer=optimizer, gradient=gradient, max_epochs=100, **options)
    assert trained.log_marginal_likelihood_value_ > start + 1.0
    objective = [entry.objective for entry in trained.history_]
    assert np.mean(objective[-10:]) > np.mean(objective[10:20])


def test_every_free_parameter_moves_and_no_other():
    start = fit(optimizer=None)
    moved = fit(max_epochs=20)
    held = fit(max_epochs=20, learn_inducing=False)
    assert (moved.kernel_.theta != start.kernel_.theta).all()
    assert (moved.inducing_points_ != start.inducing_points_).all()
    assert_array_equal(held.inducing_points_, start.inducing_points_)
    assert (held.kernel_.theta != start.kernel_.theta).all()


@pytest.mark.parametrize("optimizer", ["adam", "rprop"])
def test_bounds_are_never_left(monkeypatch, optimizer):
    kernel = ConstantKernel(1.0, (0.9, 1.1)) * RBF([1.0, 1.0], (0.95, 1.05)) + WhiteKernel(
        0.1, (0.09, 0.11)
    )
    passes = watch_training(monkeypatch)
    model = fit(kernel, optimizer=optimizer(0.2), hyperprior_scale=None, max_epochs=40)
    lower, upper = kernel.bounds.T
    for theta, _ in [*passes, (model.kernel_.theta, None)]:
        assert (theta >= lower - 1e-12).all()
        assert (theta <= upper + 1e-12).all()
    at_a_bound = np.isclose(model.kernel_.theta, lower) | np.isclose(model.kernel_.theta, upper)
    assert at_a_bound.any(), "bounds this tight should have been felt"


def test_fixed_parameters_stay():
    kernel = ConstantKernel(2.0, "fixed") * RBF([1.0, 1.0]) + WhiteKernel(0.3, "fixed")
    fitted = fit(kernel, max_epochs=20).kernel_
    assert fitted.k1.k1.constant_value == 2.0
    assert fitted.k2.noise_level == 0.3
    assert not np.allclose(fitted.k1.k2.length_scale, 1.0)


def test_a_kernel_with_nothing_free_still_moves_the_inducing_points():
    kernel = ConstantKernel(2.0, "fixed") * RBF(1.0, "fixed")
    model = fit(kernel, max_epochs=20)
    assert len(model.kernel_.theta) == 0
    assert not np.allclose(model.inducing_points_, fit(kernel, optimizer=None).inducing_points_)


def test_a_hyperprior_holds_the_kernel_near_its_start():
    theta = KERNELS["scaled-rbf-ard"].theta
    tight, loose, flat = (
        np.linalg.norm(fit(hyperprior_scale=deviation, max_epochs=100).kernel_.theta - theta)
        for deviation in (0.01, 1.0, None)
    )
    assert tight < 0.05
    assert tight < loose < flat


def test_training_stops_when_the_objective_stands_still():
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = fit(tol=1e-2, max_epochs=500)
    assert model.n_iter_ < 500
    assert len(model.history_) == model.n_iter_


def test_a_looser_tolerance_stops_no_later():
    iterations = [fit(tol=tol, max_epochs=400).n_iter_ for tol in (1e-1, 1e-2, 1e-3)]
    assert iterations == sorted(iterations)


def test_after_training_q_is_at_its_fixed_point():
    model = fit(max_epochs=30)
    value = model.log_marginal_likelihood(model.kernel_.theta)
    assert_allclose(model.log_marginal_likelihood_value_, value, atol=1e-4)


@pytest.mark.parametrize("optimizer", ["adam", "rprop"])
def test_what_is_called_converged_is_a_maximum(optimizer):
    """With a tight tolerance: either a warning, or a kernel where no parameter wants to move."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fit(
            optimizer=optimizer, learn_inducing=False, tol=1e-9, max_epochs=1000, **EVIDENCE_ONLY
        )
    if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
        return
    theta = model.kernel_.theta
    _, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
    lower, upper = model.kernel_.bounds.T
    blocked = ((theta <= lower + 1e-9) & (gradient < 0)) | ((theta >= upper - 1e-9) & (gradient > 0))
    assert np.abs(gradient[~blocked]).max(initial=0.0) < 0.3


@pytest.mark.parametrize("gradient", ["approximate", "exact"])
@pytest.mark.parametrize("seed", [0, 4])
def test_the_objective_stays_a_log_probability(gradient, seed):
    """No q worth stepping from claims that the labels are more than certain."""
    rows, labels = make_moons(300, noise=0.2, random_state=0)
    model = SEPClassifier(n_inducing=30, random_state=seed, n_jobs=1, config={"gradient": gradient}).fit(
        rows, labels
    )
    objective = np.array([entry.objective for entry in model.history_])
    assert objective.max() < 0.0
    # The end is about the best that was seen, give or take the optimiser's last steps.
    assert objective[-1] > objective.max() - 5.0

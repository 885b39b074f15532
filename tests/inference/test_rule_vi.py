"""The VI rule, for two classes and many: its terms are derivatives of its own expectation."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.stats import norm

from cavity.gp.likelihoods import Logit, NoisyArgmax, Probit
from cavity.inference.rule import ExpectationPropagation, Variational
from reference import central_differences

LABELS = np.array([1, 0, 1, 0])
MEAN = np.array([[0.3, -1.0, -2.5, 4.0]])
VARIANCE = np.array([[0.5, 1.0, 2.0, 0.1]])
RESIDUAL = np.array([0.0, 0.3, 0.1, 1.0])


def apply(mean=MEAN, variance=VARIANCE, residual=RESIDUAL):
    nothing = np.zeros_like(mean)
    return Variational()(LABELS, mean, variance, residual, nothing, nothing, 1.0)


def test_objective_is_the_expected_log_likelihood():
    expected = [
        quad(lambda f: norm.pdf(f, e, np.sqrt(v)) * norm.logcdf(y * f), e - 12, e + 12)[0]  # noqa: B023
        for y, e, v in zip([1, -1, 1, -1], MEAN[0], VARIANCE[0] + RESIDUAL, strict=True)
    ]
    assert_allclose(apply().objective, expected, rtol=1e-6)


def test_scalars_are_derivatives_of_the_objective():
    terms = apply()
    by_mean = central_differences(lambda e: apply(mean=e).objective.sum(), MEAN)
    by_variance = central_differences(lambda v: apply(variance=v).objective.sum(), VARIANCE)
    by_residual = central_differences(lambda s: apply(residual=s).objective.sum(), RESIDUAL)
    assert_allclose(terms.alpha, by_mean, rtol=1e-6)
    assert_allclose(0.5 * terms.h, by_variance, rtol=1e-4)
    assert_allclose(-0.5 * terms.gamma[0], by_residual, rtol=1e-4, atol=1e-7)


def test_sites_are_a_full_natural_step():
    terms = apply()
    assert (terms.precision >= 0).all()
    assert_allclose(terms.precision, -terms.h)
    assert_allclose(terms.shift, terms.alpha + terms.precision * MEAN)


# --- any likelihood ---------------------------------------------------------------------------------

BOTH = pytest.mark.parametrize("likelihood", [Probit(), Logit()], ids=["probit", "logit"])
ROWS = {"labels": LABELS, "mean": MEAN, "variance": VARIANCE, "residual": RESIDUAL}


def test_probit_rule_is_the_default():
    assert Variational() == Variational(Probit())
    assert Variational(Probit()) != Variational(Logit())


@BOTH
def test_row_terms_are_the_likelihoods_expectations(likelihood):
    nothing = np.zeros_like(MEAN)
    terms = Variational(likelihood)(**ROWS, precision=nothing, shift=nothing, max_leverage=0.99)
    y = np.where(LABELS == 1, 1.0, -1.0)
    expected = likelihood.expected_margin(y * MEAN, VARIANCE + RESIDUAL)
    assert_array_equal(terms.objective, expected.log_likelihood[0])
    assert_array_equal(terms.alpha, y * expected.slope)
    assert_array_equal(terms.h, expected.curvature)
    assert_array_equal(terms.gamma, -terms.h)
    assert not terms.mismatch_mean.any()
    assert not terms.mismatch_square.any()


@BOTH
def test_log_predictive_leaves_the_rows_own_site_out(likelihood):
    """q is made from a cavity and a site: the cavity alone must predict, as it does in EP."""
    cavity_mean, cavity_variance = np.array([[0.7, -0.2, 3.0, -1.0]]), np.array([[2.0, 1.0, 0.3, 5.0]])
    precision, shift = np.array([[0.4, 0.0, 2.0, 0.1]]), np.array([[1.0, 0.0, -1.0, 0.3]])
    variance = 1 / (1 / cavity_variance + precision)
    mean = variance * (cavity_mean / cavity_variance + shift)
    arguments = (LABELS, mean, variance, RESIDUAL, precision, shift, 0.999)
    actual = Variational(likelihood)(*arguments).log_predictive
    y = np.where(LABELS == 1, 1.0, -1.0)
    truth = likelihood.log_predictive_margin(y * cavity_mean, RESIDUAL + cavity_variance)[0]
    assert_allclose(actual, truth, rtol=1e-12)
    assert_allclose(actual, ExpectationPropagation(likelihood)(*arguments).log_predictive, rtol=1e-10)


@BOTH
def test_a_site_larger_than_q_is_limited(likelihood):
    shape = np.ones((1, 4))
    arguments = (LABELS, MEAN, shape, RESIDUAL, 5 * shape, shape)
    actual = Variational(likelihood)(*arguments, max_leverage=0.5)
    limited = Variational(likelihood)(*arguments[:4], 0.5 * shape, 0.1 * shape, max_leverage=1.0)
    assert_allclose(actual.log_predictive, limited.log_predictive, rtol=1e-13)
    assert_array_equal(actual.objective, limited.objective)


@BOTH
@pytest.mark.parametrize("rule", [Variational, ExpectationPropagation])
def test_extreme_rows_stay_finite_and_sites_nonnegative(rule, likelihood):
    axes = np.meshgrid(
        [0, 1], [-1e3, -30, 0, 30, 1e3], [0, 1e-6, 1, 1e6], [0, 1e-6, 1, 1e6], indexing="ij"
    )
    labels, mean, variance, residual = (axis.ravel() for axis in axes)
    nothing = np.zeros((1, labels.size))
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        terms = rule(likelihood)(labels, mean[None], variance[None], residual, nothing, nothing, 0.999)
    assert all(np.isfinite(values).all() for values in terms)
    assert (terms.precision >= 0).all()


@BOTH
def test_logit_and_probit_ep_share_their_fixed_point_formulas(likelihood):
    """A site times its cavity has the moments of the tilted distribution."""
    nothing = np.zeros_like(MEAN)
    terms = ExpectationPropagation(likelihood)(
        **ROWS, precision=nothing, shift=nothing, max_leverage=0.99
    )
    y = np.where(LABELS == 1, 1.0, -1.0)
    tilted = likelihood.tilted_margin(y * MEAN, RESIDUAL + VARIANCE)
    variance = 1 / (1 / VARIANCE + terms.precision)
    assert_allclose(variance, VARIANCE - VARIANCE**2 * tilted.curvature, rtol=1e-12)
    matched = variance * (MEAN / VARIANCE + terms.shift)
    assert_allclose(matched, MEAN + VARIANCE * y * tilted.slope, rtol=1e-12)


@pytest.mark.parametrize("rule", [Variational(Logit()), ExpectationPropagation(Logit()), Variational()])
def test_rules_are_picklable_values(rule):
    assert pickle.loads(pickle.dumps(rule)) == rule


# --- many classes ----------------------------------------------------------------------------------

THREE_CLASSES = NoisyArgmax(3)
CODES = np.array([2, 0, 1])
RESIDUALS = np.array([0.0, 0.3, 1.0])
CAVITY_MEAN = np.array([[0.7, -0.2, 3.0], [1.0, 0.0, -2.0], [-0.5, 0.4, 0.1]])
CAVITY_VARIANCE = np.array([[2.0, 1.0, 0.3], [0.5, 4.0, 1.0], [1.0, 1.5, 0.2]])
PRECISION = np.array([[0.4, 0.0, 2.0], [0.1, 0.3, 0.0], [0.7, 0.2, 1.0]])
SHIFT = np.array([[1.0, 0.0, -1.0], [-0.3, 0.2, 0.0], [0.5, -0.4, 2.0]])


@pytest.mark.parametrize(
    "rule", [ExpectationPropagation(THREE_CLASSES), Variational(THREE_CLASSES)], ids=["ep", "vi"]
)
def test_log_predictive_leaves_the_sites_of_all_classes_out(rule):
    """q is made from cavities and sites: the cavities alone must predict."""
    variance = 1 / (1 / CAVITY_VARIANCE + PRECISION)
    mean = variance * (CAVITY_MEAN / CAVITY_VARIANCE + SHIFT)
    terms = rule(CODES, mean, variance, RESIDUALS, PRECISION, SHIFT, 0.999)
    log_proba = THREE_CLASSES.predict_log_proba(CAVITY_MEAN, RESIDUALS + CAVITY_VARIANCE)
    assert_allclose(terms.log_predictive, log_proba[np.arange(3), CODES], atol=1e-6)

"""The EP rule against fifty-digit arithmetic, as far out as anyone will ever go."""

from typing import NamedTuple

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from cavity.inference.rule import ExpectationPropagation, limit_leverage

LABELS = st.sampled_from([0, 1])
Z = st.floats(-1e3, 1e3)
EXPONENT = st.floats(-12, 12)
RESIDUAL = st.just(0.0) | st.floats(-12, 6).map(lambda k: 10.0**k)


class Tilted(NamedTuple):
    precision: mp.mpf
    shift: mp.mpf
    log_z: mp.mpf
    objective: mp.mpf
    alpha: mp.mpf
    gamma: mp.mpf


def apply(label, mean, variance, residual, precision=0.0, shift=0.0, max_leverage=1.0):
    """The rule on one row, as a record of floats; with NumPy's warnings turned into errors."""
    column = [np.array([[value]]) for value in (mean, variance, precision, shift)]
    with np.errstate(invalid="raise", divide="raise"):
        terms = ExpectationPropagation()(
            np.array([label]), column[0], column[1], np.array([residual]), column[2], column[3],
            max_leverage,
        )  # fmt: skip
    return type(terms)(*(np.asarray(value).ravel()[0] for value in terms))


def truth(label, mean, variance, residual, precision=0.0, shift=0.0):
    """The same by moment matching, from the very floats that the rule was given."""
    with mp.workdps(60):
        y = 1 if label == 1 else -1
        e, v, s, nu, mu = (mp.mpf(float(x)) for x in (mean, variance, residual, precision, shift))
        kept = 1 - nu * v
        cavity_variance, cavity_mean = v / kept, (e - v * mu) / kept
        b = 1 + s + cavity_variance
        z = y * cavity_mean / mp.sqrt(b)
        cdf = mp.erfc(-z / mp.sqrt(2)) / 2
        ratio = mp.npdf(z) / cdf
        alpha, beta = y * ratio / mp.sqrt(b), ratio * (z + ratio) / b
        # The tilted variance v\ − v\²β and mean e\ + v\α, divided by the cavity.
        new_precision = beta / (1 - beta * cavity_variance)
        new_shift = alpha + new_precision * (cavity_mean + cavity_variance * alpha)

        def g(mean, variance):
            return mp.log(variance) / 2 + mean**2 / (2 * variance)

        # Far to the right 1 − Φ is what has digits.
        log_z = mp.log(cdf) if z < 0 else mp.log1p(-mp.erfc(z / mp.sqrt(2)) / 2)
        objective = log_z + (g(cavity_mean, cavity_variance) - g(e, v))
        return Tilted(new_precision, new_shift, log_z, objective, alpha, ratio * z / b)


def assert_close(actual, expected, rtol, floor=1e-290):
    expected = float(expected)
    assert np.isfinite(actual)
    assert abs(actual - expected) <= rtol * abs(expected) + floor


@settings(max_examples=300)
@given(label=LABELS, z=Z, exponent=EXPONENT, residual=RESIDUAL)
@example(label=1, z=-40.0, exponent=0.0, residual=0.0)
@example(label=0, z=-1e3, exponent=0.0, residual=0.0)
@example(label=1, z=1e3, exponent=-12.0, residual=0.0)
@example(label=1, z=-300.0, exponent=12.0, residual=0.0)
@example(label=1, z=-1e3, exponent=12.0, residual=0.0)
def test_first_visit_of_a_row(label, z, exponent, residual):
    variance = 10.0**exponent
    mean = (1 if label == 1 else -1) * z * np.sqrt(1 + residual + variance)
    terms, oracle = (f(label, mean, variance, residual) for f in (apply, truth))
    assert terms.precision >= 0
    assert_close(terms.log_predictive, oracle.log_z, 1e-9)
    assert_close(terms.objective, oracle.objective, 1e-9)
    assert_close(terms.alpha, oracle.alpha, 1e-9)
    assert_close(terms.gamma, oracle.gamma, 1e-9)
    assert_close(terms.precision, oracle.precision, 1e-6)
    # α + ν̃(e\ + v\α) cancels where the label says little or nothing new: allow for its terms.
    size = abs(terms.alpha) + terms.precision * (abs(mean) + variance * abs(terms.alpha))
    assert_close(terms.shift, oracle.shift, 1e-6, 1e-9 * size + 1e-290)


@settings(max_examples=300)
@given(
    label=LABELS,
    z=st.floats(-50, 50),
    exponent=st.floats(-6, 6),
    residual=RESIDUAL,
    leverage=st.floats(0, 0.99),
    pull=st.floats(-10, 10),
)
def test_later_visits_of_a_row(label, z, exponent, residual, leverage, pull):
    """The row's own site, holding a share `leverage` of the marginal, is taken out of q first."""
    variance = 10.0**exponent
    precision, shift = leverage / variance, pull / np.sqrt(variance)
    kept = 1 - leverage
    cavity_mean = (1 if label == 1 else -1) * z * np.sqrt(1 + residual + variance / kept)
    mean = kept * cavity_mean + variance * shift
    given_row = (label, mean, variance, residual, precision, shift)
    terms, oracle = apply(*given_row), truth(*given_row)
    assert terms.precision >= 0
    # What rounding in mean − v·μ̃ does to z, and from there to everything else.
    blur = 1e-14 * (abs(mean) + abs(variance * shift)) / kept / np.sqrt(1 + residual + variance / kept)
    steepness = 1 + abs(z)
    assert_close(terms.log_predictive, oracle.log_z, 1e-9, blur * steepness + 1e-290)
    quadratic = (precision * mean**2 + 2 * abs(mean * shift) + variance * shift**2) / kept
    assert_close(terms.objective, oracle.objective, 1e-9, blur * steepness + 1e-12 * (1 + quadratic))
    assert_close(terms.precision, oracle.precision, 1e-6 + blur * steepness)


@given(label=LABELS, z=Z, exponent=st.floats(-150, 150), residual=RESIDUAL)
def test_any_marginal_gives_finite_terms(label, z, exponent, residual):
    variance = 10.0**exponent
    terms = apply(label, z * np.sqrt(1 + residual + variance), variance, residual)
    assert np.isfinite(terms).all()
    assert terms.precision >= 0


def test_a_row_without_variance_says_nothing_about_it():
    terms = apply(1, 0.3, 0.0, 0.5)
    assert np.isfinite(terms).all()
    assert_allclose(terms.objective, terms.log_predictive)


@given(z=Z, exponent=EXPONENT, residual=RESIDUAL)
def test_labels_are_symmetric(z, exponent, residual):
    variance = 10.0**exponent
    one, other = apply(1, z, variance, residual), apply(0, -z, variance, residual)
    assert one.precision == other.precision
    assert one.shift == -other.shift
    assert one.alpha == -other.alpha
    assert one.log_predictive == other.log_predictive


def test_matched_moments_leave_a_site_alone():
    """Refining until nothing moves: the row's terms then say that the mismatch is zero."""
    prior_variance, residual, site = 2.0, 0.3, (0.0, 0.0)
    for _ in range(3):
        variance = 1 / (1 / prior_variance + site[0])
        mean = variance * (site[1] + 0.4 / prior_variance)
        terms = apply(1, mean, variance, residual, *site)
        before, site = site, (terms.precision, terms.shift)
    assert_allclose(site, before, rtol=1e-12)
    assert_allclose(terms.mismatch_mean, 0.0, atol=1e-12)
    assert_allclose(terms.mismatch_square, 0.0, atol=1e-12)


def test_leverage_is_limited_and_otherwise_left_alone():
    precision, shift = np.array([[0.1, 5.0]]), np.array([[1.0, 1.0]])
    variance = np.array([[1.0, 1.0]])
    limited, limited_shift = limit_leverage(precision, shift, variance, 0.5)
    assert_allclose(limited * variance, [[0.1, 0.5]])
    assert_allclose(limited_shift, [[1.0, 0.1]])
    assert_array_equal(limit_leverage(precision, shift, variance, 10.0)[0], precision)


@pytest.mark.parametrize("leverage", [0.999, 1.0 - 1e-9])
def test_an_improper_cavity_is_never_formed(leverage):
    terms = apply(1, 0.5, 1.0, 0.1, precision=50.0, shift=3.0, max_leverage=leverage)
    assert np.isfinite(terms).all()
    assert terms.precision >= 0

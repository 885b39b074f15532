"""Likelihoods against many digits: pointwise, and integrated over normals of any width.

Two oracles for the integrals: `mpmath` at a few points, and on a wide grid Gauss–Legendre panels that
resolve both the normal and the likelihood, in plain float64.
"""

import pickle

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

from cavity.gp.likelihoods import Logit, Probit
from cavity.gp.likelihoods.normal import density_ratio, log_cdf, log_cdf_curvature

BOTH = pytest.mark.parametrize("likelihood", [Probit(), Logit()], ids=["probit", "logit"])


def pointwise(likelihood, z):
    """Log p(z) and its two derivatives in float64, which the panels integrate."""
    if isinstance(likelihood, Logit):
        return -np.logaddexp(0.0, -z), expit(-z), -expit(z) * expit(-z)
    ratio = density_ratio(z)
    return log_cdf(z), ratio, -log_cdf_curvature(z, ratio)[0]


def exact_log(likelihood, z):
    """Log p(z) in mpmath."""
    if isinstance(likelihood, Logit):
        return -mp.log1p(mp.exp(-z)) if z > 0 else z - mp.log1p(mp.exp(z))
    upper = mp.erfc(z / mp.sqrt(2)) / 2
    return mp.log1p(-upper) if z > 0 else mp.log(mp.erfc(-z / mp.sqrt(2)) / 2)


def exact_derivatives(likelihood, z):
    """First and second derivative of log p at z in mpmath."""
    if isinstance(likelihood, Logit):
        p = 1 / (1 + mp.exp(-z))
        q = 1 / (1 + mp.exp(z))
        return q, -p * q
    ratio = mp.npdf(z) * 2 / mp.erfc(-z / mp.sqrt(2))
    return ratio, -ratio * (ratio + z)


def grid(variances=(1e-6, 1e-3, 0.15, 0.17, 1.0, 4.0, 30.0, 1e3, 1e4, 1e6)):
    """Means and variances [N]: means on the scale of the deviation, of the likelihood, and far out."""
    pairs = [
        (mean, variance)
        for variance in variances
        for mean in np.concatenate(
            [
                np.linspace(-9, 9, 19) * np.sqrt(variance),
                np.linspace(-9.5, 9.5, 20),
                [-1e3, -80, 80, 1e3],
            ]
        )
    ]
    return np.array(pairs).T


def panels(mean, variance, centres):
    """Nodes and weights that resolve N(mean, variance) and a bend at zero, around some centres."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    steps = np.arange(-11, 11.5, 0.5) * np.sqrt(variance)
    edges = np.concatenate([centre + steps for centre in centres])
    low, high = edges.min(), edges.max()
    inner = np.concatenate(
        [np.arange(-40, 40.5, 0.5), np.geomspace(40, 1e6, 60), -np.geomspace(40, 1e6, 60)]
    )
    edges = np.unique(np.concatenate([edges, inner[(inner > low) & (inner < high)]]))
    middle, half = 0.5 * (edges[1:] + edges[:-1]), 0.5 * np.diff(edges)
    return (middle[:, None] + half[:, None] * nodes).ravel(), (half[:, None] * weights).ravel()


def panel_expectations(likelihood, mean, variance):
    z, weight = panels(mean, variance, [mean])
    weight = weight * np.exp(-0.5 * (z - mean) ** 2 / variance) / np.sqrt(2 * np.pi * variance)
    return [values @ weight for values in pointwise(likelihood, z)]


def panel_tilted(likelihood, mean, variance):
    """log Z, α, β, and the variance's ratio, by the tilted moments themselves."""
    z, weight = panels(mean, variance, [mean, mean + variance, mean / (1 + variance), 0.0])
    log_density = pointwise(likelihood, z)[0] - 0.5 * (z - mean) ** 2 / variance
    peak = log_density.max()
    weight = weight * np.exp(log_density - peak)
    total = weight.sum()
    centre = (weight @ z) / total
    spread = (weight @ (z - centre) ** 2) / total
    log_z = peak + np.log(total) - 0.5 * np.log(2 * np.pi * variance)
    return log_z, (centre - mean) / variance, (1 - spread / variance) / variance, spread / variance


# --- pointwise --------------------------------------------------------------------------------------


@BOTH
@given(z=st.floats(-1e3, 1e3))
@example(z=-45.0)
@example(z=-40.0)
@example(z=0.0)
@example(z=38.0)
def test_log_likelihood_and_derivatives(likelihood, z):
    with mp.workdps(50):
        value = float(exact_log(likelihood, mp.mpf(z)))
        slope, curvature = map(float, exact_derivatives(likelihood, mp.mpf(z)))
    # φ(z) itself is only known to z² rounding errors
    rtol = 1e-14 + 1e-15 * min(z * z, 1600)
    log_p, first, second = pointwise(likelihood, np.array([z]))
    assert_allclose(log_p, [value], rtol=rtol, atol=1e-290)
    assert_allclose(first, [slope], rtol=rtol, atol=1e-290)
    assert_allclose(second, [curvature], rtol=max(rtol, 2e-12), atol=1e-290)


@BOTH
def test_nothing_overflows(likelihood):
    far = np.array([1e3, 1e6, 1e12, 1e100])
    margin = np.concatenate([-far, [0.0], far])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        results = [*pointwise(likelihood, margin)]
        for variance in (0.0, 1e-6, 1.0, 1e3, 1e6):
            width = np.full_like(margin, variance)
            results += likelihood.expected_margin(margin, width)
            results += likelihood.tilted_margin(margin, width)
            results += [likelihood.log_predictive_margin(margin, width), likelihood.score(margin, width)]
    assert np.isfinite(results).all()


@BOTH
def test_values_are_picklable_equal_and_hold_nothing(likelihood):
    assert pickle.loads(pickle.dumps(likelihood)) == likelihood
    assert vars(likelihood) == {}


# --- expectations, for VI ---------------------------------------------------------------------------


@BOTH
def test_expectations_of_any_width(likelihood):
    """The stated error: 1e-10 of max(1, |value|)."""
    mean, variance = grid()
    truth = np.array(
        [panel_expectations(likelihood, *pair) for pair in zip(mean, variance, strict=True)]
    ).T
    for name, actual, expected in zip(
        "Fαβ", likelihood.expected_margin(mean, variance), truth, strict=True
    ):
        error = np.abs(actual - expected) / np.maximum(1.0, np.abs(expected))
        assert error.max() <= 1e-10, (name, mean[error.argmax()], variance[error.argmax()])


@BOTH
@pytest.mark.parametrize(
    ("mean", "variance"),
    [(0.3, 0.1), (-2.0, 0.5), (1.0, 9.0), (-12.0, 9.0), (-20.0, 900.0), (-1e3, 1e4)],
)
def test_expectations_in_many_digits(likelihood, mean, variance):
    with mp.workdps(20):
        e, deviation = mp.mpf(mean), mp.sqrt(mp.mpf(variance))
        edges = sorted(
            {e + k * deviation for k in range(-12, 13, 3)} | {mp.mpf(k) for k in (-20, -5, 0, 5, 20)}
        )

        def expectation(f):
            return float(mp.quad(lambda z: f(z) * mp.npdf(z, e, deviation), edges))

        truth = [
            expectation(lambda z: exact_log(likelihood, z)),
            expectation(lambda z: exact_derivatives(likelihood, z)[0]),
            expectation(lambda z: exact_derivatives(likelihood, z)[1]),
        ]
    actual = likelihood.expected_margin(np.array(mean), np.array(variance))
    assert_allclose(np.ravel(actual), truth, rtol=1e-10, atol=1e-10)


@BOTH
def test_expectations_without_a_variance_are_the_functions(likelihood):
    z = np.concatenate([np.linspace(-50, 50, 201), [-1e3, 1e3]])
    value, slope, curvature = likelihood.expected_margin(z, np.zeros_like(z))
    for actual, expected in zip((value, slope, curvature), pointwise(likelihood, z), strict=True):
        assert_allclose(actual, expected, rtol=1e-12, atol=1e-10)


@BOTH
def test_expectations_are_each_others_derivatives(likelihood):
    variance = np.repeat([0.05, 0.2, 1.0, 20.0, 500.0], 9)
    mean = np.tile(np.linspace(-4, 4, 9), 5) * np.sqrt(variance)
    step = 1e-3 * np.sqrt(variance)
    by_mean = [likelihood.expected_margin(mean + k * step, variance) for k in (-2, -1, 1, 2)]
    square = 1e-3 * variance
    by_variance = [likelihood.expected_margin(mean, variance + k * square) for k in (-2, -1, 1, 2)]

    def slope(values, step):
        return (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step)

    expected = likelihood.expected_margin(mean, variance)
    tolerance = 1e-10 + 1e-12 * variance
    error = slope([at.log_likelihood for at in by_mean], step) - expected.slope
    assert (np.abs(error) * step <= tolerance).all()
    error = slope([at.log_likelihood for at in by_variance], square) - 0.5 * expected.curvature
    assert (np.abs(error) * square <= tolerance).all()


@BOTH
def test_expectations_keep_shape_and_broadcast_rows_independently(likelihood):
    mean, variance = grid((0.1, 3.0, 800.0))
    whole = likelihood.expected_margin(mean.reshape(3, -1), variance.reshape(3, -1))
    for actual, flat in zip(whole, likelihood.expected_margin(mean, variance), strict=True):
        assert actual.shape == (3, mean.size // 3)
        assert_allclose(actual.ravel(), flat, rtol=1e-13, atol=1e-15)
    alone = [likelihood.expected_margin(mean[[i]], variance[[i]]) for i in range(0, mean.size, 7)]
    assert_allclose(
        np.array(alone)[:, :, 0].T,
        np.array(likelihood.expected_margin(mean, variance))[:, ::7],
        rtol=1e-12,
        atol=1e-13,
    )


# --- tilted moments, for EP -------------------------------------------------------------------------


@BOTH
def test_tilted_moments_of_any_width(likelihood):
    """Error of log Z relative to max(1, |log Z|), of the others in units of the deviation."""
    mean, variance = grid((1e-3, 0.17, 1.0, 4.0, 30.0, 1e3, 1e4))
    extra = np.array(
        [(-share * v, v) for v in (30.0, 1e3, 1e4) for share in (0.2, 0.5, 0.9, 1.0, 1.5)]
    ).T
    mean, variance = np.concatenate([mean, extra[0]]), np.concatenate([variance, extra[1]])
    truth = np.array([panel_tilted(likelihood, *pair) for pair in zip(mean, variance, strict=True)]).T
    actual = likelihood.tilted_margin(mean, variance)
    log_z, slope, curvature, ratio = truth
    deviation = np.sqrt(variance)
    assert_allclose(actual.log_evidence, log_z, rtol=1e-11, atol=1e-10)
    assert_allclose(actual.slope * deviation, slope * deviation, rtol=1e-9, atol=1e-10)
    assert_allclose(actual.curvature * variance, curvature * variance, rtol=0, atol=2e-10)
    assert_allclose(actual.variance_ratio, ratio, rtol=1e-7)


@BOTH
@pytest.mark.parametrize(
    ("mean", "variance"),
    [(0.3, 0.1), (-2.0, 0.5), (3.0, 9.0), (-40.0, 9.0), (-60.0, 900.0), (-450.0, 900.0)],
)
def test_tilted_moments_in_many_digits(likelihood, mean, variance):
    with mp.workdps(25):
        e, v = mp.mpf(mean), mp.mpf(variance)
        deviation = mp.sqrt(v)
        rough, *_ = panel_tilted(likelihood, mean, variance)
        middle = e + v * mp.mpf(
            likelihood.tilted_margin(np.array(mean), np.array(variance)).slope.item()
        )
        edges = sorted(
            {middle + k * deviation for k in (-12, -6, -2, 0, 2, 6, 12)}
            | {mp.mpf(k) for k in (-30, -10, -3, 0, 3, 10, 30)}
        )

        def moment(power):
            def f(z):
                return (
                    mp.exp(exact_log(likelihood, z) - (z - e) ** 2 / (2 * v) - rough)
                    * (z - middle) ** power
                )

            return mp.quad(f, edges)

        total, first, second = moment(0), moment(1), moment(2)
        offset = first / total
        spread = second / total - offset**2
        log_z = float(rough + mp.log(total) - mp.log(2 * mp.pi * v) / 2)
        slope, ratio = float((middle + offset - e) / v), float(spread / v)
    actual = likelihood.tilted_margin(np.array(mean), np.array(variance))
    assert_allclose(actual.log_evidence, log_z, rtol=1e-10, atol=1e-10)
    assert_allclose(actual.slope, slope, rtol=1e-9, atol=1e-10)
    assert_allclose(actual.curvature * variance, 1 - ratio, rtol=0, atol=1e-9)
    assert_allclose(actual.variance_ratio, ratio, rtol=1e-7)


@BOTH
@given(mean=st.floats(-1e3, 1e3), exponent=st.floats(-6, 6))
def test_tilted_terms_are_those_of_a_log_concave_likelihood(likelihood, mean, exponent):
    variance = np.array([10.0**exponent])
    tilted = likelihood.tilted_margin(np.array([mean]), variance)
    assert tilted.slope >= 0
    assert tilted.curvature >= 0
    assert 0 < tilted.variance_ratio <= 1
    assert_allclose(tilted.variance_ratio, 1 - tilted.curvature * variance, atol=1e-8)
    assert_allclose(tilted.gamma, tilted.curvature - tilted.slope**2, rtol=1e-9, atol=1e-10)
    assert_allclose(
        tilted.log_evidence,
        likelihood.log_predictive_margin(np.array([mean]), variance),
        rtol=1e-10,
        atol=1e-10,
    )


@BOTH
def test_gamma_is_what_curvature_and_slope_leave(likelihood):
    """Draws at random seldom meet the far left of a wide normal, which has formulas of its own."""
    tilted = likelihood.tilted_margin(*grid())
    scale = np.maximum(1.0, tilted.slope**2)
    assert_allclose(tilted.gamma / scale, (tilted.curvature - tilted.slope**2) / scale, atol=1e-9)


# --- prediction -------------------------------------------------------------------------------------


@BOTH
@given(mean=st.floats(-1e3, 1e3), exponent=st.floats(-6, 6))
def test_two_classes_add_to_one(likelihood, mean, exponent):
    at, variance = np.array([mean]), np.array([10.0**exponent])
    total = np.exp(likelihood.log_predictive_margin(at, variance)) + np.exp(
        likelihood.log_predictive_margin(-at, variance)
    )
    assert_allclose(total, 1.0, rtol=0, atol=1e-15)


@BOTH
@pytest.mark.parametrize("variance", [0.0, 0.1, 2.0, 50.0, 1e4])
def test_probability_and_score_rise_with_the_mean(likelihood, variance):
    mean = np.unique(np.concatenate([np.linspace(-30, 30, 20_001), np.linspace(-1e3, 1e3, 2_001)]))
    width = np.full_like(mean, variance)
    log_p, score = likelihood.log_predictive_margin(mean, width), likelihood.score(mean, width)
    assert (np.diff(log_p) >= 0).all()
    assert (np.diff(log_p[mean < 0]) > 0).all()
    assert (np.diff(score) > 0).all()
    assert_array_equal(score, -likelihood.score(-mean, width))


@BOTH
def test_score_ranks_as_the_probability_does_across_variances(likelihood):
    mean, variance = grid()
    log_p, score = likelihood.log_predictive_margin(mean, variance), likelihood.score(mean, variance)
    order = np.argsort(score, kind="stable")
    assert (np.diff(log_p[order]) >= -1e-12 * (1 + np.abs(log_p[order][1:]))).all()
    assert_array_equal(np.sign(score), np.sign(mean))


def test_logit_score_is_the_log_odds():
    mean, variance = grid()
    odds = Logit().log_predictive_margin(mean, variance) - Logit().log_predictive_margin(-mean, variance)
    assert_allclose(Logit().score(mean, variance), odds, rtol=1e-12, atol=1e-15)


@BOTH
def test_predictions(likelihood):
    mean, variance = np.array([[-3.0, 0.0, 1.0, 40.0]]), np.array([[1.0, 2.0, 30.0, 0.1]])
    log_proba = likelihood.predict_log_proba(mean, variance)
    assert log_proba.shape == (4, 2)
    assert_allclose(np.exp(log_proba).sum(axis=1), 1.0, rtol=1e-15)
    assert_array_equal(log_proba[:, 1], likelihood.log_predictive_margin(mean[0], variance[0]))
    score = likelihood.decision_score(mean, variance)
    assert_array_equal(np.argsort(score), np.argsort(log_proba[:, 1] - log_proba[:, 0]))


@BOTH
def test_probabilities_of_the_two_classes_sum_to_one(likelihood):
    mean, variance = np.array([[-30.0, -1.0, 0.0, 2.0, 500.0]]), np.array([[0.0, 1.0, 3.0, 1e9, 4.0]])
    log_proba = likelihood.predict_log_proba(mean, variance)
    assert log_proba.shape == (5, 2)
    assert np.isfinite(log_proba).all()
    assert_allclose(np.exp(log_proba).sum(axis=1), 1.0)


@BOTH
def test_a_likelihood_without_variance_is_its_own_prediction(likelihood):
    f = np.linspace(-3.0, 3.0, 7)[None]
    p = likelihood.proba_given_latents(f)
    assert_allclose(p, np.exp(likelihood.predict_log_proba(f, np.zeros_like(f))).T)
    assert_allclose(p.sum(axis=0), 1.0)

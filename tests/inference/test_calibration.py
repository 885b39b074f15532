"""The factor on the latent means is the one the left-out labels ask for, and nothing else moves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_ndtr, ndtri_exp

from cavity.engines.local import LocalEngine
from cavity.errors import NumericalError
from cavity.gp.likelihoods import NoisyArgmax
from cavity.inference import calibration
from cavity.inference.calibration import calibrated
from cavity.inference.ep import ExpectationPropagation
from cavity.inference.sweep import EXACT_LEVERAGE, LAGGING_LEVERAGE, Sweep, SweepOptions
from support import (
    KERNELS,
    fixed_point,
    interrupt_at,
    make_engine,
    make_prior,
    points,
    replace_sweep,
    table,
)

X, LABELS = table(200)
PRIOR = make_prior(KERNELS["scaled-rbf-ard"], points(8))


def converged(**options):
    engine = make_engine(X, LABELS, **options)
    return engine, fixed_point(engine, PRIOR)


def left_out(engine, point, inverse_temperature, leverage=EXACT_LEVERAGE):
    """Log probabilities of the left-out labels, straight from the pass."""
    options = SweepOptions(0.0, leverage, gradient=False, inverse_temperature=inverse_temperature)
    engine.run(Sweep(point.prior, point.posterior, engine.rule, options))
    engine.commit()
    return engine.log_predictive.copy()


@pytest.mark.parametrize("inverse_temperature", [0.4, 1.0, 2.5])
def test_the_pass_stretches_cavity_means_and_nothing_else(inverse_temperature):
    engine, point = converged()
    before = left_out(engine, point, 1.0)
    # Φ(z) with z = y·mean/√(1 + variance), and the variance stays.
    assert_allclose(
        left_out(engine, point, inverse_temperature),
        log_ndtr(inverse_temperature * ndtri_exp(before)),
        atol=1e-9,
    )


def test_sites_and_q_stay_and_the_scores_are_of_the_stretched_means():
    engine, point = converged()
    precision, shift = engine.sites.precision.copy(), engine.sites.shift.copy()
    result = calibrated(engine, point, engine.rule, seed=0)
    assert_array_equal(engine.sites.precision, precision)
    assert_array_equal(engine.sites.shift, shift)
    assert result.posterior is point.posterior
    assert result.mean_log_predictive == pytest.approx(engine.log_predictive.mean(), abs=1e-12)
    assert_allclose(
        engine.log_predictive, left_out(engine, point, result.inverse_temperature), atol=1e-12
    )


@pytest.mark.parametrize("noise", [0.2, 1.0, 3.0])
def test_no_other_factor_is_better(noise):
    rng = np.random.default_rng(0)
    labels = (np.sin(2 * X[:, 0]) + X[:, 1] + noise * rng.normal(size=len(X)) > 0).astype(np.int8)
    engine = make_engine(X, labels)
    point = fixed_point(engine, PRIOR)
    found = calibrated(engine, point, engine.rule, seed=0).inverse_temperature

    def penalised(inverse_temperature):
        penalty = 0.5 * (np.log(inverse_temperature) / calibration.PRIOR_DEVIATION) ** 2
        return left_out(engine, point, inverse_temperature).sum() - penalty

    grid = np.exp(np.linspace(-0.9, 1.4, 47))
    best = max(penalised(inverse_temperature) for inverse_temperature in grid)
    assert penalised(found) > best - 0.02
    assert grid[0] < found < grid[-1]


def test_several_classes_become_bolder():
    labels = (X[:, 0] > -0.5).astype(np.int8) + (X[:, 0] > 0.5)
    engine = make_engine(X, labels, rule=ExpectationPropagation(NoisyArgmax(3)))
    point = fixed_point(engine, PRIOR, tol=1e-8)
    before = left_out(engine, point, 1.0).mean()
    result = calibrated(engine, point, engine.rule, seed=0)
    assert result.inverse_temperature > 1.2
    assert result.mean_log_predictive > before + 0.02


def test_many_rows_are_judged_by_some_of_them(monkeypatch):
    monkeypatch.setattr(calibration, "ROWS", 100)
    engine, point = converged()
    of_some = calibrated(engine, point, engine.rule, seed=0)
    assert of_some.mean_log_predictive == pytest.approx(engine.log_predictive.mean())
    assert (
        of_some.inverse_temperature == calibrated(engine, point, engine.rule, seed=0).inverse_temperature
    )
    monkeypatch.undo()
    of_all = calibrated(engine, point, engine.rule, seed=0)
    assert of_some.inverse_temperature != of_all.inverse_temperature
    assert of_some.inverse_temperature == pytest.approx(of_all.inverse_temperature, rel=0.25)


def test_without_seconds_for_a_pass_the_rows_keep_their_scores(monkeypatch):
    monkeypatch.setattr(calibration, "ROWS", 100)
    engine, point = converged()
    before = engine.log_predictive.copy()
    result = calibrated(engine, point, engine.rule, seed=0, seconds=0.0)
    assert result.inverse_temperature != 1.0
    assert_array_equal(engine.log_predictive, before)


def test_with_few_seconds_few_rows_decide(monkeypatch):
    """Better a factor by fewer rows than none, or than one that takes as long as it takes."""
    clock = iter(np.arange(0.0, 1e6))
    seen = []

    def timed(self, row_pass, batch=None, *sampler, sweep=LocalEngine.run):
        seen.append(len(X) if batch is None else len(batch.index))
        return sweep(self, row_pass, batch, *sampler)

    monkeypatch.setattr(calibration, "FEWEST_ROWS", 20)
    monkeypatch.setattr(calibration.time, "monotonic", lambda: next(clock))  # a second a look
    replace_sweep(monkeypatch, timed)
    engine, point = converged()
    seen.clear()
    result = calibrated(engine, point, engine.rule, seed=0, seconds=4.0)
    assert seen[0] == 200
    assert set(seen[1:]) == {66}  # a third: three seconds for nine looks
    assert result.inverse_temperature != 1.0
    seen.clear()
    calibrated(engine, point, engine.rule, seed=0, seconds=100.0)
    assert set(seen) == {200}


def test_interrupted_it_keeps_what_it_has(monkeypatch):
    engine, point = converged()
    before = engine.log_predictive.copy()
    with monkeypatch.context() as patch:
        interrupt_at(patch, 3)
        early = calibrated(engine, point, engine.rule, seed=0)
    interrupt_at(monkeypatch, 10)  # the pass that would bring the scores up to date
    late = calibrated(engine, point, engine.rule, seed=0)
    monkeypatch.undo()
    assert early.interrupted
    assert early.inverse_temperature == 1.0
    assert late.interrupted
    assert_array_equal(engine.log_predictive, before)
    assert (
        late.inverse_temperature
        == calibrated(engine, point, engine.rule, seed=0).inverse_temperature
        != 1.0
    )


def test_scores_that_are_no_numbers_are_refused(monkeypatch):
    engine, point = converged()
    sweep = type(engine).run

    def spoilt(*args, **kwargs):
        sums = sweep(*args, **kwargs)
        sums.log_predictive = np.nan
        return sums

    replace_sweep(monkeypatch, spoilt)
    with pytest.raises(NumericalError, match=r'config=\{"calibration": None\}'):
        calibrated(engine, point, engine.rule, seed=0)


def test_threads_change_nothing():
    one, two = (
        calibrated(*converged(n_threads=k), ExpectationPropagation(), seed=0).inverse_temperature
        for k in (1, 2)
    )
    assert one == pytest.approx(two, rel=1e-12)


@given(st.floats(-0.9, 1.4), st.floats(0.1, 100.0))
@settings(deadline=None)
def test_the_vertex_of_a_parabola_is_found(top, bend):
    assert calibration.maximum_by_parabolas(lambda x: -bend * (x - top) ** 2) == pytest.approx(
        top, abs=1e-9
    )


@pytest.mark.parametrize(("slope", "end"), [(1.0, 3.15), (-1.0, -2.65)])
def test_without_a_maximum_it_goes_as_far_as_it_may(slope, end):
    assert calibration.maximum_by_parabolas(lambda x: slope * x) == pytest.approx(end)


def test_sites_that_q_is_not_made_of_are_not_left_out_in_full():
    """After a budget without exact sweeps, q is an average, and sites may say more than it knows."""
    engine, point = converged()
    engine.sites.precision[:] *= 30.0
    inverse_temperature = calibrated(
        engine, point._replace(converged=False), engine.rule, seed=0
    ).inverse_temperature
    scores = engine.log_predictive.copy()
    assert_allclose(scores, left_out(engine, point, inverse_temperature, LAGGING_LEVERAGE), atol=1e-12)
    assert not np.allclose(scores, left_out(engine, point, inverse_temperature), atol=0.01)

"""The engine decides where a pass runs, and nothing about what comes out of it."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.gaussian_process.kernels import RBF

from cavity.data.source import tile_rows
from cavity.gp.posterior import NaturalParameters, Posterior
from cavity.inference.rule import ExpectationPropagation
from cavity.inference.sweep import SiteSum, Sweep, SweepOptions
from support import (
    FLOAT32,
    FLOAT64,
    KERNELS,
    fixed_point,
    make_engine,
    make_prior,
    points,
    set_tile_rows,
    table,
    value_and_gradient,
)

X, LABELS = table(300)
KERNEL = KERNELS["noisy"]
PRIOR = make_prior(KERNEL, points(8))
EP = ExpectationPropagation()
START = Posterior.from_naturals(NaturalParameters.zeros(1, 8))


def outcome(**options):
    engine = make_engine(X, LABELS, **options)
    point = fixed_point(engine, PRIOR)
    value, gradient = value_and_gradient(engine, PRIOR)
    return value, gradient.theta, gradient.Z, point.posterior.mean, engine.log_predictive


@pytest.fixture(scope="module")
def expected():
    return outcome()


@pytest.mark.parametrize("rows", [1, 7, 64, 299, 300, 1000])
def test_tile_size_changes_nothing(monkeypatch, expected, rows):
    set_tile_rows(monkeypatch, rows)
    for actual, truth in zip(outcome(), expected, strict=True):
        assert_allclose(actual, truth, atol=1e-9)


@pytest.mark.parametrize("n_threads", [1, 2, 3, 8])
def test_number_of_threads_changes_nothing(monkeypatch, n_threads):
    set_tile_rows(monkeypatch, 17)
    for actual, truth in zip(outcome(n_threads=n_threads), outcome(n_threads=1), strict=True):
        assert_array_equal(actual, truth)  # tiles are reduced in their own order


def test_order_of_rows_changes_nothing(expected):
    order = np.random.default_rng(0).permutation(300)
    engine = make_engine(X[order], LABELS[order])
    point = fixed_point(engine, PRIOR)
    assert_allclose(point.objective, expected[0], atol=1e-9)
    assert_allclose(point.posterior.mean, expected[3], atol=1e-9)
    assert_allclose(engine.log_predictive, expected[4][order], atol=1e-9)


def test_order_of_inducing_points_changes_nothing_but_their_order(expected):
    order = np.random.default_rng(0).permutation(8)
    engine, prior = make_engine(X, LABELS), make_prior(KERNEL, PRIOR.Z[order])
    fixed_point(engine, prior)
    value, gradient = value_and_gradient(engine, prior)
    assert_allclose(value, expected[0], atol=1e-7)
    assert_allclose(gradient.theta, expected[1], atol=1e-6)
    assert_allclose(gradient.Z, expected[2][order], atol=1e-6)
    assert_allclose(engine.log_predictive, expected[4], atol=1e-7)


def test_a_weight_of_two_is_the_row_twice():
    weight = np.where(np.arange(300) < 100, 2.0, 1.0)
    weighted = fixed_point(make_engine(X, LABELS, weight=weight), PRIOR)
    twice = np.concatenate([np.arange(300), np.arange(100)])
    repeated = fixed_point(make_engine(X[twice], LABELS[twice]), PRIOR)
    assert_allclose(weighted.objective, repeated.objective, atol=1e-9)
    assert_allclose(weighted.posterior.mean, repeated.posterior.mean, atol=1e-9)
    assert_allclose(weighted.posterior.covariance, repeated.posterior.covariance, atol=1e-9)


def test_minibatches_add_up_to_a_full_pass(monkeypatch):
    set_tile_rows(monkeypatch, 17)
    engine = make_engine(X, LABELS)
    full = engine.run(Sweep(PRIOR, START, engine.rule, SweepOptions()))
    total = None
    for batch in engine.source.batches(70, np.random.default_rng(0)):
        sums = engine.run(Sweep(PRIOR, START, engine.rule, SweepOptions()), batch)
        engine.commit()
        if total is None:
            total = sums
        else:
            total += sums
    for name, value in vars(full).items():
        if value is not None:
            assert_allclose(getattr(total, name), value, atol=1e-8, err_msg=name)
    assert np.isfinite(engine.log_predictive).all()


def test_a_pass_leaves_no_trace_until_it_is_committed():
    engine = make_engine(X, LABELS)
    engine.run(Sweep(PRIOR, START, engine.rule, SweepOptions()))
    assert_array_equal(engine.sites.precision, 0.0)
    assert np.isnan(engine.log_predictive).all()
    engine.commit()
    committed = engine.sites.precision.copy()
    assert (committed > 0).all()
    engine.commit()
    assert_array_equal(engine.sites.precision, committed)


def test_a_fresh_engine_shares_rows_and_not_sites():
    engine = make_engine(X, LABELS)
    fixed_point(engine, PRIOR)
    fresh = engine.fresh()
    assert fresh.source is engine.source
    assert_array_equal(fresh.sites.precision, 0.0)
    assert (engine.sites.precision > 0).all()


def test_tiles_depend_on_the_problem_only_and_stay_in_the_cache():
    for m, d in [(1, 1), (200, 784), (500, 8), (2000, 2000)]:
        rows = tile_rows(m, d, FLOAT64)
        assert 1 <= rows <= 10_000
        assert tile_rows(m, d, FLOAT32) >= rows


def test_a_pass_that_waits_takes_no_more_room_than_what_is_kept(monkeypatch):
    monkeypatch.setattr("cavity.engines.local._ROWS_IN_FULL_PRECISION", 100)
    n = 200_000
    engine = make_engine(np.tile(X, (n // 300 + 1, 1))[:n], np.resize(LABELS, n))
    engine.run(
        Sweep(PRIOR, START, engine.rule, SweepOptions(gradient=False))
    )  # the blocks of the heap are there
    tracemalloc.start()
    try:
        engine.run(Sweep(PRIOR, START, engine.rule, SweepOptions(gradient=False)))
        waiting, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert engine.sites.precision.dtype == np.float32
    assert 12 * n < waiting < 16 * n  # three numbers a row in float32; they would be 24 bytes in float64


def test_a_minibatch_of_wide_sparse_rows_becomes_dense_tile_by_tile(monkeypatch):
    """4,000 rows of 2,000 columns take 64 MB when they are dense, a tile of 100 takes 1.6."""
    draw, n, d = np.random.default_rng(0), 4_000, 2_000
    places = draw.integers(0, n, 20_000), draw.integers(0, d, 20_000)
    rows = csr_array((draw.random(20_000), places), shape=(n, d))
    set_tile_rows(monkeypatch, 100)
    engine = make_engine(rows, np.arange(n) % 2)
    batch = next(iter(engine.batches(n, np.random.default_rng(0))))
    prior = make_prior(RBF(10.0), np.zeros((1, d)))
    tracemalloc.start()
    try:
        engine.run(
            Sweep(
                prior,
                Posterior.from_naturals(NaturalParameters.zeros(1, 1)),
                engine.rule,
                SweepOptions(),
            ),
            batch,
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32e6


def test_pass_that_only_looks_holds_no_sites_until_it_is_committed():
    engine = make_engine(X, LABELS)
    point = fixed_point(engine, PRIOR)
    precision, shift = engine.sites.precision.copy(), engine.sites.shift.copy()
    seen = engine.log_predictive.copy()
    engine.run(
        Sweep(
            PRIOR,
            point.posterior,
            engine.rule,
            SweepOptions(damping=0.0, gradient=False, inverse_temperature=1.5),
        )
    )
    assert all(refined.sites is None for _, refined in engine._pending)
    engine.commit()
    assert_array_equal(engine.sites.precision, precision)
    assert_array_equal(engine.sites.shift, shift)
    assert np.abs(engine.log_predictive - seen).max() > 0.01


@pytest.mark.parametrize("n_tiles", [1, 2, 4])
def test_into_how_many_tiles_a_minibatch_is_cut_changes_nothing(monkeypatch, n_tiles):
    monkeypatch.setattr("cavity.engines.local.minibatch_tiles", lambda *_: n_tiles)
    engine = make_engine(X, LABELS)
    batch = next(iter(engine.batches(100, np.random.default_rng(0))))
    sums = engine.run(Sweep(PRIOR, START, engine.rule, SweepOptions()), batch)
    assert len(engine._pending) == n_tiles
    monkeypatch.undo()
    whole = make_engine(X, LABELS)
    expected = whole.run(Sweep(PRIOR, START, whole.rule, SweepOptions()), batch)
    assert_allclose(sums.precision, expected.precision, atol=1e-9)
    assert_allclose(sums.Z, expected.Z, atol=1e-9)


@pytest.mark.parametrize(("rows", "n_kernels"), [(300, 2), (100, 12)])
def test_passes_over_a_single_tile_share_its_kernel_rows(monkeypatch, rows, n_kernels):
    """Once for each prior; a pass with a gradient uses them up. Several tiles keep nothing."""
    set_tile_rows(monkeypatch, rows)
    engine, computed = make_engine(X, LABELS), []
    cross = type(PRIOR.rows_kernel).cross
    monkeypatch.setattr(
        type(PRIOR.rows_kernel), "cross", lambda self, X: computed.append(len(X)) or cross(self, X)
    )
    prior = make_prior(KERNEL, points(8))
    computed.clear()  # that of the inducing points
    looks = SweepOptions(damping=0.0, gradient=False)
    passes = (SiteSum(prior), Sweep(prior, START, EP, looks), Sweep(prior, START, EP))
    first, second, third = (engine.run(one) for one in passes)
    again = engine.run(Sweep(prior, START, EP))
    assert len(computed) == n_kernels
    assert second.objective == third.objective == again.objective
    assert_array_equal(third.theta, again.theta)
    assert first.weight == len(X)


def test_rows_of_a_single_tile_are_read_once_for_each_precision():
    engine = make_engine(X, LABELS)
    (tile,) = engine.source.blocks(len(X))
    wide = engine._rows_once(tile, FLOAT64)
    assert engine._rows_once(tile, FLOAT64) is wide
    narrow = engine._rows_once(tile, FLOAT32)
    assert narrow.X.dtype == np.float32
    assert_allclose(narrow.X, wide.X, rtol=1e-6)
    (half, _) = engine.source.blocks(len(X) // 2)
    assert engine._rows_once(half, FLOAT32).cache is None

"""The calibration hold-out: rows that stay out of all minibatches until calibration asks for them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from cavity import SEPClassifier
from cavity.data.arrays import ArrayBlock, ArraySource
from cavity.data.sampling import RowSampler, calibration_part, is_calibration_row, training_part
from cavity.data.source import LoadedBlock
from cavity.gp.posterior import Naturals, Posterior
from cavity.inference import config
from cavity.inference.sweep import Sweep
from support import KERNELS, make, make_engine, make_prior, points, table

X, LABELS = table(2_000)
PRIOR = make_prior(KERNELS["scaled-rbf-ard"], points(8))
START = Posterior.from_naturals(Naturals.zeros(1, 8))
SHARE = 0.1


def test_about_the_share_of_any_rows_is_held_out_whatever_their_order():
    rng = np.random.default_rng(0)
    for numbers in (np.arange(100_000), np.arange(0, 10**7, 100), rng.integers(0, 10**9, 100_000)):
        held_out = is_calibration_row(numbers, SHARE)
        assert abs(held_out.mean() - SHARE) < 5 * np.sqrt(SHARE / len(numbers))
        order = rng.permutation(len(numbers))
        assert_array_equal(is_calibration_row(numbers[order], SHARE), held_out[order])


@pytest.mark.parametrize("period", [2, 7, 20, 64, 365, 1024])
def test_rows_that_repeat_in_a_rhythm_are_held_out_alike(period):
    held_out = is_calibration_row(np.arange(period * 20_000), SHARE).reshape(-1, period)
    assert np.abs(held_out.mean(axis=0) - SHARE).max() < 6 * np.sqrt(SHARE / 20_000)


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_minibatch_and_its_held_out_rows_are_the_whole(read, weighted):
    weight = np.arange(1.0, 2_001.0) if weighted else None
    index = np.arange(0, 2_000, 3)
    batch = ArrayBlock(ArraySource(X, LABELS, weight), index)
    batch = LoadedBlock(index, batch.load()) if read else batch
    parts = [part(batch, SHARE) for part in (training_part, calibration_part)]
    assert_array_equal(np.sort(np.concatenate([part.index for part in parts])), index)
    for part in parts:
        rows = part.load()
        assert_array_equal(rows.X, X[part.index])
        assert_array_equal(rows.labels, LABELS[part.index])
        assert (rows.weight is not None) == weighted
        if weighted:
            assert_array_equal(rows.weight, weight[part.index])


def test_sums_of_both_parts_are_those_of_the_minibatch():
    engine = make_engine(X, LABELS)
    batch = next(iter(engine.batches(500, np.random.default_rng(0))))
    sweep = Sweep(PRIOR, START, engine.rule)
    training = engine.run(sweep, batch, RowSampler(calibration_share=SHARE))
    held_out = engine.run(sweep, calibration_part(batch, SHARE))
    whole = engine.run(sweep, batch)
    assert training.weight + held_out.weight == whole.weight
    assert training.n_rows == whole.n_rows  # of the minibatch, rows of the hold-out included
    assert_allclose(training.precision + held_out.precision, whole.precision)
    assert_allclose(training.Z + held_out.Z, whole.Z, atol=1e-9)


def test_a_part_of_the_rows_holds_out_those_that_the_whole_does():
    engine = make_engine(X[500:], LABELS[500:])
    engine.first_row = 500
    batch = ArrayBlock(engine.source, np.arange(1_500))
    engine.run(Sweep(PRIOR, START, engine.rule), batch, RowSampler(calibration_share=SHARE))
    (index,) = (index for index, _ in engine._pending)
    numbers = np.arange(500, 2_000)
    assert_array_equal(index + 500, numbers[~is_calibration_row(numbers, SHARE)])


@pytest.mark.parametrize("most", [50, 10_000])
def test_a_calibration_batch_has_rows_of_the_hold_out_and_no_more_than_needed(most):
    engine = make_engine(X, LABELS)
    found = engine.calibration_batch(SHARE, most, np.random.default_rng(0))
    assert is_calibration_row(found.index, SHARE).all()
    assert len(np.unique(found.index)) == len(found.index)
    assert_array_equal(found.load().X, X[found.index])
    every = int(is_calibration_row(np.arange(2_000), SHARE).sum())
    assert len(found.index) == every if most > every else most <= len(found.index) < most + 20


def test_a_minibatch_of_held_out_rows_alone_counts_nothing():
    engine = make_engine(X, LABELS)
    held_out = np.flatnonzero(is_calibration_row(np.arange(2_000), SHARE))[:5]
    batch = ArrayBlock(engine.source, held_out)
    sums = engine.run(Sweep(PRIOR, START, engine.rule), batch, RowSampler(calibration_share=SHARE))
    assert sums.weight == 0.0
    assert not sums.precision.any()


def test_training_never_sees_them(monkeypatch):
    """Kernel and inducing points are the same whatever their labels."""
    monkeypatch.setattr(config, "CALIBRATION_ROWS", 10_000)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(12_000, 2))
    y = (np.sin(2 * rows[:, 0]) + rows[:, 1] + 0.3 * rng.normal(size=12_000) > 0).astype(int)
    other = np.where(is_calibration_row(np.arange(12_000), 0.05), 1 - y, y)
    fits = [
        SEPClassifier(n_inducing=10, batch_size=500, max_epochs=1, random_state=0, n_jobs=1).fit(rows, t)
        for t in (y, other)
    ]
    assert_array_equal(fits[0].kernel_.theta, fits[1].kernel_.theta)
    assert_array_equal(fits[0].inducing_points_, fits[1].inducing_points_)
    assert fits[1].inverse_temperature_ < 0.8 * fits[0].inverse_temperature_  # they judge


def test_rows_that_were_held_out_are_told_apart_from_those_that_it_knows(monkeypatch):
    """Inducing points that chase noise: the scores of the others say so."""
    monkeypatch.setattr(config, "CALIBRATION_ROWS", 500)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1_000, 20))
    y = (rows[:, 0] + 1.5 * rng.normal(size=1_000) > 0).astype(int)
    options = {"n_inducing": 100, "batch_size": 500, "max_epochs": 200, "random_state": 0, "n_jobs": 1}
    model = make(SEPClassifier, **options, residual_scale=0.0).fit(rows, y)
    held_out = is_calibration_row(np.arange(1_000), 0.05)
    known, unknown = model.loo_log_proba_[~held_out].mean(), model.loo_log_proba_[held_out].mean()
    assert unknown < known - 0.05

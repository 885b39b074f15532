"""Some rows stay out of all minibatches, and are there when they are asked for."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from cavity import SEPClassifier
from cavity.data.arrays import ArrayBlock, ArraySource
from cavity.data.sampling import is_spared, spared_batch
from cavity.data.source import LoadedBlock
from cavity.estimators import config as plans
from cavity.gp.posterior import Naturals, Posterior
from cavity.inference.sweep import SweepOptions
from support import KERNELS, make, make_engine, make_prior, points, table

X, LABELS = table(2_000)
PRIOR = make_prior(KERNELS["scaled-rbf-ard"], points(8))
START = Posterior.from_naturals(Naturals.zeros(1, 8))
SHARE = 0.1


def test_about_the_share_of_any_rows_is_spared_whatever_their_order():
    rng = np.random.default_rng(0)
    for numbers in (np.arange(100_000), np.arange(0, 10**7, 100), rng.integers(0, 10**9, 100_000)):
        spared = is_spared(numbers, SHARE)
        assert abs(spared.mean() - SHARE) < 5 * np.sqrt(SHARE / len(numbers))
        order = rng.permutation(len(numbers))
        assert_array_equal(is_spared(numbers[order], SHARE), spared[order])


@pytest.mark.parametrize("period", [2, 7, 20, 64, 365, 1024])
def test_rows_that_repeat_in_a_rhythm_are_spared_alike(period):
    spared = is_spared(np.arange(period * 20_000), SHARE).reshape(-1, period)
    assert np.abs(spared.mean(axis=0) - SHARE).max() < 6 * np.sqrt(SHARE / 20_000)


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_minibatch_and_its_spared_rows_are_the_whole(read, weighted):
    weight = np.arange(1.0, 2_001.0) if weighted else None
    index = np.arange(0, 2_000, 3)
    batch = ArrayBlock(ArraySource(X, LABELS, weight), index)
    batch = LoadedBlock(index, batch.load()) if read else batch
    parts = [spared_batch(batch, SHARE, only=only) for only in (False, True)]
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
    options = SweepOptions(spared=SHARE)
    training = engine.sweep(PRIOR, START, options, batch)
    spared = engine.sweep(PRIOR, START, replace(options, only_spared=True), batch)
    whole = engine.sweep(PRIOR, START, SweepOptions(), batch)
    assert training.weight + spared.weight == whole.weight
    assert training.n_rows == whole.n_rows  # a share of all rows, spared ones included
    assert_allclose(training.precision + spared.precision, whole.precision)
    assert_allclose(training.Z + spared.Z, whole.Z, atol=1e-9)


def test_a_part_of_the_rows_spares_those_that_the_whole_does():
    engine = make_engine(X[500:], LABELS[500:])
    engine.first_row = 500
    batch = ArrayBlock(engine.source, np.arange(1_500))
    engine.sweep(PRIOR, START, SweepOptions(spared=SHARE, only_spared=True), batch)
    (index,) = (index for index, _ in engine._pending)
    numbers = np.arange(500, 2_000)
    assert_array_equal(index + 500, numbers[is_spared(numbers, SHARE)])


@pytest.mark.parametrize("most", [50, 10_000])
def test_rows_that_judge_are_spared_ones_and_no_more_than_needed(most):
    engine = make_engine(X, LABELS)
    found = engine.spared_rows(SHARE, most, np.random.default_rng(0))
    assert is_spared(found.index, SHARE).all()
    assert len(np.unique(found.index)) == len(found.index)
    assert_array_equal(found.load().X, X[found.index])
    every = int(is_spared(np.arange(2_000), SHARE).sum())
    assert len(found.index) == every if most > every else most <= len(found.index) < most + 20


def test_a_minibatch_of_spared_rows_alone_counts_nothing():
    engine = make_engine(X, LABELS)
    spared = np.flatnonzero(is_spared(np.arange(2_000), SHARE))[:5]
    batch = ArrayBlock(engine.source, spared)
    sums = engine.sweep(PRIOR, START, SweepOptions(spared=SHARE), batch)
    assert sums.weight == 0.0
    assert not sums.precision.any()


def test_training_never_sees_them(monkeypatch):
    """Kernel and inducing points are the same whatever their labels."""
    monkeypatch.setattr(plans, "LEAST_TO_SPARE", 10_000)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(12_000, 2))
    y = (np.sin(2 * rows[:, 0]) + rows[:, 1] + 0.3 * rng.normal(size=12_000) > 0).astype(int)
    other = np.where(is_spared(np.arange(12_000), 0.05), 1 - y, y)
    fits = [
        SEPClassifier(n_inducing=10, batch_size=500, max_epochs=1, random_state=0, n_jobs=1).fit(rows, t)
        for t in (y, other)
    ]
    assert_array_equal(fits[0].kernel_.theta, fits[1].kernel_.theta)
    assert_array_equal(fits[0].inducing_points_, fits[1].inducing_points_)
    assert fits[1].inverse_temperature_ < 0.8 * fits[0].inverse_temperature_  # they judge


def test_rows_that_training_was_spared_are_told_apart_from_those_that_it_knows(monkeypatch):
    """Inducing points that chase noise: the scores of the others say so."""
    monkeypatch.setattr(plans, "LEAST_TO_SPARE", 500)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1_000, 20))
    y = (rows[:, 0] + 1.5 * rng.normal(size=1_000) > 0).astype(int)
    options = {"n_inducing": 100, "batch_size": 500, "max_epochs": 200, "random_state": 0, "n_jobs": 1}
    model = make(SEPClassifier, **options, residual_scale=0.0).fit(rows, y)
    spared = is_spared(np.arange(1_000), 0.05)
    known, unknown = model.loo_log_proba_[~spared].mean(), model.loo_log_proba_[spared].mean()
    assert unknown < known - 0.05

"""Importance subsampling and calibration rows on a cluster, shard by shard."""

import numpy as np
import pytest
from dask_clusters import QUIET, chunked, started
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cavity.data.sampling import RowSampler, is_calibration_row
from cavity.engines.dask import shards as layout
from cavity.estimators.dask import DaskSEPClassifier
from cavity.gp.prior import Prior
from cavity.inference.ep import ExpectationPropagation
from cavity.inference.sweep import Sweep, SweepOptions
from support import table

pytestmark = QUIET
N = 2_000
BATCH = 400
X, _ = table(N)
LABELS = (X[:, 0] > 0).astype(int)
KERNEL = ConstantKernel(10.0) * RBF([2.0, 2.0])


@pytest.fixture(scope="module")
def fitted():
    """Sites of rows most of which leave no doubt; no shard has a hundred rows of a minibatch."""
    with pytest.MonkeyPatch.context() as patch, started(1) as client:
        patch.setattr(layout, "LEAST_ROWS", 100)
        model = DaskSEPClassifier(KERNEL, n_inducing=8, optimizer=None, random_state=0, client=client)
        yield model.fit(*chunked(X, LABELS, 500))


def test_the_sums_are_those_of_all_rows_on_average(fitted):
    engine, posterior = fitted._training, fitted.model_.posterior
    prior = Prior(fitted.kernel_, fitted.model_.Z, np.dtype(np.float64), fitted.model_.jitter)
    rule = ExpectationPropagation(fitted.model_.likelihood)
    look = Sweep(prior, posterior, rule, SweepOptions(damping=0.0))
    full = engine.run(look)
    rng, found, epochs = np.random.default_rng(0), [], 8
    for _ in range(epochs):
        for batch in engine.batches(BATCH, rng):
            assert len(batch) >= 8
            found.append(engine.run(look, batch, RowSampler(0.1)))
    assert sum(sums.n_rows for sums in found) == epochs * N
    assert sum(sums.n_visited for sums in found) < 0.6 * epochs * N
    for name in ("precision", "shift", "theta", "Z"):
        values = np.array([getattr(sums, name) for sums in found])
        error = np.abs(values.sum(axis=0) / epochs - getattr(full, name))
        spread = values.std(axis=0) * np.sqrt(len(found)) / epochs
        scale = 1e-9 * np.abs(getattr(full, name)).max()
        assert (error < 3.0 * spread + scale).all(), name


def test_a_calibration_batch_has_calibration_rows_and_no_others(fitted):
    engine, posterior = fitted._training, fitted.model_.posterior
    prior = Prior(fitted.kernel_, fitted.model_.Z, np.dtype(np.float64), fitted.model_.jitter)
    rule = ExpectationPropagation(fitted.model_.likelihood)
    look = Sweep(prior, posterior, rule, SweepOptions(damping=0.0))
    batch = engine.calibration_batch(0.1, N, np.random.default_rng(0))
    whole = next(engine.batches(N, np.random.default_rng(0)))
    assert all(sample.parts == 1 for sample in whole.values())  # all rows of some shards
    numbers = np.concatenate([np.arange(*engine.source.layout.bounds(shard)) for shard in whole])
    held_out = int(is_calibration_row(numbers, 0.1).sum())
    assert engine.run(look, batch).weight == held_out > 0
    assert engine.run(look, whole, RowSampler(calibration_share=0.1)).weight == len(numbers) - held_out

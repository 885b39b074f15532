"""Importance subsampling and held-out rows on a cluster, shard by shard."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cavity.data.sampling import RowSampler, hashed_rows
from cavity.engines.dask import layout
from cavity.engines.dask.engine import DaskBackend
from cavity.engines.threads import Threads
from cavity.estimators.dask import DaskSEPClassifier
from cavity.gp.prior import Prior
from cavity.inference.rule import ExpectationPropagation
from cavity.inference.sweep import Sweep, SweepOptions
from dask_clusters import QUIET, chunked, started
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


def test_held_out_rows_are_in_no_minibatch_until_they_take_part(fitted):
    """They are the rows that one machine would hold out."""
    source, posterior = fitted._training.source, fitted.model_.posterior
    backend = DaskBackend(source.cluster, Threads(1))
    held_out = backend.hold_out(source, 0.1, seed=3)
    assert_array_equal(held_out.numbers, hashed_rows(N, N // 10, seed=3))
    assert_array_equal(held_out.rows.X, X[held_out.numbers])
    assert_array_equal(held_out.rows.labels, LABELS[held_out.numbers])
    engine = backend.engine(source, fitted.model_.scaling, 1, held_out)
    prior = Prior(fitted.kernel_, fitted.model_.Z, np.dtype(np.float64), fitted.model_.jitter)
    rule = ExpectationPropagation(fitted.model_.likelihood)
    look = Sweep(prior, posterior, rule, SweepOptions(damping=0.0))
    whole = next(engine.batches(N, np.random.default_rng(0)))
    assert all(sample.parts == 1 for sample in whole.values())  # all rows of some shards
    numbers = np.concatenate([np.arange(*source.layout.bounds(shard)) for shard in whole])
    absent = int(np.isin(numbers, held_out.numbers).sum())
    assert absent > 0
    assert engine.run(look, whole).weight == len(numbers) - absent
    assert engine.run(look).weight == N - N // 10
    assert engine.with_held_out_rows().run(look).weight == N

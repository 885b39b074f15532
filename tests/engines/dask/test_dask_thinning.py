"""On a cluster too, rows of no doubt are thinned out of a minibatch, shard by shard, without bias."""

from dataclasses import replace

import numpy as np
import pytest
from dask_clusters import QUIET, chunked, started
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cavity.engines.dask import shards as layout
from cavity.estimators.dask import DaskSEPClassifier
from cavity.gp.prior import Prior
from cavity.inference.sweep import SweepOptions
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
    look = SweepOptions(damping=0.0, thinning=0.1)
    full = engine.sweep(prior, posterior, replace(look, thinning=1.0))
    rng, found, epochs = np.random.default_rng(0), [], 8
    for _ in range(epochs):
        for batch in engine.batches(BATCH, rng):
            assert len(batch) >= 8
            found.append(engine.sweep(prior, posterior, look, batch))
    assert sum(sums.n_rows for sums in found) == epochs * N
    assert sum(sums.n_visited for sums in found) < 0.6 * epochs * N
    for name in ("precision", "shift", "theta", "Z"):
        values = np.array([getattr(sums, name) for sums in found])
        error = np.abs(values.sum(axis=0) / epochs - getattr(full, name))
        spread = values.std(axis=0) * np.sqrt(len(found)) / epochs
        scale = 1e-9 * np.abs(getattr(full, name)).max()
        assert (error < 3.0 * spread + scale).all(), name

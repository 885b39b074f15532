"""What travels is half as large and says the same."""

import pickle
from itertools import pairwise

import dask
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cavity.data.sampling import EVERY_ROW
from cavity.data.scaling import Scaling
from cavity.engines.dask.comm import (
    FitSettings,
    Message,
    Node,
    PackedMessage,
    PartialSum,
    pack,
    pack_sums,
    total,
    unpack,
    unpack_once,
    unpack_sums,
)
from cavity.engines.dask.passes import Assignment, pass_graph
from cavity.gp.posterior import NaturalParameters, Posterior
from cavity.gp.prior import Prior
from cavity.gp.tiles import Rows, Sites, Sums
from cavity.inference.rule import ExpectationPropagation
from cavity.inference.sweep import Sweep, SweepOptions

RNG = np.random.default_rng(0)
RULE = ExpectationPropagation()


def problem(m, d, dtype):
    prior = Prior(ConstantKernel(2.0) * RBF(np.sqrt(d)), RNG.standard_normal((m, d)), dtype)
    W = RNG.standard_normal((m, 3 * m))
    return prior, Posterior.from_naturals(
        NaturalParameters((W @ W.T)[None], RNG.standard_normal((1, m)))
    )


def message_of(prior, posterior, options, directions=0):
    scaling = Scaling.identity(prior.Z.shape[1])
    settings = FitSettings("fit", 1, scaling, np.zeros(0, int), directions)
    return Message(settings, Sweep(prior, posterior, RULE, options), EVERY_ROW, 1, frozenset())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("directions", [0, 8])
def test_a_worker_sweeps_with_a_message_as_the_driver_would(dtype, directions):
    prior, posterior = problem(8, 3, dtype)
    options = SweepOptions(damping=0.5, exact=directions > 0)
    message = message_of(prior, posterior, options, directions)
    unpack_once.cache_clear()
    received = unpack_once(pickle.loads(pickle.dumps(pack(message))))
    X = RNG.standard_normal((20, 3)).astype(dtype)
    rows, sites = Rows(X, np.arange(20) % 2, None), Sites.zeros(1, 20, np.float64, directions)
    _, here = Sweep(prior, posterior, RULE, options)(rows, sites)
    _, there = received.row_pass(rows, sites)
    for name in ("precision", "shift", "whitened_gradient", "theta", "Z", "objective"):
        assert_array_equal(getattr(there, name), getattr(here, name), err_msg=name)
    back = unpack_sums(pack_sums(there, prior.dtype))
    assert_array_equal(back.precision, here.precision)
    assert_array_equal(back.Z, np.asarray(here.Z, dtype))
    assert back.Z.dtype == np.float64
    assert_array_equal(back.whitened_gradient, here.whitened_gradient)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_factored_posterior_travels_as_its_factors(dtype):
    prior, whole = problem(8, 3, dtype)
    posterior = Posterior.from_factors(whole.mean, np.linalg.cholesky(whole.covariance), prior.dtype)
    message = message_of(prior, posterior, SweepOptions(whitened_gradient=False))
    received = unpack(pickle.loads(pickle.dumps(pack(message)))).row_pass.posterior
    A = RNG.standard_normal((20, 8)).astype(dtype)
    for here, there in zip(posterior.project(A), received.project(A), strict=True):
        assert_array_equal(there, here)
    assert received.divergence == posterior.divergence


@pytest.mark.parametrize(("m", "d"), [(60, 100), (200, 4)])
def test_a_message_is_as_large_as_it_is_said_to_be(m, d):
    prior, posterior = problem(m, d, np.float32)
    message = message_of(prior, posterior, SweepOptions())
    assert len(pack(message).data) < 4 * m * m + 4 * m * d + 20 * (m + d) + 3_000


def test_the_order_of_a_sum_does_not_depend_on_where_its_last_part_is_done():
    values = [
        Sums(1, 1, 1.0, RNG.standard_normal((1, 3)), RNG.standard_normal((1, 2)), 0.0, 0.0, 0.0)
        for _ in range(16)
    ]

    def task(assignment, _):
        return (lambda: PartialSum(tuple((Node(0, i), values[i]) for i in assignment.extent)),)

    totals = []
    for n_roots in (1, 4, 16):
        for cuts in ([0, 16], [0, 3, 4, 11, 16], list(range(17))):
            assignments = [Assignment(range(*extent), []) for extent in pairwise(cuts)]
            graph = pass_graph(PackedMessage("name", b""), None, assignments, task, n_roots)
            assert len(graph.roots) <= n_roots
            totals.append(total(list(dask.get(graph.tasks, graph.roots)), 16))
    for other in totals[1:]:
        assert_array_equal(other.precision, totals[0].precision)
        assert_array_equal(other.shift, totals[0].shift)

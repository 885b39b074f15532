"""What travels is half as large and says the same."""

import pickle

import dask
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cavity.dask.graph import pass_graph
from cavity.dask.messages import Message, Packed, Setting
from cavity.dask.packing import (
    for_rows,
    lower,
    packed_message,
    packed_sums,
    symmetric,
    triangle,
    unpacked,
    unpacked_sums,
)
from cavity.dask.tree import top
from cavity.posterior import Naturals, Posterior
from cavity.prior import Prior
from cavity.rows import Rows, Sites
from cavity.rules.expectation_propagation import ExpectationPropagation
from cavity.standardize import Standardizer
from cavity.sweep import SweepOptions, sweep

RNG = np.random.default_rng(0)
RULE = ExpectationPropagation()


@given(m=st.integers(1, 30), dtype=st.sampled_from([np.float32, np.float64]))
def test_triangles_are_half_of_a_matrix_and_all_of_it(m, dtype):
    M = np.random.default_rng(m).standard_normal((m, m)).astype(dtype)
    half = triangle(M)
    assert half.dtype == dtype
    assert_array_equal(half, M[np.tril_indices(m)])
    assert_array_equal(lower(half), np.tril(M))
    assert_array_equal(symmetric(half), np.tril(M) + np.tril(M, -1).T)


def problem(m, d, dtype):
    prior = Prior(ConstantKernel(2.0) * RBF(np.sqrt(d)), RNG.standard_normal((m, d)), dtype)
    W = RNG.standard_normal((m, 3 * m))
    return prior, Posterior.from_naturals(Naturals((W @ W.T)[None], RNG.standard_normal((1, m))))


def message_of(prior, posterior, options, directions=0):
    setting = Setting("fit", RULE, Standardizer.identity(prior.Z.shape[1]), np.zeros(0, int), directions)
    slim = for_rows(prior, directions=directions > 0)
    return Message(setting, slim, posterior, options, 1, frozenset())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("directions", [0, 8])
def test_a_worker_sweeps_with_a_message_as_the_driver_would(dtype, directions):
    prior, posterior = problem(8, 3, dtype)
    options = SweepOptions(damping=0.5, exact=directions > 0)
    message = message_of(prior, posterior, options, directions)
    unpacked.cache_clear()
    received = unpacked(pickle.loads(pickle.dumps(packed_message(message))))
    X = RNG.standard_normal((20, 3)).astype(dtype)
    rows, sites = Rows(X, np.arange(20) % 2, None), Sites.zeros(1, 20, np.float64, directions)
    _, here = sweep(rows, sites, prior, posterior, RULE, options)
    _, there = sweep(rows, sites, received.prior, received.posterior, RULE, received.options)
    for name in ("precision", "shift", "bracket", "theta", "Z", "objective"):
        assert_array_equal(getattr(there, name), getattr(here, name), err_msg=name)
    back = unpacked_sums(packed_sums(there, prior.dtype))
    assert_array_equal(back.precision, here.precision)
    assert_array_equal(back.Z, np.asarray(here.Z, dtype))
    assert back.bracket.dtype == np.float64


@pytest.mark.parametrize(("m", "d"), [(60, 100), (200, 4)])
def test_a_message_is_as_large_as_it_is_said_to_be(m, d):
    prior, posterior = problem(m, d, np.float32)
    message = message_of(prior, posterior, SweepOptions())
    assert len(packed_message(message).data) < 4 * m * m + 4 * m * d + 20 * (m + d) + 3_000


def test_the_order_of_a_sum_does_not_depend_on_where_its_last_part_is_done():
    values = {i: Naturals(RNG.standard_normal((1, 3)), RNG.standard_normal((1, 2))) for i in range(11)}
    totals = []
    for n_roots in (1, 4, 16):
        tasks = {i: lambda q, i=i: (values.__getitem__, i) for i in values}
        graph, roots = pass_graph(Packed("name", b""), None, tasks, n_roots)
        assert len(roots) <= n_roots
        nodes = dask.get(graph, list(roots.values()))
        totals.append(top(dict(zip(roots, nodes, strict=True))))
    for total in totals[1:]:
        assert_array_equal(total.precision, totals[0].precision)
        assert_array_equal(total.shift, totals[0].shift)

"""Importance subsampling: most rows of certain labels are left out, and nothing is biased."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cavity import SEPClassifier, SVIClassifier
from cavity.data import ParquetSource, sampling
from cavity.data.arrays import ArrayBlock, ArraySource
from cavity.data.sampling import RowSampler, subsampled, systematic_subsample
from cavity.data.scaling import Scaling
from cavity.data.source import LoadedBlock
from cavity.engines.local import LocalEngine
from cavity.engines.threads import Threads
from cavity.gp.likelihoods import NoisyArgmax
from cavity.inference.rule import ExpectationPropagation
from cavity.inference.sweep import Sweep, SweepOptions
from support import fixed_point, make_engine, make_prior, points, table

N = 3_000
LEAST = 0.1
PRIOR = make_prior(ConstantKernel(300.0) * RBF([2.0, 2.0]), points(8))


def separable(n):
    """Rows of two classes, of which most leave no doubt."""
    X, _ = table(n)
    return X, (X[:, 0] > 0).astype(np.int8)


def three_classes(n):
    """The same rows in three parts."""
    X, _ = table(n)
    return X, (X[:, 0] > -0.4).astype(np.int8) + (X[:, 0] > 0.4)


def parquet_engine(path):
    """The engine of separable rows in a file of many row groups."""
    X, labels = separable(N)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(target=labels)
    frame.to_parquet(path, index=False, row_group_size=250)
    source = ParquetSource(path, "target")
    engine = LocalEngine(source, Scaling.identity(2), 1, Threads(1))
    engine.rule = ExpectationPropagation()
    return engine


@pytest.fixture(scope="module", params=["two classes", "three classes", "parquet"])
def fitted(request, tmp_path_factory):
    if request.param == "parquet":
        engine = parquet_engine(tmp_path_factory.mktemp("rows") / "rows.parquet")
    elif request.param == "three classes":
        engine = make_engine(*three_classes(N), rule=ExpectationPropagation(NoisyArgmax(3)))
    else:
        engine = make_engine(*separable(N))
    return engine, fixed_point(engine, PRIOR, tol=1e-7).posterior


@given(
    arrays(np.float64, st.integers(1, 300), elements=st.floats(-30.0, 0.0)),
    st.floats(0.01, 1.0),
    st.floats(0.0, 0.99),
)
@example(np.array([-1.0, 0.0, -1.0, 0.0]), 0.010000000000000002, 0.9899999999999999)
def test_as_many_rows_are_kept_as_expected_and_those_in_doubt_always(log_predictive, least, offset):
    kept, importance_weight = systematic_subsample(log_predictive, least, offset)
    probability = np.clip(-np.expm1(log_predictive) / sampling._DOUBTFUL, least, 1.0)
    assert abs(len(kept) - probability.sum()) <= 1.0 + 1e-6
    assert_allclose(importance_weight, 1.0 / probability[kept])
    always = np.flatnonzero(probability == 1.0)
    assert np.isin(always, kept).all()


def test_a_row_that_was_never_visited_is_kept():
    kept, importance_weight = systematic_subsample(np.full(500, np.nan), LEAST, 0.3)
    assert_array_equal(kept, np.arange(500))
    assert_array_equal(importance_weight, 1.0)


def test_every_row_is_itself_on_average():
    """Over random minibatches a row's share in the sums is one, whatever its probability."""
    rng = np.random.default_rng(0)
    log_predictive = np.log1p(-(10.0 ** rng.uniform(-4, 0, 1_000)))
    total, draws = np.zeros(1_000), 4_000
    for _ in range(draws):
        chosen = np.sort(rng.choice(1_000, 300, replace=False))
        kept, importance_weight = systematic_subsample(
            log_predictive[chosen], LEAST, sampling._hashed_offset(chosen)
        )
        total[chosen[kept]] += importance_weight
    share = total / (0.3 * draws)
    deviation = np.sqrt((1.0 / LEAST) / (0.3 * draws))
    assert np.abs(share - 1.0).max() < 5.0 * deviation
    assert abs(share.mean() - 1.0) < 0.005


def test_the_sums_are_those_of_all_rows_on_average(fitted):
    engine, posterior = fitted
    look = Sweep(PRIOR, posterior, engine.rule, SweepOptions(damping=0.0))
    full = engine.run(look)
    rng, found, epochs = np.random.default_rng(0), [], 20
    for _ in range(epochs):
        for batch in engine.batches(600, rng):
            found.append(engine.run(look, batch, RowSampler(LEAST)))
    assert sum(sums.n_rows for sums in found) == epochs * N
    assert sum(sums.n_visited for sums in found) < 0.5 * epochs * N
    for name in ("precision", "shift", "whitened_gradient", "theta", "Z"):
        values = np.array([getattr(sums, name) for sums in found])
        error = np.abs(values.sum(axis=0) / epochs - getattr(full, name))
        spread = values.std(axis=0) * np.sqrt(len(found)) / epochs
        scale = 1e-9 * np.abs(getattr(full, name)).max()
        assert (error < 5.0 * spread + scale).all(), name


def test_what_is_left_out_of_q_for_a_row_is_its_own_site_alone(fitted):
    """A row that stands for ten has the cavity, the refined site and the score that it always had."""
    engine, posterior = fitted
    batch = next(iter(engine.batches(1_000, np.random.default_rng(1))))
    before = engine.log_predictive.copy()
    engine.run(Sweep(PRIOR, posterior, engine.rule), batch, RowSampler(LEAST))
    assert sum(len(index) for index, _ in engine._pending) < 600
    for index, refined in engine._pending:
        assert_allclose(refined.log_predictive, before[index], atol=1e-6)
        assert_allclose(refined.sites.precision, engine.sites.precision[:, index], atol=1e-6)


@pytest.mark.parametrize(
    ("n", "n_rows", "least"),
    [(9, 200, LEAST), (1_000, 2_000, 1.0)],
    ids=["so few that none might be kept", "not asked for"],
)
def test_what_is_left_as_it_is(n, n_rows, least):
    X, labels = separable(n_rows)
    source, certain = ArraySource(X, labels), np.zeros(n_rows)
    block = ArrayBlock(source, np.arange(n))
    read = LoadedBlock(block.index, block.load())
    for batch in (block, read):
        assert_array_equal(subsampled(batch, certain, least).index, np.arange(n))


def test_all_rows_at_once_are_left_as_they_are(fitted):
    """They are the same in every epoch, and so would be those that are kept."""
    engine, posterior = fitted
    (batch,) = engine.batches(N, np.random.default_rng(0))
    look = Sweep(PRIOR, posterior, engine.rule, SweepOptions(damping=0.0))
    assert engine.run(look, batch, RowSampler(LEAST)).n_visited > 0.9 * N


def test_a_minibatch_that_has_been_read_is_subsampled_alike():
    X, labels = separable(1_000)
    block = ArrayBlock(ArraySource(X, labels), np.arange(0, 1_000, 2))
    log_predictive = np.log1p(-(10.0 ** np.random.default_rng(0).uniform(-4, 0, 1_000)))
    one = subsampled(block, log_predictive, LEAST)
    other = subsampled(LoadedBlock(block.index, block.load()), log_predictive, LEAST)
    assert isinstance(one, LoadedBlock)
    assert isinstance(other, LoadedBlock)
    assert len(one.index) < 400
    assert_array_equal(one.index, other.index)
    assert_array_equal(one.importance_weight, other.importance_weight)
    assert_array_equal(one.load().X, X[one.index])
    assert_array_equal(other.load().X, X[one.index])


@pytest.mark.parametrize("read", [False, True])
def test_a_weight_of_one_changes_nothing_and_rows_of_more_are_kept_more_often(read):
    X, labels = separable(1_000)
    log_predictive = np.log1p(-(10.0 ** np.random.default_rng(0).uniform(-4, 0, 1_000)))

    def sample(weight):
        block = ArrayBlock(ArraySource(X, labels, weight), np.arange(0, 1_000, 2))
        return subsampled(
            LoadedBlock(block.index, block.load()) if read else block, log_predictive, LEAST
        )

    plain, ones = sample(None), sample(np.ones(1_000))
    assert_array_equal(ones.index, plain.index)
    assert_array_equal(ones.importance_weight, plain.importance_weight)
    assert_array_equal(ones.load().weight, 1.0)
    heavy = sample(np.full(1_000, 20.0))
    assert len(heavy.index) > 1.2 * len(plain.index)
    assert_array_equal(heavy.load().weight, 20.0)


def test_weights_of_one_are_none_in_a_fit():
    X, labels = separable(2_000)
    options = {"batch_size": 500, "max_epochs": 6, "validation_fraction": None}
    model = SEPClassifier(n_inducing=10, random_state=0, n_jobs=1, **options)
    without = model.fit(X, labels).predict_proba(X)
    assert_allclose(model.fit(X, labels, np.ones(2_000)).predict_proba(X), without, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("model", "subsamples"),
    [
        (SEPClassifier(batch_size=500), True),
        (SEPClassifier(batch_size=100), False),
        (SVIClassifier(batch_size=500), True),
        (SVIClassifier(batch_size=500, config={"posterior_update": "gradient"}), False),
        (SEPClassifier(batch_size=None, max_epochs=3), False),
        (SEPClassifier(batch_size=500, config={"site_storage": "factors"}), False),
    ],
    ids=["sep", "small", "svi", "gradient", "all rows", "factors"],
)
def test_which_schedules_subsample(monkeypatch, model, subsamples):
    visited = []
    whole = sampling.systematic_subsample

    def watched(log_predictive, *rest):
        kept, importance_weight = whole(log_predictive, *rest)
        visited.append(len(kept) / len(log_predictive))
        return kept, importance_weight

    monkeypatch.setattr(sampling, "systematic_subsample", watched)
    options = {"max_epochs": 6, "validation_fraction": None, "random_state": 0, "n_jobs": 1}
    model.set_params(kernel=ConstantKernel(1.0) * RBF([1.0, 1.0]), n_inducing=10, **options)
    X, labels = separable(2_000)
    model.fit(X, labels)
    assert model.score(X, labels) > 0.97
    assert bool(visited) == subsamples
    if subsamples:
        assert visited[:4] == [1.0] * 4
        assert min(visited) < 0.7

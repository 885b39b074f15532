"""Local inducing points on a cluster: the fit of one machine, whatever the workers do."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.tree import DecisionTreeClassifier

from cavity import DaskSEPClassifier, DaskSVIClassifier, SEPClassifier, SVIClassifier
from cavity.data.routing import TreeRouting, leaves_in_order
from cavity.engines.dask import cluster, layout, shards
from cavity.engines.dask.cluster import Cluster, DyingWorkersError
from cavity.engines.dask.collections import lazy_table
from cavity.engines.dask.comm import pack
from cavity.engines.dask.engine import DaskEngine
from cavity.engines.dask.shards import ShardedSource
from cavity.inference import candidates, decisions
from dask_clusters import QUIET, At, chunked, kill_a_worker, started, wait_for_workers
from support import PINNED

SETTINGS = {name: value for name, value in PINNED.items() if name != "scaling"} | {"n_local": 6}
WHOLE = {"batch_size": None, "max_epochs": 6, "validation_fraction": None}
BATCHES = {"batch_size": 100, "max_epochs": 2, "validation_fraction": 0.1}

pytestmark = [*QUIET, pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")]


def stripes(n=600, seed=0):
    """Rows [n, 2] whose label changes often along the first column."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(0, 20, size=n), rng.normal(size=n)])
    latent = 3 * np.sin(X[:, 0] + 0.3 * X[:, 1]) + rng.normal(size=n)
    return X, (latent > 0).astype(int)


X, LABELS = stripes()
X_STAR = stripes(seed=1)[0]


def classifier(kind=DaskSEPClassifier, leaves=5, **parameters):
    given = {"n_inducing": 4, "scaling": "standard", "random_state": 0, "n_jobs": 1}
    return kind(leaves=leaves, **{"config": SETTINGS, **given, **parameters})


@pytest.fixture(scope="module")
def client():
    with started(2) as client:
        yield client


@pytest.fixture(autouse=True, scope="module")
def small_shards():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "LEAST_ROWS", 40)  # 8 shards
        yield


@pytest.fixture(scope="module")
def expected():
    return classifier(SEPClassifier, **WHOLE).fit(X, LABELS)


@pytest.fixture(scope="module")
def drawn(client):
    return classifier(client=client, **BATCHES).fit(*chunked(X, LABELS, 150))


def values(model):
    return model.client.compute(model.loo_log_proba_).result()


def test_all_rows_at_once_give_the_fit_of_one_machine(client, expected):
    model = classifier(client=client, **WHOLE).fit(*chunked(X, LABELS, 150))
    assert_allclose(model.kernel_.theta, expected.kernel_.theta, rtol=1e-7)
    for ours, theirs in zip(
        model.model_.local.leaves.points, expected.model_.local.leaves.points, strict=True
    ):
        assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)
    assert_allclose(model.predict_proba(X_STAR), expected.predict_proba(X_STAR), atol=1e-7)
    assert_allclose(values(model), expected.loo_log_proba_, atol=1e-7)
    evidence = model.log_marginal_likelihood_value_
    assert evidence == pytest.approx(expected.log_marginal_likelihood_value_, rel=1e-8)
    theta = model.kernel_.theta
    ours, theirs = (m.log_marginal_likelihood(theta, eval_gradient=True) for m in (model, expected))
    assert ours[0] == pytest.approx(theirs[0], rel=1e-8)
    assert_allclose(ours[1], theirs[1], rtol=1e-5, atol=1e-5)


def test_number_of_workers_and_partitions_change_nothing(drawn):
    with started(1) as alone:
        model = classifier(client=alone, **BATCHES).fit(*chunked(X, LABELS, 600))
        assert_array_equal(model.predict_proba(X_STAR), drawn.predict_proba(X_STAR))
        assert_array_equal(values(model), values(drawn))


def test_minibatches_learn_and_hold_rows_out(drawn):
    assert np.isfinite(drawn.validation_log_loss_)
    assert drawn.score(X_STAR, stripes(seed=1)[1]) > 0.7
    assert np.isfinite(values(drawn)).sum() >= 0.8 * len(X)


def test_predictions_are_lazy_and_those_of_the_local_classifier(client, drawn, tmp_path):
    rows, _ = chunked(X_STAR, LABELS, 200)
    local = drawn.to_local()
    lazy = drawn.predict_proba(rows)
    assert_allclose(client.compute(lazy).result(), local.predict_proba(X_STAR), atol=1e-12)
    scores = client.compute(drawn.ood_score(rows)).result()
    assert_allclose(scores, local.ood_score(X_STAR), atol=1e-12)
    assert_array_equal(local.loo_log_proba_, values(drawn))
    drawn.save(tmp_path / "model.cavity")


def test_a_worker_that_is_killed_costs_time_alone(expected, drawn, monkeypatch):
    with started(2) as client:
        with At(2, do=lambda: kill_a_worker(client)) as disturbance:
            model = classifier(client=client, **WHOLE).fit(*chunked(X, LABELS, 150))
        assert disturbance.done == 1
        assert_allclose(model.predict_proba(X_STAR), expected.predict_proba(X_STAR), atol=1e-6)
        wait_for_workers(client, 2)
        with At(3, do=lambda: kill_a_worker(client)) as disturbance:
            model = classifier(client=client, **BATCHES).fit(*chunked(X, LABELS, 150))
        assert disturbance.done == 1
        assert_allclose(model.predict_proba(X_STAR), drawn.predict_proba(X_STAR), atol=0.15)


def test_variational_inference_and_a_warm_start_are_those_of_one_machine(client):
    config = {"kernel_name": "matern32", "n_local": 6}
    settings = {**WHOLE, "max_epochs": 3, "warm_start": True, "config": config}
    model = classifier(DaskSVIClassifier, client=client, **settings)
    local = classifier(SVIClassifier, **settings)
    for _ in range(2):
        model.fit(*chunked(X, LABELS, 150))
        local.fit(X, LABELS)
        assert_allclose(model.predict_proba(X_STAR), local.predict_proba(X_STAR), atol=1e-6)
        assert_allclose(values(model), local.loo_log_proba_, atol=1e-6)


def test_estimator_that_routes_weights_and_three_classes(client):
    y = np.where(X[:, 0] < 10, LABELS, 2 * LABELS)
    weight = np.random.default_rng(3).integers(1, 3, size=len(y)).astype(float)
    tree = DecisionTreeClassifier(max_leaf_nodes=3, random_state=0).fit(X, y)
    dask_weight = chunked(X, weight, 150)[1]
    model = classifier(leaves=tree, client=client, **WHOLE)
    model.fit(*chunked(X, y, 150), sample_weight=dask_weight)
    local = classifier(SEPClassifier, leaves=tree, **WHOLE).fit(X, y, weight)
    assert_allclose(model.predict_proba(X_STAR), local.predict_proba(X_STAR), atol=1e-6)


def test_leaf_numbers_give_the_leaves_of_one_machine(client):
    numbers = np.digitize(X[:, 0], [4.0, 9.0, 15.0])
    model = classifier(leaves=numbers, client=client, **WHOLE).fit(*chunked(X, LABELS, 150))
    assert_array_equal(model.model_.local.leaves.routing(X), numbers)
    local = classifier(SEPClassifier, leaves=numbers, **WHOLE).fit(X, LABELS)
    assert_allclose(model.predict_proba(X_STAR), local.predict_proba(X_STAR), atol=1e-6)


def test_only_leaves_that_a_minibatch_touches_are_sent(client, monkeypatch):
    sent, sums = [], []
    message, run = DaskEngine.message, DaskEngine.run

    def spy_on_message(self, row_pass, sampler, batch):
        found = message(self, row_pass, sampler, batch)
        sent.append((found.leaves, len(pack(found).data)))
        return found

    def spy_on_run(self, row_pass, batch=None, *sampler):
        found = run(self, row_pass, batch, *sampler)
        sums.append(set(found.parts))
        return found

    monkeypatch.setattr(DaskEngine, "message", spy_on_message)
    monkeypatch.setattr(DaskEngine, "run", spy_on_run)
    settings = {"batch_size": 25, "max_epochs": 0.5, "validation_fraction": None}
    classifier(leaves=8, client=client, **settings).fit(*chunked(X, LABELS, 150))
    some = [(leaves, size) for leaves, size in sent if leaves is not None]
    whole = max(size for leaves, size in sent if leaves is None)
    assert some
    assert max(len(leaves) for leaves, _ in some) < 8
    assert max(size for _, size in some) < 0.8 * whole
    touched = [found for found, (leaves, _) in zip(sums, sent, strict=True) if leaves is not None]
    assert all(len(found) < 8 for found in touched)


def test_held_out_rows_decide_on_leaves_on_a_cluster(client, monkeypatch):
    monkeypatch.setattr(layout, "LEAST_ROWS", 500)
    monkeypatch.setattr(decisions, "GAIN_WINDOW", 25)
    monkeypatch.setattr(decisions, "DEFAULT_POINTS", 5)
    monkeypatch.setattr(candidates, "POINTS", 10)
    monkeypatch.setattr(candidates, "POINTS_BESIDE_LEAVES", 5)
    rows, labels = stripes(2_000)
    settings = {**BATCHES, "batch_size": 500, "leaves": "auto", "n_inducing": "auto"}
    one, other = (
        classifier(**settings, client=client).fit(*chunked(rows, labels, size)) for size in (500, 2_000)
    )
    assert {entry.n_leaves for entry in one.race_} > {None}
    assert one.config_.n_leaves is not None
    assert other.config_ == one.config_
    assert [entry.log_loss for entry in other.race_] == [entry.log_loss for entry in one.race_]
    assert_array_equal(other.model_.posterior.mean, one.model_.posterior.mean)


def dies(*_):
    raise DyingWorkersError("workers die while they run the tasks of this fit")


@pytest.mark.parametrize("fault", ["memory of the driver", "memory of the workers", "deaths"])
def test_a_trial_that_cannot_sort_the_rows_loses(client, fault, monkeypatch):
    patches = {
        "memory of the driver": (shards, "_BYTES_TO_SORT", 10**15),
        "memory of the workers": (cluster, "HELD_SHARE", 1e-9),
        "deaths": (ShardedSource, "_require_memory_to_sort", dies),
    }
    monkeypatch.setattr(*patches[fault])
    monkeypatch.setattr(layout, "LEAST_ROWS", 500)
    monkeypatch.setattr(decisions, "DEFAULT_POINTS", 5)
    monkeypatch.setattr(candidates, "POINTS", 10)
    monkeypatch.setattr(candidates, "POINTS_BESIDE_LEAVES", 5)
    settings = {**BATCHES, "batch_size": 500, "leaves": "auto", "n_inducing": "auto"}
    model = classifier(**settings, client=client).fit(*chunked(*stripes(2_000), 1_000))
    with_leaves = [entry for entry in model.race_ if entry.n_leaves is not None]
    assert with_leaves
    assert all(np.isinf(entry.log_loss) for entry in with_leaves)
    assert model.config_.n_leaves is None
    words = "workers die" if fault == "deaths" else "leaves=None"
    with pytest.raises(MemoryError, match=words):
        classifier(**WHOLE, client=client).fit(*chunked(X, LABELS, 300))


def test_rows_are_held_in_the_order_of_their_leaves(client):
    tree = TreeRouting.of(DecisionTreeClassifier(max_leaf_nodes=6, random_state=0).fit(X, LABELS).tree_)
    table = ShardedSource(lazy_table(*chunked(X, LABELS, 150), None), Cluster(client, None))
    source = table.by_leaf(tree)
    held = [shard for group in client.gather(source.rows) for shard in group.shards]
    rows = np.concatenate([shard.X for shard in held])
    assert_array_equal(rows, X[source.order])
    assert_array_equal(np.concatenate([shard.labels for shard in held]), LABELS[source.order])
    leaf = tree(rows)
    assert (np.diff(leaf) >= 0).all()
    assert_array_equal(leaf, leaves_in_order(source.leaf_counts, 0, len(X)))
    for shard in range(source.layout.n_shards):
        start, stop = source.layout.bounds(shard)
        assert set(source.leaves_of([shard])) == set(leaf[start:stop])
    some = np.array([3, 50, 599])
    assert_array_equal(source.take(some).X, X[some])
    assert_array_equal(
        source.order[source.held_numbers(some)], some[np.argsort(leaf_order(source, some))]
    )


def leaf_order(source, numbers):
    """Where the rows with these numbers are held."""
    return np.argsort(source.order)[numbers]


def test_every_row_is_in_one_minibatch_of_an_epoch():
    plan = layout.ShardLayout(1_000, 8)
    for size, together in ((60, None), (300, 50), (700, 130)):
        seen = np.zeros(1_000, int)
        for batch in layout.leaf_batches(plan, size, np.random.default_rng(0), together):
            for shard, sample in batch.items():
                start, stop = plan.bounds(shard)
                n = stop - start
                for part in (sample.part, *sample.others):
                    seen[start + n * part // sample.parts : start + n * (part + 1) // sample.parts] += 1
        assert (seen == 1).all()

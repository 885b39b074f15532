"""Workers come and go; at convergence the fit is what it would have been."""

import gc
import os
import signal
import threading
import time
import warnings

import dask
import numpy as np
import pytest
from numpy.testing import assert_allclose

from cavity import CheckpointError, ClusterError, SEPClassifier
from cavity.engines.dask import comm, layout, passes, recovery
from cavity.engines.dask.cluster import Cluster
from cavity.engines.dask.comm import BroadcastResult, PackedMessage, broadcast, unpack
from cavity.engines.dask.passes import PassRunner
from cavity.engines.dask.recovery import RecoveryLog
from cavity.estimators.dask import DaskSEPClassifier
from cavity.inference import checkpoint_file
from cavity.inference.sweep import Sweep
from dask_clusters import QUIET, At, chunked, kill_a_worker, started, wait_for_workers, worker_pids
from support import make, table, wait_until

X, LABELS = table(600)
DATA = chunked(X, LABELS, 110)
ROBUST = {"n_inducing": 6, "random_state": 0, "scaling": "robust"}
FIXED = {**ROBUST, "optimizer": None, "tol": 1e-11, "max_epochs": 300}
TRAINED = {**ROBUST, "max_epochs": 20}

pytestmark = [*QUIET, pytest.mark.filterwarnings("ignore:.*stopped after .* iterations")]


@pytest.fixture(scope="module", autouse=True)
def eight_shards():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "LEAST_ROWS", 60)
        yield


@pytest.fixture(scope="module")
def cluster():
    with started(2) as client:
        yield client


@pytest.fixture
def client(cluster):
    """Of a cluster that all tests share: workers that were killed have come back."""
    wait_for_workers(cluster, 2)
    return cluster


@pytest.fixture(scope="module")
def undisturbed(cluster):
    wait_for_workers(cluster, 2)
    fixed = make(DaskSEPClassifier, **FIXED, client=cluster).fit(*DATA)
    return {
        "fixed": fixed,
        "loo": cluster.compute(fixed.loo_log_proba_).result(),  # it would be lost with a worker
        "trained": make(DaskSEPClassifier, **TRAINED, client=cluster).fit(*DATA),
    }


def in_pass(monkeypatch, numbers, do, *, gradient=None):
    """Do something a moment after passes of these numbers (from 1, of that kind) were submitted."""
    count = 0
    submit = PassRunner.submit

    def disturbed(self, packed, *others):
        nonlocal count
        row_pass = unpack(packed).row_pass
        if gradient is None or (isinstance(row_pass, Sweep) and row_pass.options.gradient == gradient):
            count += 1
            if count in numbers:
                threading.Timer(0.02, do).start()
        return submit(self, packed, *others)

    monkeypatch.setattr(PassRunner, "submit", disturbed)
    return lambda: count


def kill_one_of_two(client):
    wait_for_workers(client, 2)
    kill_a_worker(client)


def assert_converges_to_the_fixed_point(model):
    """With its parameters held, the model goes on to what a local fit at these parameters finds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        held = make(DaskSEPClassifier, **FIXED, warm_start=True, client=model.client)
        model.set_params(**held.get_params(deep=False)).fit(*DATA)
    start = {"kernel": model.kernel_, "inducing_points": model.inducing_points_}
    calm = make(SEPClassifier, **FIXED, **start, n_jobs=1).fit(X, LABELS)
    assert_allclose(model.predict_proba(X), calm.predict_proba(X), atol=1e-8)
    assert_allclose(model.log_marginal_likelihood_value_, calm.log_marginal_likelihood_value_, rtol=1e-9)


def test_a_worker_killed_in_the_first_sweep_and_twice_after(client, undisturbed, monkeypatch):
    in_pass(monkeypatch, {2}, lambda: kill_a_worker(client))
    with At(4, 9, do=lambda: kill_one_of_two(client)) as reporter:
        model = make(DaskSEPClassifier, **FIXED, client=client).fit(*DATA)
    assert reporter.done == 2
    calm = undisturbed["fixed"]
    assert_allclose(model.log_marginal_likelihood_value_, calm.log_marginal_likelihood_value_, rtol=1e-9)
    assert_allclose(model.predict_proba(X), calm.predict_proba(X), atol=1e-8)
    assert_allclose(client.compute(model.loo_log_proba_).result(), undisturbed["loo"], atol=1e-7)


def test_the_only_worker_killed_with_the_only_copy_of_q(undisturbed, monkeypatch):
    with started(1) as client:
        in_pass(monkeypatch, {5}, lambda: kill_a_worker(client))
        model = make(DaskSEPClassifier, **FIXED, client=client).fit(*DATA)
    assert_allclose(model.predict_proba(X), undisturbed["fixed"].predict_proba(X), atol=1e-8)


def assert_same_model(model, calm):
    """The same way up the hill, and not only the same fixed point at its top."""
    assert_allclose(model.kernel_.theta, calm.kernel_.theta, rtol=1e-9, atol=1e-9)
    assert_allclose(model.inducing_points_, calm.inducing_points_, rtol=1e-9, atol=1e-9)
    assert_allclose(model.log_marginal_likelihood_value_, calm.log_marginal_likelihood_value_, rtol=1e-9)
    assert_allclose(model.predict_proba(X), calm.predict_proba(X), atol=1e-9)
    assert len(model.history_) == len(calm.history_)


def test_workers_killed_while_gradients_are_summed(undisturbed, monkeypatch):
    monkeypatch.setattr(recovery, "PASSES_BETWEEN_COPIES", 3)
    pasts = []
    past_of = RecoveryLog.replay_plan
    monkeypatch.setattr(
        RecoveryLog, "replay_plan", lambda self, group: pasts.append(past_of(self, group)) or pasts[-1]
    )
    with started(3) as client:
        count = in_pass(monkeypatch, {6, 15}, lambda: kill_a_worker(client), gradient=True)
        model = make(DaskSEPClassifier, **TRAINED, client=client).fit(*DATA)
    assert count() > 15
    assert any(past.state is not None for past in pasts)  # from copies
    assert all(past.exact for past in pasts)
    assert_same_model(model, undisturbed["trained"])


def test_the_only_worker_killed_while_gradients_are_summed(monkeypatch):
    # With copies as frequent as this there is no way back to where it was.
    monkeypatch.setattr(recovery, "PASSES_BETWEEN_COPIES", 1)
    settings = {**TRAINED, "max_epochs": 60}  # near the top, where a lost step hardly matters
    calm = make(SEPClassifier, **settings).fit(X, LABELS)
    with started(1) as client:
        in_pass(monkeypatch, {12}, lambda: kill_a_worker(client), gradient=True)
        model = make(DaskSEPClassifier, **settings, client=client).fit(*DATA)
        difference = model.log_marginal_likelihood_value_ - calm.log_marginal_likelihood_value_
        assert abs(difference) < 1e-3 * abs(calm.log_marginal_likelihood_value_)  # another way up
        monkeypatch.undo()
        wait_for_workers(client, 1)
        assert_converges_to_the_fixed_point(model)


def test_a_gradient_at_convergence_is_the_same_after_a_loss(client, undisturbed, monkeypatch):
    calm = undisturbed["fixed"]
    theta = calm.kernel_.theta + 0.2
    local = make(SEPClassifier, **FIXED, n_jobs=1).fit(X, LABELS)
    value, slope = local.log_marginal_likelihood(theta, eval_gradient=True)
    count = in_pass(monkeypatch, {1}, lambda: kill_a_worker(client), gradient=True)
    again, disturbed = calm.log_marginal_likelihood(theta, eval_gradient=True)
    assert count() >= 1
    assert_allclose(again, value, rtol=1e-8)
    assert_allclose(disturbed, slope, rtol=1e-8, atol=1e-8)


def test_a_worker_killed_in_the_exact_sweeps(client, undisturbed, monkeypatch):
    in_pass(monkeypatch, {2}, lambda: kill_a_worker(client), gradient=False)
    model = make(DaskSEPClassifier, **TRAINED, client=client).fit(*DATA)
    assert_same_model(model, undisturbed["trained"])


def test_a_driver_that_sees_the_scheduler_only(client, undisturbed, monkeypatch):
    monkeypatch.setattr(passes, "broadcast", lambda *_: BroadcastResult(None, True))
    model = make(DaskSEPClassifier, **FIXED, client=client).fit(*DATA)
    assert np.array_equal(model.predict_proba(X), undisturbed["fixed"].predict_proba(X))


@pytest.fixture
def no_tidying(client):
    """Dask's memory manager drops copies now and then that nobody has asked for yet."""
    client.amm.stop()
    yield
    client.amm.start()


@pytest.mark.usefixtures("no_tidying")
def test_a_message_is_not_kept_up_by_a_worker_that_is_gone(client, monkeypatch):
    monkeypatch.setattr(comm, "PATIENCE", 1_000.0)  # no machine is so slow that it takes half of that
    alive, gone = sorted(client.nthreads()), "tcp://127.0.0.1:9"
    client.run(_number_held)  # a worker imports what it takes to read a message
    begin = time.monotonic()
    q, complete = broadcast(Cluster(client), PackedMessage("test-1", b"abc"), [*alive, gone])
    assert not complete
    assert client.gather(q).data == b"abc"
    assert sorted(client.who_has([q])[q.key]) == alive
    nobody = Cluster(client)
    assert broadcast(nobody, PackedMessage("test-2", b"abc"), [gone]) == (None, False)
    assert nobody.direct is None  # the scheduler said that this worker is gone
    assert time.monotonic() - begin < 0.5 * comm.PATIENCE


def test_a_worker_added_and_one_paused(undisturbed):
    def pause():
        pid = next(iter(worker_pids(client).values()))
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(1.5, os.kill, (pid, signal.SIGCONT)).start()

    with started(2) as client, At(3, do=lambda: client.cluster.scale(3)), At(5, do=pause):
        model = make(DaskSEPClassifier, **FIXED, client=client).fit(*DATA)
    assert_allclose(model.predict_proba(X), undisturbed["fixed"].predict_proba(X), atol=1e-9)


def test_a_connection_to_the_scheduler_that_breaks(client, undisturbed):
    def disconnect():
        client.sync(client.scheduler_comm.comm.close)

    with At(6, do=disconnect) as reporter:
        model = make(DaskSEPClassifier, **FIXED, client=client).fit(*DATA)
    assert reporter.done == 1
    assert_allclose(model.predict_proba(X), undisturbed["fixed"].predict_proba(X), atol=1e-8)


def test_two_fits_at_once_on_one_cluster(client, undisturbed):
    models = {}

    def fit(name, settings):
        models[name] = make(DaskSEPClassifier, **settings, client=client).fit(*DATA)

    threads = [
        threading.Thread(target=fit, args=item) for item in (("fixed", FIXED), ("trained", TRAINED))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, model in models.items():
        assert np.array_equal(model.predict_proba(X), undisturbed[name].predict_proba(X))


@pytest.mark.parametrize(("batch_size", "max_epochs"), [(None, 6), (60, 2)])
def test_a_fit_that_stopped_goes_on_from_its_checkpoint(
    client, tmp_path, monkeypatch, batch_size, max_epochs
):
    monkeypatch.setattr(checkpoint_file, "_ROWS", 10)  # the label to be flipped is not among them
    path = tmp_path / "fit.ckpt"
    settings = {**TRAINED, "batch_size": batch_size, "max_epochs": max_epochs, "client": client}
    whole = make(DaskSEPClassifier, **settings).fit(*DATA)
    stopping = make(DaskSEPClassifier, **settings, checkpoint=path, checkpoint_interval=0.0)
    with pytest.raises(ZeroDivisionError), At(4, do=lambda: 1 // 0):
        stopping.fit(*DATA)
    assert path.exists()
    assert len(list((tmp_path / "fit.ckpt.sites").iterdir())) >= 8
    flipped = np.where(np.arange(len(X)) == 345, 1 - LABELS, LABELS)
    with pytest.raises(CheckpointError, match="its labels are not those passed now"):
        make(DaskSEPClassifier, **settings, checkpoint=path).fit(*chunked(X, flipped, 110))
    resumed = make(DaskSEPClassifier, **settings, checkpoint=path).fit(*DATA)
    assert np.array_equal(resumed.kernel_.theta, whole.kernel_.theta)
    assert np.array_equal(resumed.predict_proba(X), whole.predict_proba(X))
    assert not any(tmp_path.iterdir())


def test_workers_keep_no_sites_that_nobody_needs(client, undisturbed):
    time.sleep(0.5)
    held = client.run(_number_held)
    model = make(DaskSEPClassifier, **FIXED, client=client).fit(*DATA)
    assert sum(client.run(_number_held).values()) <= sum(held.values()) + 4 * 8
    del model
    gc.collect()
    # The sites of a fit that is gone are released.
    wait_until(lambda: sum(client.run(_number_held).values()) <= sum(held.values()))


def _number_held():
    from cavity.engines.dask.worker import _held

    return sum(len(keys) for keys in _held.values())


def test_all_workers_gone_is_an_error_that_names_the_checkpoint(tmp_path):
    path = tmp_path / "fit.ckpt"
    with started(1) as client:
        settings = {**TRAINED, "client": client, "checkpoint": path, "checkpoint_interval": 0.0}
        with (
            dask.config.set({"cavity.worker-timeout": 1.0}),
            pytest.raises(ClusterError, match=r"no worker for 1 s .*fit\.ckpt"),
            At(5, do=lambda: client.cluster.scale(0)),
        ):
            make(DaskSEPClassifier, **settings).fit(*DATA)
        client.cluster.scale(1)
        wait_for_workers(client, 1)
        make(DaskSEPClassifier, **settings).fit(*DATA)
    assert not path.exists()

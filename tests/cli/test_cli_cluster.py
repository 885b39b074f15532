"""`cavity fit` on Dask: workers of its own, and a scheduler that others have started."""

import json

import numpy as np
import pytest

import cavity
from cli_runs import run
from flights_table import flights

pytest.importorskip("distributed")
from dask_clusters import QUIET, forked_workers, started

pytestmark = QUIET
FIT = ["--target", "delayed", "--inducing", "6", "--budget", "15 iterations", "--weight", "copies"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of three row groups, in which rows count none to two times, and a local model of it."""
    place = tmp_path_factory.mktemp("cluster")
    frame = flights(200).assign(copies=np.arange(200) % 3)
    frame.to_parquet(place / "t.parquet", row_group_size=70)
    fit(place, "local.cavity")
    return place


def fit(folder, output, *options):
    done = run("fit", folder / "t.parquet", *FIT, "-o", folder / output, "--json", *options)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def check_model(folder, output):
    """The model is that of one machine, and needs no cluster."""
    ours, local = (cavity.load(folder / name) for name in (output, "local.cavity"))
    assert type(ours.estimator_) is cavity.SEPClassifier
    frame = flights(100, seed=1)
    assert np.allclose(ours.predict_proba(frame), local.predict_proba(frame), rtol=1e-3)


def test_workers_of_its_own(folder):
    with forked_workers():
        summary, said = fit(folder, "workers.cavity", "--workers", "2")
    assert "2 workers; dashboard: http" in said
    assert summary["training"]["rows"] == 133
    check_model(folder, "workers.cavity")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--scheduler", "tcp://127.0.0.1:9"], "no Dask scheduler answers there"),
        (["--leaves", "99999999"], "leaves=99999999"),
    ],
)
def test_options_are_checked_before_the_table_is_read(folder, wrong, words, monkeypatch):
    def learn_columns(*_):
        raise AssertionError("the table is read")

    monkeypatch.setattr("cavity.cli.fit._SCHEDULER_TIMEOUT", "1s")
    monkeypatch.setattr(cavity.TableClassifier, "learn_columns", learn_columns)
    done = run("fit", folder / "t.parquet", "--target", "delayed", *wrong, "-o", folder / "w.cavity")
    assert done.exit_code == 2
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("cavity: ")]
    assert words in said
    assert "Traceback" not in done.stderr


def test_a_scheduler_that_is_there(folder):
    with started(1) as client:
        address = client.scheduler.address
        assert address.startswith("tcp://")
        summary, said = fit(folder, "scheduler.cavity", "--scheduler", address)
        assert f"cluster at {address}" in said
        assert summary["training"]["rows"] == 133
        assert len(client.nthreads()) == 1  # it outlives the fit
    check_model(folder, "scheduler.cavity")

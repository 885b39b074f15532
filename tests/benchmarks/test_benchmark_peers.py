"""The subprocess protocol, with workers that need nothing but NumPy."""

from pathlib import Path

import pytest
import tiny_data
from benchmarks.context import Context
from benchmarks.data import fixed, many_classes, splits
from benchmarks.methods import Contender, methods
from benchmarks.peers import environments
from benchmarks.peers.peer import Peer
from benchmarks.records import RecordFile, read

PEERS = Path(environments.__file__).parent

COIN = f"""
import sys; sys.path.insert(0, {str(PEERS)!r})
import numpy as np
from protocol import Job
job = Job()
assert job.array("Z").shape == (5, 3) and job.lengthscale > 0 and job.mode == "coin"
log_p = lambda: np.full((len(job.array("y_test")), 2), np.log(0.5))
print("a library's own chatter")
job.begin()
step = 0
while not step or not job.over(step):
    step += 1
    job.evaluate_if_due(step, log_p)
job.finish(log_p, step)
"""
BROKEN = "raise SystemError('no such kernel in /usr/lib/secret/module.so')"
SILENT = "pass"


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch):
    tiny_data.write(tmp_path / "data")
    monkeypatch.setenv("CAVITY_DATA", str(tmp_path / "data"))


def run(tmp_path, source, times=1):
    worker = tmp_path / "worker.py"
    worker.write_text(source)
    path = tmp_path / "test.jsonl"
    for _ in range(times):
        context = Context(
            workload="test",
            records=RecordFile(path, dict),
            methods={"coin": Peer("coin", "coin", environment="project", worker=worker)},
        )
        settings = {"m": 5, "seed": 0, "steps": 50}
        context.measure(Contender("Coin", "coin"), next(splits("heart", 1)), settings, 10.0)
    return read(path), path


def test_a_worker_is_measured_once(tmp_path):
    records, path = run(tmp_path, COIN, times=2)
    (repetition,) = records.repetitions
    assert repetition.failure is None
    assert repetition.metrics["nll"] == pytest.approx(0.693147, abs=1e-6)
    assert repetition.seconds >= 0
    assert repetition.peak_memory > 1e6
    assert repetition.extra["steps"] == 50
    assert repetition.extra["steps_per_second"] > 0
    assert repetition.curve[-1]["seconds"] == repetition.seconds
    assert len(path.read_text().splitlines()) == 2


def test_a_failing_worker_is_recorded_as_it_failed(tmp_path):
    records, _ = run(tmp_path, BROKEN)
    (repetition,) = records.repetitions
    assert "exit status 1" in repetition.failure
    assert "no such kernel in module.so" in repetition.failure
    assert str(tmp_path) not in repetition.failure


def test_a_worker_without_a_result_is_a_failure(tmp_path):
    records, _ = run(tmp_path, SILENT)
    assert "ended without a result" in records.repetitions[0].failure


def test_every_peer_has_pinned_requirements_and_a_worker():
    for method in methods().values():
        if isinstance(method, Peer):
            assert (PEERS / f"worker_{method.name}.py").exists()
            assert method.environment == "project" or method.name in environments.names()
    for path in environments.REQUIREMENTS.glob("*.txt"):
        lines = [s for s in path.read_text().splitlines() if s and not s.startswith("#")]
        assert all("==" in s for s in lines), path.name


def test_an_unknown_peer_is_named():
    with pytest.raises(environments.UnknownPeerError, match="'gpfow'"):
        environments.install("gpfow")


def test_our_worker_takes_parameters_from_json():
    """Further settings are in `config`."""
    split = next(splits("heart", 1))
    config = {"hyperprior_scale": None}
    parameters = {"max_epochs": 2, "validation_fraction": None, "config": config}
    settings = {"m": 5, "seed": 0, "threads": 1, "parameters": parameters}
    done = methods()["cavity-sep"](split.train, split.test, settings, None)
    assert done.extra["n_iter"] == 2
    assert done.extra["m"] == 5
    assert done.extra["inverse_temperature"] == 1.0


def test_our_classifiers_may_choose_the_number_of_points():
    split = next(splits("heart", 1))
    settings = {"m": "auto", "seed": 0, "threads": 1, "parameters": {"max_epochs": 2}}
    done = methods()["cavity-sep"](split.train, split.test, settings, None)
    assert done.extra["m"] == min(100, len(split.train.y))


@pytest.mark.parametrize(("method", "rule"), [("cavity-sep", "ep"), ("cavity-svi", "vi")])
def test_one_vs_rest_is_another_model(method, rule):
    split = many_classes(fixed("mnist"))
    settings = {"m": 5, "seed": 0, "threads": 1, "parameters": {"scaling": None, "max_epochs": 2}}
    built_in, separate = (
        methods()[method](split.train, split.test, {**settings, **own}, None)
        for own in ({}, {"one_vs_rest": rule})
    )
    assert built_in.nll != separate.nll
    assert separate.extra["n_iter"] == built_in.extra["n_iter"] == 2

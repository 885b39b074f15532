"""Ctrl-C and kill in processes of their own: one sentence, a status, and what can be gone on from."""

import os
import signal
import subprocess
import sys

import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import cavity
from flights_table import flights

CAVITY = [sys.executable, "-m", "cavity"]
# A checkpoint after every step, for a test cannot wait for half a minute.
HASTY = "from cavity.cli import fitting, main; fitting._CHECKPOINT_EVERY = 0.0; main()"
BRIEFLY = ["--budget", "3 epochs"]
FIT = ["fit", "big.csv", "--target", "delayed", "-o", "m.cavity", "--inducing", "5"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    place = tmp_path_factory.mktemp("interrupts")
    flights(12_000).to_csv(place / "big.csv", index=False)
    return place


@pytest.fixture(scope="module")
def model(data):
    """That of a fit which nobody has stopped."""
    subprocess.run([*CAVITY, *FIT, *BRIEFLY], check=True, capture_output=True, cwd=data)
    return data / "m.cavity"


@pytest.fixture
def folder(data, tmp_path):
    (tmp_path / "big.csv").symlink_to(data / "big.csv")
    return tmp_path


def names(folder):
    return {path.name for path in folder.iterdir()}


def ended_by(number, command, folder, after):
    """Status and last words of a command that is sent a signal, as a terminal does: with its children.

    The signal comes when a line of standard error begins with `after`.
    """
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=folder, start_new_session=True
    ) as process:
        for line in process.stderr:
            if line.startswith(after):
                break
        os.killpg(process.pid, number)
        said = process.stderr.read()
    assert "Traceback" not in said
    return process.returncode, said.splitlines()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_a_fit_and_leave_nothing(folder, number, code):
    status, said = ended_by(number, [*CAVITY, *FIT, "--budget", "60s"], folder, "iteration")
    assert status == code
    if number == signal.SIGINT:
        assert said == ["cavity: interrupted; nothing was written"]
    assert names(folder) == {"big.csv"}


def test_ctrl_c_ends_a_fit_on_workers_who_hear_nothing_of_it(folder):
    pytest.importorskip("distributed")
    command = [*CAVITY, *FIT, "--budget", "60s", "--workers", "1"]
    status, said = ended_by(signal.SIGINT, command, folder, "iteration")
    assert status == 130
    assert said == ["cavity: interrupted; nothing was written"]
    assert names(folder) == {"big.csv"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_fit_that_was_stopped_goes_on(folder, model, number):
    """Whether it was asked to stop or not: to the model of a fit that nobody has stopped."""
    fit = [*FIT, *BRIEFLY]
    status, said = ended_by(number, [sys.executable, "-c", HASTY, *fit], folder, "iteration 1,")
    checkpoint = "m.cavity.checkpoint"
    assert names(folder) - {"big.csv"} >= {checkpoint}
    assert "m.cavity" not in names(folder)
    if number == signal.SIGINT:
        assert status == 130
        assert said == [
            f"cavity: interrupted; no model was written, and --resume goes on from {checkpoint}"
        ]
        assert names(folder) == {"big.csv", checkpoint}
    done = subprocess.run([*CAVITY, *fit, "--resume"], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert checkpoint not in names(folder)
    frame = pd.read_csv(folder / "big.csv", nrows=200)
    ours, whole = (cavity.load(path) for path in (folder / "m.cavity", model))
    assert_array_equal(ours.predict_proba(frame), whole.predict_proba(frame))


@pytest.mark.parametrize("command", ["predict", "evaluate", "report"])
def test_ctrl_c_ends_the_other_commands(folder, model, command):
    outputs = {"predict": ["-o", "p.csv"], "report": ["-o", "r.html"], "evaluate": []}
    args = [command, str(model), "big.csv", *outputs[command]]
    first = {"predict": "predicting", "report": "reading", "evaluate": "evaluating"}
    status, said = ended_by(signal.SIGINT, [*CAVITY, *args], folder, first[command])
    assert status == 130
    assert said == ["cavity: interrupted; nothing was written"]
    assert names(folder) == {"big.csv"}

"""The demo on a few flights, and what it shows on the way."""

import io
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from cavity import SEPClassifier
from cavity.cli import demo
from cavity.cli.app import app
from cavity.datasets.nycflights13 import FEATURES, Flights
from support import interrupt_at


@pytest.fixture(scope="module")
def flights():
    rng = np.random.default_rng(0)
    n = 11_000  # enough for minibatches
    low = [0, 80, 20, 0, 0, 1, 1, 1]
    high = [30, 3_000, 400, 1_440, 1_440, 7, 31, 12]
    X = rng.integers(low, high, size=(n, 8), endpoint=True).astype(np.float32)
    late = rng.random(n) < np.where(X[:, 3] > 900, 0.9, 0.1)
    return Flights(X, late, FEATURES)


def short_classifier(max_seconds=None):
    """A classifier whose training is limited by steps, whatever the time."""
    return SEPClassifier(n_inducing=8, batch_size=250, max_epochs=20, random_state=0)


def test_the_command_limits_the_time_of_training():
    assert demo.classifier(30.0).max_seconds == 30.0


def test_it_trains_compares_and_explains(flights, capsys):
    out = io.StringIO()
    demo.run(flights, short_classifier(), out, n_test=500)
    text = out.getvalue()
    assert "10,500 flights for training and 500 for testing" in text
    rows = {line[:22].strip(): line[22:].split() for line in text.splitlines() if "%" in line}
    assert float(rows["cavity"][0]) < float(rows["logistic regression"][0])
    assert text.count(" mi ") == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "leave-one-out NLL" in shown.err


def test_midnight_is_a_time_of_day():
    assert "00:00" in demo.describe(np.array([1, 100, 30, 1_440, 60, 7, 31, 12]))


def test_missing_data_end_the_demo_in_a_sentence(monkeypatch, tmp_path):
    def missing():
        raise ImportError("install 'cavity[cli]'")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo.nycflights13, "load", missing)
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "cavity: install 'cavity[cli]'"
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_the_report_and_may_replace_its_own(flights, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo.nycflights13, "load", lambda: flights)
    monkeypatch.setattr(demo, "classifier", short_classifier)
    (tmp_path / demo.REPORT).write_text("an earlier report")
    result = CliRunner().invoke(app, ["demo", "--json"])
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["cavity"]["nll"] < answer["logistic regression"]["nll"]
    page = (tmp_path / demo.REPORT).read_text()
    assert "Which flights arrive late?" in page
    assert "probability of late" in page
    result = CliRunner().invoke(app, ["demo", "-o", demo.REPORT])
    assert result.exit_code == 2


def test_ctrl_c_while_it_trains_ends_the_demo(flights, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo.nycflights13, "load", lambda: flights)
    monkeypatch.setattr(demo, "classifier", short_classifier)
    interrupt_at(monkeypatch, 20, by_signal=True)
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == "cavity: interrupted; nothing was written"
    assert "test NLL" not in result.stdout
    assert list(tmp_path.iterdir()) == []

"""The demo on a few flights, and what it shows on the way."""

import io
import sys

import numpy as np
import pytest

from cavity import demo
from cavity.datasets.nycflights13 import FEATURES, Flights
from cavity.history import Iteration

FIRST = Iteration(1, -900.0, -0.7, 5.0, seconds=0.5, epochs=0.1)
LATER = Iteration(9, -800.0, -0.6, 4.0, seconds=6.0, epochs=2.0)


@pytest.fixture(scope="module")
def flights():
    rng = np.random.default_rng(0)
    n = 11_000  # enough for minibatches
    low = [0, 80, 20, 0, 0, 1, 1, 1]
    high = [30, 3_000, 400, 1_440, 1_440, 7, 31, 12]
    X = rng.integers(low, high, size=(n, 8), endpoint=True).astype(np.float32)
    late = rng.random(n) < np.where(X[:, 3] > 900, 0.9, 0.1)
    return Flights(X, late, FEATURES)


def test_it_trains_compares_and_explains(flights, capsys):
    out = io.StringIO()
    demo.run(flights, out, n_test=500, n_inducing=8, max_seconds=1.0)
    text = out.getvalue()
    assert "10,500 flights to learn from, 500 to be tested on" in text
    rows = {line[:22].strip(): line[22:].split() for line in text.splitlines() if "%" in line}
    assert float(rows["cavity"][0]) < float(rows["logistic regression"][0])
    assert text.count(" mi ") == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "leave-one-out NLL" in shown.err


def test_scores_of_a_forecaster_who_is_right_as_often_as_it_says():
    y = np.arange(1_000) < 700
    log_proba = np.log(np.tile([0.3, 0.7], (1_000, 1)))
    nll, error, calibration = demo.scores(log_proba, y)
    assert nll == pytest.approx(-0.7 * np.log(0.7) - 0.3 * np.log(0.3))
    assert error == pytest.approx(0.3)
    assert calibration == pytest.approx(0.0, abs=1e-12)


def test_scores_of_a_forecaster_who_is_too_sure():
    y = np.arange(100) < 50
    log_proba = np.log(np.tile([0.1, 0.9], (100, 1)))
    assert demo.scores(log_proba, y).calibration_error == pytest.approx(0.4)


def test_midnight_is_a_time_of_day():
    assert "00:00" in demo.describe(np.array([1, 100, 30, 1_440, 60, 7, 31, 12]))


def test_the_bar_shows_everything_in_eighty_columns():
    console = pytest.importorskip("rich.console").Console(
        file=io.StringIO(), force_terminal=True, width=80
    )
    with demo.rich_bar(console) as bar:
        reporter = demo.Bar(bar, n_rows=1_000)
        reporter.update(FIRST, 0.01)
        reporter.update(LATER, 0.5)
        bar.refresh()
    text = " ".join(console.file.getvalue().split())
    for part in ("50%", "iteration 9", "objective -800", "NLL 0.6000", "333 rows/s", "6 s left"):
        assert part in text


def test_plain_lines_come_now_and_then(capsys):
    reporter = demo.Lines(n_rows=1_000, every=5.0)
    for entry in (FIRST, FIRST, LATER):
        reporter.update(entry, None)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == ["iteration 1", "iteration 9"]


def test_the_last_sweeps_have_no_time_left():
    assert "last exact sweeps" in demo.status(LATER, 0.999, n_rows=1_000)


def test_without_rich_there_are_lines(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with demo.progress_shown(10) as reporter:
        assert isinstance(reporter, demo.Lines)


def test_missing_data_end_the_demo_in_a_sentence(monkeypatch, capsys):
    def missing():
        raise ImportError("install 'cavity[cli]'")

    monkeypatch.setattr(demo.nycflights13, "load", missing)
    with pytest.raises(SystemExit) as caught:
        demo.main()
    assert "cavity[cli]" in str(caught.value)

"""The progress bar, and the lines where nobody looks."""

import io
import sys

import pytest

from cavity.cli import progress as bar
from cavity.cli import settings
from cavity.inference.history import Iteration

FIRST = Iteration(1, -900.0, -0.7, 5.0, seconds=0.5, epochs=0.1)
LATER = Iteration(9, -800.0, -0.6, 4.0, seconds=6.0, epochs=2.0)


@pytest.fixture
def console():
    return pytest.importorskip("rich.console").Console(file=io.StringIO(), force_terminal=True, width=80)


def shown(console):
    return " ".join(console.file.getvalue().split())


def test_the_bar_shows_everything_in_eighty_columns(console):
    with bar.rich_bar(console) as live:
        reporter = bar.Bar(live, n_rows=1_000)
        reporter.stage("reading")
        reporter.update(FIRST, 0.01)
        reporter.update(LATER, 0.5)
        live.refresh()
    for part in ("50%", "iteration 9", "objective -800", "NLL 0.6000", "333 rows/s", "6 s left"):
        assert part in shown(console)


def test_the_bar_shows_sweeps_and_rows(console):
    with bar.rich_bar(console) as live:
        reporter = bar.Bar(live)
        reporter.update(FIRST, None)
        live.refresh()
        reporter.sweep(2, 0.5)
        live.refresh()
        reporter.stage("predicting")
        reporter.rows(10, 40)
        live.refresh()
    for part in ("iteration 1", "exact sweep 2", "10 of 40 rows", "25%"):
        assert part in shown(console)


def test_plain_lines_come_now_and_then(capsys):
    reporter = bar.Lines(n_rows=1_000, every=5.0)
    for entry in (FIRST, FIRST, LATER):
        reporter.update(entry, None)
    for number in (1, 2, 3):
        reporter.sweep(number, 0.1)
    reporter.rows(10, None)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == ["iteration 1", "iteration 9", "exact sweep 1"]


def test_rows_are_told_of_in_time(capsys):
    reporter = bar.Lines(every=0.0)
    reporter.stage("predicting")
    reporter.rows(10, None)
    assert capsys.readouterr().err.startswith("predicting …\n10 rows, ")


def test_the_last_sweeps_have_no_time_left():
    assert "last exact sweeps" in bar.status(LATER, 0.999, n_rows=1_000)


def test_without_rich_there_are_lines(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with bar.progress_shown() as reporter:
        assert isinstance(reporter, bar.Lines)


def test_quiet_is_silent(monkeypatch, capsys):
    monkeypatch.setattr(settings, "quiet", True)
    with bar.progress_shown() as reporter:
        reporter.stage("x")
        reporter.update(FIRST, 0.5)
        reporter.sweep(1, 0.1)
        reporter.rows(1, 2)
    assert capsys.readouterr().err == ""

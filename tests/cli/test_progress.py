"""The progress bar on a terminal, and the plain lines elsewhere."""

import io

import pytest
from rich.console import Console

from cavity.cli import progress
from cavity.inference.history import Iteration

FIRST = Iteration(1, -900.0, -0.7, 5.0, seconds=0.5, epochs=0.1)
LATER = Iteration(9, -800.0, -0.6, 4.0, seconds=6.0, epochs=2.0)


class Clock:
    """A clock that the test sets."""

    now = 0.0

    def __call__(self):
        return self.now


def console(width=80):
    return Console(file=io.StringIO(), force_terminal=True, width=width)


def shown(console):
    return " ".join(console.file.getvalue().split())


def test_the_bar_takes_one_line_of_eighty_columns():
    terminal = console()
    with progress.one_line_bar(terminal) as live:
        reporter = progress.Bar(live)
        reporter.n_rows = 1_000
        reporter.stage("reading")
        reporter.update(FIRST, 0.01)
        reporter.update(LATER, 0.5)
        (line,) = terminal.render_lines(live.get_renderable())
        text = "".join(segment.text for segment in line)
    for part in ("50%", "epoch 2.0", "NLL 0.6000", "6 s left"):
        assert part in text
    assert len(text) <= 80
    assert text.rstrip().endswith("…")


def test_a_wide_bar_shows_everything():
    terminal = console(width=120)
    with progress.one_line_bar(terminal) as live:
        reporter = progress.Bar(live)
        reporter.n_rows = 1_000
        reporter.update(LATER, 0.5)
        live.refresh()
    for part in ("50%", "epoch 2.0", "NLL 0.6000", "6 s left", "333 rows/s", "objective -800"):
        assert part in shown(terminal)


def test_the_bar_shows_sweeps_and_rows():
    terminal = console()
    with progress.one_line_bar(terminal) as live:
        reporter = progress.Bar(live)
        reporter.update(FIRST, None)
        live.refresh()
        reporter.sweep(2, 0.5)
        live.refresh()
        reporter.stage("predicting")
        reporter.rows(10, 40)
        live.refresh()
    for part in ("epoch 0.1", "exact sweep 2", "10 of 40 rows", "25%"):
        assert part in shown(terminal)


def test_lines_are_seconds_apart(capsys):
    clock = Clock()
    lines = progress.Lines(every=5.0, clock=clock)
    for clock.now, entry in ((0.5, FIRST), (4.0, FIRST), (6.0, LATER), (7.0, LATER)):
        lines.update(entry, None)
    for number in (1, 2, 3):
        lines.sweep(number, 0.1)
    printed = [line.split(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert printed == ["epoch 0.1", "epoch 2.0", "exact sweep 1"]


def test_lines_about_rows_come_later_than_the_stage(capsys):
    clock = Clock()
    lines = progress.Lines(every=5.0, clock=clock)
    lines.stage("predicting")
    for clock.now in (1.0, 5.0, 6.0):
        lines.rows(10 * int(clock.now), None)
    assert capsys.readouterr().err == "predicting …\n50 rows, 10 rows/s\n"


def test_the_final_sweeps_have_no_time_left():
    assert "final exact sweeps" in progress.status(LATER, 0.999, n_rows=1_000)


@pytest.mark.parametrize("quiet", [True, False])
def test_without_a_terminal_there_are_lines_or_nothing(capsys, quiet):
    with progress.progress_shown(quiet) as reporter:
        reporter.stage("reading")
        reporter.update(FIRST, 0.5)
        reporter.sweep(1, 0.1)
        reporter.rows(1, 2)
    printed = capsys.readouterr().err
    assert "\x1b" not in printed
    assert len(printed.splitlines()) == (0 if quiet else 3)

"""Progress in a notebook: one bar that moves, and nothing on standard error."""

import re
import sys
from types import ModuleType, SimpleNamespace

import pytest
from sklearn.datasets import make_moons

from cavity import SEPClassifier
from cavity.inference.history import Iteration, NotebookBar, notebook_bar, tell

X, Y = make_moons(120, noise=0.2, random_state=0)


class Cell:
    """The output of a cell: displays as a browser would show them, in the course of time."""

    def __init__(self):
        self.outputs = []

    def display(self, thing, display_id):
        assert display_id
        place = len(self.outputs)
        self.outputs.append([thing._repr_html_()])
        return SimpleNamespace(update=lambda new: self.outputs[place].append(new._repr_html_()))


@pytest.fixture
def notebook(monkeypatch):
    """IPython as code in a notebook sees it."""
    cell, shell = Cell(), SimpleNamespace(kernel=object(), execution_count=7)
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython, display.display = lambda: shell, cell.display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    cell.shell = shell
    return cell


def shares(html):
    return [float(found) for page in html for found in re.findall(r'value="([^"]+)"', page)]


def test_a_fit_shows_one_bar_that_fills(notebook, capsys):
    model = SEPClassifier(n_inducing=5, batch_size=20, max_epochs=3, random_state=0, verbose=1)
    model.fit(X, Y)
    (output,) = notebook.outputs
    assert shares(output) == sorted(shares(output))
    assert shares(output)[-1] == 1.0
    last = model.history_[-1]
    assert f"iteration {last.iteration}, leave-one-out NLL {-last.leave_one_out:.4f}" in output[-1]
    assert capsys.readouterr() == ("", "")


def test_quiet_fits_and_terminals_have_none(notebook, capsys):
    SEPClassifier(n_inducing=5, batch_size=20, max_epochs=2, random_state=0).fit(X, Y)
    assert notebook.outputs == []
    del notebook.shell.kernel
    assert notebook_bar() is None
    SEPClassifier(n_inducing=5, batch_size=20, max_epochs=2, random_state=0, verbose=2).fit(X, Y)
    assert notebook.outputs == []
    assert "leave-one-out NLL" in capsys.readouterr().err


def test_the_chunks_of_a_stream_share_the_bar_of_their_cell(notebook):
    stream = SEPClassifier(n_inducing=5, random_state=0, verbose=1)
    for _ in range(3):
        stream.partial_fit(X, Y)
    assert len(notebook.outputs) == 1
    notebook.shell.execution_count += 1
    stream.partial_fit(X, Y)
    assert len(notebook.outputs) == 2


def test_updates_are_not_too_many_and_words_are_text(notebook):
    now = [0.0]
    bar = NotebookBar(notebook.display, clock=lambda: now[0])
    for i in range(1, 101):
        now[0] = i / 100  # a hundred iterations in a second
        bar.update(Iteration(i, 0.0, -0.5, 1.0, seconds=float(i), epochs=1.0), i / 400)
    (output,) = notebook.outputs
    assert 5 < len(output) < 15
    assert "s left" in output[-1]
    bar.stage("<b>")
    assert "&lt;b&gt;" in output[-1]
    assert "value=" not in output[-1], "how long a stage takes is not known"
    assert repr(bar) == "<b>"


def test_lines_go_to_the_cell_and_not_to_its_errors(notebook, capsys):
    tell("two workers")
    assert capsys.readouterr() == ("two workers\n", "")

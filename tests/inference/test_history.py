"""Clock and history of a fit, the lines that a user sees, and reporters that watch it."""

import threading

import numpy as np
import pytest
from sklearn.datasets import make_moons

from cavity import SEPClassifier
from cavity.inference.history import Progress, StepInfo, current_reporter, reporting
from support import make, set_clock

INFO = StepInfo(-12.5, -0.4, 3.0, 0.1)


def test_history_is_numbered_and_timed():
    progress = Progress()
    for number in (1, 2, 3):
        progress.record(INFO, epochs=0.5 * number)
    assert [entry.iteration for entry in progress.history] == [1, 2, 3]
    assert [entry.epochs for entry in progress.history] == [0.5, 1.0, 1.5]
    seconds = [entry.seconds for entry in progress.history]
    assert seconds == sorted(seconds)
    assert seconds[0] >= 0
    assert progress.history[0].objective == -12.5
    assert progress.history[0].leave_one_out == -0.4
    assert progress.history[0].gradient_norm == 3.0


def test_an_iteration_is_a_plain_dictionary_too():
    entry = Progress().record(INFO, epochs=1.0)
    assert entry.as_dict()["objective"] == -12.5
    assert set(entry.as_dict()) >= {"iteration", "objective", "gradient_norm", "seconds"}


def test_silence_unless_asked(capsys):
    Progress(0).record(INFO, epochs=1.0)
    assert capsys.readouterr() == ("", "")


def test_lines_go_to_standard_error(capsys):
    progress = Progress(2)
    progress.record(INFO, epochs=1.0)
    progress.record(INFO, epochs=2.0)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 2
    assert "-12.5" in err


def test_a_continued_fit_continues_its_history(monkeypatch):
    set_clock(monkeypatch, 1.0)
    first = Progress()
    first.record(INFO, epochs=1.0)
    second = Progress()
    second.history.extend(first.history)
    second.resume_at(1000.0)
    entry = second.record(INFO, epochs=2.0)
    assert entry.iteration == 2
    assert entry.seconds == 1001.0


X, Y = make_moons(120, noise=0.2, random_state=0)


class Heard:
    def __init__(self):
        self.entries, self.shares = [], []

    def update(self, iteration, share):
        self.entries.append(iteration)
        self.shares.append(share)


def fitted(**options):
    callback = Heard()
    with reporting(callback):
        model = make(SEPClassifier, n_inducing=5, random_state=0, **options).fit(X, Y)
    return model, callback


@pytest.mark.parametrize("options", [{"tol": 1e-2}, {"batch_size": 20, "max_epochs": 5}])
def test_a_reporter_hears_of_every_iteration_and_of_the_budget(options):
    model, callback = fitted(**options)
    assert callback.entries == model.history_
    assert 0.0 < callback.shares[0] < 0.1  # what is used up when it is told
    assert (np.diff(callback.shares) > 0).all()
    assert callback.shares[-1] == 1.0


def test_without_a_budget_there_is_no_share():
    _, callback = fitted(optimizer=None)
    assert set(callback.shares) == {None}


def test_a_stream_is_reported_too():
    callback = Heard()
    with reporting(callback):
        model = SEPClassifier(n_inducing=5, random_state=0).partial_fit(X, Y)
    assert callback.entries == model.history_


def test_a_reporter_hears_once_how_many_rows_a_fit_has():
    class Counting(Heard):
        rows = ()

        def begin(self, n_rows):
            assert self.entries == []
            self.rows = (*self.rows, n_rows)

    callback = Counting()
    with reporting(callback):
        SEPClassifier(n_inducing=5, batch_size=50, max_epochs=2, random_state=0).fit(X, Y)
    assert callback.rows == (len(X),)


def test_the_innermost_reporter_hears_and_only_inside_its_block():
    outer, inner = Heard(), Heard()
    assert current_reporter() is None
    with reporting(outer):
        with reporting(inner):
            assert current_reporter() is inner
        assert current_reporter() is outer
    assert current_reporter() is None


def test_a_failure_inside_the_block_ends_the_reporting():
    with pytest.raises(ZeroDivisionError), reporting(Heard()):
        _ = 1 / 0
    assert current_reporter() is None


def test_fits_in_other_threads_are_not_reported():
    found = []
    with reporting(Heard()):
        thread = threading.Thread(target=lambda: found.append(current_reporter()))
        thread.start()
        thread.join()
    assert found == [None]

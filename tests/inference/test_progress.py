"""Clock, history and the lines a user sees."""

from cavity.inference.history import Progress, StepInfo

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


def test_a_continued_fit_continues_its_history():
    first = Progress()
    first.record(INFO, epochs=1.0)
    second = Progress()
    second.history.extend(first.history)
    second.resume_at(1000.0)
    entry = second.record(INFO, epochs=2.0)
    assert entry.iteration == 2
    assert 1000.0 <= entry.seconds < 1100.0

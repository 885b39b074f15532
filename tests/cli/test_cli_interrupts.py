"""Signals end the commands with one sentence and a status; interrupted fits can be continued.

Commands that get a signal run in processes of their own, which say where they are and wait there for
it; what comes before and after runs inside this process.
"""

import json
import os
import shutil
import signal
import subprocess
import sys

import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import cavity
from cli_runs import run
from flights_table import flights

# Functions that print a line and wait for a signal take the place of some that do the work.
WAITING = """
import sys, time
from cavity.cli import main

def wait(*args, **options):
    print("waiting", file=sys.stderr, flush=True)
    while True:
        time.sleep(0.01)
"""
WAITS_WHILE_PREDICTING = f"""{WAITING}
from cavity.cli import progress
progress.Lines.rows = wait
main()
"""
WAITS_BEFORE_THE_REPORT = f"""{WAITING}
import cavity.report
cavity.report.write_report = wait
main()
"""
WAITS_AFTER_THE_MODEL = f"""{WAITING}
from cavity.cli import fit
fit.description = wait
main()
"""
WAITS_TO_IMPORT = f"""{WAITING}
import importlib.abc
class Finder(importlib.abc.MetaPathFinder):
    find_spec = wait
sys.meta_path.insert(0, Finder())
main()
"""
WAITS_AT_EXIT = f"""{WAITING}
import atexit
atexit.register(wait)
main()
"""
WAITS_AT_THE_FOURTH_ITERATION = f"""{WAITING}
from cavity.cli import fit, progress
fit.CHECKPOINT_SECONDS = CHECKPOINT_SECONDS
update = progress.Lines.update
def watched(lines, iteration, share):
    update(lines, iteration, share)
    if iteration.iteration == 4:
        wait()
progress.Lines.update = watched
main()
"""
WAITS_AGAIN_AT_THE_END = WAITS_AT_THE_FOURTH_ITERATION.replace(
    "main()", "progress.Lines.sweep = wait; main()"
)
WAITS_BEFORE_TRAINING = f"""{WAITING}
from cavity.estimators import table
table.encoded_source = wait
main()
"""
WAITS_WHILE_READING = f"""{WAITING}
from cavity.estimators import table
table.TableClassifier.learn_columns = wait
main()
"""
WAITS_IN_THE_SIXTH_PASS = f"""{WAITING}
from cavity.engines.local import LocalEngine
run, passes = LocalEngine.run, []
def watched(*args, **options):
    passes.append(1)
    if len(passes) == 6:
        wait()
    return run(*args, **options)
LocalEngine.run = watched
main()
"""
WAITS_WHILE_SAVING = f"""{WAITING}
from cavity.estimators.table import TableClassifier
save = TableClassifier.save
def watched(*args):
    print("waiting", file=sys.stderr, flush=True)
    sys.stdin.readline()
    save(*args)
TableClassifier.save = watched
main()
"""
NO_CHECKPOINT = WAITS_AT_THE_FOURTH_ITERATION.replace("= CHECKPOINT_SECONDS", "= 3600.0")
NO_CHECKPOINT_IN_A_PASS = NO_CHECKPOINT.replace(
    "        wait()\n",
    """        from cavity.engines.local import LocalEngine
        run = LocalEngine.run
        def once(*args, **options):
            LocalEngine.run = run
            wait()
        LocalEngine.run = once
""",
)
"""The signal comes in the pass after the fourth iteration."""
CHECKPOINT_AT_EVERY_STEP = WAITS_AT_THE_FOURTH_ITERATION.replace("= CHECKPOINT_SECONDS", "= 0.0")
FIT = ["fit", "big.csv", "--target", "delayed", "-o", "m.cavity", "--inducing", "5"]
FIT += ["--budget", "3 epochs"]
FIT_FEW = ["few.csv" if word == "big.csv" else word for word in FIT]
"""A fit of so few rows that there is no race before it."""
CHECKPOINT, TRIALS = "m.cavity.checkpoint", "m.cavity.checkpoint.race"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    place = tmp_path_factory.mktemp("interrupts")
    flights(4_000).to_csv(place / "big.csv", index=False)
    flights(1_500).to_csv(place / "few.csv", index=False)
    return place


@pytest.fixture(scope="module")
def model(data):
    """The model of a fit that was not interrupted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(data)
        assert run(*FIT).exit_code == 0
    return data / "m.cavity"


@pytest.fixture
def folder(data, tmp_path, monkeypatch):
    """The current folder, with both tables in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("big.csv", "few.csv"):
        (tmp_path / name).symlink_to(data / name)
    return tmp_path


@pytest.fixture(scope="module")
def stopped(ended_by, data, tmp_path_factory):
    """Folder, status and last lines of a fit that got Ctrl-C in a pass after its race."""
    place = tmp_path_factory.mktemp("stopped")
    (place / "big.csv").symlink_to(data / "big.csv")
    status, said, _ = ended_by(signal.SIGINT, NO_CHECKPOINT_IN_A_PASS, FIT, place)
    return place, status, said


@pytest.fixture
def after_the_race(stopped, folder):
    """What that fit has left, as the current folder."""
    for name in written(stopped[0]):
        shutil.copy(stopped[0] / name, folder)
    return folder


def written(folder):
    """Names of the files that a command has left."""
    return {path.name for path in folder.iterdir() if not path.is_symlink()}


def assert_same_model(folder, model):
    frame = pd.read_csv(folder / "big.csv", nrows=200)
    ours, whole = (cavity.load(path) for path in (folder / "m.cavity", model))
    assert_array_equal(ours.predict_proba(frame), whole.predict_proba(frame))


def assert_continues_to_the_same_model(folder, model):
    """What the command has said; files that it needs no more are gone."""
    done = run(*FIT, "--resume")
    assert done.exit_code == 0, done.stderr
    assert not written(folder) & {CHECKPOINT, TRIALS}
    assert_same_model(folder, model)
    return done.stderr


@pytest.fixture(scope="module")
def ended_by(start_command):
    """Status and last lines of a command that gets a signal, with its children, whenever it waits."""

    def ended(number, code, arguments, folder, times=1):
        return end(start_command(code, arguments, folder), number, times)

    return ended


def end(process, number, times=1):
    for _ in range(times):
        before = []
        for line in process.stderr:
            before.append(line)
            if line == "waiting\n":
                break
        assert before[-1] == "waiting\n", before
        os.killpg(process.pid, number)
    out, said = process.communicate("\n")
    assert "Traceback" not in said
    lines = [line for line in said.splitlines() if line.startswith("cavity:")]
    return process.returncode, lines, out


@pytest.mark.parametrize(
    ("number", "word"),
    [
        (signal.SIGINT, "interrupted"),
        (signal.SIGTERM, "terminated"),
        (signal.SIGHUP, "terminated"),
    ],
)
def test_signals_end_a_fit_and_keep_what_it_has_learned(ended_by, folder, number, word):
    status, said, _ = ended_by(number, NO_CHECKPOINT, FIT_FEW, folder)
    assert status == 128 + number
    assert said[-1] == (
        f"cavity: {word}; the model of 0.3 epochs (4 iterations) is m.cavity; the same command with "
        "--resume goes on, also with another --budget"
    )
    assert said[-2].startswith("cavity: m.cavity: 1,500 rows, ")
    assert written(folder) == {"m.cavity", CHECKPOINT}
    model = cavity.load(folder / "m.cavity")
    assert model.estimator_.n_iter_ == 4
    assert model.predict_proba(str(folder / "few.csv")).shape == (1_500, 2)


def test_json_tells_what_an_interrupted_fit_has_come_to(ended_by, folder):
    _, _, out = ended_by(signal.SIGINT, NO_CHECKPOINT, [*FIT_FEW, "--json"], folder)
    document = json.loads(out)
    assert document["status"] == 130
    assert document["training"]["iterations"] == 4
    assert "--resume goes on" in document["error"]


def test_a_second_signal_ends_a_fit_at_once(ended_by, folder):
    code = WAITS_AGAIN_AT_THE_END.replace("= CHECKPOINT_SECONDS", "= 3600.0")
    status, said, _ = ended_by(signal.SIGINT, code, FIT_FEW, folder, times=2)
    assert status == 130
    assert said == [f"cavity: interrupted; no model was written; --resume continues from {CHECKPOINT}"]
    assert written(folder) == {CHECKPOINT}


@pytest.mark.parametrize("code", [WAITS_WHILE_READING, WAITS_BEFORE_TRAINING])
def test_before_anything_is_learned_nothing_is_written(ended_by, folder, code):
    status, said, _ = ended_by(signal.SIGINT, code, FIT_FEW, folder)
    assert status == 130
    assert said == ["cavity: interrupted; nothing was written"]
    assert written(folder) == set()


def test_with_force_the_checkpoint_of_another_fit_is_no_way_on(ended_by, folder):
    (folder / CHECKPOINT).write_bytes(b"of another fit")
    status, said, _ = ended_by(signal.SIGINT, WAITS_WHILE_READING, [*FIT_FEW, "--force"], folder)
    assert status == 130
    assert said == ["cavity: interrupted; nothing was written"]
    assert written(folder) == {CHECKPOINT}


def test_a_signal_while_the_model_is_written_waits_for_it(ended_by, folder):
    status, said, _ = ended_by(signal.SIGINT, WAITS_WHILE_SAVING, FIT_FEW, folder)
    assert status == 130
    assert said[-1] == "cavity: interrupted; the model was written to m.cavity"
    assert written(folder) == {"m.cavity"}
    assert cavity.load(folder / "m.cavity").estimator_.n_iter_ > 4


def test_the_first_trial_of_a_race_is_kept_as_far_as_it_has_come(ended_by, folder):
    status, said, _ = ended_by(signal.SIGINT, WAITS_IN_THE_SIXTH_PASS, [*FIT, "--jobs", "1"], folder)
    assert status == 130
    assert "the model of 5 iterations is m.cavity" in said[-1]
    assert "there is no checkpoint" in said[-1]
    assert written(folder) == {"m.cavity"}


def test_an_interrupted_fit_continues_to_the_same_model(stopped, after_the_race, model):
    _, status, said = stopped
    assert status == 130
    assert "the same command with --resume goes on" in said[-1]
    assert written(after_the_race) == {"m.cavity", CHECKPOINT, TRIALS}
    again = run(*FIT)
    assert again.exit_code == 2
    assert f"{CHECKPOINT}: exists already" in again.stderr
    assert_continues_to_the_same_model(after_the_race, model)


def test_the_trials_of_a_race_are_kept(after_the_race, model):
    (after_the_race / CHECKPOINT).unlink()
    said = assert_continues_to_the_same_model(after_the_race, model)
    assert "from scratch" not in said


def test_a_killed_fit_continues_to_the_same_model(ended_by, folder, model):
    ended_by(signal.SIGKILL, CHECKPOINT_AT_EVERY_STEP, FIT, folder)
    assert written(folder) >= {CHECKPOINT, TRIALS}
    assert "m.cavity" not in written(folder)
    assert_continues_to_the_same_model(folder, model)


def test_force_discards_the_trials_of_another_fit_unless_this_one_cannot_begin(after_the_race):
    """A column may be misspelt, or be no target or weight; a class weight may make no sense."""
    before = written(after_the_race)
    misspelt = [(option, "delay") for option in ("--target", "--weight", "--drop", "--categorical")]
    weights = [("--class-weight", words) for words in ("maybe=3", "yes=0", "yes=-1")]
    for options in (*misspelt, ("--target", "hour"), ("--weight", "carrier"), *weights):
        assert run(*FIT, *options, "--force").exit_code == 2, options
        assert written(after_the_race) == before, options
    done = run(*FIT, "--seed", "1", "--force")
    assert done.exit_code == 0, done.stderr
    assert written(after_the_race) == {"m.cavity"}


def test_a_signal_after_the_model_was_written_says_so(ended_by, folder):
    status, said, _ = ended_by(signal.SIGINT, WAITS_AFTER_THE_MODEL, FIT_FEW, folder)
    assert status == 130
    assert said == ["cavity: interrupted; the model was written to m.cavity"]
    assert written(folder) == {"m.cavity"}


def hear_signals():
    """Let a new process hear the signals that tests in the background are deaf to."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("code", [WAITS_TO_IMPORT, WAITS_AT_EXIT])
def test_ctrl_c_outside_of_a_command_ends_it_without_words(folder, code):
    """In a process that has not imported anything."""
    command = [sys.executable, "-c", code, "--version"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    apart = {"cwd": folder, "start_new_session": True, "preexec_fn": hear_signals}
    with subprocess.Popen(command, **pipes, text=True, **apart) as process:
        status, said, _ = end(process, signal.SIGINT)
    assert (status, said) == (-signal.SIGINT, [])


def test_ctrl_c_ends_a_fit_on_workers_which_ignore_it(ended_by, folder):
    pytest.importorskip("distributed")
    status, said, _ = ended_by(signal.SIGINT, NO_CHECKPOINT, [*FIT_FEW, "--workers", "1"], folder)
    assert status == 130
    assert "the model of 0.3 epochs (4 iterations) is m.cavity" in said[-1]
    assert written(folder) >= {"m.cavity", CHECKPOINT}


@pytest.mark.parametrize(
    ("command", "code", "output"),
    [
        ("predict", WAITS_WHILE_PREDICTING, ["-o", "p.csv"]),
        ("evaluate", WAITS_WHILE_PREDICTING, []),
        ("report", WAITS_BEFORE_THE_REPORT, ["-o", "r.html"]),
    ],
)
def test_ctrl_c_ends_the_other_commands(ended_by, folder, model, command, code, output):
    arguments = [command, str(model), "big.csv", *output]
    status, said, _ = ended_by(signal.SIGINT, code, arguments, folder)
    assert status == 130
    assert said == ["cavity: interrupted; nothing was written"]
    assert written(folder) == set()

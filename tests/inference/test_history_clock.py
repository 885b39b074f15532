"""The clock of a fit: its deadline, and Ctrl-C."""

import pytest
from training_runs import make_trainer, run

from cavity.inference.history import GRACE_SECONDS, Clock, Progress
from cavity.inference.schedule import Budget
from cavity.inference.trainer import Trainer
from support import set_clock, table


def test_time_ends_at_the_deadline(monkeypatch):
    set_clock(monkeypatch, 1.0)
    clock = Clock()
    clock.deadline = 3.0
    assert clock.has_time(2.0)  # one second has passed
    assert not clock.has_time(2.0)
    assert clock.seconds_left == 0.0
    assert not clock.has_time()


def test_after_ctrl_c_there_is_a_little_time(monkeypatch):
    set_clock(monkeypatch, 0.5)
    clock = Clock()
    with clock.until_interrupted() as block:
        raise KeyboardInterrupt
    assert block.interrupted
    assert clock.interrupted
    assert 0.0 < clock.seconds_left < GRACE_SECONDS
    with clock.until_interrupted() as later:
        pass
    assert not later.interrupted


def test_ctrl_c_does_not_move_an_earlier_deadline(monkeypatch):
    set_clock(monkeypatch, 0.5)
    clock = Clock()
    clock.deadline = 1.0
    clock.stop()
    assert clock.deadline == 1.0


def test_errors_are_not_caught():
    clock = Clock()
    with pytest.raises(ValueError, match="no"), clock.until_interrupted():
        raise ValueError("no")
    assert not clock.interrupted


def test_a_part_of_a_fit_is_stopped_with_the_fit():
    fit = Clock()
    part = Clock(within=fit)
    assert not part.interrupted
    fit.stop()
    assert part.interrupted
    other = Clock(within=Clock())
    other.stop()
    assert other.interrupted


def test_a_loop_ends_at_its_next_step_when_another_thread_stops_the_fit(monkeypatch):
    fit, steps, step = Clock(), [], Trainer.step

    def stopped_in_the_third(self, *args):
        steps.append(1)
        if len(steps) == 3:
            fit.stop()
        return step(self, *args)

    monkeypatch.setattr(Trainer, "step", stopped_in_the_third)
    trained, _ = run(make_trainer(*table(24)), Budget(20), progress=Progress(within=fit))
    assert trained.n_steps == len(steps) == 3
    assert not trained.converged

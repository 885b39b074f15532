"""L-BFGS-B: it climbs inside its bounds, survives points that cannot be evaluated, keeps the best."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from cavity import NumericalError
from cavity.inference.history import Progress, StepInfo
from cavity.inference.lbfgs import Evaluated, maximize

CENTRE = np.array([1.0, -2.0, 0.5])
SHARPNESS = np.array([1.0, 10.0, 100.0])
FREE = np.tile([-np.inf, np.inf], (3, 1))


def hill(x):
    """A concave quadratic with its top at CENTRE."""
    value = -0.5 * float(SHARPNESS @ (x - CENTRE) ** 2)
    slope = SHARPNESS * (CENTRE - x)
    return Evaluated(slope, StepInfo(value, value, float(np.linalg.norm(slope)), 0.0))


def climb(evaluate=hill, start=(0.0, 0.0, 0.0), bounds=FREE, max_iter=100, tol=1e-12):
    progress = Progress()
    maximum = maximize(
        evaluate, np.array(start, dtype=float), bounds, progress, max_iter=max_iter, tol=tol
    )
    return maximum, progress.history


def test_finds_the_top():
    maximum, history = climb()
    assert maximum.converged
    assert_allclose(maximum.x, CENTRE, atol=1e-5)
    assert history[-1].gradient_norm < 1e-3


def test_history_never_falls():
    _, history = climb()
    values = [entry.objective for entry in history]
    assert values == sorted(values)
    assert [entry.iteration for entry in history] == list(range(1, len(history) + 1))


def test_stays_inside_the_bounds():
    seen = []

    def watched(x):
        seen.append(x.copy())
        return hill(x)

    bounds = np.array([[-0.5, 0.5], [-1.0, 1.0], [0.0, np.inf]])
    maximum, _ = climb(watched, bounds=bounds)
    assert_allclose(maximum.x, [0.5, -1.0, 0.5], atol=1e-5)
    for x in seen:
        assert (x >= bounds[:, 0]).all()
        assert (x <= bounds[:, 1]).all()


def not_positive_definite(x):
    raise np.linalg.LinAlgError


def numerical(x):
    raise NumericalError("no")


def not_a_number(x):
    good = hill(x)
    return Evaluated(good.gradient, StepInfo(np.nan, 0.0, 0.0, 0.0))


def steep(x):
    good = hill(x)
    return Evaluated(good.gradient * np.inf, good.info)


failures = pytest.mark.parametrize("fail", [not_positive_definite, numerical, not_a_number, steep])


@failures
def test_steps_back_from_where_the_objective_cannot_be_had(fail):
    def cliff(x):
        return fail(x) if x[0] > 1.2 or x[1] < -2.2 else hill(x)

    maximum, history = climb(cliff)
    assert_allclose(maximum.x, CENTRE, atol=1e-2)
    assert np.isfinite([entry.objective for entry in history]).all()


@failures
def test_what_fails_at_the_start_is_named_with_a_way_out(fail):
    with pytest.raises(NumericalError, match="starting values"):
        climb(fail)


def test_the_best_point_is_kept_not_the_last():
    count = 0

    def deceitful(x):
        nonlocal count
        count += 1
        good = hill(x)
        if count < 4:
            return good
        return Evaluated(good.gradient, good.info.__class__(good.info.objective - 50.0, 0.0, 0.0, 0.0))

    maximum, _ = climb(deceitful)
    start = hill(np.zeros(3)).info.objective
    assert hill(maximum.x).info.objective >= start


def test_an_interruption_keeps_what_was_found():
    count = 0

    def interrupted(x):
        nonlocal count
        count += 1
        if count == 6:
            raise KeyboardInterrupt
        return hill(x)

    progress = Progress()
    maximum = maximize(interrupted, np.zeros(3), FREE, progress, max_iter=100, tol=1e-12)
    assert progress.interrupted
    assert not maximum.converged
    assert hill(maximum.x).info.objective > hill(np.zeros(3)).info.objective
    assert progress.history


def test_too_few_iterations_are_no_convergence():
    maximum, history = climb(max_iter=2, tol=0.0)
    assert not maximum.converged
    assert len(history) == 2


def test_where_there_is_nothing_to_climb_there_is_still_a_record():
    maximum, history = climb(start=CENTRE)
    assert maximum.converged
    assert len(history) == 1
    assert_allclose(maximum.x, CENTRE)


def test_epochs_are_passes_over_the_rows():
    asked = []

    def costly(x):
        asked.append(x)
        return hill(x)._replace(passes=7)

    _, history = climb(costly)
    assert 7 * len(history) <= history[-1].epochs <= 7 * len(asked)
    assert {entry.epochs % 7 for entry in history} == {0.0}


def test_seconds_end_it(monkeypatch):
    clock = iter(np.arange(0.0, 1e4, 0.5))
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    progress = Progress()
    progress.deadline = 2.0
    maximum = maximize(hill, np.zeros(3), FREE, progress, max_iter=100, tol=0.0)
    assert not maximum.converged
    assert not maximum.stuck
    assert 1 <= len(progress.history) < 6


@pytest.mark.parametrize("number", [1, 2, 4])
def test_an_evaluation_that_was_cut_short_ends_it_and_does_not_count(number):
    """Its objective may be anything; only the first one is better than nothing."""
    seen = []

    def cut_short(x):
        seen.append(x.copy())
        found = hill(x)
        if len(seen) != number:
            return found
        return found._replace(info=replace(found.info, objective=1e9), complete=False)

    maximum, history = climb(cut_short)
    if number == 1:
        assert_allclose(maximum.x, seen[0])
        return
    assert len(seen) == number
    assert not maximum.converged
    assert len(history) >= 1
    values = [hill(x).info.objective for x in seen[:-1]]
    assert_allclose(maximum.x, seen[int(np.argmax(values))])


def test_a_window_outlasts_single_iterations_that_hardly_climb():
    """A staircase: every other iteration stands still."""
    short, _ = climb(slow, start=(5.0, 0.0, 0.0), tol=0.02)
    progress = Progress()
    start = np.array([5.0, 0.0, 0.0])
    long = maximize(slow, start, FREE, progress, max_iter=400, tol=0.02, window=10)
    assert slow(long.x).info.objective > slow(short.x).info.objective


def slow(x):
    """Rosenbrock's valley, upside down."""
    a, b, c = x
    value = -float((1 - a) ** 2 + 100 * (b - a * a) ** 2 + c * c)
    slope = np.array([2 * (1 - a) + 400 * a * (b - a * a), -200 * (b - a * a), -2 * c])
    return Evaluated(slope, StepInfo(value, value, float(np.linalg.norm(slope)), 0.0))


def test_a_slope_without_a_way_up_is_no_top():
    """The gradient points where the objective does not rise: a wrong gradient, or rounding."""

    def lying(x):
        good = hill(x)
        return Evaluated(-good.gradient, good.info)

    maximum, history = climb(lying)
    assert maximum.stuck
    assert not maximum.converged
    assert len(history) >= 1


def test_after_a_failed_line_search_it_goes_on_from_the_best_point():
    """For a while the gradient is wrong, as after a bad update of L-BFGS's memory."""
    calls = 0

    def moody(x):
        nonlocal calls
        calls += 1
        good = hill(x)
        return Evaluated(-good.gradient, good.info) if 4 <= calls < 26 else good

    maximum, _ = climb(moody)
    assert maximum.converged
    assert_allclose(maximum.x, CENTRE, atol=1e-4)


def test_where_nothing_can_move_the_start_is_the_top():
    def flat(x):
        assert x.shape == (0,)
        return Evaluated(x, StepInfo(-3.0, -1.0, 0.0, 0.0))

    maximum, history = climb(flat, start=(), bounds=np.zeros((0, 2)))
    assert maximum.converged
    assert not maximum.stuck
    assert [entry.objective for entry in history] == [-3.0]


@pytest.mark.parametrize(("place", "outward"), [(0, -1.0), (1, 1.0)], ids=["lower", "upper"])
def test_at_a_bound_a_slope_that_leads_out_is_no_way_up(place, outward):
    """The line search fails, since the objective falls all around: is that a maximum?"""
    bounds = np.array([[-2.0, 3.0], [-2.0, 3.0]])
    at = np.array([bounds[0, place], 0.0])
    for slope, is_maximum in ((outward, True), (-outward, False)):

        def peak(x, slope=slope):
            value = -1.0 - 10.0 * float(np.abs(x - at).sum())
            return Evaluated(np.array([5.0 * slope, 1e-4]), StepInfo(value, value, 5.0, 0.0))

        maximum, _ = climb(peak, start=at, bounds=bounds)
        assert_allclose(maximum.x, at)
        assert (maximum.converged, maximum.stuck) == (is_maximum, not is_maximum)


def test_a_point_that_fails_is_worse_than_any_however_low_the_objective():
    calls = 0

    def low(x):
        nonlocal calls
        calls += 1
        if calls in (2, 3):
            raise NumericalError
        good = hill(x)
        return Evaluated(good.gradient, replace(good.info, objective=good.info.objective - 1e4))

    maximum, _ = climb(low)
    assert_allclose(maximum.x, CENTRE, atol=1e-3)

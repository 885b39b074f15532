"""Budgets and the monitor: when training ends, how its steps shrink, and which state is kept."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

from cavity import GFITCClassifier, SEPClassifier, SVIClassifier
from cavity.engines.local import LocalBackend
from cavity.inference.history import StepInfo
from cavity.inference.optimizers import Adam
from cavity.inference.schedule import Budget, Monitor
from support import PINNED, make, set_clock, table, time_passes, watch_training

amounts = st.floats(1e-3, 1e6)
shares = st.floats(0.0, 2.0)
budgets = st.builds(
    Budget,
    max_epochs=amounts | st.just(np.inf),
    max_seconds=amounts | st.just(np.inf),
    cooling_starts=st.floats(0.0, 1.0),
)


@given(budgets, amounts, amounts)
def test_what_is_used_is_the_larger_share(budget, epochs, seconds):
    used = budget.used(epochs, seconds)
    assert used == max(epochs / budget.max_epochs, seconds / budget.max_seconds)
    assert budget.used(0.0, 0.0) == 0.0


@given(budgets, shares, shares)
def test_rate_and_gain_never_rise_and_never_reach_zero(budget, one, other):
    early, late = sorted([one, other])
    for factor in (budget.rate, budget.gain):
        assert 1.0 >= factor(early) >= factor(late) > 0.0


@given(budgets, shares)
def test_nothing_shrinks_before_the_cooling(budget, used):
    if used <= budget.cooling_starts:
        assert budget.rate(used) == budget.gain(used) == 1.0


@pytest.mark.parametrize("used", [0.0, 0.5, 0.999, 1.0])
def test_cooling_that_starts_at_one_never_does(used):
    budget = Budget(10, cooling_starts=1.0)
    assert budget.rate(used) == budget.gain(used) == 1.0


@given(st.floats(0.01, 100.0), st.floats(0.01, 1.0))
def test_an_early_end_starts_to_cool_now_and_is_never_longer(epochs, share):
    budget = Budget(epochs / share, max_seconds=60.0)
    ending = budget.ending_soon(epochs)
    assert ending.max_epochs <= budget.max_epochs
    assert ending.max_seconds == budget.max_seconds
    # Training so far is neither before the cooling nor already over, unless it was over anyway.
    used = ending.used(epochs, seconds=0.0)
    assert used >= ending.cooling_starts - 1e-12
    assert used < 1.0 or share > 0.79


@given(amounts, amounts)
def test_what_comes_after_training_is_kept_back_but_never_more_than_a_quarter(most, an_epoch):
    budget = Budget(10, max_seconds=most, sweeps=True)
    training = budget.of_the_steps(an_epoch).max_seconds
    assert 0.75 * most <= training <= most
    assert training <= most - min(4.0 * an_epoch, 0.25 * most) or training == most
    calibrated = replace(budget, calibration=4.0).of_the_steps(an_epoch).max_seconds
    assert 0.75 * most <= calibrated <= training
    assert Budget(10, max_seconds=most).of_the_steps(an_epoch).max_seconds == most


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier])
@pytest.mark.parametrize("batch_size", [100, None], ids=["stochastic", "batch"])
def test_seconds_are_kept(monkeypatch, kind, batch_size):
    """Training ends with the seconds, less what exact sweeps and calibration will need.

    Every look at the clock takes 2 ms, so that the machine's own speed has no say.
    """
    X, labels = table(2000)
    set_clock(monkeypatch, 2e-3)
    model = make(
        kind,
        n_inducing=20,
        batch_size=batch_size,
        max_seconds=0.5,
        max_epochs=1_500,
        tol=0.0,
        n_jobs=1,
    )
    model.fit(X, labels)
    assert model.history_[-1].seconds < 0.55
    if batch_size is not None:  # all rows may come to an end before, when the objective stands still
        assert model.history_[-1].seconds > 0.24


@pytest.mark.parametrize("binding", ["epochs", "seconds"])
def test_the_tighter_of_two_budgets_binds(monkeypatch, binding):
    X, labels = table(500)
    passes = watch_training(monkeypatch)
    set_clock(monkeypatch, 2e-3)
    budget = {"epochs": (2, 600.0), "seconds": (1e6, 0.3)}[binding]
    model = SEPClassifier(
        n_inducing=5, batch_size=50, max_epochs=budget[0], max_seconds=budget[1], n_jobs=1
    )
    model.fit(X, labels)
    assert (len(passes) == 20) == (binding == "epochs")
    assert model.history_[-1].seconds < 1.02 * budget[1]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier])
@pytest.mark.parametrize("options", [{"batch_size": 1}, {"batch_size": None}], ids=str)
def test_a_budget_too_small_for_anything_still_leaves_a_fit(kind, options):
    X, labels = table(3000)
    model = kind(n_inducing=5, max_seconds=1e-3, n_jobs=1, random_state=0, **options)
    model.fit(X, labels)
    assert np.isfinite(model.predict_proba(X)).all()


def test_steps_shrink_as_the_seconds_run_out(monkeypatch):
    """Half of the steps are at full length, whichever budget binds."""
    X, labels = table(200)
    model = SEPClassifier(n_inducing=5, batch_size=20, max_seconds=0.6, optimizer=Adam(0.01), n_jobs=1)
    passes = watch_training(monkeypatch)
    set_clock(monkeypatch, 1e-3)
    model.fit(X, labels)
    thetas = np.array([theta for theta, _ in passes])
    moves = np.abs(np.diff(thetas, axis=0)).mean(axis=1)
    eighth = max(1, len(moves) // 8)
    assert moves[-eighth:].mean() < 0.3 * moves[eighth : 3 * eighth].mean()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": None, "tol": 1e-3},
        {"batch_size": None, "early_stopping": "loo"},
        {"batch_size": 20, "max_epochs": 20},
        {"batch_size": 20, "max_epochs": 60, "early_stopping": "validation"},
    ],
    ids=str,
)
def test_without_a_limit_in_seconds_the_clock_has_no_say(monkeypatch, options):
    """The same seed gives the same fit on a fast machine, a slow one, and one that was suspended."""
    X, labels = table(200)

    def fit(seconds_a_look):
        with monkeypatch.context() as patch:
            set_clock(patch, seconds_a_look)
            model = make(SEPClassifier, n_inducing=6, random_state=0, n_jobs=1, **options)
            return model.fit(X, labels)

    rng = np.random.default_rng(0)
    steady = fit(1e-3)
    fitful = fit(lambda: rng.exponential() ** 4)
    assert_allclose(fitful.kernel_.theta, steady.kernel_.theta, rtol=1e-9)
    assert fitful.n_iter_ == steady.n_iter_


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 50, "max_seconds": 30.0},
        {"batch_size": 50, "max_epochs": 30},
        {"batch_size": 500, "max_epochs": 200},
        {"batch_size": None, "max_epochs": 200},
    ],
    ids=str,
)
def test_a_kernel_that_stays_needs_no_budget_but_iterations(options):
    """With optimizer=None there is nothing to anneal: sweeps until q stands still."""
    X, labels = table(500)
    options = {"n_inducing": 5, "optimizer": None, "n_jobs": 1, "random_state": 0, **options}
    model = make(SEPClassifier, **options).fit(X, labels)
    assert model.n_iter_ > 3
    converged = model.log_marginal_likelihood(model.kernel_.theta)
    assert_allclose(model.log_marginal_likelihood_value_, converged, rtol=1e-5)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier, GFITCClassifier])
@pytest.mark.parametrize("budget", [{"max_epochs": 2}, {"max_seconds": 1e-9}], ids=str)
def test_sweeps_at_a_kernel_that_stays_heed_the_budget(kind, budget):
    X, labels = table(500)
    options = {"n_inducing": 5, "optimizer": None, "tol": 1e-9, "n_jobs": 1, "random_state": 0}
    model = make(kind, **options, **budget)
    model.fit(X, labels)
    assert model.n_iter_ == (1 if "max_seconds" in budget else 2)


@pytest.mark.parametrize("option", [{"checkpoint": "fit.ckpt"}, {"early_stopping": "loo"}], ids=str)
def test_what_needs_steps_is_refused_where_there_are_none(option):
    X, labels = table(50)
    (name,) = option
    with pytest.raises(ValueError, match=f"{name}=.*optimizer=None"):
        make(SEPClassifier, n_inducing=5, optimizer=None, random_state=0, **option).fit(X, labels)


@pytest.mark.parametrize("fraction", [0.2, None])
def test_seconds_that_are_left_go_into_exact_sweeps(monkeypatch, fraction):
    """A sweep takes a tenth of a second, a step a hundredth, training ends before the budget does."""
    clock = time_passes(monkeypatch, lambda row_pass, batch: 0.1 if batch is None else 0.01)
    X, labels = table(2_000)
    model = make(
        SEPClassifier,
        n_inducing=5,
        batch_size=100,
        max_seconds=6.0,
        validation_fraction=fraction,
        n_jobs=1,
        random_state=0,
        **PINNED,
    )
    model.fit(X, labels)
    assert clock.now < 6.5
    assert np.isfinite(model.log_marginal_likelihood_value_)
    # The sweeps ended where there was nothing left to do.
    exact = model.log_marginal_likelihood(model.kernel_.theta)
    assert_allclose(model.log_marginal_likelihood_value_, exact, rtol=1e-3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_seconds_before_the_first_step_are_not_those_of_the_steps(monkeypatch):
    """A start that has taken most of the time must not look like steps that would, each of them."""
    steps, scaling = 0, LocalBackend.learn_scaling

    def seconds(row_pass, batch):
        nonlocal steps
        steps += row_pass.options.gradient
        return 0.01

    clock = time_passes(monkeypatch, seconds)

    def slow(*arguments):
        clock.now += 3.0
        return scaling(*arguments)

    monkeypatch.setattr(LocalBackend, "learn_scaling", slow)
    X, labels = table(200)
    SEPClassifier(
        n_inducing=5,
        max_seconds=4.0,
        max_epochs=1000,
        n_jobs=1,
        config={"tol": 0.0},
    ).fit(X, labels)
    assert clock.now <= 4.05
    assert steps >= 70  # of the 100 that there is time for


def test_batch_training_is_bounded_by_its_iterations(monkeypatch):
    X, labels = table(200)
    passes = watch_training(monkeypatch)
    with pytest.warns(ConvergenceWarning, match="max_epochs"):
        SEPClassifier(n_inducing=5, max_epochs=12, n_jobs=1).fit(X, labels)
    assert len(passes) == 12


@given(st.integers(1, 40))
def test_the_share_used_is_linear_in_the_epochs(epochs):
    assert_allclose(Budget(40.0).used(epochs, 0.0), epochs / 40.0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (GFITCClassifier, {}),
        (GFITCClassifier, {"optimizer": None}),
        (SVIClassifier, {"posterior_update": "gradient"}),
        (SVIClassifier, {"optimizer": None, "posterior_update": "gradient"}),
        (SVIClassifier, {"optimizer": None}),
    ],
    ids=str,
)
def test_nothing_begins_after_the_seconds_on_all_rows(kind, options):
    X, labels = table(100)
    limits = {"max_seconds": 1e-6, "tol": 0.0}
    model = make(kind, n_inducing=5, random_state=0, n_jobs=1, **limits, **options)
    assert model.fit(X, labels).n_iter_ == 1


def step_info(score):
    return StepInfo(0.0, score, 0.0, 0.0)


def feed(monitor, scores):
    """Steps whose states are their numbers, from 0; the steps at which it called a plateau."""
    return [i for i, score in enumerate(scores) if monitor.plateau_after(i, step_info(score))]


def test_scores_are_means_of_windows():
    monitor = Monitor(window=3, patience=None)
    feed(monitor, [1.0, 2.0, 6.0, 0.0, 0.0, 3.0, 9.0])
    assert monitor.scores == [3.0, 1.0]
    assert monitor.best == 2


def test_ones_own_score_is_asked_once_a_window():
    asked = []

    def score(state):
        asked.append(state)
        return float(state)

    monitor = Monitor(window=4, patience=None, score=score)
    feed(monitor, [0.0] * 12)
    assert asked == [3, 7, 11]
    assert monitor.scores == [3.0, 7.0, 11.0]


def test_a_plateau_is_called_after_so_many_windows_without_improvement():
    monitor = Monitor(window=1, patience=3, tol=1e-3)
    assert feed(monitor, [0.0, 1.0, 2.0] + [2.0] * 10)[0] == 5


def test_what_improves_is_no_plateau():
    assert feed(Monitor(window=1, patience=3, tol=1e-3), np.linspace(0.0, 1.0, 50)) == []


def test_improvements_below_tol_do_not_count():
    rising = np.concatenate([np.linspace(0, 1, 5), 1 + 1e-6 * np.arange(20)])
    assert feed(Monitor(window=1, patience=4, tol=1e-4), rising)


def test_without_patience_it_never_ends():
    assert feed(Monitor(window=1, patience=None), [1.0] + [0.0] * 50) == []


@pytest.mark.parametrize("fall", [0.08, 0.3, 5.0])
@pytest.mark.parametrize("windows_after", [1, 2, 5])
def test_a_collapse_at_the_end_brings_back_the_best_state(fall, windows_after):
    """Also if the score had risen a lot at the start: that was learning, not noise."""
    rng = np.random.default_rng(0)
    scores = -0.3 + 1e-3 * rng.normal(size=40)
    scores[0] = -0.69
    monitor = Monitor(window=1, patience=None)
    feed(monitor, [*scores, *np.full(windows_after, -0.3 - fall)])
    assert monitor.best == int(np.argmax(scores))
    assert monitor.best_or("last") == monitor.best


def test_a_last_state_within_the_noise_of_the_best_is_kept():
    """Its parameters had the longest training, and the best of many noisy scores is mostly luck."""
    rng = np.random.default_rng(0)
    monitor = Monitor(window=1, patience=None)
    feed(monitor, [*(-0.3 + 0.01 * rng.normal(size=40)), -0.3])
    assert monitor.best_or("last") == "last"


def test_without_any_score_the_last_state_is_all_there_is():
    monitor = Monitor(window=10, patience=None)
    feed(monitor, [0.0] * 9)
    assert monitor.best_or("last") == "last"


def test_nan_never_becomes_the_best():
    monitor = Monitor(window=1, patience=None)
    feed(monitor, [-0.5, -0.4, np.nan])
    assert monitor.best == 1
    assert monitor.best_or("last") == 1

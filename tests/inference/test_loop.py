"""The training loop on all rows and on minibatches: it climbs, and it stops."""

import time
import warnings
from dataclasses import replace

import numpy as np
import psutil
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from training_runs import make_trainer, run

from cavity import SEPClassifier, SVIClassifier
from cavity.inference.checkpoint import Position
from cavity.inference.config import resolve
from cavity.inference.history import StepInfo
from cavity.inference.loop import draws
from cavity.inference.optimizers import Adam, SignRates
from cavity.inference.rule import ExpectationPropagation, Variational
from cavity.inference.schedule import Budget, Monitor
from cavity.inference.trainer import Problem, Trainer
from support import (
    EVIDENCE_ONLY,
    FLOAT32,
    FLOAT64,
    KERNELS,
    make,
    points,
    table,
    watch_training,
)

RULES = {"ep": ExpectationPropagation(), "vi": Variational()}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
OPTIMIZERS = {"adam": lambda rate=0.1: Adam(rate), "signs": lambda rate=1e-3: SignRates(rate)}
every_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
X, LABELS = table(120)
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def fit(kernel=None, **options):
    kernel = KERNELS["scaled-rbf-ard"] if kernel is None else kernel
    options = {"n_inducing": 10, "random_state": 0, "n_jobs": 1, **options}
    return make(SEPClassifier, kernel, **options).fit(X, LABELS)


def nll(model, X, labels):
    return -model.predict_log_proba(X)[np.arange(len(labels)), labels].mean()


@every_rule
@pytest.mark.parametrize("rebuild", [False, True])
@pytest.mark.parametrize("damping", [1.0, 0.5])
def test_with_all_rows_in_one_minibatch_it_is_batch_training(rule, rebuild, damping):
    """Step for step: gain 1, no cooling, and (in batch training) the first half of the budget."""
    X, labels = table(60)

    def trainer():
        return make_trainer(X, labels, rule=rule, damping=damping, rebuild=rebuild, max_leverage=0.9)

    one, other = trainer(), trainer()
    one_batch = {"batch_size": 60, "smallest_gain": 1.0}
    stochastic, history = run(one, Budget(15, cooling_starts=1.0), **one_batch)
    batch, batch_history = run(other, Budget(30))
    assert len(history) == 15
    for name in ("objective", "gradient_norm", "leave_one_out"):
        assert_allclose(
            [getattr(entry, name) for entry in history],
            [getattr(entry, name) for entry in batch_history[:15]],
            rtol=1e-12,
        )
    state = trainer().init()
    third = trainer()
    for _ in range(15):
        state, _ = third.step(state)
    assert_allclose(stochastic.state.x, state.x, rtol=1e-12)
    assert_allclose(stochastic.state.q.precision, state.q.precision, rtol=1e-10)
    assert_allclose(one.engine.sites.precision, third.engine.sites.precision, rtol=1e-12)
    assert batch.state.x.shape == state.x.shape


@pytest.mark.parametrize("epochs", [1, 2.5, 4])
@pytest.mark.parametrize("batch_size", [7, 30, 64, 100])
def test_as_many_steps_as_the_epochs_have_minibatches(monkeypatch, epochs, batch_size):
    passes = watch_training(monkeypatch)
    X, labels = table(100)
    fit = SEPClassifier(n_inducing=5, batch_size=batch_size, max_epochs=epochs, n_jobs=1)
    fit.fit(X, labels)
    per_epoch = max(1, round(100 / batch_size))
    least, most = np.floor(epochs * per_epoch), np.ceil(epochs * per_epoch)
    assert least <= len(passes) <= most + 1
    if epochs == int(epochs):
        assert len(passes) == epochs * per_epoch
    assert_allclose(fit.history_[-1].epochs, epochs, atol=1.0 / per_epoch)


@pytest.mark.parametrize("batch_size", [7, 9, 3])
def test_the_history_has_at_most_fifty_records_an_epoch(batch_size):
    X, labels = table(500)
    fit = SEPClassifier(n_inducing=3, batch_size=batch_size, max_epochs=2, n_jobs=1, random_state=0)
    assert 50 <= len(fit.fit(X, labels).history_) <= 100


def test_the_order_of_rows_depends_on_seed_and_epoch_only():
    X, labels = table(50)
    trainer = make_trainer(X, labels)

    def order(seed, position, steps=5):
        batches = draws(trainer, resolve(50, batch_size=10, seed=seed), position)
        return np.concatenate([next(batches)[1].index for _ in range(steps)])

    first = order(3, Position())
    assert_array_equal(np.sort(first), np.arange(50))
    assert_array_equal(order(3, Position()), first)
    assert (order(4, Position()) != first).any()
    assert (order(3, Position(epoch=1)) != first).any()
    assert_array_equal(order(3, Position(batch=2, step=2), steps=1), first[20:30])


def test_memory_does_not_grow_with_the_steps():
    X, labels = table(3000)
    trainer = make_trainer(X, labels, Z=points(4), dtype=np.float32, max_leverage=0.5)
    process, sizes = psutil.Process(), []

    class Scales:
        def after_step(self, run):
            if run.position.step % 300 == 0:
                sizes.append(process.memory_info().rss)

    monitor = Monitor(window=50, patience=None)
    run(trainer, Budget(2), batch_size=2, monitor=monitor, checkpointer=Scales())
    assert len(sizes) == 10
    # 300 steps each: two hundred bytes lost in a step would show in most, a larger heap once in one.
    assert np.median(np.diff(sizes)) < 60_000


@pytest.mark.parametrize("options", [{}, {"hyperprior_scale": None, "trace_penalty": 0.0}], ids=str)
def test_many_epochs_on_noisy_labels_stay_inside_the_bounds_and_lose_nothing(monkeypatch, options):
    """The scale ridge: evidence creeps up with the amplitude, without end, unless it is bounded."""
    X, labels = table(2000)
    X_star, labels_star = table(1000, seed=8)
    rng = np.random.default_rng(0)
    noisy = np.where(rng.random(2000) < 0.35, 1 - labels, labels)
    noisy_star = np.where(rng.random(1000) < 0.35, 1 - labels_star, labels_star)
    passes = watch_training(monkeypatch)

    def fit(epochs):
        model = make(
            SEPClassifier,
            n_inducing=20,
            batch_size=100,
            max_epochs=epochs,
            random_state=0,
            n_jobs=1,
            **options,
        )
        return model.fit(X, noisy)

    short, long = fit(4), fit(40)
    lower, upper = long.kernel_.bounds.T
    for theta, _ in passes:
        assert (theta >= lower - 1e-9).all()
        assert (theta <= upper + 1e-9).all()
    assert nll(long, X_star, noisy_star) < nll(short, X_star, noisy_star) + 0.01
    assert nll(long, X_star, noisy_star) < np.log(2)


def test_a_wide_open_amplitude_does_not_break_training():
    """The paper's own flat, unbounded setting may lose, but must not fail."""
    X, labels = table(500)
    noisy = np.where(np.random.default_rng(0).random(500) < 0.4, 1 - labels, labels)
    kernel = ConstantKernel(1.0, (1e-12, 1e12)) * RBF([1.0, 1.0], (1e-6, 1e6))
    fit = SEPClassifier(
        kernel,
        n_inducing=15,
        batch_size=50,
        max_epochs=30,
        optimizer=Adam(0.2),
        random_state=0,
        n_jobs=1,
        config={"hyperprior_scale": None, "trace_penalty": 0.0},
    ).fit(X, noisy)
    assert np.isfinite(fit.predict_proba(X)).all()
    assert nll(fit, X, noisy) < np.log(2)


@pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier])
def test_training_in_float32_is_as_good(monkeypatch, kind):
    """float32 tiles with float64 m×m algebra: the mean test NLL agrees to 0.005 nats a row."""
    X, labels = table(1000)
    X_star, labels_star = table(1000, seed=5)
    losses = []
    for precision in (FLOAT32, FLOAT64):
        monkeypatch.setattr(
            Problem, "for_minibatches", lambda self, to=precision: replace(self, dtype=to)
        )
        options = {"n_inducing": 15, "batch_size": 100, "max_epochs": 20, "n_jobs": 1}
        fits = [kind(**options, random_state=seed).fit(X, labels) for seed in range(3)]
        losses.append(np.mean([nll(model, X_star, labels_star) for model in fits]))
    assert 0.0 < abs(losses[0] - losses[1]) < 0.005


@every_rule
def test_minibatches_find_about_what_all_rows_find(rule):
    X, labels = table(1000)
    X_star, labels_star = table(1000, seed=5)
    kind = SEPClassifier if rule is RULES["ep"] else SVIClassifier
    options = {"n_inducing": 15, "random_state": 0, "n_jobs": 1}
    stochastic = kind(batch_size=100, max_epochs=40, **options).fit(X, labels)
    batch = make(kind, batch_size=None, tol=1e-5, max_epochs=300, **options).fit(X, labels)
    assert abs(nll(stochastic, X_star, labels_star) - nll(batch, X_star, labels_star)) < 0.01


def test_a_minibatch_of_one_row_is_enough():
    X, labels = table(60)
    fit = SEPClassifier(n_inducing=5, batch_size=1, max_epochs=1, random_state=0, n_jobs=1)
    assert fit.fit(X, labels).score(X, labels) > 0.7


def test_a_budget_that_is_gone_before_the_first_step_still_buys_one_and_no_sweep():
    """One pass over all rows could take hours where a step takes a second."""
    X, labels = table(3_000)
    model = SEPClassifier(n_inducing=10, batch_size=20, max_seconds=1e-6, random_state=0, n_jobs=1)
    model.fit(X, labels)
    assert model.n_iter_ == 1
    assert len(model.history_) == 1
    assert np.isnan(model.log_marginal_likelihood_value_)  # no exact sweep was made
    assert np.isfinite(model.predict_log_proba(X)).all()


@pytest.mark.parametrize("exact", [False, True], ids=["approximate", "exact"])
@every_optimizer
@pytest.mark.parametrize("learn_inducing", [True, False])
def test_training_raises_the_evidence(optimizer, exact, learn_inducing):
    options = {"learn_inducing": learn_inducing, **EVIDENCE_ONLY}
    start = fit(optimizer=None, max_epochs=200, **options).log_marginal_likelihood_value_
    trained = fit(optimizer=optimizer(), exact_gradient=exact, max_epochs=100, **options)
    assert trained.log_marginal_likelihood_value_ > start + 1.0
    objective = [entry.objective for entry in trained.history_]
    assert np.mean(objective[-10:]) > np.mean(objective[10:20])


def test_every_free_parameter_moves_and_no_other():
    start = fit(optimizer=None)
    moved = fit(max_epochs=20)
    held = fit(max_epochs=20, learn_inducing=False)
    assert (moved.kernel_.theta != start.kernel_.theta).all()
    assert (moved.inducing_points_ != start.inducing_points_).all()
    assert_array_equal(held.inducing_points_, start.inducing_points_)
    assert (held.kernel_.theta != start.kernel_.theta).all()


@every_optimizer
def test_bounds_are_never_left(monkeypatch, optimizer):
    kernel = ConstantKernel(1.0, (0.9, 1.1)) * RBF([1.0, 1.0], (0.95, 1.05)) + WhiteKernel(
        0.1, (0.09, 0.11)
    )
    passes = watch_training(monkeypatch)
    model = fit(kernel, optimizer=optimizer(0.2), hyperprior_scale=None, max_epochs=40)
    lower, upper = kernel.bounds.T
    for theta, _ in [*passes, (model.kernel_.theta, None)]:
        assert (theta >= lower - 1e-12).all()
        assert (theta <= upper + 1e-12).all()
    at_a_bound = np.isclose(model.kernel_.theta, lower) | np.isclose(model.kernel_.theta, upper)
    assert at_a_bound.any(), "bounds this tight should have been felt"


def test_fixed_parameters_stay():
    kernel = ConstantKernel(2.0, "fixed") * RBF([1.0, 1.0]) + WhiteKernel(0.3, "fixed")
    fitted = fit(kernel, max_epochs=20).kernel_
    assert fitted.k1.k1.constant_value == 2.0
    assert fitted.k2.noise_level == 0.3
    assert not np.allclose(fitted.k1.k2.length_scale, 1.0)


def test_a_kernel_with_nothing_free_still_moves_the_inducing_points():
    kernel = ConstantKernel(2.0, "fixed") * RBF(1.0, "fixed")
    model = fit(kernel, max_epochs=20)
    assert len(model.kernel_.theta) == 0
    assert not np.allclose(model.inducing_points_, fit(kernel, optimizer=None).inducing_points_)


def test_a_hyperprior_holds_the_kernel_near_its_start():
    theta = KERNELS["scaled-rbf-ard"].theta
    tight, loose, flat = (
        np.linalg.norm(fit(hyperprior_scale=deviation, max_epochs=100).kernel_.theta - theta)
        for deviation in (0.01, 1.0, None)
    )
    assert tight < 0.05
    assert tight < loose < flat


def test_training_stops_when_the_objective_stands_still():
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = fit(tol=1e-2, max_epochs=500)
    assert model.n_iter_ < 500
    assert len(model.history_) == model.n_iter_


def test_a_looser_tolerance_stops_no_later():
    iterations = [fit(tol=tol, max_epochs=400).n_iter_ for tol in (1e-1, 1e-2, 1e-3)]
    assert iterations == sorted(iterations)


def test_after_training_q_is_at_its_fixed_point():
    model = fit(max_epochs=30)
    value = model.log_marginal_likelihood(model.kernel_.theta)
    assert_allclose(model.log_marginal_likelihood_value_, value, atol=1e-4)


@every_optimizer
def test_what_is_called_converged_is_a_maximum(optimizer):
    """With a tight tolerance: either a warning, or a kernel where no parameter wants to move."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fit(
            optimizer=optimizer(), learn_inducing=False, tol=1e-9, max_epochs=1000, **EVIDENCE_ONLY
        )
    if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
        return
    theta = model.kernel_.theta
    _, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
    lower, upper = model.kernel_.bounds.T
    blocked = ((theta <= lower + 1e-9) & (gradient < 0)) | ((theta >= upper - 1e-9) & (gradient > 0))
    assert np.abs(gradient[~blocked]).max(initial=0.0) < 0.3


@pytest.mark.parametrize("exact", [False, True], ids=["approximate", "exact"])
@pytest.mark.parametrize("seed", [0, 4])
def test_the_objective_stays_a_log_probability(exact, seed):
    """No q worth stepping from claims that the labels are more than certain."""
    rows, labels = make_moons(300, noise=0.2, random_state=0)
    model = SEPClassifier(
        n_inducing=30, random_state=seed, n_jobs=1, config={"exact_gradient": exact}
    ).fit(rows, labels)
    objective = np.array([entry.objective for entry in model.history_])
    assert objective.max() < 0.0
    # The end is about the best that was seen, give or take the optimiser's last steps.
    assert objective[-1] > objective.max() - 5.0


def rates_of_idle_steps(monkeypatch):
    """From now on steps do nothing, and the factor on each one's length is in this list."""
    rates = []

    def step(self, state, batch):
        rates.append(batch.rate)
        return state, StepInfo(0.0, 0.0, 0.0, 0.0)

    monkeypatch.setattr(Trainer, "step", step)
    return rates


@pytest.mark.parametrize("learning_rate", [None, 0.02])
@pytest.mark.parametrize(("epochs", "factor"), [(600, 1.0), (300, 1.0), (75, 2.0), (3, 2.5)])
def test_a_run_of_few_steps_takes_longer_ones_unless_the_rate_was_given(
    monkeypatch, learning_rate, epochs, factor
):
    """3,000 steps go at the rate itself; a quarter of them twice as far each, but none too far."""
    rates = rates_of_idle_steps(monkeypatch)
    X, labels = table(100)
    model = SEPClassifier(
        n_inducing=3,
        batch_size=10,
        max_epochs=epochs,
        optimizer="adam" if learning_rate is None else Adam(learning_rate),
    )
    model.fit(X, labels)
    assert len(rates) == 10 * epochs
    cooling = 5 * epochs
    assert_allclose(rates[:cooling], factor if learning_rate is None else 1.0)
    assert rates[-1] < 0.1 * rates[1]


@pytest.mark.parametrize(("seconds", "factor"), [(40.0, 1.0), (10.0, 2.0)])
def test_seconds_before_the_first_step_are_no_sign_of_slow_ones(monkeypatch, seconds, factor):
    """Ten milliseconds a step, after a quarter of the seconds has gone: 3,000 steps, or 750."""
    rates, before, begin = rates_of_idle_steps(monkeypatch), 0.0, Trainer.init

    def init(self):
        nonlocal before
        before = 0.25 * seconds
        return begin(self)

    monkeypatch.setattr(Trainer, "init", init)
    monkeypatch.setattr(time, "perf_counter", lambda: before + 0.01 * len(rates))
    X, labels = table(100)
    SEPClassifier(
        n_inducing=3,
        batch_size=10,
        max_seconds=seconds,
        validation_fraction=None,  # no seconds are kept for a calibration
    ).fit(X, labels)
    assert rates[0] == 2.5  # nobody knows yet whether there will be another
    assert_allclose(rates[len(rates) // 8], factor, rtol=0.05)
    assert rates[-1] < 0.2 * factor


def test_an_early_end_does_not_lengthen_the_steps(monkeypatch):
    rates = rates_of_idle_steps(monkeypatch)
    X, labels = table(100)
    model = SEPClassifier(
        n_inducing=3,
        batch_size=10,
        max_epochs=600,
        config={"early_stopping": "loo"},
    )
    model.fit(X, labels)
    assert len(rates) < 3_000
    assert max(rates) == 1.0

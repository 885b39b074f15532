"""A watched run is the plain run, its clock leaves scoring out, and it ends where it is told to."""

import time

import numpy as np
import pytest
from benchmarks.paper import schemes
from benchmarks.start import starting_point
from benchmarks.watch import Watch
from sklearn.datasets import make_moons

from cavity import GFITCClassifier, SVIClassifier
from cavity.gp.posterior import Posterior
from cavity.inference import SignRates, open_rows, prepare_trainer, resolve
from cavity.inference.sweep import SiteSum
from support import set_clock

X, Y = make_moons(120, noise=0.25, random_state=0)
TEST, TEST_Y = make_moons(40, noise=0.25, random_state=1)
START = starting_point(X, 10, 0)


def score(log_p):
    return {"nll": float(-log_p[np.arange(len(TEST_Y)), TEST_Y].mean()), "error": 0.0}


def watched(mode, *, score=score, curve_wanted=True, budget=None, **settings):
    """A watch after a run of one of the paper's schemes."""
    watch = Watch(TEST, score, curve_wanted, budget)
    schemes.run(mode, X, Y, START, {"threads": 1, **settings}, watch)
    return watch


def test_a_run_is_so_many_steps_of_the_paper_s_scheme():
    """Sign-based rates, damping .5, no penalty, no prior, no cooling; the curve changes nothing."""
    steps = 25
    watch = watched("sep", iterations=steps)
    config = resolve(
        len(X), n_inducing=10, scaling=None, batch_size=None, optimizer=SignRates(), damping=0.5,
        trace_penalty=0.0, residual_scale=1.0, hyperprior_scale=None,
    )  # fmt: skip
    with open_rows(X, Y, n_jobs=1) as rows:
        trainer = prepare_trainer(
            rows, config, kernel=schemes.paper_kernel(START), inducing_points=START.Z
        )
        state = trainer.init()
        for _ in range(steps):
            state, _ = trainer.step(state)
        prior = trainer.problem.prior(state.x)
        q = Posterior.from_naturals(trainer.engine.run(SiteSum(prior)).naturals)
        model = schemes.model_of(trainer, state)
    assert watch.steps == len(watch.objective) == steps
    np.testing.assert_array_equal(model.posterior.mean, q.mean)
    expected = model.likelihood.predict_log_proba(*model.latent_moments(TEST))
    np.testing.assert_array_equal(watch.log_p, expected)
    np.testing.assert_array_equal(watch.inducing_points, prior.Z)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("mode", "kind", "parameters"),
    [
        ("gfitc", GFITCClassifier, {"max_iter": 10, "tol": schemes.LBFGS_TOL}),
        (
            "svi",
            SVIClassifier,
            {"max_epochs": 30, "config": {"posterior_update": "gradient", "tol": schemes.LBFGS_TOL}},
        ),
    ],
)
def test_the_papers_rivals_are_the_estimators(mode, kind, parameters):
    """With the same start, L-BFGS goes the same way inside an estimator and under a watch."""
    iterations = parameters.get("max_iter", parameters.get("max_epochs"))
    watch = watched(mode, iterations=iterations)
    config = {**parameters.pop("config", {}), "hyperprior_scale": None}
    kernel = schemes.paper_kernel(START)
    plain = kind(kernel, inducing_points=START.Z, scaling=None, n_jobs=1, config=config, **parameters)
    plain.fit(X, Y)
    np.testing.assert_array_equal(watch.log_p, plain.predict_log_proba(TEST))
    assert watch.objective[-1]["objective"] == plain.history_[-1].objective


@pytest.mark.parametrize("mode", ["sep", "gfitc", "svi", "outer"])
def test_the_curve_changes_nothing(mode):
    curve, plain = (watched(mode, curve_wanted=wanted, iterations=8) for wanted in (True, False))
    assert len(plain.curve) == 1
    np.testing.assert_array_equal(curve.log_p, plain.log_p)


def test_the_exact_gradient_is_another_one():
    inner = (
        watched("sep", iterations=6),
        watched("sep", iterations=6, parameters={"exact_gradient": True}),
    )
    outer = watched("outer", iterations=6), watched("outer-exact", iterations=6)
    for approximate, exact in (inner, outer):
        assert exact.objective[-1]["objective"] != approximate.objective[-1]["objective"]


def test_scoring_does_not_count(monkeypatch):
    now = 0.0

    def slow(log_p):
        nonlocal now
        now += 100.0
        return score(log_p)

    def clock():
        nonlocal now
        now += 0.01
        return now

    monkeypatch.setattr(time, "perf_counter", clock)
    watch = watched("sep", score=slow, iterations=40)
    assert len(watch.curve) >= 3
    assert watch.seconds < 100.0 < 100.0 * len(watch.curve) < now
    seconds = [point["seconds"] for point in watch.curve]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("mode", ["sep", "svi"])
def test_a_budget_in_seconds_ends_minibatches(mode, monkeypatch):
    set_clock(monkeypatch, 1e-3)
    watch = watched(mode, budget=0.3, minibatch=20)
    assert 0.3 <= watch.seconds < 0.32
    assert watch.curve[-1]["nll"] < watch.curve[0]["nll"]


@pytest.mark.parametrize("mode", ["svi", "gfitc", "outer"])
def test_a_budget_in_seconds_ends_training_on_all_rows(mode, monkeypatch):
    set_clock(monkeypatch, 1e-3)
    long, short = (watched(mode, budget=budget) for budget in (0.4, 0.1))
    assert 0 < len(short.objective) < len(long.objective)

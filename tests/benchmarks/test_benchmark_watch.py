"""A watched fit is the fit, its clock leaves scoring out, and it ends where it is told to."""

import time
import warnings

import numpy as np
import pytest
from benchmarks.watch import Watch
from sklearn.datasets import make_moons
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cavity import GFITCClassifier, SEPClassifier, SVIClassifier
from cavity.data import ArraySource
from cavity.data.scaling import Standardizer
from cavity.engines.local import LocalEngine
from cavity.engines.threads import Threads
from cavity.gp.model import Model
from cavity.gp.parameters import ParameterSpace
from cavity.gp.posterior import Posterior
from cavity.inference.ep import ExpectationPropagation
from cavity.inference.optimizers import SignRates
from cavity.inference.sweep import EXACT_LEVERAGE, SiteSum, SweepOptions
from cavity.inference.trainer import Trainer, make_problem

X, Y = make_moons(120, noise=0.25, random_state=0)
TEST, TEST_Y = make_moons(40, noise=0.25, random_state=1)
KERNEL = ConstantKernel(1.0) * RBF([0.5, 0.5])
START = {"kernel": KERNEL, "inducing_points": X[:10], "standardize": False, "hyperprior": None}
PAPER = {
    **START,
    "optimizer": "rprop",
    "batch_size": None,
    "damping": 0.5,
    "tol": 0.0,
    "trace_penalty": 0,
    "max_iter": 10**6,
}


def score(log_p):
    return {"nll": float(-log_p[np.arange(len(TEST_Y)), TEST_Y].mean()), "error": 0.0}


def test_a_fit_that_is_ended_is_so_many_steps_of_the_plain_loop():
    steps = 25
    watch = Watch(TEST, score, iterations=steps)
    watch.fit(SEPClassifier, PAPER, X, Y)
    threads, rule = Threads(1), ExpectationPropagation()
    engine = LocalEngine(
        ArraySource(X, Y.astype(np.int8)), Standardizer.identity(2), rule.n_latents, threads
    )
    problem = make_problem(engine, rule, ParameterSpace(KERNEL, X[:10]), None)
    options = SweepOptions(damping=0.5, max_leverage=EXACT_LEVERAGE)
    trainer = Trainer(problem, SignRates(), options, rebuild=True)
    state = trainer.start()
    for _ in range(steps):
        state, _ = trainer.step(state)
    prior = problem.prior(state.x)
    q = Posterior.from_naturals(engine.run(SiteSum(prior)).naturals)
    model = Model.at(prior, q, engine, rule)
    expected = rule.predict_log_proba(*model.latent_moments(TEST, threads))
    assert watch.steps == steps
    np.testing.assert_allclose(watch.log_p, expected, rtol=1e-9)
    np.testing.assert_allclose(watch.inducing_points, prior.Z)


@pytest.mark.parametrize(
    ("kind", "parameters", "line_search"),
    [
        (SEPClassifier, {**START, "max_iter": 30}, False),
        (SVIClassifier, {**START, "posterior_update": "gradient", "max_iter": 30}, True),
        (GFITCClassifier, {**START, "max_iter": 10}, True),
    ],
)
def test_watching_changes_nothing(kind, parameters, line_search):
    watch = Watch(TEST, score, line_search=line_search)
    watch.fit(kind, {**parameters, "random_state": 0}, X, Y)
    plain = kind(**parameters, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain.fit(X, Y)
    np.testing.assert_array_equal(watch.log_p, plain.predict_log_proba(TEST))
    assert watch.objective[-1]["objective"] == plain.history_[-1].objective


def test_scoring_does_not_count():
    def slow(log_p):
        time.sleep(0.1)
        return score(log_p)

    begin = time.perf_counter()
    watch = Watch(TEST, slow, iterations=40)
    watch.fit(SEPClassifier, PAPER, X, Y)
    passed = time.perf_counter() - begin
    assert len(watch.curve) >= 3
    assert watch.seconds <= passed - 0.1 * len(watch.curve)
    seconds = [point["seconds"] for point in watch.curve]
    assert seconds == sorted(seconds)


def test_a_budget_in_seconds_ends_minibatches():
    watch = Watch(TEST, score, budget=0.3)
    parameters = {**START, "batch_size": 20, "max_epochs": 10**6, "optimizer": "adadelta"}
    watch.fit(SEPClassifier, {**parameters, "site_storage": "factors", "random_state": 0}, X, Y)
    assert 0.3 <= watch.seconds < 5.0
    assert watch.curve[-1]["nll"] < watch.curve[0]["nll"]

"""EP to convergence inside, L-BFGS outside: the evidence climbs, its slope vanishes at the end."""

import pytest
from numpy.testing import assert_allclose
from training_runs import make_trainer

from cavity.engines.local import LocalEngine
from cavity.gp.likelihoods import Logit, Probit
from cavity.inference import lbfgs as outer
from cavity.inference.history import Progress
from cavity.inference.lbfgs import fit_evidence_by_lbfgs
from cavity.inference.rule import ExpectationPropagation
from reference import expectation_propagation, fitc_covariance
from support import KERNELS, fixed_point, make_engine, make_prior, points, replace_sweep, signs, table

X, LABELS = table(60)
KERNEL = KERNELS["noisy"]


def problem(**options):
    return make_trainer(X, LABELS, kernel=KERNEL, Z=points(5), **options).problem


@pytest.fixture(scope="module")
def fitted():
    progress = Progress()
    return fit_evidence_by_lbfgs(problem(), progress, max_iter=150, tol=1e-10), progress.history


def test_the_evidence_never_falls_and_ends_higher_than_it_began(fitted):
    outcome, history = fitted
    values = [entry.objective for entry in history]
    assert values == sorted(values)
    start = fixed_point(make_engine(X, LABELS), make_prior(KERNEL, points(5))).objective
    assert outcome.point.objective > start + 1.0
    assert_allclose(outcome.point.objective, values[-1], atol=1e-4)


def test_the_value_is_the_evidence_of_fitc_at_the_learned_parameters(fitted):
    point = fitted[0].point
    K, _ = fitc_covariance(point.prior.kernel, X, point.prior.Z, point.prior.jitter)
    oracle = expectation_propagation(K, signs(LABELS), tol=1e-10)
    assert_allclose(point.objective, oracle.log_evidence, atol=1e-4)


def test_the_slope_is_small_at_the_end(fitted):
    _, history = fitted
    assert history[-1].gradient_norm < 0.05 * history[0].gradient_norm + 1e-3


def test_parameters_stay_inside_their_bounds(fitted):
    theta = fitted[0].point.prior.kernel.theta
    lower, upper = KERNEL.bounds.T
    assert (theta >= lower - 1e-9).all()
    assert (theta <= upper + 1e-9).all()


def test_epochs_are_all_passes_over_the_rows(monkeypatch):
    """So that curves of all methods can be drawn over one axis."""
    sweeps, sweep, told, record = [], LocalEngine.run, [], Progress.record

    def counted(self, *args):
        sweeps.append(args)
        return sweep(self, *args)

    def noted(self, info, epochs, share=None):
        told.append((epochs, float(len(sweeps))))
        return record(self, info, epochs, share)

    replace_sweep(monkeypatch, counted)
    monkeypatch.setattr(Progress, "record", noted)
    fit_evidence_by_lbfgs(problem(), Progress(), max_iter=5, tol=0.0)
    assert len(told) == 5
    for epochs, passes in told:
        assert epochs == passes


@pytest.mark.parametrize("likelihood", [Probit(), Logit()])
def test_sites_of_one_evaluation_start_the_next(monkeypatch, likelihood):
    """Along the same path, fewer sweeps than from nothing at every point."""
    warm, cold = [], []
    converge = outer.converge

    def counted(engine, prior, rule, **options):
        cold.append(converge(engine.fresh(), prior, rule, **options).n_sweeps)
        point = converge(engine, prior, rule, **options)
        warm.append(point.n_sweeps)
        return point

    monkeypatch.setattr(outer, "converge", counted)
    rule = ExpectationPropagation(likelihood)
    fit_evidence_by_lbfgs(problem(rule=rule), Progress(), max_iter=20, tol=1e-8)
    assert sum(warm[1:]) < sum(cold[1:])


def test_too_few_iterations_are_no_convergence():
    outcome = fit_evidence_by_lbfgs(problem(), Progress(), max_iter=2, tol=0.0)
    assert not outcome.converged
    assert outcome.n_iter == 2


class SweepClock(Progress):
    """A clock on which every pass over the rows takes a second, and nothing else any time."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.sweeps = 0

        def counted(engine, *args, sweep=LocalEngine.run):
            self.sweeps += 1
            return sweep(engine, *args)

        replace_sweep(monkeypatch, counted)

    @property
    def seconds(self):
        return float(self.sweeps)


@pytest.mark.parametrize("seconds", [0.5, 3.0, 40.0, 60.0])
def test_no_evaluation_begins_after_the_seconds(monkeypatch, seconds):
    """What is under way ends with a sweep and its gradient; then EP has one sweep at the best point."""
    clock = SweepClock(monkeypatch)
    clock.deadline = seconds
    outcome = fit_evidence_by_lbfgs(problem(), clock, max_iter=150, tol=0.0)
    assert seconds <= clock.sweeps <= seconds + 3
    assert not outcome.converged
    assert len(clock.history) >= 1
    values = [entry.objective for entry in clock.history]
    assert values == sorted(values)

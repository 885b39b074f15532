"""Early stopping: it ends before the budget, with rows that really were held out, at the best state."""

import time
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF

from cavity import SEPClassifier, SVIClassifier
from cavity.data.arrays import ArraySource
from cavity.data.source import RawRows
from cavity.engines.local import HeldOut
from cavity.estimators import config as plans
from cavity.gp.parameters import ParameterSpace
from cavity.gp.posterior import marginals
from cavity.inference.converge import converge
from cavity.inference.ep import ExpectationPropagation
from cavity.inference.optimizers import Adam
from cavity.inference.sweep import SweepOptions
from cavity.inference.trainer import Trainer, held_out_numbers, hold_out, make_problem
from cavity.inference.updates import NaturalUpdate
from cavity.inference.vi import Variational
from support import KERNELS, make, make_engine, make_prior, points, table, watch_training

X, LABELS = table(300)
X_STAR, LABELS_STAR = table(300, seed=6)
RULES = {"ep": ExpectationPropagation(), "vi": Variational()}


def classifier(kind=SEPClassifier, **options):
    options = {"n_inducing": 10, "batch_size": 30, "max_epochs": 200, "random_state": 0, **options}
    return make(kind, n_jobs=1, **options)


def nll(model):
    return -model.predict_log_proba(X_STAR)[np.arange(300), LABELS_STAR].mean()


@pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier])
@pytest.mark.parametrize("score", ["loo", "validation"])
def test_ends_minibatch_training_before_its_budget(monkeypatch, kind, score):
    # A noisy score may still rise at the end of one order of the rows, but not of all.
    lengths = []
    for seed in range(3):
        with monkeypatch.context() as patch:
            passes = watch_training(patch)
            early = classifier(kind, early_stopping=score, random_state=seed).fit(X, LABELS)
            lengths.append(len(passes))
            assert nll(early) < 0.3
    assert 20 < min(lengths) < 1500, "of 2,000"


@pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier])
@pytest.mark.parametrize("score", ["loo", "validation"])
def test_ends_batch_training_before_its_budget(kind, score):
    early = classifier(kind, early_stopping=score, batch_size=None, max_epochs=400, tol=0.0)
    assert early.fit(X, LABELS).n_iter_ < 400
    assert nll(early) < 0.3


def test_without_it_the_whole_budget_is_used(monkeypatch):
    passes = watch_training(monkeypatch)
    classifier(max_epochs=30).fit(X, LABELS)
    assert len(passes) == 300


@pytest.mark.parametrize("score", ["loo", "validation"])
def test_with_seconds_alone_for_a_budget_it_ends_as_well(score):
    started = time.perf_counter()
    classifier(max_epochs=None, max_seconds=60.0, early_stopping=score).fit(X, LABELS)
    assert time.perf_counter() - started < 30


class TestHeldOutRows:
    mask = np.random.default_rng(0).random(300) < 0.3

    def held_out(self):
        return HeldOut(self.mask, RawRows(X[self.mask], LABELS[self.mask], None))

    def engine(self, labels, rule):
        engine = make_engine(X, labels, rule=rule)
        engine.held_out = self.held_out()
        return engine

    @pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
    def test_are_as_good_as_absent(self, rule):
        prior = make_prior(KERNELS["noisy"], points(6))
        with_them = self.engine(LABELS, rule)
        without = make_engine(X[~self.mask], LABELS[~self.mask], rule=rule)
        assert with_them.total_weight == without.total_weight == (~self.mask).sum()
        one, other = (converge(engine, prior, tol=1e-9) for engine in (with_them, without))
        assert_allclose(one.objective, other.objective, atol=1e-8)
        assert_allclose(one.posterior.mean, other.posterior.mean, atol=1e-8)
        sums, fewer = (
            engine.sweep(prior, point.posterior, SweepOptions())
            for engine, point in ((with_them, one), (without, other))
        )
        assert sums.weight == fewer.weight
        assert_allclose(sums.theta, fewer.theta, atol=1e-6)
        assert_allclose(sums.Z, fewer.Z, atol=1e-6)
        assert (with_them.sites.precision[0, self.mask] == 0).all()
        assert (with_them.sites.shift[0, self.mask] == 0).all()

    def test_the_others_count_what_they_weigh(self):
        weight, kept = np.random.default_rng(1).uniform(0.5, 2.0, 300), ~self.mask
        with_them = make_engine(X, LABELS, weight=weight)
        with_them.held_out = HeldOut(
            self.mask, RawRows(X[self.mask], LABELS[self.mask], weight[self.mask])
        )
        without = make_engine(X[kept], LABELS[kept], weight=weight[kept])
        assert_allclose(with_them.total_weight, without.total_weight)
        prior = make_prior(KERNELS["noisy"], points(6))
        one, other = (converge(engine, prior, tol=1e-9) for engine in (with_them, without))
        assert_allclose(one.objective, other.objective, atol=1e-8)
        assert_allclose(one.posterior.mean, other.posterior.mean, atol=1e-8)

    def test_are_weighed_when_they_judge(self):
        problem = make_problem(make_engine(X, LABELS), ParameterSpace(KERNELS["noisy"], points(6)), None)
        point = converge(problem.engine, problem.prior(problem.space.start))
        state = SimpleNamespace(x=problem.space.start, q=point.posterior.naturals)

        def score(rows, weight):
            held_out = RawRows(X[rows], LABELS[rows], weight)
            return plans._ValidationScore(problem, NaturalUpdate(), held_out)(state)

        assert_allclose(score([0, 1], np.array([3.0, 1.0])), score([0, 0, 0, 1], None))

    @pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
    def test_may_have_any_label(self, rule):
        prior = make_prior(KERNELS["noisy"], points(6))
        flipped = np.where(self.mask, 1 - LABELS, LABELS)
        one, other = (converge(self.engine(labels, rule), prior) for labels in (LABELS, flipped))
        assert_allclose(one.objective, other.objective, rtol=1e-12)
        assert_allclose(one.posterior.mean, other.posterior.mean, rtol=1e-10)

    @pytest.mark.parametrize("batch_size", [30, None])
    def test_do_not_change_a_fit_whose_score_does_not_look_at_them(self, monkeypatch, batch_size):
        """With the same score for every state, two fits differ in nothing the labels could change."""
        monkeypatch.setattr(plans._ValidationScore, "__call__", lambda self, state: 0.0)

        def fit(labels):
            model = classifier(
                batch_size=batch_size,
                early_stopping="validation",
                validation_fraction=0.3,
                max_epochs=100 if batch_size is None else 20,
                tol=0.0,
            )
            return model.fit(X, labels)

        one = fit(LABELS)
        mask = one._training.held_out.mask
        assert mask.sum() == 90
        other = fit(np.where(mask, 1 - LABELS, LABELS))
        assert_allclose(other.predict_proba(X_STAR), one.predict_proba(X_STAR), atol=1e-9)
        third = fit(np.where(mask, LABELS, 1 - LABELS))
        assert np.abs(third.predict_proba(X_STAR) - one.predict_proba(X_STAR)).max() > 0.5

    def test_their_leave_one_out_score_is_a_prediction(self):
        model = classifier(early_stopping="validation", max_epochs=20).fit(X, LABELS)
        mask = model._training.held_out.mask
        predicted = model.predict_log_proba(X[mask])[np.arange(mask.sum()), LABELS[mask]]
        assert_allclose(model.loo_log_proba_[mask], predicted, atol=5e-3)

    def test_a_share_of_the_rows_and_of_their_weight(self):
        weight = np.linspace(0.0, 2.0, 300)
        source = ArraySource(X, LABELS, weight)
        held = hold_out(source, 0.2, np.random.RandomState(0))
        assert held.mask.sum() == 60
        assert_allclose(held.weight, weight[held.mask].sum())
        assert_array_equal(held.rows.X, X[held.mask])
        assert_array_equal(held.rows.labels, LABELS[held.mask])

    def test_drawing_them_takes_no_memory_of_the_size_of_the_data(self):
        tracemalloc.start()
        try:
            numbers = held_out_numbers(10**11, 0.1, np.random.RandomState(0))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(np.unique(numbers)) == 10_000
        assert 0 <= numbers[0] < numbers[-1] < 10**11
        assert peak < 5_000_000

    @pytest.mark.parametrize("batch_size", [1, 2])
    def test_a_minibatch_may_have_nothing_but_held_out_rows(self, batch_size):
        model = classifier(
            batch_size=batch_size, early_stopping="validation", validation_fraction=0.5, max_epochs=1
        )
        model.fit(X[:60], LABELS[:60])
        assert np.isfinite(model.predict_proba(X_STAR)).all()


@pytest.mark.parametrize("score", ["loo", "validation"])
def test_a_collapse_at_the_end_costs_nothing(monkeypatch, score):
    """The fit is that of the best state: here a run is spoilt on purpose after a good half."""
    good = classifier(max_epochs=20).fit(X, LABELS)

    def spoil(number, sums):
        if number > 60:
            sums.theta[:] = -1e3

    watch_training(monkeypatch, spoil)
    spoilt = classifier(max_epochs=20, optimizer=Adam(0.05), early_stopping=score, hyperprior_scale=None)
    spoilt.fit(X, LABELS)
    assert nll(spoilt) < nll(good) + 0.1


def test_the_best_state_is_kept_even_without_early_stopping(monkeypatch):
    good = classifier(max_epochs=20).fit(X, LABELS)

    def spoil(number, sums):
        if number > 100:
            sums.theta[:] = -1e3

    watch_training(monkeypatch, spoil)
    spoilt = classifier(max_epochs=20, optimizer=Adam(0.05), hyperprior_scale=None).fit(X, LABELS)
    assert nll(spoilt) < nll(good) + 0.1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("batch_size", [30, None])
def test_the_validation_score_is_that_of_the_q_that_is_trained(monkeypatch, batch_size):
    """In its own whitened coordinates: those of float32 tiles have another jitter."""
    scores, score, problems, step = [], plans._ValidationScore.__call__, [], Trainer.step

    def scored(self, state):
        scores.append((self, state, score(self, state)))
        return scores[-1][-1]

    def trained(self, *args, **options):
        problems.append(self.problem)
        return step(self, *args, **options)

    monkeypatch.setattr(plans._ValidationScore, "__call__", scored)
    monkeypatch.setattr(Trainer, "step", trained)
    steps = 20
    model = classifier(
        SVIClassifier,
        batch_size=batch_size,
        max_epochs=steps if batch_size is None else steps / 10,
        early_stopping="validation",
        n_inducing=100,  # close together: the jitter matters
        kernel=100.0 * RBF(3.0),
        learn_inducing=False,
    )
    model.fit(X, LABELS)
    judge, state, value = scores[-1]
    prior, engine = problems[-1].prior(state.x), problems[-1].engine
    q = judge.update.posterior(state.q, prior)
    at = marginals(engine.standardizer.apply(judge.rows.X, prior.dtype), prior, q)
    log_proba = engine.rule.likelihood.predict_log_proba(at.mean, at.variance + at.residual)
    expected = log_proba[np.arange(len(log_proba)), judge.rows.labels].mean()
    assert_allclose(value, expected, atol=5e-4)

"""Early stopping: it ends before the budget, with rows that really were held out, at the best state."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF

from cavity import SEPClassifier, SVIClassifier
from cavity.data import sampling
from cavity.data.arrays import ArraySource
from cavity.data.sampling import HeldOut, hashed_rows
from cavity.data.source import RawRows
from cavity.engines.local import LocalBackend
from cavity.engines.threads import Threads
from cavity.gp.calibration import LatentParts, fit_calibration
from cavity.gp.parameters import ParameterSpace
from cavity.gp.posterior import marginals
from cavity.inference import train
from cavity.inference.converge import converge
from cavity.inference.optimizers import Adam
from cavity.inference.rule import ExpectationPropagation, Variational
from cavity.inference.sweep import Sweep, SweepOptions
from cavity.inference.trainer import Trainer, make_problem
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
    for seed in range(3):
        with monkeypatch.context() as patch:
            passes = watch_training(patch)
            early = classifier(kind, early_stopping=score, random_state=seed).fit(X, LABELS)
            assert len(passes) > 20
            assert nll(early) < 0.3
        if len(passes) < 1500:
            break
    assert len(passes) < 1500, "of 2,000"


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
    model = classifier(max_epochs=None, max_seconds=600.0, early_stopping=score).fit(X, LABELS)
    assert model.config_.max_epochs == np.inf
    assert model.fit_seconds_ < 300


class TestHeldOutRows:
    mask = np.random.default_rng(0).random(300) < 0.3

    def held_out(self):
        return HeldOut(np.flatnonzero(self.mask), RawRows(X[self.mask], LABELS[self.mask], None))

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
        one, other = (converge(engine, prior, engine.rule, tol=1e-9) for engine in (with_them, without))
        assert_allclose(one.objective, other.objective, atol=1e-8)
        assert_allclose(one.posterior.mean, other.posterior.mean, atol=1e-8)
        sums, fewer = (
            engine.run(Sweep(prior, point.posterior, rule, SweepOptions()))
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
            np.flatnonzero(self.mask), RawRows(X[self.mask], LABELS[self.mask], weight[self.mask])
        )
        without = make_engine(X[kept], LABELS[kept], weight=weight[kept])
        assert_allclose(with_them.total_weight, without.total_weight)
        prior = make_prior(KERNELS["noisy"], points(6))
        one, other = (converge(engine, prior, engine.rule, tol=1e-9) for engine in (with_them, without))
        assert_allclose(one.objective, other.objective, atol=1e-8)
        assert_allclose(one.posterior.mean, other.posterior.mean, atol=1e-8)

    def test_are_weighed_when_they_judge(self):
        space = ParameterSpace(KERNELS["noisy"], points(6))
        problem = make_problem(make_engine(X, LABELS), RULES["ep"], space, None)
        point = converge(problem.engine, problem.prior(space.start), problem.rule)
        trainer = Trainer(problem, Adam(0.1), SweepOptions())
        state = replace(trainer.init(), q=point.posterior.naturals)

        def loss(rows, weight):
            held_out = HeldOut(np.array(rows), RawRows(X[rows], LABELS[rows], weight))
            trainer.engine.held_out = held_out
            return train._monitored_loss(trainer, state)

        assert_allclose(loss([0, 1], np.array([3.0, 1.0])), loss([0, 0, 0, 1], None))

    @pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
    def test_may_have_any_label(self, rule):
        prior = make_prior(KERNELS["noisy"], points(6))
        flipped = np.where(self.mask, 1 - LABELS, LABELS)
        one, other = (converge(self.engine(labels, rule), prior, rule) for labels in (LABELS, flipped))
        assert_allclose(one.objective, other.objective, rtol=1e-12)
        assert_allclose(one.posterior.mean, other.posterior.mean, rtol=1e-10)

    @pytest.mark.parametrize("batch_size", [30, None])
    def test_do_not_change_a_fit_whose_score_does_not_look_at_them(self, monkeypatch, batch_size):
        """With the same score for every state, the labels of these rows change no parameter."""
        monkeypatch.setattr(train, "_monitored_loss", lambda trainer, state: 0.0)

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
        mask = np.isin(np.arange(300), hashed_rows(300, 90, seed=0))
        other = fit(np.where(mask, 1 - LABELS, LABELS))
        assert_allclose(other.kernel_.theta, one.kernel_.theta, atol=1e-9)
        assert_allclose(other.inducing_points_, one.inducing_points_, atol=1e-9)
        third = fit(np.where(mask, LABELS, 1 - LABELS))
        assert np.abs(third.predict_proba(X_STAR) - one.predict_proba(X_STAR)).max() > 0.5

    def test_take_part_in_the_posterior_at_the_end(self):
        """In two sweeps, which is most of the way from the posterior of the other rows."""
        model = classifier(early_stopping="validation", max_epochs=20, scaling=None).fit(X, LABELS)
        mask = np.isin(np.arange(300), hashed_rows(300, model.n_validation_rows_, seed=0))
        found = {"kernel": model.kernel_, "inducing_points": model.inducing_points_, "scaling": None}
        exact = classifier(**found, optimizer=None, tol=1e-6)
        means = [exact.fit(X[rows], LABELS[rows]).model_.posterior.mean for rows in (slice(None), ~mask)]
        error, before = (
            np.abs(mean - means[0]).max() for mean in (model.model_.posterior.mean, means[1])
        )
        assert error < 0.2 * before, (error, before)
        assert np.isfinite(model.loo_log_proba_).all()

    def test_a_share_of_the_rows_and_of_their_weight(self):
        weight = np.linspace(0.0, 2.0, 300)
        source = ArraySource(X, LABELS, weight)
        held = LocalBackend(Threads(1)).hold_out(source, 0.2, seed=0)
        assert held.mask(300).sum() == len(held.numbers) == 60
        assert_allclose(held.weight, weight[held.numbers].sum())
        assert_array_equal(held.rows.X, X[held.numbers])
        assert_array_equal(held.rows.labels, LABELS[held.numbers])

    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("factors", [None, np.array([1.0, 4.0])])
    def test_classes_judge_by_their_shares_of_all_rows(self, weighted, factors):
        """Not by those that chance has given the held-out rows."""
        rng = np.random.default_rng(1)
        codes = (rng.random(2_000) < 0.1).astype(int)
        weight = rng.uniform(0.5, 2.0, 2_000) if weighted else None
        source = ArraySource(rng.normal(size=(2_000, 2)), codes, weight)
        totals = source.class_totals
        if factors is not None:
            source = source.with_class_factors(factors, totals)
            totals = totals * factors
        held = LocalBackend(Threads(1)).hold_out(source, 0.05, seed=0)
        own, judging = (
            np.bincount(held.rows.labels, w, 2) for w in (held.rows.weight, held.judging_weight)
        )
        assert abs(own[1] / own.sum() - totals[1] / totals.sum()) > 1e-3
        assert_allclose(judging / judging.sum(), totals / totals.sum())
        assert_allclose(held.judging_weight.sum(), held.weight)

    def test_drawing_them_takes_no_memory_of_the_size_of_the_data(self, monkeypatch):
        """A number of eight bytes for each of ten million rows would be 80 MB."""
        monkeypatch.setattr(sampling, "_ROWS_AT_ONCE", 50_000)
        tracemalloc.start()
        try:
            numbers = hashed_rows(10**7, 10_000)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(np.unique(numbers)) == 10_000
        assert 0 <= numbers[0] < numbers[-1] < 10**7
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
    losses = []

    def scored(trainer, state):
        losses.append((trainer, state, monitored_loss(trainer, state)))
        return losses[-1][-1]

    monitored_loss = train._monitored_loss
    monkeypatch.setattr(train, "_monitored_loss", scored)
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
    trainer, state, value = losses[-1]
    prior, engine = trainer.problem.prior(state.x), trainer.engine
    rows, likelihood = engine.held_out.rows, trainer.problem.rule.likelihood
    judging = engine.held_out.judging_weight
    q = trainer.update.posterior(state.q, prior)
    at = marginals(engine.scaling.apply(rows.X, prior.dtype), prior, q)
    parts = LatentParts(at.mean, at.variance, at.residual)
    calibration = fit_calibration(likelihood, parts, rows.labels, judging)
    log_proba = likelihood.predict_log_proba(*calibration.moments(parts))
    own = log_proba[np.arange(len(log_proba)), rows.labels]
    expected = -np.average(own, weights=judging)
    assert_allclose(value, expected, atol=5e-4)

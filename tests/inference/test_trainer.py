"""Guarded steps: what fails is rolled back, damped and tried again, and in the end named."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from training_runs import make_trainer

from cavity import NumericalError, SEPClassifier
from cavity.engines.local import LocalEngine
from cavity.inference.optimizers import Adam
from cavity.inference.rule import ExpectationPropagation, Variational
from cavity.inference.trainer import Batch, Trainer
from cavity.inference.updates import GaussianSpace, GradientUpdate, NaturalUpdate
from support import KERNELS, make, points, replace_sweep, table, tried, watch_training

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def classifier(**options):
    options = {"kernel": KERNELS["scaled-rbf-ard"], "inducing_points": points(5), **options}
    return make(SEPClassifier, max_epochs=15, scaling=None, n_jobs=1, **options)


def poison_objective(sums):
    sums.objective = np.nan


def poison_gradient(sums):
    sums.theta[0] = np.inf


def poison_sites(sums):
    sums.precision[0, 0, 0] = np.nan


def fail_cholesky(sums):
    raise np.linalg.LinAlgError("not positive definite")


every_failure = pytest.mark.parametrize(
    "spoil", [poison_objective, poison_gradient, poison_sites, fail_cholesky]
)


@every_failure
def test_a_failed_pass_is_repeated_closer_to_the_last_good_parameters(monkeypatch, spoil):
    def meddle(number, sums):
        if number == 5:
            spoil(sums)

    passes = watch_training(monkeypatch, meddle)
    model = classifier().fit(*table(60))
    (good, damping), (failed, _), (retried, retried_damping) = passes[3:6]
    # Strictly between the two, in every parameter.
    share = (retried - good) / (failed - good)
    assert_allclose(share, share[0])
    assert 0 <= share[0] < 1
    assert retried_damping < damping
    assert len(model.history_) == 15
    assert np.isfinite([entry.objective for entry in model.history_]).all()
    assert np.isfinite(model.predict_proba(table(10, seed=3)[0])).all()


@every_failure
def test_failures_in_a_row_go_back_further_each_time(monkeypatch, spoil):
    def meddle(number, sums):
        if 5 <= number < 9:
            spoil(sums)

    passes = watch_training(monkeypatch, meddle)
    classifier().fit(*table(60))
    good = passes[3][0]
    distances = [np.linalg.norm(theta - good) for theta, _ in passes[4:9]]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.5 * distances[0]


@every_failure
def test_what_never_succeeds_is_named_with_a_way_out(monkeypatch, spoil):
    passes = watch_training(monkeypatch, lambda number, sums: spoil(sums))
    with pytest.raises(NumericalError, match=r"kernel bounds.*optimizer=Adam\(0\.01\)"):
        classifier().fit(*table(60))
    assert 3 <= len(passes) <= 100


def test_a_failed_pass_leaves_no_trace_in_the_sites(monkeypatch):
    """A pass whose sums are unusable, and one that failed before it began, lead to the same fit."""

    def fit(spoil, *, before):
        with monkeypatch.context() as patch:
            watch_training(
                patch, lambda number, sums: spoil(sums) if number == 5 else None, before=before
            )
            return classifier().fit(*table(60))

    X_star, _ = table(10, seed=3)
    never_ran, ran = fit(fail_cholesky, before=True), fit(poison_objective, before=False)
    assert_allclose(ran.predict_proba(X_star), never_ran.predict_proba(X_star), rtol=1e-12)


def test_steps_that_leave_the_range_of_floats_come_back():
    """A learning rate so large that the kernel becomes singular at once, with bounds that allow it."""
    kernel = ConstantKernel(1.0, (1e-300, 1e300)) * RBF(1.0, (1e-300, 1e300))
    model = classifier(kernel=kernel, optimizer=Adam(100.0), hyperprior_scale=None)
    fitted, complaint = tried(lambda: model.fit(*table(60)))
    if fitted is None:
        assert "optimizer=Adam(0.01)" in complaint
    else:
        assert np.isfinite(fitted.predict_proba(table(10, seed=3)[0])).all()
        assert np.isfinite(fitted.log_marginal_likelihood_value_)


@pytest.mark.parametrize("rule", [ExpectationPropagation(), Variational()], ids=["ep", "vi"])
def test_after_failed_passes_q_is_again_made_of_whole_sites(monkeypatch, rule):
    """A minibatch's sums of halved sites would make a q of half of the rows, for a whole epoch."""
    X, labels = table(400)

    def precision(failures):
        trainer = make_trainer(X, labels, rule=rule, optimizer=Adam(1e-6))
        state, sweep, passes = trainer.init(), LocalEngine.run, []

        def failing(self, *args):
            passes.append(args)
            if len(passes) in failures:
                raise np.linalg.LinAlgError
            return sweep(self, *args)

        replace_sweep(monkeypatch, failing)
        for step, batch in enumerate(trainer.engine.batches(20, np.random.default_rng(0)), start=1):
            state, _ = trainer.step(state, Batch(batch, gain=max(0.2, 1.0 / step)))
        replace_sweep(monkeypatch, sweep)
        assert state.damping == trainer.options.damping
        return np.trace(state.q.precision[0])

    assert_allclose(precision({2, 5, 6}), precision(set()), rtol=0.05)


def test_after_a_failed_pass_stored_factors_still_add_up_to_q(monkeypatch):
    """The rows have replaced theirs: a q without them would be off for good."""
    X, labels = table(200)
    sweep, step, passes, gaps = LocalEngine.run, Trainer.step, [], []

    def failing(self, *args):
        passes.append(args)
        if len(passes) in {4, 7, 8}:
            raise np.linalg.LinAlgError
        return sweep(self, *args)

    def compared(self, *args, **options):
        state, info = step(self, *args, **options)
        directions = self.engine.sites.directions.astype(float)
        summed = (directions.T * self.engine.sites.precision[0]) @ directions
        gaps.append(np.abs(summed - state.q.precision[0]).max() / np.abs(summed).max())
        return state, info

    replace_sweep(monkeypatch, failing)
    monkeypatch.setattr(Trainer, "step", compared)
    options = {"site_storage": "factors", "batch_size": 20, "max_epochs": 2}
    make(SEPClassifier, n_inducing=5, random_state=0, n_jobs=1, **options).fit(X, labels)
    assert len(gaps) == 20
    assert max(gaps) < 1e-4


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "natural"])
def test_the_gradient_norm_is_that_of_kernel_and_inducing_points(plain):
    """Whatever else the optimiser moves: so it is comparable between methods."""
    X, labels = table(60)
    update = GradientUpdate(GaussianSpace(1, 6)) if plain else NaturalUpdate()
    trainer = make_trainer(X, labels, rule=Variational(), update=update)
    state = trainer.init()
    found = trainer.evaluate(state.x, state.q, damping=1.0)
    slope = found.slope[: len(state.x)]
    assert np.linalg.norm(slope) > 1.5  # not one, whose square it is
    assert_allclose(found.info.gradient_norm, np.linalg.norm(slope), rtol=1e-12)


def test_a_failed_pass_is_repeated_with_the_q_of_before(monkeypatch):
    X, labels = table(60)
    trainer = make_trainer(X, labels)
    first = trainer.init()
    second, _ = trainer.step(first)
    asked, evaluate = [], Trainer.evaluate

    def failing(self, x, q, *args):
        asked.append(q)
        if len(asked) == 1:
            raise NumericalError
        return evaluate(self, x, q, *args)

    monkeypatch.setattr(Trainer, "evaluate", failing)
    trainer.step(second)
    assert asked == [second.q, first.q]

"""L-BFGS on (m, R), kernel and points, and natural steps: two ways to one maximum of the bound."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from training_runs import make_trainer

from cavity import SVIClassifier
from cavity.estimators.endings import BoundWarning
from cavity.gp.likelihoods import Logit, Probit
from cavity.inference.history import Progress
from cavity.inference.lbfgs import fit_bound_by_lbfgs
from cavity.inference.optimizers import Adadelta
from cavity.inference.rule import Variational
from cavity.inference.updates import GaussianSpace, GradientUpdate
from support import KERNELS, fixed_point, make, make_engine, make_prior, points, table

X, LABELS = table(60)
X_STAR, _ = table(30, seed=5)
KERNEL = KERNELS["noisy"]
LIKELIHOODS = {"probit": Probit(), "logit": Logit()}
M = 5


def trainer(likelihood, *, learn):
    update = GradientUpdate(GaussianSpace(1, M))
    return make_trainer(
        X,
        LABELS,
        rule=Variational(likelihood),
        kernel=KERNEL,
        Z=points(M),
        update=update,
        optimizer=Adadelta(),
        learn=learn,
    )


@pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
def test_at_a_fixed_kernel_both_ways_end_at_the_same_q(likelihood):
    natural = fixed_point(
        make_engine(X, LABELS, rule=Variational(likelihood)), make_prior(KERNEL, points(M))
    )
    plain = fit_bound_by_lbfgs(
        trainer(likelihood, learn=False), Progress(), max_iter=2000, tol=1e-15
    ).point
    assert_allclose(plain.objective, natural.objective, atol=1e-6)
    assert_allclose(plain.posterior.mean, natural.posterior.mean, atol=1e-4)
    assert_allclose(plain.posterior.covariance, natural.posterior.covariance, atol=1e-4)
    assert plain.objective <= natural.objective + 1e-9


@pytest.mark.parametrize("likelihood", ["probit", "logit"])
def test_so_do_the_estimators(likelihood):
    options = {
        "likelihood": likelihood,
        "inducing_points": points(M),
        "optimizer": None,
        "max_epochs": 2000,
        "scaling": None,
        "n_jobs": 1,
    }
    natural, plain = (
        make(SVIClassifier, KERNEL, posterior_update=how, tol=tol, **options).fit(X, LABELS)
        for how, tol in (("natural", 1e-10), ("gradient", 1e-15))
    )
    assert_allclose(
        plain.log_marginal_likelihood_value_, natural.log_marginal_likelihood_value_, atol=1e-6
    )
    assert_allclose(plain.predict_proba(X_STAR), natural.predict_proba(X_STAR), atol=1e-4)
    assert_allclose(plain.loo_log_proba_, natural.loo_log_proba_, atol=1e-3)
    assert_allclose(plain.kernel_.theta, KERNEL.theta)


def test_learning_everything_raises_the_bound_and_ends_where_it_is_flat():
    learner = trainer(Probit(), learn=True)
    progress = Progress()
    outcome = fit_bound_by_lbfgs(learner, progress, max_iter=1000, tol=1e-5)
    values = [entry.objective for entry in progress.history]
    assert progress.history[-1].gradient_norm < 0.5
    assert values == sorted(values)
    fixed = fixed_point(make_engine(X, LABELS, rule=Variational()), make_prior(KERNEL, points(M)))
    assert outcome.point.objective > fixed.objective + 1.0
    assert outcome.converged
    assert outcome.n_iter == len(progress.history)


def test_the_maximum_over_q_at_the_learned_parameters_is_no_higher():
    """q is as good as natural steps could make it at the final kernel and points."""
    outcome = fit_bound_by_lbfgs(trainer(Probit(), learn=True), Progress(), max_iter=1000, tol=1e-12)
    engine = make_engine(X, LABELS, rule=Variational())
    best = fixed_point(engine, outcome.point.prior)
    assert_allclose(outcome.point.objective, best.objective, atol=1e-3)


def test_the_history_ends_with_the_score_of_the_fit():
    """Leave-one-out needs sites, which this schedule does not move by."""
    model = SVIClassifier(
        n_inducing=8, random_state=0, n_jobs=1, config={"posterior_update": "gradient", "tol": 1e-3}
    )
    model.fit(X, LABELS)
    in_sample = np.mean(model.predict_log_proba(X)[np.arange(len(X)), LABELS])
    assert_allclose(model.history_[-1].leave_one_out, -model.loo_log_loss_, atol=1e-3)
    assert model.history_[-1].leave_one_out < in_sample - 0.01


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_one_slow_iteration_is_not_the_end():
    """Points in pairs make a beginning that hardly climbs; ten iterations together do."""
    twice = np.repeat(X[:2], 4, axis=0)
    model = SVIClassifier(
        inducing_points=twice, random_state=0, n_jobs=1, config={"posterior_update": "gradient"}
    )
    model.fit(X, LABELS)
    assert model.n_iter_ > 10
    assert model.history_[-1].objective > model.history_[2].objective + 3.0


def test_bounds_are_kept():
    kernel = ConstantKernel(1.0, (0.9, 1.1)) * RBF([1.0, 1.0], (0.8, 1.2))
    model = SVIClassifier(
        kernel,
        n_inducing=8,
        random_state=0,
        n_jobs=1,
        config={"posterior_update": "gradient", "hyperprior_scale": None},
    )
    with pytest.warns(BoundWarning):
        model.fit(X, LABELS)
    lower, upper = kernel.bounds.T
    assert (model.kernel_.theta >= lower - 1e-12).all()
    assert (model.kernel_.theta <= upper + 1e-12).all()


def test_too_few_iterations_are_no_convergence():
    outcome = fit_bound_by_lbfgs(trainer(Probit(), learn=True), Progress(), max_iter=3, tol=0.0)
    assert not outcome.converged
    assert outcome.n_iter == 3
    assert np.isfinite(outcome.point.objective)

"""How q moves: two kinds of update behind one interface, each with its own gradient."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from training_runs import make_trainer

from cavity.gp.likelihoods import Logit, Probit
from cavity.gp.posterior import NaturalParameters, Posterior
from cavity.inference.rule import Variational
from cavity.inference.sweep import Sweep, SweepOptions
from cavity.inference.trainer import Batch
from cavity.inference.updates import (
    FactorUpdate,
    GaussianSpace,
    GradientUpdate,
    NaturalUpdate,
    objective,
)
from reference import central_differences
from support import KERNELS, fixed_point, make_engine, make_prior, points, table

M = 4
UPDATES = {
    "natural": NaturalUpdate(),
    "factors": FactorUpdate(),
    "gradient": GradientUpdate(GaussianSpace(1, M)),
}
every_update = pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
LIKELIHOODS = {"probit": Probit(), "logit": Logit()}
SMALL_LIST = ["rbf-ard", "noisy", "matern-3/2", "sum", "rational-quadratic"]


def some_posterior(seed=0):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(1, M, M))
    return Posterior.from_naturals(
        NaturalParameters(factor @ factor.transpose(0, 2, 1), rng.normal(size=(1, M)))
    )


@every_update
def test_a_start_from_a_posterior_is_that_posterior(update):
    posterior = some_posterior()
    prior = make_prior(KERNELS["noisy"], points(M))
    back = update.posterior(update.start(posterior, prior), prior)
    assert_allclose(back.mean, posterior.mean, rtol=1e-10)
    assert_allclose(back.covariance, posterior.covariance, rtol=1e-10)
    assert_allclose(back.divergence, posterior.divergence, rtol=1e-10)
    assert_allclose(back.log_partition, posterior.log_partition, rtol=1e-10)


@every_update
def test_files_keep_every_bit(update):
    q = update.start(some_posterior(), make_prior(KERNELS["noisy"], points(M)))
    arrays = update.as_arrays(q)
    back = update.as_arrays(update.from_arrays(arrays, q))
    assert back.keys() == arrays.keys()
    for name, values in arrays.items():
        assert_array_equal(back[name], values)


@pytest.mark.parametrize("gain", [0.0, 0.3, 1.0])
def test_natural_moves_mix_the_refined_sites_in(gain):
    trainer = make_trainer(*table(30), kernel=KERNELS["noisy"], Z=points(M), learn=False)
    q = some_posterior().naturals
    refined = trainer.evaluate(np.zeros(0), q, damping=1.0).sums
    moved = trainer.step(replace(trainer.init(), q=q), Batch(gain=gain))[0].q
    assert_allclose(moved.precision, (1 - gain) * q.precision + gain * refined.precision)
    assert_allclose(moved.shift, (1 - gain) * q.shift + gain * refined.shift)


def test_plain_gradients_know_no_damping():
    """Sums of damped sites would be the gradient of nothing; a failed step leaves a damping behind."""
    trainer = make_trainer(
        *table(30), rule=Variational(), kernel=KERNELS["noisy"], Z=points(M), update=UPDATES["gradient"]
    )
    state = trainer.init()
    slopes = [trainer.evaluate(state.x, state.q, damping).slope for damping in (0.25, 1.0)]
    assert_array_equal(*slopes)


def test_plain_moves_go_where_the_optimiser_goes():
    trainer = make_trainer(
        *table(30), rule=Variational(), kernel=KERNELS["noisy"], Z=points(M), update=UPDATES["gradient"]
    )
    state = trainer.init()
    slope = trainer.evaluate(state.x, state.q, damping=1.0).slope
    move, _ = trainer.optimizer.step(state.optimizer_state, slope)
    moved, _ = trainer.step(state, Batch(gain=0.1))
    assert_allclose(moved.x, state.x + move[: len(state.x)])
    assert_allclose(moved.q, state.q + move[len(state.x) :])


@every_update
@pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
@pytest.mark.parametrize("name", SMALL_LIST)
def test_the_slope_of_a_trainer_is_the_slope_of_its_bound(update, likelihood, name):
    """By theta, by Z and, if the optimiser moves q, by every entry of it; at the best q or at any.

    With sites for q, the slope is that of the bound only where q is at its best.
    """
    X, labels = table(20)
    rule, kernel, Z = Variational(likelihood), KERNELS[name], points(M)
    trainer = make_trainer(X, labels, rule=rule, kernel=kernel, Z=Z, update=update)
    natural = isinstance(update, NaturalUpdate)
    best = fixed_point(make_engine(X, labels, rule=rule), make_prior(kernel, Z)).posterior
    q = update.start(best if natural else some_posterior(), make_prior(kernel, Z))
    x = trainer.problem.space.start
    slope = trainer.evaluate(x, q, damping=1.0).slope

    def value(vector):
        prior = trainer.problem.prior(vector[: len(x)])
        engine = make_engine(X, labels, rule=rule)
        if natural:
            return fixed_point(engine, prior, 1e-10).objective
        posterior = update.posterior(vector[len(x) :], prior)
        sums = engine.run(Sweep(prior, posterior, engine.rule, SweepOptions(gradient=False)))
        return objective(sums, posterior, rule)

    at = x if natural else np.concatenate([x, q])
    assert slope.shape == at.shape
    differences = central_differences(value, at)
    assert_allclose(slope, differences, atol=2e-6 * max(1.0, np.abs(differences).max()))

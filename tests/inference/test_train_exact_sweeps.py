"""The exact sweeps after training: they end at the fixed point, in double precision, for all rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from cavity import SEPClassifier, SVIClassifier
from cavity.engines.local import LocalEngine
from cavity.gp.posterior import NaturalParameters
from cavity.gp.prior import Prior
from cavity.gp.tiles import Sites
from cavity.inference.config import resolve
from cavity.inference.converge import converge
from cavity.inference.loop import batches
from cavity.inference.rule import ExpectationPropagation, Variational
from cavity.inference.start import open_rows, prepare_trainer
from cavity.inference.train import finish, make_rule
from support import (
    FLOAT32,
    FLOAT64,
    KERNELS,
    make,
    make_engine,
    make_prior,
    points,
    replace_sweep,
    table,
)

RULES = {"ep": ExpectationPropagation(), "vi": Variational()}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
X, LABELS = table(120)
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@every_rule
@pytest.mark.parametrize("seed", range(4))
def test_they_end_at_the_same_fixed_point_from_any_start(rule, seed):
    X, labels = table(80)
    prior = make_prior(KERNELS["noisy"], points(8))
    cold = converge(make_engine(X, labels, rule=rule), prior, rule, tol=1e-9, max_sweeps=2000)
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-2, 1)
    engine = make_engine(X, labels, rule=rule)
    engine.sites = Sites(scale * rng.exponential(size=(1, 80)), scale * rng.normal(size=(1, 80)))
    factor = scale * rng.normal(size=(1, 8, 8))
    naturals = NaturalParameters(factor @ factor.transpose(0, 2, 1), scale * rng.normal(size=(1, 8)))
    start = naturals if seed % 2 else None
    warm = converge(engine, prior, engine.rule, tol=1e-9, max_sweeps=2000, start=start)
    assert cold.converged
    assert warm.converged
    assert_allclose(warm.objective, cold.objective, atol=1e-6)
    assert_allclose(warm.posterior.mean, cold.posterior.mean, atol=1e-5)
    assert_allclose(warm.posterior.covariance, cold.posterior.covariance, atol=1e-5)


@pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier])
@pytest.mark.parametrize("n_inducing", [10, 60])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_fit_predicts_as_its_kernel_and_points_would_if_nothing_had_been_trained(
    kind, n_inducing, dtype
):
    """The true posterior of all rows at the final parameters, whatever the minibatches did."""
    X, labels = table(400)
    X_star, _ = table(100, seed=5)
    X, X_star = X.astype(dtype), X_star.astype(dtype)
    options = {"random_state": 0, "n_jobs": 1, "scaling": "standard"}
    minibatches = {"n_inducing": n_inducing, "batch_size": 50, "max_epochs": 3}
    fit = make(kind, **minibatches, validation_fraction=None, **options).fit(X, labels)
    again = make(
        kind,
        fit.kernel_,
        inducing_points=fit.inducing_points_,
        optimizer=None,
        tol=1e-6,
        max_epochs=500,
        **options,
    ).fit(X, labels)
    assert_allclose(fit.predict_proba(X_star), again.predict_proba(X_star), atol=5e-3)
    assert_allclose(fit.log_marginal_likelihood_value_, again.log_marginal_likelihood_value_, atol=0.1)


def test_the_evidence_of_a_fit_is_that_of_the_fixed_point():
    X, labels = table(300)
    fit = SEPClassifier(n_inducing=5, batch_size=30, max_epochs=2, random_state=0, n_jobs=1)
    fit.fit(X, labels)
    converged = fit.log_marginal_likelihood(fit.kernel_.theta)
    assert_allclose(fit.log_marginal_likelihood_value_, converged, rtol=1e-5)


def test_minibatches_are_in_single_precision_and_they_in_double_whatever_the_rows(monkeypatch):
    X, labels = table(300)
    seen, sweep = set(), LocalEngine.run

    def noted(self, row_pass, batch=None, *sampler):
        seen.add((batch is not None, row_pass.dtype))
        return sweep(self, row_pass, batch, *sampler)

    replace_sweep(monkeypatch, noted)
    fit = SEPClassifier(n_inducing=5, batch_size=30, max_epochs=2, random_state=0, n_jobs=1)
    for rows in (X, X.astype(np.float32)):
        seen.clear()
        fit.fit(rows, labels)
        assert seen == {(True, FLOAT32), (False, FLOAT64)}


def test_q_stays_in_the_coordinates_that_it_was_trained_in():
    """Whitened by the Cholesky factor of K with the jitter that single precision needs."""
    X, labels = table(300)
    fit = SEPClassifier(n_inducing=5, batch_size=30, max_epochs=2, random_state=0, n_jobs=1)
    model = fit.fit(X, labels).model_
    single, double = (Prior(model.kernel, model.Z, dtype).jitter for dtype in (FLOAT32, FLOAT64))
    assert model.jitter == single > double


def test_rows_that_were_never_visited_get_their_sites_from_them():
    config = resolve(300, n_inducing=8, batch_size=30, max_epochs=0.3)
    with open_rows(*table(300), n_jobs=1) as rows:
        trainer = prepare_trainer(rows, config)
        state, engine = trainer.init(), trainer.engine
        for batch in batches(trainer, config):
            state, _ = trainer.step(state, batch)
        assert (engine.sites.precision == 0).any()
        model = finish(trainer, state, config)
        assert (engine.sites.precision > 0).all()
        assert np.isfinite(engine.log_predictive).all()
        still = converge(engine, model.prior, make_rule(config), tol=1e-3, max_sweeps=1)
    assert still.converged

"""The gradient through K_mm from the summed sites, instead of one more product with all rows."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from cavity import SEPClassifier, SVIClassifier
from cavity.engines.local import LocalEngine
from cavity.gp.likelihoods import NoisyArgmax
from cavity.gp.posterior import NaturalParameters, Posterior
from cavity.inference.converge import converge
from cavity.inference.rule import ExpectationPropagation, Variational
from cavity.inference.sweep import Sweep, SweepOptions, site_gamma
from cavity.inference.updates import NaturalUpdate, gradient
from support import KERNELS, make, make_engine, make_prior, points, replace_sweep, table

KERNEL, M = KERNELS["noisy"], 5
X, LABELS = table(40)
CODES = np.random.default_rng(3).integers(0, 3, 40)
WEIGHT = np.random.default_rng(4).integers(0, 4, 40).astype(float)
PROPAGATION = {"two": ExpectationPropagation(), "three": ExpectationPropagation(NoisyArgmax(3))}
VARIATIONAL = {"two": Variational(), "three": Variational(NoisyArgmax(3))}
both_numbers_of_classes = pytest.mark.parametrize("classes", ["two", "three"])


def engine_of(rule, weight=None):
    return make_engine(X, LABELS if rule.n_latents == 1 else CODES, rule=rule, weight=weight)


def gradients(engine, posterior, options, rule=None):
    """That of the rows and that of the sites, of undamped sites at a q; `rule` takes the rows' part."""
    prior = make_prior(KERNEL, points(M))
    by_rows = (engine if rule is None else engine.fresh()).run(
        Sweep(prior, posterior, rule or engine.rule, options)
    )
    by_sites = engine.run(
        Sweep(prior, posterior, engine.rule, replace(options, whitened_gradient=False))
    )
    assert by_rows.mean_gradient is None
    assert by_sites.whitened_gradient is None
    return (
        gradient(by_rows, prior, posterior),
        gradient(by_sites, prior, posterior, site_gamma(engine.rule, options)),
    )


def some_posterior(n_latents):
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(n_latents, M, M))
    naturals = NaturalParameters(factor @ factor.transpose(0, 2, 1), rng.normal(size=(n_latents, M)))
    return Posterior.from_naturals(naturals)


def assert_same(one, other):
    assert_allclose(one.theta, other.theta, atol=1e-8)
    assert_allclose(one.Z, other.Z, atol=1e-8)


@both_numbers_of_classes
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_of_the_variational_bound_it_is_the_same_at_any_q(classes, weight):
    rule = VARIATIONAL[classes]
    assert_same(*gradients(engine_of(rule, weight), some_posterior(rule.n_latents), SweepOptions()))


@both_numbers_of_classes
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize(
    "options", [{"residual_scale": 0.0}, {"trace_penalty": 0.7}], ids=["no residual", "penalty"]
)
def test_of_the_evidence_it_is_the_same_at_the_fixed_point(classes, weight, options):
    engine, options = engine_of(PROPAGATION[classes], weight), SweepOptions(**options)
    prior = make_prior(KERNEL, points(M))
    point = converge(engine, prior, engine.rule, tol=1e-12, max_sweeps=3000, options=options)
    assert point.converged
    assert_same(*gradients(engine, point.posterior, options))


@dataclass(frozen=True)
class AsIfConverged(ExpectationPropagation):
    """EP with h = −ν̃ wherever q and sites are."""

    def terms(self, labels, at, cavity):
        terms = super().terms(labels, at, cavity)
        return terms._replace(h=-terms.precision)


def test_before_the_fixed_point_all_of_the_gradient_has_the_same_h():
    """Most of what goes through K_mn and of what goes through K_mm cancels: both must be of one kind."""
    engine, options = engine_of(ExpectationPropagation()), SweepOptions(residual_scale=0.0)
    q = some_posterior(1)
    assert_same(*gradients(engine, q, options, rule=AsIfConverged()))
    by_rows, by_sites = gradients(engine, q, options)
    assert np.abs(by_rows.theta - by_sites.theta).max() > 1e-3


@pytest.mark.parametrize(
    ("rule", "options", "gamma"),
    [
        (ExpectationPropagation(), {}, None),
        (ExpectationPropagation(), {"residual_scale": 0.5}, None),
        (ExpectationPropagation(), {"residual_scale": 0.0}, 0.0),
        (ExpectationPropagation(), {"trace_penalty": 0.7}, 0.7),
        (ExpectationPropagation(NoisyArgmax(3)), {}, None),
        (Variational(), {}, 1.0),
        (Variational(), {"residual_scale": 0.5}, 0.5),
        (Variational(NoisyArgmax(3)), {}, 1.0),
    ],
)
def test_what_gamma_is_of_the_precision(rule, options, gamma):
    assert site_gamma(rule, SweepOptions(**options)) == gamma


def test_damped_sites_leave_the_bracket_to_the_rows():
    update, options = NaturalUpdate(gamma=0.0), SweepOptions(residual_scale=0.0)
    assert update.options(options, 1.0) == replace(options, whitened_gradient=False)
    assert update.options(options, 0.5) == replace(options, damping=0.5)
    assert NaturalUpdate().options(options, 1.0) is options


MINIBATCHES = {"n_inducing": 6, "batch_size": 60, "max_epochs": 1, "random_state": 0}
MANY_X, MANY_LABELS = table(600)


@pytest.mark.parametrize(
    ("kind", "options", "summed_up"),
    [
        (SEPClassifier, {}, True),
        (SEPClassifier, {"batch_size": 11}, False),
        (SEPClassifier, {"residual_scale": 1.0, "trace_penalty": 0.0}, False),
        (SEPClassifier, {"exact_gradient": True}, False),
        (SEPClassifier, {"damping": 0.5}, False),
        (SEPClassifier, {"site_storage": "factors"}, False),
        (SVIClassifier, {}, True),
        (SVIClassifier, {"batch_size": 11}, False),
    ],
    ids=["EP", "few rows", "residual", "exact", "damped", "factors", "VI", "VI, few rows"],
)
def test_which_minibatches_have_it(monkeypatch, kind, options, summed_up):
    brackets = set()

    def seen(self, row_pass, batch=None, *sampler, sweep=LocalEngine.run):
        if batch is not None and row_pass.options.gradient:
            brackets.add(row_pass.options.whitened_gradient)
        return sweep(self, row_pass, batch, *sampler)

    replace_sweep(monkeypatch, seen)
    make(kind, **{**MINIBATCHES, **options}).fit(MANY_X, MANY_LABELS)
    assert brackets == {not summed_up}

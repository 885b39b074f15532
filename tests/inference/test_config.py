"""What `resolve` decides: the rules that the classifiers document, and the settings it refuses."""

import json
import math
from dataclasses import fields, replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from cavity import GFITCClassifier, SEPClassifier, SVIClassifier
from cavity.inference import Adadelta, Adam, SignRates, TrainingConfig, resolve
from cavity.inference.config_checks import SETTABLE, check_fields
from support import make, table

X, LABELS = table(200)
SVI, FACTORS, ALL = {"method": "vi"}, {"site_storage": "factors"}, {"batch_size": None}

DECISIONS = [
    # Rows of a step: 5m, 1,000 or a thousandth of the rows, at most 20m; all rows if that is all.
    ((1_000, 2), {}, {"batch_size": None, "schedule": "steps", "optimizer": Adam(0.1)}),
    ((60_000, 2), {}, {"batch_size": 1_000, "optimizer": Adam(0.02), "smallest_gain": 0.1}),
    ((4_000, 2), {}, {"batch_size": 1_000, "optimizer": Adam(0.05), "smallest_gain": 0.25}),
    ((2_000, 2), {"n_inducing": 400}, {"batch_size": None}),
    ((60_000, 2), {"n_inducing": 400}, {"batch_size": 2_000}),
    ((60_000, 2), {"n_inducing": 20}, {"batch_size": 400}),
    ((10**7, 2), {"n_inducing": 1_000}, {"batch_size": 10_000}),
    ((100, 2), {"batch_size": 1_000}, {"batch_size": 100, "subsample": 1.0}),
    ((60_000, 2), ALL, {"batch_size": None, "validation_fraction": 0.1}),
    # Budgets: 200 steps on all rows (VI: 250); 3,000 minibatches and two epochs at least.
    ((500, 2), {}, {"max_epochs": 200.0, "max_seconds": math.inf, "full_rate_steps": 0.0}),
    ((500, 2), SVI, {"max_epochs": 250.0, "trace_penalty": 0.0, "damping": 1.0}),
    ((60_000, 2), {}, {"max_epochs": 50.0, "full_rate_steps": 3_000.0}),
    ((10**8, 2), {}, {"max_epochs": 2.0}),
    ((2_000, 2), {}, {"max_epochs": 400.0}),
    ((60_000, 2), {"max_seconds": 9}, {"max_epochs": math.inf, "max_seconds": 9.0}),
    ((60_000, 2), {"max_seconds": 9, "max_epochs": 3}, {"max_epochs": 3.0, "max_seconds": 9.0}),
    # The model is the same at every number of rows.
    ((500, 2), {}, {"residual_scale": 1.0, "trace_penalty": 1.0, "kernel_name": "matern32"}),
    ((10**6, 3), {}, {"residual_scale": 1.0, "trace_penalty": 1.0, "kernel_name": "matern32"}),
    ((60_000, 2), {}, {"scaling": "robust", "n_inducing": 100}),
    ((60_000, 2), {"kernel_name": None}, {"scaling": "standard", "kernel_name": None}),
    ((60_000, 2), SVI, {"validation_fraction": 0.1, "trace_penalty": 0.0}),
    # Held-out rows: 5 %, 500 to 20,000 of them, none of fewer than 2,000 rows.
    ((1_999, 2), {}, {"validation_fraction": 0.0}),
    ((2_000, 2), {}, {"validation_fraction": 0.25}),
    ((10**6, 2), {}, {"validation_fraction": 0.02}),
    ((60_000, 2), {"validation_fraction": None}, {"validation_fraction": 0.0}),
    ((60_000, 2), {"early_stopping": "loo"}, {"validation_fraction": 0.0}),
    ((60_000, 2), FACTORS, {"validation_fraction": 0.0, "trace_penalty": 0.0}),
    ((60_000, 2), {"optimizer": None}, {"validation_fraction": 0.0}),
    ((60_000, 2), {"residual_scale": 0.4}, {"residual_scale": 0.4}),
    ((60_000, 2), FACTORS, {"damping": 0.99, "cools": False, "subsample": 1.0}),
    # Early stopping: on the rows that validation_fraction holds out.
    ((500, 2), {}, {"early_stopping": None}),
    ((60_000, 2), {"validation_fraction": 0.2}, {"early_stopping": "validation", "residual_scale": 1.0}),
    ((500, 2), {"early_stopping": "loo"}, {"early_stopping": "loo"}),
    # Damping: half of a site's refinement on all rows, all of it in minibatches.
    ((500, 2), {}, {"damping": 0.5, "rebuild_posterior": True}),
    ((60_000, 2), {}, {"damping": 1.0, "rebuild_posterior": False}),
    ((500, 3), SVI, {"damping": 0.5}),
    ((500, 2), {"damping": 0.3}, {"damping": 0.3}),
    # What moves: nothing without an optimiser; an object sets its own learning rate.
    ((60_000, 2), {"optimizer": None}, {"schedule": "converge", "batch_size": None}),
    ((500, 2), {"optimizer": None}, {"learn_kernel": False, "learn_inducing": False}),
    ((500, 2), {"learn_inducing": False}, {"learn_kernel": True, "learn_inducing": False}),
    ((60_000, 2), {"optimizer": Adam(0.5)}, {"optimizer": Adam(0.5), "full_rate_steps": 0.0}),
    ((500, 2), {"optimizer": "lbfgs"}, {"schedule": "lbfgs", "optimizer": None, "trace_penalty": 0.0}),
    ((500, 2), {**SVI, "posterior_update": "gradient"}, {"schedule": "lbfgs", "optimizer": None}),
    ((60_000, 2), {**SVI, "posterior_update": "gradient"}, {"optimizer": Adadelta(), "subsample": 1.0}),
]


@pytest.mark.parametrize(("shape", "given", "expected"), DECISIONS)
def test_what_is_decided(shape, given, expected):
    config = resolve(*shape, **given)
    assert {name: getattr(config, name) for name in expected} == expected


def test_nothing_is_left_undecided():
    for shape, given, _ in DECISIONS:
        assert "auto" not in resolve(*shape, **given).as_dict().values()


def test_latent_functions_are_one_for_two_classes_and_else_as_many_as_classes():
    assert [resolve(500, n).n_latents for n in (2, 3, 10)] == [1, 3, 10]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (SEPClassifier, {"n_inducing": 6}),
        (SEPClassifier, {"n_inducing": 6, "batch_size": 50, "max_epochs": 1, "damping": 0.7}),
        (SVIClassifier, {"n_inducing": 6, "batch_size": 50, "max_epochs": 1}),
        (SVIClassifier, {"n_inducing": 6, "batch_size": 50, "max_epochs": 1, "likelihood": "logit"}),
    ],
    ids=str,
)
def test_a_fit_follows_what_is_resolved(kind, options):
    method = "vi" if kind is SVIClassifier else "ep"
    model = make(kind, **options, random_state=3, n_jobs=1).fit(X, LABELS)
    assert model.config_ == resolve(len(X), method=method, seed=3, **options)


def test_gfitc_climbs_with_lbfgs():
    config = make(GFITCClassifier, n_inducing=5, tol=1e-2, random_state=0).fit(X, LABELS).config_
    assert (config.schedule, config.optimizer, config.batch_size) == ("lbfgs", None, None)


REFUSED = [
    ({"damping": 0.0}, r'damping=0\.0 .* a number in \(0, 1\] or "auto"'),
    ({"damping": True}, "damping=True is not possible"),
    ({"batch_size": 2.5}, 'batch_size=2.5 .* a whole number from 1, "auto" or None'),
    ({"batch_size": 0}, "batch_size=0 is not possible"),
    ({"n_inducing": 0}, "n_inducing=0 .* a whole number from 1"),
    ({"optimizer": "sgd"}, r"optimizer='sgd' .* cavity\.inference\.Adam\(0\.01\)"),
    (
        {"scaling": "minmax"},
        'scaling=\'minmax\' .* "auto", "standard", "robust", "quantile", "whiten" or None',
    ),
    ({"max_epochs": 0}, "max_epochs=0 .* a positive number or None"),
    ({"validation_fraction": 1.0}, r"validation_fraction=1\.0 .* in \(0, 1\), .auto. or None"),
    ({"tol": -1.0}, "tol=-1.0 .* a number from 0"),
    ({"n_classes": 3, "likelihood": "logit"}, "likelihood='logit' is for two classes and y has 3"),
    ({"optimizer": None, "early_stopping": "loo"}, "early_stopping='loo' .* optimizer=None"),
    ({"optimizer": None, "validation_fraction": 0.1}, "optimizer=None.* leave .*validation_fraction"),
    ({"optimizer": "lbfgs", "validation_fraction": 0.1}, "'validation' .* L-BFGS over all rows"),
    ({"optimizer": "lbfgs", "early_stopping": "loo"}, "early_stopping='loo' .* L-BFGS over all rows"),
    ({"posterior_update": "gradient"}, "does not go with EP.* use SVIClassifier"),
    ({**SVI, "posterior_update": "gradient", "damping": 0.5}, "damping=0.5 .* leave it out"),
    (
        {**SVI, "posterior_update": "gradient", "optimizer": SignRates()},
        "SignRates.* does not go with L-BFGS",
    ),
    ({**SVI, **FACTORS}, "site_storage='factors' belongs to EP"),
    ({**SVI, "exact_gradient": True}, "exact_gradient=True belongs to EP"),
    ({**SVI, "trace_penalty": 0.5}, "trace_penalty=0.5 belongs to EP"),
    ({**SVI, "residual_scale": 0.0}, "residual_scale=0.0 belongs to EP; leave it out"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED, ids=[str(given) for given, _ in REFUSED])
def test_what_is_impossible_is_refused_with_a_way_out(given, words):
    with pytest.raises(ValueError, match=words):
        resolve(500, **given)


def test_a_field_that_does_not_exist_is_named_with_one_like_it():
    with pytest.raises(ValueError, match=r"no field 'dampening'.*damping.*the fields are .*tol"):
        check_fields({"dampening": 0.5})
    with pytest.raises(ValueError, match="no field 'dampening'"):
        SEPClassifier(config={"dampening": 0.5}).fit(X, LABELS)


def test_what_can_be_set_is_part_of_the_configuration():
    assert set(SETTABLE) <= {field.name for field in fields(TrainingConfig)}


NUMPY = {
    "n_inducing": np.int64(50),
    "batch_size": np.int32(500),
    "max_epochs": np.float32(3.0),
    "hyperprior_scale": np.float32(2.0),
    "validation_fraction": np.float32(0.25),
    "seed": np.int64(3),
}


@pytest.mark.parametrize("given", [{}, {"optimizer": None}, {"max_seconds": 5.0}, NUMPY], ids=str)
def test_as_dict_is_plain_enough_for_json(given):
    config = resolve(np.int64(60_000), np.int64(2), **given)
    plain = config.as_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert tuple(plain) == tuple(field.name for field in fields(TrainingConfig))
    assert str(config).splitlines()[0] == "method: ep"


@pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier])
def test_the_configuration_of_a_fit_repeats_it_to_the_bit(kind):
    """Of minibatches with a random seed, which is part of the configuration."""
    first = kind(n_inducing=6, batch_size=40, max_epochs=3, n_jobs=1).fit(X, LABELS)
    again = kind(config=first.config_, n_jobs=1).fit(X, LABELS)
    assert again.config_ == first.config_
    assert_array_equal(again.kernel_.theta, first.kernel_.theta)
    assert_array_equal(again.predict_log_proba(X), first.predict_log_proba(X))
    other = kind(config=replace(first.config_, seed=first.config_.seed + 1), n_jobs=1).fit(X, LABELS)
    assert np.abs(other.predict_log_proba(X) - first.predict_log_proba(X)).max() > 0.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"config": {"batch_size": 20}}, "config sets 'batch_size'; set batch_size of SEPClassifier"),
        ({"config": {"n_inducing": 20}}, "config sets 'n_inducing'; set n_inducing of SEPClassifier"),
        ({"config": {"inducing_init": "random"}}, "config sets 'inducing_init'; set inducing_points"),
        ({"config": resolve(200), "batch_size": 20}, "batch_size=20 and a whole TrainingConfig"),
        ({"config": resolve(200), "n_inducing": 20}, "n_inducing=20 and a whole TrainingConfig"),
    ],
    ids=["size", "number", "init", "whole and size", "whole and number"],
)
def test_a_field_that_is_set_twice_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        SEPClassifier(**options).fit(X, LABELS)


@pytest.mark.parametrize("given", [SVI, {"n_classes": 3}], ids=str)
def test_a_configuration_for_something_else_is_refused(given):
    with pytest.raises(ValueError, match=r"config is for method='(ep|vi)' and \d classes; this is"):
        SEPClassifier(config=resolve(200, **given)).fit(X, LABELS)


def test_own_validation_rows_take_the_place_of_held_out_ones():
    config = resolve(60_000, own_validation=True)
    assert (config.validation_fraction, config.early_stopping) == (0.0, "validation")
    assert resolve(60_000, own_validation=True, early_stopping=None).early_stopping is None


def test_of_several_sets_of_features_the_first_is_used():
    assert resolve(100, feature_sets=("columns", "effects")).feature_set == "columns"
    assert (
        resolve(100, feature_sets=("columns", "effects"), feature_set="effects").feature_set == "effects"
    )
    assert resolve(100).feature_set is None

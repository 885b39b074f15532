"""A training loop of one's own: the same model as that of the classifier with the same settings."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from cavity import SEPClassifier, SVIClassifier
from cavity.data import ArraySource
from cavity.inference import (
    batches,
    finish,
    open_rows,
    prepare_trainer,
    resolve,
    validation_score,
)
from support import KERNELS, make, table

X, LABELS = table(300)
NAMES = np.array(["no", "yes"])[LABELS]
CODES = np.digitize(np.sin(2 * X[:, 0]) + X[:, 1], [-0.5, 0.5])
X_STAR, _ = table(50, seed=5)


def own_loop(y, weight=None, *, kernel=None, inducing_points=None, **given):
    """The loop of the documentation, and the number of its steps."""
    with open_rows(X, y, weight, n_jobs=1) as rows:
        config = resolve(rows.n_rows, rows.n_classes, seed=3, **given)
        trainer = prepare_trainer(rows, config, kernel=kernel, inducing_points=inducing_points)
        state, steps = trainer.init(), 0
        for batch in batches(trainer, config):
            state, info = trainer.step(state, batch)
            steps += info is not None
        return finish(trainer, state, config), steps


MINIBATCHES = {"n_inducing": 8, "batch_size": 50, "max_epochs": 4}


@pytest.mark.parametrize(
    ("method", "y", "given"),
    [
        ("ep", LABELS, MINIBATCHES),
        ("ep", NAMES, {**MINIBATCHES, "likelihood": "logit"}),
        ("ep", CODES, MINIBATCHES),
        ("ep", LABELS, {"n_inducing": 8, "max_epochs": 12, "tol": 0.0}),
        ("ep", LABELS, {**MINIBATCHES, "site_storage": "factors"}),
        ("vi", LABELS, MINIBATCHES),
        ("vi", LABELS, {**MINIBATCHES, "posterior_update": "gradient"}),
    ],
    ids=["minibatches", "logit", "three classes", "all rows", "factors", "VI", "VI, gradient"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_it_ends_where_the_classifier_ends(method, y, given):
    model, steps = own_loop(y, method=method, **given)
    kind = SVIClassifier if method == "vi" else SEPClassifier
    # The classifier keeps the best state, which is the last one in these runs.
    fit = make(kind, **given, random_state=3, n_jobs=1).fit(X, y)
    assert steps == fit.n_iter_
    assert_allclose(model.kernel.theta, fit.kernel_.theta, rtol=1e-9, atol=1e-12)
    assert_allclose(model.Z, fit.model_.Z, rtol=1e-9, atol=1e-12)
    assert_allclose(model.inverse_temperature, fit.inverse_temperature_, rtol=1e-9)
    moments = model.latent_moments(X_STAR)
    assert_allclose(
        model.likelihood.predict_log_proba(*moments), fit.predict_log_proba(X_STAR), rtol=1e-7
    )


def test_weights_kernel_and_points_are_those_given():
    weight = np.arange(300) % 3.0
    given = {**MINIBATCHES, "scaling": None}
    model, _ = own_loop(LABELS, weight, kernel=KERNELS["noisy"], inducing_points=X[:6], **given)
    options = {**given, "n_inducing": 100, "inducing_points": X[:6], "random_state": 3, "n_jobs": 1}
    fit = make(SEPClassifier, KERNELS["noisy"], **options).fit(X, LABELS, weight)
    assert_allclose(model.Z, fit.model_.Z, rtol=1e-9)
    assert_allclose(model.kernel.theta, fit.kernel_.theta, rtol=1e-9)


def test_rows_know_their_classes_and_their_number():
    with open_rows(X, NAMES, n_jobs=1) as rows:
        assert (rows.n_rows, rows.n_classes) == (300, 2)
        assert rows.classes.tolist() == ["no", "yes"]
    with open_rows(ArraySource(X, LABELS), n_jobs=1) as rows:
        assert (rows.n_rows, rows.n_classes) == (300, 2)


def test_held_out_rows_judge_a_state():
    with open_rows(X, LABELS, n_jobs=1) as rows:
        config = resolve(rows.n_rows, **MINIBATCHES, validation_fraction=0.2, seed=0)
        trainer = prepare_trainer(rows, config)
        state = trainer.init()
        before = validation_score(trainer, state).log_loss
        for batch in batches(trainer, config):
            state, _ = trainer.step(state, batch)
        assert_allclose(before, np.log(2.0), rtol=1e-2)
        assert validation_score(trainer, state).log_loss < 0.7 * before


def test_without_held_out_rows_there_is_nothing_to_judge_by():
    with open_rows(X, LABELS, n_jobs=1) as rows:
        trainer = prepare_trainer(rows, resolve(rows.n_rows, **MINIBATCHES))
        with pytest.raises(ValueError, match=r"resolve\(\.\.\., validation_fraction=0\.1\)"):
            validation_score(trainer, trainer.init())


def test_a_configuration_for_a_kernel_of_ones_own_needs_one():
    config = resolve(len(X), n_inducing=3, kernel_name=None)
    with (
        open_rows(X, LABELS, n_jobs=1) as rows,
        pytest.raises(ValueError, match="kernel_name=None is for a kernel of your own"),
    ):
        prepare_trainer(rows, config)

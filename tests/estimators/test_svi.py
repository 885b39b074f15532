"""SVIClassifier: the bound as a scikit-learn classifier, with the surface of SEPClassifier."""

import inspect
import re
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.utils.estimator_checks import parametrize_with_checks

from cavity import GFITCClassifier, SEPClassifier, SVIClassifier
from cavity.engines.local import LocalEngine
from cavity.estimators import base
from cavity.inference import loop, train
from cavity.inference.config import resolve
from cavity.inference.history import Iteration
from cavity.inference.optimizers import Adadelta, Adam
from reference import central_differences, exact_log_evidence
from support import evidence_differences, make, replace_sweep, signs, table

X, LABELS = table(120)
X_STAR, LABELS_STAR = table(200, seed=9)
KERNEL = ConstantKernel(1.5) * RBF([0.8, 1.2]) + WhiteKernel(0.1)
quietly = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
both_updates = pytest.mark.parametrize("posterior_update", ["natural", "gradient"])
both_likelihoods = pytest.mark.parametrize("likelihood", ["probit", "logit"])


def classifier(**options):
    return make(SVIClassifier, **{"n_inducing": 10, "random_state": 0, "n_jobs": 1, **options})


def nll(model):
    return -model.predict_log_proba(X_STAR)[np.arange(200), LABELS_STAR].mean()


@pytest.fixture(scope="module")
def sep():
    return SEPClassifier(n_inducing=10, random_state=0, n_jobs=1).fit(X, LABELS)


@quietly
@parametrize_with_checks(
    [
        SVIClassifier(n_inducing=8, max_epochs=25),
        SVIClassifier(n_inducing=8, max_epochs=40, config={"posterior_update": "gradient"}),
        SVIClassifier(n_inducing=8, batch_size=20, max_epochs=4),
    ]
)
def test_every_check_of_scikit_learn(estimator, check):
    if estimator.batch_size == 20 and "sample_weight_equivalence" in str(check):
        pytest.skip("minibatches draw rows, and in float32: copies are weights on average only")
    check(estimator)


@quietly
@both_updates
@both_likelihoods
@pytest.mark.parametrize("batch_size", [None, 20])
def test_learns(sep, posterior_update, likelihood, batch_size):
    model = classifier(
        posterior_update=posterior_update,
        likelihood=likelihood,
        batch_size=batch_size,
        max_epochs=None if batch_size is None else 100,
    ).fit(X, LABELS)
    assert nll(model) < nll(sep) + 0.06
    assert model.score(X_STAR, LABELS_STAR) > 0.85


@pytest.mark.parametrize("rivals", [SVIClassifier(), GFITCClassifier()], ids=["svi", "gfitc"])
def test_rivals_have_the_surface_of_sep(sep, rivals):
    """Same public methods, signatures, fitted attributes and records, so that they can be exchanged."""
    rivals.set_params(n_inducing=10, random_state=0, n_jobs=1).fit(X, LABELS)

    def public(model):
        names = {name for name in dir(model) if not name.startswith("_") and hasattr(model, name)}
        return names - set(model.get_params())

    of_streams = {"partial_fit", "set_partial_fit_request"} - public(rivals)
    assert public(rivals) == public(sep) - of_streams
    assert bool(of_streams) == isinstance(rivals, GFITCClassifier)
    for name in public(rivals):
        theirs, ours = getattr(rivals, name), getattr(sep, name)
        if inspect.ismethod(ours):
            theirs, ours = (dict(inspect.signature(one).parameters) for one in (theirs, ours))
            if of_streams and name == "fit":  # no training steps that validation rows could judge
                ours = {key: one for key, one in ours.items() if not key.endswith("_val")}
            assert theirs == ours, name
        else:
            assert np.shape(theirs) == np.shape(ours) or name in {"history_", "n_iter_"}, name
    assert all(type(record) is Iteration for record in rivals.history_ + sep.history_)


@pytest.mark.parametrize("rivals", [SVIClassifier, GFITCClassifier])
def test_parameters_of_rivals_have_the_names_and_kinds_of_those_of_sep(rivals):
    ours, theirs = (inspect.signature(kind).parameters for kind in (SEPClassifier, rivals))
    own = {"max_iter", "tol"} if rivals is GFITCClassifier else set()
    assert set(theirs) - set(ours) == own
    for name in set(theirs) - own:
        assert theirs[name].kind == ours[name].kind
        if name != "optimizer":
            assert theirs[name].default == ours[name].default, name
    missing = set(ours) - set(theirs)
    unsaid = {name for name in missing if not re.search(rf"\b{name}\b", rivals.__doc__)}
    assert not unsaid, "the docstring says which parameters of SEPClassifier there are not"


@quietly
@both_updates
def test_the_value_is_a_bound_on_the_evidence(posterior_update):
    rows, labels = table(7, seed=1)
    model = classifier(
        kernel=KERNEL,
        inducing_points=rows[:3],
        posterior_update=posterior_update,
        scaling=None,
        hyperprior_scale=None,
    ).fit(rows, labels)
    exact = exact_log_evidence(model.kernel_(rows), signs(labels))
    assert model.log_marginal_likelihood_value_ < exact


@both_likelihoods
def test_log_marginal_likelihood_at_theta_and_its_gradient(likelihood):
    model = classifier(kernel=KERNEL, likelihood=likelihood, optimizer=None, tol=1e-9).fit(X, LABELS)
    theta = KERNEL.theta + 0.1
    value, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
    assert_allclose(value, model.log_marginal_likelihood(theta))
    differences = central_differences(model.log_marginal_likelihood, theta, step=1e-4)
    assert_allclose(gradient, differences, atol=1e-4)
    assert_allclose(
        model.log_marginal_likelihood(KERNEL.theta), model.log_marginal_likelihood_value_, atol=1e-5
    )


@quietly
@both_updates
def test_training_raises_the_bound(posterior_update):
    options = {"hyperprior_scale": None, "kernel": KERNEL, "posterior_update": posterior_update}
    start = classifier(optimizer=None, **options).fit(X, LABELS).log_marginal_likelihood_value_
    trained = classifier(**options).fit(X, LABELS)
    assert trained.log_marginal_likelihood_value_ > start + 1.0


@quietly
def test_both_updates_learn_about_the_same():
    natural = classifier(hyperprior_scale=None, kernel=KERNEL, max_epochs=400, tol=1e-6).fit(X, LABELS)
    plain = classifier(
        hyperprior_scale=None, kernel=KERNEL, max_epochs=1000, tol=1e-9, posterior_update="gradient"
    ).fit(X, LABELS)
    assert_allclose(
        natural.log_marginal_likelihood_value_, plain.log_marginal_likelihood_value_, atol=0.05
    )
    assert abs(nll(natural) - nll(plain)) < 0.002


def test_minibatches_of_plain_gradients_use_adadelta_by_default():
    """As in the paper."""
    options = {"posterior_update": "gradient", "batch_size": 20, "max_epochs": 3}
    auto = classifier(**options).fit(X, LABELS)
    named = classifier(optimizer=Adadelta(), **options).fit(X, LABELS)
    adam = classifier(optimizer=Adam(0.02), **options).fit(X, LABELS)
    assert auto.config_.optimizer == Adadelta()
    assert_allclose(auto.predict_proba(X_STAR), named.predict_proba(X_STAR), atol=1e-9)
    assert np.abs(auto.predict_proba(X_STAR) - adam.predict_proba(X_STAR)).max() > 1e-4


@quietly
@pytest.mark.parametrize(
    "options",
    [
        {"checkpoint": "fit.ckpt", "checkpoint_interval": 0.0},
        {"early_stopping": "validation"},
        {"early_stopping": "loo"},
        {"validation_fraction": 0.2},
        {"max_seconds": 1e-9, "max_epochs": 100_000, "tol": 0.0},
        {"max_epochs": 3},
        {"max_epochs": 0.5},
        {"optimizer": Adam(0.5)},
        {"damping": 0.1},
    ],
    ids=str,
)
def test_plain_gradients_over_all_rows_heed_what_they_are_given_or_say_that_they_do_not(
    tmp_path, monkeypatch, options
):
    """An option that L-BFGS cannot follow must not be dropped in silence."""
    monkeypatch.chdir(tmp_path)
    model = classifier(posterior_update="gradient", **options)
    complaint = complaint_of(model)
    name = next(iter(options))
    if name == "max_seconds":
        assert complaint is None
        assert model.n_iter_ <= 1
    elif name == "max_epochs":
        assert complaint is None
        assert model.n_iter_ <= max(1, options["max_epochs"])
    else:
        assert {"validation_fraction": "validation"}.get(name, name) in str(complaint)


def test_what_goes_by_the_number_of_rows_is_refused_before_any_work(monkeypatch):
    def work(*_, **__):
        pytest.fail("work has been done first")

    for name in ("hold_out_rows", "learn_scaling", "chosen_start"):
        monkeypatch.setattr(base, name, work)
    with pytest.raises(ValueError, match=r"optimizer=Adam\(learning_rate=0\.1.* does not go with"):
        classifier(posterior_update="gradient", optimizer=Adam(0.1)).fit(X, LABELS)
    for batch_size in (None, 20):
        with pytest.raises(ValueError, match=r"damping=0\.1 does not go with"):
            classifier(posterior_update="gradient", damping=0.1, batch_size=batch_size).fit(X, LABELS)


def complaint_of(model):
    try:
        model.fit(X, LABELS)
    except ValueError as error:
        return error
    return None


@quietly
@pytest.mark.parametrize("batch_size", [20, None])
def test_plain_gradients_of_q_alone_end_where_natural_steps_do(batch_size):
    """To keep the kernel, minibatches have nothing to say."""
    labels = np.digitize(X[:, 0], [-0.4, 0.6])
    options = {"optimizer": None, "batch_size": batch_size, "max_epochs": 2000}
    plain = classifier(posterior_update="gradient", tol=1e-9, **options).fit(X, labels)
    natural = classifier(tol=1e-9, **options).fit(X, labels)
    assert_allclose(plain.predict_proba(X_STAR), natural.predict_proba(X_STAR), atol=1e-4)


@quietly
def test_the_bound_of_three_classes_has_its_gradient_whatever_the_update():
    labels = np.digitize(X[:, 0], [-0.4, 0.6])
    model = classifier(posterior_update="gradient", max_epochs=10).fit(X, labels)
    theta = model.kernel_.theta
    _, slope = model.log_marginal_likelihood(theta, eval_gradient=True)
    assert_allclose(slope, evidence_differences(model, theta), atol=1e-4)


@quietly
def test_of_three_classes_it_is_found_in_few_sweeps_whatever_the_update(monkeypatch):
    """By centred sites: those that are the gradient of plain steps would creep there."""
    labels = np.digitize(X[:, 0], [-0.4, 0.6])
    model = classifier(posterior_update="gradient", max_epochs=10).fit(X, labels)
    sweeps, sweep = [], LocalEngine.run

    def counted(self, *args):
        sweeps.append(args)
        return sweep(self, *args)

    replace_sweep(monkeypatch, counted)
    model.log_marginal_likelihood(model.kernel_.theta + 0.1)
    assert len(sweeps) < 100


@quietly
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "options",
    [{"max_epochs": 3}, {"batch_size": 20, "max_epochs": 1, "validation_fraction": 0.2}],
    ids=str,
)
def test_rows_can_be_left_out_of_a_q_that_is_far_from_its_best(n_classes, options):
    """Early in a run by gradients q is wider than all rows together would make it."""
    labels = LABELS if n_classes == 2 else np.digitize(X[:, 0], [-0.4, 0.6])
    wide = ConstantKernel(100.0) * RBF([1.0, 1.0])
    model = classifier(kernel=wide, posterior_update="gradient", **options).fit(X, labels)
    assert model.loo_log_proba_.min() > -50.0
    held_out = model._training.held_out
    kept = np.ones(120, dtype=bool) if held_out is None else ~held_out.mask(120)
    assert_allclose(-model.loo_log_loss_, model.loo_log_proba_[kept].mean())
    assert min(entry.leave_one_out for entry in model.history_) > -10.0


@pytest.mark.parametrize("posterior_update", ["natural", "gradient"])
def test_sweeps_that_would_outlast_max_seconds_are_left_out(monkeypatch, posterior_update):
    sweep = LocalEngine.run

    def of_minibatches(self, row_pass, batch=None, *args):
        assert batch is not None, "a sweep over all rows"
        return sweep(self, row_pass, batch, *args)

    def slow(*arguments, run=loop.run):
        return replace(run(*arguments), seconds_per_epoch=1e6)

    replace_sweep(monkeypatch, of_minibatches)
    monkeypatch.setattr(train, "run", slow)
    options = {"batch_size": 20, "max_seconds": 0.2}
    model = classifier(posterior_update=posterior_update, **options).fit(X, LABELS)
    assert np.isnan(model.log_marginal_likelihood_value_)
    assert_allclose(-model.loo_log_loss_, model.history_[-1].leave_one_out)


@pytest.mark.parametrize("kind", [SVIClassifier, SEPClassifier])
def test_the_value_of_a_minibatch_fit_is_that_at_its_own_theta(kind):
    """Its jitter is that of float32, and near-copies among the inducing points let that matter."""
    rows, labels = table(400)
    options = {"learn_inducing": False, "batch_size": 50, "max_epochs": 3, "random_state": 0}
    kernel = 100.0 * RBF([2.0, 2.0])
    model = make(kind, kernel, n_inducing=100, n_jobs=1, **options).fit(rows, labels)
    assert model.model_.jitter > 1e-6
    assert_allclose(
        model.log_marginal_likelihood(model.kernel_.theta),
        model.log_marginal_likelihood_value_,
        atol=1e-3,
    )


@pytest.mark.parametrize(
    ("n_classes", "batch_size", "damping"), [(2, None, 1.0), (3, None, 0.5), (3, 20, 1.0)]
)
def test_steps_are_whole_but_for_many_classes_on_all_rows(n_classes, batch_size, damping):
    assert resolve(120, n_classes, method="vi", batch_size=batch_size).damping == damping

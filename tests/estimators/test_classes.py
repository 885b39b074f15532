"""Three classes and more, in every estimator and schedule."""

import numpy as np
import pandas
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits, load_iris
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import log_loss

from cavity import GFITCClassifier, SEPClassifier, SVIClassifier, TableClassifier, load, save
from cavity.data import ArraySource
from cavity.gp.likelihoods import NoisyArgmax
from cavity.inference.optimizers import Adam
from cavity.inference.rule import ExpectationPropagation, Variational
from cavity.inference.sweep import Sweep, SweepOptions
from cavity.inference.updates import GaussianSpace, bound_gradient, objective
from reference import central_differences
from support import fixed_point, make, make_engine, make_prior, points, table, value_and_gradient

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

KINDS = {
    "sep": (SEPClassifier, {"max_epochs": 15}),
    "sep-minibatch": (SEPClassifier, {"batch_size": 50, "max_epochs": 4}),
    "sep-factors": (SEPClassifier, {"batch_size": 50, "max_epochs": 4, "site_storage": "factors"}),
    "svi": (SVIClassifier, {"max_epochs": 15}),
    "svi-minibatch": (SVIClassifier, {"batch_size": 50, "max_epochs": 4}),
    "svi-gradient": (SVIClassifier, {"posterior_update": "gradient", "max_epochs": 40}),
    "gfitc": (GFITCClassifier, {"max_epochs": 3}),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
X, CODES = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])


def classifier(kind, **more):
    cls, parameters = KINDS[kind]
    return make(cls, **{"n_inducing": 8, "random_state": 0, "n_jobs": 1, **parameters, **more})


@pytest.fixture(scope="module")
def fitted():
    return {kind: classifier(kind).fit(X, NAMES[CODES]) for kind in KINDS}


@every_kind
def test_shapes_and_sums(kind, fitted):
    model = fitted[kind]
    assert_array_equal(model.classes_, NAMES)
    p = model.predict_proba(X)
    assert p.shape == (150, 3)
    assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    assert model.score(X, NAMES[CODES]) > 0.9
    assert_array_equal(model.predict(X), NAMES[model.decision_function(X).argmax(axis=1)])
    mean, variance = model.latent_mean_and_variance(X)
    assert mean.shape == variance.shape == (150, 3)
    draws = model.sample_latent(X[:4], 3000, random_state=0)
    assert draws.shape == (4, 3, 3000)
    assert_allclose(draws.mean(axis=2), mean[:4], atol=0.25)
    assert_allclose(draws.var(axis=2), variance[:4], rtol=0.15)
    assert model.loo_log_proba_.shape == (150,)
    assert (model.loo_log_proba_ < 0.0).all()
    assert np.isfinite(model.log_marginal_likelihood_value_)


@every_kind
def test_every_class_is_reachable(kind, fitted):
    assert set(fitted[kind].predict(X)) == set(NAMES)


@every_kind
def test_other_names_for_the_classes_only_reorder_them(kind, fitted):
    new_names = np.array(["c", "a", "b"])  # sorts into another order
    again = classifier(kind).fit(X, new_names[CODES])
    order = np.argsort(new_names)
    assert_allclose(again.predict_proba(X), fitted[kind].predict_proba(X)[:, order], atol=2e-3)
    assert_array_equal(again.predict(X), new_names[order][again.predict_proba(X).argmax(axis=1)])


@pytest.mark.parametrize("kind", ["sep", "sep-minibatch", "svi"])
def test_threads_do_not_change_the_result(kind, fitted):
    again = classifier(kind, n_jobs=3).fit(X, NAMES[CODES])
    assert_array_equal(again.predict_proba(X), fitted[kind].predict_proba(X))


@pytest.mark.parametrize("kind", ["sep", "sep-minibatch", "svi", "gfitc"])
def test_a_class_with_two_rows(kind):
    rows = np.r_[0:50, 50:100, 100:102]
    model = classifier(kind).fit(X[rows], CODES[rows])
    p = model.predict_proba(X)
    assert_allclose(p.sum(axis=1), 1.0)
    assert (p > 0.0).all()
    far = X[CODES == 2].max(axis=0) + 1.0  # beyond all rows, on the side of the small class
    assert p[CODES == 2, 2].mean() > 3.0 * p[CODES == 0, 2].mean()
    assert_allclose(model.predict_proba([far + 1e3]), 1.0 / 3.0, atol=1e-3)


@pytest.mark.parametrize("cls", [SEPClassifier, SVIClassifier])
def test_a_row_twice_is_a_row_of_weight_two(cls):
    rows = np.arange(0, 150, 3)
    weight = np.ones(len(rows))
    weight[::2] = 2.0
    copies = np.repeat(rows, weight.astype(int))
    given = {"optimizer": None, "inducing_points": X[::25], "scaling": None, "tol": 1e-9,
             "kernel": ConstantKernel(4.0) * RBF(2.0), "max_epochs": 500}  # fmt: skip
    weighted = make(cls, **given).fit(ArraySource(X[rows], CODES[rows].astype(np.int8), weight))
    copied = make(cls, **given).fit(X[copies], CODES[copies])
    assert_allclose(weighted.predict_proba(X), copied.predict_proba(X), atol=1e-6)
    assert_allclose(
        weighted.log_marginal_likelihood_value_, copied.log_marginal_likelihood_value_, rtol=1e-7
    )


@pytest.mark.parametrize(
    ("rule", "digits"), [(ExpectationPropagation(NoisyArgmax(3)), 5), (Variational(NoisyArgmax(3)), 5)]
)
def test_gradient_at_the_fixed_point(rule, digits):
    rows, _ = table()
    labels = np.digitize(np.sin(2 * rows[:, 0]) + rows[:, 1], [-0.5, 0.5])
    kernel, Z = ConstantKernel(1.5) * RBF([0.7, 1.3]), points()
    engine = make_engine(rows, labels, rule=rule)
    fixed_point(engine, make_prior(kernel, Z), 1e-11)

    def value(theta, moved):
        prior = make_prior(kernel.clone_with_theta(theta), moved)
        return fixed_point(engine, prior, 1e-9).objective

    _, gradient = value_and_gradient(engine, make_prior(kernel, Z))
    by_theta = central_differences(lambda theta: value(theta, Z), kernel.theta, 1e-4)
    by_Z = central_differences(lambda moved: value(kernel.theta, moved), Z, 1e-4)
    assert_allclose(gradient.theta, by_theta, atol=10.0**-digits)
    assert_allclose(gradient.Z, by_Z, atol=10.0**-digits)


def test_leave_one_out_is_about_what_leaving_out_gives():
    given = {"optimizer": None, "inducing_points": X[::10], "scaling": None, "tol": 1e-6,
             "kernel": ConstantKernel(4.0) * RBF(2.0), "max_epochs": 200}  # fmt: skip
    model = make(SEPClassifier, **given).fit(X, CODES)
    for row in (60, 70, 133):
        others = np.arange(150) != row
        without = make(SEPClassifier, **given).fit(X[others], CODES[others])
        exact = without.predict_log_proba(X[[row]])[0, CODES[row]]
        assert_allclose(model.loo_log_proba_[row], exact, rtol=0.15)


def test_digits():
    digits, y = load_digits(return_X_y=True)
    model = SEPClassifier(
        n_inducing=40, batch_size=200, max_epochs=6, optimizer=Adam(0.05), random_state=0
    )
    model.fit(digits[:1200] / 16.0, y[:1200])
    p = model.predict_proba(digits[1200:] / 16.0)
    assert np.mean(p.argmax(axis=1) == y[1200:]) > 0.88
    assert log_loss(y[1200:], p) < 0.45


class TestStreams:
    def test_chunks_of_a_stream(self):
        order = np.random.default_rng(0).permutation(150)
        model = SEPClassifier(n_inducing=10, random_state=0)
        for part in np.array_split(order, 5):
            model.partial_fit(X[part], NAMES[CODES[part]], classes=NAMES)
        assert model.predict_proba(X).shape == (150, 3)
        assert model.score(X, NAMES[CODES]) > 0.9

    def test_a_class_that_the_first_chunk_lacks(self):
        model = SVIClassifier(n_inducing=10, random_state=0)
        model.partial_fit(X[:100], CODES[:100], classes=[0, 1, 2])
        model.partial_fit(X[100:], CODES[100:])
        assert (model.predict(X[100:]) == 2).mean() > 0.5

    def test_an_unknown_class_is_refused(self):
        model = SEPClassifier(n_inducing=5, random_state=0).partial_fit(X[:100], CODES[:100])
        with pytest.raises(ValueError, match=r"classes of this stream are \[0, 1\]"):
            model.partial_fit(X[100:], CODES[100:])


def test_early_stopping_scores_all_classes():
    model = classifier("sep", early_stopping="validation", max_epochs=30).fit(X, CODES)
    assert model.score(X, CODES) > 0.9


def test_a_warm_start_with_other_classes_keeps_kernel_and_points():
    model = classifier("sep", warm_start=True).fit(X, CODES)
    model.set_params(max_epochs=1).fit(X, CODES > 0)
    assert model.predict_proba(X).shape == (150, 2)


def test_a_target_that_is_no_class_is_refused():
    with pytest.raises(ValueError, match="looks like a quantity"):
        classifier("sep").fit(ArraySource(X, np.arange(150, dtype=np.int32)))


def test_the_logit_is_for_two_classes():
    with pytest.raises(ValueError, match="two classes and y has 3"):
        classifier("sep", likelihood="logit").fit(X, CODES)


def test_two_classes_have_one_latent_function():
    model = classifier("sep").fit(X, CODES > 1)
    assert model.decision_function(X).shape == (150,)
    assert model.model_.posterior.mean.shape[0] == 1


def test_more_classes_than_a_byte_can_number():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(150), 2)
    rows = np.column_stack([y, rng.normal(size=len(y))])
    model = SVIClassifier(n_inducing=5, optimizer=None, max_epochs=1).fit(rows, y)
    assert model.predict_proba(rows[:2]).shape == (2, 150)


@pytest.mark.parametrize("rule", [ExpectationPropagation(NoisyArgmax(3)), Variational(NoisyArgmax(3))])
def test_the_fixed_point_is_reached_in_few_sweeps_and_is_centred(rule):
    rows, _ = table(60)
    labels = np.digitize(np.sin(2 * rows[:, 0]) + rows[:, 1], [-0.5, 0.5])
    prior = make_prior(ConstantKernel(9.0) * RBF(0.8), points(12))
    point = fixed_point(make_engine(rows, labels, rule=rule), prior, 1e-8)
    assert point.n_sweeps < 80
    assert_allclose(point.posterior.mean.sum(axis=0), 0.0, atol=1e-6)


def test_variational_gradient_away_from_the_optimum():
    rows, _ = table()
    labels = np.digitize(np.sin(2 * rows[:, 0]) + rows[:, 1], [-0.5, 0.5])
    engine = make_engine(rows, labels, rule=Variational(NoisyArgmax(3), natural=False))
    kernel, Z = ConstantKernel(1.5) * RBF([0.7, 1.3]), points()
    space = GaussianSpace(3, len(Z))
    rng = np.random.default_rng(0)
    factors = np.tril(0.3 * rng.normal(size=(3, 3, 3))) + np.eye(3)
    q = space.pack(rng.normal(size=(3, 3)), factors)

    def evaluated(theta, q):
        prior = make_prior(kernel.clone_with_theta(theta), Z)
        posterior = space.posterior(q)
        sums = engine.run(Sweep(prior, posterior, engine.rule, SweepOptions(whitened_gradient=False)))
        return objective(sums, posterior, engine.rule), sums, prior

    _, sums, prior = evaluated(kernel.theta, q)
    by_q = central_differences(lambda moved: evaluated(kernel.theta, moved)[0], q)
    by_theta = central_differences(lambda theta: evaluated(theta, q)[0], kernel.theta)
    by_parameters, by_vector = bound_gradient(q, sums, prior, space)
    assert_allclose(by_parameters.theta, by_theta, atol=1e-5)
    assert_allclose(by_vector, by_q, atol=1e-5)


def test_labels_that_differ_by_a_nul_at_the_end_are_two_classes(tmp_path):
    """NumPy's arrays of text drop it."""
    y = ["a\0" if code else "a" for code in CODES]
    frame = pandas.DataFrame(X, columns=list("abcd"))
    new = {"n_inducing": 5, "max_epochs": 2, "random_state": 0}
    frame.assign(y=y).to_parquet(tmp_path / "t.parquet")
    for model in (
        SEPClassifier(**new).fit(X, y),
        SEPClassifier(**new).partial_fit(X, y, classes=["a", "a\0"]),
        SEPClassifier(**new).fit(tmp_path / "t.parquet", "y"),
        TableClassifier(SEPClassifier(**new)).fit(frame, y),
        TableClassifier(SEPClassifier(**new)).fit(frame.assign(y=y), "y"),
    ):
        save(model, tmp_path / "m.cavity")
        twin = load(tmp_path / "m.cavity")
        rows = frame if hasattr(model, "feature_names_in_") else X
        for one in (model, twin):
            assert one.classes_.tolist() == ["a", "a\0"]
            assert set(one.predict(rows).tolist()) == {"a", "a\0"}

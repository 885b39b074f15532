"""Whatever is passed: a clear error before work starts, or a finite and sensible result."""

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import (
    RBF,
    CompoundKernel,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    WhiteKernel,
)

from cavity import GFITCClassifier, SEPClassifier, SourceError, SVIClassifier
from cavity.inference.config import resolve
from cavity.inference.optimizers import Adam, SignRates
from support import LocalEngine, make, table, tried

X, LABELS = table(40)
# Any other warning, NumPy's above all, is an error here (see pyproject.toml).
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def model(**options):
    return make(
        SEPClassifier, **{"n_inducing": 8, "max_epochs": 25, "random_state": 0, "n_jobs": 1, **options}
    )


def assert_sensible(fit, rows=X):
    proba = fit.predict_proba(rows)
    assert np.isfinite(proba).all()
    assert_allclose(proba.sum(axis=1), 1.0)
    assert np.isfinite(fit.predict_log_proba(rows)).all()
    assert np.isfinite(fit.decision_function(rows)).all()
    assert np.isfinite(fit.sample_latent(rows[:5], 2, random_state=0)).all()
    assert np.isfinite(fit.log_marginal_likelihood_value_)
    assert np.isfinite(fit.kernel_.theta).all()
    assert np.isfinite(fit.inducing_points_).all()
    assert np.isfinite(fit.loo_log_proba_).all()


@pytest.fixture
def no_work(monkeypatch):
    """A pass over the rows is an error: what is wrong must be said before."""

    def run(*args, **kwargs):
        raise AssertionError("the work had begun")

    monkeypatch.setattr(LocalEngine, "run", run)


@pytest.mark.usefixtures("no_work")
class TestIsRefusedBeforeWorkStarts:
    @pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier])
    def test_a_generator_of_chunks(self, kind):
        with pytest.raises(TypeError, match=r"X is a generator.*once only.*partial_fit one after"):
            kind().fit(((X, LABELS) for _ in range(2)), LABELS)

    def test_a_generator_of_chunks_for_gfitc(self):
        with pytest.raises(TypeError, match=r"X is a generator.*once only.*read its rows first"):
            GFITCClassifier().fit((rows for rows in [X, X]), LABELS)

    @pytest.mark.parametrize(
        ("value", "word"),
        [(np.nan, "X contains NaN; use TableClassifier"), (np.inf, "infinity"), (-np.inf, "infinity")],
    )
    def test_entries_that_are_not_numbers(self, value, word):
        bad = X.copy()
        bad[3, 1] = value
        with pytest.raises(ValueError, match=word):
            model().fit(bad, LABELS)

    @pytest.mark.parametrize("bad", [[np.nan] * 40, [None] * 40, [np.inf] * 40])
    def test_labels_that_are_missing(self, bad):
        with pytest.raises(ValueError):  # noqa: PT011 - scikit-learn's words differ by type
            model().fit(X, bad)

    @pytest.mark.parametrize("label", ["a", 0, True])
    def test_one_class(self, label):
        with pytest.raises(ValueError, match="one class"):
            model().fit(X, [label] * 40)

    @pytest.mark.filterwarnings("ignore:The number of unique classes")
    def test_as_many_classes_as_rows(self):
        with pytest.raises(ValueError, match="40 different values in 40 rows"):
            model().fit(X, np.arange(40))

    def test_a_continuous_target(self):
        with pytest.raises(ValueError, match="continuous"):
            model().fit(X, X[:, 0])

    @pytest.mark.parametrize(
        ("rows", "labels"),
        [
            (X[:, 0], LABELS),
            (X[:39], LABELS),
            (X[None], LABELS),
            (X, np.stack([LABELS, 1 - LABELS], axis=1)),
            (np.empty((0, 2)), []),
            (np.empty((40, 0)), LABELS),
            (np.array([["a", "b"]] * 40), LABELS),
            (X + 1j, LABELS),
        ],
        ids=["1-d", "lengths", "3-d", "two targets", "no rows", "no columns", "strings", "complex"],
    )
    def test_wrong_shapes_and_types(self, rows, labels):
        with pytest.raises(ValueError):  # noqa: PT011 - scikit-learn's own words
            model().fit(rows, labels)

    @pytest.mark.parametrize(
        "option",
        [
            {"n_inducing": 0},
            {"n_inducing": -3},
            {"n_inducing": 2.5},
            {"n_inducing": "many"},
            {"inducing_points": "magic"},
            {"optimizer": "sgd"},
            {"optimizer": 3},
            {"optimizer": "lbfgs"},
            {"max_epochs": 0},
            {"max_epochs": "many"},
            {"window_size": 0},
            {"class_weight": "even"},
            {"damping": 0.0},
            {"damping": 1.5},
            {"damping": np.nan},
            {"tol": -1.0},
            {"exact_gradient": "wrong"},
            {"batch_size": 0},
            {"batch_size": "some"},
            {"trace_penalty": -1.0},
            {"residual_scale": -0.1},
            {"residual_scale": 1.1},
            {"hyperprior_scale": 0.0},
            {"hyperprior_scale": -1.0},
            {"scaling": "yes"},
            {"warm_start": "yes"},
            {"random_state": "seed"},
            {"n_jobs": 0},
            {"n_jobs": 1.5},
            {"verbose": -1},
        ],
        ids=str,
    )
    def test_options_that_have_no_meaning(self, option):
        (name,) = option
        with pytest.raises(ValueError, match=name):
            model(**option).fit(X, LABELS)

    def test_a_config_that_is_neither_a_dict_nor_a_configuration(self):
        with pytest.raises(ValueError, match="config=3 is not possible"):
            SEPClassifier(config=3).fit(X, LABELS)

    @pytest.mark.parametrize(
        ("kind", "field", "way_out"),
        [
            (SEPClassifier, {"max_epochs": 3}, "set max_epochs of SEPClassifier instead"),
            (SEPClassifier, {"inducing_init": "random"}, "set inducing_points of"),
            (SVIClassifier, {"seed": 3}, "set random_state of SVIClassifier instead"),
            (SVIClassifier, {"method": "ep"}, "leave it out"),
            (GFITCClassifier, {"max_epochs": 3}, "set max_iter of GFITCClassifier instead"),
            (GFITCClassifier, {"batch_size": 10}, "leave it out"),
        ],
        ids=str,
    )
    def test_a_field_of_the_configuration_that_config_cannot_set(self, kind, field, way_out):
        (name,) = field
        with pytest.raises(ValueError, match=f"config sets '{name}'; {way_out}"):
            kind(config=field).fit(X, LABELS)

    @pytest.mark.parametrize(
        "option", [{"max_epochs": 3}, {"n_inducing": 5}, {"inducing_points": "random"}], ids=str
    )
    def test_a_parameter_beside_a_whole_configuration(self, option):
        (name,) = option
        with pytest.raises(ValueError, match=f"{name}=.* and a whole TrainingConfig"):
            SEPClassifier(config=resolve(40), **option).fit(X, LABELS)

    @pytest.mark.parametrize("rate", [0.0, -1.0, np.nan, "fast"])
    def test_a_learning_rate_that_is_not_positive(self, rate):
        with pytest.raises(ValueError, match="learning_rate"):
            Adam(rate)

    @pytest.mark.parametrize(
        "option",
        [
            {"optimizer": "adam"},
            {"optimizer": Adam(0.1)},
            {"max_iter": 0},
            {"max_iter": 1.5},
            {"tol": -1},
        ],
        ids=str,
    )
    def test_options_that_have_no_meaning_for_gfitc(self, option):
        (name,) = option
        with pytest.raises(ValueError, match=name):
            GFITCClassifier(**option).fit(X, LABELS)

    def test_gfitc_advises_an_optimiser_that_it_has(self):
        with pytest.raises(ValueError, match=r'optimizer=.foo. .* must be "lbfgs" or None'):
            GFITCClassifier(optimizer="foo").fit(X, LABELS)

    def test_options_that_do_not_exist(self):
        with pytest.raises(TypeError, match="n_inducers"):
            SEPClassifier(n_inducers=3)
        with pytest.raises(ValueError, match=r"no field 'dampin'.*damping"):
            SEPClassifier(config={"dampin": 0.3}).fit(X, LABELS)
        with pytest.raises(ValueError, match="n_inducers"):
            model().set_params(n_inducers=3)

    @pytest.mark.parametrize("kernel", ["rbf", RBF, 1.0, lambda x, z: 1.0, [RBF(1.0)]])
    def test_what_is_not_a_kernel(self, kernel):
        with pytest.raises(TypeError, match="kernel"):
            model(kernel=kernel).fit(X, LABELS)

    @pytest.mark.parametrize(
        "kernel", [ExpSineSquared(), 1.0 * ExpSineSquared() + RBF(), CompoundKernel([RBF()])]
    )
    def test_kernels_that_are_not_registered(self, kernel):
        with pytest.raises(TypeError, match="register"):
            model(kernel=kernel).fit(X, LABELS)

    @pytest.mark.parametrize("options", [{}, {"inducing_points": X[:5]}], ids=["chosen", "given"])
    def test_a_kernel_for_other_columns(self, options):
        with pytest.raises(ValueError, match="length_scale"):
            model(kernel=RBF([1.0, 1.0, 1.0]), **options).fit(X, LABELS)

    @pytest.mark.parametrize(
        "Z", [X[:5, :1], X[0], np.empty((0, 2)), np.full((3, 2), np.nan), X[None]], ids=str
    )
    def test_inducing_points_of_the_wrong_kind(self, Z):
        with pytest.raises(ValueError, match="inducing_points"):
            model(inducing_points=Z).fit(X, LABELS)


@pytest.fixture(scope="module")
def fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model().fit(X, LABELS)


class TestAtPrediction:
    @pytest.mark.parametrize(
        "method",
        ["predict", "predict_proba", "decision_function", "latent_mean_and_variance", "sample_latent"],
    )
    def test_rows_of_another_kind(self, fitted, method):
        ask = getattr(fitted, method)
        for bad, word in (
            (np.ones((3, 5)), "features"),
            (np.ones((3, 1)), "features"),
            (np.ones(2), "1D|2D"),
            (np.array([[np.nan, 0.0]]), "NaN; use TableClassifier"),
            (np.array([[np.inf, 0.0]]), "infinity"),
            (np.empty((0, 2)), "0 sample"),
        ):
            with pytest.raises(ValueError, match=word):
                ask(bad)

    @pytest.mark.parametrize("scale", [1e-300, 1e150, 1e300])
    def test_rows_of_any_size(self, fitted, scale):
        assert_sensible(fitted, scale * X)

    def test_rows_at_both_ends_of_the_floats(self, fitted):
        most = np.finfo(float).max
        assert_sensible(fitted, np.array([[most, -most], [most, most], [5e-324, -5e-324]]))

    def test_a_theta_of_the_wrong_length(self, fitted):
        with pytest.raises(ValueError):  # noqa: PT011 - scikit-learn's own words
            fitted.log_marginal_likelihood(np.zeros(17))


class TestGivesASensibleResult:
    """Odd, but nothing that has no answer."""

    @pytest.mark.parametrize("optimizer", ["adam", SignRates(), None])
    @pytest.mark.parametrize("init_inducing", ["kmeans", "random", "greedy"])
    def test_duplicate_rows(self, optimizer, init_inducing):
        rows, labels = np.repeat(X[:6], 10, axis=0), np.repeat(LABELS[:6], 10)
        fit = model(n_inducing=20, optimizer=optimizer, inducing_points=init_inducing).fit(rows, labels)
        assert_sensible(fit, rows)
        assert fit.score(rows, labels) == 1.0

    @pytest.mark.parametrize("optimizer", ["adam", None])
    @pytest.mark.parametrize("init_inducing", ["kmeans", "random", "greedy"])
    def test_identical_rows_with_both_labels(self, optimizer, init_inducing):
        rows, labels = np.full((40, 3), 7.3), np.arange(40) % 4 == 0
        fit = model(optimizer=optimizer, inducing_points=init_inducing).fit(rows, labels)
        assert_sensible(fit, rows)
        assert_allclose(fit.predict_proba(rows)[:, 1], 0.25, atol=0.05)

    @pytest.mark.parametrize("value", [0.0, 1.0, -1e150, 1e-150])
    def test_constant_columns_say_nothing(self, value):
        rows = np.column_stack([X, np.full(40, value)])
        fit = model().fit(rows, LABELS)
        assert_sensible(fit, rows)
        assert fit.score(rows, LABELS) > 0.8

    @pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e-20, 1e20, 1e150, 1e300])
    def test_huge_and_tiny_scales(self, scale):
        fit, plain = model().fit(scale * X, LABELS), model().fit(X, LABELS)
        assert_sensible(fit, scale * X)
        assert_allclose(fit.predict_proba(scale * X), plain.predict_proba(X), atol=1e-6)

    @pytest.mark.parametrize("scale", [1e-30, 1e30])
    def test_huge_and_tiny_scales_in_float32(self, scale):
        rows = (scale * X).astype(np.float32)
        fit, plain = model().fit(rows, LABELS), model().fit(X.astype(np.float32), LABELS)
        assert_sensible(fit, rows)
        assert fit.score(rows, LABELS) == pytest.approx(plain.score(X, LABELS), abs=0.1)

    @pytest.mark.parametrize("scale", [1e-150, 1e150])
    @pytest.mark.parametrize("kernel", [None, ConstantKernel(1.0) * RBF(1.0)], ids=["default", "rbf"])
    def test_huge_and_tiny_scales_as_they_are(self, scale, kernel):
        fit, complaint = tried(lambda: model(scaling=None, kernel=kernel).fit(scale * X, LABELS))
        if fit is None:
            assert "scaling" in complaint
        else:
            assert_sensible(fit, scale * X)

    def test_a_stream_of_large_rows_as_they_are_in_float32(self):
        rows, scaled = X.astype(np.float32), (1e20 * X).astype(np.float32)
        fit, plain = (model(scaling=None, learn_inducing=False) for _ in range(2))
        fit.partial_fit(scaled, LABELS), plain.partial_fit(rows, LABELS)
        assert fit.model_.dtype == np.float32
        assert_allclose(fit.predict_proba(scaled), plain.predict_proba(rows), atol=1e-3)

    def test_an_unscaled_constant_at_the_end_of_the_range(self):
        rows, points = (np.column_stack([part, np.full(len(part), -1e300)]) for part in (X, X[:8]))
        options = {"scaling": None, "kernel": Matern(1.0, nu=1.5), "optimizer": None}
        fit = model(inducing_points=points, **options).fit(rows, LABELS)
        plain = model(inducing_points=X[:8], **options).fit(X, LABELS)
        assert_allclose(fit.predict_proba(rows), plain.predict_proba(X), rtol=1e-9)
        assert_allclose(fit.ood_score(np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1e308]])), 1.0)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("scaling", ["standard", "whiten"])
    @pytest.mark.parametrize(
        "kernel",
        [DotProduct(1.0) ** 3, (DotProduct(1.0) ** 2) * DotProduct(0.5) ** 3, Matern(1e-5, nu=1.5)],
        ids=["cubic", "degree five", "rough"],
    )
    def test_far_rows_are_predicted_as_from_a_great_distance(self, kernel, scaling, dtype):
        rows, directions = X.astype(dtype), np.array([[1.0, 0.2], [-1.0, 1.0], [0.3, -1.0]])
        fit = model(kernel=kernel, scaling=scaling, optimizer=None).fit(rows, LABELS)
        far, farther, farthest = ((t * directions).astype(dtype) for t in (1e4, 1e10, 1e37))
        for at in (farther, farthest):
            assert_sensible(fit, at)
            if dtype == np.float64:  # in float32 the difference of two large variances has no digits
                assert_allclose(fit.predict_proba(at), fit.predict_proba(far), atol=0.02)
            assert np.isfinite(fit.sample_latent(at, 2, random_state=0)).all()
            share = fit.ood_score(at)
            assert ((share >= 0.0) & (share <= 1.0)).all()

    def test_one_scale_per_column(self):
        scale = np.array([1e150, 1e-150])
        fit = model().fit(scale * X, LABELS)
        assert_sensible(fit, scale * X)
        assert fit.score(scale * X, LABELS) > 0.8

    def test_an_outlier_at_the_end_of_the_floats(self):
        rows = X.copy()
        rows[0] = 1e300
        assert_sensible(model().fit(rows, LABELS), rows)

    @pytest.mark.parametrize("optimizer", ["adam", SignRates(), None])
    @pytest.mark.parametrize("init_inducing", ["kmeans", "random", "greedy"])
    @pytest.mark.parametrize("rows", [[[0.0], [1.0]], [[3.0], [3.0]]], ids=["apart", "equal"])
    def test_two_rows(self, optimizer, init_inducing, rows):
        fit = model(optimizer=optimizer, inducing_points=init_inducing).fit(rows, ["a", "b"])
        assert_sensible(fit, np.array(rows))
        assert fit.inducing_points_.shape == (len(np.unique(rows)), 1)
        if rows[0] != rows[1]:
            assert list(fit.predict(rows)) == ["a", "b"]

    def test_one_row_of_a_class(self):
        labels = np.zeros(40, dtype=int)
        labels[7] = 1
        fit = model().fit(X, labels)
        assert_sensible(fit)
        assert fit.predict_proba(X)[:, 1].mean() < 0.2

    def test_more_columns_than_rows(self):
        rows = np.random.default_rng(0).normal(size=(12, 200))
        fit = model().fit(rows, rows[:, 0] > 0)
        assert_sensible(fit, rows)

    def test_labels_without_any_pattern(self):
        labels = np.random.default_rng(0).permutation(np.arange(40) % 2)
        assert_sensible(model(max_epochs=100).fit(X, labels))

    @pytest.mark.parametrize(
        "kernel",
        [
            ConstantKernel(1e30) * RBF(1.0),
            ConstantKernel(1e-30) * RBF(1.0),
            ConstantKernel(1.0) * RBF(1e-10),
            ConstantKernel(1.0) * RBF(1e10),
            RBF(1.0) + WhiteKernel(1e20),
            WhiteKernel(1.0),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("optimizer", ["adam", None])
    def test_extreme_kernels(self, kernel, optimizer):
        fit, complaint = tried(lambda: model(kernel=kernel, optimizer=optimizer).fit(X, LABELS))
        if fit is None:
            assert "kernel" in complaint
        else:
            assert_sensible(fit)

    def test_coinciding_inducing_points(self):
        assert_sensible(model(inducing_points=np.repeat(X[:2], 4, axis=0)).fit(X, LABELS))

    def test_inducing_points_far_from_the_rows(self):
        fit = model(inducing_points=X[:4] + 1e6).fit(X, LABELS)
        assert_sensible(fit)

    def test_read_only_and_strided_arrays(self):
        rows = np.asfortranarray(np.repeat(X, 2, axis=0))[::2]
        rows.flags.writeable = False
        fit = model().fit(rows, LABELS)
        assert_allclose(fit.predict_proba(rows), model().fit(X, LABELS).predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("method", [SEPClassifier.fit, SEPClassifier.partial_fit])
@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("carrier", ["AA", "UA"] * 10),
        ("carrier", pd.Categorical(["AA", "UA"] * 10)),
        ("date", pd.date_range("2013-01-01", periods=20)),
    ],
)
def test_frames_with_other_columns_than_numbers_are_for_table_classifiers(method, column, values):
    frame = pd.DataFrame({"hour": np.arange(20.0), column: values})
    with pytest.raises(SourceError, match=f"not numbers: '{column}'; use TableClassifier"):
        method(SEPClassifier(), frame, [0, 1] * 10)
    mixed = frame.astype({column: str}).to_numpy(dtype=object)
    with pytest.raises(SourceError, match="not numbers: '1'; use TableClassifier"):
        method(SEPClassifier(), mixed, [0, 1] * 10)

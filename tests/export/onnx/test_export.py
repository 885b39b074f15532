"""Exported models give the probabilities of the estimator."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from onnx_serving import run, run_columns
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel
from sklearn.linear_model import LogisticRegression

from cavity import GFITCClassifier, SEPClassifier, SVIClassifier
from cavity.export.onnx import to_onnx
from support import KERNELS, make, recalibrate, table

METHODS = [SEPClassifier, SVIClassifier, GFITCClassifier]
QUICK = {"optimizer": None, "n_jobs": 1, "tol": 1e-3, "random_state": 0}
X, LABELS = table(60)


def assert_same_predictions(fit, exported, rows, atol=1e-5):
    rows = np.asarray(rows, dtype=np.float32)
    served = run(exported, rows)
    assert_allclose(served["probabilities"], fit.predict_proba(rows), atol=atol)
    assert_allclose(served["probabilities"].sum(axis=1), 1.0, atol=1e-6)
    mean, variance = fit.latent_mean_and_variance(rows)
    assert_allclose(served["latent_mean"], mean, rtol=1e-5, atol=1e-5)
    assert_allclose(served["latent_variance"], variance, rtol=1e-5, atol=1e-5)
    two = np.sort(fit.predict_proba(rows), axis=1)[:, -2:]
    clear = two[:, 1] - two[:, 0] > 1e-5
    assert_array_equal(served["label"][clear], fit.predict(rows)[clear])


@st.composite
def kernels(draw, depth=2):
    kind = draw(st.sampled_from(["leaf", "leaf", "sum", "product", "power"] if depth else ["leaf"]))
    if kind == "leaf":
        return KERNELS[draw(st.sampled_from(sorted(KERNELS)))]
    left = draw(kernels(depth=depth - 1))
    if kind == "power":
        return (ConstantKernel(0.1) + left) ** 2
    right = draw(kernels(depth=depth - 1))
    return left + right if kind == "sum" else left * right


@pytest.mark.parametrize("kind", ["robust", "quantile"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scalings_that_are_not_straight_agree_everywhere(kind):
    rng = np.random.default_rng(0)
    rows = np.column_stack(
        [1e3 + rng.standard_t(1.0, 400), rng.lognormal(size=400), rng.integers(0, 3, 400)]
    )
    rows[0, 1] = 1e12
    fit = make(SEPClassifier, n_inducing=10, scaling=kind, **QUICK).fit(rows, rows[:, 1] > 1.0)
    sizes = np.geomspace(1.0, 1e37, 40)
    far = [[s * size, t * size, 1.0] for size in sizes for s in (-1, 1) for t in (-1, 1)]
    assert_same_predictions(fit, to_onnx(fit), np.vstack([rows, far]))


@given(
    kernel=kernels(),
    method=st.sampled_from(METHODS),
    likelihood=st.sampled_from(["probit", "logit"]),
    scaling=st.sampled_from(["standard", None, "robust", "quantile", "whiten"]),
    m=st.integers(1, 20),
    seed=st.integers(0, 2**20),
)
@settings(max_examples=60)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_random_models_agree(kernel, method, likelihood, scaling, m, seed):
    rows, labels = table(40, seed=seed)
    options = {"likelihood": likelihood, "scaling": scaling, "n_inducing": m, **QUICK}
    fit = make(method, kernel, max_epochs=50, **options).fit(rows, labels)
    new = np.random.default_rng(seed).normal(size=(30, 2)) * np.geomspace(0.1, 30.0, 30)[:, None]
    assert_same_predictions(fit, to_onnx(fit), np.vstack([new, rows]))


@given(
    kernel=kernels(depth=1),
    method=st.sampled_from(METHODS),
    n_classes=st.integers(3, 7),
    seed=st.integers(0, 2**20),
)
@settings(max_examples=20)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_random_models_of_many_classes_agree(kernel, method, n_classes, seed):
    rng = np.random.default_rng(seed)
    rows, _ = table(60, seed=seed)
    labels = np.arange(60) % n_classes
    rows[:, 0] += rng.normal(size=n_classes)[labels]
    fit = make(method, kernel, max_epochs=30, n_inducing=10, **QUICK)
    fit.fit(rows, np.array(list("abcdefg"))[labels])
    assert_same_predictions(fit, to_onnx(fit), np.vstack([5.0 * rng.normal(size=(20, 2)), rows]))


@pytest.mark.parametrize("b", [0.0, 0.05, 3.0])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kernel", [5.0 * RBF(0.7), (RBF(0.7) + WhiteKernel(0.5)) * DotProduct(1.0)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_calibrated_models_agree(kernel, n_classes, b):
    labels = np.arange(60) % n_classes if n_classes > 2 else LABELS
    fit = make(SEPClassifier, kernel, n_inducing=10, max_epochs=5, **QUICK).fit(X, labels)
    recalibrate(fit, 1.3, b)
    assert_same_predictions(fit, to_onnx(fit), np.vstack([X, 5.0 * X]))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("likelihood", ["probit", "logit"])
def test_every_kernel_agrees(name, likelihood):
    fit = make(SEPClassifier, KERNELS[name], n_inducing=10, likelihood=likelihood, **QUICK).fit(
        X, LABELS
    )
    assert_same_predictions(fit, to_onnx(fit), 2.0 * X, atol=1e-6)


@pytest.mark.parametrize("likelihood", ["probit", "logit"])
def test_a_trained_model_of_float32_rows_agrees(likelihood):
    rows = X.astype(np.float32)
    fit = SEPClassifier(
        n_inducing=15, likelihood=likelihood, random_state=0, n_jobs=1, config={"tol": 1e-3}
    )
    fit.fit(rows, LABELS)
    assert_same_predictions(fit, to_onnx(fit), rows)


@pytest.mark.parametrize(
    ("classes", "dtype"),
    [([3, 7], np.int64), (["no", "yes"], object), ([False, True], np.bool_), ([-1.0, 2.0], np.float64)],
)
def test_labels_come_back_as_they_were(classes, dtype):
    fit = make(SEPClassifier, RBF(1.0), n_inducing=8, **QUICK).fit(X, np.array(classes)[LABELS])
    labels = run(to_onnx(fit), X)["label"]
    assert labels.dtype == dtype
    assert_array_equal(labels, fit.predict(X))


def test_columns_by_name():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X.astype(np.float32), columns=["wide", "long"])
    fit = make(SEPClassifier, RBF(1.0), n_inducing=8, **QUICK).fit(frame, LABELS)
    exported = to_onnx(fit, inputs="columns")
    served = run_columns(exported, {name: frame[[name]].to_numpy() for name in frame})
    assert_allclose(served["probabilities"], fit.predict_proba(frame), atol=1e-5)


def test_float64_inputs_keep_the_digits_of_a_large_offset():
    far = X + 1e9
    fit = make(SEPClassifier, RBF(1.0), n_inducing=8, **QUICK).fit(far, LABELS)
    served = run(to_onnx(fit, input_dtype="float64"), far, dtype=np.float64)
    assert served["probabilities"].dtype == np.float64
    assert_allclose(served["probabilities"], fit.predict_proba(far), atol=1e-7)


@pytest.mark.parametrize("kernel", [RBF(1.0), Matern(1.0, nu=0.5)])
def test_rows_beyond_all_reason_stay_finite(kernel):
    fit = make(SEPClassifier, kernel, n_inducing=8, **QUICK).fit(X, LABELS)
    served = run(to_onnx(fit), [[3e38, -3e38], [1e-40, 0.0]])
    assert_allclose(served["probabilities"][0], 0.5)
    assert np.isfinite(served["latent_variance"]).all()


def test_any_number_of_rows_unless_the_batch_is_fixed(tmp_path):
    import onnx

    fit = make(SEPClassifier, RBF(1.0), n_inducing=8, **QUICK).fit(X, LABELS)
    exported = to_onnx(fit, tmp_path / "model.onnx")
    assert onnx.load(tmp_path / "model.onnx") == exported
    for n in (1, 2, 60):
        assert run(exported, X[:n])["probabilities"].shape == (n, 2)
    shape = to_onnx(fit, batch=16).graph.input[0].type.tensor_type.shape
    assert [dimension.dim_value for dimension in shape.dim] == [16, 2]


class TestRefusals:
    def test_what_is_not_ours(self):
        with pytest.raises(TypeError, match="LogisticRegression cannot be exported"):
            to_onnx(LogisticRegression().fit(X, LABELS))

    def test_what_is_not_fitted(self):
        with pytest.raises(NotFittedError):
            to_onnx(SEPClassifier())

    @pytest.mark.parametrize(
        ("option", "value"), [("inputs", "rows"), ("input_dtype", "int8"), ("batch", 0)]
    )
    def test_options_that_do_not_exist(self, option, value):
        fit = make(SEPClassifier, RBF(1.0), n_inducing=8, **QUICK).fit(X, LABELS)
        with pytest.raises(ValueError, match=f"{option}={value!r}"):
            to_onnx(fit, **{option: value})

    def test_a_column_named_like_an_output(self):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(X, columns=["label", "long"])
        fit = make(SEPClassifier, RBF(1.0), n_inducing=8, **QUICK).fit(frame, LABELS)
        with pytest.raises(ValueError, match="rename the column"):
            to_onnx(fit, inputs="columns")

    def test_without_the_package(self, monkeypatch):
        fit = make(SEPClassifier, RBF(1.0), n_inducing=8, **QUICK).fit(X, LABELS)
        monkeypatch.setitem(sys.modules, "onnx", None)
        with pytest.raises(ImportError, match=r"cavity\[onnx\]"):
            to_onnx(fit)

"""SEPClassifier is a scikit-learn estimator, wherever one is expected."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from cavity import SEPClassifier
from support import make, table

X, LABELS = table(80)
X_STAR, LABELS_STAR = table(40, seed=9)
# Few iterations are enough for what is asked here.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def quick(**options):
    return make(
        SEPClassifier, **{"n_inducing": 10, "max_epochs": 30, "random_state": 0, "n_jobs": 1, **options}
    )


@pytest.fixture(scope="module")
def fitted():
    return quick().fit(X, LABELS)


@parametrize_with_checks([SEPClassifier(n_inducing=10, max_epochs=30)])
def test_every_check_of_scikit_learn(estimator, check):
    check(estimator)


def test_pipeline():
    pipeline = make_pipeline(StandardScaler(), quick(scaling=None)).fit(X, LABELS)
    alone = quick(scaling="standard").fit(X, LABELS)
    assert_allclose(pipeline.predict_proba(X_STAR), alone.predict_proba(X_STAR), rtol=1e-6)


def test_grid_search_over_kernels_and_sizes():
    grid = {"kernel": [RBF(1.0), ConstantKernel(1.0) * RBF([1.0, 1.0])], "n_inducing": [5, 10]}
    search = GridSearchCV(quick(), grid, cv=2, scoring="neg_log_loss", error_score="raise").fit(
        X, LABELS
    )
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.inducing_points_.shape == (search.best_params_["n_inducing"], 2)


def test_nested_kernel_parameters_can_be_set():
    model = quick(kernel=ConstantKernel(1.0) * RBF(1.0))
    assert model.get_params()["kernel__k2__length_scale"] == 1.0
    model.set_params(kernel__k2__length_scale=3.0, n_inducing=7)
    assert model.kernel.k2.length_scale == 3.0
    assert model.n_inducing == 7


def test_fits_can_run_side_by_side():
    alone = cross_val_score(quick(), X, LABELS, cv=4, scoring="neg_log_loss")
    with parallel_config("threading"):
        together = cross_val_score(quick(), X, LABELS, cv=4, scoring="neg_log_loss", n_jobs=4)
    assert_allclose(together, alone)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_calibration(method):
    calibrated = CalibratedClassifierCV(quick(), method=method, cv=2).fit(X, LABELS)
    assert_allclose(calibrated.predict_proba(X_STAR).sum(axis=1), 1.0)
    assert calibrated.score(X_STAR, LABELS_STAR) > 0.7


def test_three_classes_one_against_the_rest():
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    assert OneVsRestClassifier(quick()).fit(X, y).score(X, y) > 0.8


def test_pandas_names_are_kept_and_checked(fitted):
    frame = pd.DataFrame(X, columns=["height", "weight"])
    target = pd.Series(LABELS, name="label")
    model = quick().fit(frame, target)
    assert_array_equal(model.feature_names_in_, ["height", "weight"])
    assert_allclose(
        model.predict_proba(pd.DataFrame(X_STAR, columns=frame.columns)), fitted.predict_proba(X_STAR)
    )
    with pytest.raises(ValueError, match="feature names"):
        model.predict(pd.DataFrame(X_STAR, columns=["weight", "height"]))


@pytest.mark.parametrize(
    "form", [sparse.csr_matrix, sparse.csc_matrix, sparse.coo_matrix, sparse.csr_array]
)
def test_sparse_input_is_dense_input(form):
    thin = np.where(np.abs(X) > 0.7, X, 0.0)
    thin_star = np.where(np.abs(X_STAR) > 0.7, X_STAR, 0.0)
    dense, thinned = quick().fit(thin, LABELS), quick().fit(form(thin), LABELS)
    assert_allclose(thinned.predict_proba(form(thin_star)), dense.predict_proba(thin_star))
    assert_allclose(
        thinned.sample_latent(form(thin_star[:3]), 2, 0), dense.sample_latent(thin_star[:3], 2, 0)
    )


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint8, np.int64, bool, object])
def test_any_numbers_will_do(dtype):
    given = (X > 0).astype(dtype) if dtype is bool else np.round(50 + 10 * X).astype(dtype)
    model = quick().fit(given, LABELS)
    assert np.isfinite(model.predict_proba(given)).all()
    assert model.score(given, LABELS) > 0.6


@pytest.mark.parametrize("names", [["no", "yes"], [False, True], [-1, 1], [7, 3], [0.0, 1.0]], ids=str)
def test_any_two_labels(fitted, names):
    y = np.array(names)[LABELS]
    model = quick().fit(X, y)
    assert_array_equal(model.classes_, np.unique(y))
    assert set(model.predict(X_STAR)) <= set(names)
    assert model.predict(X_STAR).dtype == y.dtype
    second = int(model.classes_[1] == names[1])
    assert_allclose(
        model.predict_proba(X_STAR)[:, second], fitted.predict_proba(X_STAR)[:, 1], rtol=1e-6
    )


def test_labels_in_a_list_or_a_series_of_objects():
    y = [["cat", "dog"][k] for k in LABELS]
    for given in (y, pd.Series(y, dtype="category"), np.array(y, dtype=object)):
        assert_array_equal(quick().fit(X, given).classes_, ["cat", "dog"])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_predict_the_same(fitted, copied):
    twin = copied(fitted)
    assert_array_equal(twin.predict_proba(X_STAR), fitted.predict_proba(X_STAR))
    assert_array_equal(twin.sample_latent(X_STAR, 2, 0), fitted.sample_latent(X_STAR, 2, 0))
    assert_array_equal(twin.loo_log_proba_, fitted.loo_log_proba_)
    assert twin.log_marginal_likelihood() == fitted.log_marginal_likelihood()


def test_a_saved_estimator_does_not_carry_the_training_rows():
    big = np.random.default_rng(0).normal(size=(20_000, 4))
    model = quick(max_epochs=2, optimizer=None).fit(big, big[:, 0] > 0)
    assert len(pickle.dumps(model)) < big.nbytes


def test_clone_is_unfitted_and_equal(fitted):
    twin = clone(fitted)
    assert twin.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        twin.predict(X)


@pytest.mark.parametrize(
    "method",
    [
        "predict",
        "predict_proba",
        "predict_log_proba",
        "decision_function",
        "latent_mean_and_variance",
        "sample_latent",
    ],
)
def test_what_is_not_fitted_says_so(method):
    with pytest.raises(NotFittedError):
        getattr(quick(), method)(X)
    with pytest.raises(NotFittedError):
        quick().log_marginal_likelihood()


def test_fit_leaves_its_parameters_and_its_data_alone():
    kernel = ConstantKernel(1.0) * RBF([1.0, 1.0]) + WhiteKernel(0.1)
    Z = X[:5].copy()
    given = X.copy()
    model = quick(kernel=kernel, inducing_points=Z).fit(given, LABELS)
    assert_array_equal(given, X)
    assert_array_equal(Z, X[:5])
    assert model.kernel is kernel
    assert_allclose(np.exp(kernel.theta), [1.0, 1.0, 1.0, 0.1])


@pytest.mark.parametrize("optimizer", ["adam", None])
def test_a_fitted_model_does_not_follow_later_changes_of_the_users_kernel(optimizer):
    kernel = ConstantKernel(1.0) * RBF([1.0, 1.0])
    model = quick(kernel=kernel, optimizer=optimizer).fit(X, LABELS)
    before, theta = model.predict_proba(X_STAR), model.kernel_.theta.copy()
    kernel.theta = kernel.theta + 1.0
    assert_array_equal(model.kernel_.theta, theta)
    assert_array_equal(model.predict_proba(X_STAR), before)


def test_scikit_learns_own_notation_works_unchanged():
    kernel = ConstantKernel(1.0) * RBF([1.0] * 2) + WhiteKernel(0.1)
    model = SEPClassifier(kernel=kernel, n_inducing=20, random_state=0).fit(X, LABELS)
    assert type(model.kernel_) is type(kernel)
    assert model.kernel_.theta.shape == kernel.theta.shape
    assert model.score(X_STAR, LABELS_STAR) > 0.75

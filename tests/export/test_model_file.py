"""A model file holds the whole model and nothing else, and says clearly when it cannot be read."""

import pickle
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import make_column_transformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from small_models import CLASSIFIERS, LABELS, X_STAR, X, fitted

import cavity
from cavity import SEPClassifier
from cavity.export.model_file import describe
from cavity.inference.history import Iteration
from support import KERNELS

EVERYTHING = ("predict_proba", "predict_log_proba", "decision_function", "predict")


@pytest.fixture(scope="module")
def model():
    return fitted()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.cavity"


def round_trip(model, path):
    model.save(path)
    return cavity.load(path)


def assert_same(twin, model):
    for method in EVERYTHING:
        assert_array_equal(getattr(twin, method)(X_STAR), getattr(model, method)(X_STAR))
    assert_array_equal(twin.sample_latent(X_STAR, 2, 0), model.sample_latent(X_STAR, 2, 0))
    assert_array_equal(twin.loo_log_proba_, model.loo_log_proba_)
    assert_array_equal(twin.classes_, model.classes_)
    assert twin.classes_.dtype == model.classes_.dtype
    assert twin.kernel_ == model.kernel_
    assert twin.history_ == model.history_
    assert twin.n_iter_ == model.n_iter_
    assert repr(twin.get_params()) == repr({**model.get_params(), "n_jobs": None})
    assert_array_equal(twin.log_marginal_likelihood(), model.log_marginal_likelihood())


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(sorted(CLASSIFIERS)),
    kernel=st.sampled_from([None, *KERNELS.values()]),
    likelihood=st.sampled_from(["probit", "logit"]),
    standardize=st.sampled_from([True, False, "whiten"]),
    optimize=st.booleans(),
    n_inducing=st.integers(1, 6),
    labels=st.sampled_from([(0, 1), (False, True), ("no", "yes"), (-1.0, 2.0)]),
    single=st.booleans(),
)
def test_every_model_predicts_the_same_to_the_bit(
    path, method, kernel, likelihood, standardize, optimize, n_inducing, labels, single
):
    options = {} if optimize else {"optimizer": None}
    model = CLASSIFIERS[method](
        kernel,
        likelihood=likelihood,
        standardize=standardize,
        n_inducing=n_inducing,
        max_iter=2,
        random_state=0,
        n_jobs=1,
        **options,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X.astype(np.float32) if single else X, np.array(labels)[LABELS])
    assert_same(round_trip(model, path), model)


FRESH = """
import sys, numpy as np, cavity
model, X, out = sys.argv[1:]
np.save(out, cavity.load(model).predict_proba(np.load(X)))
"""


def test_a_fresh_process_predicts_the_same_to_the_bit(model, path, tmp_path):
    cavity.save(model, path)
    np.save(tmp_path / "X.npy", X_STAR)
    arguments = [path, tmp_path / "X.npy", tmp_path / "out.npy"]
    subprocess.run([sys.executable, "-c", FRESH, *map(str, arguments)], check=True)
    assert_array_equal(np.load(tmp_path / "out.npy"), model.predict_proba(X_STAR))


@pytest.mark.parametrize("library", [pickle, joblib])
def test_pickle_and_joblib_keep_the_same(model, path, library):
    with path.open("wb") as file:
        library.dump(model, file)
    with path.open("rb") as file:
        assert_same(library.load(file), model)


def test_what_was_predicted_before_leaves_no_trace(path):
    model = fitted()
    model.save(path)
    before = path.stat().st_size
    model.predict(X_STAR)
    model.save(path)
    assert path.stat().st_size == before


def test_training_rows_are_not_in_the_file(path):
    rows = np.random.default_rng(0).normal(size=(3_000, 8))
    model = SEPClassifier(n_inducing=5, optimizer=None, random_state=0).fit(rows, rows[:, 0] > 0)
    model.save(path)
    assert path.stat().st_size < rows.nbytes / 2
    assert rows[17].tobytes() not in path.read_bytes()


def test_a_stream_goes_on_after_loading(path):
    model = SEPClassifier(n_inducing=5, random_state=0).partial_fit(X[:30], LABELS[:30])
    twin = round_trip(model, path)
    assert_same(twin, model)
    for one in (model, twin):
        one.partial_fit(X[30:], LABELS[30:])
    assert_same(twin, replaced_seconds(model, twin))


def replaced_seconds(model, twin):
    """The clock is the one thing that two runs do not share."""
    model.history_ = [
        replace(mine, seconds=theirs.seconds)
        for mine, theirs in zip(model.history_, twin.history_, strict=True)
    ]
    return model


def test_a_stream_begins_after_loading_a_fit(model, path):
    twin = round_trip(model, path)
    seen = fitted()
    for one in (seen, twin):
        one.partial_fit(X[:20], LABELS[:20])
    assert_array_equal(twin.predict_proba(X_STAR), seen.predict_proba(X_STAR))


def test_a_warm_start_after_loading_goes_on_from_the_model(path):
    model = fitted(warm_start=True, max_iter=300, tol=0)
    model.save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        twin = cavity.load(path).set_params(max_iter=20).fit(X, LABELS)
        model.set_params(max_iter=20).fit(X, LABELS)
    # The rows' sites are gone, so the first steps differ, but kernel and inducing points are not.
    assert_allclose(twin.kernel_.theta, model.kernel_.theta, atol=0.5)
    assert_allclose(twin.predict_proba(X_STAR), model.predict_proba(X_STAR), atol=0.2)
    cold = fitted(max_iter=20)
    assert twin.history_[-1].objective > cold.history_[-1].objective + 0.1


def test_the_rows_are_needed_for_the_evidence_elsewhere(model, path):
    with pytest.raises(ValueError, match="needs the training rows"):
        round_trip(model, path).log_marginal_likelihood(model.kernel_.theta)


def test_a_long_history_is_small_and_whole(path):
    model = fitted()
    model.history_ = [Iteration(i, float(i), -np.inf, 1.0, 0.1 * i, 1.0) for i in range(5_000)]
    assert round_trip(model, path).history_ == model.history_
    assert path.stat().st_size < 500_000


def test_frames_among_the_parameters(path):
    Z = pd.DataFrame(X[:4], columns=["a", "b"])
    model = fitted(inducing_points=Z.values)
    model.inducing_points = Z
    assert_array_equal(round_trip(model, path).inducing_points, Z)


def test_where_and_how_a_fit_ran_is_not_saved(path):
    run = {"checkpoint": Path("nowhere.npz"), "checkpoint_interval": 1e9, "n_jobs": 1, "verbose": 0}
    model = fitted(**run)
    inside = make_pipeline(StandardScaler().fit(X), model)
    for estimator, last in ((model, model), (inside, inside[-1])):
        cavity.save(estimator, path)
        twin = cavity.load(path)
        saved = twin if estimator is last else twin[-1]
        assert {name: getattr(saved, name) for name in run} == {
            name: getattr(SEPClassifier(), name) for name in run
        }
        assert_array_equal(twin.predict_proba(X), estimator.predict_proba(X))
    assert {name: getattr(model, name) for name in run} == run


def test_feature_names_are_checked_after_loading(path):
    frame = pd.DataFrame(X, columns=["width", "height"])
    model = SEPClassifier(n_inducing=5, optimizer=None, random_state=0).fit(frame, LABELS)
    twin = round_trip(model, path)
    assert_array_equal(twin.feature_names_in_, ["width", "height"])
    with pytest.raises(ValueError, match="feature names"):
        twin.predict(frame[["height", "width"]])


def test_a_pipeline_around_a_classifier(path):
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": np.array(["x", "y", "z"])[LABELS + 1]})
    pipeline = make_pipeline(
        make_column_transformer(
            (make_pipeline(SimpleImputer(), StandardScaler()), ["a", "b"]),
            (OneHotEncoder(handle_unknown="ignore"), ["kind"]),
            remainder="drop",
        ),
        SEPClassifier(n_inducing=5, optimizer=None, random_state=0),
    ).fit(frame, LABELS)
    cavity.save(pipeline, path)
    assert_array_equal(cavity.load(path).predict_proba(frame), pipeline.predict_proba(frame))


def test_a_file_says_what_wrote_it(model, path):
    model.save(path)
    about = describe(path)
    assert about.format == 1
    assert about.cavity == cavity.__version__
    assert about.estimator == "cavity.estimators.sep.SEPClassifier"
    assert about.numpy == np.__version__

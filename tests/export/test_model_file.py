"""Model files hold the whole model and nothing else; what cannot be saved or loaded is refused."""

import io
import json
import os
import pickle
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_transformer
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process.kernels import RBF
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from small_models import CLASSIFIERS, LABELS, X_STAR, X, fitted

import cavity
from cavity import ModelFileError, SEPClassifier
from cavity.data.scaling import Scaling
from cavity.export.model_file import FORMAT, describe
from cavity.inference.history import Iteration
from support import KERNELS, make, recalibrate

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
    scaling=st.sampled_from(["standard", "robust", "quantile", "whiten", None]),
    optimize=st.booleans(),
    n_inducing=st.integers(1, 6),
    labels=st.sampled_from([(0, 1), (False, True), ("no", "yes"), (-1.0, 2.0)]),
    single=st.booleans(),
)
def test_every_model_predicts_the_same_to_the_bit(
    path, method, kernel, likelihood, scaling, optimize, n_inducing, labels, single
):
    options = {} if optimize else {"optimizer": None}
    model = make(
        CLASSIFIERS[method],
        kernel,
        likelihood=likelihood,
        scaling=scaling,
        n_inducing=n_inducing,
        max_epochs=2,
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


@pytest.mark.parametrize("b", [0.0, 0.03, 2.0])
def test_a_calibrated_model_predicts_the_same_to_the_bit(path, b):
    model = recalibrate(fitted(), 1.3, b)
    twin = round_trip(model, path)
    assert_same(twin, model)
    assert_array_equal(twin.ood_score(X_STAR), model.ood_score(X_STAR))
    assert (twin.inverse_temperature_, twin.residual_variance_scale_) == (1.3, b)


def test_what_was_predicted_before_leaves_no_trace(path):
    model = fitted()
    model.save(path)
    before = path.stat().st_size
    model.predict(X_STAR)
    model.save(path)
    assert path.stat().st_size == before


def test_training_rows_are_not_in_the_file(path):
    rows = np.random.default_rng(0).normal(size=(6_000, 8))
    model = SEPClassifier(n_inducing=5, optimizer=None, random_state=0).fit(rows, rows[:, 0] > 0)
    model.save(path)
    assert path.stat().st_size < rows.nbytes / 2
    assert rows[17].tobytes() not in path.read_bytes()


@pytest.mark.parametrize("n_inducing", [5, 40])
def test_a_stream_goes_on_after_loading(path, n_inducing):
    model = SEPClassifier(n_inducing=n_inducing, random_state=0)
    model.partial_fit(X[:10], LABELS[:10]).partial_fit(X[10:30], LABELS[10:30])
    assert len(model.model_.Z) == min(n_inducing, 30)
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
    model = fitted(warm_start=True, max_epochs=300, tol=0)
    model.save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        twin = cavity.load(path).set_params(max_epochs=20).fit(X, LABELS)
        model.set_params(max_epochs=20).fit(X, LABELS)
    # The rows' sites are gone, so the first steps differ, but kernel and inducing points are not.
    assert_allclose(twin.kernel_.theta, model.kernel_.theta, atol=0.5)
    assert_allclose(twin.predict_proba(X_STAR), model.predict_proba(X_STAR), atol=0.2)
    cold = fitted(max_epochs=20)
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
    run = {"checkpoint": Path("nowhere.npz"), "n_jobs": 1, "verbose": 0}
    model = fitted(**run, checkpoint_interval=1e9)
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


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_file_has_as_many_nodes_for_many_columns_as_for_few(path):
    """Every node of the tree takes time, which made the file of a wide table slow."""

    def nodes(n_columns):
        values = np.random.default_rng(0).normal(size=(40, n_columns))
        frame = pd.DataFrame(values, columns=[f"n{i}" for i in range(n_columns)])
        frame = frame.assign(**{f"always {i}": "a" for i in range(n_columns)})
        model = cavity.TableClassifier(SEPClassifier(n_inducing=5, max_epochs=1, random_state=0))
        model.fit(frame.assign(y=values[:, 0] > 0), "y").save(path)
        twin = cavity.load(path)
        assert twin.preprocessor_.encoders_ == model.preprocessor_.encoders_
        assert twin.notes_ == model.notes_
        assert twin.preprocessor_.ignored_ == model.preprocessor_.ignored_
        assert twin.columns_ == model.feature_names_in_.tolist()
        with ZipFile(path) as archive:
            return archive.read("schema.json").count(b"__loader__")

    assert nodes(4) == nodes(41)


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
    assert about.format == FORMAT
    assert about.cavity == cavity.__version__
    assert about.estimator == "cavity.estimators.sep.SEPClassifier"
    assert about.numpy == np.__version__


# What cannot be saved.


def test_only_fitted_estimators_are_saved(path):
    with pytest.raises(NotFittedError):
        cavity.save(SEPClassifier(), path)
    with pytest.raises(ModelFileError, match="only estimators can be saved, not 'dict'"):
        cavity.save({}, path)
    assert not path.exists()


def test_a_folder_that_is_missing(model, tmp_path):
    with pytest.raises(ModelFileError, match=r"there is no folder .*nowhere"):
        model.save(tmp_path / "nowhere" / "model.cavity")


def test_a_path_that_is_a_folder(model, tmp_path):
    with pytest.raises(ModelFileError, match=r"could not write .*directory"):
        model.save(tmp_path)
    with pytest.raises(ModelFileError, match=r"could not read .*directory"):
        cavity.load(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to(model, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o500)
    try:
        with pytest.raises(ModelFileError, match=r"could not write .*locked.*denied"):
            model.save(locked / "model.cavity")
    finally:
        locked.chmod(0o700)


def test_a_file_that_is_there_stays_whole_until_the_new_one_is(model, path, monkeypatch):
    model.save(path)
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(ModelFileError, match=r"model\.cavity.*No space left"):
            fitted(n_inducing=3).save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    fitted(n_inducing=3).save(path)
    assert len(cavity.load(path).inducing_points_) == 3


class Odd(BaseEstimator):
    """An estimator that no reader could know."""

    def fit(self):
        self.fitted_ = object
        return self


def test_what_would_not_be_loaded_is_not_saved(path):
    with pytest.raises(ModelFileError, match=r"this Odd cannot be saved: it holds .*Odd"):
        cavity.save(Odd().fit(), path)
    assert not path.exists()


class OwnKernel(RBF):
    """A user's kernel."""


def test_a_kernel_of_the_users_own_must_be_vouched_for(path):
    model = fitted(kernel=OwnKernel(), optimizer=None)
    with pytest.raises(ModelFileError, match="OwnKernel"):
        model.save(path)
    cavity.save(model, path, trusted=[OwnKernel])
    with pytest.raises(ModelFileError, match=r"model\.cavity.*OwnKernel.*trusted="):
        cavity.load(path)
    cavity.load(path, trusted=OwnKernel)
    twin = cavity.load(path, trusted=f"{OwnKernel.__module__}.OwnKernel")
    assert_array_equal(twin.predict_proba(X_STAR), model.predict_proba(X_STAR))


# What cannot be loaded: one sentence that names the file.


def refused(path, message):
    with pytest.raises(ModelFileError, match=message) as caught:
        cavity.load(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_file_that_is_missing(path):
    refused(path, "No such file")
    refused(path.parent / "nowhere" / "a.cavity", "there is no folder")


def test_an_empty_file(path):
    path.touch()
    refused(path, "is empty")


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_a_truncated_file(model, path, share):
    model.save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    refused(path, "truncated")


@pytest.mark.parametrize("content", [b"x", b"hello " * 1000, pickle.dumps({"a": 1}), b"PK"])
def test_a_file_that_is_something_else(path, content):
    path.write_bytes(content)
    refused(path, "is not a model file")


def test_an_archive_that_is_not_ours(path):
    skops.io.dump(LogisticRegression(), path)
    refused(path, r"not one that cavity\.save wrote")


def rewritten(path, **entries):
    """The archive at `path` with some of its entries changed by functions of their JSON."""
    with ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    for name, change in entries.items():
        entry = {"header": "cavity.json", "schema": "schema.json"}[name]
        parts[entry] = json.dumps(change(json.loads(parts[entry]))).encode()
    buffer = io.BytesIO()
    with ZipFile(buffer, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    path.write_bytes(buffer.getvalue())


def test_a_file_from_the_future(model, path):
    model.save(path)
    rewritten(path, header=lambda header: {**header, "format": FORMAT + 1, "cavity": "9.9.9"})
    refused(path, rf"has format {FORMAT + 1} and was written by cavity 9\.9\.9.*upgrade cavity")


def test_a_file_of_an_older_format(model, path):
    model.save(path)
    rewritten(path, header=lambda header: {**header, "format": FORMAT - 1, "cavity": "0.0.9"})
    refused(
        path, rf"has format {FORMAT - 1} and was written by cavity 0\.0\.9.*fit and save the model again"
    )


@pytest.mark.parametrize("header", [{}, [], None, {"format": "one"}, {"format": 0}])
def test_a_header_that_makes_no_sense(model, path, header):
    model.save(path)
    rewritten(path, header=lambda _: header)
    refused(path, "damaged header")


def test_one_flipped_byte(model, path):
    model.save(path)
    content = bytearray(path.read_bytes())
    with ZipFile(path) as archive:
        array = max(
            archive.infolist(), key=lambda entry: entry.filename.endswith(".npy") * entry.file_size
        )
    content[array.header_offset + 200] ^= 1
    path.write_bytes(bytes(content))
    refused(path, "is damaged")


def test_an_array_that_is_missing(model, path):
    model.save(path)

    def lost(schema):
        return json.loads(json.dumps(schema).replace(".npy", ".lost"))

    rewritten(path, schema=lost)
    refused(path, "is damaged")


def test_a_record_of_another_version(model, path, monkeypatch):
    model.save(path)
    monkeypatch.setattr(Scaling, "__dataclass_fields__", dict(Scaling.__dataclass_fields__))
    Scaling.__dataclass_fields__["spread"] = Scaling.__dataclass_fields__.pop("scale")
    Scaling.__dataclass_fields__["spread"].name = "spread"
    try:
        refused(path, "Scaling lacks spread.*another version")
    finally:
        Scaling.__dataclass_fields__["spread"].name = "scale"


def test_a_field_that_this_version_does_not_know(model, path):
    def with_field(schema):
        text = json.dumps(schema).replace('"half_log_determinant"', '"half_log_determinant_new"')
        return json.loads(text)

    model.save(path)
    rewritten(path, schema=with_field)
    refused(path, "Posterior lacks half_log_determinant.*another version")


def test_the_versions_are_named_when_they_differ(model, path):
    model.save(path)
    rewritten(
        path,
        header=lambda header: {**header, "cavity": "0.0.9"},
        schema=lambda schema: {**schema, "__class__": "LostClassifier"},
    )
    refused(path, r"LostClassifier.*it was written with cavity 0\.0\.9 \(here ")

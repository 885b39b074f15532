"""A model whose parts do not agree is refused in words; what is loaded predicts numbers."""

import io
import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from zipfile import ZipFile

import numpy as np
import pytest
import skops
from numpy.testing import assert_array_equal
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from small_models import LABELS, X_STAR, X, fitted

import cavity
from campaign.mutations import ARRAYS, HEADER, MUTATIONS, SCHEMA, packed
from cavity import ModelFileError, TableClassifier
from cavity.data.preprocess import TablePreprocessor
from cavity.export.checks import check_estimator
from cavity.export.model_file import FORMAT, describe
from flights_table import flights
from support import recalibrate


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.cavity"


def parts_of(model, path):
    """The members of the file of a model, by name."""
    cavity.save(model, path)
    with ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def refused(path, message):
    with pytest.raises(ModelFileError, match=message) as caught:
        cavity.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("change", ["wide", "flat", "float32", "reversed", "short", "all NaN"])
@pytest.mark.parametrize("kind", ["fit", "stream"])
def test_any_array_may_be_replaced(path, kind, change):
    model = fitted() if kind == "fit" else cavity.SEPClassifier(n_inducing=5).partial_fit(X, LABELS)
    parts = parts_of(model, path)
    for name in [part for part in parts if part.endswith(".npy")]:
        array = np.load(io.BytesIO(parts[name]))
        path.write_bytes(packed({**parts, name: ARRAYS[change](array)}))
        try:
            twin = cavity.load(path)
        except ModelFileError:
            continue
        assert np.isfinite(twin.predict_proba(X_STAR)).all()


def test_every_part_of_a_model_has_its_shape():
    check_estimator(without_rows(fitted()))
    for place in (
        "model_.Z",
        "model_.posterior.mean",
        "model_.posterior.covariance",
        "model_.posterior.naturals.precision",
        "model_.posterior.naturals.shift",
        "model_.scaling.centre",
        "model_.scaling.scale",
        "model_.scaling.bend",
    ):
        for change in (lambda a: a[..., :-1], lambda a: a[None], lambda a: np.full_like(a, np.nan)):
            model = without_rows(fitted())
            *path, name = place.split(".")
            holder = model
            for part in path:
                holder = getattr(holder, part)
            vars(holder)[name] = change(getattr(holder, name))
            with pytest.raises(ModelFileError, match="its "):
                check_estimator(model)


@pytest.mark.parametrize(
    ("part", "change", "words"),
    [
        ("scale", lambda s: 0.0 * s.scale, "not positive"),
        ("bend", lambda s: -s.bend, "usual size"),
        ("bend", lambda s: np.nan * s.bend, "not finite"),
        ("knots", lambda s: 1.0, "wrong kind"),
        ("knots", lambda s: replace(s.knots, starts=s.knots.starts + 1), "shape"),
        ("knots", lambda s: replace(s.knots, starts=s.knots.starts[[0, 0, 2]] + [0, 1, 0]), "starts"),
        ("knots", lambda s: replace(s.knots, starts=1.0 * s.knots.starts), "dtype"),
        ("knots", lambda s: replace(s.knots, positions=s.knots.positions[::-1].copy()), "increase"),
        ("knots", lambda s: replace(s.knots, values=0.0 * s.knots.values), "increase"),
        ("knots", lambda s: replace(s.knots, values=1e-308 * s.knots.values), "too steep"),
        ("knots", lambda s: replace(s.knots, values=s.knots.values[:-1]), "shape"),
        ("knots", lambda s: replace(s.knots, values=np.nan * s.knots.values), "not finite"),
    ],
)
def test_a_scaling_that_does_not_rise_is_refused(part, change, words):
    model = without_rows(fitted(scaling="quantile"))
    check_estimator(model)
    changed = replace(model.model_.scaling, **{part: change(model.model_.scaling)})
    vars(model)["model_"] = replace(model.model_, scaling=changed)
    with pytest.raises(ModelFileError, match=words):
        check_estimator(model)


def without_rows(model):
    """The model as a file would hold it."""
    model._training = None
    return model


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("classes_", np.array([1]), "not two or more labels"),
        ("classes_", np.array([1, 1]), "not all different"),
        ("classes_", np.array([0, 1, 2]), "number of latent functions"),
        ("n_features_in_", 3, "number of features"),
        ("history_", [1.0], "history_ of the wrong kind"),
        ("config_", None, "config_ of the wrong kind"),
        ("_stream", 1, "do not go together"),
    ],
)
def test_attributes_that_disagree(name, value, words):
    model = without_rows(fitted())
    vars(model)[name] = value
    with pytest.raises(ModelFileError, match=words):
        check_estimator(model)


@pytest.mark.parametrize("b", [-0.1, np.nan, np.inf, 1e300])
def test_a_scale_of_the_residual_that_is_no_scale(b):
    model = without_rows(recalibrate(fitted(), 1.0, b))
    with pytest.raises(ModelFileError, match=r"residual_variance_scale is .* should be 0 or positive"):
        check_estimator(model)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_columns_of_a_table_that_disagree():
    def model():
        fit = TableClassifier(fitted_parameters()).fit(flights(60), "delayed")
        without_rows(fit.estimator_)
        return fit

    check_estimator(model())
    for change, words in (
        (lambda m: m.preprocessor_.encoders_.pop(), "features of the columns"),
        (lambda m: vars(m.preprocessor_.encoders_[0]).update(decimal="x"), "decimal sign 'x'"),
        (lambda m: vars(m.preprocessor_.encoders_[0]).update(usual=(1.0, np.nan)), "values from 1.0 to"),
        (lambda m: vars(m.preprocessor_).update(ignored_=[1]), "ignored_ of the wrong kind"),
        (lambda m: m.estimator_.feature_names_in_.__setitem__(0, 1), "are not all text"),
        (lambda m: vars(m).update(classes_=np.array(["x", "y"])), "values of the classes"),
        (lambda m: vars(m).update(estimator_=LogisticRegression()), "LogisticRegression"),
        (lambda m: vars(m.preprocessor_).update(dtype_="int8"), "precision 'int8'"),
    ):
        changed = model()
        change(changed)
        with pytest.raises(ModelFileError, match=words):
            check_estimator(changed)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_effects_of_values_that_disagree():
    frame = flights(300)
    frame["hour"] = np.arange(300) % 7
    fit = TableClassifier(fitted_parameters(), target_encoding=True).fit(frame, "delayed")
    without_rows(fit.estimator_)
    check_estimator(fit)
    whole = fit.preprocessor_.effects_
    first = next(e for e in whole if e.columns == ("hour",))
    (index,) = first.indices

    def at(**changes):
        return replace(first, indices=(replace(index, values=index.values._replace(**changes)),))

    for change, words in (
        (replace(first, table=first.table[1:]), "table of effects has shape"),
        (replace(first, table=np.full_like(first.table, np.nan)), "not finite"),
        (replace(first, classes=("a", "b")), "features of the columns"),
        (replace(first, indices=(replace(index, keys=index.keys[::-1]),)), "do not increase"),
        (at(column="carrier"), "kind of 'carrier'"),
        (at(part="hour"), "unknown part 'hour'"),
        (replace(first, counts=-np.ones((8, 6, 2))), "counts of values are negative"),
        (replace(first, counts=np.ones((7, 6, 2))), "counts of an effect has shape"),
        (replace(first, cells=np.array([1, 0])), "do not increase"),
    ):
        fit.preprocessor_.effects_ = [change if e is first else e for e in whole]
        with pytest.raises(ModelFileError, match=words):
            check_estimator(fit)


def fitted_parameters():
    return cavity.SEPClassifier(n_inducing=4, max_epochs=2, random_state=0)


def test_only_our_estimators_and_pipelines_around_them(path):
    frame = flights(40)
    for estimator in (
        LogisticRegression().fit(X, LABELS),
        make_pipeline(StandardScaler(), LogisticRegression()).fit(X, LABELS),
        TablePreprocessor().fit(frame),
    ):
        with pytest.raises(ModelFileError, match="only cavity's classifiers"):
            cavity.save(estimator, path)
    assert not path.exists()


def test_a_header_of_another_estimator(path):
    parts = parts_of(fitted(), path)
    header = {**json.loads(parts[HEADER]), "estimator": "cavity.estimators.svi.SVIClassifier"}
    path.write_bytes(packed({**parts, HEADER: json.dumps(header)}))
    refused(path, "its header names a cavity.estimators.svi.SVIClassifier")


@pytest.mark.parametrize("protocol", [0, 1, 3, True, None])
def test_another_protocol_of_skops(path, protocol):
    parts = parts_of(fitted(), path)
    schema = {**json.loads(parts[SCHEMA]), "protocol": protocol}
    path.write_bytes(packed({**parts, SCHEMA: json.dumps(schema)}))
    refused(path, "protocol")


def test_an_old_skops_is_refused(path, monkeypatch):
    cavity.save(fitted(), path)
    monkeypatch.setattr(skops, "__version__", "0.15.0")
    with pytest.raises(ImportError, match=r"skops 0\.15\.0 is not safe .*needs 0\.16"):
        cavity.load(path)


def test_where_to_write_is_not_taken_from_a_file(path):
    parts = parts_of(fitted(checkpoint="here.npz"), path)
    schema = json.loads(parts[SCHEMA])
    text = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "is_json": True}
    schema["content"]["content"]["checkpoint"] = {**text, "content": '"/etc/passwd"'}
    path.write_bytes(packed({**parts, SCHEMA: json.dumps(schema)}))
    assert cavity.load(path).checkpoint is None


@pytest.mark.parametrize("state", [7, np.random.RandomState(3)])
def test_random_states_are_kept(path, state):
    model = fitted(random_state=state)
    cavity.save(model, path)
    twin = cavity.load(path)
    assert_array_equal(twin.predict_proba(X_STAR), model.predict_proba(X_STAR))


# Sizes.


@pytest.mark.parametrize("read", [cavity.load, describe])
def test_what_never_ends_is_not_read(read, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in ("/dev/zero", tmp_path / "pipe"):
        with pytest.raises(ModelFileError, match="not a regular file"):
            read(place)


def test_a_file_that_is_larger_than_memory(path):
    cavity.save(fitted(), path)
    content = path.read_bytes()
    with path.open("wb") as file:
        file.truncate(1 << 42)
        file.seek(0, 2)
        file.write(content)
    assert describe(path).format == FORMAT
    refused(path, "needs .* bytes, and .* are available")


BOMBS = [name for name in MUTATIONS if name.startswith("bomb") and "members" not in name]
PEAK = """
import resource, sys, cavity
cavity.load(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[2:]:
    try:
        cavity.load(path)
    except cavity.ModelFileError:
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def test_bombs_take_little_memory(path, tmp_path):
    parts = parts_of(fitted(), path)
    bombs = []
    for i, name in enumerate(BOMBS):
        bombs.append(tmp_path / f"{i}.cavity")
        bombs[-1].write_bytes(MUTATIONS[name](random.Random(0), dict(parts)))
    command = [sys.executable, "-c", PEAK, path, *bombs]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    peaks = [float(line) for line in done.stdout.split()]
    assert len(peaks) == len(bombs)
    assert max(peaks) < 200

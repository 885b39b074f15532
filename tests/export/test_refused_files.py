"""What cannot be saved or loaded is refused, in one sentence that names the file."""

import io
import json
import os
import pickle
from zipfile import ZipFile

import pytest
import skops.io
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LogisticRegression
from small_models import X_STAR, fitted

import cavity
from cavity import ModelFileError, SEPClassifier
from cavity.data.scaling import Standardizer


@pytest.fixture(scope="module")
def model():
    return fitted()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.cavity"


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
    rewritten(path, header=lambda header: {**header, "format": 3, "cavity": "9.9.9"})
    refused(path, r"has format 3 and was written by cavity 9\.9\.9.*upgrade cavity")


def test_a_file_of_an_older_format(model, path):
    model.save(path)
    rewritten(path, header=lambda header: {**header, "format": 1, "cavity": "0.0.9"})
    refused(path, r"has format 1 and was written by cavity 0\.0\.9.*fit and save the model again")


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
    monkeypatch.setattr(Standardizer, "__dataclass_fields__", dict(Standardizer.__dataclass_fields__))
    Standardizer.__dataclass_fields__["spread"] = Standardizer.__dataclass_fields__.pop("scale")
    Standardizer.__dataclass_fields__["spread"].name = "spread"
    try:
        refused(path, "Standardizer lacks spread.*another version")
    finally:
        Standardizer.__dataclass_fields__["spread"].name = "scale"


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

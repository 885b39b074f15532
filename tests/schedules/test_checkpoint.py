"""Checkpoints: everything a run needs is in them, and what is not one of this run is refused."""

import errno
import json
import os
import shutil
import zipfile

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from training_runs import make_trainer

from cavity import CheckpointError, SEPClassifier, SVIClassifier
from cavity.engines.local import LocalEngine
from cavity.optimizers import Adadelta, Adam, SignRates
from cavity.rules.variational import Variational
from cavity.schedules.checkpoint import Checkpointer, Position
from cavity.schedules.fingerprint import Fingerprint
from cavity.schedules.gaussian import GaussianSpace
from cavity.schedules.monitor import Monitor
from cavity.schedules.posterior_update import GradientUpdate, NaturalUpdate
from cavity.schedules.progress import Progress
from support import no_more_rights_than_files_give, table

X, LABELS = table(120)
X_STAR, _ = table(30, seed=4)
THIS = Fingerprint({"what": "this"})
KERNEL = ConstantKernel(1.0) * RBF([1.0, 1.0])


class PowerCutError(Exception):
    """What ends a run without any warning."""


def crash_at(monkeypatch, number):
    count = 0
    sweep = LocalEngine.sweep

    def crashing(*args, **kwargs):
        nonlocal count
        count += 1
        if count == number:
            raise PowerCutError
        return sweep(*args, **kwargs)

    monkeypatch.setattr(LocalEngine, "sweep", crashing)


def classifier(path=None, kind=SEPClassifier, **options):
    options = {"n_inducing": 6, "batch_size": 20, "max_epochs": 5, "random_state": 0, **options}
    return kind(checkpoint=path, checkpoint_every=0.0, n_jobs=1, **options)


def break_off(monkeypatch, model):
    """A fit to X, LABELS that ends after nine steps."""
    with monkeypatch.context() as patch:
        crash_at(patch, 10)
        with pytest.raises(PowerCutError):
            model.fit(X, LABELS)


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    """What `classifier()` left behind when it was broken off."""
    path = tmp_path / "fit.ckpt"
    break_off(monkeypatch, classifier(path))
    assert path.exists()
    return path


UPDATES = {"natural": NaturalUpdate(), "gradient": GradientUpdate(GaussianSpace(1, 6))}


@pytest.mark.parametrize("optimizer", [Adam(0.05), Adadelta(), SignRates()])
@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_a_state_comes_back_as_it_was_and_goes_on_as_it_would_have(tmp_path, optimizer, update):
    def trainer():
        return make_trainer(X, LABELS, rule=Variational(), optimizer=optimizer, update=update)

    one, state = trainer(), trainer().start()
    progress, monitor = Progress(), Monitor(window=2, patience=None)
    for _ in range(5):
        state, info = one.step(state)
        progress.record(info, 1.0)
        monitor.plateau_after(state, info)
    path, position = tmp_path / "a.ckpt", Position(epoch=2, batch=3, step=5)
    Checkpointer(path, 0.0, lambda: THIS).save(path, state, position, one, progress, monitor)

    other, progress_again, monitor_again = trainer(), Progress(), Monitor(window=2, patience=None)
    checkpointer = Checkpointer(path, 0.0, lambda: THIS)
    again, position_again = checkpointer.resume(other, progress_again, monitor_again)
    assert position_again == position
    assert progress_again.history == progress.history
    assert progress_again.seconds >= progress.history[-1].seconds
    assert monitor_again.scores == monitor.scores
    assert_array_equal(monitor_again.best.x, monitor.best.x)
    assert_array_equal(other.engine.log_predictive, one.engine.log_predictive)
    for _ in range(3):
        (state, info), (again, info_again) = one.step(state), other.step(again)
        assert info_again == info
    assert_array_equal(again.x, state.x)
    assert type(again.optimizer_state) is type(state.optimizer_state)
    for name, values in update.as_arrays(state.q).items():
        assert_array_equal(update.as_arrays(again.q)[name], values)


def test_without_a_file_a_run_starts_at_the_start(tmp_path):
    trainer = make_trainer(X, LABELS)
    for path in (None, tmp_path / "not yet"):
        state, position = Checkpointer(path, 0.0, Fingerprint).resume(
            trainer, Progress(), Monitor(window=1, patience=None)
        )
        assert position == Position()
        assert_array_equal(state.x, trainer.problem.space.start)


def test_only_every_so_many_seconds(tmp_path):
    trainer = make_trainer(X, LABELS)
    context = (trainer.start(), Position(), trainer, Progress(), Monitor(window=1, patience=None))
    path = tmp_path / "a.ckpt"
    Checkpointer(path, 1000.0, Fingerprint).after_step(*context)
    assert not path.exists()
    Checkpointer(path, 0.0, Fingerprint).after_step(*context)
    assert path.exists()
    Checkpointer(None, 0.0, Fingerprint).after_step(*context)


@pytest.mark.parametrize("batch_size", [20, None], ids=["stochastic", "batch"])
def test_the_file_is_gone_after_a_fit_that_went_well(tmp_path, batch_size):
    path = tmp_path / "fit.ckpt"
    epochs = None if batch_size is None else 5
    classifier(path, batch_size=batch_size, max_epochs=epochs, tol=1e-2).fit(X, LABELS)
    assert list(tmp_path.iterdir()) == []


def test_a_path_may_be_a_string_and_need_not_have_a_suffix(tmp_path, monkeypatch):
    path = tmp_path / "plain"
    break_off(monkeypatch, classifier(str(path)))
    assert [file.name for file in tmp_path.iterdir()] == ["plain"]


def test_how_the_fit_is_run_may_change(checkpoint):
    """Threads, messages and the checkpoint's own settings are not what is fitted."""
    moved = checkpoint.with_name("moved.ckpt")
    checkpoint.rename(moved)
    resumed = classifier(moved).set_params(n_jobs=2, checkpoint_every=30.0).fit(X, LABELS)
    whole = classifier().fit(X, LABELS)
    assert_allclose(resumed.predict_proba(X_STAR), whole.predict_proba(X_STAR), rtol=1e-9)


OTHERS = {
    "estimator": lambda path: classifier(path, SVIClassifier).fit(X, LABELS),
    "n_inducing": lambda path: classifier(path, n_inducing=7).fit(X, LABELS),
    "kernel": lambda path: classifier(path, kernel=KERNEL).fit(X, LABELS),
    "batch_size": lambda path: classifier(path, batch_size=30).fit(X, LABELS),
    "optimizer": lambda path: classifier(path, optimizer="adadelta").fit(X, LABELS),
    "random_state": lambda path: classifier(path, random_state=1).fit(X, LABELS),
    "rows": lambda path: classifier(path).fit(X[:-1], LABELS[:-1]),
    "features": lambda path: classifier(path).fit(np.hstack([X, X]), LABELS),
    "values": lambda path: classifier(path).fit(X + 0.1, LABELS),
    "labels": lambda path: classifier(path).fit(X, 1 - LABELS),
}


@pytest.mark.parametrize("fit", OTHERS.values(), ids=OTHERS)
def test_a_checkpoint_of_another_fit_is_refused_and_kept(checkpoint, fit):
    before = checkpoint.read_bytes()
    with pytest.raises(CheckpointError, match="another fit") as caught:
        fit(checkpoint)
    assert str(checkpoint) in str(caught.value)
    assert checkpoint.read_bytes() == before


def test_other_values_are_noticed_even_where_nothing_is_learned_from_them_beforehand(
    tmp_path, monkeypatch
):
    options = {"kernel": KERNEL, "inducing_points": X[:5], "standardize": False}
    path = tmp_path / "fit.ckpt"
    break_off(monkeypatch, classifier(path, **options))
    with pytest.raises(CheckpointError, match="another fit"):
        classifier(path, **options).fit(X[::-1] * 2.0, LABELS)


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(3)])
def test_a_fit_without_a_seed_cannot_be_resumed_and_says_so_at_once(tmp_path, random_state):
    with pytest.raises(ValueError, match="give random_state a whole number"):
        classifier(tmp_path / "fit.ckpt", random_state=random_state).fit(X, LABELS)


def rewrite(path, **about):
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    stored = {**json.loads(arrays["about"].tobytes()), **about}
    arrays["about"] = np.frombuffer(json.dumps(stored).encode(), dtype=np.uint8)
    with path.open("wb") as file:
        np.savez(file, **arrays)


@pytest.mark.parametrize("version", [0, 999, None, "2"])
def test_another_version_of_the_format_is_named(checkpoint, version):
    rewrite(checkpoint, format=version)
    with pytest.raises(CheckpointError, match=f"format {version}") as caught:
        classifier(checkpoint).fit(X, LABELS)
    assert str(checkpoint) in str(caught.value)


def truncated(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def text(path):
    path.write_text("epoch,loss\n1,0.3\n")


def single_array(path):
    with path.open("wb") as file:
        np.save(file, np.eye(3))


def other_archive(path):
    with path.open("wb") as file:
        np.savez(file, weights=np.eye(3))


def flipped_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


def missing_array(path):
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files if name != "state.x"}
    with path.open("wb") as file:
        np.savez(file, **arrays)


def senseless_header(path):
    with path.open("wb") as file:
        np.savez(file, about=np.frombuffer(b"{not json", dtype=np.uint8))


def zip_of_a_later_version(path):
    """The version that is needed to extract the first member, in both places."""
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 6] = 99
    path.write_bytes(bytes(content))


def encrypted(path):
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    content[content.index(b"PK\x03\x04") + 6] |= 1
    path.write_bytes(bytes(content))


def too_large_to_be_true(path):
    with path.open("wb") as file, zipfile.ZipFile(file, "w") as archive:
        header = (
            "{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999,), }".ljust(117) + "\n"
        )
        archive.writestr("about.npy", b"\x93NUMPY\x01\x00" + b"\x76\x00" + header.encode())


def folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "spoil",
    [
        truncated,
        empty,
        text,
        single_array,
        other_archive,
        flipped_byte,
        missing_array,
        senseless_header,
        zip_of_a_later_version,
        encrypted,
        too_large_to_be_true,
        folder,
    ],
)
def test_what_is_no_checkpoint_is_said_to_be_none(checkpoint, spoil):
    spoil(checkpoint)
    with pytest.raises(CheckpointError) as caught:
        classifier(checkpoint).fit(X, LABELS)
    assert str(checkpoint) in str(caught.value)
    assert checkpoint.exists(), "whatever it is, it is not ours to delete"


SELDOM = {"checkpoint_every": 1e6}
"""A fit that would not come to write a checkpoint."""


def steps(monkeypatch):
    """A list that grows with every pass over rows."""
    passes = []

    def counted(*args, sweep=LocalEngine.sweep, **kwargs):
        passes.append(1)
        return sweep(*args, **kwargs)

    monkeypatch.setattr(LocalEngine, "sweep", counted)
    return passes


def refused_at_once(monkeypatch, path):
    """The message with which a fit refuses a path before its first step."""
    passes = steps(monkeypatch)
    with no_more_rights_than_files_give(), pytest.raises(CheckpointError) as caught:
        classifier(path).set_params(checkpoint_every=1e6).fit(X, LABELS)
    assert not passes
    return str(caught.value)


def test_a_path_in_no_folder_is_refused_before_the_work(tmp_path, monkeypatch):
    path = tmp_path / "nowhere" / "fit.ckpt"
    message = refused_at_once(monkeypatch, path)
    assert str(path) in message
    assert f"there is no folder {str(path.parent)!r}" in message


def test_a_path_in_a_file_is_refused_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    message = refused_at_once(monkeypatch, tmp_path / "file" / "fit.ckpt")
    assert "is not a folder" in message


@pytest.mark.parametrize("name", ["", ".", "somewhere"])
def test_a_folder_is_refused_before_the_work_and_not_to_be_deleted(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "somewhere").mkdir()
    message = refused_at_once(monkeypatch, name)
    assert "is a folder; name a file, for instance" in message
    assert "delete" not in message


@pytest.mark.parametrize("name", ["x" * 300, "null\0byte"])
def test_a_name_that_no_file_can_have_is_refused_before_the_work(tmp_path, monkeypatch, name):
    assert "cannot be used" in refused_at_once(monkeypatch, tmp_path / name)


@pytest.mark.parametrize("mode", [0o500, 0o000])
def test_a_folder_that_may_not_be_written_to_is_refused_before_the_work(tmp_path, monkeypatch, mode):
    folder = tmp_path / "folder"
    folder.mkdir(mode=mode)
    message = refused_at_once(monkeypatch, folder / "fit.ckpt")
    assert "Permission denied; pass a path in a folder that" in message


def test_a_checkpoint_that_may_not_be_read_is_not_to_be_deleted(checkpoint, monkeypatch):
    checkpoint.chmod(0o000)
    message = refused_at_once(monkeypatch, checkpoint)
    assert str(checkpoint) in message
    assert "change its permissions" in message
    assert "delete" not in message


def test_a_file_that_cannot_be_removed_is_a_warning_and_the_fit_is_done(tmp_path, monkeypatch):
    path = tmp_path / "fit.ckpt"

    def finish(self, engine, finish=Checkpointer.finish):
        tmp_path.chmod(0o500)
        finish(self, engine)

    monkeypatch.setattr(Checkpointer, "finish", finish)
    model = classifier(path)
    with no_more_rights_than_files_give(), pytest.warns(UserWarning, match="not be removed") as caught:
        model.fit(X, LABELS)
    tmp_path.chmod(0o700)
    assert str(path) in str(caught[0].message)
    assert_allclose(model.predict_proba(X_STAR), classifier().fit(X, LABELS).predict_proba(X_STAR))


def test_what_was_being_written_when_a_run_was_killed_does_not_stay(tmp_path):
    path = tmp_path / "fit.ckpt"
    others = {".fit.ckpt.12345678.part.txt", ".fit2.ckpt.12345678.part", ".fit.ckpt.mine.part"}
    for name in (".fit.ckpt.01234567.part", ".fit.ckpt.89abcdef.part", *others):
        (tmp_path / name).write_bytes(b"half")
    classifier(path).set_params(**SELDOM).fit(X, LABELS)
    assert {file.name for file in tmp_path.iterdir()} == others


@pytest.mark.parametrize("where", ["savez", "fsync"])
def test_a_full_disk_leaves_the_last_good_checkpoint(checkpoint, monkeypatch, where):
    before = checkpoint.read_bytes()
    savez = np.savez

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def half(file, **arrays):
        savez(file, **arrays)
        file.truncate(100)
        full()

    with monkeypatch.context() as patch:
        patch.setattr(*((np, "savez", half) if where == "savez" else (os, "fsync", full)))
        with pytest.raises(CheckpointError, match="No space") as caught:
            classifier(checkpoint).fit(X, LABELS)
    assert str(checkpoint) in str(caught.value)
    assert checkpoint.read_bytes() == before
    assert list(checkpoint.parent.iterdir()) == [checkpoint]
    resumed = classifier(checkpoint).fit(X, LABELS)
    whole = classifier().fit(X, LABELS)
    assert_allclose(resumed.predict_proba(X_STAR), whole.predict_proba(X_STAR), rtol=1e-12)


def test_a_copy_of_a_checkpoint_can_be_resumed_twice(checkpoint, tmp_path):
    copy = tmp_path / "copy.ckpt"
    shutil.copy(checkpoint, copy)
    one, other = (classifier(path).fit(X, LABELS) for path in (checkpoint, copy))
    assert_array_equal(one.predict_proba(X_STAR), other.predict_proba(X_STAR))

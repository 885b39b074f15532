"""Checkpoints: everything a run needs is in them, and what is not one of this run is refused."""

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from broken_fits import LABELS, PowerCutError, X, break_off, classifier, crash_at, left_behind
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from training_runs import make_trainer

from cavity import CheckpointError, ClusterError, SVIClassifier
from cavity.engines.local import LocalEngine
from cavity.inference import start
from cavity.inference.checkpoint import Checkpointer, Position, Run
from cavity.inference.checkpoint_file import Fingerprint
from cavity.inference.history import Progress
from cavity.inference.optimizers import Adadelta, Adam, SignRates
from cavity.inference.rule import Variational
from cavity.inference.schedule import Monitor
from cavity.inference.updates import GaussianSpace, GradientUpdate, NaturalUpdate
from support import replace_sweep, set_clock, table

X_STAR, _ = table(30, seed=4)
THIS = Fingerprint({"what": "this"})
KERNEL = ConstantKernel(1.0) * RBF([1.0, 1.0])


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    """What `classifier()` left behind when it was broken off."""
    return left_behind(tmp_path / "fit.ckpt", monkeypatch)


UPDATES = {"natural": NaturalUpdate(), "gradient": GradientUpdate(GaussianSpace(1, 6))}


@pytest.mark.parametrize("optimizer", [Adam(0.05), Adadelta(), SignRates()])
@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_a_state_comes_back_as_it_was_and_goes_on_as_it_would_have(tmp_path, optimizer, update):
    def trainer():
        return make_trainer(X, LABELS, rule=Variational(), optimizer=optimizer, update=update)

    one, state = trainer(), trainer().init()
    progress, monitor = Progress(), Monitor(window=2, patience=None)
    for _ in range(5):
        state, info = one.step(state)
        progress.record(info, 1.0)
        monitor.plateau_after(state, info)
    path, position = tmp_path / "a.ckpt", Position(epoch=2, batch=3, step=5)
    Checkpointer(path, 0.0, lambda: THIS).save(path, Run(one, state, position, progress, monitor))

    other, progress_again, monitor_again = trainer(), Progress(), Monitor(window=2, patience=None)
    checkpointer = Checkpointer(path, 0.0, lambda: THIS)
    other, again, position_again, *_ = checkpointer.resume(other, progress_again, monitor_again)
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
        _, state, position, *_ = Checkpointer(path, 0.0, Fingerprint).resume(
            trainer, Progress(), Monitor(window=1, patience=None)
        )
        assert position == Position()
        assert_array_equal(state.x, trainer.problem.space.start)


def test_only_every_so_many_seconds(tmp_path, monkeypatch):
    set_clock(monkeypatch, 1.0, "monotonic")
    trainer = make_trainer(X, LABELS)
    run = Run(trainer, trainer.init(), Position(), Progress(), Monitor(window=1, patience=None))
    path = tmp_path / "a.ckpt"
    checkpointer = Checkpointer(path, 3.0, Fingerprint)
    for exists in (False, False, True):
        checkpointer.after_step(run)
        assert path.exists() is exists
    assert path.exists()
    Checkpointer(None, 0.0, Fingerprint).after_step(run)


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
    resumed = classifier(moved, n_jobs=2, checkpoint_interval=30.0).fit(X, LABELS)
    whole = classifier().fit(X, LABELS)
    assert_allclose(resumed.predict_proba(X_STAR), whole.predict_proba(X_STAR), rtol=1e-9)


OTHERS = {
    "estimator": lambda path: classifier(path, SVIClassifier).fit(X, LABELS),
    "n_inducing": lambda path: classifier(path, n_inducing=7).fit(X, LABELS),
    "kernel": lambda path: classifier(path, kernel=KERNEL).fit(X, LABELS),
    "batch_size": lambda path: classifier(path, batch_size=30).fit(X, LABELS),
    "optimizer": lambda path: classifier(path, optimizer=Adadelta()).fit(X, LABELS),
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
    options = {"kernel": KERNEL, "inducing_points": X[:5], "scaling": None}
    path = tmp_path / "fit.ckpt"
    break_off(monkeypatch, classifier(path, **options))
    with pytest.raises(CheckpointError, match="another fit"):
        classifier(path, **options).fit(X[::-1] * 2.0, LABELS)


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(3)])
def test_a_fit_without_a_seed_cannot_be_resumed_and_says_so_at_once(tmp_path, random_state):
    with pytest.raises(ValueError, match="give random_state a whole number"):
        classifier(tmp_path / "fit.ckpt", random_state=random_state).fit(X, LABELS)


def rewrite(path, **about):
    path = Path(path)
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


IMPOSSIBLE = {
    "ending": {"position": {"epoch": 1, "batch": 3, "step": 9, "ending": -1}},
    "ending 0": {"position": {"epoch": 1, "batch": 3, "step": 9, "ending": 0.0}},
    "ending later": {"position": {"epoch": 1, "batch": 3, "step": 9, "ending": 2.5}},
    "step": {"position": {"epoch": 1, "batch": 3, "step": -9, "ending": None}},
    "epoch": {"position": {"epoch": 1.5, "batch": 3, "step": 9, "ending": None}},
    "its position": {"position": {"epoch": 1}},
    "seconds": {"seconds": -1.0},
    "seconds NaN": {"seconds": float("nan")},
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_impossible_position_is_refused(checkpoint, name):
    """An ending before the beginning once made a fit without end."""
    rewrite(checkpoint, **IMPOSSIBLE[name])
    with pytest.raises(CheckpointError, match=rf"{name.split(' ')[0]}.* delete it to start afresh"):
        classifier(checkpoint).fit(X, LABELS)


def with_array(path, name, change):
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    arrays[name] = change(arrays.get(name))
    with path.open("wb") as file:
        np.savez(file, **arrays)


MISFITS = {
    "state.x": (lambda x: np.append(x, 0.0), "shape"),
    "best.x": (lambda x: x * np.nan, "not finite"),
    "more": (lambda _: np.zeros(3), "this fit has no more"),
    "state.previous.x": (lambda x: x + 50.0, "outside the kernel's bounds"),
    "state.q.precision": (lambda q: q.astype(np.float32), "float32, where this fit has float64"),
    "state.optimizer.count": (lambda count: -count, "not a number of steps"),
    "state.optimizer.second": (lambda second: -1.0 - second, "no step can be made"),
    "state.damping": (lambda damping: damping + 1.0, "not between 0 and 1"),
    "sites.shift": (lambda shift: shift[:, :-1], "shape"),
    "log_predictive": (lambda scores: scores - np.inf, "infinite"),
    "history": (lambda history: history[:, :-1], "shape"),
    "scores": (lambda scores: np.zeros(100), "shape .100,., where this fit has .≤9."),
    "start.Z": (lambda Z: Z.T, "shape"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_arrays_that_do_not_fit_are_refused(checkpoint, name):
    change, words = MISFITS[name]
    with_array(checkpoint, name, change)
    with pytest.raises(CheckpointError, match=words) as caught:
        classifier(checkpoint).fit(X, LABELS)
    assert f"{str(checkpoint)!r} is not a readable checkpoint" in str(caught.value)


def test_a_failure_after_resuming_names_the_checkpoint(checkpoint):
    with_array(checkpoint, "state.q.precision", lambda q: q - 1e30)
    with_array(checkpoint, "state.previous.q.precision", lambda q: q - 1e30)
    with pytest.raises(CheckpointError, match=r"resumed from .* a training step failed .* delete it"):
        classifier(checkpoint).fit(X, LABELS)


def test_a_cluster_that_fails_is_not_the_fault_of_the_checkpoint(checkpoint, monkeypatch):
    def lost(*_):
        raise ClusterError("all workers are gone")

    monkeypatch.setattr(LocalEngine, "restore_rows", lost)
    with pytest.raises(ClusterError):
        classifier(checkpoint).fit(X, LABELS)
    assert checkpoint.exists()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "options", [{}, {"learn_inducing": False}, {"batch_size": None, "max_epochs": 20}]
)
def test_the_start_comes_from_the_checkpoint(tmp_path, monkeypatch, options):
    """With another number of threads, k-means rounds differently and may choose other points."""
    path = tmp_path / "fit.ckpt"
    options = {"hyperprior_scale": 0.5, **options}
    break_off(monkeypatch, classifier(path, **options))
    whole = classifier(**options).fit(X, LABELS)

    def rounded(*args, choose=start.kernel_and_points, **kwargs):
        kernel, Z = choose(*args, **kwargs)
        return kernel.clone_with_theta(kernel.theta + 0.1), Z + 0.1

    monkeypatch.setattr(start, "kernel_and_points", rounded)
    other = classifier(**options).fit(X, LABELS)
    resumed = classifier(path, **options).fit(X, LABELS)
    assert not path.exists()
    assert np.abs(other.kernel_.theta - whole.kernel_.theta).max() > 1e-3
    assert_allclose(resumed.kernel_.theta, whole.kernel_.theta, rtol=1e-12)
    assert_allclose(resumed.predict_proba(X_STAR), whole.predict_proba(X_STAR), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("error", "is_refused"), [(1e-13, False), (1e-6, True)])
@pytest.mark.parametrize(
    ("scaling", "part"),
    [
        ("standard", "centre"),
        ("standard", "scale"),
        ("whiten", "whitening_matrix"),
        ("robust", "bend"),
        ("quantile", "knots.positions"),
        ("quantile", "knots.values"),
    ],
)
def test_the_scaling_may_differ_by_rounding(tmp_path, monkeypatch, scaling, part, error, is_refused):
    path = tmp_path / "fit.ckpt"
    break_off(monkeypatch, classifier(path, scaling=scaling))
    with_array(path, f"scaling.{part}", lambda numbers: numbers * (1.0 + error))
    again = classifier(path, scaling=scaling)
    if is_refused:
        with pytest.raises(CheckpointError, match="another fit: its columns are scaled otherwise"):
            again.fit(X, LABELS)
    else:
        again.fit(X, LABELS)
        assert not path.exists()


def test_another_number_of_knots_is_that_of_other_rows(tmp_path, monkeypatch):
    path = tmp_path / "fit.ckpt"
    break_off(monkeypatch, classifier(path, scaling="quantile"))
    for part in ("positions", "values"):
        with_array(path, f"scaling.knots.{part}", lambda numbers: numbers[:-1])
    with pytest.raises(CheckpointError, match="another fit: its columns are scaled otherwise"):
        classifier(path, scaling="quantile").fit(X, LABELS)


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


def during(monkeypatch, number, event):
    """Have something happen before a pass of the fits to come."""
    passes = iter(range(1, 1_000_000))

    def eventful(*args, sweep=LocalEngine.run, **kwargs):
        if next(passes) == number:
            event()
        return sweep(*args, **kwargs)

    replace_sweep(monkeypatch, eventful)


@pytest.mark.parametrize("resumed", [False, True])
def test_a_checkpoint_that_another_fit_is_writing_is_left_to_it(checkpoint, monkeypatch, resumed):
    """The same fit started twice by mistake: the second one says so instead of taking turns with it."""
    path, written = checkpoint.with_name("fit2.ckpt"), []
    if resumed:
        shutil.copy(checkpoint, path)

    def other_fit_writes():
        rewrite(shutil.copy(checkpoint, path), run="another")
        written.append(path.read_bytes())

    with monkeypatch.context() as patch:
        during(patch, 3, other_fit_writes)
        with pytest.raises(CheckpointError, match="another fit while this one was running") as caught:
            classifier(path).fit(X, LABELS)
    assert str(path) in str(caught.value)
    assert written == [path.read_bytes()]


def test_a_fit_that_ends_leaves_the_checkpoint_of_another(checkpoint, monkeypatch):
    path = checkpoint.with_name("fit2.ckpt")
    with monkeypatch.context() as patch:
        during(patch, 3, lambda: shutil.copy(checkpoint, path))
        classifier(path, checkpoint_interval=1e6).fit(X, LABELS)
    assert path.read_bytes() == checkpoint.read_bytes()


def test_a_checkpoint_that_was_only_touched_is_still_ones_own(tmp_path, monkeypatch):
    path = tmp_path / "fit.ckpt"
    with monkeypatch.context() as patch:
        during(patch, 5, lambda: os.utime(path, ns=(1, 1)))
        classifier(path).fit(X, LABELS)
    assert not path.exists()


def test_what_is_no_checkpoint_any_more_is_left_alone(tmp_path, monkeypatch):
    path = tmp_path / "fit.ckpt"
    with monkeypatch.context() as patch:
        during(patch, 5, lambda: path.write_text("notes"))
        with pytest.raises(CheckpointError, match="another fit"):
            classifier(path).fit(X, LABELS)
    assert path.read_text() == "notes"


def test_a_history_goes_on_as_it_would_have(tmp_path, monkeypatch):
    """A record is the mean of several steps, and a run may be killed between two of them."""
    options = {"batch_size": 1, "max_epochs": 1}
    path = tmp_path / "fit.ckpt"
    with monkeypatch.context() as patch:
        crash_at(patch, 12)
        with pytest.raises(PowerCutError):
            classifier(path, **options).fit(X, LABELS)
    with np.load(path) as file:
        assert len(file["history.pending"]) == 2
    resumed, whole = (classifier(path, **options).fit(X, LABELS) for path in (path, None))
    assert len(whole.history_) == 40
    for one, other in zip(resumed.history_, whole.history_, strict=True):
        assert replace(one, seconds=0.0) == replace(other, seconds=0.0)


def test_a_checkpoint_that_was_deleted_is_written_again(tmp_path, monkeypatch):
    path = tmp_path / "fit.ckpt"
    with monkeypatch.context() as patch:
        during(patch, 5, path.unlink)
        break_off(monkeypatch, classifier(path))
    assert path.exists()

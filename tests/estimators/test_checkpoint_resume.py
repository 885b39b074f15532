"""A fit that was killed goes on as if nothing had happened; one that was stopped is of use."""

import json
import re
import signal
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

from cavity import CheckpointError, GFITCClassifier, SEPClassifier, SVIClassifier
from cavity.engines.local import LocalEngine
from cavity.inference.checkpoint import Checkpointer
from cavity.inference.history import Progress
from cavity.inference.optimizers import Adadelta, Adam, SignRates
from support import PINNED, interrupt_at, make, replace_sweep, table

X, LABELS = table(150)
X_STAR, LABELS_STAR = table(60, seed=4)
quietly = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SCRIPT = """
import os, signal, sys, threading, time, warnings
import numpy as np
from cavity import SEPClassifier

how, checkpoint, out, seconds = sys.argv[1:]
begin = time.time_ns()

def written():
    return os.path.exists(checkpoint) and os.stat(checkpoint).st_mtime_ns > begin

def kill():
    while not written():
        time.sleep(0.002)
    time.sleep(float(seconds))
    os.kill(os.getpid(), signal.SIGKILL)

if seconds:
    threading.Thread(target=kill, daemon=True).start()
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.normal(size=(400, 2))
y = X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=400) > 0
options = {
    "batch": {"batch_size": None, "max_epochs": 150},
    "stochastic": {"batch_size": 40, "max_epochs": 25},
}[how]
model = SEPClassifier(
    n_inducing=15, random_state=0, checkpoint=checkpoint or None, n_jobs=1, verbose=1,
    config={"checkpoint_interval": 0.01, "tol": 1e-5}, **options,
).fit(X, y)
np.save(out, model.predict_proba(X))
"""
RESUMED = re.compile(r"resuming from .* at step (\d+)")


@pytest.mark.parametrize("how", ["batch", "stochastic"])
def test_killed_again_and_again_it_ends_where_it_would_have(start_command, tmp_path, how):
    """SIGKILL at random moments after a checkpoint was written."""
    said = []

    def status(checkpoint, out, seconds=""):
        process = start_command(SCRIPT, [how, checkpoint, out, str(seconds)], tmp_path)
        said.extend(process.communicate())
        return process.returncode

    assert status("", "whole.npy") == 0, said
    statuses = [
        status("fit.ckpt", "killed.npy", seconds)
        for seconds in np.random.default_rng([how == "batch", 1]).uniform(0.0, 0.08, size=2)
    ]
    assert statuses[0] == -signal.SIGKILL, said
    assert statuses[1] in (-signal.SIGKILL, 0)  # few steps may be left
    if statuses[1] != 0:
        assert status("fit.ckpt", "killed.npy") == 0, said
    steps = [int(step) for step in RESUMED.findall("".join(said))]
    assert steps, "it began again"
    assert 0 < steps[0] <= steps[-1]
    assert not (tmp_path / "fit.ckpt").exists()
    killed, whole = np.load(tmp_path / "killed.npy"), np.load(tmp_path / "whole.npy")
    assert_allclose(killed, whole, rtol=0, atol=1e-12)


class PowerCutError(Exception):
    """What ends a run without any warning."""


def cut_power_at(monkeypatch, number):
    count = 0
    sweep = LocalEngine.run

    def failing(*args, **kwargs):
        nonlocal count
        count += 1
        if count == number:
            raise PowerCutError
        return sweep(*args, **kwargs)

    replace_sweep(monkeypatch, failing)


def step_of(path):
    """How many steps a checkpoint has behind it."""
    with np.load(path) as file:
        return json.loads(file["about"].tobytes())["position"]["step"]


def first_steps(monkeypatch):
    """A list of the steps that fits go on from."""
    steps = []

    def resume(*args, resume=Checkpointer.resume):
        resumed = resume(*args)
        steps.append(resumed.position.step)
        return resumed

    monkeypatch.setattr(Checkpointer, "resume", resume)
    return steps


BATCH = {"batch_size": None, "max_epochs": 60, "tol": 0.0}
STOCHASTIC = {"batch_size": 30, "max_epochs": 12}
EARLY = {"batch_size": 30, "max_epochs": 60, "optimizer": Adam(0.1)}
SETTINGS = {
    "batch": (SEPClassifier, BATCH),
    "batch, rprop": (SEPClassifier, {**BATCH, "optimizer": SignRates()}),
    "batch, exact gradient": (SEPClassifier, {**BATCH, "exact_gradient": True}),
    "batch, converging": (SEPClassifier, {**BATCH, "max_epochs": 200, "tol": 1e-3}),
    "batch, loo": (SEPClassifier, {**BATCH, "max_epochs": 200, "early_stopping": "loo"}),
    "batch, validation": (SEPClassifier, {**BATCH, **PINNED, "early_stopping": "validation"}),
    "stochastic": (SEPClassifier, STOCHASTIC),
    "stochastic, adadelta": (SEPClassifier, {**STOCHASTIC, "optimizer": Adadelta()}),
    "stochastic, loo": (SEPClassifier, {**EARLY, "early_stopping": "loo"}),
    "stochastic, validation": (SEPClassifier, {**EARLY, **PINNED, "early_stopping": "validation"}),
    "stochastic, stored factors": (SEPClassifier, {**STOCHASTIC, "site_storage": "factors"}),
    "vi": (SVIClassifier, BATCH),
    "vi, stochastic": (SVIClassifier, STOCHASTIC),
    "vi, gradients": (SVIClassifier, {**STOCHASTIC, "posterior_update": "gradient"}),
}


@quietly
@pytest.mark.parametrize("name", SETTINGS)
def test_broken_off_anywhere_it_ends_where_it_would_have(tmp_path, monkeypatch, name):
    """Also between windows of the monitor, during the cooling, and in the exact sweeps."""
    kind, options = SETTINGS[name]
    options = {"n_inducing": 8, "random_state": 0, "n_jobs": 1, **options}
    sweeps = 0
    with monkeypatch.context() as patch:
        sweep = LocalEngine.run

        def counted(*args, **kwargs):
            nonlocal sweeps
            sweeps += 1
            return sweep(*args, **kwargs)

        replace_sweep(patch, counted)
        whole = make(kind, **options).fit(X, LABELS)
    path = tmp_path / "fit.ckpt"
    model = make(kind, checkpoint=path, checkpoint_interval=0.0, **options)
    done, begun_at = 0, first_steps(monkeypatch)
    for stop in (7, 31, sweeps - 12, sweeps - 1):
        with monkeypatch.context() as patch:
            cut_power_at(patch, stop - done)
            with pytest.raises(PowerCutError):
                model.fit(X, LABELS)
        assert begun_at.pop() == done
        done = step_of(path)
        assert done > 0
    resumed = model.fit(X, LABELS)
    assert begun_at == [done]
    assert not path.exists()
    assert_allclose(resumed.kernel_.theta, whole.kernel_.theta, rtol=1e-10)
    assert_allclose(resumed.predict_proba(X_STAR), whole.predict_proba(X_STAR), rtol=0, atol=1e-12)


@quietly
@pytest.mark.parametrize("n_classes", [2, 3])
def test_which_rows_are_left_out_of_a_minibatch_survives(tmp_path, monkeypatch, n_classes):
    """What is known of the doubt of each row is part of a checkpoint."""
    rows, _ = table(800)
    labels = np.digitize(rows[:, 0], [0.0] if n_classes == 2 else [-0.4, 0.4])
    options = {"n_inducing": 8, "random_state": 0, "n_jobs": 1, "batch_size": 200, "max_epochs": 12}
    visited = []

    def watched(*args, sweep=LocalEngine.run, **kwargs):
        sums = sweep(*args, **kwargs)
        visited.append((sums.n_visited, sums.n_rows))
        return sums

    with monkeypatch.context() as patch:
        replace_sweep(patch, watched)
        whole = make(SEPClassifier, **options).fit(rows, labels)
        undisturbed = visited[:48]
        visited.clear()
        model = make(SEPClassifier, checkpoint=tmp_path / "fit.ckpt", checkpoint_interval=0.0, **options)
        with monkeypatch.context() as power:
            cut_power_at(power, 30)
            with pytest.raises(PowerCutError):
                model.fit(rows, labels)
        model.fit(rows, labels)
    assert min(count for count, _ in undisturbed) < 120
    assert visited[:48] == undisturbed
    assert_allclose(model.predict_proba(rows), whole.predict_proba(rows), rtol=0, atol=1e-12)


@quietly
def test_seconds_go_on_counting(tmp_path, monkeypatch):
    path = tmp_path / "fit.ckpt"
    model = make(
        SEPClassifier,
        n_inducing=8,
        random_state=0,
        checkpoint=path,
        checkpoint_interval=0.0,
        n_jobs=1,
        **STOCHASTIC,
    )
    with monkeypatch.context() as patch:
        cut_power_at(patch, 20)
        with pytest.raises(PowerCutError):
            model.fit(X, LABELS)
    begun_at = first_steps(monkeypatch)
    model.fit(X, LABELS)
    assert begun_at[0] > 0
    seconds = [entry.seconds for entry in model.history_]
    assert seconds == sorted(seconds)
    assert [entry.iteration for entry in model.history_] == list(range(1, len(seconds) + 1))


def test_a_checkpoint_with_lbfgs_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("cavity.estimators.base.learn_scaling", lambda *_: pytest.fail("rows were read"))
    model = SVIClassifier(
        checkpoint=tmp_path / "fit.ckpt", random_state=0, config={"posterior_update": "gradient"}
    )
    with pytest.raises(ValueError, match=r"checkpoint=.* does not go with L-BFGS"):
        model.fit(X, LABELS)


WAYS = {
    "sep": SEPClassifier(batch_size=None, max_epochs=100),
    "sep, minibatches": SEPClassifier(batch_size=30, max_epochs=10),
    "sep, fixed kernel": SEPClassifier(optimizer=None, config={"tol": 1e-12}),
    "svi": SVIClassifier(batch_size=None, max_epochs=100),
    "svi, minibatches": SVIClassifier(batch_size=30, max_epochs=10),
    "svi, gradients": SVIClassifier(max_epochs=100, config={"posterior_update": "gradient"}),
    "svi, gradients, minibatches": SVIClassifier(
        batch_size=30, max_epochs=10, config={"posterior_update": "gradient"}
    ),
    "gfitc": GFITCClassifier(max_iter=50),
    "gfitc, fixed kernel": GFITCClassifier(optimizer=None, tol=1e-12),
}


class TestCtrlC:
    @pytest.mark.parametrize("number", [2, 5, 12])
    @pytest.mark.parametrize("name", WAYS)
    def test_leaves_a_fitted_estimator_and_one_warning(self, monkeypatch, name, number):
        model = WAYS[name].set_params(n_inducing=8, random_state=0, n_jobs=1)
        interrupt_at(monkeypatch, number)
        with pytest.warns(ConvergenceWarning, match="interrupted") as caught:
            survive(model)
        assert len(caught) == 1
        assert caught[0].filename == __file__
        proba = model.predict_proba(X_STAR)
        assert np.isfinite(proba).all()
        assert_allclose(proba.sum(axis=1), 1.0)
        assert np.isfinite(model.loo_log_proba_).all()
        assert 0 <= model.n_iter_ <= number
        assert len(model.history_) <= number
        for record in model.history_:
            assert np.isfinite(record.objective)

    @pytest.mark.parametrize("name", WAYS)
    def test_at_the_very_end_loses_nothing(self, monkeypatch, name):
        """In the last pass of all: whatever it was for, the fit was good already."""
        model = WAYS[name].set_params(n_inducing=8, random_state=0, n_jobs=1)
        count = 0
        with monkeypatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            sweep = LocalEngine.run

            def counted(*args, **kwargs):
                nonlocal count
                count += 1
                return sweep(*args, **kwargs)

            replace_sweep(patch, counted)
            whole = model.fit(X, LABELS).predict_proba(X_STAR)
        interrupt_at(monkeypatch, count)
        with pytest.warns(ConvergenceWarning):
            survive(model)
        assert_allclose(model.predict_proba(X_STAR), whole, atol=0.05)

    @quietly
    @pytest.mark.parametrize("number", [1, 20])
    @pytest.mark.parametrize("options", [STOCHASTIC, BATCH], ids=["minibatches", "all rows"])
    def test_saves_the_last_step_whenever_it_comes(self, tmp_path, monkeypatch, options, number):
        """No checkpoint was due yet, and the resumed fit is the same as one that was not stopped."""
        path = tmp_path / "fit.ckpt"
        options = {"n_inducing": 8, "random_state": 0, "n_jobs": 1, **options}
        model = make(SEPClassifier, checkpoint=path, checkpoint_interval=3600.0, **options)
        with monkeypatch.context() as patch:
            interrupt_at(patch, number)
            survive(model)
        stopped_at = model.n_iter_
        begun_at = []
        original = Checkpointer.resume

        def noted(*args):
            resumed = original(*args)
            begun_at.append(resumed.position.step)
            return resumed

        monkeypatch.setattr(Checkpointer, "resume", noted)
        whole = make(SEPClassifier, **options).fit(X, LABELS)
        again = model.fit(X, LABELS)
        assert begun_at == [0, stopped_at]
        assert_allclose(again.predict_proba(X_STAR), whole.predict_proba(X_STAR), atol=1e-12)
        assert not path.exists()

    @quietly
    def test_while_a_step_is_recorded_an_exact_checkpoint_stays(self, tmp_path, monkeypatch):
        path = tmp_path / "fit.ckpt"
        options = {"n_inducing": 8, "random_state": 0, "n_jobs": 1, **STOCHASTIC}
        model = make(SEPClassifier, checkpoint=path, checkpoint_interval=0.0, **options)
        record = Progress.record

        def stopped(self, *args, **kwargs):
            entry = record(self, *args, **kwargs)
            if len(self.history) == 5:
                raise KeyboardInterrupt
            return entry

        with monkeypatch.context() as patch:
            patch.setattr(Progress, "record", stopped)
            survive(model)
        whole = make(SEPClassifier, **options).fit(X, LABELS)
        assert_allclose(
            model.fit(X, LABELS).predict_proba(X_STAR), whole.predict_proba(X_STAR), atol=1e-12
        )

    @quietly
    def test_a_checkpoint_that_cannot_be_written_costs_no_model(self, tmp_path, monkeypatch):
        path = tmp_path / "fit.ckpt"
        options = {"n_inducing": 8, "random_state": 0, "n_jobs": 1, **STOCHASTIC}
        model = make(SEPClassifier, checkpoint=path, **options)
        interrupt_at(monkeypatch, 20)

        def full(*_):
            raise CheckpointError("could not write the checkpoint")

        monkeypatch.setattr(Checkpointer, "save", full)
        with pytest.warns(UserWarning, match="could not write the checkpoint"):
            survive(model)
        assert np.isfinite(model.predict_proba(X_STAR)).all()

    @quietly
    def test_another_budget_goes_on_from_the_same_step(self, tmp_path, monkeypatch):
        path = tmp_path / "fit.ckpt"
        options = {"n_inducing": 8, "random_state": 0, "n_jobs": 1, **STOCHASTIC}
        model = make(SEPClassifier, checkpoint=path, **options)
        with monkeypatch.context() as patch:
            interrupt_at(patch, 20)
            survive(model)
        before = [record.objective for record in model.history_]
        model.set_params(max_epochs=20).fit(X, LABELS)
        assert [record.objective for record in model.history_][: len(before)] == before
        assert model.history_[-1].epochs == 20.0

    @quietly
    def test_can_be_resumed_from_the_last_checkpoint(self, tmp_path, monkeypatch):
        """Who stops a long fit by hand may want to go on tomorrow."""
        path = tmp_path / "fit.ckpt"
        options = {"n_inducing": 8, "random_state": 0, "n_jobs": 1, **STOCHASTIC}
        model = make(SEPClassifier, checkpoint=path, checkpoint_interval=0.0, **options)
        with monkeypatch.context() as patch:
            interrupt_at(patch, 20)
            survive(model)
        assert path.exists()
        whole = make(SEPClassifier, **options).fit(X, LABELS)
        assert_allclose(
            model.fit(X, LABELS).predict_proba(X_STAR), whole.predict_proba(X_STAR), atol=1e-12
        )


def survive(model):
    try:
        model.fit(X, LABELS)
    except KeyboardInterrupt:
        pytest.fail("the interruption lost what had been learned")

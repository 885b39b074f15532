"""The one place where tests build engines, and the problems they are tried on."""

import ctypes
import inspect
import os
import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Exponentiation,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

from cavity.data.arrays import ArraySource
from cavity.data.scaling import Scaling
from cavity.engines.local import LocalEngine
from cavity.engines.threads import Threads
from cavity.errors import NumericalError
from cavity.gp.posterior import NaturalParameters, Posterior
from cavity.gp.prior import Prior
from cavity.inference.converge import converge
from cavity.inference.rule import ExpectationPropagation
from cavity.inference.sweep import Sweep, SweepOptions
from cavity.inference.updates import gradient, objective

PINNED = {
    "kernel_name": "matern32",
    "scaling": "robust",
    "residual_scale": 1.0,
    "trace_penalty": 1.0,
}
"""Fields by which a fit with a number of inducing points runs no race, however many rows it has."""
EVIDENCE_ONLY = {"hyperprior_scale": None, "trace_penalty": 0.0}
"""Options with which the objective of training is log Z_q and nothing else."""

FLOAT64 = np.dtype(np.float64)
FLOAT32 = np.dtype(np.float32)

ARD = [0.7, 1.3]
KERNELS = {
    "rbf": RBF(0.8),
    "rbf-ard": RBF(ARD),
    "scaled-rbf-ard": ConstantKernel(1.5) * RBF(ARD),
    "matern-1/2": 1.2 * Matern(ARD, nu=0.5),
    "matern-3/2": 1.2 * Matern(0.9, nu=1.5),
    "matern-5/2": 1.2 * Matern(ARD, nu=2.5),
    "matern-infinite": Matern(ARD, nu=np.inf),
    "rational-quadratic": 1.2 * RationalQuadratic(0.9, alpha=0.7),
    "dot-product": DotProduct(0.6),
    "sum": RBF(ARD) + 0.5 * DotProduct(0.4),
    "product": RBF(ARD) * Matern(1.5, nu=2.5),
    "noisy": ConstantKernel(1.0) * RBF(ARD) + WhiteKernel(0.1),
    "noise-first": WhiteKernel(0.1) + 2.0 * RBF(0.8),
    "noise-inside-product": (RBF(ARD) + WhiteKernel(0.3)) * ConstantKernel(2.0),
    "exponentiation": Exponentiation(RBF(ARD) + ConstantKernel(0.5), 2),
    "fixed-amplitude": ConstantKernel(2.0, "fixed") * RBF(ARD),
    "fixed-lengthscale": ConstantKernel(2.0) * RBF(ARD, "fixed") + WhiteKernel(0.1, "fixed"),
    "nested": 2.0 * RBF(ARD) * (DotProduct(0.4) + 0.3 * RationalQuadratic(0.9)) ** 2
    + WhiteKernel(0.2, "fixed")
    + ConstantKernel(0.7),
}
"""Every kind of kernel of the vocabulary, for data with two columns."""


def table(n=24, d=2, seed=0):
    """Rows [n, d] and class codes [n] that follow a smooth function, with some noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    latent = np.sin(2 * X[:, 0]) + X[:, -1] + 0.3 * rng.normal(size=n)
    return X, (latent > 0).astype(np.int8)


class OwnSource:
    """A source as a user may write one: nothing but the contract."""

    def __init__(self, X, labels):
        self._rows = ArraySource(X, labels)
        self.n_rows, self.n_features, self.dtype = *np.shape(X), np.dtype(np.float64)
        self.total_weight = float(len(X))

    def blocks(self, size):
        """All rows in order."""
        return self._rows.blocks(size)

    def batches(self, size, rng, skip=0):
        """All rows once, shuffled."""
        return self._rows.batches(size, rng, skip)

    def sample(self, size, rng):
        """Some rows."""
        return self._rows.sample(size, rng)


@contextmanager
def no_more_rights_than_files_give():
    """A block in which permissions hold for this thread even if it is root's."""
    if sys.platform != "linux" or os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    version = (ctypes.c_uint32 * 2)(0x20080522, 0)
    before, none = (ctypes.c_uint32 * 6)(), (ctypes.c_uint32 * 6)()
    assert libc.capget(version, before) == 0
    none[1], none[4] = before[1], before[4]  # permitted ones can be taken back
    assert libc.capset(version, none) == 0
    try:
        yield
    finally:
        assert libc.capset(version, before) == 0


def points(m=3, d=2, seed=1):
    """Inducing points [m, d] away from any row."""
    return np.random.default_rng(seed).normal(size=(m, d))


def signs(labels):
    """Class codes 0 and 1 as −1 and +1."""
    return np.where(np.asarray(labels) == 1, 1.0, -1.0)


def make_engine(X, labels, *, weight=None, rule=None, n_threads=1):
    """An engine over rows that are used as they are, with the rule of its tests as an attribute."""
    rule = ExpectationPropagation() if rule is None else rule
    engine = LocalEngine(
        ArraySource(X, np.asarray(labels, dtype=np.int8), weight),
        Scaling.identity(X.shape[1]),
        rule.n_latents,
        Threads(n_threads),
    )
    engine.rule = rule
    return engine


def fixed_point(engine, prior, tol=1e-12):
    """EP (or VI) to convergence, as far as float64 goes."""
    point = converge(engine, prior, engine.rule, tol=tol, max_sweeps=2000)
    assert point.converged
    return point


def value_and_gradient(engine, prior, **options):
    """Objective and gradient at the sites that the engine holds, and q."""
    m = len(prior.Z)
    nothing = Posterior.from_naturals(NaturalParameters.zeros(engine.rule.n_latents, m))
    still = SweepOptions(damping=0.0, gradient=False)
    posterior = Posterior.from_naturals(engine.run(Sweep(prior, nothing, engine.rule, still)).naturals)
    sums = engine.run(Sweep(prior, posterior, engine.rule, SweepOptions(damping=0.0, **options)))
    return objective(sums, posterior, engine.rule), gradient(sums, prior, posterior)


def tried(function):
    """What a function returned and None, or None and the words of its `NumericalError`."""
    try:
        return function(), None
    except NumericalError as error:
        return None, str(error)


def make_prior(kernel, Z, dtype=FLOAT64):
    """The prior at inducing points Z."""
    return Prior(kernel, Z, dtype)


def set_tile_rows(monkeypatch, rows):
    """Cut tables into tiles of so many rows, wherever that is decided."""
    for name, module in list(sys.modules.items()):
        if name.startswith("cavity.") and hasattr(module, "tile_rows"):
            monkeypatch.setattr(module, "tile_rows", lambda *_: rows)


def replace_sweep(patch, function):
    """Have `function(engine, row_pass, ...)` run every `Sweep`, in the place of the local engine."""
    run = LocalEngine.run

    def replaced(self, row_pass, *args, **kwargs):
        chosen = function if isinstance(row_pass, Sweep) else run
        return chosen(self, row_pass, *args, **kwargs)

    patch.setattr(LocalEngine, "run", replaced)


class Clock:
    """Seconds that a test owns: `now` is what every clock of the process shows."""

    now = 0.0


def time_passes(monkeypatch, seconds):
    """Let each `Sweep` take `seconds(row_pass, batch)`, and nothing else take any time."""
    clock, run = Clock(), LocalEngine.run

    def timed(self, row_pass, batch=None, *sampler):
        clock.now += seconds(row_pass, batch)
        return run(self, row_pass, batch, *sampler)

    replace_sweep(monkeypatch, timed)
    for name in ("perf_counter", "monotonic"):
        monkeypatch.setattr(time, name, lambda: clock.now)
    return clock


def watch_training(monkeypatch, meddle=lambda number, sums: None, *, before=False):
    """Record (theta, damping) of every training pass; `meddle(number, sums)` may spoil its result.

    Passes are counted from 1; those that only bring q to its fixed point are left alone. With `before`
    the meddling comes before the pass has run, and gets no sums.
    """
    passes = []
    sweep = LocalEngine.run

    def watched(self, row_pass, *args, **kwargs):
        options = row_pass.options
        if options.gradient:
            passes.append((row_pass.prior.kernel.theta.copy(), options.damping))
            if before:
                meddle(len(passes), None)
        sums = sweep(self, row_pass, *args, **kwargs)
        if options.gradient and not before:
            meddle(len(passes), sums)
        return sums

    replace_sweep(monkeypatch, watched)
    return passes


def evidence_differences(model, theta, step=1e-4):
    """Central differences of an estimator's log marginal likelihood at theta [p]."""
    value = model.log_marginal_likelihood
    steps = step * np.eye(len(theta))
    return [(value(theta + e) - value(theta - e)) / (2 * step) for e in steps]


def set_clock(monkeypatch, seconds, name="perf_counter"):
    """Let every look at the clock take this many seconds, whatever the speed of the machine.

    seconds: a number, or a function that is called at every look.
    """
    clock = Clock()

    def look():
        clock.now += seconds() if callable(seconds) else seconds
        return clock.now

    monkeypatch.setattr(time, name, look)


def wait_until(condition, seconds=60.0):
    """Wait for something that another thread or process does; the limit only ends a broken test."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def interrupt_at(monkeypatch, number, by_signal=False):
    """Ctrl-C in the pass of that number, counted from 1, whatever the pass is for.

    By a signal it is what the present handler of SIGINT makes of it, for code that has handlers of its
    own. No signal is sent: one that came late would end the process that runs the tests.
    """
    count = 0
    sweep = LocalEngine.run

    def interrupted(*args, **kwargs):
        nonlocal count
        count += 1
        if count == number and by_signal:
            signal.getsignal(signal.SIGINT)(signal.SIGINT, None)
        elif count == number:
            raise KeyboardInterrupt
        return sweep(*args, **kwargs)

    replace_sweep(monkeypatch, interrupted)


def make(kind, *args, **fields):
    """A classifier from its parameters and from fields of its configuration, side by side."""
    known = inspect.signature(kind).parameters
    if "max_iter" in known and "max_epochs" in fields:
        fields["max_iter"] = fields.pop("max_epochs")
    config = {name: fields.pop(name) for name in list(fields) if name not in known}
    return kind(*args, **fields, config=config or None)


def recalibrate(classifier, inverse_temperature, residual_variance_scale):
    """Give a fitted classifier another calibration, as a fit would have stored it."""
    classifier.model_ = replace(
        classifier.model_,
        inverse_temperature=inverse_temperature,
        residual_variance_scale=residual_variance_scale,
    )
    return classifier

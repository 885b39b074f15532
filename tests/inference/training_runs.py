"""Trainers and runs built by hand, where a test wants every setting in its own hands."""

from dataclasses import replace

import numpy as np

from cavity.data.arrays import ArraySource
from cavity.data.scaling import Scaling
from cavity.engines.local import LocalEngine
from cavity.engines.threads import Threads
from cavity.gp.parameters import ParameterSpace
from cavity.inference import loop
from cavity.inference.checkpoint import Checkpointer, Position, Run
from cavity.inference.checkpoint_file import Fingerprint
from cavity.inference.config import resolve
from cavity.inference.history import Progress
from cavity.inference.optimizers import Adam
from cavity.inference.rule import ExpectationPropagation
from cavity.inference.schedule import Monitor
from cavity.inference.sweep import SweepOptions
from cavity.inference.trainer import Trainer, make_problem
from cavity.inference.updates import NaturalUpdate
from support import KERNELS, points


def make_trainer(
    X,
    labels,
    *,
    kernel=None,
    Z=None,
    rule=None,
    optimizer=None,
    update=None,
    dtype=None,
    held_out=None,
    learn=True,
    rebuild=False,
    **options,
):
    """A trainer over rows that are used as they are, with a flat hyper-prior."""
    rule = ExpectationPropagation() if rule is None else rule
    engine = LocalEngine(
        ArraySource(X, np.asarray(labels, dtype=np.int8)),
        Scaling.identity(X.shape[1]),
        rule.n_latents,
        Threads(1),
        held_out,
    )
    kernel = KERNELS["scaled-rbf-ard"] if kernel is None else kernel
    space = ParameterSpace(
        kernel, points(6) if Z is None else Z, learn_kernel=learn, learn_inducing=learn
    )
    problem = make_problem(engine, rule, space, None)
    if dtype is not None:
        problem = replace(problem, dtype=np.dtype(dtype))
    return Trainer(
        problem,
        Adam(0.05) if optimizer is None else optimizer,
        SweepOptions(**options),
        NaturalUpdate() if update is None else update,
        rebuild=rebuild,
    )


def never():
    """A monitor that remembers nothing and ends nothing."""
    return Monitor(window=10**9, patience=None)


def nowhere():
    """A checkpointer that writes nothing."""
    return Checkpointer(None, 0.0, Fingerprint)


def run(
    trainer, budget, *, monitor=None, checkpointer=None, position=None, progress=None, seed=0, **fields
):
    """Train from the start, by `loop.run`; and the history. `fields` are those of the configuration."""
    wanted = {"batch_size": None, "optimizer": trainer.optimizer, "tol": -np.inf, **fields}
    config = replace(resolve(trainer.engine.n_rows, seed=seed), **wanted)
    progress = Progress() if progress is None else progress
    begun = Run(
        trainer,
        trainer.init(),
        Position() if position is None else position,
        progress,
        never() if monitor is None else monitor,
    )
    checkpointer = nowhere() if checkpointer is None else checkpointer
    trained = loop.run(begun, config, budget, checkpointer)
    return trained, progress.history

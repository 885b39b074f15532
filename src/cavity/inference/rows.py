"""Rows that are open for training, and the trainer for them: where your own training loop begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cavity.data import opening as data_opening
from cavity.data.routing import Routing
from cavity.data.source import Source
from cavity.engines.local import LocalBackend
from cavity.engines.threads import compute_context, thread_count
from cavity.inference.config import TrainingConfig
from cavity.inference.start import chosen_start, hold_out_rows, learn_scaling, prepare
from cavity.inference.train import make_trainer
from cavity.inference.trainer import Trainer
from cavity.typing import Array, InputLabels, InputRows, InputWeights

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel


@dataclass(frozen=True)
class TrainingRows:
    """Rows with labels, open for training."""

    source: Source
    classes: Array
    """[C]: the values behind the class codes."""
    backend: LocalBackend

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.source.n_rows)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)


@contextmanager
def open_rows(
    X: InputRows,
    y: InputLabels = None,
    sample_weight: InputWeights = None,
    *,
    n_jobs: int | None = None,
) -> Iterator[TrainingRows]:
    """Open rows X [n, d] with labels y [n] and weights [n] for training; takes what `fit` takes.

    Inside this context `n_jobs` threads (None: all cores) run the passes, with one BLAS thread each.
    """
    rows = data_opening.open_rows(X, y, sample_weight)
    with compute_context(thread_count(n_jobs)) as threads:
        yield TrainingRows(rows.source, rows.classes, LocalBackend(threads))


def prepare_trainer(
    rows: TrainingRows,
    config: TrainingConfig,
    *,
    kernel: Kernel | None = None,
    inducing_points: Array | None = None,
    routing: Routing | None = None,
) -> Trainer:
    """Learn the scaling, choose kernel and inducing points, and make the trainer for these rows.

    inducing_points: [m, d] in the units of X; None chooses them among the rows. With
    `validation_fraction` some rows are held out: `validation_score` scores them. routing: which
    leaf a row falls into, if the configuration has leaves (`cavity.data.routing`); None learns a tree.
    """
    scaling = learn_scaling(rows.source, config, rows.backend)
    held_out = hold_out_rows(rows.source, config, rows.backend)
    start = chosen_start(
        rows.source,
        scaling,
        config,
        kernel=kernel,
        inducing_points=inducing_points,
        routing=routing,
    )
    problem = prepare(
        rows.source,
        config,
        rows.backend,
        scaling=scaling,
        start=start,
        held_out=held_out,
    )
    return make_trainer(problem, config)

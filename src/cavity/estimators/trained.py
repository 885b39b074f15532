"""Classifiers trained step by step: the parameters of SEP and SVI, and their `fit`."""

from __future__ import annotations

from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import ClassVar

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.gaussian_process.kernels import Kernel

from cavity.estimators.streaming import StreamingGPClassifier
from cavity.inference.checkpoint_file import prepare_path
from cavity.inference.config import ConfigFields, TrainingConfig
from cavity.inference.optimizers import Optimizer
from cavity.typing import (
    ClassWeight,
    InputLabels,
    InputOffset,
    InputRows,
    InputWeights,
    RandomSeed,
)


class TrainedGPClassifier(StreamingGPClassifier):
    """A classifier whose posterior and parameters move together, a step at a time."""

    _config_fields: ClassVar[tuple[str, ...]] = (
        "likelihood", "scaling", "batch_size", "optimizer", "max_epochs", "max_seconds",
        "validation_fraction",
    )  # fmt: skip

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        likelihood: str = "probit",
        mean_function: BaseEstimator | str | None = None,
        n_inducing: int | str = "auto",
        inducing_points: str | ArrayLike = "kmeans",
        leaves: int | str | BaseEstimator | ArrayLike | None = "auto",
        scaling: str | None = "auto",
        batch_size: int | str | None = "auto",
        optimizer: Optimizer | str | None = "adam",
        max_epochs: float | None = None,
        max_seconds: float | None = None,
        validation_fraction: float | str | None = "auto",
        class_weight: ClassWeight = None,
        config: TrainingConfig | ConfigFields | None = None,
        warm_start: bool = False,
        window_size: float | None = None,
        checkpoint: str | PathLike[str] | None = None,
        random_state: RandomSeed = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.likelihood = likelihood
        self.mean_function = mean_function
        self.n_inducing = n_inducing
        self.inducing_points = inducing_points
        self.leaves = leaves
        self.scaling = scaling
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.max_epochs = max_epochs
        self.max_seconds = max_seconds
        self.validation_fraction = validation_fraction
        self.class_weight = class_weight
        self.config = config
        self.warm_start = warm_start
        self.window_size = window_size
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(
        self,
        X: InputRows,
        y: InputLabels = None,
        sample_weight: InputWeights = None,
        *,
        offset: InputOffset = None,
        X_val: InputRows = None,
        y_val: InputLabels = None,
        sample_weight_val: InputWeights = None,
    ) -> TrainedGPClassifier:
        """Fit to rows X [n, d] with labels y [n] of two kinds or more, and weights [n].

        X is an array (dense, memory-mapped, pandas or SciPy sparse); or, with y the name of the target
        column, the path or URL (``s3://…``) of a Parquet file or a folder of them, a pyarrow dataset,
        table, record batch or reader, or any object with Arrow's C interface (polars, pandas); or the
        path of a .npy file; or an object that follows the `cavity.data.Source` contract, which has its
        own labels and weights.

        A weight of w counts a row w times, and 0 leaves it out. Where y is the name of a column, so is
        `sample_weight`, and that column is then not a feature.

        offset: [n], for three classes or more [n, C]: known parts of the latent values, to which the
        Gaussian process is added, for example the log-odds of a model that you have. They must not have
        seen the labels of their own rows. Predictions then need the offsets of their rows, too.

        X_val [k, d], y_val [k] and sample_weight_val [k] are validation rows of your own, as arrays in
        memory. They are used in place of held-out rows: they decide what "auto" means, keep the best
        state, end training when their score stops rising, calibrate the predictions and give
        `validation_log_loss_`. The model does not learn from them. Use them if rows depend on each
        other, for instance if a model of earlier rows must be judged by later ones.
        """
        self._fit_rows(X, y, sample_weight, offset, (X_val, y_val, sample_weight_val))
        return self

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.optimizer == "lbfgs":
            raise ValueError(
                'optimizer="lbfgs" belongs to GFITCClassifier; use "adam", an optimiser object or None'
            )
        if self.checkpoint is None:
            return
        resumed = f"checkpoint={str(self.checkpoint)!r}"
        if self.optimizer is None:
            raise ValueError(
                f"{resumed} does not go with optimizer=None, which takes no steps: the posterior is "
                "brought to convergence at the given kernel; leave checkpoint out"
            )
        if not isinstance(self.random_state, Integral) and not isinstance(self.config, TrainingConfig):
            raise ValueError(
                f"{resumed} with random_state={self.random_state!r}: a fit to be resumed must start "
                "from the same place; give random_state a whole number"
            )

    def _checkpoint_path(self, config: TrainingConfig) -> Path | None:
        """Where training is saved, if it can be written there."""
        if self.checkpoint is None:
            return None
        if config.schedule == "lbfgs":
            raise ValueError(
                f"checkpoint={str(self.checkpoint)!r} does not go with L-BFGS over all rows; use "
                'batch_size, or posterior_update="natural"'
            )
        path = Path(self.checkpoint)
        prepare_path(path)
        return path

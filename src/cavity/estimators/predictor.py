"""Predictions of a fitted classifier: probabilities, latent moments, uncertainty, relevance."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import wraps
from inspect import signature
from os import PathLike
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils import check_random_state

from cavity.engines.threads import Threads, compute_context, thread_count
from cavity.errors import NumericalError
from cavity.estimators.facts import NotebookRepr
from cavity.estimators.state import RELEVANCE_CACHE, State
from cavity.export.model_file import save
from cavity.gp.mean_function import LinearScore
from cavity.gp.model import Model
from cavity.gp.relevance import Relevance
from cavity.gp.uncertainty import Uncertainty, check_level, predictive_uncertainty
from cavity.typing import (
    AnyArray,
    Array,
    ArrayOrSparse,
    InputOffset,
    InputRows,
    IntArray,
    RandomSeed,
)

if TYPE_CHECKING:
    from cavity.estimators.base import SparseGPClassifier

P = ParamSpec("P")
R = TypeVar("R")


def by_rows(method: Callable[P, R]) -> Callable[P, R]:
    """A method whose prediction for a row does not depend on the other rows of X.

    It is computed by `_predicted` of the estimator, which may do so lazily.
    """
    arguments = signature(method)

    @wraps(method)
    def predict(*args: P.args, **kwargs: P.kwargs) -> R:
        options = dict(arguments.bind(*args, **kwargs).arguments)
        predictor, X = options.pop("self"), options.pop("X")
        return cast(R, predictor._predicted(method, X, options))

    return predict


def _require_finite(mean: Array, variance: Array, numbers: IntArray | None = None) -> None:
    """Raise for latent moments [L, n] that are not numbers; numbers [n]: those of the rows in X."""
    finite = np.isfinite(mean + variance).all(axis=0)
    if not finite.all():
        position = int(np.argmin(finite))
        row = position if numbers is None else numbers[position]
        raise NumericalError(
            f"the prediction for row {row} of X is not finite: its kernel values are "
            "beyond the range of numbers; check the row, or fit with tighter kernel bounds"
        )


class GPPredictor(NotebookRepr, ClassifierMixin, BaseEstimator, metaclass=ABCMeta):
    """Predictions of a fitted classifier for new rows; subclasses say how rows become features."""

    classes_: AnyArray

    @property
    @abstractmethod
    def _fitted(self) -> SparseGPClassifier:
        """The classifier that was fitted to the features; raises `NotFittedError` before a fit."""

    @abstractmethod
    def _chunks(self, X: InputRows, offset: InputOffset) -> Iterable[tuple[ArrayOrSparse, Array | None]]:
        """The checked features [t, d] of the rows of X, chunk by chunk, with their offsets [L, t]."""

    @abstractmethod
    def _relevance(self, model: Model) -> Relevance:
        """How much each of the inputs that the user knows matters to a model."""

    def _predicted(self, method: Callable[..., R], X: InputRows, options: dict[str, object]) -> R:
        """What a method of this class predicts for X, with options."""
        return method(self, X, **options)

    def compute_context(self) -> AbstractContextManager[Threads]:
        """Threads for predictions, as many as n_jobs says."""
        return compute_context(thread_count(self._fitted.n_jobs))

    @by_rows
    def latent_mean_and_variance(
        self, X: InputRows, *, offset: InputOffset = None
    ) -> tuple[Array, Array]:
        """Posterior mean [n] and variance [n] of the latent function at X [n, d].

        With three classes or more, means [n, C] and variances [n, C], a column for each class.

        Both are calibrated, by `inverse_temperature_` and `residual_variance_scale_`. The variance
        includes the kernel's own white noise, if it has any, but not the unit noise of the probit.
        """
        mean, variance = self._latent_moments(X, offset)
        return (mean[0], variance[0]) if len(mean) == 1 else (mean.T, variance.T)

    def _latent_moments(self, X: InputRows, offset: InputOffset) -> tuple[Array, Array]:
        """Mean and variance [L, n] of the L latent functions: one for two classes, else one a class."""
        with self.compute_context() as threads:
            moments, each = self._fitted.model_.latent_moments, threads.map
            parts = [moments(rows, each, offset=own) for rows, own in self._chunks(X, offset)]
        mean, variance = (np.hstack(part) for part in zip(*parts, strict=True))
        _require_finite(mean, variance)
        return mean, variance

    def moments_and_log_proba(
        self, features: ArrayOrSparse, threads: Threads, numbers: IntArray | None = None
    ) -> tuple[Array, Array, Array]:
        """Latent mean and variance [L, n] and log probabilities [n, C] at checked features [n, d].

        numbers: [n], which rows of X these are, for errors; None if they are all.
        """
        model = self._fitted.model_
        mean, variance = model.latent_moments(features, threads.map)
        _require_finite(mean, variance, numbers)
        return mean, variance, model.likelihood.predict_log_proba(mean, variance)

    @by_rows
    def predict_log_proba(self, X: InputRows, *, offset: InputOffset = None) -> Array:
        """Log probabilities [n, C] of the classes, in the order of `classes_`.

        offset: [n] or [n, C], the latent offsets of these rows, if the rows of the fit had offsets. All
        methods that predict take it.
        """
        mean, variance = self._latent_moments(X, offset)
        return self._fitted.model_.likelihood.predict_log_proba(mean, variance)

    @by_rows
    def predict_proba(self, X: InputRows, *, offset: InputOffset = None) -> Array:
        """Probabilities [n, C] of the classes, in the order of `classes_`.

        X [n, d] is an array. For a classifier of tables it is what `fit` takes: a data frame, an array,
        or the path, pattern or URL of files, of which a chunk at a time is read. Classifiers of Dask and
        of tables return lazy arrays for Dask collections. This holds for all methods that predict.
        """
        return np.asarray(np.exp(self.predict_log_proba(X, offset=offset)))

    @by_rows
    def decision_function(self, X: InputRows, *, offset: InputOffset = None) -> Array:
        """A score [n] that rises with the probability of the second class and is 0 at one half.

        For the probit, z with probability Φ(z): mean/√(1 + variance); for the logit, the log-odds.
        With three classes or more, scores [n, C]: the log probabilities.
        """
        mean, variance = self._latent_moments(X, offset)
        return self._fitted.model_.likelihood.decision_score(mean, variance)

    @by_rows
    def predict(self, X: InputRows, *, offset: InputOffset = None) -> AnyArray:
        """The most probable class of each row [n]."""
        scores = self.decision_function(X, offset=offset)
        codes = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    @by_rows
    def predict_uncertainty(
        self, X: InputRows, level: float = 0.9, *, offset: InputOffset = None
    ) -> Uncertainty:
        """How uncertain the predictions at X [n, d] are: entropy in two parts, and an interval.

        `total` = `aleatoric` + `epistemic`, each [n], is the entropy of the predicted probabilities in
        nats. The aleatoric part is E[H[p(y | f)]], what would remain if the latent function were known.
        The epistemic part is the mutual information of label and latent value, which more rows near x
        would reduce.

        `interval.lower` and `interval.upper`, each [n, C], are the ends of the interval that holds the
        probability of each class with posterior probability `level`: the middle of the distribution of
        p(y | f). It is not an interval of the label.

        >>> from sklearn.datasets import make_moons
        >>> from cavity import SEPClassifier
        >>> X, y = make_moons(200, noise=0.2, random_state=0)
        >>> model = SEPClassifier(n_inducing=20, random_state=0).fit(X, y)
        >>> far = model.predict_uncertainty([[50.0, 50.0]])
        >>> bool(far.epistemic[0] > far.aleatoric[0])
        True
        >>> lower, upper = far.interval
        >>> bool(lower[0, 1] < 0.1 and upper[0, 1] > 0.9)  # nothing is known there
        True
        """
        check_level(level)
        mean, variance = self._latent_moments(X, offset)
        return predictive_uncertainty(self._fitted.model_.likelihood, mean, variance, level)

    @by_rows
    def ood_score(self, X: InputRows) -> Array:
        """How far X [n, d] is from what was learned: [n], from 0 (known) to 1 (nothing is known).

        It is the posterior variance of the latent function as a share of its prior variance k(x, x),
        both without the kernel's white noise, and with the calibrated part of the residual variance in
        both (at least 1.8 % of it); with several latent functions, the mean of their shares.
        Far from all rows it approaches 1 if the kernel decreases to 0 with distance, as RBF, Matérn and
        rational quadratic do.
        """
        with self.compute_context() as threads:
            parts = [self.ood_score_at(rows, threads) for rows, _ in self._chunks(X, None)]
        return np.concatenate(parts)

    def ood_score_at(self, features: ArrayOrSparse, threads: Threads) -> Array:
        """`ood_score` [n] at checked features [n, d]."""
        share = self._fitted.model_.remaining_variance_share(features, threads.map)
        return np.asarray(share.mean(axis=0))

    def sample_latent(
        self,
        X: InputRows,
        n_samples: int = 1,
        random_state: RandomSeed = None,
        *,
        offset: InputOffset = None,
    ) -> Array:
        """Joint draws [n, n_samples] of the noise-free latent function at X [n, d]; O(n²) memory.

        With three classes or more, draws [n, C, n_samples]: the latent functions are independent.
        """
        rng = check_random_state(random_state)
        with self.compute_context():
            rows, offsets = zip(*self._chunks(X, offset), strict=True)
            # Rows with offsets are one chunk.
            features = rows[0] if len(rows) == 1 else np.vstack(rows)
            samples = self._fitted.model_.sample(features, n_samples, rng, offset=offsets[0])
        return np.asarray(samples[0] if len(samples) == 1 else samples.transpose(1, 0, 2))

    @property
    def kernel_(self) -> Kernel:
        """The fitted kernel, on scaled features."""
        return self._fitted.model_.kernel

    @property
    def inducing_points_(self) -> Array:
        """Inducing points [m, d] of all rows, in the units of the features."""
        model = self._fitted.model_
        return model.scaling.invert(model.Z)

    @property
    def inverse_temperature_(self) -> float:
        """The factor on the latent functions that calibration has found; 1 without calibration."""
        return self._fitted.model_.inverse_temperature

    @property
    def residual_variance_scale_(self) -> float:
        """The factor of predictions on the residual variance; 1 without calibration."""
        return self._fitted.model_.residual_variance_scale

    @property
    def mean_function_(self) -> LinearScore | BaseEstimator | None:
        """The classifier whose scores are the mean function, fitted to all rows; None without one."""
        mean = self._fitted.model_.mean_function
        return None if mean is None else mean.classifier

    @property
    def mean_coefficient_(self) -> float:
        """The factor on these scores; 0 without a mean function."""
        mean = self._fitted.model_.mean_function
        return 0.0 if mean is None else mean.coefficient

    @property
    def relevance_(self) -> Relevance:
        """Relevance of each feature with a 90 % band: shares of the latent function's squared slope.

        In a table it is that of each column: of its features together, and the effect of a pair of
        columns counts for both of them. The numbers are computed when first asked for. See
        `cavity.gp.relevance`.
        """
        model = self._fitted.model_
        cached: tuple[Model, Relevance] | None = vars(self).get(RELEVANCE_CACHE)
        if cached is None or cached[0] is not model:
            cached = model, self._relevance(model)
            self.__dict__[RELEVANCE_CACHE] = cached
        return cached[1]

    @property
    def feature_importances_(self) -> Array:
        """Relevance [d] of the features, or of the columns of a table, which adds up to one."""
        return np.array(self.relevance_.value)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to one file that `cavity.load` reads; see `cavity.save`."""
        save(self, path)

    def __getstate__(self) -> State:
        state: State = super().__getstate__()
        return {name: value for name, value in state.items() if name != RELEVANCE_CACHE}

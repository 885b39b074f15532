"""Predictions of a fitted classifier: probabilities, latent moments, uncertainty, relevance."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from cavity.engines.threads import Threads, compute_context, thread_count
from cavity.errors import NumericalError
from cavity.estimators.facts import NotebookRepr
from cavity.estimators.state import RELEVANCE_CACHE
from cavity.estimators.validation import validated_offset, validated_rows
from cavity.gp.mean_function import LinearScore
from cavity.gp.model import Model
from cavity.gp.relevance import Relevance
from cavity.gp.uncertainty import Uncertainty, check_level, predictive_uncertainty
from cavity.inference.fitted import names_of_features
from cavity.typing import (
    AnyArray,
    Array,
    ArrayOrSparse,
    InputOffset,
    InputRows,
    RandomSeed,
)


class GPPredictor(NotebookRepr, ClassifierMixin, BaseEstimator):
    """What a classifier says of new rows, once it has a fitted model."""

    n_jobs: int | None
    model_: Model
    classes_: AnyArray

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
        check_is_fitted(self)
        X = validated_rows(self, X)
        added = self._offset_of(X, offset)
        with compute_context(thread_count(self.n_jobs)) as threads:
            return self.latent_moments_at(X, threads, added)

    def latent_moments_at(
        self, X: ArrayOrSparse, threads: Threads, offset: Array | None = None
    ) -> tuple[Array, Array]:
        """Mean and variance [L, n] of the latent functions at rows X [n, d] that have been checked."""
        mean, variance = self.model_.latent_moments(X, threads.map, offset=offset)
        finite = np.isfinite(mean + variance).all(axis=0)
        if not finite.all():
            raise NumericalError(
                f"the prediction for row {int(np.argmin(finite))} of X is not finite: its kernel values "
                "are beyond the range of numbers; check the row, or fit with tighter kernel bounds"
            )
        return mean, variance

    def _offset_of(self, X: ArrayOrSparse, offset: InputOffset) -> Array | None:
        """The user's latent offsets of rows X [n, d] to be predicted, [L, n]."""
        if offset is None:
            return None
        if not self.model_.needs_offset:
            raise ValueError(
                f"offset was passed, but the rows that this {type(self).__name__} was fitted to had "
                "none; leave it out, or pass offset to fit, too"
            )
        return validated_offset(offset, X.shape[0], len(self.classes_)).T

    def predict_log_proba(self, X: InputRows, *, offset: InputOffset = None) -> Array:
        """Log probabilities [n, C] of the classes, in the order of `classes_`.

        offset: [n] or [n, C], the latent offsets of these rows, if the rows of the fit had offsets. All
        methods that predict take it.
        """
        mean, variance = self._latent_moments(X, offset)
        return self.model_.likelihood.predict_log_proba(mean, variance)

    def predict_proba(self, X: InputRows, *, offset: InputOffset = None) -> Array:
        """Probabilities [n, C] of the classes, in the order of `classes_`."""
        return np.exp(self.predict_log_proba(X, offset=offset))

    def decision_function(self, X: InputRows, *, offset: InputOffset = None) -> Array:
        """A score [n] that rises with the probability of the second class and is 0 at one half.

        For the probit, z with probability Φ(z): mean/√(1 + variance); for the logit, the log-odds.
        With three classes or more, scores [n, C]: the log probabilities.
        """
        mean, variance = self._latent_moments(X, offset)
        return self.model_.likelihood.decision_score(mean, variance)

    def predict(self, X: InputRows, *, offset: InputOffset = None) -> AnyArray:
        """The most probable class of each row [n]."""
        scores = self.decision_function(X, offset=offset)
        codes = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])

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
        return predictive_uncertainty(self.model_.likelihood, mean, variance, level)

    @property
    def mean_function_(self) -> LinearScore | BaseEstimator | None:
        """The classifier whose scores are the mean function, fitted to all rows; None without one."""
        check_is_fitted(self, "model_")
        mean = self.model_.mean_function
        return None if mean is None else mean.classifier

    @property
    def mean_coefficient_(self) -> float:
        """The factor on these scores; 0 without a mean function."""
        check_is_fitted(self, "model_")
        mean = self.model_.mean_function
        return 0.0 if mean is None else mean.coefficient

    def ood_score(self, X: InputRows) -> Array:
        """How far X [n, d] is from what was learned: [n], from 0 (known) to 1 (nothing is known).

        It is the posterior variance of the latent function as a share of its prior variance k(x, x),
        both without the kernel's white noise, and with the calibrated part of the residual variance in
        both (at least 1.8 % of it); with several latent functions, the mean of their shares.
        Far from all rows it approaches 1 if the kernel decreases to 0 with distance, as RBF, Matérn and
        rational quadratic do.
        """
        check_is_fitted(self)
        X = validated_rows(self, X)
        with compute_context(thread_count(self.n_jobs)) as threads:
            return np.asarray(self.model_.remaining_variance_share(X, threads.map).mean(axis=0))

    @property
    def relevance_(self) -> Relevance:
        """Relevance of each feature with a 90 % band: shares of the latent function's squared slope.

        Its numbers are computed when first asked for. See `cavity.gp.relevance`.
        """
        check_is_fitted(self, "model_")
        cached: tuple[Model, Relevance] | None = self.__dict__.get(RELEVANCE_CACHE)
        if cached is None or cached[0] is not self.model_:
            cached = self.model_, Relevance(self.model_, names_of_features(self))
            self.__dict__[RELEVANCE_CACHE] = cached
        return cached[1]

    @property
    def feature_importances_(self) -> Array:
        """Relevance [d] of the features, which adds up to one."""
        return np.array(self.relevance_.value)

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
        check_is_fitted(self)
        X = validated_rows(self, X)
        added, rng = self._offset_of(X, offset), check_random_state(random_state)
        with compute_context(thread_count(self.n_jobs)):
            samples = self.model_.sample(X, n_samples, rng, offset=added)
        return np.asarray(samples[0] if len(samples) == 1 else samples.transpose(1, 0, 2))

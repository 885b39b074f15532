"""Learned attributes that a table classifier has from the classifier inside it."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils.validation import check_is_fitted

from cavity.data.preprocess import TablePreprocessor
from cavity.estimators.base import SparseGPClassifier
from cavity.estimators.state import RELEVANCE_CACHE
from cavity.gp.model import Model
from cavity.gp.relevance import Relevance
from cavity.inference.config import TrainingConfig
from cavity.inference.history import Iteration
from cavity.inference.race_records import Race
from cavity.typing import Array


def _learned(name: str, text: str) -> Any:
    """A property that reads an attribute of the classifier inside; absent before a fit."""

    def read(self: LearnedAttributes) -> Any:
        check_is_fitted(self, "estimator_")
        return getattr(self.estimator_, name)

    return property(read, doc=text)


class LearnedAttributes(BaseEstimator):
    """The learned attributes of `estimator_`, and the relevance of the columns of the table."""

    estimator_: SparseGPClassifier
    preprocessor_: TablePreprocessor

    config_: TrainingConfig = _learned(
        "config_", "`TrainingConfig`, what every parameter meant in the fit."
    )
    race_: Race | None = _learned(
        "race_", "`Race` of the candidates for what the parameters left open, or None."
    )
    kernel_: Kernel = _learned("kernel_", "Fitted kernel, on scaled features.")
    inducing_points_: Array = _learned(
        "inducing_points_", "Inducing points [m, d], in the units of `get_feature_names_out()`."
    )
    inverse_temperature_: float = _learned("inverse_temperature_", "Factor on the latent functions.")
    residual_variance_scale_: float = _learned(
        "residual_variance_scale_", "Factor on the residual variance."
    )
    validation_log_loss_: float = _learned(
        "validation_log_loss_", "Mean log loss of held-out rows in nats; NaN if there were none."
    )
    validation_standard_error_: float = _learned(
        "validation_standard_error_", "Standard error of `validation_log_loss_`."
    )
    n_validation_rows_: int = _learned("n_validation_rows_", "Number of rows that were held out.")
    loo_log_proba_: Array = _learned(
        "loo_log_proba_",
        "Leave-one-out log probability [n] of the label of each row that has a target and a weight.",
    )
    loo_log_loss_: float = _learned("loo_log_loss_", "Mean leave-one-out log loss in nats.")
    log_marginal_likelihood_value_: float = _learned(
        "log_marginal_likelihood_value_", "Estimate of log p(y) at the end of the fit."
    )
    n_iter_: int = _learned("n_iter_", "Number of iterations.")
    history_: list[Iteration] = _learned("history_", "List of `Iteration`, the course of the fit.")

    @property
    def relevance_(self) -> Relevance:
        """Relevance of each column with a 90 % band: that of its features together.

        The effect of a pair of columns counts for both of them.

        Its numbers are computed when first asked for. See `cavity.gp.relevance`.
        """
        check_is_fitted(self, "estimator_")
        model = self.estimator_.model_
        cached: tuple[Model, Relevance] | None = self.__dict__.get(RELEVANCE_CACHE)
        if cached is None or cached[0] is not model:
            groups = self.preprocessor_.features_of_columns()
            cached = model, Relevance(model, list(groups), list(groups.values()))
            self.__dict__[RELEVANCE_CACHE] = cached
        return cached[1]

    @property
    def feature_importances_(self) -> Array:
        """Relevance [n_features_in_] of the columns, which adds up to one."""
        return np.array(self.relevance_.value)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop(RELEVANCE_CACHE, None)
        return state

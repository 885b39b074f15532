"""Facts about a fit, in one list for notebooks, reports and the command line."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from cavity.data.source import Source
from cavity.engines.local import LocalEngine
from cavity.gp.model import Model
from cavity.text import abbreviated

if TYPE_CHECKING:
    from cavity.estimators.base import SparseGPClassifier

_TABLE = "border-collapse:collapse;margin:.4em 0;font-size:.9em"
_NAME = "text-align:left;padding:.1em 1.2em .1em 0;font-weight:normal;opacity:.7"
_VALUE = "text-align:left;padding:.1em 0"


@dataclass(frozen=True)
class FitFacts:
    """The facts of a fit as plain data: the model, its scores, and time and memory.

    `dataclasses.asdict` makes a dictionary of it that JSON can hold; `as_words` makes lines to read.
    """

    method: str
    """Name of the estimator's class."""
    method_in_words: str
    likelihood: str
    classes: tuple[str, ...]
    rows: int
    """Training rows; of a stream, those of the last chunk."""
    streamed: bool
    """Whether the last fit was `partial_fit`."""
    features: int
    inducing_points: int
    kernel: str
    """The fitted kernel, on scaled features."""
    log_marginal_likelihood: float | None
    """None if it is not known, as in a stream."""
    inverse_temperature: float
    """Factor on the latent functions, from calibration."""
    residual_variance_scale: float
    """Factor on the residual variance, from calibration."""
    loo_log_loss: float | None
    """Mean leave-one-out negative log-likelihood in nats a row; None if it is not known."""
    validation_log_loss: float | None
    """Mean negative log-likelihood of rows that were held out; None if there were none."""
    validation_standard_error: float | None
    validation_rows: int
    """Number of rows that were held out."""
    iterations: int
    epochs: float | None
    """Passes over the data up to the last iteration; None if no iteration was recorded."""
    seconds: float | None
    """Time up to the last iteration."""
    fit_seconds: float | None
    """Time of the whole fit, reading included, if the estimator has recorded it."""
    model_bytes: int
    """Size of the arrays that predictions need."""
    peak_memory_bytes: int | None
    """Most memory of the process that fitted the model, if the estimator has recorded it."""
    mean_function: str | None = None
    """The classifier of the mean function and its coefficient, in words; None without one."""
    leaves: int = 0
    """Number of leaves with inducing points of their own."""
    local_points: int = 0
    """How many of the inducing points are in leaves."""

    @property
    def rows_per_second(self) -> float | None:
        """Rows that training went through in a second; None for a stream, whose chunks differ."""
        if self.streamed or not self.seconds or self.epochs is None:
            return None
        return self.epochs * self.rows / self.seconds

    def as_words(self) -> dict[str, str]:
        """Names and values of the facts that a reader wants to see first."""
        lines = {
            "Method": f"{self.method}: {self.method_in_words}",
            "Likelihood": self.likelihood,
            "Classes": ", ".join(self.classes),
            "Rows of the last chunk" if self.streamed else "Training rows": f"{self.rows:,}",
            "Features": f"{self.features:,}",
            "Inducing points": f"{self.inducing_points:,}{in_leaves(self.local_points, self.leaves)}",
            "Kernel": abbreviated(self.kernel),
        }
        if self.mean_function is not None:
            lines["Mean function"] = self.mean_function
        if self.log_marginal_likelihood is not None:
            lines["Log marginal likelihood"] = f"{self.log_marginal_likelihood:,.2f} (estimate)"
        if (self.inverse_temperature, self.residual_variance_scale) != (1.0, 1.0):
            lines["Calibration"] = (
                f"latent functions × {self.inverse_temperature:.2f}, residual variance × "
                f"{self.residual_variance_scale:.2g}"
            )
        if self.validation_log_loss is not None:
            lines["Held-out NLL"] = (
                f"{self.validation_log_loss:.4f} ± {self.validation_standard_error:.4f} "
                f"({self.validation_rows:,} rows)"
            )
        if self.loo_log_loss is not None:
            lines["Leave-one-out NLL"] = f"{self.loo_log_loss:.4f} (optimistic)"
        if self.seconds is not None:
            lines["Training"] = f"{self.iterations:,} iterations in {self.seconds:.2f} s"
        return lines


def in_leaves(local_points: int, leaves: int) -> str:
    """The end of a line about inducing points: how many of them are in leaves, if there are any."""
    return f", {local_points:,} of them in {leaves:,} leaves" if leaves else ""


def fit_facts(estimator: BaseEstimator) -> FitFacts:
    """Collect the facts of a fitted classifier, or of the one inside a pipeline or table classifier.

    >>> from sklearn.datasets import make_moons
    >>> from cavity import SEPClassifier
    >>> X, y = make_moons(100, noise=0.2, random_state=0)
    >>> facts = fit_facts(SEPClassifier(n_inducing=5, random_state=0).fit(X, y))
    >>> facts.classes, facts.rows, facts.inducing_points
    (('0', '1'), 100, 5)
    """
    fit = fitted_classifier(estimator)
    model, costs = fit.model_, vars(estimator)
    (m, d), latents = model.Z.shape, len(model.posterior.mean)
    sizes = () if model.local is None else model.local.leaves.sizes
    last = fit.history_[-1] if fit.history_ else None
    return FitFacts(
        method=type(fit).__name__,
        method_in_words=fit._method_in_words,
        likelihood=fit.config_.likelihood,
        classes=tuple(str(value) for value in fit.classes_),
        rows=len(fit.loo_log_proba_),
        streamed=fit._stream is not None,
        features=d,
        inducing_points=m + sum(sizes),
        kernel=str(fit.kernel_),
        log_marginal_likelihood=_finite(fit.log_marginal_likelihood_value_),
        inverse_temperature=float(model.inverse_temperature),
        residual_variance_scale=float(model.residual_variance_scale),
        loo_log_loss=_finite(fit.loo_log_loss_),
        validation_log_loss=_finite(fit.validation_log_loss_),
        validation_standard_error=_finite(fit.validation_standard_error_),
        validation_rows=int(fit.n_validation_rows_),
        iterations=int(fit.n_iter_),
        epochs=None if last is None else float(last.epochs),
        seconds=None if last is None else float(last.seconds),
        fit_seconds=costs.get("fit_seconds_"),
        model_bytes=8 * (m * d + m * m + latents * (m + m * m)) + _bytes_of_leaves(model),
        peak_memory_bytes=costs.get("peak_memory_bytes_"),
        mean_function=None if model.mean_function is None else str(model.mean_function),
        leaves=len(sizes),
        local_points=sum(sizes),
    )


def fitted_classifier(estimator: BaseEstimator) -> SparseGPClassifier:
    """Return the fitted classifier of cavity in an estimator, a pipeline or a table classifier."""
    from sklearn.pipeline import Pipeline  # slow to import, and seldom needed

    check_is_fitted(estimator)
    inner = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    inner = vars(inner).get("estimator_", inner)
    if not _is_fitted(inner):
        raise TypeError(
            f"estimator is a {type(inner).__name__}; pass a fitted classifier of cavity, a pipeline "
            "that ends in one, or a fitted TableClassifier"
        )
    found: SparseGPClassifier = inner
    return found


def training_source(classifier: SparseGPClassifier) -> Source | None:
    """Return the rows that a classifier was fitted to, if it still holds them.

    A loaded or copied classifier, a stream and a classifier that was fitted on a cluster do not.
    """
    engine = classifier._training
    return engine.source if isinstance(engine, LocalEngine) else None


class NotebookRepr:
    """Adds a small table of facts about the fit to scikit-learn's HTML representation."""

    def __dir__(self) -> list[str]:
        # scikit-learn computes everything that it lists; showing an estimator must not take time.
        names = (name for name in object.__dir__(self) if name != "feature_importances_")
        return [name for name in names if hasattr(self, name)]

    def _repr_html_inner(self) -> str:
        return html_of(self)

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        bundle = {"text/plain": repr(self)}
        if get_config()["display"] == "diagram":
            bundle["text/html"] = html_of(self)
        return bundle


def html_of(estimator: BaseEstimator) -> str:
    """Return scikit-learn's diagram and, for a fitted estimator, a table of facts under it."""
    diagram: str = estimator_html_repr(estimator)
    if not _is_fitted(vars(estimator).get("estimator_", estimator)):
        return diagram
    cells = "".join(
        f'<tr><th scope="row" style="{_NAME}">{escape(name)}</th>'
        f'<td style="{_VALUE}">{escape(value)}</td></tr>'
        for name, value in fit_facts(estimator).as_words().items()
    )
    caption = '<caption style="text-align:left;font-weight:bold">What was fitted</caption>'
    return f'{diagram}<table style="{_TABLE}">{caption}<tbody>{cells}</tbody></table>'


def _is_fitted(classifier: BaseEstimator) -> bool:
    return isinstance(vars(classifier).get("model_"), Model)


def _bytes_of_leaves(model: Model) -> int:
    """Size of the points of leaves and of the summed sites of their rows."""
    if model.local is None:
        return 0
    points = sum(Z.nbytes for Z in model.local.leaves.points)
    return points + sum(own.precision.nbytes + own.shift.nbytes for own in model.local.sites)


def _finite(value: float) -> float | None:
    """The number, or None for NaN and infinity, which JSON cannot hold."""
    return float(value) if np.isfinite(value) else None

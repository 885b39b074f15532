"""Mean functions of the latent values: a classifier's scores, cross-fitted, times a coefficient.

The latent value of a row is f(x) = a·score(x) + g(x): the score is what a classifier says, g is the
Gaussian process that learns what the classifier leaves, and a is a number.

* **Cross-fitting.** The rows are divided into folds by a hash of their numbers. The score of a training
  row comes from a classifier that was fitted to the other folds. So no score has seen its own label, and
  scores are as good as they will be on new rows. Predictions use a classifier fitted to all rows.
* **The coefficient** makes the labels most probable under the likelihood given a·score alone: a concave
  function of one number. Training needs it from the start, so it cannot wait for the calibration (c, b).
  That comes afterwards and multiplies a·score + g by c as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from scipy.optimize import brentq
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import has_fit_parameter

from cavity.data.arrays import ArraySource, mapping_of
from cavity.data.labels import n_latents
from cavity.data.sampling import hashed_folds, hashed_rows
from cavity.data.scaling import Scaling
from cavity.data.source import Source, rows_to_look_at
from cavity.gp.calibration import FEWEST_ROWS, MOST_VALUES
from cavity.gp.likelihoods import Likelihood
from cavity.gp.mean_function import LEAST_PROBABILITY, LinearScore, MeanFunction, scores
from cavity.memory import require_memory
from cavity.typing import FLOAT64, AnyArray, Array, IntArray

N_FOLDS = 5
MOST_ROWS_FROM_FILES = 200_000
"""Rows of a file or another source that is not in memory to which the classifiers are fitted."""
_FOLD_SEED = 0x5EED
"""Makes the folds independent of which rows are held out, which is decided by another hash."""
_WIDTH = 10.0
"""Standard deviation of the normal prior on the coefficient, in units of one over the scores' root mean
square. It only matters where the scores separate the classes: the coefficient would be infinite."""

Learner: TypeAlias = Callable[[AnyArray, AnyArray, Array | None], "LinearScore | BaseEstimator"]
"""Fits a classifier to rows X [t, d] with class values y [t] and weights [t] or None."""


def fold_of(numbers: IntArray) -> IntArray:
    """The folds [t], from 0 to 4, of rows with these numbers [t].

    >>> fold_of(np.arange(8)).tolist()
    [4, 2, 2, 4, 1, 1, 3, 1]
    """
    return hashed_folds(numbers, N_FOLDS, _FOLD_SEED)


def learn_mean_function(
    given: str | BaseEstimator,
    source: Source,
    classes: AnyArray,
    likelihood: Likelihood,
    *,
    scaling: Scaling,
    seed: int,
) -> tuple[MeanFunction, Array]:
    """The mean function of all rows, and its cross-fitted values [n, L] at the rows of a source.

    given: "linear" or a classifier; classes: values [C] of the class codes; scaling: of the inputs, for
    "linear" only.
    """
    learner = _linear(scaling, classes) if isinstance(given, str) else _classifier(given, seed)
    numbers, X, labels, weight = _rows_to_fit(source, given)
    y, fold = classes[labels], fold_of(numbers)
    fitted = []
    for k in range(N_FOLDS):
        others = np.flatnonzero(fold != k)
        _check_classes(labels[others], classes, given)
        fitted.append(learner(X[others], y[others], None if weight is None else weight[others]))
    found = _cross_fitted(fitted, source, classes)
    coefficient = fit_coefficient(likelihood, found[numbers], labels, weight)
    return MeanFunction(learner(X, y, weight), coefficient), coefficient * found


def _rows_to_fit(
    source: Source, given: str | BaseEstimator
) -> tuple[IntArray, AnyArray, IntArray, Array | None]:
    """Numbers, inputs, label codes and weights of the rows that the classifiers are fitted to."""
    in_memory = isinstance(source, ArraySource) and mapping_of(source.X) is None
    n = source.n_rows if in_memory else min(source.n_rows, MOST_ROWS_FROM_FILES)
    require_memory(
        16 * n * source.n_features, f"mean_function={given!r} for {n:,} rows", "fewer rows or features"
    )
    numbers = np.arange(n) if n == source.n_rows else hashed_rows(source.n_rows, n)
    rows = source.take(numbers)
    return numbers, rows.X, rows.labels, rows.weight


def _check_classes(labels: IntArray, classes: AnyArray, given: str | BaseEstimator) -> None:
    """Raise if the rows of some folds have too few classes to fit a classifier to."""
    if len(np.unique(labels)) < 2:
        raise ValueError(
            f"mean_function={given!r} is fitted to four fifths of the rows at a time, and some of these "
            f"have rows of one of the classes {classes.tolist()} only; pass more rows of each class, or "
            "mean_function=None"
        )


def _cross_fitted(fitted: list[LinearScore | BaseEstimator], source: Source, classes: AnyArray) -> Array:
    """Scores [n, L] of all rows, each by the classifier that was fitted without the row's fold."""
    found = np.empty((source.n_rows, n_latents(len(classes))))
    for block in source.blocks(rows_to_look_at(source.n_features)):
        index = block.index
        numbers = np.arange(*index.indices(source.n_rows)) if isinstance(index, slice) else index
        X, fold = block.load().X, fold_of(numbers)
        for k in np.unique(fold):
            inside = fold == k
            found[numbers[inside]] = scores(fitted[k], X[inside], classes)
    return found


def fit_coefficient(
    likelihood: Likelihood, found: Array, labels: IntArray, weight: Array | None = None
) -> float:
    """The factor a ≥ 0 on scores [n, L] that makes the labels [n] most probable; 0 if none helps.

    It maximises Σ w log p(y | a·score) − ½(a·r/10)², where r is the root mean square of the scores: a
    concave function of a. At most `MOST_VALUES`/L rows are used, evenly spaced.

    >>> from cavity.gp.likelihoods import Probit
    >>> rng = np.random.default_rng(0)
    >>> s = rng.normal(size=(4000, 1))
    >>> labels = (0.5 * s[:, 0] + rng.normal(size=4000) > 0.0).astype(int)
    >>> round(fit_coefficient(Probit(), s, labels), 1)
    0.5
    """
    n, n_latents = found.shape
    most = max(MOST_VALUES // n_latents, FEWEST_ROWS)
    chosen = slice(None) if n <= most else np.linspace(0, n - 1, most).round().astype(np.int64)
    s, codes = found[chosen].T, labels[chosen]
    w = np.ones(s.shape[1]) if weight is None else weight[chosen]
    size = float(np.sqrt(np.mean(s**2)))
    if size == 0.0:
        return 0.0

    def slope(t: float) -> float:
        """Derivative by t = a·r, which decreases."""
        alpha = likelihood.tilted(codes, (t / size) * s, np.zeros_like(s)).slope
        return float(w @ (alpha * s).sum(axis=0)) / size - t / _WIDTH**2

    if slope(0.0) <= 0.0:
        return 0.0
    upper = 1.0
    while slope(upper) > 0.0:
        upper *= 2.0
    return float(brentq(slope, 0.0, upper, xtol=1e-10)) / size


def _linear(scaling: Scaling, classes: AnyArray) -> Learner:
    """Learns logistic regression on scaled inputs, with scores for all classes [C]."""
    from sklearn.linear_model import LogisticRegression  # slow to import

    def learn(X: AnyArray, y: AnyArray, weight: Array | None) -> LinearScore:
        fitted = LogisticRegression(max_iter=1_000).fit(scaling.apply(X, FLOAT64), y, weight)
        weights, intercept = fitted.coef_.T, fitted.intercept_
        if len(classes) == 2:
            return LinearScore(scaling, weights, intercept)
        if len(fitted.classes_) == 2:
            weights, intercept = weights * [-0.5, 0.5], intercept * [-0.5, 0.5]
        known = np.searchsorted(classes, fitted.classes_)
        every = np.zeros((len(weights), len(classes)))
        every[:, known] = weights
        # A class that is not among these rows is less probable than all others.
        constants = np.full(len(classes), intercept.min() + np.log(LEAST_PROBABILITY))
        constants[known] = intercept
        every -= every.mean(axis=1, keepdims=True)
        return LinearScore(scaling, every, constants - constants.mean())

    return learn


def _classifier(given: BaseEstimator, seed: int) -> Learner:
    """Learns copies of a classifier, each with the same seed where its own is None."""
    template = clone(given)
    unset = {
        name: seed
        for name, value in template.get_params().items()
        if value is None and name.rpartition("__")[2] == "random_state"
    }
    template.set_params(**unset)

    def learn(X: AnyArray, y: AnyArray, weight: Array | None) -> BaseEstimator:
        classifier: Any = clone(template)
        if weight is None:
            return classifier.fit(X, y)
        if not has_fit_parameter(classifier, "sample_weight"):
            raise ValueError(
                f"the rows have weights, and mean_function={given!r} has no sample_weight in its fit; "
                "pass a classifier that has it, or leave sample_weight and class_weight out"
            )
        return classifier.fit(X, y, sample_weight=weight)

    return learn

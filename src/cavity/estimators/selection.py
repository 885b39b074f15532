"""Compare models, kernels and numbers of inducing points by leave-one-out, without cross-validation.

EP's cavities give the log probability of every training label with its row left out of the posterior,
at no extra cost (`loo_log_proba_`). `compare` ranks fitted models by it. `compare_kernels` scores
kernels and numbers of inducing points without training: it runs EP to convergence once for each.

The score is optimistic for trained models: kernel parameters and, above all, inducing points that were
trained have seen the rows that they are scored on. `compare_kernels` therefore keeps the inducing points
fixed. Compare trained models only with models of the same kind, or score them on held-out rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils.validation import check_is_fitted

from cavity.data.weights import validated_sample_weight
from cavity.estimators.base import SparseGPClassifier
from cavity.estimators.sep import SEPClassifier
from cavity.text import html_table, named_apart, text_table
from cavity.typing import Array, InputLabels, InputRows, InputWeights


class ComparedModel(NamedTuple):
    """One model of a comparison. Scores are in nats a row; larger is better."""

    name: str
    kernel: Kernel
    """The fitted kernel, on scaled inputs."""
    n_inducing: int
    """Number of inducing points, those of leaves included."""
    score: float
    """Mean leave-one-out log probability."""
    standard_error: float
    behind: float
    """Best score minus this score, at least 0."""
    behind_error: float
    """Standard error of `behind`, from the paired differences of the rows."""
    log_evidence: float
    """log Z_q of EP, or the variational bound."""


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison."""

    candidates: tuple[ComparedModel, ...]
    """The models, best first."""
    n_rows: int
    """Number of rows that every candidate has a score for; the scores are means over these rows."""

    @property
    def best(self) -> ComparedModel:
        """The candidate with the highest score."""
        return self.candidates[0]

    def within_se(self, errors: float = 2.0) -> list[ComparedModel]:
        """List the candidates within so many standard errors of the best one."""
        return [c for c in self.candidates if c.behind <= errors * c.behind_error]

    def __len__(self) -> int:
        return len(self.candidates)

    def __iter__(self) -> Iterator[ComparedModel]:
        return iter(self.candidates)

    def __getitem__(self, which: int | str) -> ComparedModel:
        """A candidate by rank or by name."""
        if isinstance(which, int):
            return self.candidates[which]
        for candidate in self.candidates:
            if candidate.name == which:
                return candidate
        raise KeyError(f"no candidate {which!r}; there are {[c.name for c in self.candidates]}")

    def __str__(self) -> str:
        return text_table(self._header, self._cells)

    def _repr_html_(self) -> str:
        return html_table(self._header, self._cells)

    @property
    def _header(self) -> list[str]:
        return ["model", "m", "loo score", "± se", "behind", "± se", "log evidence"]

    @property
    def _cells(self) -> list[list[str]]:
        return [
            [c.name, str(c.n_inducing), *(f"{number:.4f}" for number in c[3:7]), f"{c.log_evidence:.2f}"]
            for c in self.candidates
        ]


class _Scored(NamedTuple):
    """A fitted model with its score for each row."""

    name: str
    kernel: Kernel
    n_inducing: int
    log_evidence: float
    log_proba: Array
    """[n]"""

    @classmethod
    def of(cls, name: str, model: SparseGPClassifier) -> _Scored:
        return cls(
            name,
            model.kernel_,
            len(model.model_.inducing_points),
            float(model.log_marginal_likelihood_value_),
            np.asarray(model.loo_log_proba_, dtype=np.float64),
        )


def compare(
    models: Mapping[str, SparseGPClassifier] | Sequence[SparseGPClassifier],
    *,
    sample_weight: InputWeights = None,
) -> Comparison:
    """Rank classifiers that were fitted to the same rows by leave-one-out log probability.

    Parameters
    ----------
    models
        Fitted classifiers, by name or in a sequence.
    sample_weight : array-like [n] or None
        Weights of the rows: a row of weight w counts w times.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from sklearn.gaussian_process.kernels import RBF, DotProduct
    >>> from cavity import SEPClassifier
    >>> from cavity.estimators.selection import compare
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> base = SEPClassifier(n_inducing=20, optimizer=None, random_state=0)
    >>> curved = clone(base).set_params(kernel=10.0 * RBF(0.5)).fit(X, y)
    >>> straight = clone(base).set_params(kernel=DotProduct()).fit(X, y)
    >>> compare({"curved": curved, "straight": straight}).best.name
    'curved'
    """
    if not isinstance(models, Mapping):
        models = named_apart(models, lambda model: type(model).__name__)
    for model in models.values():
        check_is_fitted(model, "loo_log_proba_")
    return _ranked([_Scored.of(name, model) for name, model in models.items()], sample_weight)


def compare_kernels(
    X: InputRows,
    y: InputLabels = None,
    kernels: Mapping[str, Kernel | None] | Sequence[Kernel | None] = (None,),
    *,
    n_inducing: int | Sequence[int] | None = None,
    inducing_points: ArrayLike | None = None,
    estimator: SparseGPClassifier | None = None,
    sample_weight: InputWeights = None,
) -> Comparison:
    """Score kernels and numbers of inducing points on rows X [n, d], y [n], without training.

    For every candidate EP runs to convergence with the kernel's parameters as given (on scaled inputs).
    The inducing points are chosen once for each number m and are the same for all kernels.

    Parameters
    ----------
    X, y
        As in `fit`.
    kernels
        Kernels by name or in a sequence; None is the default kernel with lengthscales at the median
        distance.
    n_inducing : int, sequence of int or None
        Numbers m of inducing points; None is that of the estimator.
    inducing_points : array-like [m, d] or None
        Inducing points to use instead, in the units of X.
    estimator
        Estimator with the method, likelihood and other options; default `SEPClassifier(random_state=0)`.
    sample_weight : array-like [n] or None
        Weights of the rows.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from sklearn.gaussian_process.kernels import RBF, DotProduct
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> kernels = {"curved": 10.0 * RBF(0.5), "straight": DotProduct()}
    >>> table = compare_kernels(X, y, kernels, n_inducing=[10, 20])
    >>> table.best.name, len(table)
    ('curved, m=20', 4)
    """
    if n_inducing is not None and inducing_points is not None:
        raise ValueError("n_inducing and inducing_points are both given; leave out one of them")
    named = kernels if isinstance(kernels, Mapping) else named_apart(kernels, _kernel_name)
    if not named:
        raise ValueError("kernels is empty; give at least one kernel, or None for the default one")
    base = _untrained(estimator)
    sizes = np.atleast_1d(base.n_inducing if n_inducing is None else n_inducing).tolist()
    scored = []
    for m in sizes:
        Z = base.inducing_points if inducing_points is None else inducing_points
        for name, kernel in named.items():
            model = clone(base).set_params(n_inducing=m, kernel=kernel, inducing_points=Z)
            _fit_quietly(model, X, y, sample_weight)
            Z = model.inducing_points_
            label = f"{name}, m={len(Z)}" if len(sizes) > 1 else name
            scored.append(_Scored.of(label, model))
    return _ranked(scored, sample_weight)


def _untrained(estimator: SparseGPClassifier | None) -> SparseGPClassifier:
    if estimator is None:
        estimator = SEPClassifier(random_state=0)
    parameters = {"optimizer": None, "warm_start": False, "checkpoint": None}
    known = estimator.get_params(deep=False)
    untrained: SparseGPClassifier = clone(estimator)
    untrained.set_params(**{name: value for name, value in parameters.items() if name in known})
    return untrained


def _fit_quietly(
    model: SparseGPClassifier, X: InputRows, y: InputLabels, sample_weight: InputWeights
) -> None:
    with warnings.catch_warnings():
        # If EP converges slowly for a kernel, its score is still good to the digits shown.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y, sample_weight)


def _kernel_name(kernel: Kernel | None) -> str:
    return "default" if kernel is None else str(kernel)


def _ranked(scored: list[_Scored], sample_weight: InputWeights) -> Comparison:
    if not scored:
        raise ValueError("there are no models to compare; pass at least one fitted classifier")
    lengths = {s.name: len(s.log_proba) for s in scored}
    if len(set(lengths.values())) > 1:
        raise ValueError(
            f"the models were fitted to different numbers of rows: {lengths}; compare models that were "
            "fitted to the same rows, in the same order"
        )
    table = np.stack([s.log_proba for s in scored])
    weight = validated_sample_weight(1.0 if sample_weight is None else sample_weight, table.shape[1])
    assert weight is not None
    seen = np.isfinite(table).all(axis=0) & (weight > 0.0)
    if not seen.any():
        raise ValueError("no row has a leave-one-out score in every model; fit with more iterations")
    table, weight = table[:, seen], weight[seen]
    best = table[int(np.argmax(table @ weight))]
    candidates = []
    for s, log_proba in zip(scored, table, strict=True):
        score, error = weighted_mean_and_error(log_proba, weight)
        behind, behind_error = weighted_mean_and_error(best - log_proba, weight)
        candidates.append(
            ComparedModel(*s[:3], score, error, max(behind, 0.0), behind_error, s.log_evidence)
        )
    candidates.sort(key=lambda c: -c.score)
    return Comparison(tuple(candidates), int(seen.sum()))


def weighted_mean_and_error(values: Array, weight: Array) -> tuple[float, float]:
    """Mean of values [n] and its standard error, where a weight w [n] stands for w copies.

    >>> weighted_mean_and_error(np.array([1.0, 4.0]), np.array([2.0, 1.0]))
    (2.0, 1.0)
    """
    total = float(weight.sum())
    mean = float(weight @ values) / total
    squares = float(weight @ (values - mean) ** 2)
    return mean, float(np.sqrt(squares / (total * max(total - 1.0, 1e-300)))) if squares else 0.0

"""Helpers that all displays share: axes, colours, names, and predictions at plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import issparse

from cavity.engines.threads import compute_context, thread_count
from cavity.inference.fitted import FittedClassifier
from cavity.typing import AnyArray, Array, InputRows, IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure, SubFigure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
"""Okabe and Ito's colours, those of most contrast first."""
MARKERS = ("o", "^", "s", "D", "v", "P", "X")
"""Marker shapes, so that colours are not the only difference between classes."""
COLUMN = (3.6, 2.9)
"""Size of a figure in inches: a column of a paper, at which all labels stay readable."""


class Display:
    """Base class of the displays."""

    ax_: Axes
    """matplotlib's axes."""
    figure_: Figure | SubFigure
    """matplotlib's figure."""

    def _begin(self, ax: Axes | None) -> Axes:
        """Return the axes to draw on, those of a new figure if `ax` is None, and store them."""
        if ax is None:
            _, ax = pyplot().subplots(figsize=COLUMN, layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        return ax


def pyplot() -> ModuleType:
    """Import `matplotlib.pyplot`; an ImportError names the extra to install."""
    require_matplotlib()
    import matplotlib.pyplot

    return matplotlib.pyplot


def require_matplotlib() -> None:
    """Raise an ImportError that names the extra, if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"{error}: plots need matplotlib; install it with: pip install 'cavity[plot]'"
        ) from error


def colour(position: int) -> str:
    """Colour of a class or a curve, by its position."""
    return PALETTE[position % len(PALETTE)]


def line_style(position: int) -> str:
    """Line style of a class, by its position: solid until all colours are used."""
    return ("-", "--", ":")[position // len(PALETTE) % 3]


def marker(position: int) -> str:
    """Marker of a class, by its position."""
    return MARKERS[position % len(MARKERS)]


def probability_colours() -> Colormap:
    """Colour map from blue (0) through near-white (½) to vermilion (1), light enough for markers."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("cavity", ["#4095c5", "#f9f9f9", "#e08640"])


def dense(X: InputRows) -> AnyArray:
    """Convert X [n, d] of any kind to a dense array."""
    return np.asarray(X.toarray() if issparse(X) else X)


def n_rows(X: InputRows) -> int:
    """Number of rows of an array, a data frame, a list, or of what reads rows by number."""
    return int(X.shape[0]) if issparse(X) else len(X)


def take_rows(X: InputRows, index: IntArray) -> InputRows:
    """Select rows of an array, a data frame or a list by number, or of what has `take`."""
    if isinstance(X, Sequence):
        return np.asarray(X)[index]
    plain = isinstance(X, np.ndarray) or not hasattr(X, "take")
    return X[index] if plain else X.take(index)


def number(value: float) -> str:
    """Format a number with about three digits.

    >>> number(1234567.0), number(0.000123), number(3.14159), number(42)
    ('1,234,567', '1.23e-04', '3.14', '42')
    """
    if not np.isfinite(value):
        return str(value)
    size = abs(float(value))
    if size >= 1e7 or 0 < size < 1e-3:
        return f"{value:.2e}"
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def log_proba_at(fitted: FittedClassifier, X: Array) -> Array:
    """Log class probabilities [n, C] at X [n, d]."""
    with compute_context(thread_count(fitted.n_jobs)) as threads:
        mean, variance = fitted.model_.latent_moments(X, threads.map)
        return np.asarray(fitted.model_.likelihood.predict_log_proba(mean, variance))


def proba_at(fitted: FittedClassifier, X: Array) -> Array:
    """Class probabilities [n, C] at X [n, d]."""
    return np.exp(log_proba_at(fitted, X))


def latent_draws(
    fitted: FittedClassifier, X: Array, n_draws: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draw the latent functions jointly at X [n, d]: draws [L, n, n_draws] and a variance [L, n].

    The variance is that of a white kernel, whose noise is independent for each row, and is not part of
    the draws. Memory is O(n²).
    """
    with compute_context(thread_count(fitted.n_jobs)):
        draws = fitted.model_.sample(X, n_draws, rng)
        noise = fitted.model_.noise_variance(X)
    return draws, np.broadcast_to(noise, draws.shape[:2])

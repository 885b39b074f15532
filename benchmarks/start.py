"""Where every sparse method starts: the same inducing points, lengthscale and amplitude."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist


@dataclass(frozen=True)
class Start:
    """Inducing points Z: [m, d], one lengthscale for all inputs, amplitude (variance) 1."""

    Z: NDArray[np.floating]
    lengthscale: float
    amplitude: float = 1.0


def starting_point(X: NDArray[np.floating], m: int, seed: int) -> Start:
    """`m` random rows of X: [n, d], and the median distance between them (as in the paper)."""
    rows = np.random.default_rng([seed, m]).choice(len(X), size=min(m, len(X)), replace=False)
    Z = np.array(X[rows])
    return Start(Z, float(np.median(pdist(Z.astype(np.float64)))))

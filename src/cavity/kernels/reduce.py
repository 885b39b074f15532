"""Sums over a tile, and the gradients of single hyperparameters made of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.kernels.protocol import Array64
from cavity.typing import Array


def total(G: Array) -> float:
    """Σ G. Rows are summed in G's dtype, which is fast, and their sums in float64."""
    return float(G.sum(axis=-1).sum(dtype=np.float64))


def inner(G: Array, K: Array) -> float:
    """Σ G∘K for G, K: [n, m], without the [n, m] product."""
    return float(np.einsum("ij,ij->i", G, K).sum(dtype=np.float64))


def is_fixed(kernel: Any, name: str) -> bool:
    """Whether a hyperparameter is held: what `kernel.hyperparameter_<name>.fixed` says, at no cost."""
    return isinstance(getattr(kernel, f"{name}_bounds"), str)


def if_free(fixed: bool, value: float) -> Array64:
    """The gradient of a scalar hyperparameter: one entry, or none when it is fixed."""
    return np.empty(0) if fixed else np.array([value], dtype=np.float64)

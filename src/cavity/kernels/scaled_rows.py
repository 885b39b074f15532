"""Rows and inducing points divided by lengthscales, and the products that distances are made of.

For rows of few columns the norms ride along in the product: on *augmented* rows of length d + 2,

    x⁺ = [x_s, −½|x_s|², 1],   z⁺ = [z_s, 1, −½|z_s|²]:   E = X⁺Z⁺ᵀ,   WᵀX⁺ = [WᵀX_s, …, colsum(W)]

For rows of many columns, a scaled copy of them would cost more than two passes over [n, m], so they
stay as they are: E = X(z_s/l)ᵀ − ½|x_s|² − ½|z_s|², with |x_s|² = Σ_k x_k²/l_k² taken in the cache.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from cavity.blocks import cached_rows
from cavity.kernels.protocol import Array64
from cavity.kernels.shallow import shallow_copy
from cavity.typing import Array, Dtype

_MANY_COLUMNS = 64


class ScaledPoints:
    """Inducing points Z [m, d] about a centre, divided by lengthscales [d] or [1]."""

    def __init__(self, Z: Array, lengthscales: Array) -> None:
        self.centre = _centre(Z)
        self.rates = (1 / lengthscales).astype(Z.dtype)
        self.Zs = np.ascontiguousarray(self._centred(Z) * self.rates)
        self.half_norms = _half_norms(self.Zs)
        self.partner = self._partner()

    def in_precision(self, dtype: Dtype) -> ScaledPoints:
        """The same points, rounded: about a centre that has been rounded first, as the rows will be."""
        other, Zs = shallow_copy(self), self.Zs
        if self.centre is not None:
            other.centre = self.centre.astype(dtype)
            Zs = Zs + (self.centre - other.centre) * self.rates
        other.rates, other.Zs = self.rates.astype(dtype), Zs.astype(dtype)
        other.half_norms = _half_norms(other.Zs)
        other.partner = other._partner()
        return other

    def _partner(self) -> Array:
        if self.Zs.shape[1] >= _MANY_COLUMNS:
            return self.Zs * self.rates
        m, d = self.Zs.shape
        partner = np.empty((m, d + 2), dtype=self.Zs.dtype)
        partner[:, :d], partner[:, d], partner[:, d + 1] = self.Zs, 1, self.half_norms
        return partner

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "partner"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # On a cluster these points are sent out in every pass: half as much is faster, if made up for.
        vars(self).update(state)
        self.partner = self._partner()

    def rows(self, X: Array) -> ScaledRows:
        """X [n, d], ready for products with these points."""
        return WideRows(self, self._centred(X)) if X.shape[1] >= _MANY_COLUMNS else NarrowRows(self, X)

    def _centred(self, X: Array) -> Array:
        return X if self.centre is None else X - self.centre


class NarrowRows:
    """Augmented rows."""

    def __init__(self, points: ScaledPoints, X: Array) -> None:
        n, d = X.shape
        self._points = points
        self._rows = np.empty((n, d + 2), dtype=X.dtype)
        self.Xs = self._rows[:, :d]
        if points.centre is None:
            np.multiply(X, points.rates, out=self.Xs)
        else:
            np.subtract(X, points.centre, out=self.Xs)
            self.Xs *= points.rates
        np.einsum("ij,ij->i", self.Xs, self.Xs, out=self._rows[:, d])
        self._rows[:, d] *= -0.5
        self._rows[:, d + 1] = 1

    @property
    def half_norms(self) -> Array:
        """−½|x_s|² [n]."""
        return np.asarray(self._rows[:, -2])

    def exponent(self) -> Array:
        """E [n, m], a new array."""
        return np.asarray(self._rows @ self._points.partner.T)

    def weighted(self, W: Array) -> tuple[Array, Array]:
        """WᵀX_s [m, d] and the column sums of W [m, 1], for W [n, m]."""
        P = W.T @ self._rows
        return P[:, :-2], P[:, -1:]

    def weighted_squares(self, weights: Array) -> Array64:
        """Σ_i w_i x_ik² [d], x scaled."""
        return np.asarray(weights @ np.square(self.Xs), dtype=np.float64)


class WideRows:
    """Rows that are read where they are."""

    def __init__(self, points: ScaledPoints, X: Array) -> None:
        self._points = points
        self._X = X
        squared_rates = np.broadcast_to(points.rates**2, X.shape[1:])
        self.half_norms = np.empty(len(X), dtype=X.dtype)
        for rows in cached_rows(len(X), X.shape[1] * X.itemsize):
            np.matmul(np.square(X[rows]), squared_rates, out=self.half_norms[rows])
        self.half_norms *= -0.5

    def exponent(self) -> Array:
        """E [n, m], a new array."""
        E = self._X @ self._points.partner.T
        E += self.half_norms[:, None]
        E += self._points.half_norms
        return np.asarray(E)

    def weighted(self, W: Array) -> tuple[Array, Array]:
        """WᵀX_s [m, d] and the column sums of W [m, 1], for W [n, m]."""
        P = W.T @ self._X
        P *= self._points.rates
        ones = np.ones(len(W), dtype=W.dtype)
        return P, (ones @ W)[:, None]

    def weighted_squares(self, weights: Array) -> Array64:
        """Σ_i w_i x_ik² [d], x scaled."""
        total = np.zeros(self._X.shape[1])
        for rows in cached_rows(len(self._X), self._X.shape[1] * self._X.itemsize):
            total += weights[rows] @ np.square(self._X[rows])
        return np.asarray(total * self._points.rates.astype(np.float64) ** 2)


ScaledRows: TypeAlias = NarrowRows | WideRows


def _half_norms(Zs: Array) -> Array:
    return np.asarray(-0.5 * np.einsum("ij,ij->i", Zs, Zs))


def _centre(Z: Array) -> Array | None:
    """What to subtract from all rows: nothing, if Z lies about the origin already.

    It changes no distance, but keeps float32 from cancelling on data far from 0.
    """
    share = np.full(len(Z), 1 / len(Z), dtype=Z.dtype)
    mean = share @ Z
    # |mean| ≤ 3·deviation, in a form that does not cancel.
    return None if (10 * mean**2 <= 9 * (share @ np.square(Z))).all() else mean

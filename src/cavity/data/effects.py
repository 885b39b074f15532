"""Value effects: how much more probable each class is where a column has a certain value.

The effect of a value on a class is its log-odds, among rows with this value, less its log-odds among all
rows. Rare values are shrunken to no effect: with counts N_c of the classes at a value, N in total, and
base rates π, the probability of a class is (N_c + a π_c)/(N + a). The concentration a is learned: it
maximises the marginal likelihood of the counts of all values, if the rates at each value are drawn from
a Dirichlet distribution with mean π and concentration a.

A row must not see its own label in its effects, or a model would learn to copy labels. So a hash of its
number puts each row into a fold, and a training row sees what the rows of the other folds say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

from cavity.data.columns import CATEGORICAL
from cavity.data.labels import n_latents
from cavity.data.sampling import hashed_folds
from cavity.data.values import Positions, ValueIndex, Values
from cavity.typing import Array, IntArray

if TYPE_CHECKING:
    import pyarrow as pa

N_FOLDS = 5
_FOLD_SEED = 0x5EED0F0F01D5
"""Keeps folds independent of the hashes that hold rows out, whose seeds are smaller than 2³²."""
LEAST_CONCENTRATION, MOST_CONCENTRATION = 0.1, 1e6
_BINS = (4, 8, 32)
"""Numbers of bins that stand for a smooth function of a column."""
_MOST_COUNTED = 1_000_000
"""Numbers up to which different whole ones are counted, which is quicker than to sort them."""
_DIFFERENT_COUNTS = 1_000
"""Most different counts of a class from which a concentration is learned."""


def folds_of(numbers: IntArray) -> IntArray:
    """The fold [t], from 0 to 4, of rows with these numbers [t].

    >>> folds_of(np.arange(8)).tolist()
    [3, 2, 3, 0, 1, 3, 1, 0]
    """
    return hashed_folds(numbers, N_FOLDS, _FOLD_SEED)


def base_rates(totals: Array) -> Array:
    """Share of each class [C] from total weights [C]; never 0: half a row is spread over the classes.

    >>> base_rates(np.array([9.0, 0.0])).round(3)
    array([0.974, 0.026])
    """
    total = float(totals.sum())
    share = np.divide(totals, total, out=np.zeros(len(totals)), where=total > 0)
    return np.asarray((total * share + 0.5 / len(totals)) / (total + 0.5))


def concentration(counts: Array, base: Array) -> float:
    """The most probable concentration of Dirichlet distributions behind counts [K, C] with mean [C]."""
    # The likelihood is a sum over totals and over the counts of each class, of which few differ.
    sums = [_different(column) for column in (counts @ np.ones(len(base)), *counts.T)]
    if not len(sums[0][0]):
        return MOST_CONCENTRATION
    means = np.concatenate(
        [np.full(len(v), mean) for (v, _), mean in zip(sums, (1.0, *base), strict=True)]
    )
    signs = np.repeat([-1.0, *np.ones(len(base))], [len(v) for v, _ in sums])
    values = np.concatenate([v for v, _ in sums])
    copies = signs * np.concatenate([n for _, n in sums])

    def cost(log_a: float) -> float:
        a = np.exp(log_a) * means
        return -float(copies @ (gammaln(a + values) - gammaln(a)))

    bounds = np.log([LEAST_CONCENTRATION, MOST_CONCENTRATION])
    found = minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 0.02})
    return float(np.exp(found.x))


def _different(numbers: Array) -> tuple[Array, Array]:
    """The different positive numbers, and how many of each there are.

    Sums of weights are hardly ever equal. If there are very many, neighbours are joined in their mean.

    >>> _different(np.array([3.0, 0.0, 1.0, 3.0]))
    (array([1., 3.]), array([1., 2.]))
    """
    numbers = numbers[numbers > 0.0]
    whole = numbers.astype(np.int64)
    if len(numbers) and (whole == numbers).all() and whole.max() < _MOST_COUNTED:
        copies = np.bincount(whole)
        values = np.flatnonzero(copies).astype(np.float64)
        copies = copies[copies > 0]
    else:
        values, copies = np.unique(numbers, return_counts=True)
    step = -(-len(values) // _DIFFERENT_COUNTS)
    if step <= 1:
        return values, copies.astype(np.float64)
    starts = np.arange(0, len(values), step)
    joined = np.add.reduceat(copies, starts)
    return np.add.reduceat(values * copies, starts) / joined, joined.astype(np.float64)


def effects(probabilities: Array, base: Array) -> Array:
    """Differences of log-odds to those of base rates: [K, 1] for two classes, [K, C] for more.

    >>> effects(np.array([[0.5, 0.5]]), np.array([0.8, 0.2])).round(3)
    array([[1.386]])
    """
    if len(base) == 2:
        odds = probabilities[:, 1] / probabilities[:, 0]
        return np.asarray(np.log(odds * (base[0] / base[1])))[:, None]
    odds = probabilities / (1.0 - probabilities)
    return np.asarray(np.log(odds * ((1.0 - base) / base)))


@dataclass(frozen=True)
class CrossFit:
    """What other rows say about each value.

    Rows are in folds 0 … F − 1, or held out and in fold F. A row of a fold sees the other folds, a row
    that is held out sees all folds, and a new row sees all rows.
    """

    probabilities: Array
    """[F + 2, K, C]: for the rows of each fold, for held-out rows, and for new rows."""
    bases: Array
    """[F + 2, C]"""

    @classmethod
    def of(cls, counts: Array) -> CrossFit:
        """What other rows say, from counts [K, F + 1, C]."""
        n_values, n_folds, n_classes = counts.shape
        seen = np.ones((n_folds + 1, n_folds))  # which folds the rows of each fold, and new rows, see
        seen[:-1] -= np.eye(n_folds)
        seen[:-1, -1] = 0.0
        probabilities = np.empty((n_folds + 1, n_values, n_classes))
        bases = np.empty((n_folds + 1, n_classes))
        flat = counts.reshape(n_values, n_folds * n_classes)
        for rates, base, folds in zip(probabilities, bases, seen, strict=True):
            part = np.kron(folds, np.eye(n_classes)) @ flat.T  # [C, K]
            base[:] = base_rates(part.sum(axis=1))
            a = concentration(part.T, base)
            total = part.sum(axis=0) + a
            for c in range(n_classes):
                rates[:, c] = (part[c] + a * base[c]) / total
        return cls(probabilities, bases)

    def log_proba(self) -> Array:
        """Cross-fitted log probabilities [K, F, C] of the rows of each fold."""
        return np.asarray(np.log(self.probabilities[:-2]).transpose(1, 0, 2))

    def tables(self) -> Array:
        """Effects [F + 2, K + 1, k]; the last, of values that are not known, are 0."""
        n_parts, n_values, n_classes = self.probabilities.shape
        tables = np.zeros((n_parts, n_values + 1, n_latents(n_classes)))
        for table, values, base in zip(tables, self.probabilities, self.bases, strict=True):
            table[:-1] = effects(values, base)
        return tables


class Gain(NamedTuple):
    """How much smaller the mean log loss of one prediction is than that of another."""

    mean: float
    standard_error: float

    def exceeds(self, n_errors: float) -> bool:
        """Whether it is larger than this many standard errors."""
        return self.mean > n_errors * self.standard_error


def gain(weights: Array, log_p: Array, log_q: Array) -> Gain:
    """The gain of log probabilities over others, both of the labels of cells with these weights."""
    total = max(float(weights.sum()), 1e-300)
    difference = log_p - log_q
    mean = float((weights * difference).sum()) / total
    spread = float((weights * np.square(difference - mean)).sum()) / total
    return Gain(mean, float(np.sqrt(spread / total)))


def gain_over_base(counts: Array, fit: CrossFit) -> Gain:
    """What knowing the value is worth, from counts [K, F + 1, C]."""
    return gain(counts[:, :-1], fit.log_proba(), np.log(fit.bases[:-2])[None])


def gain_over_bins(counts: Array, fit: CrossFit) -> Gain:
    """What the values in order are worth beyond bins of neighbours: the smallest gain over some bins.

    counts: [K + 1, F + 1, C], the last for missing cells. Bins have at least two values on average, so
    that a smooth function of the value is as good in bins.
    """
    totals, inside = counts[:-1].sum(axis=(1, 2)), counts[:, :-1]
    middle = (np.cumsum(totals) - 0.5 * totals) / max(totals.sum(), 1e-300)
    gains = []
    for n_bins in _BINS:
        if 2 * n_bins > len(totals):
            break
        _, bins = np.unique(np.floor(n_bins * middle), return_inverse=True)
        bins = np.append(bins, bins.max() + 1)  # missing cells are apart
        joined = np.zeros((bins[-1] + 1, *counts.shape[1:]))
        np.add.at(joined, bins, counts)
        gains.append(gain(inside, fit.log_proba(), CrossFit.of(joined).log_proba()[bins]))
    return min(gains, default=Gain(np.inf, 0.0))


Codes: TypeAlias = dict[int, IntArray]
"""Codes [t] of the cells of some columns, by the identity of their index."""


@dataclass(frozen=True, eq=False)
class EffectEncoder:
    """The effects of the values of a column, or of a group of two or three."""

    indices: tuple[ValueIndex, ...]
    """One, or two or three for a group."""
    cells: IntArray | None
    """[K] of a group: the codes that occur together, sorted, as one number; see `joint_codes`."""
    table: Array
    """[K + 1, k]: the effects; the last are those of values that are not known."""
    classes: tuple[str, ...]
    """[k]: names of the classes whose effects these are; () for two classes."""
    counts: Array | None = None
    """[K, F + 1, C]: what the effects were learned from, if a stream will add to it; those of a column
    have one more, of missing cells."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns; that of a group of parts of the same dates is there once."""
        return tuple(dict.fromkeys(name for index in self.indices for name in index.values.columns))

    @property
    def name(self) -> str:
        """The columns, or their parts, whose values have these effects."""
        return " × ".join(str(index.values) for index in self.indices)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features."""
        name = f"effect of {self.name}"
        return tuple(f"{name} on {word}" for word in self.classes) or (name,)

    def rows_of(self, batch: pa.RecordBatch, known: Codes) -> IntArray:
        """Rows [t] of the table for an Arrow record batch that has the columns.

        known: codes of the batch that were found before; others are added.
        """
        if self.cells is not None:
            return self._positions(joint_codes(self.indices, batch, known))
        (index,) = self.indices
        if id(index) not in known:
            known[id(index)] = index.codes(batch)
        return known[id(index)]

    @cached_property
    def _positions(self) -> Positions:
        assert self.cells is not None
        return Positions(self.cells)

    def encode(self, batch: pa.RecordBatch, out: Array, known: Codes | None = None) -> None:
        """Write the effects of a record batch into out [t, k]; known: as in `rows_of`."""
        out[:] = self.table[self.rows_of(batch, {} if known is None else known)]


def joint_codes(indices: Sequence[ValueIndex], batch: pa.RecordBatch, known: Codes) -> IntArray:
    """Codes [t] of some columns as one number; −1 where one of them has a value that is not known.

    The codes are the digits of the number: (a·n_codes + b)·n_codes + c, with the number of codes of the
    second and third column. known: codes of the batch that were found before; others are added.
    """
    joint, strange = np.zeros(batch.num_rows, dtype=np.int64), np.zeros(batch.num_rows, dtype=bool)
    for index in indices:
        if id(index) not in known:
            known[id(index)] = index.codes(batch)
        codes = known[id(index)]
        joint *= index.n_codes
        joint += codes
        strange |= codes > index.n_values
    joint[strange] = -1
    return joint


def effects_as_state(effects: Sequence[EffectEncoder]) -> dict[str, object]:
    """Effects as text and arrays, for a model file; the values of a column are there once."""
    indices = {id(index): index for effect in effects for index in effect.indices}
    place = {key: position for position, key in enumerate(indices)}
    return {
        "values": json.dumps([[*i.values, i.is_binned] for i in indices.values()]),
        "keys": [
            json.dumps(i.keys.tolist()) if i.values.kind == CATEGORICAL else i.keys
            for i in indices.values()
        ],
        "of": json.dumps([[place[id(index)] for index in effect.indices] for effect in effects]),
        "cells": [effect.cells for effect in effects],
        "tables": [effect.table for effect in effects],
        "counts": [effect.counts for effect in effects],
        "classes": json.dumps(effects[0].classes if effects else []),
    }


def effects_from_state(state: Mapping[str, Any]) -> list[EffectEncoder]:
    """The effects, from what `effects_as_state` gave."""
    values = json.loads(state["values"])
    keys = [np.array(json.loads(k), object) if isinstance(k, str) else k for k in state["keys"]]
    indices = [
        ValueIndex(Values(*some), k, is_binned)
        for (*some, is_binned), k in zip(values, keys, strict=True)
    ]
    classes = tuple(json.loads(state["classes"]))
    return [
        EffectEncoder(tuple(indices[i] for i in of), cells, table, classes, counts)
        for of, cells, table, counts in zip(
            json.loads(state["of"]), state["cells"], state["tables"], state["counts"], strict=True
        )
    ]

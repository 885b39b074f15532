"""Weights of rows and classes: one check for all of them, and `class_weight` as factors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.data.source import Source, class_totals, row_number_type, weights_by_class
from cavity.errors import SourceError
from cavity.typing import AnyArray, Array, ClassWeight, InputWeights, IntArray

LEAST_TOTAL, MOST_TOTAL = 1e-100, 1e100
"""Sums of weights whose squares and reciprocals are far from the ends of the floating-point range."""


WEIGHTS = "(weight)"
"""Name of the column that the weights of a table become which were passed as an array."""


def name_of_weight(column: str) -> str:
    """What errors call the weights in a column of a table.

    >>> name_of_weight("copies"), name_of_weight(WEIGHTS)
    ("the weight 'copies'", 'sample_weight')
    """
    return "sample_weight" if column == WEIGHTS else f"the weight {column!r}"


def check_weights(
    weight: Array, name: str = "sample_weight", place: object = None, *, numbered: bool = True
) -> None:
    """Raise if one of the weights [n] is negative or not finite.

    The error has their name and place and, if they are numbered, the row.

    >>> check_weights(np.array([2.0, 0.0, -1.0]))
    Traceback (most recent call last):
    cavity.errors.SourceError: sample_weight of row 2 is -1.0; a weight counts copies of its row: it \
must be finite and not negative, and 0 leaves the row out
    """
    bad = ~is_weight(weight)
    if bad.any():
        row = int(np.argmax(bad))
        where = "" if place is None else f"{place}: "
        which = f"row {row}" if numbered else "a row"
        raise SourceError(
            f"{where}{name} of {which} is {weight[row]}; a weight counts copies of its row: it must be "
            "finite and not negative, and 0 leaves the row out"
        )


def is_weight(weight: Array) -> NDArray[np.bool_]:
    """Which numbers [n] can be weights: those that are finite and not negative.

    >>> is_weight(np.array([2.0, 0.0, 0.5, -1.0, np.nan]))
    array([ True,  True,  True, False, False])
    """
    return np.isfinite(weight) & (weight >= 0.0)


def check_total_weight(total: float, name: str = "sample_weight", place: object = None) -> None:
    """Raise if the sum of all weights is zero or far from usual; the error has their name and place.

    >>> check_total_weight(1e-300)
    Traceback (most recent call last):
    cavity.errors.SourceError: the sum of sample_weight is 1e-300; it counts copies of rows and must be \
between 1e-100 and 1e+100: multiply the weights by a constant
    """
    where = "" if place is None else f"{place}: "
    if total <= 0.0:
        raise SourceError(f"{where}{name} of every row is zero; at least one must count")
    if not LEAST_TOTAL <= total <= MOST_TOTAL:
        raise SourceError(
            f"{where}the sum of {name} is {total:g}; it counts copies of rows and must be between "
            f"{LEAST_TOTAL:g} and {MOST_TOTAL:g}: multiply the weights by a constant"
        )


def validated_sample_weight(
    sample_weight: InputWeights,
    n_rows: int,
    *,
    require_positive: bool = True,
    name: str = "sample_weight",
) -> Array | None:
    """Weights [n] of n rows, finite and not negative, or None if every row counts once.

    require_positive: whether at least one of them must be positive.

    >>> validated_sample_weight([1, 0, 2.5], 3)
    array([1. , 0. , 2.5])
    """
    if sample_weight is None:
        return None
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise SourceError(
            f"{name}={sample_weight!r} is not an array of numbers; pass one weight a row"
        ) from error
    if weight.ndim == 0:
        weight = np.full(n_rows, float(weight))
    if weight.shape != (n_rows,):
        raise SourceError(
            f"{name} has shape {weight.shape}, but there are {n_rows} rows: pass one weight a row"
        )
    check_weights(weight, name)
    with np.errstate(over="ignore"):
        total = float(weight.sum())
    if require_positive or total > 0.0:
        check_total_weight(total, name)
    return weight


def rows_with_weight(weight: Array | None) -> tuple[IntArray | None, Array | None]:
    """Numbers of the rows whose weight is positive (None: all rows) and their weights.

    >>> rows_with_weight(np.array([1.0, 0.0, 2.5]))
    (array([0, 2], dtype=int32), array([1. , 2.5]))
    """
    if weight is None or weight.all():
        return None, weight
    rows = np.flatnonzero(weight > 0.0).astype(row_number_type(len(weight)))
    return rows, weight[rows]


def class_factors(class_weight: ClassWeight, classes: AnyArray, totals: Array) -> Array | None:
    """What `class_weight` multiplies the weights of each class by [C]; totals [C]: their weight so far.

    "balanced" gives all classes the same total weight and keeps the sum.

    >>> class_factors("balanced", np.array(["a", "b"]), np.array([3.0, 1.0])).round(2)
    array([0.67, 2.  ])
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        present = totals > 0.0
        share = totals.sum() / max(1, np.count_nonzero(present))
        return np.where(present, share / np.where(present, totals, 1.0), 0.0)
    return _factors_of_mapping(class_weight, classes)


def _factors_of_mapping(class_weight: Mapping[Any, float], classes: AnyArray) -> Array:
    values = classes.tolist()
    unknown = [key for key in class_weight if key not in values]
    if unknown and any(value not in class_weight for value in values):
        raise ValueError(
            f"class_weight has the key {unknown[0]!r}, but the classes of y are {values}; its keys are "
            "class values, and classes that it does not list have the weight 1"
        )
    factors = np.ones(len(values))
    for code, value in enumerate(values):
        factor = class_weight.get(value, 1.0)
        try:
            factors[code] = float(factor)
        except (TypeError, ValueError):
            factors[code] = np.nan
        if not 0.0 <= factors[code] < np.inf:
            raise ValueError(
                f"class_weight of class {value!r} is {factor!r}; it must be a finite number that is not "
                "negative"
            )
    return factors


def any_weight(
    labels: IntArray,
    weight: Array | None,
    class_weight: ClassWeight,
    classes: AnyArray,
) -> bool:
    """Whether one of the rows with label codes [n] and weights [n] has a positive weight.

    >>> any_weight(np.array([0, 0]), None, {"a": 0.0}, np.array(["a", "b"]))
    False
    """
    if class_weight is not None:
        assert not isinstance(class_weight, str)  # "balanced" would need the rows of all parts
        weight = weights_by_class(weight, labels, _factors_of_mapping(class_weight, classes))
    return bool(len(labels) if weight is None else weight.any())


def weighted_source(source: Source, classes: AnyArray, class_weight: ClassWeight) -> Source:
    """A source with the weights of its classes multiplied; two of them must keep some weight."""
    if len(classes) < 2 or (class_weight is None and source.class_totals is None):
        return source
    totals = class_totals(source, len(classes))
    factors = checked_class_factors(class_weight, classes, totals)
    return source if factors is None else source.with_class_factors(factors, totals)


def checked_class_factors(class_weight: ClassWeight, classes: AnyArray, totals: Array) -> Array | None:
    """Factors of `class_factors`; raises if fewer than two of several classes keep a positive weight."""
    factors = class_factors(class_weight, classes, totals)
    left = totals if factors is None else totals * factors
    if len(classes) > 1 and np.count_nonzero(left > 0.0) < 2:
        raise ValueError(
            f"the classes {classes.tolist()} have the total weights {left.tolist()}; a classifier needs "
            "at least two classes with any weight: check the weights and class_weight"
        )
    return factors


def weighted_mean(values: Array, source: Source) -> float:
    """Mean of values [k], one a row of the source, each row counted by its weight."""
    return float(np.average(values, weights=source.weight))

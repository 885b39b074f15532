"""The weight column: how much each row counts, and rows that count nothing.

What a row counts: `sample_weight` and `class_weight`, judged and multiplied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cavity.data import ArraySource, Source
from cavity.data.columns import NUMERIC, coerced
from cavity.data.source import ClassWeightedSource, class_totals, code_type, countable, row_number_type
from cavity.data.table import import_arrow
from cavity.errors import SourceError
from cavity.typing import Array, IntArray


def weighted_rows(chunk: Any, weight: str | None) -> tuple[Any, Array | None]:
    """The rows of a record batch that count, and their weights [t]; all rows if there is no column.

    Rows of weight 0 are left out for good, before anything is learned: nothing shall depend on them.

    >>> import pyarrow
    >>> chunk = pyarrow.RecordBatch.from_pydict({"age": [31, 47, 52], "copies": [2, 0, 1]})
    >>> rows, weights = weighted_rows(chunk, "copies")
    >>> rows.column("age").to_pylist(), weights.tolist()
    ([31, 52], [2.0, 1.0])
    """
    if weight is None:
        return chunk, None
    pa, _ = import_arrow()
    values = coerced(chunk.column(weight), NUMERIC, weight)
    weights = values.to_numpy(zero_copy_only=False).astype(np.float64)
    strange = ~countable(weights)
    if strange.any():
        value = values[int(np.argmax(strange))].as_py()
        words = "a row without a weight" if value is None else f"the weight {value!r}"
        raise SourceError(
            f"the weight column {weight!r} has {words}; a weight counts copies of its row: it must be "
            "finite and not negative, and 0 leaves the row out"
        )
    counts = weights > 0.0
    return (chunk, weights) if counts.all() else (chunk.filter(pa.array(counts)), weights[counts])


def validated_sample_weight(sample_weight: Any, n_rows: int, *, some: bool = True) -> Array | None:
    """Weights [n] of n rows, finite and not negative, or None if every row counts once.

    some: whether one of them at least must count.

    >>> validated_sample_weight([1, 0, 2.5], 3)
    array([1. , 0. , 2.5])
    """
    if sample_weight is None:
        return None
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"sample_weight={sample_weight!r} is not an array of numbers; pass one weight a row"
        ) from error
    if weight.ndim == 0:
        weight = np.full(n_rows, float(weight))
    if weight.shape != (n_rows,):
        raise ValueError(
            f"sample_weight has shape {weight.shape}, but there are {n_rows} rows: pass one weight a row"
        )
    check_countable(weight)
    if some and not weight.any():
        raise ValueError("the sample_weight of every row is zero; at least one must count")
    with np.errstate(over="ignore"):
        finite = np.isfinite(weight.sum())
    if not finite:
        raise ValueError("the sum of sample_weight is not finite; divide the weights by a constant")
    return weight


def check_countable(weight: Array, partition: int | None = None) -> None:
    """Raise if one of the weights [n], of a table or of one of its partitions, counts no copies."""
    bad = ~countable(weight)
    if bad.any():
        row = int(np.argmax(bad))
        place = "" if partition is None else f" in partition {partition}"
        raise ValueError(
            f"sample_weight of row {row}{place} is {weight[row]}; a weight counts copies of its row: it "
            "must be finite and not negative, and 0 leaves the row out"
        )


def class_factors(class_weight: Any, classes: Array, totals: Array) -> Array | None:
    """What `class_weight` multiplies the weights of each class by [C]; totals: their weight so far [C].

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


def _factors_of_mapping(class_weight: Mapping[Any, Any], classes: Array) -> Array:
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


def any_weight(y: Array, sample_weight: Array | None, class_weight: Any, classes: Array) -> bool:
    """Whether one of the rows with labels y [n] counts.

    >>> any_weight(np.array(["a", "a"]), None, {"a": 0.0}, np.array(["a", "b"]))
    False
    """
    counted = np.ones(len(y)) if sample_weight is None else sample_weight
    if class_weight is not None:
        counted = counted * _factors_of_mapping(class_weight, classes)[np.searchsorted(classes, y)]
    return bool(counted.any())


def weighted_arrays(
    X: Any, y: Array, sample_weight: Array | None, class_weight: Any, classes: Array | None = None
) -> tuple[ArraySource, Array]:
    """The source of rows X [n, d] that have any weight, and the classes behind its label codes.

    Rows of no weight are left out for good: nothing of a fit depends on them, not even a random draw.
    With `classes`, the codes are positions among these; otherwise among the labels that are left.
    """
    known = classes is not None
    weight, rows = sample_weight, None
    found, codes = _encoded(y, classes)
    if class_weight is not None:
        counted = np.ones(len(y)) if weight is None else weight
        factors = class_factors(class_weight, found, _totals(codes, counted, len(found)))
        assert factors is not None
        weight = counted * factors[codes]
        if not weight.any():
            raise ValueError(f"class_weight={class_weight!r} leaves no row with any weight")
    if weight is not None and not weight.all():
        rows = np.flatnonzero(weight > 0.0).astype(row_number_type(len(y)))
        weight, codes = weight[rows], codes[rows]
        if not known:
            found, codes = _encoded(y[rows], None)
    return ArraySource(X, codes.astype(code_type(len(found))), weight, rows=rows), found


def _totals(codes: IntArray, weight: Array, n_classes: int) -> Array:
    return np.asarray(np.bincount(codes, weight, n_classes), dtype=np.float64)


def _encoded(y: Array, classes: Array | None) -> tuple[Array, IntArray]:
    if classes is not None:
        return classes, np.searchsorted(classes, y)
    found, codes = np.unique(y, return_inverse=True)
    return found, codes


def weighted_source(source: Source, classes: Array, class_weight: Any) -> Source:
    """A source with the weights of its classes multiplied; it must have weight in two classes."""
    if len(classes) < 2 or (class_weight is None and not hasattr(source, "class_totals")):
        return source
    totals = class_totals(source, len(classes))
    factors = checked_class_factors(class_weight, classes, totals)
    if factors is None:
        return source
    return ClassWeightedSource(source, factors, float(totals @ factors))


def checked_class_factors(class_weight: Any, classes: Array, totals: Array) -> Array | None:
    """As `class_factors`; two classes at least must have some weight left, if there are two."""
    factors = class_factors(class_weight, classes, totals)
    left = totals if factors is None else totals * factors
    if len(classes) > 1 and np.count_nonzero(left > 0.0) < 2:
        raise ValueError(
            f"the classes {classes.tolist()} have the total weights {left.tolist()}; a classifier needs "
            "at least two classes with any weight: check the weights and class_weight"
        )
    return factors


def weighted_mean(values: Any, source: Source) -> float:
    """Mean of values [k], one a row of the source, each row counted by its weight."""
    return float(np.average(values, weights=getattr(source, "weight", None)))

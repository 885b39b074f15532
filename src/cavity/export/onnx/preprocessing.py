"""Preprocessing steps as operators of a graph: scikit-learn's simple steps, and the columns of a table.

Each column of a table is an input [N, 1] under its own name:

    numeric, boolean   float: NaN where the cell is missing, 0 and 1 for truth values
    categorical        string: "" where the cell is missing, unless that is a level
    date               int64: microseconds since 1970, the smallest integer where the cell is missing,
                       which is what NumPy makes of datetime64[us] and NaT
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from cavity.data.columns import (
    BOOLEAN,
    CATEGORICAL,
    DATE,
    DAY,
    EPOCH_WEEKDAY,
    NUMERIC,
    PARTS,
    YEAR,
    CategoricalEncoder,
    DateEncoder,
    Encoder,
    NumericEncoder,
)
from cavity.data.effects import EffectEncoder
from cavity.data.parts import import_arrow
from cavity.data.preprocess import TablePreprocessor
from cavity.data.values import ValueIndex, is_whole
from cavity.export.onnx.graph import Graph, Value
from cavity.typing import Array


@singledispatch
def transformed(step: object, X: Value) -> Value:
    """Apply a fitted scikit-learn transformer to X [N, d]."""
    raise TypeError(
        f"step of type {type(step).__name__!r} has no ONNX form; StandardScaler, MinMaxScaler, "
        "MaxAbsScaler and SimpleImputer have: apply others before the rows reach the model"
    )


@transformed.register(str)
@transformed.register(type(None))
def _passthrough(step: str | None, X: Value) -> Value:
    return X


@transformed.register
def _standard(step: StandardScaler, X: Value) -> Value:
    if step.with_mean and step.mean_ is not None:
        X = X - step.mean_
    return X if step.scale_ is None else X / step.scale_


@transformed.register
def _min_max(step: MinMaxScaler, X: Value) -> Value:
    X = X * step.scale_ + step.min_
    if step.clip:
        low, high = step.feature_range
        X = X.at_least(float(low)).at_most(float(high))
    return X


@transformed.register
def _max_abs(step: MaxAbsScaler, X: Value) -> Value:
    scale: Array = step.scale_
    return X / scale


@transformed.register
def _imputer(step: SimpleImputer, X: Value) -> Value:
    """Replace missing entries by the learned statistic; leave out columns that have none."""
    try:
        statistics = np.asarray(step.statistics_, dtype=np.float64)
    except ValueError:
        raise TypeError("SimpleImputer of text has no ONNX form; impute numbers only") from None
    marker = step.missing_values
    is_nan = isinstance(marker, float) and np.isnan(marker)
    missing = X.op("IsNaN") if is_nan else X.op("Equal", float(marker))
    filled = missing.where(statistics, X)
    if not step.keep_empty_features and np.isnan(statistics).any():
        filled = filled.columns(np.flatnonzero(~np.isnan(statistics)))
    if step.indicator_ is None:
        return filled
    flags = missing.cast(np.float64).columns(step.indicator_.features_)
    return X.graph.concat([filled, flags])


_WHOLE = re.compile("[+-]?[0-9]+")
"""A whole number."""
_NOT_A_TIME = np.iinfo(np.int64).min
"""NumPy's NaT as an integer."""


def table_features(
    graph: Graph, preprocessor: TablePreprocessor, dtype: DTypeLike, rows: int | str
) -> Value:
    """Encode the columns of a table as features [N, d] in float64, as the preprocessor does."""
    _check_precision(preprocessor, dtype)
    columns = [_encoded(encoder, graph, dtype, rows) for encoder in preprocessor.encoders_]
    missing_words = {
        encoder.column: encoder.missing_words
        for encoder in preprocessor.encoders_
        if isinstance(encoder, CategoricalEncoder)
    }
    effects = [_effects(effect, graph, missing_words) for effect in preprocessor.effects_]
    X = graph.concat([*columns, *effects])
    # The graph rounds to float32 where the preprocessor does.
    return X.cast(np.float32).cast(np.float64) if preprocessor.dtype_ == "float32" else X


@singledispatch
def _encoded(encoder: Encoder, graph: Graph, dtype: DTypeLike, rows: int | str) -> Value:
    """Add the input of one column to the graph, and encode it as features [N, k]."""
    raise TypeError(
        f"column {encoder.column!r} is encoded by {type(encoder).__name__!r}, which has no ONNX form; "
        "leave the column out of the model"
    )


@_encoded.register
def _numeric(encoder: NumericEncoder, graph: Graph, dtype: DTypeLike, rows: int | str) -> Value:
    x = graph.input(encoder.column, dtype, [rows, 1]).cast(np.float64)
    missing = graph.op("Or", x.op("IsNaN"), x.op("IsInf"))
    filled = missing.where(encoder.fill, x)
    return graph.concat([filled, missing.cast(np.float64)]) if encoder.marks_missing else filled


@_encoded.register
def _categorical(encoder: CategoricalEncoder, graph: Graph, dtype: DTypeLike, rows: int | str) -> Value:
    """Look up the features of a level by its code: levels, then any other value, then missing cells."""
    levels = list(encoder.levels)
    other, missing = len(levels), len(levels) + 1
    words = _codes_of_words(levels, encoder.missing_words, missing)
    cells = graph.input(encoder.column, object, [rows, 1])
    code = _looked_up(cells, "keys_strings", list(words), other, list(words.values()))
    return graph.op("Gather", _features_of_codes(encoder), code.flat(), axis=0)


def _codes_of_words(levels: Sequence[str], missing_words: Sequence[str], missing: int) -> dict[str, int]:
    """The code of each word that a cell may have: the position of its level, or `missing`.

    >>> _codes_of_words(["2", "red"], ["?"], 3)
    {'': 3, '?': 3, '2.0': 0, '2': 0, 'red': 1}
    """
    code_of = {level: code for code, level in enumerate(levels)}
    # A whole number may have a decimal, as `words_of` of the columns knows.
    longer = {f"{level}.0": code for level, code in code_of.items() if _WHOLE.fullmatch(level)}
    return {**dict.fromkeys(("", *missing_words), missing), **longer, **code_of}


def _features_of_codes(encoder: CategoricalEncoder) -> Array:
    """Features [n_levels + 2, k] that the encoder gives each level, any other value, a missing cell."""
    pa, _ = import_arrow()
    unknown = max((len(level) for level in encoder.levels), default=0) * "x" + "x"
    cells = pa.array([*encoder.levels, unknown, None], pa.string())
    out = np.empty((len(cells), len(encoder.features)))
    encoder.encode(cells, out)
    return out


@_encoded.register
def _date(encoder: DateEncoder, graph: Graph, dtype: DTypeLike, rows: int | str) -> Value:
    time = graph.input(encoder.column, np.int64, [rows, 1])
    missing = time.op("Equal", np.int64(_NOT_A_TIME))
    parts = _parts(missing.op("Where", np.int64(0), time))
    columns = []
    for name in encoder.parts:
        share = parts[name]
        if name == PARTS[0]:
            columns.append(share - encoder.first)
        else:
            angle = share * (2 * np.pi)
            # Older versions of ONNX Runtime have no cosine of float64 numbers.
            columns += [angle.op("Sin"), (angle + 0.5 * np.pi).op("Sin")]
    features = missing.where(np.array([encoder.fill]), graph.concat(columns))
    return graph.concat([features, missing.cast(np.float64)]) if encoder.marks_missing else features


def needs_float64(preprocessor: TablePreprocessor) -> bool:
    """Whether inputs must be float64, because float32 would change features or values."""
    return preprocessor.dtype_ == "float64" or any(
        not _differ_in_float32(index) for effect in preprocessor.effects_ for index in effect.indices
    )


def _differ_in_float32(index: ValueIndex) -> bool:
    """Whether float32 tells the values of a column of numbers apart."""
    if index.values.kind not in (NUMERIC, BOOLEAN):
        return True
    if index.values.minus:
        return False  # small differences may be those of large numbers
    rounded = index.keys.astype(np.float32)
    if index.is_binned or not is_whole(index.keys):
        return bool((np.diff(rounded) > 0.0).all())
    return bool((rounded == index.keys).all())


def _check_precision(preprocessor: TablePreprocessor, dtype: DTypeLike) -> None:
    for effect in preprocessor.effects_:
        for index in effect.indices:
            if _differ_in_float32(index):
                continue
            column = str(index.values)
            if np.dtype(dtype) == np.float32:
                raise ValueError(
                    f'input_dtype="float32" does not tell the values of column {column!r} apart; '
                    'leave it out, or use "float64"'
                )
            if not is_whole(index.keys):
                raise TypeError(
                    f"column {column!r} has effects of values that differ by less than float32 "
                    "can tell, which have no ONNX form; fit with target_encoding=False"
                )


def _effects(effect: EffectEncoder, graph: Graph, missing_words: Mapping[str, Sequence[str]]) -> Value:
    """Look up the effects [N, k] of the values in one to three columns, which are inputs already.

    missing_words: words that stand for a missing value, by column.
    """
    row, *more = (
        _codes(index, graph, missing_words.get(index.values.column, ())) for index in effect.indices
    )
    if effect.cells is not None:
        for index, code in zip(effect.indices[1:], more, strict=True):
            row = row.op("Mul", np.int64(index.n_codes)).op("Add", code)
        row = _looked_up(row, "keys_int64s", effect.cells.tolist(), len(effect.cells))
    return graph.op("Gather", effect.table, row.flat(), axis=0)


def _codes(index: ValueIndex, graph: Graph, missing_words: Sequence[str]) -> Value:
    """The codes [N, 1] of the cells of an input."""
    x, missing, other = Value(graph, index.values.column), index.n_values, index.n_values + 1
    if index.values.kind == CATEGORICAL:
        words = _codes_of_words(index.keys.tolist(), missing_words, missing)
        return _looked_up(x, "keys_strings", list(words), other, list(words.values()))
    if index.values.kind == DATE:
        is_missing = x.op("Equal", np.int64(_NOT_A_TIME))
        if index.values.part:
            x = _part(is_missing.op("Where", np.int64(0), x), index.values.part)
        if not index.is_binned:
            code = _looked_up(x, "keys_int64s", index.keys.astype(np.int64).tolist(), other)
            return is_missing.op("Where", np.int64(missing), code)
        number, keys = x.cast(np.float64), index.keys
    else:
        x = x.cast(np.float64)
        if index.values.minus:  # a difference with an infinite number is infinite or NaN
            x = x - Value(graph, index.values.minus).cast(np.float64)
        is_missing = graph.op("Or", x.op("IsNaN"), x.op("IsInf"))
        number, keys = is_missing.where(0.0, x), index.keys
        if not is_whole(keys):  # numbers may come as float32
            number = number.cast(np.float32)
            keys = keys.astype(np.float32)
    if index.is_binned:
        above = number.cast(np.float64).op("GreaterOrEqual", keys.astype(np.float64)[None])
        code = above.cast(np.int64).op("ReduceSum", np.array([1], dtype=np.int64), keepdims=1)
    elif is_whole(index.keys):
        exact = number.op("Floor").op("Equal", number)
        whole = exact.where(number, 0.0).cast(np.int64)
        code = _looked_up(whole, "keys_int64s", keys.astype(np.int64).tolist(), other)
        code = exact.op("Where", code, np.int64(other))
    else:
        code = _looked_up(number, "keys_floats", keys.tolist(), other)
    return is_missing.op("Where", np.int64(missing), code)


def _looked_up(
    value: Value, name: str, keys: list[Any], default: int, codes: list[int] | None = None
) -> Value:
    """The code of each key, by default its position, or `default` for any other value."""
    return value.op(
        "LabelEncoder",
        domain="ai.onnx.ml",
        **{name: keys},
        values_int64s=list(range(len(keys))) if codes is None else codes,
        default_int64=default,
    )


def _part(time: Value, part: str) -> Value:
    """A part of points in time [N, 1], as a whole number."""
    rest = time.op("Mod", np.int64(DAY))  # never negative
    if part == "hour":
        return rest.op("Div", np.int64(DAY // 24))
    days = time.op("Sub", rest).op("Div", np.int64(DAY))
    if part == "day of week":
        return _weekday(days)
    # Months from March have 31, 30, 31, 30, 31 days over and over, which 153 days a five tell.
    since_march = _since_march(days)[0]
    month = since_march.op("Mul", np.int64(5)).op("Add", np.int64(2)).op("Div", np.int64(153))
    if part == "day of month":
        before = month.op("Mul", np.int64(153)).op("Add", np.int64(2)).op("Div", np.int64(5))
        return since_march.op("Sub", before).op("Add", np.int64(1))
    return month.op("Add", np.int64(2)).op("Mod", np.int64(12)).op("Add", np.int64(1))


def _weekday(days: Value) -> Value:
    return days.op("Add", np.int64(EPOCH_WEEKDAY)).op("Mod", np.int64(7))


def _parts(time: Value) -> dict[str, Value]:
    """Days since 1970, and the shares of year, week and day that have passed, all [N, 1]."""
    rest = time.op("Mod", np.int64(DAY))  # never negative
    days = time.op("Sub", rest).op("Div", np.int64(DAY))
    of_day = rest.cast(np.float64) / float(DAY)
    of_year = (_day_of_year(days).cast(np.float64) + of_day) / YEAR
    shares = (days.cast(np.float64) + of_day, of_year, _weekday(days).cast(np.float64) / 7.0, of_day)
    return dict(zip(PARTS, shares, strict=True))


def _since_march(days: Value) -> tuple[Value, Value]:
    """Days since 1 March, and the number of the year in its era, from days since 1970.

    Counted in years that begin in March, so that a leap day comes last, within eras of 400 years, after
    which the Gregorian calendar repeats.
    """

    def whole(value: Value, divisor: int) -> Value:
        return value.op("Div", np.int64(divisor))

    day = days.op("Add", np.int64(719_468)).op("Mod", np.int64(146_097))  # of the era, from 0
    leaps = whole(day, 1_460).op("Sub", whole(day, 36_524)).op("Add", whole(day, 146_096))
    year = whole(day.op("Sub", leaps), 365)  # of the era, from 0
    before = year.op("Mul", np.int64(365)).op("Add", whole(year, 4)).op("Sub", whole(year, 100))
    return day.op("Sub", before), year


def _day_of_year(days: Value) -> Value:
    """Days since 1 January, from days since 1970, in the Gregorian calendar."""
    since_march, year = _since_march(days)

    def divides(divisor: int) -> Value:
        return year.op("Mod", np.int64(divisor)).op("Equal", np.int64(0))

    fourth_not_hundredth = divides(4).op("And", divides(100).op("Not"))
    leap = fourth_not_hundredth.op("Or", divides(400)).cast(np.int64)
    march_on = since_march.op("Add", leap.op("Add", np.int64(59)))
    is_after_december = since_march.op("Greater", np.int64(305))
    return is_after_december.op("Where", since_march.op("Sub", np.int64(306)), march_on)

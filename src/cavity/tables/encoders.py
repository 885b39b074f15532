"""Columns become features: one small record for each column that is used, and how it is encoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cavity.tables.arrow import import_arrow
from cavity.tables.dates import PARTS, circle, parts_of
from cavity.tables.kinds import BOOLEAN, CATEGORICAL, DATE, NUMERIC, coerced
from cavity.typing import Array


class Encoder(Protocol):
    """How one column becomes features."""

    @property
    def column(self) -> str:
        """The name of the column."""
        ...

    @property
    def kind(self) -> str:
        """Numeric, boolean, categorical or date."""
        ...

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that it becomes."""
        ...

    def encode(self, array: Any, out: Array) -> None:
        """Write the features of an Arrow array [t] into out [t, n_features]."""
        ...


@dataclass(frozen=True)
class NumericEncoder:
    """A number as it is; a missing or infinite one as the median, marked in a second feature."""

    column: str
    fill: float
    marks_missing: bool
    """Whether there is a second feature, 1 where the number is missing."""
    kind: str = NUMERIC
    """Numeric or boolean, which is 0 and 1."""

    @property
    def features(self) -> tuple[str, ...]:
        """The column, and whether it is missing."""
        return (self.column, f"{self.column} (missing)") if self.marks_missing else (self.column,)

    def encode(self, array: Any, out: Array) -> None:
        """Write the numbers."""
        values = coerced(array, self.kind, self.column)
        if self.kind == BOOLEAN:
            values = values.cast(import_arrow()[0].float32())
        numbers = values.to_numpy(zero_copy_only=False)
        out[:, 0] = numbers
        missing = ~np.isfinite(out[:, 0])
        if missing.any():
            out[missing, 0] = self.fill
        if self.marks_missing:
            out[:, 1] = missing


@dataclass(frozen=True)
class CategoricalEncoder:
    """A feature for each level, 1 where the row has it; two levels share a single feature.

    Levels that are not among those of training are "(other)": a feature of their own if training had
    rare ones too, else none of the known levels.
    """

    column: str
    levels: tuple[str, ...]
    """The levels with a feature, sorted."""
    has_other: bool
    """Whether there is a feature for all the rest."""
    marks_missing: bool
    kind: str = CATEGORICAL

    @property
    def features(self) -> tuple[str, ...]:
        """The column with each level."""
        levels = self.levels[1:] if self._is_pair else self.levels
        other = ("(other)",) if self.has_other else ()
        missing = ("(missing)",) if self.marks_missing else ()
        return tuple(f"{self.column}={level}" for level in (*levels, *other, *missing))

    @property
    def _is_pair(self) -> bool:
        return len(self.levels) == 2 and not (self.has_other or self.marks_missing)

    @property
    def _rows_of_codes(self) -> Array:
        """[n_levels + 2, n_features]: the features of each level, of others and of missing values."""
        n = len(self.levels)
        if self._is_pair:
            return np.array([[0.0], [1.0], [0.5], [0.5]])
        rows = np.zeros((n + 2, len(self.features)))
        rows[np.arange(n), np.arange(n)] = 1.0
        if self.has_other:
            rows[n, n] = 1.0
        if self.marks_missing:
            rows[n + 1, -1] = 1.0
        return rows

    def encode(self, array: Any, out: Array) -> None:
        """Write the levels."""
        out[:] = self._rows_of_codes[self.codes(array)]

    def codes(self, array: Any) -> NDArray[np.int64]:
        """The positions of levels [t]: n_levels for others, n_levels + 1 for missing values."""
        pa, _ = import_arrow()
        values = coerced(array, CATEGORICAL, self.column)
        encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        position = {level: i for i, level in enumerate(self.levels)}
        n = len(self.levels)
        words = encoded.dictionary.to_pylist()
        lookup = np.array([n + 1 if w is None else position.get(w, n) for w in words] + [n + 1])
        return np.asarray(lookup[encoded.indices.fill_null(len(words)).to_numpy()], dtype=np.int64)

    def unseen(self, array: Any) -> set[str]:
        """Values that are not among the levels, if training had no others: nothing is known of them."""
        if self.has_other:
            return set()
        _, pc = import_arrow()
        values = pc.unique(coerced(array, CATEGORICAL, self.column)).to_pylist()
        return {value for value in values if value is not None} - set(self.levels)


@dataclass(frozen=True)
class DateEncoder:
    """Days since the first date of training, and places in the year, the week and the day on circles."""

    column: str
    first: float
    """Day of the first date, since 1970."""
    parts: tuple[str, ...]
    """Those of `dates.PARTS` that vary."""
    fill: tuple[float, ...]
    """Mean of each feature, for dates that are missing."""
    marks_missing: bool
    kind: str = DATE

    @property
    def features(self) -> tuple[str, ...]:
        """The column with each part."""
        return (*self._dated, f"{self.column} (missing)") if self.marks_missing else self._dated

    @property
    def _dated(self) -> tuple[str, ...]:
        names = []
        for part in self.parts:
            name = f"{self.column}: {part}"
            names += [name] if part == PARTS[0] else [f"{name} (sin)", f"{name} (cos)"]
        return tuple(names)

    def encode(self, array: Any, out: Array) -> None:
        """Write the parts."""
        pa, _ = import_arrow()
        values = coerced(array, DATE, self.column)
        missing = values.is_null().to_numpy(zero_copy_only=False)
        parts = parts_of(values.cast(pa.int64()).fill_null(0).to_numpy())
        features = date_features(parts, self.first, self.parts)
        features[missing] = self.fill
        out[:, : features.shape[1]] = features
        if self.marks_missing:
            out[:, -1] = missing


def date_features(parts: Array, first: float, names: tuple[str, ...]) -> Array:
    """Features [t, k] of the parts [t, 4] of points in time."""
    columns: list[Array] = []
    for name in names:
        values = parts[:, PARTS.index(name)]
        columns += [values - first] if name == PARTS[0] else circle(values)
    return np.column_stack(columns)

"""The target column: which classes it has, and the codes of its values.

Label codes of a target column that is read batch by batch.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.data.locations import import_pyarrow
from cavity.data.parquet_store import Group
from cavity.data.table import import_arrow
from cavity.errors import SourceError
from cavity.text import listed, shown
from cavity.typing import Array, IntArray

MOST_CLASSES = 100
"""More different values than this are a quantity or a name, not classes."""


class LabelScan:
    """Counts of the values of a target, chunk by chunk."""

    def __init__(self, target: str, table: str | None = None) -> None:
        self.target = target
        self._named = f"the target {target!r}" if table is None else f"{table}: the target {target!r}"
        self.missing = 0
        self.weightless = 0
        """Rows that were left out because they have no weight."""
        self.counts: Counter[Any] = Counter()
        self.totals: dict[Any, float] = {}

    def add(self, array: Any, weights: Array | None = None) -> None:
        """Count the next values, of rows with these weights [t]; 1 unless they are given."""
        if import_arrow()[0].types.is_nested(array.type):
            raise SourceError(
                f"{self._named} is {array.type}; classes are whole numbers, strings or truth values"
            )
        for value, count, total in _value_counts(array, weights):
            if value is None:
                self.missing += count
            else:
                known = self._class(value)
                self.counts[known] += count
                self.totals[known] = self.totals.get(known, 0.0) + total
        if len(self.counts) > MOST_CLASSES:
            examples = listed([str(value) for value in list(self.counts)[:3]])
            raise SourceError(
                f"{self._named} has more than {MOST_CLASSES} different values (such as "
                f"{examples}): it looks like a quantity or a name, not like classes; cut it into a few "
                "classes, or choose another column"
            )

    def _class(self, value: Any) -> bool | int | str:
        if isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float) and value.is_integer():
            return int(value)
        what = "is a fraction" if isinstance(value, float) else f"is a {type(value).__name__}"
        raise SourceError(
            f"{self._named} has the value {shown(value)}, which {what}; classes are whole "
            "numbers, strings or truth values: cut a quantity into a few classes"
        )

    def finish(self) -> Classes:
        """The classes."""
        if not self.counts:
            raise SourceError(f"{self._named} has no values: every row lacks it")
        if len(self.counts) == 1:
            raise SourceError(
                f"{self._named} has one value ({next(iter(self.counts))!r}); a classifier "
                "needs at least two"
            )
        values = sorted(self.counts)
        counts = np.array([self.counts[value] for value in values])
        totals = np.array([self.totals[value] for value in values])
        return Classes(self.target, np.array(values), counts, totals, self.missing)


@dataclass(frozen=True)
class Classes:
    """The classes of a target."""

    target: str
    values: NDArray[Any]
    """[C], sorted."""
    counts: IntArray
    """[C]: rows of training of each."""
    totals: Array
    """[C]: their weights, added up; the counts, if training had no weights."""
    missing: int
    """Rows of training without a target, which were left out."""

    @property
    def arrow_type(self) -> Any:
        """The type in which a text file's target should be read."""
        pa, _ = import_arrow()
        return {"b": pa.bool_(), "i": pa.int64()}.get(self.values.dtype.kind, pa.string())

    @property
    def code_type(self) -> np.dtype[Any]:
        """A small integer type for the codes."""
        return np.dtype(np.int8)

    @property
    def _code_of(self) -> dict[str, int]:
        return {_word(value): code for code, value in enumerate(self.values.tolist())}

    def codes(self, array: Any) -> IntArray:
        """Codes [t] of an Arrow array: positions among the classes, −1 where the target is missing."""
        pa, _ = import_arrow()
        if pa.types.is_dictionary(array.type):  # it may list values that do not occur
            array = array.dictionary_decode()
        encoded = array.dictionary_encode()
        values = [_plain(value) for value in encoded.dictionary.to_pylist()]
        unknown = [v for v in values if v is not None and _word(v) not in self._code_of]
        if unknown:
            raise SourceError(
                f"the target {self.target!r} has the value {unknown[0]!r}, which is not among the "
                f"classes that the model knows: {listed([str(value) for value in self.values])}"
            )
        lookup = np.array([-1 if v is None else self._code_of[_word(v)] for v in values] + [-1])
        positions = encoded.indices.fill_null(len(values)).to_numpy()
        return np.asarray(lookup[positions], dtype=self.code_type)


def _value_counts(array: Any, weights: Array | None) -> list[tuple[Any, int, float]]:
    """The values of an array, how often each occurs, and with what total weight."""
    pa, _ = import_arrow()
    if pa.types.is_dictionary(array.type):  # it may list values that do not occur
        array = array.dictionary_decode()
    encoded = array.dictionary_encode()
    values = [_plain(value) for value in encoded.dictionary.to_pylist()] + [None]
    positions = encoded.indices.fill_null(len(values) - 1).to_numpy()
    counts = np.bincount(positions, minlength=len(values))
    totals = np.bincount(positions, weights, minlength=len(values))
    return [
        (value, int(count), float(total))
        for value, count, total in zip(values, counts, totals, strict=True)
        if count
    ]


def _plain(value: Any) -> Any:
    """NaN is a missing value too."""
    return None if isinstance(value, float) and value != value else value


def _word(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value)


_MOST_CLASSES = 2**15 - 1


class Labels:
    """Codes of the labels in the order in which classes appear, until all of them are known."""

    def __init__(self, n_rows: int, target: str, classes: Any) -> None:
        self.target = target
        self.given = classes is not None
        known = np.unique(np.asarray(classes)).tolist() if self.given else []
        self.code_of: dict[Any, int] = {value: code for code, value in enumerate(known)}
        self.codes = np.empty(n_rows, dtype=np.int8)
        self.n_seen = 0
        self.totals = np.zeros(len(known))
        """[C]: weight of each class so far."""

    def add(self, column: Any, group: Group, weight: NDArray[np.float64] | None = None) -> None:
        """Encode the next labels and add up their weights (None: one each)."""
        pyarrow, _ = import_pyarrow()
        types = pyarrow.types
        if types.is_decimal(column.type):
            column = column.cast(pyarrow.float64())
        if types.is_nested(column.type):
            raise SourceError(
                f"{group}: the target {self.target!r} is {column.type}; classes are numbers, strings or "
                "booleans"
            )
        encoded = column if types.is_dictionary(column.type) else column.dictionary_encode()
        indices = encoded.indices.to_numpy()
        values = encoded.dictionary.to_pylist()
        lookup = np.zeros(len(values), dtype=np.int16)
        for i in np.unique(indices):  # a dictionary may list values that do not occur
            lookup[i] = self._code(values[i], group)
        if len(self.code_of) > 127 and self.codes.dtype == np.int8:
            self.codes = self.codes.astype(np.int16)
        if self.n_seen + len(indices) > len(self.codes):
            raise SourceError(f"{group}: has more rows than its footer says; the file is damaged")
        codes = lookup[indices]
        self.codes[self.n_seen : self.n_seen + len(indices)] = codes
        more = np.bincount(codes, weight, minlength=len(self.code_of)).astype(np.float64)
        more[: len(self.totals)] += self.totals
        self.totals = more
        self.n_seen += len(indices)

    def _code(self, value: Any, group: Group) -> int:
        if value is None:
            raise SourceError(f"{group}: the target {self.target!r} has null values; drop their rows")
        if not isinstance(value, (bool, int, str, float)):
            raise SourceError(
                f"{group}: the target {self.target!r} has values such as {value!r} of type "
                f"{type(value).__name__}; classes are numbers, strings or booleans"
            )
        if isinstance(value, float) and not value.is_integer():
            raise SourceError(
                f"{group}: the target {self.target!r} has the value {value!r}; a classifier needs "
                "classes: bin a continuous target, impute or drop NaN"
            )
        if value not in self.code_of:
            if self.given:
                raise SourceError(
                    f"{group}: the target {self.target!r} has the value {value!r}, which is not in "
                    f"classes={list(self.code_of)}"
                )
            if len(self.code_of) == _MOST_CLASSES:
                raise SourceError(
                    f"{group}: the target {self.target!r} has more than {_MOST_CLASSES} different "
                    "values; it looks like an identifier or a continuous quantity, not like classes"
                )
            self.code_of[value] = len(self.code_of)
        return self.code_of[value]

    def finish(self) -> tuple[NDArray[Any], IntArray]:
        """The classes, sorted, and the codes as positions among them."""
        if self.n_seen != len(self.codes):
            raise SourceError(
                f"the target {self.target!r} has {self.n_seen} rows, the footers say {len(self.codes)}; "
                "a file is damaged"
            )
        values = sorted(self.code_of)
        classes = np.array(values)
        if classes.dtype.kind == "f" and all(isinstance(value, int) for value in values):
            classes = np.array(values, dtype=np.uint64)  # beyond the range of int64
        position = np.empty(len(classes), dtype=self.codes.dtype)
        order = [self.code_of[value] for value in values]
        position[order] = np.arange(len(classes))
        self.totals = self.totals[order]
        return classes, position[self.codes]

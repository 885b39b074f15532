"""Label codes of a target column that is read batch by batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.errors import SourceError
from cavity.sources.parquet_schema import import_pyarrow
from cavity.sources.stores import Group
from cavity.typing import IntArray

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

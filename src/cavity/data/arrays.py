"""Rows of an array in memory or on disk (memmap, .npy), or of a SciPy sparse matrix."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from cavity.data.labels import encode_labels, require_one_kind, require_two_classes
from cavity.data.locations import explain_permission_error
from cavity.data.routing import leaf_batches
from cavity.data.shuffle import BATCHES_AHEAD, read_ahead
from cavity.data.source import (
    Block,
    LoadedBlock,
    RawRows,
    Source,
    batch_count,
    booleans_as_integers,
    even_parts,
    shuffled,
    tile_precision,
    weights_by_class,
)
from cavity.data.weights import rows_with_weight, validated_sample_weight
from cavity.errors import SourceError
from cavity.typing import AnyArray, Array, ArrayOrSparse, InputLabels, InputWeights, IntArray


def mapping_of(X: ArrayOrSparse) -> mmap | None:
    """The memory map that holds the values of X, an array or sparse matrix, if they are in a file.

    scikit-learn's validation turns memmaps into plain arrays whose values are still in the file.

    >>> mapping_of(np.eye(3)) is None
    True
    """
    while X is not None and not isinstance(X, mmap):
        X = X.data if sparse.issparse(X) else X.base if isinstance(X, np.ndarray) else None
    return X


class FileRows:
    """Reads rows of an array that is mapped to a file by system calls.

    Reading through the map ends the process by a signal where the file has shrunk. A system call tells.
    """

    def __init__(self, X: AnyArray, path: str | os.PathLike[str], position: int) -> None:
        """X: [n, d], in C order; its first row is at a position of the file."""
        self._handle, self._position = os.open(path, os.O_RDONLY), position
        weakref.finalize(self, os.close, self._handle)
        self._dtype, self._width = X.dtype, X.shape[1]

    @classmethod
    def of(cls, X: ArrayOrSparse) -> FileRows | None:
        """A reader of the rows of X, if they are in a file that can be opened again."""
        first = X
        while isinstance(first, np.ndarray) and not isinstance(first.base, mmap):
            first = first.base
        if not isinstance(first, np.memmap) or first.filename is None or not hasattr(os, "preadv"):
            return None
        if X.ndim != 2 or not X.flags.c_contiguous or not X.size:
            return None
        start = X.__array_interface__["data"][0] - first.__array_interface__["data"][0]
        ends = np.array([0, len(X) - 1])
        try:
            found = cls(X, first.filename, int(first.offset) + start)
            same = found.read(ends).tobytes() == X[ends].tobytes()
        except OSError:
            return None
        return found if same else None  # another file has the name now

    def read(self, index: slice | IntArray) -> AnyArray:
        """Rows [t, d] of a slice without steps, or with some numbers; OSError if the file has fewer."""
        if isinstance(index, slice):
            starts, length = np.array([index.start]), index.stop - index.start
        else:
            starts, length = index, 1
        out = np.empty((len(starts) * length, self._width), self._dtype)
        n_bytes = length * self._width * self._dtype.itemsize
        places = (self._position + starts.astype(np.int64) * self._width * self._dtype.itemsize).tolist()
        view = out.data.cast("B")
        for i, place in enumerate(places):
            part = view[i * n_bytes : (i + 1) * n_bytes]
            while part and (n_read := os.preadv(self._handle, [part], place)):
                part, place = part[n_read:], place + n_read
            if part:
                raise OSError("the file ends before the rows do")
        return out


@dataclass(frozen=True)
class ArrayBlock:
    """Some rows of an array."""

    source: ArraySource
    index: slice | IntArray
    share: float | None = None
    """The share of all rows that a minibatch stands for; None is that of its number of rows."""

    def load(self) -> RawRows:
        """Read the rows; sparse rows become dense here, a block at a time."""
        mapping = mapping_of(self.source.X)
        if mapping is not None:
            self._check_size(mapping)
        X = self._rows()
        if sparse.issparse(X):
            X = X.toarray()
        else:  # a view of a file is copied at once, while the file has its size
            X = np.asarray(X) if mapping_of(X) is None else np.array(X)
        X = booleans_as_integers(X)
        if self.source.path is not None and X.dtype.kind == "f":
            self._check_finite(X)
        weight = self.source.weight
        return RawRows(
            X,
            np.asarray(self.source.labels[self.index]),
            None if weight is None else np.asarray(weight[self.index]),
        )

    def _rows(self) -> ArrayOrSparse:
        index = self._numbers if self.source.rows is not None else self.index
        if self.source.file_rows is None:
            return self.source.X[index]
        try:
            return self.source.file_rows.read(index)
        except OSError as error:
            mapping = mapping_of(self.source.X)
            assert mapping is not None
            self._check_size(mapping)
            name = self.source.path or "the file that X is mapped to"
            raise SourceError(f"{name} cannot be read ({error}); fit again when it can") from error

    def _check_size(self, mapping: mmap) -> None:
        """Raise if the file has shrunk."""
        before, size = self.source.file_size, mapping.size()
        if size < before:
            raise SourceError(
                f"{self.source.path or 'the file that X is mapped to'} shrank from {before:,} to "
                f"{size:,} bytes while its rows were being read; write it again and fit again, and let "
                "nothing change it during a fit"
            )

    def _check_finite(self, X: Array) -> None:
        if np.isfinite(X).all():
            return
        row, column = np.argwhere(~np.isfinite(X))[0]
        raise SourceError(
            f"{self.source.path}: row {self._numbers[row]}, column {column} is {X[row, column]}; "
            "impute such values or drop their rows"
        )

    @property
    def _numbers(self) -> IntArray:
        """Numbers of these rows in X."""
        rows = self.source.rows
        return (np.arange(self.source.n_rows) if rows is None else rows)[self.index]


class ArraySource(Source):
    """Rows of an array that is in memory, on disk (`np.memmap`), or a sparse matrix.

    Parameters
    ----------
    X
        [n, d], of any real dtype: it is kept as it is and converted block by block. Sparse matrices
        are kept as CSR and become dense block by block.
    labels
        [n]: class codes.
    weight
        [n] or None.
    rows
        Row numbers of X that take part, if not all; labels and weight are then of these.
    classes
        The class values whose positions are the codes.
    feature_names
        [d] strings or None.
    path
        The file that X is in, if it has not been validated: rows are then checked when they are read.
    is_checked
        Whether the rows are known to keep the contract, so that `fit` does not check them again.

    Examples
    --------
    >>> source = ArraySource(np.eye(5), np.array([0, 1, 0, 1, 1]))
    >>> [block.load().X.shape for block in source.blocks(2)]
    [(2, 5), (2, 5), (1, 5)]
    >>> [block.index.tolist() for block in source.batches(2, np.random.default_rng(0), skip=1)]
    [[0, 1, 3]]
    """

    def __init__(
        self,
        X: ArrayOrSparse,
        labels: IntArray,
        weight: Array | None = None,
        *,
        rows: IntArray | None = None,
        classes: ArrayLike | None = None,
        feature_names: Sequence[str] | AnyArray | None = None,
        path: str | os.PathLike[str] | None = None,
        is_checked: bool = False,
    ) -> None:
        X = X if hasattr(X, "shape") else np.asarray(X)
        # CSR is the sparse format from which some rows can be taken at the cost of these rows alone.
        self.X = X.tocsr() if sparse.issparse(X) and X.format != "csr" else X
        self.labels: IntArray = np.asarray(labels)
        self.weight = weight
        self.rows = rows
        self.path = path
        self.is_checked = is_checked
        self.classes = None if classes is None else np.asarray(classes)
        self.feature_names = None if feature_names is None else np.asarray(feature_names, dtype=object)
        mapping = mapping_of(X)
        self.file_size = 0 if mapping is None else mapping.size()
        """Bytes of the file that X is mapped to, when it was opened."""
        self.file_rows = None if mapping is None else FileRows.of(X)
        self.n_rows: int = X.shape[0] if rows is None else len(rows)
        self.total_weight = float(self.n_rows if weight is None else weight.sum())
        self.n_features: int = X.shape[1]
        self.dtype = tile_precision(X.dtype)

    arrangement = "array"
    """What the order of minibatches depends on, besides seed, size and number of rows."""

    def expanded_to_input_rows(self, values: Array) -> Array:
        """Values [k], one a row, as values [n] of all rows of X: NaN for those that take no part.

        >>> source = ArraySource(np.eye(3), np.array([0, 1]), rows=np.array([0, 2]))
        >>> source.expanded_to_input_rows(np.ones(2))
        array([ 1., nan,  1.])
        """
        if self.rows is None:
            return values
        spread = np.full(self.X.shape[0], np.nan, values.dtype)
        spread[self.rows] = values
        return spread

    @property
    def class_totals(self) -> Array:
        """Total weight of each class code [C]."""
        minimum = 0 if self.classes is None else len(self.classes)
        return np.bincount(self.labels, self.weight, minimum).astype(np.float64)

    def blocks(self, size: int) -> list[ArrayBlock]:
        """All rows in order."""
        n = self.n_rows
        return [ArrayBlock(self, slice(i, min(i + size, n))) for i in range(0, n, size)]

    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Block]:
        """All rows once, shuffled; the sizes of the minibatches differ by one at most.

        If rows have leaves, a minibatch has rows of a few leaves: see `leaf_batches`.
        Minibatches of a file that is mapped into memory are read ahead, in a thread.
        """
        if self.leaf is None:
            batches = self._batches(shuffled(self.n_rows, rng), batch_count(self.n_rows, size), skip)
        else:
            parts = leaf_batches(self.leaf, size, rng, self.rows_of_a_leaf)
            batches = (ArrayBlock(self, np.sort(part), 1.0 / len(parts)) for part in parts[skip:])
        if mapping_of(self.X) is None:
            return batches
        return read_ahead(
            (LoadedBlock(b.index, b.load(), share=b.share) for b in batches), BATCHES_AHEAD
        )

    def _batches(self, order: IntArray, count: int, skip: int) -> Iterator[ArrayBlock]:
        for part in even_parts(self.n_rows, count)[skip:]:
            # Sorted row numbers read a memmap forwards; the set of rows stays random.
            yield ArrayBlock(self, np.sort(order[part]))

    def leading(self, n_features: int) -> ArraySource:
        """The same rows with the first columns of X alone; a view, nothing is copied."""
        names = None if self.feature_names is None else self.feature_names[:n_features]
        source = ArraySource(
            self.X[:, :n_features],
            self.labels,
            self.weight,
            rows=self.rows,
            classes=self.classes,
            feature_names=names,
            path=self.path,
            is_checked=self.is_checked,
        )
        source.reserved, source.offset = self.reserved, self.offset
        return source

    def with_class_factors(self, factors: Array, totals: Array) -> ArraySource:
        """The same rows with the weight of each multiplied by the factor of its class [C].

        totals: [C], total weight of each class before.
        """
        source = copy(self)
        source.weight = weights_by_class(self.weight, self.labels, factors)
        source.total_weight = float(totals @ factors)
        return source

    def take(self, numbers: IntArray) -> RawRows:
        """The rows with these numbers [k], in this order."""
        return ArrayBlock(self, numbers).load()


def open_npy(path: str | os.PathLike[str], *, mapped: bool = True) -> AnyArray:
    """The array in a .npy file: as a read-only `np.memmap`, of which nothing is read yet, or in memory.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/X.npy", np.eye(3))
    ...     open_npy(f"{folder}/X.npy").shape
    (3, 3)
    """
    path = Path(path)
    try:
        with explain_permission_error(path):
            values: AnyArray = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
            return values
    except SourceError:
        raise
    except FileNotFoundError as error:
        raise SourceError(f"{path}: there is no such file") from error
    except (OSError, ValueError, EOFError) as error:
        raise SourceError(
            f"{path}: not an array of numbers or strings in NumPy's .npy format ({error}); "
            "write it with numpy.save"
        ) from error


def npy_source(
    path: str | os.PathLike[str], y: InputLabels, sample_weight: InputWeights = None
) -> ArraySource:
    """Rows X [n, d] of a .npy file with labels y [n], an array or the path of another .npy file.

    The weights [n], if any, are likewise an array or a path; rows of no weight are left out.
    """
    X = open_npy(path)
    if X.ndim != 2 or 0 in X.shape:
        raise SourceError(f"{path}: has shape {X.shape}; write rows and features: (n, d)")
    if X.dtype.kind not in "fiub":
        raise SourceError(f"{path}: has dtype {X.dtype}; write real numbers")
    if y is None:
        raise SourceError(f"{path} has no labels: pass y, an array [n] or the path of another .npy file")
    origin, labels = _opened(y, "y")
    labels = np.asarray(labels)
    if labels.shape != (len(X),):
        raise SourceError(
            f"{origin} has shape {labels.shape}, but {path} has {len(X)} rows; pass one label a row"
        )
    if labels.dtype.kind == "f" and not (np.isfinite(labels) & (labels == np.floor(labels))).all():
        raise SourceError(f"{origin} is continuous or has NaN; a classifier needs classes: bin it first")
    require_one_kind(labels, origin)
    name, given = _opened(sample_weight, "sample_weight")
    rows, weight = rows_with_weight(validated_sample_weight(given, len(X), name=name))
    classes, codes = encode_labels(labels if rows is None else labels[rows])
    require_two_classes(classes.tolist(), origin)
    return ArraySource(X, codes, weight, rows=rows, classes=classes, path=path)


def _opened(given: InputLabels, name: str) -> tuple[str, InputLabels]:
    """Name for errors and value of an argument, which is an array or the path of a .npy file."""
    if isinstance(given, (str, os.PathLike)):
        return os.fspath(given), open_npy(given, mapped=False)
    return name, given

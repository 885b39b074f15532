"""Every source keeps the contract, and the checker tells which part of it an object breaks."""

import numpy as np
import pytest
from scipy import sparse

from cavity.data import ArraySource, ParquetSource, RawRows, check_source, class_values, open_npy
from cavity.data.source import LoadedBlock
from cavity.errors import SourceError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

N = 230
X = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)
LABELS = (X[:, 0] > 0).astype(np.int8)
WEIGHT = np.linspace(0.0, 2.0, N)


def _npy(folder):
    np.save(folder / "X.npy", X)
    return ArraySource(open_npy(folder / "X.npy"), LABELS, path=folder / "X.npy")


def _parquet(folder, weight=None, **options):
    columns = {f"x{j}": X[:, j] for j in range(3)} | {"y": LABELS, "w": WEIGHT}
    if weight is None:
        del columns["w"]
    pq.write_table(pa.table(columns), folder / "t.parquet", **options)
    return ParquetSource(folder / "t.parquet", "y", weight=weight)


SOURCES = {
    "array": lambda folder: ArraySource(X, LABELS),
    "weighted": lambda folder: ArraySource(X, LABELS, WEIGHT),
    "named": lambda folder: ArraySource(X, LABELS, classes=["a", "b"], feature_names=["u", "v", "w"]),
    "integers": lambda folder: ArraySource((X * 100).astype(np.int16), LABELS),
    "booleans": lambda folder: ArraySource(X > 0, LABELS),
    "csr": lambda folder: ArraySource(sparse.csr_matrix(X * (X > 0)), LABELS),
    "csc": lambda folder: ArraySource(sparse.csc_array(X * (X > 0)), LABELS),
    "npy": _npy,
    "parquet": _parquet,
    "parquet-weighted": lambda folder: _parquet(folder, "w", row_group_size=40),
    "parquet-groups": lambda folder: _parquet(folder, row_group_size=7),
    "own": lambda folder: Own(),
}


class Own:
    """What a user might write: nothing is inherited."""

    n_rows, n_features, total_weight, dtype = N, 3, N, np.dtype(np.float32)

    def _block(self, index):
        return LoadedBlock(index, RawRows(X[index], LABELS[index], None))

    def blocks(self, size):
        for i in range(0, N, size):
            yield self._block(slice(i, min(N, i + size)))

    def batches(self, size, rng, skip=0):
        order = rng.permutation(N)
        for i in range(skip * size, N, size):
            yield self._block(order[i : i + size])

    def sample(self, size, rng):
        return self._block(rng.permutation(N)[:size]).load()


@pytest.mark.parametrize("size", [None, 1, 50, 1000])
@pytest.mark.parametrize("name", SOURCES)
def test_every_source_keeps_the_contract(name, size, tmp_path):
    check_source(SOURCES[name](tmp_path), size)


def test_class_values_of_a_source_that_does_not_know_them():
    assert class_values(Own()).tolist() == [0, 1]
    assert class_values(ArraySource(X, LABELS, classes=["no", "yes"])).tolist() == ["no", "yes"]


class SomeWeights(Own):
    """The first rows come without weights, which are all 1."""

    def blocks(self, size):
        for block in super().blocks(size):
            late = block.index.start > N // 2
            yield LoadedBlock(
                block.index, block.rows._replace(weight=np.ones(len(block.rows.X)) if late else None)
            )


@pytest.mark.parametrize("size", [50, None])
def test_blocks_with_and_without_weights_may_follow_each_other(size):
    check_source(SomeWeights(), size)


class OtherWeights(SomeWeights):
    def batches(self, size, rng, skip=0):
        for block in super().batches(size, rng, skip):
            weight = np.full(len(block.index), 2.0)
            yield LoadedBlock(block.index, block.rows._replace(weight=weight))


class NoBatches(Own):
    batches = property()


class WrongCount(Own):
    n_rows = N + 1


class WrongPrecision(Own):
    dtype = np.dtype(np.int64)


class WrongWeight(Own):
    total_weight = 3.0


class Unsorted(Own):
    classes = np.array(["b", "a"])


class UnknownCode(Own):
    classes = np.array(["a", "b"])

    def _block(self, index):
        return LoadedBlock(index, RawRows(X[index], LABELS[index] + 1, None))


class NotFinite(Own):
    def _block(self, index):
        return LoadedBlock(index, RawRows(X[index] * np.inf, LABELS[index], None))


class Overlapping(Own):
    def blocks(self, size):
        return [self._block(slice(0, 5)), self._block(slice(4, 9))]


class Repeating(Own):
    def batches(self, size, rng, skip=0):
        blocks = list(super().batches(size, rng))
        return iter([blocks[0], *blocks[:-1]][skip:])


class InOrder(Own):
    def batches(self, size, rng, skip=0):
        return (self._block(np.arange(N)[i : i + size]) for i in range(skip * size, N, size))


class Unrepeatable(Own):
    def batches(self, size, rng, skip=0):
        return super().batches(size, np.random.default_rng(), skip)


class MisplacedRows(Own):
    def batches(self, size, rng, skip=0):
        for block in super().batches(size, rng, skip):
            yield LoadedBlock(block.index[::-1], block.rows)


class SkippingRows(Own):
    def batches(self, size, rng, skip=0):
        order = rng.permutation(N)
        return (self._block(order[i : i + size]) for i in range(skip, N, size))


class SmallSample(Own):
    def sample(self, size, rng):
        return super().sample(max(1, min(size, N) // 2), rng)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (NoBatches, "has no batches"),
        (WrongCount, "blocks has 230 rows, n_rows is 231"),
        (WrongPrecision, "neither float32 nor float64"),
        (WrongWeight, "total_weight is 3.0"),
        (Unsorted, "not sorted"),
        (UnknownCode, "codes 1 … 2, not 0 … 1"),
        (NotFinite, "infinite"),
        (Overlapping, "in order"),
        (Repeating, "leaves out"),
        (InOrder, "ignores its generator"),
        (Unrepeatable, "not the same for generators of equal state"),
        (MisplacedRows, "not those that blocks has"),
        (OtherWeights, "not those that blocks has"),
        (SkippingRows, "skip=1"),
        (SmallSample, "sample"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_the_checker_names_what_is_broken(broken, message):
    with pytest.raises(SourceError, match=message):
        check_source(broken())

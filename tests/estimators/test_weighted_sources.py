"""Weights that come with files, tables and sources."""

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from numpy.testing import assert_array_equal
from weighted_fits import LABELS, N, X, assert_same_fit, quick

from cavity.data import ArraySource

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:X does not have valid feature names"),
]


WEIGHT = np.random.default_rng(4).integers(0, 4, N).astype(float)


@pytest.fixture
def parquet(tmp_path):
    columns = {"a": X[:, 0], "b": X[:, 1], "y": LABELS, "w": WEIGHT}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet", row_group_size=9)
    return tmp_path


def test_a_column_of_a_parquet_file(parquet):
    model = quick().fit(parquet, "y", sample_weight="w")
    assert_array_equal(model.feature_names_in_, ["a", "b"])
    assert_same_fit(model, quick().fit(X, LABELS, sample_weight=WEIGHT))


def test_a_column_of_a_table_in_memory(parquet):
    table = pyarrow.parquet.read_table(parquet / "t.parquet")
    by_array = quick().fit(X, LABELS, sample_weight=WEIGHT)
    assert_same_fit(quick().fit(table, "y", sample_weight="w"), by_array)
    assert_same_fit(quick().fit(table.to_pandas(), "y", sample_weight="w"), by_array)
    with pytest.raises(ValueError, match="name of the weight column"):
        quick().fit(table, "y", sample_weight=WEIGHT)


def test_class_weight_on_top(parquet):
    model = quick(class_weight="balanced").fit(parquet, "y", sample_weight="w")
    by_array = quick(class_weight="balanced").fit(X, LABELS, sample_weight=WEIGHT)
    assert_same_fit(model, by_array)


def test_npy(tmp_path):
    for name, array in (("X", X), ("y", LABELS), ("w", WEIGHT)):
        np.save(tmp_path / f"{name}.npy", array)
    by_array = quick().fit(X, LABELS, sample_weight=WEIGHT)
    for weight in (tmp_path / "w.npy", WEIGHT):
        model = quick().fit(tmp_path / "X.npy", tmp_path / "y.npy", sample_weight=weight)
        assert_same_fit(model, by_array, rtol=1e-12)
        assert_array_equal(np.isnan(model.loo_log_proba_), WEIGHT == 0)
    with pytest.raises(ValueError, match="but there are 40 rows"):
        quick().fit(tmp_path / "X.npy", LABELS, sample_weight=np.ones(3))
    with pytest.raises(ValueError, match="negative"):
        quick().fit(tmp_path / "X.npy", LABELS, sample_weight=-np.ones(N))


def test_a_source_brings_its_own():
    source = ArraySource(X, LABELS, WEIGHT)
    assert_same_fit(quick().fit(source), quick().fit(X, LABELS, sample_weight=WEIGHT))
    with pytest.raises(ValueError, match="its own weights"):
        quick().fit(source, sample_weight=WEIGHT)


def test_a_parquet_file_wants_a_name(parquet):
    with pytest.raises(ValueError, match="name of the weight column"):
        quick().fit(parquet, "y", sample_weight=WEIGHT)
    with pytest.raises(ValueError, match="no weight column 'v'"):
        quick().fit(parquet, "y", sample_weight="v")


def test_a_class_without_weight_is_absent(parquet, tmp_path_factory):
    columns = {"a": X[:, 0], "y": LABELS, "w": LABELS.astype(float)}
    folder = tmp_path_factory.mktemp("other")
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "t.parquet")
    with pytest.raises(ValueError, match="at least two classes with any weight"):
        quick().fit(folder, "y", sample_weight="w")
    with pytest.raises(ValueError, match="at least two classes with any weight"):
        quick(class_weight={1: 0.0}).fit(parquet, "y")

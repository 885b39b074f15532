import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from scipy import sparse

from cavity import SEPClassifier
from cavity.data import ArraySource, ParquetSource
from cavity.report import write_report
from cavity.report.target import rows_at, sample_index

RNG = np.random.default_rng(0)
X = RNG.normal(size=(500, 2)).round(3)
CODES = (X[:, 0] > 0).astype(np.int8)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "rows.parquet"
    columns = {"a": X[:, 0], "b": X[:, 1], "sign": np.where(CODES, "plus", "minus")}
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=90)
    return path


@pytest.mark.parametrize("kind", ["array", "sparse", "parquet"])
def test_rows_by_number(kind, table):
    source = {
        "array": lambda: ArraySource(X, CODES),
        "sparse": lambda: ArraySource(sparse.csr_array(X), CODES),
        "parquet": lambda: ParquetSource(table, "sign", classes=["minus", "plus"]),
    }[kind]()
    wanted = np.array([499, 3, 88, 90, 3])
    rows = rows_at(source, wanted)
    assert rows.index.tolist() == [3, 88, 90, 499]
    np.testing.assert_array_equal(rows.X, X[rows.index])
    np.testing.assert_array_equal(rows.codes, CODES[rows.index])


def test_a_sample_is_sorted_without_repeats_and_repeatable():
    index = sample_index(1_000, 50, seed=1)
    assert len(np.unique(index)) == 50
    assert (np.diff(index) > 0).all()
    assert index.tolist() == sample_index(1_000, 50, seed=1).tolist()
    assert sample_index(5, 50, seed=1).tolist() == [0, 1, 2, 3, 4]


def test_a_report_on_files_and_on_sparse_rows(table, tmp_path):
    model = SEPClassifier(n_inducing=5, random_state=0, config={"tol": 1e-1}).fit(table, "sign")
    page = write_report(model, tmp_path / "r.html", max_rows=100, n_effects=0).read_text("utf-8")
    assert "100 of 500 training rows" in page
    assert "summarised from\n100 of them" in page
    again = SEPClassifier(n_inducing=5, random_state=0, config={"tol": 1e-1}).fit(
        sparse.csr_array(X), CODES
    )
    page = write_report(again, tmp_path / "r.html", sparse.csr_array(X), CODES, n_effects=0)
    assert "Judged on 500" in page.read_text("utf-8")

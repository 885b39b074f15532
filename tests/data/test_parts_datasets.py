"""pyarrow datasets, read piece by piece."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

from cavity import SEPClassifier, SourceError
from cavity.data import ParquetSource, check_source
from support import make, table

X, LABELS = table(400)
TABLE = pa.table({"a": X[:, 0], "b": X[:, 1], "y": LABELS})


@pytest.fixture
def folder(tmp_path):
    for i in range(2):
        part = TABLE.slice(200 * i, 200)
        pq.write_table(part, tmp_path / f"part-{i}.parquet", row_group_size=60)
    return tmp_path


def rows(source):
    loaded = [block.load() for block in source.blocks(37)]
    return np.vstack([part.X for part in loaded]), np.concatenate([part.labels for part in loaded])


def datasets(folder):
    ds.write_dataset(TABLE, folder / "csv", format="csv", max_rows_per_file=150, max_rows_per_group=150)
    ds.write_dataset(TABLE, folder / "ipc", format="feather")
    return {
        "parquet": ds.dataset(folder, format="parquet", exclude_invalid_files=True),
        "csv": ds.dataset(folder / "csv", format="csv"),
        "feather": ds.dataset(folder / "ipc", format="feather"),
        "memory": ds.dataset(TABLE),
        "union": ds.dataset([ds.dataset(TABLE.slice(0, 100)), ds.dataset(TABLE.slice(100))]),
    }


@pytest.mark.parametrize("kind", ["parquet", "csv", "feather", "memory", "union"])
def test_all_rows_in_their_order(folder, kind):
    files = [folder / "part-0.parquet", folder / "part-1.parquet"]
    dataset = ds.dataset(list(map(str, files))) if kind == "parquet" else datasets(folder)[kind]
    source = ParquetSource(dataset, "y")
    check_source(source)
    found, labels = rows(source)
    assert_array_equal(found, X)
    assert_array_equal(labels, LABELS)


def test_a_fit_is_that_on_arrays_and_on_the_folder(folder):
    options = {"n_inducing": 8, "random_state": 0, "n_jobs": 1}
    frame = pd.DataFrame(X, columns=["a", "b"])
    dataset = ds.dataset(folder)
    on_arrays = make(SEPClassifier, optimizer=None, **options).fit(X, LABELS)
    on_dataset = make(SEPClassifier, optimizer=None, **options).fit(dataset, "y")
    assert_array_equal(on_dataset.predict_proba(frame), on_arrays.predict_proba(X))
    in_batches = [
        make(SEPClassifier, batch_size=50, max_epochs=2, **options).fit(source, "y").predict_proba(frame)
        for source in (dataset, folder)
    ]
    assert_array_equal(*in_batches)


def test_partitions_are_columns(tmp_path):
    year = np.repeat([2013, 2014], 200)
    ds.write_dataset(
        TABLE.append_column("year", pa.array(year)),
        tmp_path,
        format="parquet",
        partitioning=ds.partitioning(pa.schema([("year", pa.int64())]), flavor="hive"),
    )
    source = ParquetSource(ds.dataset(tmp_path, partitioning="hive"), "y")
    assert_array_equal(source.feature_names, ["a", "b", "year"])
    assert_array_equal(rows(source)[0][:, 2], year)


def test_a_source_of_a_dataset_can_be_pickled(folder):
    source = ParquetSource(ds.dataset(folder), "y")
    assert_array_equal(rows(pickle.loads(pickle.dumps(source)))[0], X)


def test_the_name_of_the_target_is_needed(folder):
    with pytest.raises(SourceError, match=r"y=None: for a FileSystemDataset, y is the name"):
        SEPClassifier().fit(ds.dataset(folder))
    with pytest.raises(SourceError, match=r"the dataset: has no target column 'z'"):
        SEPClassifier().fit(ds.dataset(folder), "z")


def test_a_filtered_dataset(folder):
    with pytest.raises(SourceError, match=r"piece by piece.*to_table"):
        SEPClassifier().fit(ds.dataset(folder).filter(ds.field("a") > 0), "y")


def test_nulls_and_nan_are_named_with_their_place(folder):
    for bad, message in (
        (None, r"part-1\.parquet, row group 2: column 'b' has 1 null"),
        (np.nan, r"part-1\.parquet, row group 2: column 'b' has at least 1 NaN"),
    ):
        column = X[200:, 1].tolist()
        column[150] = bad
        part = TABLE.slice(200).set_column(1, "b", pa.array(column, pa.float64()))
        pq.write_table(part, folder / "part-1.parquet", row_group_size=60)
        with pytest.raises(SourceError, match=message):
            rows(ParquetSource(ds.dataset(folder), "y"))


def test_a_damaged_file_is_named(folder):
    path = Path(folder / "part-1.parquet")
    dataset = ds.dataset(folder)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(SourceError, match=r"part-1\.parquet.*cannot be read"):
        ParquetSource(dataset, "y")


def test_a_file_that_shrinks_after_it_was_scanned(folder):
    source = ParquetSource(ds.dataset(folder), "y")
    pq.write_table(TABLE.slice(200, 10), folder / "part-1.parquet")
    with pytest.raises(SourceError, match=r"part-1\.parquet"):
        rows(source)


def test_an_empty_dataset():
    with pytest.raises(SourceError, match="the dataset: has no rows"):
        ParquetSource(ds.dataset(TABLE.slice(0, 0)), "y")


def test_a_file_that_is_gone_after_it_was_scanned(folder):
    source = ParquetSource(ds.dataset(folder), "y")
    (folder / "part-1.parquet").unlink()
    with pytest.raises(SourceError, match=r"part-1\.parquet.* there is no such file any more"):
        rows(source)

"""Parquet files behind URLs are read as those in a folder are."""

import pickle
import uuid

import fsspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

from cavity import SEPClassifier, SourceError
from cavity.data import ParquetSource, check_source
from cavity.data.locations import find_files, local_path
from support import make, table

X, LABELS = table(400)
TABLE = pa.table({"a": X[:, 0], "b": X[:, 1], "y": LABELS})
FRAME = pd.DataFrame(X, columns=["a", "b"])


def write(url, part, **options):
    with fsspec.open(url, "wb") as file:
        pq.write_table(part, file, **options)


@pytest.fixture
def bucket():
    """A folder of the in-memory file system with two files and something else."""
    url = f"memory://{uuid.uuid4().hex}"
    for i in range(2):
        write(f"{url}/part-{i}.parquet", TABLE.slice(200 * i, 200), row_group_size=60)
    with fsspec.open(f"{url}/README.txt", "w") as file:
        file.write("notes")
    yield url
    fsspec.filesystem("memory").rm(url.removeprefix("memory:/"), recursive=True)


@pytest.fixture
def folder(tmp_path):
    for i in range(2):
        part = TABLE.slice(200 * i, 200)
        pq.write_table(part, tmp_path / f"part-{i}.parquet", row_group_size=60)
    return tmp_path


def fitted(source, target, **options):
    return make(SEPClassifier, n_inducing=8, random_state=0, n_jobs=1, **options).fit(source, target)


@pytest.mark.parametrize("options", [{"optimizer": None}, {"batch_size": 50, "max_epochs": 2}])
def test_the_same_result_wherever_the_files_are(bucket, folder, options):
    expected = fitted(folder, "y", **options).predict_proba(FRAME)
    for url in (bucket, f"{bucket}/", folder.as_uri()):
        assert_array_equal(fitted(url, "y", **options).predict_proba(FRAME), expected)


def test_one_remote_file_gives_what_arrays_give(bucket):
    model = fitted(f"{bucket}/part-0.parquet", "y", optimizer=None)
    expected = fitted(X[:200], LABELS[:200], optimizer=None)
    assert_array_equal(model.predict_proba(FRAME), expected.predict_proba(X))


def test_the_contract_of_a_source_is_kept(bucket):
    check_source(ParquetSource(bucket, "y"))


def test_a_remote_source_can_be_pickled(bucket):
    source = pickle.loads(pickle.dumps(ParquetSource(bucket, "y")))
    assert_array_equal(next(iter(source.blocks(400))).load().X, X)


def test_files_are_sorted_and_others_left_out(bucket):
    files = find_files(bucket, ["Parquet"])
    assert [file.name for file in files] == ["part-0.parquet", "part-1.parquet"]
    assert str(files[1]) == f"{bucket}/part-1.parquet"


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("data/flights.parquet", "data/flights.parquet"),
        ("file:///data/my%20flights.parquet", "/data/my flights.parquet"),
        ("c://data", "c:/data"),
        ("s3://bucket/a", None),
        ("gs://bucket/a", None),
    ],
)
def test_what_is_local(path, local):
    found = local_path(path)
    assert (None if found is None else found.as_posix()) == local


def test_nothing_there(bucket):
    with pytest.raises(SourceError, match=r"memory://.*nowhere: there is no such file or folder"):
        ParquetSource(f"{bucket}/nowhere", "y")
    with fsspec.open(f"{bucket}/empty/a.txt", "w") as file:
        file.write("notes")
    with pytest.raises(SourceError, match=r"/empty: the folder has no Parquet or Feather files"):
        ParquetSource(f"{bucket}/empty", "y")


def test_a_scheme_that_nobody_knows():
    with pytest.raises(SourceError, match=r"zz://a: cannot be reached.*fsspec.*zz.*pyarrow"):
        ParquetSource("zz://a", "y")


def test_without_fsspec_pyarrow_is_tried(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "fsspec.core", None)
    with pytest.raises(SourceError, match=r"memory://a: cannot be reached.*pyarrow \(.*memory"):
        ParquetSource("memory://a", "y")


def test_errors_name_the_remote_file(bucket):
    with pytest.raises(SourceError, match=r"y=None: for the Parquet data in memory://"):
        fitted(bucket, None)
    with pytest.raises(SourceError, match=r"memory://.*/part-0\.parquet: has no target column 'z'"):
        fitted(bucket, "z")
    column = pa.array([*X[200:399, 1].tolist(), None])
    write(f"{bucket}/part-1.parquet", TABLE.slice(200).set_column(1, "b", column), row_group_size=60)
    with pytest.raises(SourceError, match=r"memory://.*part-1\.parquet, row group 3: column 'b'"):
        fitted(bucket, "y")
    with fsspec.open(f"{bucket}/part-1.parquet", "wb") as file:
        file.write(b"PAR1 but not for long")
    with pytest.raises(SourceError, match=r"memory://.*part-1\.parquet: cannot be opened as a Parquet"):
        fitted(bucket, "y")


def test_a_remote_file_that_changes(bucket):
    source = ParquetSource(bucket, "y")
    write(f"{bucket}/part-1.parquet", TABLE.slice(200, 10))
    with pytest.raises(SourceError, match=r"part-1\.parquet: has changed"):
        list(source.blocks(500))

"""Bad Parquet files: an error that names the file, the column and the row group, and the way out."""

import datetime
import sys
import threading

import numpy as np
import pytest

from cavity.data import ParquetSource, SourceError, check_source, open_source
from support import no_more_rights_than_files_give

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

N = 100


def columns(**changes):
    rng = np.random.default_rng(0)
    return {
        "age": rng.normal(size=N).astype(np.float32),
        "distance": rng.normal(size=N).astype(np.float32),
        "delayed": rng.integers(0, 2, N),
    } | changes


@pytest.fixture
def write(tmp_path):
    def write(name="t.parquet", row_group_size=25, statistics=True, **changes):
        pq.write_table(
            pa.table(columns(**changes)),
            tmp_path / name,
            row_group_size=row_group_size,
            write_statistics=statistics,
        )
        return tmp_path / name

    return write


def train(path, target="delayed", **options):
    """All that a fit does with a source."""
    source = ParquetSource(path, target, **options)
    for block in source.blocks(10):
        block.load()


def test_missing_file(write, tmp_path):
    write("flights.parquet")
    with pytest.raises(SourceError, match=r"flihgts\.parquet: there is no such.* did you mean 'flights"):
        train(tmp_path / "flihgts.parquet")


def test_empty_folder(tmp_path):
    with pytest.raises(SourceError, match="no Parquet or Feather files"):
        train(tmp_path)
    (tmp_path / "2008").mkdir()
    pq.write_table(pa.table(columns()), tmp_path / "2008" / "t.parquet")
    with pytest.raises(SourceError, match="only in its subfolders"):
        train(tmp_path)


def test_files_in_subfolders_beside_others_are_said_to_be_left_out(write, tmp_path):
    write()
    for hidden in (".ipynb_checkpoints", "_temporary"):
        (tmp_path / hidden).mkdir()
        write(f"{hidden}/t.parquet")
    train(tmp_path)
    (tmp_path / "2008").mkdir()
    write("2008/t.parquet")
    with pytest.warns(UserWarning, match=r"only the 1 Parquet files .*2008.*pyarrow\.dataset"):
        train(tmp_path)
    train(tmp_path / "t.parquet")


def test_patterns_that_match_files_or_none(write, tmp_path):
    write("part-0.parquet")
    write("part-1.parquet")
    for pattern in ("*.parquet", "part-?.parquet", "part-[0-9].parquet"):
        assert open_source(str(tmp_path / pattern), "delayed").n_rows == 2 * N
    with pytest.raises(SourceError, match=r"x-\*\.parquet: no file matches this pattern"):
        open_source(str(tmp_path / "x-*.parquet"), "delayed")


def test_the_keys_of_a_hive_folder_are_columns(write, tmp_path):
    for year in (2008, 2009):
        (tmp_path / f"year={year}").mkdir()
        write(f"year={year}/t.parquet")
    source = open_source(tmp_path, "delayed")
    assert source.feature_names.tolist() == ["age", "distance", "year"]
    rows = source.take(np.array([2 * N - 1, 0]))
    assert rows.X[:, 2].tolist() == [2009.0, 2008.0]


def test_a_feather_file_is_read_as_well(tmp_path):
    pytest.importorskip("pyarrow.feather").write_feather(
        pa.table(columns()), str(tmp_path / "t.feather")
    )
    source = open_source(tmp_path / "t.feather", "delayed")
    assert source.n_rows == N
    check_source(source)


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_a_list_of_paths_leads_to_the_folder(write, kind):
    paths = [kind(write("a.parquet")), kind(write("b.parquet"))]
    for y in ("delayed", [0, 1]):
        with pytest.raises(SourceError, match=r"list of 2 paths.*pass the folder"):
            open_source(paths, y)
    assert open_source(["some", "text"], [0, 1]) is None


@pytest.mark.parametrize("what", ["file", "folder", "file without a suffix", "file in a folder"])
def test_what_may_not_be_read(write, tmp_path, what):
    (tmp_path / "folder").mkdir()
    path = write("folder/plain" if "suffix" in what else "folder/t.parquet")
    locked = path.parent if "folder" in what else path
    passed = path.parent if what == "folder" else path
    locked.chmod(0o000)
    try:
        with no_more_rights_than_files_give():
            for opened in (open_source, ParquetSource):
                with pytest.raises(SourceError, match=r"may not be read.*change its permissions"):
                    opened(passed, "delayed")
    finally:
        locked.chmod(0o700)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"a,b\n1,2\n" * 50, None])
def test_not_a_parquet_file(write, content):
    path = write()
    path.write_bytes(path.read_bytes()[:-30] if content is None else content)
    with pytest.raises(SourceError, match=r"t\.parquet: cannot be opened as a Parquet file"):
        train(path)


def test_missing_columns_and_the_nearest_name(write):
    path = write()
    with pytest.raises(SourceError, match=r"no target column 'Delay'; did you mean 'delayed'\?"):
        train(path, "Delay")
    with pytest.raises(SourceError, match=r"no feature column 'distanz'; did you mean 'distance'\?"):
        train(path, columns=["distanz"])
    with pytest.raises(
        SourceError, match=r"no weight column 'zzz'; there are 'age', 'distance', 'delayed'"
    ):
        train(path, weight="zzz")


@pytest.mark.parametrize(
    ("features", "message"),
    [(["age", "age"], "listed twice"), (["delayed"], "is the target"), ([], "no feature columns")],
)
def test_columns_that_make_no_sense(write, features, message):
    with pytest.raises(SourceError, match=message):
        train(write(), columns=features)


@pytest.mark.parametrize("value", [2, "maybe"])
def test_a_constant_target_is_shown_as_it_is(write, value):
    with pytest.raises(SourceError, match=rf"one class \({value!r}\)"):
        train(write(delayed=[value] * N))


def test_constant_target(write):
    with pytest.raises(SourceError, match=r"t\.parquet: the target 'delayed' has one class \(.*7.*\)"):
        train(write(delayed=np.full(N, 7)))


def test_continuous_target(write):
    with pytest.raises(SourceError, match=r"row group 0: the target 'age' has the value .*bin"):
        train(write(), "age")


def test_target_of_another_kind(write):
    days = [datetime.date(2008, 1, 1)] * N
    with pytest.raises(SourceError, match=r"of type date"):
        train(write(delayed=days))


def test_a_class_that_was_not_announced(write):
    labels = np.arange(N) % 2
    labels[60] = 2
    with pytest.raises(SourceError, match=r"row group 2: .*'delayed' has the value 2, which is not in"):
        train(write(delayed=labels), classes=[0, 1])


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("column", ["delayed", "distance", "w"])
def test_nulls(write, column, statistics):
    values = pa.array([None if i in (55, 57) else i % 2 for i in range(N)])
    path = write(statistics=statistics, **{"w": np.ones(N)} | {column: values})
    with pytest.raises(
        SourceError, match=rf"t\.parquet, row group 2: column '{column}' has .*2 null.*impute"
    ):
        train(path, weight="w")


def test_nulls_in_a_column_that_is_not_used(write):
    train(write(other=[None] * N), columns=["age"])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(write, value):
    distance = columns()["distance"]
    distance[80] = value
    path = write(distance=distance)
    with pytest.raises(
        SourceError, match=r"t\.parquet, row group 3: column 'distance' has .*NaN or inf"
    ):
        train(path)
    source = ParquetSource(path, "delayed")
    with pytest.raises(SourceError, match="row group 3: column 'distance'"):
        list(source.batches(10, np.random.default_rng(0)))
    with pytest.raises(SourceError, match="row group 3: column 'distance'"):
        source.sample(N, np.random.default_rng(0))


def test_columns_that_are_not_numeric(write):
    path = write(carrier=["AA"] * N, day=[datetime.date(2008, 1, 1)] * N)
    with pytest.raises(
        SourceError, match=r"'carrier' \((large_)?string\), 'day' \(date32.*TableClassifier"
    ):
        train(path)
    train(path, columns=["age"])


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_weights_that_are_none(write, weight):
    weights = np.ones(N)
    weights[30] = weight
    with pytest.raises(SourceError, match="row group 1: the weight 'w' of row"):
        train(write(w=weights), weight="w")
    with pytest.raises(SourceError, match="the weight 'w' of every row is zero"):
        train(write(w=np.zeros(N)), weight="w")


def test_files_with_different_schemas(write, tmp_path):
    write("a.parquet")
    write("b.parquet", age=np.arange(N))
    with pytest.raises(SourceError, match=r"b\.parquet: column 'age' is int64, but float in a\.parquet"):
        train(tmp_path)
    write("b.parquet", extra=np.arange(N))
    with pytest.raises(SourceError, match=r"b\.parquet: has columns \['extra'\]"):
        train(tmp_path)
    pq.write_table(pa.table(columns()).drop_columns(["distance"]), tmp_path / "b.parquet")
    with pytest.raises(SourceError, match=r"b\.parquet: has no column 'distance'"):
        train(tmp_path)
    train(tmp_path, columns=["age"])


def test_columns_in_another_order_are_the_same_columns(write, tmp_path):
    write("a.parquet")
    reordered = pa.table(columns()).select(["delayed", "distance", "age"])
    pq.write_table(reordered, tmp_path / "b.parquet")
    first, second = (block.load() for block in ParquetSource(tmp_path, "delayed").blocks(N))
    np.testing.assert_array_equal(first.X, second.X)


def test_extra_columns_do_not_matter_if_the_features_are_listed(write, tmp_path):
    write("a.parquet")
    write("b.parquet", extra=np.arange(N))
    train(tmp_path, columns=["age", "distance"])


def test_file_without_rows(tmp_path):
    empty = {name: values[:0] for name, values in columns().items()}
    pq.write_table(pa.table(empty), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=r"t\.parquet: has no rows"):
        train(tmp_path / "t.parquet")


def damage(path, column, group=2):
    place = pq.ParquetFile(path).metadata.row_group(group).column(column)
    content = bytearray(path.read_bytes())
    start = place.dictionary_page_offset or place.data_page_offset
    content[start : start + place.total_compressed_size] = b"\xff" * place.total_compressed_size
    path.write_bytes(content)


def test_damaged_row_group(write):
    path = write()
    damage(path, column=1)
    source = ParquetSource(path, "delayed")  # the target can still be read
    threads = threading.active_count()
    blocks = source.blocks(10)
    with pytest.raises(
        SourceError, match=r"t\.parquet, row group 2, column 'distance': cannot .*damaged"
    ):
        list(blocks)
    with pytest.raises(SourceError, match="row group 2, column 'distance': cannot be read"):
        list(source.batches(10, np.random.default_rng(0)))
    assert threading.active_count() == threads


def test_damaged_target(write):
    path = write()
    damage(path, column=2)
    with pytest.raises(SourceError, match=r"t\.parquet, row group 2, column 'delayed': cannot be read"):
        ParquetSource(path, "delayed")


def test_damaged_fragment_of_a_dataset(write, tmp_path):
    path = write()
    damage(path, column=1)
    source = ParquetSource(pytest.importorskip("pyarrow.dataset").dataset(tmp_path), "delayed")
    with pytest.raises(SourceError, match="row group 2, column 'distance': cannot be read"):
        list(source.blocks(10))


def test_a_flipped_bit_is_found_by_the_checksum_if_there_is_one(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(
        pa.table(columns()), path, row_group_size=25, write_page_checksum=True, compression="none"
    )
    content = bytearray(path.read_bytes())
    place = pq.ParquetFile(path).metadata.row_group(1).column(0)
    content[place.data_page_offset + place.total_compressed_size // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"row group 1, column '.*': cannot be read"):
        train(path)


@pytest.mark.parametrize("change", ["rewritten", "gone"])
def test_a_file_that_changes_under_the_source(write, change):
    path = write()
    source = ParquetSource(path, "delayed")
    if change == "gone":
        path.unlink()
    else:
        write(row_group_size=10)
    message = "no such file" if change == "gone" else "has changed"
    with pytest.raises(SourceError, match=message):
        list(source.blocks(10))


def test_without_pyarrow(write, monkeypatch):
    path = write()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'cavity\[parquet\]'"):
        train(path)


def test_a_target_of_lists(write):
    path = write(delayed=[[0]] * 50 + [[1]] * 50)
    with pytest.raises(SourceError, match=r"row group 0: the target 'delayed' is list<.*; classes are"):
        ParquetSource(path, "delayed")


def test_an_index_that_pandas_wrote_into_later_parts_alone_is_no_column(tmp_path):
    frame = pytest.importorskip("pandas").DataFrame(columns())
    frame.to_parquet(tmp_path / "1.parquet")
    frame[frame["age"] > 0].to_parquet(tmp_path / "2.parquet")
    assert "__index_level_0__" in pq.read_schema(tmp_path / "2.parquet").names
    assert ParquetSource(tmp_path, "delayed").feature_names.tolist() == ["age", "distance"]


def test_weights_whose_sum_is_no_number(write):
    path = write(weight=np.full(N, 1e308))
    for rows in (path, pq.read_table(path)):
        with pytest.raises(SourceError, match=r"sum of the weight 'weight' is inf; it counts"):
            open_source(rows, "delayed", "weight")


def test_classes_beyond_the_range_of_signed_integers(write):
    """Hashes, for instance; a float has too few digits to tell them apart."""
    largest = 2**64 - 1
    target = pa.array([largest - i % 2 for i in range(N)], pa.uint64())
    path = write(delayed=target)
    for rows in (path, pq.read_table(path)):
        source = open_source(rows, "delayed")
        assert source.classes.tolist() == [largest - 1, largest]
        assert source.classes.dtype == np.uint64


def test_a_text_file_of_another_type_than_the_first_is_not_called_damaged(tmp_path):
    dataset = pytest.importorskip("pyarrow.dataset")
    for name, value in (("a", 1), ("b", 0.5)):
        rows = "".join(f"{value},{i % 2}\n" for i in range(10))
        (tmp_path / f"{name}.csv").write_text(f"age,delayed\n{rows}")
    source = ParquetSource(dataset.dataset(tmp_path, format="csv"), "delayed")
    with pytest.raises(SourceError, match=r"b\.csv.*'age'.*schema=") as caught:
        [block.load() for block in source.blocks(100)]
    assert "damaged" not in str(caught.value)

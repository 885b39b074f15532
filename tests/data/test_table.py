"""What a path or a data frame means, and what is refused."""

import gzip

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from pyarrow import csv, feather, parquet

from cavity.data.forms import TextTally, forms_of
from cavity.data.table import open_table
from cavity.errors import SourceError


def text_forms(table, columns):
    tallies = {name: TextTally() for name in columns}
    for chunk in table.chunks(columns):
        for name in columns:
            tallies[name].add(chunk.column(name))
    return forms_of(tallies)


def rows_of(table, columns=None):
    columns = list(columns or table.columns)
    rows = pa.Table.from_batches(list(table.chunks(columns))).combine_chunks()
    if table.typed:
        return rows.to_pydict()
    forms = text_forms(table, columns)
    return {name: forms[name].read(rows.column(name).chunk(0), name).to_pylist() for name in columns}


FRAME = pd.DataFrame({"age": [31, 47, 52], "name": ["Ada", "Bob", None], "late": [True, False, True]})


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.parquet", "t.pq"])
def test_every_kind_of_file_gives_the_same_table(tmp_path, name):
    path = tmp_path / name
    if "csv" in name or "tsv" in name:
        FRAME.to_csv(path, index=False, sep="\t" if "tsv" in name else ",")
    else:
        FRAME.to_parquet(path)
    table = open_table(path)
    assert list(table.columns) == ["age", "name", "late"]
    assert rows_of(table) == rows_of(open_table(FRAME))


@pytest.mark.parametrize("name", ["t.csv", "t.tsv.gz", "t.parquet"])
def test_urls_lead_to_the_same_table(tmp_path, name):
    if name == "t.parquet":
        FRAME.to_parquet(tmp_path / name)
    else:
        FRAME.to_csv(tmp_path / name, index=False, sep="\t" if "tsv" in name else ",")
    folder = f"memory://{tmp_path.name}"
    with fsspec.open(f"{folder}/{name}", "wb") as file:
        file.write((tmp_path / name).read_bytes())
    for url in (f"{folder}/{name}", folder, (tmp_path / name).as_uri()):
        table = open_table(url)
        assert table.name == url
        assert rows_of(table) == rows_of(open_table(FRAME))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("memory://nowhere/t.csv", "no such file or folder"),
        ("gopher://x/t.csv", "cannot be reached"),
    ],
)
def test_urls_that_lead_nowhere(url, words):
    with pytest.raises(SourceError, match=words):
        open_table(url)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_folder_is_its_files_in_the_order_of_their_names(tmp_path, suffix):
    for number in (10, 2, 1):
        part = FRAME.assign(age=number)
        path = tmp_path / f"part-{number:02d}.{suffix}"
        part.to_csv(path, index=False) if suffix == "csv" else part.to_parquet(path)
    (tmp_path / "_SUCCESS").write_text("")
    assert rows_of(open_table(tmp_path), ["age"])["age"] == [1] * 3 + [2] * 3 + [10] * 3


@pytest.mark.parametrize("delimiter", [";", "|", "\t", ","])
def test_the_delimiter_of_a_text_file_is_found(tmp_path, delimiter):
    FRAME.to_csv(tmp_path / "t.csv", index=False, sep=delimiter)
    assert list(open_table(tmp_path / "t.csv").columns) == ["age", "name", "late"]


def test_cells_may_hold_delimiters_quotes_and_line_breaks(tmp_path):
    frame = pd.DataFrame({"text": ['a,"b"', "two\nlines", "plain"], "n": [1, 2, 3]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert rows_of(open_table(tmp_path / "t.csv"))["text"] == frame["text"].tolist()


def test_the_type_of_a_text_column_holds_for_all_its_cells(tmp_path):
    n = 300_000  # several blocks: the last cells decide, too
    frame = pd.DataFrame({"a": np.arange(n), "b": np.arange(n), "c": "2013-01-01", "d": "true"})
    frame = frame.assign(e=frame["a"]).astype({"a": object, "b": object, "e": object})
    frame.loc[n - 1, ["a", "b"]] = [0.5, "seven"]
    frame.loc[n // 2 :, "e"] = "seven"
    frame.loc[0, "c"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    table = open_table(tmp_path / "t.csv")
    forms = text_forms(table, table.columns)
    kinds = ["numeric", "numeric", "date", "boolean", "categorical"]
    assert [forms[name].kind for name in "abcde"] == kinds


def test_missing_values_in_text_files_have_many_names(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1,a\nNA,\n,NULL\nnan,b\n")
    assert rows_of(open_table(tmp_path / "t.csv")) == {
        "x": [1, None, None, None],
        "y": ["a", None, None, "b"],
    }


def test_the_index_of_a_frame_is_no_column(tmp_path):
    FRAME.set_index("name").to_parquet(tmp_path / "t.parquet")
    assert list(open_table(tmp_path / "t.parquet").columns) == ["age", "late"]


def test_compressed_text_is_read(tmp_path):
    with gzip.open(tmp_path / "t.tsv.gz", "wt") as file:
        file.write("a\tb\n1\t2\n")
    assert rows_of(open_table(tmp_path / "t.tsv.gz")) == {"a": [1], "b": [2]}


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.csv", "", "is empty"),
        ("t.parquet", b"", "is empty"),
        ("t.csv", "a,b\n", "no rows"),
        ("t.csv", "a,b\n1,2\n3\n", "row 3, counting the names, has 1 cells, but there are 2 names"),
        ("t.csv", gzip.compress(b"a,b\n1,2\n", mtime=0), "is compressed or no text"),
        ("t.csv", "a,a\n1,2\n", "more than one column named 'a'"),
        ("t.csv", b"a,b\n" + b"1,2\n" * 400_000 + b"1,caf\xe9\n", 'encoding="cp1252"'),
        ("t.parquet", b"PAR1 and then nothing", "Parquet"),
        ("t.ods", "x", "does not say what it is"),
    ],
)
def test_files_that_are_no_tables_are_named(tmp_path, name, content, words):
    with pytest.raises(SourceError, match=words) as caught:
        rows_of(open_table(write(tmp_path / name, content)))
    assert name in str(caught.value)


@pytest.mark.parametrize("cell", ["x" * 20_000_000, '"' + "x\n" * 10_000_000], ids=["long", "open"])
def test_lines_that_are_too_long_are_refused_in_words(tmp_path, cell):
    path = tmp_path / "t.csv"
    path.write_text(f"a,b\n1,{cell}\n2,y\n")
    with pytest.raises(SourceError, match=r"t\.csv: has a line of more than 4 MB; shorten"):
        list(open_table(path).chunks(["b"]))


def test_a_missing_file_suggests_the_nearest(tmp_path):
    write(tmp_path / "flights.csv", "a\n1\n")
    with pytest.raises(SourceError, match=r"did you mean 'flights\.csv'"):
        open_table(tmp_path / "flihgts.csv")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"notes.md": "x"}, "has no CSV, JSON lines, Parquet or Feather files"),
        ({"a.csv": "x\n1\n", "b.parquet": "x"}, "files of several formats"),
        ({"a.csv": "x,y\n1,2\n", "b.csv": "x\n1\n"}, "b.csv has no column 'y', unlike a.csv"),
        ({"a.csv": "x\n1\n", "b.csv": "x,y\n1,2\n"}, "b.csv has a column 'y' more, unlike a.csv"),
    ],
)
def test_folders_that_are_no_tables_are_named(tmp_path, files, words):
    for name, text in files.items():
        write(tmp_path / name, text)
    with pytest.raises(SourceError, match=words):
        open_table(tmp_path)


@pytest.mark.parametrize(
    "suffix", ["csv.gz", "csv.bz2", "csv.zst", "tsv", "parquet", "feather", "arrow"]
)
def test_every_format_is_the_same_table(tmp_path, suffix):
    rows = {"x": [1.5, None, 3.0], "y": ["a", None, "b"]}
    _write_as(tmp_path / f"t.{suffix}", rows)
    table = open_table(tmp_path / f"t.{suffix}")
    assert table.columns == ["x", "y"]
    chunks = list(table.chunks(["y", "x"]))
    assert chunks[0].schema.names == ["y", "x"]
    assert rows_of(table) == rows


def _write_as(path, rows):
    table = pa.table(rows)
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    elif path.suffix in (".feather", ".arrow"):
        feather.write_feather(table, str(path))
    else:
        options = csv.WriteOptions(delimiter="\t" if path.suffix == ".tsv" else ",")
        with pa.output_stream(str(path), compression="detect") as stream:
            csv.write_csv(table, stream, options)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather"])
def test_patterns_and_hive_folders(tmp_path, suffix):
    for year in (2013, 2014):
        (tmp_path / f"year={year}").mkdir()
        _write_as(tmp_path / f"year={year}" / f"part-0.{suffix}", {"x": [1.0 * year], "y": ["a"]})
    table = open_table(tmp_path)
    assert table.columns == ["x", "y", "year"]
    chunks = list(table.chunks(["year", "x"]))
    assert chunks[0].schema.names == ["year", "x"]
    assert rows_of(table, ["year", "x"]) == {"year": [2013, 2014], "x": [2013.0, 2014.0]}
    pattern = open_table(str(tmp_path / "year=201?" / f"part-*.{suffix}"))
    assert len(list(pattern.chunks(["x"]))) == 2
    with pytest.raises(SourceError, match="no file matches this pattern"):
        open_table(tmp_path / f"*.{suffix}")


def test_a_parquet_part_without_values_may_have_another_type(tmp_path):
    pd.DataFrame({"x": [1.5], "y": ["a"]}).to_parquet(tmp_path / "a.parquet")
    table = pa.table({"x": pa.nulls(2), "y": pa.array(["b", None])})
    pa.parquet.write_table(table, tmp_path / "b.parquet")
    assert rows_of(open_table(tmp_path)) == {"x": [1.5, None, None], "y": ["a", "b", None]}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pd.DataFrame({0: [1]}), "named 0, which is not a string"),
        (pd.DataFrame({"a": []}), "no rows"),
        (
            pd.DataFrame({"a": [1, [2]]}),
            "cannot be read: column 'a' has cells of the kinds 'int', 'list'",
        ),
        ({"a": [1], "b": [2**64]}, "column 'b' has cells of the kinds 'int'"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "more than one column named 'a'"),
    ],
)
def test_frames_that_are_no_tables_are_explained(data, words):
    with pytest.raises(SourceError, match=words):
        open_table(data)


def test_what_is_no_table_at_all():
    for data in ([1, 2], [{"a": 1}, "b"], ["a.csv", 3], []):
        with pytest.raises(TypeError, match="a list is not a table"):
            open_table(data)


def test_a_list_of_files_is_read_in_its_order(tmp_path):
    frame = pd.DataFrame({"a": range(10), "b": list("vwxyz") * 2})
    for suffix, write in (("csv", "to_csv"), ("parquet", "to_parquet")):
        paths = [tmp_path / f"{name}.{suffix}" for name in "21"]
        for part, path in zip((frame[:4], frame[4:]), paths, strict=True):
            getattr(part, write)(path, index=False)
        table = open_table([str(paths[0]), paths[1]])
        assert table.name == f"{paths[0]} and 1 more"
        rows = [row for chunk in table.chunks(["b"]) for row in chunk.column(0).to_pylist()]
        assert rows == frame["b"].tolist()
    with pytest.raises(SourceError, match=r"1\.parquet has another format than .*2\.csv"):
        open_table([tmp_path / "2.csv", tmp_path / "1.parquet"])
    with pytest.raises(SourceError, match=r"3\.csv: there is no such file"):
        open_table([tmp_path / "2.csv", tmp_path / "3.csv"])


def test_a_damaged_row_group_is_named_with_its_column(tmp_path):
    path = tmp_path / "t.parquet"
    rng = np.random.default_rng(0)
    table = pa.table({"a": rng.normal(size=100), "b": rng.normal(size=100)})
    parquet.write_table(table, path, row_group_size=25, use_dictionary=False)
    place = parquet.read_metadata(path).row_group(2).column(1)
    content = bytearray(path.read_bytes())
    start, size = place.data_page_offset, place.total_compressed_size
    content[start : start + size] = b"\xff" * size
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"t\.parquet, row group 2, column 'b': cannot be read"):
        rows_of(open_table(path))


def test_a_parquet_file_with_two_columns_of_a_name(tmp_path):
    table = pa.table([[1, 2], [3, 4]], names=["a", "a"])
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=r"t\.parquet has more than one column named 'a'"):
        open_table(tmp_path / "t.parquet")

"""Tables of records: JSON lines, also compressed and in hive folders, and sheets of Excel."""

import datetime
import gzip
import json
import sys

import pytest

from cavity import SourceError
from cavity.data import records
from cavity.data.table import open_table

ROWS = [{"age": 31, "city": "Ulm"}, {"age": 2.5, "late": True}, {"city": None, "age": 4}]


def written(path, rows):
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def cells(table, *columns):
    return [row for chunk in table.chunks(columns) for row in chunk.to_pylist()]


@pytest.mark.parametrize("name", ["t.jsonl", "t.ndjson", "t.jsonl.gz"])
def test_json_lines_have_the_columns_of_all_objects(tmp_path, name):
    table = open_table(written(tmp_path / name, ROWS))
    assert table.columns == ["age", "city", "late"]
    assert table.n_rows == 3
    assert cells(table, "late", "age") == [
        {"late": None, "age": 31.0},
        {"late": True, "age": 2.5},
        {"late": None, "age": 4.0},
    ]


def test_blocks_of_a_file_agree_on_the_types(tmp_path, monkeypatch):
    """Every line is a block: the types of a column are those of all of them."""
    monkeypatch.setattr(records, "BLOCK_BYTES", 1)
    rows = [*ROWS, {"day": "2013-01-05"}, {"day": "some day"}]
    table = open_table(written(tmp_path / "t.jsonl", rows))
    assert [row["age"] for row in cells(table, "age")] == [31.0, 2.5, 4.0, None, None]
    assert [row["day"] for row in cells(table, "day")][3:] == ["2013-01-05", "some day"]
    path = written(tmp_path / "bad.jsonl", [{"age": 1}, {"age": "old"}])
    with pytest.raises(SourceError, match=r"the values of 'age' are int64 in some lines and string"):
        open_table(path)


def test_hive_folders_of_json_lines_have_their_keys(tmp_path):
    for year in (2013, 2014):
        folder = tmp_path / f"year={year}"
        folder.mkdir()
        written(folder / "part.jsonl", ROWS[:1])
    table = open_table(tmp_path)
    assert cells(table, "year", "age") == [{"year": "2013", "age": 31}, {"year": "2014", "age": 31}]
    assert [cells(piece, "year")[0]["year"] for piece in table.pieces()] == ["2013", "2014"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[{"a": 1}, {"a": 2}]', "one array of all rows"),
        ('{"a": 1}\n{"a": "x"}\n', "changed from number to string"),
        ('{"a": 1}\n{a}\n', "write one object a line"),
        ("\n\n", "has no rows"),
    ],
)
def test_what_is_no_json_lines_is_said(tmp_path, text, words):
    (tmp_path / "t.jsonl").write_text(text)
    with pytest.raises(SourceError, match=words):
        open_table(tmp_path / "t.jsonl")


class TestExcel:
    openpyxl = None

    @pytest.fixture(autouse=True)
    def needs_openpyxl(self):
        TestExcel.openpyxl = pytest.importorskip("openpyxl")

    def write(self, path, *rows, sheets=()):
        book = self.openpyxl.Workbook()
        for row in rows:
            book.active.append(row)
        for title in sheets:
            book.create_sheet(title)
        book.save(path)
        return path

    def test_the_first_row_has_the_names(self, tmp_path):
        day = datetime.datetime(2013, 1, 5)
        path = self.write(
            tmp_path / "t.xlsx", ["age", "city", "day", None], [31, "Ulm", day], [], [2.5, None, day]
        )
        table = open_table(path)
        assert table.columns == ["age", "city", "day"]
        assert cells(table, *table.columns) == [
            {"age": 31.0, "city": "Ulm", "day": day},
            {"age": 2.5, "city": None, "day": day},
        ]

    def test_other_sheets_are_not_read_silently(self, tmp_path):
        path = self.write(tmp_path / "t.xlsx", ["a"], [1], sheets=["more"])
        with pytest.warns(UserWarning, match="only the first sheet, 'Sheet', is read, and not 'more'"):
            open_table(path)

    def test_a_column_without_a_name_is_an_error(self, tmp_path):
        path = self.write(tmp_path / "t.xlsx", ["a", None], [1, 2])
        with pytest.raises(SourceError, match="column 2 has no name"):
            open_table(path)

    def test_a_damaged_file_is_named(self, tmp_path):
        (tmp_path / "t.xlsx").write_text("no")
        with pytest.raises(SourceError, match=r"t.xlsx: cannot be read as an Excel file"):
            open_table(tmp_path / "t.xlsx")


def test_without_openpyxl_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    (tmp_path / "t.xlsx").write_text("x")
    with pytest.raises(ImportError, match=r"pip install 'cavity\[excel\]'"):
        open_table(tmp_path / "t.xlsx")

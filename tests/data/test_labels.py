"""Labels: which values they are in tables, and the positive one of two classes."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from text_columns import NUMBERS, N

from cavity.data.labels import TableLabelScan, any_missing, positive_class
from cavity.data.preprocess import TablePreprocessor
from cavity.data.table import open_table
from cavity.errors import SourceError


@pytest.mark.parametrize("labels", [["0.0", "1.0"], ["0", "1"], ["0", "1.0"], [" 0", "1 "]])
def test_whole_labels_of_files_are_numbers(tmp_path, labels):
    pd.DataFrame({"x": NUMBERS, "y": labels * 20}).to_csv(tmp_path / "t.csv", index=False)
    found = TablePreprocessor().learn(open_table(tmp_path / "t.csv"), "y").finish()
    assert found.values.tolist() == [0, 1]
    assert found.values.dtype == np.int64
    assert found.counts.tolist() == [20, 20]
    assert found.codes(pa.array([*labels, "1", " 1.0 ", None, ""])).tolist() == [0, 1, 1, 1, -1, -1]


def test_whole_labels_of_frames_are_numbers():
    found = TablePreprocessor().learn(open_table({"x": NUMBERS, "y": [0.0, 1.0] * 20}), "y").finish()
    assert found.values.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["True", "false", "TRUE"], [False, True]),
        (["1", "2", "b"], ["1", "2", "b"]),
        (["2024-01-31", "2024-02-01", "2024-02-01"], ["2024-01-31", "2024-02-01"]),
        (["1", "1.0", "2"], [1, 2]),
        (["9223372036854775808", "1", "1"], [1, 2**63]),
        (["1" * 30, "1", "1"], ["1", "1" * 30]),
    ],
)
def test_labels_of_text_are_numbers_only_if_all_are(labels, classes):
    scan = TableLabelScan("y", "t", is_typed=False)
    codes = scan.add(pa.array(labels))
    assert len(codes) == len(labels)
    found = scan.finish()
    assert found.values.tolist() == classes
    assert found.counts.sum() == len(labels)


def test_labels_of_a_type_of_pandas_alone_are_refused():
    periods = pd.period_range("2024-01", periods=N, freq="M")
    with pytest.raises(SourceError, match="classes are whole numbers, strings or truth values"):
        TablePreprocessor().learn(open_table(pd.DataFrame({"x": NUMBERS, "y": periods})), "y")


def test_labels_that_differ_by_blanks_alone_are_one_class(tmp_path):
    frame = pd.DataFrame({"x": NUMBERS, "y": ["yes", "no ", " yes", "no"] * 10})
    frame.to_csv(tmp_path / "t.csv", index=False)
    for data in (frame, tmp_path / "t.csv"):
        preprocessor = TablePreprocessor()
        found = preprocessor.learn(open_table(data), "y").finish()
        assert found.values.tolist() == ["no", "yes"]
        assert found.counts.tolist() == [20, 20]
        assert any("such as 'yes' and ' yes', are one" in note for note in preprocessor.notes_)
        assert found.codes(pa.array(["no  ", "yes"])).tolist() == [0, 1]
        assert found.codes(pa.array(["no  ", "if", None]), unknown=-2).tolist() == [0, -2, -1]


def test_a_class_has_the_commonest_spelling(tmp_path):
    frame = pd.DataFrame({"x": NUMBERS, "y": [" yes", " no", " yes", "no", " yes "] * 8})
    frame["w"] = np.where(frame["y"] == "no", 2.0, 1.0)
    frame.to_csv(tmp_path / "t.csv", index=False)
    for data in (frame, tmp_path / "t.csv"):
        for weight, classes in ((None, [" yes", "no"]), ("w", [" yes", "no"])):
            found = TablePreprocessor().learn(open_table(data), "y", weight).finish()
            assert found.values.tolist() == classes
            assert found.counts.tolist() == [24, 16]
            labels = found.spelled(np.array(["yes", "no ", "if", " yes "], dtype=object))
            assert labels.tolist() == [" yes", "no", "if", " yes"]
    common = pd.concat([frame, frame[frame["y"] == " no"]])
    assert TablePreprocessor().learn(open_table(common), "y").finish().values.tolist() == [" no", " yes"]


def test_numbers_with_blanks_in_text_are_numbers(tmp_path):
    frame = pd.DataFrame({"x": NUMBERS, "y": [" 1", " 0", "1 ", "0"] * 10})
    frame.to_csv(tmp_path / "t.csv", index=False)
    found = TablePreprocessor().learn(open_table(tmp_path / "t.csv"), "y").finish()
    assert found.values.tolist() == [0, 1]
    assert found.counts.tolist() == [20, 20]


@pytest.mark.parametrize(
    ("classes", "counts", "positive"),
    [
        ([False, True], [1, 9], 1),
        (["FALSE", "true "], [1, 9], 1),
        ([0, 1], [1, 9], 1),
        ([0.0, 1.0], [1, 9], 1),
        ([-1, 1], [1, 9], 1),
        (["+", "-"], [9, 1], 0),
        (["neg", "pos"], [1, 9], 1),
        (["N", "Y"], [1, 9], 1),
        ([1, 2], [1, 9], 0),
        ([1, 2], [9, 1], 1),
        (["F", "M"], [9, 1], 1),
        (["late", "on time"], [5, 5], 1),
    ],
)
def test_positive_class_is_the_word_that_says_so_or_the_rarer_one(classes, counts, positive):
    assert positive_class(np.array(classes), np.array(counts)) == positive


def test_positive_class_is_defined_for_two():
    with pytest.raises(ValueError, match="there are 3 classes"):
        positive_class(np.arange(3), np.ones(3))


@pytest.mark.parametrize("missing", [np.nan, np.datetime64("NaT"), pd.NaT, pd.NA, Decimal("NaN")])
def test_missing_labels_are_found_among_others(missing):
    assert any_missing(np.array(["a", missing, "b"], dtype=object))


def test_labels_of_any_type_are_not_missing():
    labels = np.array(["nan", True, 0, Decimal(1), pd.Timestamp("2026-01-01"), ()], dtype=object)
    assert not any_missing(labels)

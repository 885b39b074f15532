"""Tables in memory give what arrays give."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from cavity import SEPClassifier, SourceError
from cavity.data import check_source
from cavity.data.arrow import table_source
from cavity.data.opening import open_source
from support import make, table

X, LABELS = table(300)
NAMES = np.array(["no", "yes"])[LABELS]
TABLE = pa.table({"a": X[:, 0], "late": NAMES, "b": X[:, 1]})


class Foreign:
    """An object of another library that speaks Arrow's C interface."""

    def __arrow_c_stream__(self, requested_schema=None):
        return TABLE.__arrow_c_stream__(requested_schema)


FORMS = {
    "table": lambda: TABLE,
    "chunked table": lambda: pa.concat_tables([TABLE.slice(0, 100), TABLE.slice(100)]),
    "record batch": lambda: TABLE.combine_chunks().to_batches()[0],
    "record batches": lambda: TABLE.to_batches(max_chunksize=70),
    "reader": lambda: TABLE.to_reader(max_chunksize=70),
    "foreign": Foreign,
    "pandas": TABLE.to_pandas,
}


def classifier(**options):
    return make(SEPClassifier, n_inducing=8, random_state=0, n_jobs=1, **options)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [{"optimizer": None}, {"batch_size": 50, "max_epochs": 1}])
def test_the_same_result_as_arrays(form, options):
    expected = classifier(**options).fit(X, NAMES)
    model = classifier(**options).fit(FORMS[form](), "late")
    assert_array_equal(
        model.predict_proba(pd.DataFrame(X, columns=["a", "b"])), expected.predict_proba(X)
    )
    assert_array_equal(model.classes_, ["no", "yes"])
    assert_array_equal(model.feature_names_in_, ["a", "b"])


def test_the_contract_of_a_source_is_kept():
    check_source(table_source(TABLE, "late"))


def test_precision_and_kinds_of_columns():
    small = pa.table({"a": pa.array([1, 0], pa.int8()), "b": [True, False], "y": [3, 4]})
    source = table_source(small, "y")
    assert source.X.dtype == np.float32
    assert_array_equal(source.X, [[1, 1], [0, 0]])
    assert_array_equal(source.classes, [3, 4])
    encoded = pa.table({"a": [0.5, 1.5, 2.5], "y": pa.array(["u", "v", "u"]).dictionary_encode()})
    assert_array_equal(table_source(encoded, "y").labels, [0, 1, 0])


def test_an_index_of_pandas_is_no_feature():
    frame = pd.DataFrame({"a": [1.0, 2.0], "y": [0, 1]}, index=pd.Index([7, 9], name="id"))
    assert_array_equal(table_source(frame, "y").feature_names, ["a"])


@pytest.mark.parametrize(
    ("content", "target", "message"),
    [
        (
            {"a": [1.0], "late": ["x"]},
            "lat",
            r"the Table: has no target column 'lat'; did you mean 'late'",
        ),
        ({"a": [1.0, None], "y": [0, 1]}, "y", r"the Table, record batch 0: column 'a' .* 1 null"),
        ({"a": [1.0, 2.0], "y": [0, None]}, "y", r"record batch 0: column 'y' .* 1 null"),
        ({"a": [1.0, np.nan], "y": [0, 1]}, "y", r"record batch 0: column 'a' has at least 1 NaN"),
        ({"a": ["u", "v"], "y": [0, 1]}, "y", r"not numeric: 'a' \(string\)"),
        ({"y": [0, 1]}, "y", "no feature columns"),
        ({"a": pa.array([], pa.float64()), "y": pa.array([], pa.int8())}, "y", "has no rows"),
        ({"a": [1.0, 2.0], "y": [0.5, 1.0]}, "y", r"record batch 0: the target 'y' has the value 0\.5"),
    ],
)
def test_bad_tables(content, target, message):
    with pytest.raises(SourceError, match=message):
        open_source(pa.table(content), target)


def test_the_batch_with_the_bad_value_is_named():
    batches = pa.table({"a": [1.0, 2.0, np.inf], "y": [0, 1, 0]}).to_batches(max_chunksize=1)
    with pytest.raises(SourceError, match=r"the list, record batch 2: column 'a'"):
        open_source(batches, "y")


def test_a_table_with_one_class():
    with pytest.raises(ValueError, match="one class"):
        classifier().fit(pa.table({"a": [1.0, 2.0], "y": [1, 1]}), "y")


def test_batches_of_different_columns():
    one, other = pa.record_batch({"a": [1.0], "y": [0]}), pa.record_batch({"b": [1.0], "y": [0]})
    with pytest.raises(SourceError, match="cannot be read as an Arrow table"):
        open_source([one, other], "y")


def test_a_reader_needs_the_name_of_its_target():
    with pytest.raises(SourceError, match=r"y=None: for a RecordBatchReader, y is the name"):
        classifier().fit(TABLE.to_reader())
    with pytest.raises(SourceError, match=r"y=<ndarray>: for a RecordBatchReader"):
        classifier().fit(TABLE.to_reader(), LABELS)


def test_frames_with_labels_apart_are_arrays_as_before():
    frame = TABLE.to_pandas()[["a", "b"]]
    assert open_source(frame, NAMES) is None
    expected = classifier(optimizer=None).fit(X, NAMES).predict_proba(X)
    model = classifier(optimizer=None).fit(frame, NAMES)
    assert_allclose(model.predict_proba(frame), expected, rtol=1e-9)

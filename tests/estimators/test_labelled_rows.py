"""Rows of a table by number: those that a fit counts, with the places that they have in the table."""

import numpy as np
import pytest

from cavity import SEPClassifier, SourceError, TableClassifier
from cavity.data.table import open_table
from cavity.estimators.table_prediction import LabelledTableRows
from flights_table import flights


@pytest.fixture(scope="module")
def frame():
    table = flights(200).assign(copies=1.0)
    table.loc[[0, 7, 50], "delayed"] = None
    table.loc[[1, 7, 60], "copies"] = 0.0
    return table


@pytest.fixture(scope="module")
def model(frame):
    classifier = SEPClassifier(n_inducing=4, optimizer=None, random_state=0)
    return TableClassifier(classifier).fit(frame, "delayed", "copies")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_rows_are_those_of_the_fit(model, frame, tmp_path, suffix, monkeypatch):
    monkeypatch.setattr("cavity.data.table.CHUNK_ROWS", 30)
    monkeypatch.setattr("cavity.data.table.CHUNK_ROWS", 30)
    path = tmp_path / f"t.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    rows = LabelledTableRows(model, open_table(path), "copies")
    kept = frame.drop(index=[0, 1, 7, 50, 60])
    assert len(rows) == 195 == len(model.loo_log_proba_)
    numbers = np.array([190, 0, 45, 44])
    found = rows.take(numbers)
    assert found.index.tolist() == kept.index[numbers].tolist()
    assert found.attrs["table"] == str(path)
    assert np.allclose(found["distance"], kept["distance"].iloc[numbers])
    assert rows.labels.take(numbers).tolist() == kept["delayed"].iloc[numbers].tolist()
    assert np.array_equal(model.transform(found), model.transform(kept[model.columns_].iloc[numbers]))


def test_without_a_column_of_weights_all_rows_with_a_target_count(model, frame):
    assert len(LabelledTableRows(model, open_table(frame))) == 197


def test_tables_of_other_columns_are_refused(model, frame):
    for column, words in (("delayed", "target"), ("hour", "lacks"), ("copies", "weight column")):
        with pytest.raises(SourceError, match=words):
            LabelledTableRows(model, open_table(frame.drop(columns=column)), "copies")
    with pytest.raises(SourceError, match="no weight column 'copeis'; did you mean 'copies'"):
        LabelledTableRows(model, open_table(frame), "copeis")
    with pytest.raises(SourceError, match="no column of ids, 'zzz'; there are"):
        LabelledTableRows(model, open_table(frame), ids=["zzz"])
    with pytest.raises(SourceError, match="no row has a target"):
        LabelledTableRows(model, open_table(frame.assign(delayed=np.nan)))


def test_values_that_training_had_not_are_warned_of_once(model, frame):
    rows = LabelledTableRows(model, open_table(frame.assign(carrier="ZZ")))
    with pytest.warns(UserWarning, match="'ZZ'"):
        rows.take(np.array([3]))
    rows.take(np.array([3]))


def test_columns_may_have_any_name(frame):
    """One of them was once the name of a column that is added."""
    renamed = frame.rename(columns={"hour": "(place)", "carrier": ""})
    classifier = SEPClassifier(n_inducing=4, optimizer=None, random_state=0)
    model = TableClassifier(classifier).fit(renamed, "delayed", "copies")
    found = LabelledTableRows(model, open_table(renamed), "copies").take(np.array([3, 0]))
    assert found.index.tolist() == [5, 2]
    assert found["(place)"].tolist() == renamed["(place)"].iloc[[5, 2]].tolist()

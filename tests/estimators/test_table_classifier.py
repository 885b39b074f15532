"""Data frames and files in, probabilities out; in memory or not, saved or not, the same."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import cavity
from cavity import SEPClassifier
from cavity.data import check_source
from cavity.data.encoded import encoded_source
from cavity.data.labels import LabelScan
from cavity.data.preprocess import TablePreprocessor
from cavity.data.table import TextTable, open_table
from cavity.errors import SourceError
from cavity.estimators.table import TableClassifier
from cavity.estimators.table_prediction import predictions
from flights_table import flights


def small(**options):
    return TableClassifier(SEPClassifier(n_inducing=8, random_state=0, config={"tol": 1e-2}), **options)


@pytest.fixture(scope="module")
def model():
    return small().fit(flights(), "delayed")


NEW = flights(200, seed=1)


def test_it_learns_and_is_calibrated(model):
    assert model.score(NEW, NEW["delayed"]) > 0.85
    p = model.predict_proba(NEW)[:, 1]
    assert p.mean() == pytest.approx((NEW["delayed"] == "yes").mean(), abs=0.08)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.columns_ == ["hour", "distance", "carrier", "date", "weekend"]
    assert model.target_ == "delayed"


def test_all_its_answers_agree_with_those_of_the_classifier_inside(model):
    X = pd.DataFrame(model.transform(NEW), columns=model.get_feature_names_out())
    inside = model.estimator_
    assert np.array_equal(model.predict(NEW), inside.predict(X))
    assert np.array_equal(model.predict_proba(NEW), inside.predict_proba(X))
    assert np.array_equal(model.decision_function(NEW), inside.decision_function(X))
    for ours, theirs in zip(
        model.latent_mean_and_variance(NEW), inside.latent_mean_and_variance(X), strict=True
    ):
        assert np.array_equal(ours, theirs)


def test_a_score_counts_the_labels_that_are_predicted(tmp_path, model):
    frame = NEW.assign(copies=np.arange(200.0) % 3)
    right = model.predict(NEW) == NEW["delayed"]
    frame.to_csv(tmp_path / "new.csv", index=False)
    for X in (frame, tmp_path / "new.csv"):
        with pytest.warns(UserWarning, match="does not know and ignores: 'copies'"):
            assert model.score(X) == model.score(X, "delayed") == pytest.approx(right.mean())
        weighted = np.average(right, weights=frame["copies"])
        assert model.score(X, "delayed", "copies") == pytest.approx(weighted)
    X = NEW.drop(columns="delayed")
    assert model.score(X, NEW["delayed"], frame["copies"]) == pytest.approx(weighted)
    other = NEW.assign(delayed=np.where(right, NEW["delayed"], "perhaps"))
    assert model.score(other) == pytest.approx(right.mean())
    assert model.score(NEW.assign(delayed=NEW["delayed"].where(right, None))) == 1.0
    with pytest.raises(SourceError, match="no row has a label"):
        model.score(NEW.assign(delayed=None))


def test_labels_with_blanks_are_predicted_as_they_are(model):
    frame = flights()
    frame["delayed"] = " " + frame["delayed"]
    spoilt = frame.assign(delayed=frame["delayed"].where(np.arange(len(frame)) % 7 > 0, "no\t"))
    X, wanted = NEW.drop(columns="delayed"), NEW["delayed"]
    for table in (frame, spoilt):
        other = small().fit(table, "delayed")
        assert other.classes_.tolist() == [" no", " yes"]
        assert other.score(X, wanted) == other.score(X, " " + wanted) > 0.8
        assert other.score(X, " " + wanted + " ") == (other.predict(X) == " " + wanted).mean()


def test_labels_may_be_given_instead_of_a_column(model):
    frame = flights()
    other = small().fit(frame.drop(columns="delayed"), frame["delayed"])
    assert np.array_equal(other.predict_proba(NEW.drop(columns="delayed")), model.predict_proba(NEW))
    assert other.target_ is None


@pytest.mark.parametrize("name", ["flights.csv", "flights.parquet", "parts"])
def test_files_and_frames_give_the_same_model(tmp_path, model, name):
    frame = flights()
    path = tmp_path / name
    if name == "parts":
        path.mkdir()
        frame[:150].to_parquet(path / "a.parquet")
        frame[150:].to_parquet(path / "b.parquet")
    elif name.endswith("csv"):
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    other = small().fit(path, "delayed")
    assert np.allclose(other.predict_proba(NEW), model.predict_proba(NEW), rtol=1e-9)


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S+02:00"])
def test_dates_of_text_files_with_and_without_zones(tmp_path, form):
    frame = flights(150)
    frame["date"] = frame["date"].dt.strftime(form)
    frame.to_csv(tmp_path / "t.csv", index=False)
    fitted = small().fit(tmp_path / "t.csv", "delayed")
    kinds = {encoder.column: encoder.kind for encoder in fitted.preprocessor_.encoders_}
    assert kinds["date"] == "date"
    days = fitted.transform(frame)[:, fitted.get_feature_names_out().tolist().index("date: days")]
    first = pd.to_datetime(frame["date"]).min()
    assert np.allclose(np.diff(days), np.diff((pd.to_datetime(frame["date"]) - first).dt.days))
    batches = list(predictions(fitted, open_table(tmp_path / "t.csv")))
    assert sum(batch.num_rows for batch in batches) == 150


@pytest.fixture
def no_memory(monkeypatch):
    """A machine that has no memory left for the features."""
    monkeypatch.setattr("cavity.data.encoded.available_bytes", lambda: 1)


def test_rows_beyond_memory_are_trained_on_from_disk(tmp_path, model, no_memory):
    other = small(cache_dir=str(tmp_path)).fit(flights(), "delayed")
    assert np.allclose(other.predict_proba(NEW), model.predict_proba(NEW), rtol=1e-6)
    assert list(tmp_path.iterdir()) == []
    assert other.classes_.tolist() == ["no", "yes"]
    names = model.get_feature_names_out().tolist()
    assert other.estimator_.feature_names_in_.tolist() == names


@pytest.mark.parametrize("max_memory", [0, np.inf])
def test_encoded_sources_keep_the_contract(tmp_path, max_memory):
    frame = flights(100)
    frame.loc[3, "delayed"] = None
    table = open_table(frame)
    fitted = small()
    fitted.learn_columns(table, "delayed")
    rows = encoded_source(
        table, fitted.preprocessor_, fitted.labels_, max_memory=max_memory, folder=tmp_path
    )
    with rows as source:
        check_source(source)
        assert source.n_rows == 99
        loaded = next(iter(source.blocks(99))).load()
        assert loaded.labels.tolist() == (frame["delayed"].dropna() == "yes").astype(int).tolist()


@pytest.mark.parametrize("n_rows", [60, 140])
def test_a_table_that_changes_while_it_is_read_is_refused(n_rows):
    fitted = small()
    fitted.learn_columns(open_table(flights(100)), "delayed")
    rows = encoded_source(open_table(flights(n_rows)), fitted.preprocessor_, fitted.labels_)
    with pytest.raises(SourceError, match="has changed while it was read: 100 rows"), rows:
        pass


def test_too_little_room_on_the_disk_is_said_before(tmp_path, monkeypatch, no_memory):
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr("cavity.data.encoded.shutil.disk_usage", lambda path: usage)
    with pytest.raises(SourceError, match="10 left; make room"):
        small(cache_dir=str(tmp_path)).fit(flights(50), "delayed")
    assert list(tmp_path.iterdir()) == []


def test_a_saved_model_predicts_the_same(tmp_path, model):
    model.save(tmp_path / "m.cavity")
    again = cavity.load(tmp_path / "m.cavity")
    assert np.array_equal(again.predict_proba(NEW), model.predict_proba(NEW))
    assert again.notes_ == model.notes_
    assert again.labels_.counts.tolist() == model.labels_.counts.tolist()


def test_rows_without_a_target_are_left_out():
    frame = flights(150)
    frame.loc[:9, "delayed"] = None
    fitted = small().fit(frame, "delayed")
    assert fitted.labels_.counts.sum() == 140
    assert "10 rows without a target" in fitted.notes_[-1]


@pytest.mark.parametrize("missing", [np.nan, float("nan"), None, pd.NA])
def test_lists_of_labels_may_have_missing_ones(missing):
    frame = flights()
    labels = [missing if i % 9 == 0 else word for i, word in enumerate(frame["delayed"])]
    for y in (labels, tuple(labels), pd.Series(labels, dtype=object)):
        found = small().fit(frame.drop(columns="delayed"), y)
        assert found.classes_.tolist() == ["no", "yes"]
        assert found.labels_.missing == -(-len(frame) // 9)


def test_new_columns_are_ignored_with_a_warning_and_old_ones_silently(model):
    with pytest.warns(UserWarning, match="ignores: 'gate'"):
        assert len(model.predict(NEW.assign(gate=1))) == len(NEW)
    model.predict(NEW)  # has the target, as the table of the fit had


def test_missing_columns_are_refused(model):
    with pytest.raises(SourceError, match="lacks columns 'hour', 'carrier'"):
        model.predict(NEW.drop(columns=["hour", "carrier"]))


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["a"] * 20, "one class"),
        ([None] * 20, "no values"),
        (np.linspace(0, 1, 20), "is a fraction"),
        (pd.date_range("2020-01-01", periods=20), "is of type (datetime|Timestamp)"),
    ],
)
def test_targets_that_are_no_classes(labels, words):
    frame = pd.DataFrame({"x": range(20), "y": labels})
    with pytest.raises(SourceError, match=words):
        small().fit(frame, "y")


def test_a_thousand_values_are_no_classes():
    frame = pd.DataFrame({"x": range(1_000), "price": range(1_000)})
    with pytest.raises(SourceError, match="looks like a quantity"):
        small().fit(frame, "price")


@pytest.mark.parametrize(
    ("y", "words"), [(None, "it is the name of the target"), ("delaid", "did you mean 'delayed'")]
)
def test_the_target_of_a_file_is_a_name_of_a_column(tmp_path, y, words):
    flights(20).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(SourceError, match=words):
        small().fit(tmp_path / "t.csv", y)


def test_labels_of_another_length_are_refused():
    with pytest.raises(SourceError, match="y has shape"):
        small().fit(flights(20), np.zeros(19))


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        ([True, False, None], [False, True]),
        ([3, 1, None], [1, 3]),
        ([1.0, 0.0, np.nan], [0, 1]),
        (["b", "a", None], ["a", "b"]),
        (pd.Categorical(["b", "a", None], categories=["b", "a", "unused"]), ["a", "b"]),
    ],
)
def test_classes_of_every_type_have_codes(values, classes):
    column = next(open_table(pd.DataFrame({"y": values})).chunks(["y"])).column(0)
    scan = LabelScan("y")
    scan.add(column)
    found = scan.finish()
    assert found.values.tolist() == classes
    assert found.missing == 1
    assert found.codes(column).tolist() == [1, 0, -1]


def test_labels_that_the_model_does_not_know_are_refused(model):
    column = next(open_table({"y": ["yes", "perhaps"]}).chunks(["y"])).column(0)
    with pytest.raises(SourceError, match="'perhaps', which is not among the classes"):
        model.labels_.codes(column)


def test_predictions_of_a_table_are_those_of_the_frame(model, monkeypatch):
    monkeypatch.setattr("cavity.data.table.CHUNK_ROWS", 64)
    batches = list(predictions(model, open_table(NEW), keep=["distance"]))
    assert [batch.num_rows for batch in batches] == [64, 64, 64, 8]
    table = pd.concat([batch.to_pandas() for batch in batches], ignore_index=True)
    assert list(table) == [
        "distance",
        "label",
        "probability_yes",
        "latent_mean",
        "latent_variance",
    ]
    assert np.allclose(table["probability_yes"], model.predict_proba(NEW)[:, 1], rtol=1e-9)
    assert (table["label"] == model.predict(NEW)).all()
    assert (table["distance"] == NEW["distance"]).all()


@pytest.mark.filterwarnings("ignore:the data frame has columns that the model does not know")
def test_predictions_of_nothing_and_with_two_columns_of_a_name_are_refused(model):
    with pytest.raises(SourceError, match="the data frame has no rows"):
        model.predict(NEW[:0])
    with pytest.raises(SourceError, match="to keep, 'label', has the name of a column of the pred"):
        list(predictions(model, open_table(NEW.assign(label=1)), keep=["label"]))


def test_more_than_two_classes():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(300, 2)), columns=["a", "b"])
    frame["size"] = np.array(["small", "medium", "large"])[np.digitize(frame["a"], [-0.5, 0.5])]
    fitted = small().fit(frame, "size")
    table = pd.concat([batch.to_pandas() for batch in predictions(fitted, open_table(frame))])
    assert (table["label"] == frame["size"]).mean() > 0.8
    shown = [f"probability_{name}" for name in ("large", "medium", "small")]
    assert np.allclose(table[shown].sum(axis=1), 1.0)
    assert np.allclose(table[shown], fitted.predict_proba(frame), rtol=1e-9)
    means, _ = fitted.latent_mean_and_variance(frame)
    assert np.allclose(table["latent_mean_small"], means[:, 2])


def test_unseen_levels_are_warned_of_once(model):
    table = open_table(NEW.assign(carrier="ZZ"))
    with pytest.warns(UserWarning, match="values that did not occur in training: 'ZZ'") as caught:
        list(predictions(model, table))
    assert len(caught) == 1


def test_parameters_are_cloned_with_the_classifier_inside():
    twin = clone(small(max_categories=3))
    assert twin.max_categories == 3
    assert twin.estimator.n_inducing == 8
    assert twin.set_params(estimator__n_inducing=4).estimator.n_inducing == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"categorical_features": None},
            "categorical_features=None is not possible; .* names of columns",
        ),
        ({"categorical_features": [2]}, r"categorical_features=\[2\] is not possible"),
        ({"drop_features": "hour"}, "drop_features='hour' is not possible; it must be a list"),
        ({"estimator": LogisticRegression()}, "LogisticRegression.* is not a classifier of cavity"),
        ({"estimator": SEPClassifier}, "is not a classifier of cavity; pass one, such as SEPClassifier"),
        ({"estimator": SEPClassifier(class_weight=["yes", "no"])}, "class_weight=.* is not possible"),
        ({"estimator": SEPClassifier(class_weight=5)}, "class_weight=5 is not possible"),
        ({"estimator": SEPClassifier(leaves=3.7)}, "leaves=3.7 is not possible"),
        ({"estimator": SEPClassifier(n_inducing=0)}, "n_inducing=0 is not possible"),
        ({"estimator": SEPClassifier(warm_start=True)}, "warm_start=True is not for .* partial_fit"),
    ],
)
def test_parameters_are_checked_before_anything_is_read(options, words):
    model = TableClassifier(**options)
    for fit in (model.fit, model.partial_fit):
        with pytest.raises((TypeError, ValueError), match=words):
            fit("there is no such file.csv", "late")


def test_a_target_is_named_by_its_name_also_in_a_numbered_frame():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)))
    frame[2] = (frame[0] > 0).astype(int)
    with pytest.raises(SourceError, match=r"y=2 is neither .* has the columns 'x0', 'x1', 'x2'"):
        small().fit(frame, 2)
    assert small().fit(frame, "x2").columns_ == ["x0", "x1"]


def test_a_target_of_lists_is_refused():
    with pytest.raises(SourceError, match=r"the target 'late' is list<.*; classes are"):
        small().fit(pa.table({"hour": [1, 2], "late": [[0], [1]]}), "late")


@pytest.mark.parametrize("error", [SourceError("no"), KeyboardInterrupt()])
def test_a_fit_that_fails_leaves_the_model_before_it_whole(monkeypatch, error):
    frame = pd.DataFrame({"hour": [6, 7, 8, 18, 19, 20] * 5, "carrier": ["AA", "UA", "DL"] * 10})
    frame["late"] = frame["hour"] > 12
    model = small().fit(frame, "late")
    before = model.predict_proba(frame)

    def fail(*_):
        raise error

    monkeypatch.setattr(SEPClassifier, "fit", fail)
    with pytest.raises(type(error)):
        model.fit(frame.assign(carrier=frame["carrier"].replace("AA", "B6")), "late")
    np.testing.assert_array_equal(model.predict_proba(frame), before)


def test_a_disk_that_fills_up_while_rows_are_written(tmp_path, monkeypatch, no_memory):
    def full(*_, **__):
        raise OSError("[Errno 28] Error writing bytes to file")

    monkeypatch.setattr(parquet.ParquetWriter, "write_table", full)
    frame = flights(200)
    with pytest.raises(SourceError, match=r"could not be written .*Errno 28.*make room"):
        small(cache_dir=tmp_path).fit(frame, "delayed")
    assert not any(tmp_path.iterdir())


def test_the_file_of_a_constant_target_is_named(tmp_path):
    parquet.write_table(pa.table({"hour": [1, 2], "late": [1, 1]}), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=r"t\.parquet: the target 'late' has one class \(1\)"):
        small().fit(tmp_path / "t.parquet", "late")


def test_a_text_file_is_parsed_once_to_learn_and_once_to_encode(tmp_path, monkeypatch):
    flights(120).to_csv(tmp_path / "t.csv", index=False)
    parsed = []
    whole = TextTable._open

    def counted(table, path, columns):
        if columns is not None:  # else the names alone
            parsed.append(sorted(columns))
        return whole(table, path, columns)

    monkeypatch.setattr(TextTable, "_open", counted)
    small().fit(tmp_path / "t.csv", "delayed")
    assert len(parsed) == 2


def test_columns_that_change_their_kind_in_a_later_chunk_are_read_again(tmp_path, monkeypatch):
    n = 90
    frame = pd.DataFrame(
        {
            "number": np.arange(n) % 7,
            "late": [str(i % 5) for i in range(n - 1)] + ["x"],
            "empty": [None] * (n - 3) + [1.5, 2.5, 3.5],
            "y": ["1"] * 40 + ["2"] * 49 + ["b"],
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    whole = TablePreprocessor()
    expected = whole.learn(open_table(tmp_path / "t.csv"), "y").finish()
    monkeypatch.setattr("cavity.data.table.CHUNK_ROWS", 30)
    chunked = TablePreprocessor()
    found = chunked.learn(open_table(tmp_path / "t.csv"), "y").finish()
    assert chunked.encoders_ == whole.encoders_
    assert found.values.tolist() == expected.values.tolist() == ["1", "2", "b"]
    assert found.counts.tolist() == expected.counts.tolist() == [40, 49, 1]


def test_a_file_of_another_dialect_is_the_same_table(tmp_path, model):
    def written(frame, name):
        padded = frame["delayed"].where(frame.index % 7 > 0, frame["delayed"] + " ")
        words = frame.assign(date=frame["date"].dt.strftime("%d.%m.%Y"), delayed=padded)
        words["distance"] = [
            f"{x:,.3f} €".translate(str.maketrans(".,", ",.")) for x in frame["distance"]
        ]
        words["hour"] = frame["hour"].astype(object).where(frame["hour"].notna(), "-")
        words.to_csv(tmp_path / name, index=True, sep=":", decimal=",", encoding="utf-16")
        return tmp_path / name

    frame = flights().round({"distance": 3})
    plain = small().fit(frame, "delayed")
    path = written(frame, "train.csv")
    text = small().fit(open_table(path, sep=":"), "delayed")
    text.save(tmp_path / "m.cavity")
    text = cavity.load(tmp_path / "m.cavity")
    assert text.columns_ == plain.columns_
    assert text.classes_.tolist() == ["no", "yes"]
    new = NEW.round({"distance": 3})
    wanted = plain.predict_proba(new)
    assert np.allclose(text.predict_proba(new), wanted, atol=1e-6)
    one = written(new[:1], "one.csv")  # a single row does not tell its decimal sign
    [batch] = predictions(text, open_table(one, sep=":"))
    assert batch.column("probability_yes")[0].as_py() == pytest.approx(wanted[0, 1], abs=1e-6)
    notes = " ".join(text.notes_)
    for word in ("numbers the rows", "'-'", "€", "the day first", "differ by blanks"):
        assert word in notes

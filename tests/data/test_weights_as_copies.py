"""A weight counts copies of its row, whether it comes as a column or as an array."""

import numpy as np
import pytest

from cavity import SEPClassifier, SourceError, TableClassifier
from cavity.cli.predict import evaluation
from cavity.data.table import open_table
from flights_table import flights

COPIES = np.arange(120) % 3


@pytest.fixture(scope="module")
def frame():
    return flights(120)


@pytest.fixture(scope="module")
def copied(frame):
    """Every row as often as it counts."""
    return frame.loc[np.repeat(frame.index, COPIES)].reset_index(drop=True)


def fitted(X, y, weight=None, **options):
    # The optimiser, inducing points and standardisation are checked for weights elsewhere: here it is
    # enough that each row arrives with its own.
    classifier = SEPClassifier(n_inducing=5, optimizer=None, random_state=0, n_jobs=1)
    return TableClassifier(classifier, **options).fit(X, y, weight)


def source_of(model):
    return model.estimator_._training.source


def test_a_column_of_weights_is_no_feature_and_reaches_the_rows(frame, tmp_path):
    whole = fitted(frame.assign(copies=COPIES), "delayed", "copies")
    assert "copies" not in whole.columns_
    assert whole.weight_ == "copies"
    assert np.array_equal(source_of(whole).weight, COPIES[COPIES > 0])
    assert "40 rows of weight 0 are left out" in whole.notes_

    frame.assign(copies=COPIES).to_csv(tmp_path / "t.csv", index=False)
    for model in (
        fitted(frame, frame["delayed"].to_numpy(), COPIES, drop_features=["delayed"]),
        fitted(tmp_path / "t.csv", "delayed", "copies"),
    ):
        assert np.array_equal(model.predict_proba(frame), whole.predict_proba(frame))


def test_weights_are_kept_with_rows_that_do_not_fit_in_memory(frame, tmp_path, monkeypatch):
    weighted = frame.assign(copies=COPIES)
    near = fitted(weighted, "delayed", "copies")
    monkeypatch.setattr("cavity.data.encoded.available_bytes", lambda: 1)
    far = fitted(weighted, "delayed", "copies", cache_dir=tmp_path)
    assert np.allclose(near.predict_proba(frame), far.predict_proba(frame), rtol=1e-5)
    assert list(tmp_path.iterdir()) == []


def test_rows_of_no_weight_teach_nothing(frame):
    strange = frame.assign(copies=1.0)
    strange.loc[0, ["hour", "carrier", "copies"]] = [1e6, "ZZ", 0.0]
    model = fitted(strange, "delayed", "copies")
    assert "carrier=ZZ" not in model.get_feature_names_out()
    rest = fitted(strange[1:], "delayed", "copies")
    assert np.array_equal(model.predict_proba(frame), rest.predict_proba(frame))


def test_two_copies_are_a_weight_of_two(frame, copied):
    weighted, whole = fitted(frame.assign(copies=COPIES), "delayed", "copies"), fitted(copied, "delayed")
    assert weighted.get_feature_names_out().tolist() == whole.get_feature_names_out().tolist()
    assert weighted.labels_.values.tolist() == whole.labels_.values.tolist()
    assert source_of(weighted).total_weight == source_of(whole).total_weight


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (-1.0, "the weight 'copies' of a row is -1.0"),
        (np.inf, "of a row is inf"),
        (None, "of a row is nan"),
        (1e308, "the sum of the weight 'copies' is"),
        ("many", "has the value 'many'"),
        (0.0, "the weight 'copies' of every row is zero"),
    ],
)
def test_weights_that_count_no_copies(frame, weights, words):
    with pytest.raises(SourceError, match=words):
        fitted(frame.assign(copies=weights), "delayed", "copies")


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (-1.0, "sample_weight of a row is -1.0"),
        (1e308, "the sum of sample_weight is inf"),
        (1e-200, "the sum of sample_weight is .*e-19"),
        (0.0, "sample_weight of every row is zero"),
    ],
)
def test_weights_that_were_passed_as_an_array_are_called_by_their_argument(frame, weight, words):
    weights = np.full(len(frame), weight)
    with pytest.raises(SourceError, match=words):
        fitted(frame, "delayed", weights)
    if weight:
        with pytest.raises(SourceError, match=words):
            TableClassifier(SEPClassifier(n_inducing=8)).partial_fit(
                frame, "delayed", sample_weight=weights
            )


def test_a_column_of_weights_may_have_no_name(frame):
    unnamed = fitted(frame.assign(**{"": COPIES}), "delayed", "")
    named = fitted(frame.assign(copies=COPIES), "delayed", "copies")
    assert np.array_equal(unnamed.predict_proba(frame), named.predict_proba(frame))
    scores = [
        evaluation(m, open_table(frame.assign(**{w: COPIES})), w, None).scores(np.ones(2))
        for m, w in ((unnamed, ""), (named, "copies"))
    ]
    assert scores[0] == scores[1]


def test_columns_of_weights_that_are_none(frame, tmp_path):
    with pytest.raises(SourceError, match="no weight column 'copeis'; did you mean 'copies'"):
        fitted(frame.assign(copies=1), "delayed", "copeis")
    with pytest.raises(SourceError, match="both the target and the weight"):
        fitted(frame, "delayed", "delayed")
    with pytest.raises(SourceError, match="sample_weight has shape"):
        fitted(frame, "delayed", [1.0])
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(SourceError, match="it is the name of the column of weights"):
        fitted(tmp_path / "t.csv", "delayed", [1.0])

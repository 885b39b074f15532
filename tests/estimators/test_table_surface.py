"""Everything that a classifier of arrays can do, on tables: attributes, inputs, relevance, streams."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import cavity
from cavity import NumericalError, SEPClassifier, SourceError, TableClassifier
from cavity.cli.predict import evaluation
from cavity.data.table import open_table
from cavity.estimators.table_input import as_table
from cavity.estimators.table_prediction import predictions
from cavity.gp.model import Model
from flights_table import flights

NEW = flights(60, seed=1)


def small(**options):
    return TableClassifier(SEPClassifier(n_inducing=8, random_state=0, config={"tol": 1e-2}), **options)


@pytest.fixture(scope="module")
def model():
    return small().fit(flights(), "delayed")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [TableClassifier(SEPClassifier(n_inducing=10, max_epochs=30, random_state=0, n_jobs=1))]
)
def test_every_check_of_scikit_learn(estimator, check):
    check(estimator)


def test_without_an_estimator_the_same_table_gives_the_same_model():
    frame = flights(80)[["hour", "carrier", "delayed"]]
    one, two = (TableClassifier().fit(frame, "delayed").predict_proba(frame) for _ in range(2))
    assert_array_equal(one, two)


def test_the_answers_are_those_of_the_classifier_inside(model):
    X = pd.DataFrame(model.transform(NEW), columns=model.get_feature_names_out())
    inside = model.estimator_
    ours, theirs = model.predict_uncertainty(NEW, 0.5), inside.predict_uncertainty(X, 0.5)
    for one, other in zip(ours, theirs, strict=True):
        assert_allclose(one, other)
    assert_allclose(model.ood_score(NEW), inside.ood_score(X))
    draws = [one.sample_latent(rows, 3, 0) for one, rows in ((model, NEW), (inside, X))]
    assert_allclose(*draws)


def test_predictions_that_are_not_finite_are_refused(monkeypatch):
    """As those of the classifier inside are, not written as NaN."""
    found = small().fit(flights(80), "delayed")
    beyond = (np.full((1, len(NEW)), np.inf), np.ones((1, len(NEW))))
    monkeypatch.setattr("cavity.gp.model.Model.latent_moments", lambda *_, **__: beyond)
    with pytest.raises(NumericalError, match="row 0 of X is not finite"):
        found.predict_proba(NEW)
    with pytest.raises(NumericalError, match="row 0 of X is not finite"):
        list(predictions(found, as_table(NEW)))


@pytest.mark.parametrize(
    "predict",
    [
        lambda model, rows: model.predict_proba(rows),
        lambda model, rows: list(predictions(model, as_table(rows))),
        lambda model, rows: evaluation(model, as_table(rows), None, None),
    ],
    ids=["at once", "streamed", "scored"],
)
def test_the_row_whose_prediction_is_not_finite_is_named_by_its_number_in_the_table(
    monkeypatch, predict
):
    found = small().fit(flights(80), "delayed")
    moments, sizes = Model.latent_moments, []

    def broken_in_the_third_chunk(model, X, *args, **options):
        mean, variance = moments(model, X, *args, **options)
        sizes.append(len(X))
        if len(sizes) == 3:
            mean[0, 5] = np.nan
        return mean, variance

    monkeypatch.setattr("cavity.data.table.CHUNK_ROWS", 20)
    monkeypatch.setattr(Model, "latent_moments", broken_in_the_third_chunk)
    with pytest.raises(NumericalError, match="row 45 of X is not finite"):
        predict(found, NEW)
    assert sizes == [20, 20, 20]


def test_validation_rows_may_have_another_decimal_sign(tmp_path):
    """Their numbers are those that they are, not those that the signs of the training table mean."""
    frame, judges = flights(200)[["hour", "distance", "delayed"]], NEW[["hour", "distance", "delayed"]]
    frame.to_csv(tmp_path / "points.csv", index=False)
    for name, decimal in (("v.csv", "."), ("commas.csv", ",")):
        judges.to_csv(tmp_path / name, sep=";", decimal=decimal, index=False)
    losses = [
        small()
        .fit(tmp_path / "points.csv", "delayed", X_val=open_table(tmp_path / name, decimal=decimal))
        .validation_log_loss_
        for name, decimal in (("v.csv", "."), ("commas.csv", ","))
    ]
    assert losses[0] == losses[1]


def test_rows_of_tables_have_no_offsets(model):
    for method in (model.predict_proba, model.latent_mean_and_variance, model.sample_latent):
        with pytest.raises(ValueError, match="offset is not for TableClassifier"):
            method(NEW, offset=np.zeros(60))


def test_predictions_of_a_whole_table_say_the_same(model):
    whole = pa.Table.from_batches(predictions(model, as_table(NEW), level=0.8))
    found, p = model.predict_uncertainty(NEW, level=0.8), model.predict_proba(NEW)
    assert_allclose(whole["probability_yes"], p[:, 1])
    assert_allclose(whole["lower_yes"], found.interval.lower[:, 1])
    assert_allclose(whole["upper_yes"], found.interval.upper[:, 1])
    assert_allclose(whole["aleatoric"], found.aleatoric)
    assert_allclose(whole["epistemic"], found.epistemic)
    assert_allclose(whole["ood_score"], model.ood_score(NEW))


def test_learned_attributes_are_there_after_a_fit_and_not_before(model):
    names = [
        "config_",
        "race_",
        "kernel_",
        "inducing_points_",
        "mean_function_",
        "mean_coefficient_",
        "inverse_temperature_",
        "residual_variance_scale_",
        "validation_log_loss_",
        "validation_standard_error_",
        "n_validation_rows_",
        "loo_log_proba_",
        "loo_log_loss_",
        "log_marginal_likelihood_value_",
        "n_iter_",
        "history_",
    ]
    for name in names:
        assert_equal(getattr(model, name), getattr(model.estimator_, name))
        assert not hasattr(small(), name)
    with pytest.raises(NotFittedError):
        _ = small().relevance_


def test_relevance_is_by_column(model):
    found = model.relevance_
    assert found.names == tuple(model.columns_) == tuple(model.feature_names_in_)
    assert {row.name for row in found.ranked()[:2]} == {"hour", "carrier"}
    assert_array_equal(model.feature_importances_, found.value)
    assert_allclose(found.value.sum(), 1.0)
    assert np.isfinite(found["distance"].lengthscale)
    assert np.isnan(found["carrier"].lengthscale)  # it is several features
    assert model.relevance_ is found


def test_showing_a_model_computes_no_relevance(model):
    again = small().fit(flights(80), "delayed")
    again._repr_mimebundle_()
    assert "_band" not in vars(again.relevance_)


def test_a_saved_model_has_the_same_surface(model, tmp_path):
    model.relevance_.value  # noqa: B018  (what is kept of it must not be saved)
    model.save(tmp_path / "m.cavity")
    again = cavity.load(tmp_path / "m.cavity")
    assert_array_equal(again.relevance_.value, model.relevance_.value)
    assert_array_equal(again.loo_log_proba_, model.loo_log_proba_)
    assert again.config_ == model.config_


@pytest.mark.parametrize("name", ["new.csv", "new.parquet", "parts", "arrow", "dict"])
def test_predictions_of_files_folders_and_arrow(model, tmp_path, name, monkeypatch):
    monkeypatch.setattr("cavity.data.table.CHUNK_ROWS", 25)
    path = tmp_path / name
    if name == "parts":
        path.mkdir()
        NEW[:20].to_parquet(path / "a.parquet")
        NEW[20:].to_parquet(path / "b.parquet")
    elif name == "new.csv":
        NEW.to_csv(path, index=False)
    elif name == "new.parquet":
        NEW.to_parquet(path)
    else:
        path = pa.Table.from_pandas(NEW)
        path = path if name == "arrow" else path.to_pydict()
    # Chunks of other sizes are rounded otherwise, in the float32 of the rows.
    rounding = 100 * np.finfo(np.float32).eps
    assert_allclose(model.predict_proba(path), model.predict_proba(NEW), rtol=rounding)
    assert_allclose(model.ood_score(path), model.ood_score(NEW), rtol=rounding)
    assert model.predict_uncertainty(path).total.shape == (60,)


def test_rows_and_lists_of_files_are_tables(model, tmp_path):
    wanted = model.predict_proba(NEW)
    rows = NEW.astype(object).where(NEW.notna(), None).to_dict("records")
    assert_allclose(model.predict_proba(rows), wanted, rtol=1e-5)
    paths = [tmp_path / "a.parquet", str(tmp_path / "b.parquet")]
    NEW[:20].to_parquet(paths[0])
    NEW[20:].to_parquet(paths[1])
    assert_allclose(model.predict_proba(paths), wanted, rtol=1e-5)
    assert small().fit(paths, "delayed").labels_.counts.sum() == len(NEW)
    with pytest.raises(TypeError, match=r"a\.parquet and 1 more; partial_fit takes the rows of a chunk"):
        small().partial_fit(paths, "delayed")
    for one in (NEW.iloc[0], NEW["hour"]):
        with pytest.raises(TypeError, match="a Series is not a table"):
            model.predict(one)


def test_cells_that_cannot_be_read_are_warned_of_in_frames_as_in_files(model, tmp_path):
    frame = NEW.assign(hour=["seven", *NEW["hour"][1:].astype(str)])
    frame.to_csv(tmp_path / "new.csv", index=False)
    for method in (model.predict_proba, model.transform, model.score):
        for X, name in ((frame, "the data frame"), (tmp_path / "new.csv", "new.csv")):
            with pytest.warns(UserWarning, match=f"{name}: column 'hour' should be numeric.*seven"):
                method(X)
    missing = frame.assign(hour=[None, *frame["hour"][1:]], carrier="ZZ")  # a level is no such cell
    assert len(model.predict_proba(missing)) == len(missing)
    assert model.score(missing) > 0.5


def test_unseen_categories_of_files_are_warned_of(model, tmp_path):
    NEW.assign(carrier="ZZ").to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(UserWarning, match="'ZZ'"):
        model.predict(tmp_path / "t.csv")


@pytest.mark.parametrize("kind", ["Categorical", "Enum", "String"])
def test_polars_gives_the_same_model(model, kind):
    polars = pytest.importorskip("polars")
    types = {"Categorical": polars.Categorical, "Enum": polars.Enum(["AA", "DL", "UA", "US"])}
    frames = [
        polars.from_pandas(frame).with_columns(
            polars.col("carrier").cast(types.get(kind, polars.String))
        )
        for frame in (flights(), NEW)
    ]
    other = small().fit(frames[0], "delayed")
    assert_allclose(other.predict_proba(frames[1]), model.predict_proba(NEW), rtol=1e-6)
    labels = small().fit(frames[0].drop("delayed"), frames[0]["delayed"])
    assert_allclose(labels.predict_proba(frames[1].drop("delayed")), model.predict_proba(NEW), rtol=1e-6)


def test_arrays_and_numbered_frames_have_columns_by_number():
    X = np.random.default_rng(0).normal(size=(60, 3))
    X[:, 2], X[5, 0] = 1.0, np.nan
    y = X[:, 1] > 0
    by_array, by_frame = small().fit(X, y), small().fit(pd.DataFrame(X), y)
    assert by_array.columns_ == by_frame.columns_ == ["x0", "x1"]
    assert by_array.n_features_in_ == 2
    assert "'x2' is always 1 and is left out" in by_array.notes_
    assert_allclose(by_array.predict_proba(X), by_frame.predict_proba(pd.DataFrame(X)))
    strings = np.array([["a", 1.0], ["b", 2.0]] * 20, dtype=object)
    assert small().fit(strings, strings[:, 0]).columns_ == ["x0", "x1"]
    with pytest.raises(SourceError, match="X has 2 features, but TableClassifier is expecting 3"):
        by_array.predict(X[:, :2])


def test_a_stream_learns_its_columns_from_the_first_chunk():
    frame = flights(600)
    stream = small()
    for start in range(0, 600, 200):
        chunk = frame[start : start + 200]
        y = chunk["delayed"] if start else "delayed"  # a column, or an array
        assert stream.partial_fit(chunk if start == 0 else chunk.drop(columns="delayed"), y) is stream
    encoders = stream.preprocessor_.encoders_
    assert encoders == small().fit(frame[:200], "delayed").preprocessor_.encoders_
    assert stream.score(NEW, NEW["delayed"]) > 0.8
    assert stream.labels_.counts.sum() == 600
    assert stream.loo_log_proba_.shape == (200,)
    assert stream.predict(NEW.assign(carrier="ZZ")).shape == (60,)
    stream.partial_fit(NEW.assign(carrier="ZZ"), "delayed")  # as in a prediction


def test_a_stream_is_that_of_the_classifier_inside():
    frame = flights(300).assign(copies=np.arange(300) % 3, extra=1.0)
    stream = small(drop_features=["extra"])
    inside = SEPClassifier(n_inducing=8, random_state=0, config={"tol": 1e-2})
    for start in (0, 150):
        chunk = frame[start : start + 150]
        stream.partial_fit(chunk, "delayed", sample_weight="copies")
        inside.partial_fit(stream.transform(chunk), chunk["delayed"], sample_weight=chunk["copies"])
    assert_allclose(stream.predict_proba(NEW), inside.predict_proba(stream.transform(NEW)), rtol=1e-6)
    assert stream.labels_.totals.sum() == frame["copies"].sum()


def test_a_stream_goes_on_from_a_fit_and_is_saved(tmp_path):
    frame = flights(300)
    model = small().fit(frame[:150], "delayed").partial_fit(frame[150:], "delayed")
    assert model.labels_.counts.sum() == 300
    model.save(tmp_path / "m.cavity")
    again = cavity.load(tmp_path / "m.cavity").partial_fit(NEW, "delayed")
    assert again.labels_.counts.sum() == 360


@pytest.mark.parametrize(
    ("chunk", "options", "words"),
    [
        (flights(40).assign(delayed="no"), {}, r"has 1 classes; pass classes="),
        (flights(1), {"classes": ["no", "yes"]}, "first chunk.*too small.*begin with more rows"),
        (flights(40), {"classes": ["no", "perhaps"]}, "'yes', which is not in classes"),
        (flights(40).drop(columns="delayed"), {}, "has no target column 'delayed'"),
    ],
)
def test_first_chunks_that_cannot_be_learned_from(chunk, options, words):
    stream = small()
    with pytest.raises(SourceError, match=words):
        stream.partial_fit(chunk, "delayed", **options)
    assert not hasattr(stream, "classes_")


def test_chunks_that_do_not_follow_the_first(model):
    stream = small().partial_fit(flights(100), "delayed", classes=["no", "yes", "never"])
    assert stream.classes_.tolist() == ["never", "no", "yes"]
    before = stream.predict_proba(NEW)
    for chunk, words in (
        (NEW.assign(delayed="perhaps"), "'perhaps', which is not among the classes"),
        (NEW.drop(columns="hour"), "lacks the column 'hour'"),
    ):
        with pytest.raises(SourceError, match=words):
            stream.partial_fit(chunk, "delayed")
    with pytest.raises(TypeError, match="partial_fit takes the rows of a chunk"):
        stream.partial_fit("flights.csv", "delayed")
    assert_array_equal(stream.predict_proba(NEW), before)

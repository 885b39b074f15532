"""Table classifiers on a cluster: Dask data frames and files give the model of one machine."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import cavity
from cavity import SEPClassifier, SourceError, TableClassifier
from cavity.data.effect_counts import TableSummariser
from cavity.data.effect_learning import learn_effects
from cavity.data.encoded import encoded_rows
from cavity.data.preprocess import TablePreprocessor
from cavity.data.source import joined
from cavity.data.table import open_table
from cavity.engines.dask.tables import TablePieces
from cavity.estimators.dask import DaskSEPClassifier
from cavity.estimators.table_input import as_table
from dask_clusters import QUIET, started
from flights_table import flights

SHORT = {"n_inducing": 6, "max_epochs": 12, "random_state": 0}
FRAME = flights(200).assign(copies=np.arange(200) % 3)
NEW = flights(50, seed=1)
pytestmark = [*QUIET, pytest.mark.filterwarnings("ignore:.*stopped after .* iterations")]


@pytest.fixture(scope="module")
def client():
    with started(1) as client:
        yield client


@pytest.fixture(scope="module")
def local():
    return TableClassifier(SEPClassifier(**SHORT)).fit(FRAME, "delayed", "copies")


@pytest.fixture(scope="module")
def model(client):
    rows = dd.from_pandas(FRAME, npartitions=4)
    rows = dd.concat([rows, rows.partitions[0].query("distance < 0")])  # an empty partition
    return TableClassifier(DaskSEPClassifier(client=client, **SHORT)).fit(rows, "delayed", "copies")


def test_a_dask_frame_gives_the_model_of_one_machine(local, model):
    assert type(model.estimator_) is SEPClassifier
    assert_array_equal(model.get_feature_names_out(), local.get_feature_names_out())
    assert model.labels_.counts.tolist() == local.labels_.counts.tolist()
    assert_allclose(model.predict_proba(NEW), local.predict_proba(NEW), rtol=1e-3)
    assert_allclose(model.loo_log_proba_, local.loo_log_proba_, atol=1e-3)


def test_predictions_of_a_dask_frame_are_lazy(local):
    rows = dd.from_pandas(NEW, npartitions=3)
    rows = dd.concat([rows, rows.partitions[0].query("distance < 0")])
    lazy = local.predict_proba(rows)
    assert type(lazy).__module__.startswith("dask")
    assert_allclose(lazy.compute(), local.predict_proba(NEW), rtol=1e-6)
    assert_array_equal(local.predict(rows).compute(), local.predict(NEW))
    split, known = local.predict_uncertainty(rows, level=0.5), local.predict_uncertainty(NEW, 0.5)
    assert_allclose(split.total.compute(), known.total, rtol=1e-6)
    assert_allclose(split.interval.lower.compute(), known.interval.lower, rtol=1e-6)
    with pytest.raises(SourceError, match="lacks the column 'hour'"):
        local.predict(rows.drop(columns="hour"))


def test_a_model_that_was_fitted_on_a_cluster_is_saved_without_it(model, tmp_path):
    model.save(tmp_path / "m.cavity")
    again = cavity.load(tmp_path / "m.cavity")
    assert type(again.estimator) is SEPClassifier
    assert_array_equal(again.predict_proba(NEW), model.predict_proba(NEW))


def test_a_clone_keeps_its_client(client):
    inside = DaskSEPClassifier(client=client, n_inducing=7)
    assert clone(TableClassifier(inside)).estimator.client is client
    assert clone(inside).n_inducing == 7


def test_files_on_a_cluster(local, client, tmp_path):
    FRAME.to_parquet(tmp_path / "t.parquet", row_group_size=70)
    estimator = DaskSEPClassifier(client=client, **SHORT)
    found = TableClassifier(estimator).fit(tmp_path / "t.parquet", "delayed", "copies")
    assert_allclose(found.predict_proba(NEW), local.predict_proba(NEW), rtol=1e-3)


def test_a_wrong_place_is_said_before_work_starts(client):
    rows = dd.from_pandas(FRAME, npartitions=2)
    with pytest.raises(TypeError, match=r"wrap a classifier of Dask.*pass X.compute"):
        TableClassifier().fit(rows, "delayed")
    with pytest.raises(SourceError, match="y is a Series; for the Dask data frame, it is the name"):
        TableClassifier(DaskSEPClassifier(client=client)).fit(rows, rows["delayed"])
    with pytest.raises(SourceError, match=r"is in memory, .*dask.dataframe.from_pandas"):
        TableClassifier(DaskSEPClassifier(client=client)).fit(FRAME, "delayed")
    with pytest.raises(ValueError, match=r"'carrier'.*use TableClassifier"):
        DaskSEPClassifier(client=client).fit(rows.drop(columns="delayed"), rows["delayed"])


def coded(n=2_900, seed=0):
    """A code that decides the label, some rows without a label, and some of weight 0."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"code": rng.integers(0, 40, n), "word": rng.choice(list("abcde"), n)})
    score = 3.0 * np.sin(40.0 * frame["code"]) + (frame["word"] == "b") + rng.logistic(size=n)
    frame["y"] = np.where(score > 0, "yes", "no")
    frame.loc[::31, "y"] = None
    return frame.assign(w=np.arange(n) % 5)


FIXED = {"residual_scale": 1.0, "trace_penalty": 1.0, "kernel_name": "matern32"}
CODED = {"n_inducing": 10, "scaling": "robust", "max_epochs": 3, "random_state": 0, "config": FIXED}


def test_held_out_rows_choose_effects_on_a_cluster_as_on_one_machine(client):
    data = coded()
    local = TableClassifier(SEPClassifier(**CODED, n_jobs=1)).fit(data, "y", "w")
    rows = dd.from_pandas(data, npartitions=5)
    model = TableClassifier(DaskSEPClassifier(client=client, **CODED)).fit(rows, "y", "w")
    assert "effect of code" in model.get_feature_names_out()
    assert_array_equal(model.get_feature_names_out(), local.get_feature_names_out())
    assert_array_equal(model.estimator_.feature_names_in_, local.get_feature_names_out())
    assert model.notes_ == local.notes_
    assert model.config_.feature_set == local.config_.feature_set
    for ours, theirs in zip(model.preprocessor_.effects_, local.preprocessor_.effects_, strict=True):
        assert_allclose(ours.table, theirs.table, atol=1e-12)
    assert model.n_validation_rows_ == local.n_validation_rows_
    # The rows see the same effects in training: the learned kernels are alike.
    assert_allclose(model.predict_proba(data), local.predict_proba(data), atol=0.05)


def test_the_rows_of_a_cluster_see_the_effects_of_one_machine(client, tmp_path):
    """Partitions without rows, row groups, and a text file in the middle: the numbers are the same."""
    data = coded(1_300)
    table, preprocessor = open_table(data), TablePreprocessor()
    classes = preprocessor.learn(table, "y", "w").finish()
    held_out = np.arange(0, 800, 17)

    def learned(summarise):
        n_rows = int(classes.counts.sum())
        return learn_effects(
            summarise, preprocessor.encoders_, n_rows, np.ones(2), ["no", "yes"], held_out, "pairs"
        )

    effects = learned(TableSummariser(table, preprocessor.typed, classes, "w"))
    expected = joined(list(encoded_rows(table, preprocessor, classes, "w", effects)))
    data.to_parquet(tmp_path / "t.parquet", row_group_size=300)
    (tmp_path / "texts").mkdir()
    for i, part in enumerate(np.array_split(np.arange(1_300), 3)):
        data.iloc[part].to_csv(tmp_path / "texts" / f"{i}.csv", index=False)
    frame = dd.from_pandas(data, npartitions=4)
    frame = dd.concat([frame.partitions[0].query("code < 0"), frame])
    for rows in (frame, tmp_path / "t.parquet", tmp_path / "texts"):
        pieces = TablePieces(as_table(rows, client), preprocessor, classes, "w", client)
        lazy = pieces.lazy_table(learned(pieces))
        found = [future.result() for future in client.compute(lazy.partitions)]
        assert_array_equal(np.concatenate([part.X for part in found]), expected.X)
        assert_array_equal(lazy.reserved, held_out)


def test_validation_tables_on_a_cluster(client):
    rows, judges = dd.from_pandas(FRAME, npartitions=2), NEW.assign(copies=1)
    inside = DaskSEPClassifier(client=client, **SHORT)
    found = TableClassifier(inside).fit(rows, "delayed", "copies", X_val=judges)
    local = TableClassifier(SEPClassifier(**SHORT)).fit(FRAME, "delayed", "copies", X_val=judges)
    assert found.n_validation_rows_ == local.n_validation_rows_ == 50
    assert_allclose(found.predict_proba(NEW), local.predict_proba(NEW), rtol=1e-2)

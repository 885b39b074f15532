"""Table classifiers on a cluster: Dask data frames and files give the model of one machine."""

import dask.dataframe as dd
import numpy as np
import pytest
from dask_clusters import QUIET, started
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import cavity
from cavity import SEPClassifier, SourceError, TableClassifier
from cavity.estimators.dask import DaskSEPClassifier
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
    assert_allclose(split.total.compute(), known.total)
    assert_allclose(split.interval.lower.compute(), known.interval.lower)
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

"""Weights and many classes on a cluster: what they are on one machine."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from cavity import SEPClassifier, SourceError, SVIClassifier
from cavity.engines.dask import layout
from cavity.estimators.dask import DaskSEPClassifier, DaskSVIClassifier
from dask_clusters import QUIET, chunked, started
from support import make, table

SHORT = {"n_inducing": 6, "max_epochs": 10, "random_state": 0}
X, LABELS = table(300)
WEIGHT = np.random.default_rng(0).integers(1, 4, len(X)).astype(float)

pytestmark = [*QUIET, pytest.mark.filterwarnings("ignore:.*stopped after .* iterations")]


@pytest.fixture(scope="module")
def client():
    with started(2) as client:
        yield client


@pytest.fixture(autouse=True, scope="module")
def small_shards():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "LEAST_ROWS", 20)
        yield


def assert_same(actual, expected, rtol=1e-8):
    assert_allclose(actual.inducing_points_, expected.inducing_points_, rtol=rtol, atol=rtol)
    assert_allclose(actual.predict_proba(X), expected.predict_proba(X), rtol=rtol, atol=rtol)
    assert_allclose(actual.loo_log_loss_, expected.loo_log_loss_, rtol=rtol)


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 3.0}])
def test_weights_count_as_on_one_machine(client, class_weight):
    local = make(SEPClassifier, **SHORT, class_weight=class_weight).fit(X, LABELS, sample_weight=WEIGHT)
    twin = make(DaskSEPClassifier, **SHORT, class_weight=class_weight, client=client)
    weight = da.from_array(WEIGHT, chunks=70)  # not the chunks of X
    assert_same(twin.fit(*chunked(X, LABELS, 100), sample_weight=weight), local)


def test_class_weight_alone_is_not_ignored(client):
    local = make(SVIClassifier, **SHORT, class_weight="balanced").fit(X, LABELS)
    twin = make(DaskSVIClassifier, **SHORT, class_weight="balanced", client=client)
    assert_same(twin.fit(*chunked(X, LABELS, 100)), local)


def test_rows_of_no_weight_are_absent(client):
    weight = (np.arange(len(X)) % 3 > 0).astype(float)
    settings = {**SHORT, "inducing_points": X[:6]}  # nothing is drawn, so nothing depends on the order
    local = make(SEPClassifier, **settings).fit(X[weight > 0], LABELS[weight > 0])
    twin = make(DaskSEPClassifier, **settings, client=client)
    twin.fit(*chunked(X, LABELS, 100), sample_weight=da.from_array(weight, chunks=100))
    assert_same(twin, local, rtol=1e-6)


def test_a_column_of_a_parquet_file_may_weigh(client, tmp_path):
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    frame.assign(label=LABELS, weight=WEIGHT).to_parquet(tmp_path / "rows.parquet")
    path = str(tmp_path / "rows.parquet")
    local = make(SEPClassifier, **SHORT).fit(path, "label", sample_weight="weight")
    twin = make(DaskSEPClassifier, **SHORT, client=client).fit(path, "label", sample_weight="weight")
    assert list(twin.feature_names_in_) == list(frame.columns)
    assert_allclose(twin.inducing_points_, local.inducing_points_, rtol=1e-8, atol=1e-8)


def test_three_classes(client):
    labels = np.array(["a", "b", "c"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)]
    for local, twin in ((SEPClassifier, DaskSEPClassifier), (SVIClassifier, DaskSVIClassifier)):
        expected = local(**SHORT).fit(X, labels)
        actual = twin(**SHORT, client=client).fit(*chunked(X, labels, 100))
        assert_same(actual, expected, rtol=1e-6)
        assert actual.predict_proba(chunked(X, labels, 100)[0]).shape == (len(X), 3)


def test_a_race_has_the_entries_and_the_winner_of_one_machine(client, monkeypatch):
    """All rows at a time, since minibatches over shards are other ones than those of an array."""
    monkeypatch.setattr(layout, "LEAST_ROWS", 500)
    rows, labels = table(2_000)
    settings = {"n_inducing": 6, "kernel_name": "matern32", "batch_size": None, "max_epochs": 15}
    local = make(SEPClassifier, **settings, random_state=0).fit(rows, labels)
    twin = make(DaskSEPClassifier, **settings, random_state=0, client=client)
    twin.fit(*chunked(rows, labels, 1_000))
    assert [e.candidate for e in twin.race_] == [e.candidate for e in local.race_]
    losses = [[e.log_loss for e in fit.race_] for fit in (twin, local)]
    assert_allclose(*losses, rtol=1e-6)
    assert twin.config_ == local.config_
    assert_allclose(twin.validation_log_loss_, local.validation_log_loss_, rtol=1e-6)
    assert_allclose(twin.predict_proba(X), local.predict_proba(X), rtol=1e-5)


@pytest.mark.parametrize(("weight", "words"), [
    (np.where(np.arange(300) == 120, -1.0, 1.0), r"partition 1: sample_weight of row 20 is -1\.0"),
    (np.where(np.arange(300) == 7, np.nan, 1.0), "partition 0: sample_weight of row 7 is nan"),
    (np.zeros(300), "at least two classes with any weight"),
])  # fmt: skip
def test_bad_weights_are_refused_with_their_place(client, weight, words):
    with pytest.raises(ValueError, match=words):
        make(DaskSEPClassifier, **SHORT, client=client).fit(
            *chunked(X, LABELS, 100), sample_weight=da.from_array(weight, chunks=100)
        )


def test_weights_that_are_not_of_the_cluster_are_refused(client, tmp_path):
    with pytest.raises(TypeError, match="sample_weight is a ndarray"):
        make(DaskSEPClassifier, **SHORT, client=client).fit(
            *chunked(X, LABELS, 100), sample_weight=WEIGHT
        )
    pd.DataFrame({"x": [0.0, 1.0], "y": [0, 1]}).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(SourceError, match="name of a column other than the target"):
        make(DaskSEPClassifier, **SHORT, client=client).fit(
            str(tmp_path / "rows.parquet"), "y", sample_weight="w"
        )

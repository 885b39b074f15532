"""The twins give what the local classifiers give, whatever the workers and the partitions."""

import inspect
import pickle

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import cavity
from cavity import SEPClassifier, SVIClassifier
from cavity.data import statistics
from cavity.engines.dask import layout
from cavity.estimators.dask import DaskSEPClassifier, DaskSVIClassifier
from cavity.estimators.facts import fit_facts
from dask_clusters import QUIET, chunked, started
from support import make, recalibrate, table

PAIRS = [(SEPClassifier, DaskSEPClassifier), (SVIClassifier, DaskSVIClassifier)]
SHORT = {"n_inducing": 6, "max_epochs": 6, "random_state": 0}
X, LABELS = table(420)
Y = np.array(["no", "yes"])[LABELS]

pytestmark = [*QUIET, pytest.mark.filterwarnings("ignore:.*stopped after .* iterations")]


@pytest.fixture(scope="module")
def client():
    with started(1) as client:
        yield client


@pytest.fixture(autouse=True, scope="module")
def small_shards():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "LEAST_ROWS", 20)  # 16 shards
        yield


def parameters(model):
    return np.concatenate([model.kernel_.theta, model.inducing_points_.ravel()])


def assert_same_fit(actual, expected, rtol=1e-9):
    assert_allclose(parameters(actual), parameters(expected), rtol=rtol, atol=rtol)
    assert_allclose(
        actual.log_marginal_likelihood_value_, expected.log_marginal_likelihood_value_, rtol=rtol
    )
    assert_allclose(actual.predict_proba(X), expected.predict_proba(X), rtol=rtol, atol=rtol)
    loo = actual.loo_log_proba_
    values = loo.compute() if actual.client is None else actual.client.compute(loo).result()
    assert_allclose(values, expected.loo_log_proba_, rtol=1e-8, atol=1e-9)
    assert_array_equal(actual.classes_, expected.classes_)


@pytest.mark.parametrize(("local", "twin"), PAIRS)
def test_constructors_differ_by_the_client_only(local, twin):
    ours, theirs = inspect.signature(twin).parameters, inspect.signature(local).parameters
    assert {name: ours[name].default for name in ours if name != "client"} == {
        name: parameter.default for name, parameter in theirs.items()
    }
    assert ours["client"].default is None
    assert {**local().get_params(), "client": None} == twin().get_params()


@pytest.fixture(scope="module")
def expected():
    return {local: local(**SHORT).fit(X, Y) for local, _ in PAIRS}


@pytest.fixture(scope="module")
def twins(client):
    return {twin: twin(**SHORT, client=client).fit(*chunked(X, Y, 100)) for _, twin in PAIRS}


MINIBATCHES = {"n_inducing": 6, "batch_size": 50, "max_epochs": 2, "random_state": 0}


def test_any_number_of_workers_gives_the_local_fit_and_the_same_bits(client, twins, expected):
    one = make(DaskSEPClassifier, **MINIBATCHES, client=client).fit(*chunked(X, Y, 100))
    with started(3) as three_workers:
        for local, twin in PAIRS:
            assert_same_fit(twins[twin], expected[local])
            model = twin(**SHORT, client=three_workers).fit(*chunked(X, Y, 100))
            assert_same_fit(model, expected[local])
            assert_array_equal(parameters(model), parameters(twins[twin]))
        model = make(DaskSEPClassifier, **MINIBATCHES, client=three_workers).fit(*chunked(X, Y, 300))
        assert_array_equal(parameters(model), parameters(one))
    assert one.score(X, Y) > 0.8
    other = make(DaskSEPClassifier, **{**MINIBATCHES, "random_state": 1}, client=client)
    assert not np.array_equal(parameters(one), parameters(other.fit(*chunked(X, Y, 300))))


def test_validation_rows_of_the_user_judge_as_in_a_local_fit(client):
    given = {"X_val": X[:100] + 0.1, "y_val": Y[:100]}
    expected = SEPClassifier(**SHORT).fit(X, Y, **given)
    model = DaskSEPClassifier(**SHORT, client=client).fit(*chunked(X, Y, 100), **given)
    assert_same_fit(model, expected)
    assert model.n_validation_rows_ == 100
    assert_allclose(model.validation_log_loss_, expected.validation_log_loss_, rtol=1e-8)


@pytest.mark.parametrize(
    "chunks", [420, (1, 1, 400, 18), (0, 150, 0, 270, 0)], ids=["one", "one-row", "empty"]
)
def test_partitions_change_nothing_not_even_a_bit(client, twins, chunks):
    model = make(DaskSEPClassifier, **SHORT, client=client).fit(*chunked(X, Y, chunks))
    assert_array_equal(parameters(model), parameters(twins[DaskSEPClassifier]))


@pytest.mark.parametrize("settings", [
    {"site_storage": "factors", "batch_size": 60, "max_epochs": 2},
    {"early_stopping": "validation", "max_epochs": 10},
    {"exact_gradient": True, "max_epochs": 5},
    {"optimizer": None, "max_epochs": 50},
    {"likelihood": "logit", "max_epochs": 5, "scaling": None},
    {"max_epochs": 5, "scaling": "whiten"},
    {"max_epochs": 5, "scaling": "robust"},
    {"max_epochs": 5, "scaling": "quantile"},
])  # fmt: skip
def test_options_work_as_on_one_machine(client, settings):
    model = make(DaskSEPClassifier, n_inducing=6, random_state=0, **settings, client=client)
    model.fit(*chunked(X, Y, 150))
    local = make(SEPClassifier, n_inducing=6, random_state=0, **settings).fit(X, Y)
    if "batch_size" in settings:
        assert abs(model.score(X, Y) - local.score(X, Y)) < 0.05
    else:
        assert_same_fit(model, local, rtol=1e-8)


@pytest.mark.parametrize("kind", ["robust", "quantile"])
@pytest.mark.parametrize("most", [420, 100])
def test_scalings_from_a_sample_are_equal(client, kind, most, monkeypatch):
    monkeypatch.setattr(statistics, "MOST_ROWS", most)
    settings = {**SHORT, "max_epochs": 1, "scaling": kind}
    there = make(DaskSEPClassifier, **settings, client=client).fit(*chunked(X, Y, 150))
    here = make(SEPClassifier, **settings).fit(X, Y)
    assert pickle.dumps(here.model_.scaling) == pickle.dumps(there.model_.scaling)


def test_gradient_steps_of_the_bound_work_too(client):
    settings = {"posterior_update": "gradient", "n_inducing": 4, "max_epochs": 5, "random_state": 0}
    model = make(DaskSVIClassifier, **settings, client=client).fit(*chunked(X, Y, 150))
    assert_same_fit(model, make(SVIClassifier, **settings).fit(X, Y), rtol=1e-7)


def frame():
    data = pd.DataFrame(X, columns=["a", "b"])
    data["target"] = Y
    return data


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_data_frames_and_parquet_files(client, expected, tmp_path):
    lazy = dd.from_pandas(frame(), npartitions=5)
    model = make(DaskSEPClassifier, **SHORT, client=client).fit(lazy[["a", "b"]], lazy["target"])
    assert_same_fit(model, expected[SEPClassifier])
    assert list(model.feature_names_in_) == ["a", "b"]
    folder = tmp_path / "rows"
    folder.mkdir()
    for i in range(3):
        frame().iloc[140 * i : 140 * (i + 1)].to_parquet(folder / f"part-{i}.parquet", index=False)
    for path in (folder, f"file://{folder}"):
        again = make(DaskSEPClassifier, **SHORT, client=client).fit(path, "target")
        assert_array_equal(parameters(again), parameters(model))
    answer = model.predict(lazy[["a", "b"]])
    assert hasattr(answer, "dask")
    assert_array_equal(answer.compute(), expected[SEPClassifier].predict(X))
    with pytest.raises(ValueError, match=r"columns are \['b', 'a'\]"):
        model.predict(lazy[["b", "a"]]).compute(scheduler="synchronous")


def test_predictions_are_lazy_and_those_of_one_machine(client, twins, expected):
    local, model = expected[SEPClassifier], twins[DaskSEPClassifier]
    rows, labels = chunked(X, Y, (0, 1, 250, 169))
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        answer = getattr(model, method)(rows)
        assert hasattr(answer, "dask")
        assert answer.shape == getattr(local, method)(X).shape
        truth = getattr(local, method)(X)
        if method == "predict":
            assert_array_equal(client.compute(answer).result(), truth)
        else:
            assert_allclose(client.compute(answer).result(), truth, rtol=1e-8, atol=1e-8)
    mean, variance = model.latent_mean_and_variance(rows)
    assert_allclose(mean.compute(), local.latent_mean_and_variance(X)[0], atol=1e-8)
    assert_allclose(variance.compute(), local.latent_mean_and_variance(X)[1], atol=1e-8)
    assert_allclose(model.score(rows, labels), local.score(X, Y))
    split, known = model.predict_uncertainty(rows, 0.8), local.predict_uncertainty(X, 0.8)
    for part, truth in zip([*split[:3], *split.interval], [*known[:3], *known.interval], strict=True):
        assert hasattr(part, "dask")
        assert part.shape == truth.shape
    assert_allclose(split.interval.upper.compute(), known.interval.upper, atol=1e-8)
    assert_allclose(split.epistemic.compute(), known.epistemic, atol=1e-8)
    assert_allclose(model.ood_score(rows).compute(), local.ood_score(X), atol=1e-8)
    assert_allclose(model.predict_uncertainty(X).total, known.total, atol=1e-8)
    with pytest.raises(ValueError, match="has 1 features"):
        model.predict(rows[:, :1])


def test_a_fitted_twin_can_be_pickled_without_its_cluster(twins):
    model = twins[DaskSEPClassifier]
    copy = pickle.loads(pickle.dumps(model))
    assert copy.client is None
    assert_array_equal(copy.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(("local", "twin"), PAIRS)
def test_a_local_classifier_predicts_and_saves_alike(twins, expected, tmp_path, local, twin):
    model = twins[twin]
    ours = model.to_local()
    assert type(ours) is local
    assert not hasattr(ours, "client")
    assert ours.get_params() == local(**SHORT).get_params()
    assert_array_equal(ours.predict_proba(X), model.predict_proba(X))
    assert_allclose(ours.loo_log_proba_, expected[local].loo_log_proba_, rtol=1e-8, atol=1e-9)
    assert ours.history_ == model.history_
    assert vars(ours).keys() == vars(expected[local]).keys()
    ours.save(tmp_path / "ours.cavity")
    model.save(tmp_path / "model.cavity")
    for name in ("ours", "model"):
        again = cavity.load(tmp_path / f"{name}.cavity")
        assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        assert_array_equal(again.loo_log_proba_, ours.loo_log_proba_)


@pytest.mark.parametrize(("local", "twin"), PAIRS)
def test_facts_name_the_method_of_a_twin(twins, expected, local, twin):
    ours = fit_facts(expected[local]).as_words()["Method"]
    assert fit_facts(twins[twin]).as_words()["Method"] == f"Dask{ours}"
    assert ours.endswith(f"({local.__name__[:3]})")


def test_a_calibrated_twin_predicts_as_on_one_machine(client, twins, tmp_path, monkeypatch):
    model = twins[DaskSEPClassifier]
    monkeypatch.setattr(model, "model_", model.model_)  # comes back after the test
    assert model.residual_variance_scale_ == 1.0
    before = model.predict_proba(X)
    recalibrate(model, 1.3, 0.05)
    rows, _ = chunked(X, Y, 100)
    local = model.to_local()
    assert (local.inverse_temperature_, local.residual_variance_scale_) == (1.3, 0.05)
    assert not np.allclose(local.predict_proba(X), before, atol=1e-3)
    for method in ("predict_proba", "ood_score"):
        lazy = client.compute(getattr(model, method)(rows)).result()
        assert_allclose(lazy, getattr(local, method)(X), rtol=1e-12)
    model.save(tmp_path / "model.cavity")
    again = cavity.load(tmp_path / "model.cavity")
    assert_array_equal(again.predict_proba(X), local.predict_proba(X))


def test_a_local_classifier_after_the_cluster_was_closed():
    with started(1) as own:
        model = DaskSEPClassifier(**SHORT, client=own).fit(*chunked(X, Y, 200))
    local = model.to_local()
    assert_array_equal(local.predict_proba(X), model.predict_proba(X))
    assert local.loo_log_proba_.shape == (420,)
    assert np.isnan(local.loo_log_proba_).all()


def test_evidence_at_other_parameters(twins, expected):
    local, model = expected[SEPClassifier], twins[DaskSEPClassifier]
    theta = model.kernel_.theta + 0.1
    assert_allclose(
        model.log_marginal_likelihood(theta), local.log_marginal_likelihood(theta), rtol=1e-7
    )


def test_warm_starts(client):
    settings, data = {**SHORT, "max_epochs": 3, "warm_start": True}, chunked(X, Y, 100)
    model = DaskSEPClassifier(**settings, client=client).fit(*data).fit(*data)
    assert_same_fit(model, SEPClassifier(**settings).fit(X, Y).fit(X, Y), rtol=1e-8)


def test_without_a_client_a_cluster_is_made_and_closed(capsys, expected):
    model = make(DaskSEPClassifier, **SHORT, n_jobs=2, verbose=2).fit(*chunked(X, Y, 100))
    assert_same_fit(model, expected[SEPClassifier])
    said = capsys.readouterr().err
    assert "dashboard: http" in said
    assert "rows/s  2 workers" in said
    with pytest.raises(ValueError, match="needs the training rows"):
        model.log_marginal_likelihood(model.kernel_.theta)


@pytest.mark.parametrize(("rows", "labels", "error", "words"), [
    (X, Y, TypeError, "X is a ndarray"),
    (chunked(X, Y, 100)[0], Y, TypeError, "y is a ndarray"),
    (chunked(X, Y, 100)[0], chunked(X[:300], Y[:300], 100)[1], ValueError, "5 partitions and y has 3"),
    ("nowhere/at/all", "y", ValueError, "no such file"),
    ("nowhere/at/all", None, ValueError, "name of the target column"),
])  # fmt: skip
def test_bad_input_is_refused_before_any_work(rows, labels, error, words):
    with pytest.raises(error, match=words):
        DaskSEPClassifier(client=None).fit(rows, labels)


@pytest.mark.parametrize("labels", [
    pd.Series(["a", "b", "a", pd.NA], dtype="string"),
    pd.Series([True, False, True, pd.NA], dtype="boolean"),
    pd.Series(pd.to_datetime(["2026-01-01", "2026-01-02", "2026-01-01", None])),
    pd.Series(["a", "b", "a", None], dtype="category"),
    pd.Series([1.0, 0.0, 1.0, np.nan]),
], ids=lambda labels: str(labels.dtype))  # fmt: skip
def test_missing_labels_are_refused_whatever_stands_for_them(client, labels):
    frame = dd.from_pandas(pd.DataFrame({"x": np.arange(4.0), "y": labels}), npartitions=2)
    with pytest.raises(ValueError, match="y has missing values in partition 1; drop their rows"):
        DaskSEPClassifier(client=client).fit(frame[["x"]], frame["y"])


def test_bad_rows_are_refused_with_their_place(client):
    spoiled = X.copy()
    spoiled[130, 1] = np.nan
    with pytest.raises(ValueError, match="nan in partition 1, row 30, column 1"):
        DaskSEPClassifier(client=client).fit(*chunked(spoiled, Y, 100))
    with pytest.raises(ValueError, match="one class"):
        DaskSEPClassifier(client=client).fit(*chunked(X, np.zeros(420, int), 100))
    with pytest.raises(TypeError, match="pass a distributed"):
        DaskSEPClassifier(client="tcp://nowhere:1").fit(*chunked(X, Y, 100))

"""Preprocessing inside the graph: scikit-learn's steps, and columns of any kind of a table."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from onnx_serving import run, run_columns
from sklearn.gaussian_process.kernels import RBF
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    StandardScaler,
)

from cavity import SEPClassifier, TableClassifier
from cavity.data.columns import PARTS
from cavity.data.values import DATE_PARTS, Values
from cavity.export.onnx import to_onnx
from cavity.export.onnx.graph import Graph
from cavity.export.onnx.preprocessing import _part, _parts
from support import table

X, LABELS = table(80, d=3)
X = 5.0 + 3.0 * X
HOLES = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
HOLES[:, 1] = X[:, 1]


def pipeline(*steps):
    fit = SEPClassifier(RBF(1.5), optimizer=None, n_inducing=12, n_jobs=1, random_state=0)
    return make_pipeline(*steps, fit)


def assert_served(fit, rows):
    served = run(to_onnx(fit, input_dtype="float64"), rows, dtype=np.float64)
    assert_allclose(served["probabilities"], fit.predict_proba(rows), atol=1e-9)
    single = run(to_onnx(fit), rows)
    # Half of the rounding of float32 rows, not of the graph.
    assert_allclose(single["probabilities"], fit.predict_proba(rows), atol=1e-5)


@pytest.mark.parametrize(
    "steps",
    [
        [StandardScaler()],
        [StandardScaler(with_mean=False)],
        [StandardScaler(with_std=False)],
        [MinMaxScaler()],
        [MinMaxScaler((-1, 2), clip=True)],
        [MaxAbsScaler()],
        ["passthrough", StandardScaler(), MinMaxScaler()],
    ],
    ids=str,
)
def test_scalers(steps):
    fit = pipeline(*steps).fit(X, LABELS)
    assert_served(fit, np.vstack([X, 2.0 * X - 7.0]))


@pytest.mark.parametrize("strategy", ["mean", "median", "most_frequent", "constant"])
@pytest.mark.parametrize("indicator", [False, True])
def test_imputers(strategy, indicator):
    fit = pipeline(SimpleImputer(strategy=strategy, add_indicator=indicator), StandardScaler())
    assert_served(fit.fit(HOLES, LABELS), HOLES)


def test_an_imputer_of_a_marker_and_of_an_empty_column():
    marked = np.where(np.isnan(HOLES), -1.0, HOLES)
    assert_served(pipeline(SimpleImputer(missing_values=-1)).fit(marked, LABELS), marked)
    empty = np.column_stack([HOLES, np.full(len(X), np.nan)])
    fit = pipeline(SimpleImputer())
    with pytest.warns(UserWarning, match="Skipping features"):
        fit.fit(empty, LABELS)
    served = run(to_onnx(fit), empty)["probabilities"]
    with pytest.warns(UserWarning, match="Skipping features"):
        assert_allclose(served, fit.predict_proba(empty), atol=1e-5)


def test_other_steps_are_refused_by_name():
    fit = pipeline(PolynomialFeatures()).fit(X, LABELS)
    with pytest.raises(TypeError, match="'PolynomialFeatures' has no ONNX form"):
        to_onnx(fit)


pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")


def frame(n=120, seed=0, offset=0.0):
    rng = np.random.default_rng(seed)
    day = pandas.Timestamp("2019-11-03") + pandas.to_timedelta(rng.integers(0, 2_000, n), "D")
    columns = {
        "age": rng.normal(40.0, 10.0, n) + offset,
        "income": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
        "member": rng.random(n) < 0.5,
        "city": rng.choice(["Rome", "Oslo", "Bonn"], n),
        "pet": rng.choice(["cat", "dog"], n),
        "plan": [None if r < 0.2 else "basic" if r < 0.6 else "full" for r in rng.random(n)],
        "joined": day + pandas.to_timedelta(rng.integers(0, 86_400, n), "s"),
    }
    table = pandas.DataFrame(columns)
    table["joined"] = table["joined"].astype("datetime64[us]").where(rng.random(n) > 0.1)
    return table


def labels(table):
    return np.where((table["age"] > table["age"].median()) ^ (table["city"] == "Rome"), "yes", "no")


def served_columns(table, dtype=np.float32):
    """What a client makes of a data frame."""
    columns = {}
    for name, column in table.items():
        if column.dtype.kind == "M":
            values = column.to_numpy().astype("datetime64[us]").astype(np.int64)
        elif column.dtype.kind in "fib":
            values = column.to_numpy().astype(dtype)
        else:
            values = np.array(["" if pandas.isna(cell) else cell for cell in column], dtype=object)
        columns[name] = values[:, None]
    return columns


def fitted(table, **options):
    classifier = SEPClassifier(RBF(3.0), n_inducing=20, optimizer=None, random_state=0, n_jobs=1)
    return TableClassifier(classifier, **options).fit(table, labels(table))


def test_every_kind_of_column_and_missing_cells():
    table = frame()
    model = fitted(table)
    exported = to_onnx(model)
    for rows in (table, frame(seed=1)):
        served = run_columns(exported, served_columns(rows))
        assert_allclose(served["probabilities"], model.predict_proba(rows), atol=1e-5)
        clear = np.abs(served["probabilities"][:, 1] - 0.5) > 1e-4
        assert_array_equal(served["label"][clear], model.predict(rows)[clear])


def test_levels_that_training_had_not():
    table = frame()
    strange = table.assign(city="Lima", pet="newt", plan="none")
    model = fitted(table)
    served = run_columns(to_onnx(model), served_columns(strange))["probabilities"]
    assert_allclose(served, model.predict_proba(strange), atol=1e-5)


def test_rare_levels_are_one():
    table = frame()
    model = fitted(table, max_categories=2)
    served = run_columns(to_onnx(model), served_columns(table))["probabilities"]
    assert_allclose(served, model.predict_proba(table), atol=1e-5)


def test_a_table_that_needs_float64_has_such_inputs():
    table = frame(offset=1e12)
    model = fitted(table)
    assert model.preprocessor_.dtype_ == "float64"
    served = run_columns(to_onnx(model), served_columns(table, np.float64))["probabilities"]
    assert_allclose(served, model.predict_proba(table), atol=1e-5)


def test_a_whole_number_is_a_word_with_and_without_decimals():
    table = frame().assign(plan=np.where(np.arange(120) % 3, "1", "2"))
    model = fitted(table, categorical_features=["plan"])
    longer = table.assign(plan=table["plan"] + ".0")
    for rows in (table, longer):
        served = run_columns(to_onnx(model), served_columns(rows))["probabilities"]
        assert_allclose(served, model.predict_proba(table), atol=1e-5)
    assert_allclose(model.predict_proba(longer), model.predict_proba(table))


def test_an_empty_string_may_be_a_level():
    table = frame().assign(plan=np.where(np.arange(120) % 3, "", "full"))
    model = fitted(table)
    served = run_columns(to_onnx(model), served_columns(table))["probabilities"]
    assert_allclose(served, model.predict_proba(table), atol=1e-5)


def test_effects_of_values_and_pairs():
    rng = np.random.default_rng(0)
    table = frame(n=600).drop(columns="age")
    table["code"] = np.where(rng.random(600) < 0.1, np.nan, rng.integers(0, 9, 600))
    table["tenth"] = rng.integers(0, 30, 600) / 10
    table["joined"] = table["joined"].dt.floor("7D")
    table["wide"] = rng.integers(0, 60, 600) + 0.1
    y = (table["code"].fillna(4) % 3 == 0) ^ (table["city"] == "Rome") ^ (table["wide"] > 30.0)
    classifier = SEPClassifier(RBF(3.0), n_inducing=20, optimizer=None, random_state=0, n_jobs=1)
    model = TableClassifier(classifier, target_encoding="pairs").fit(table, y)
    indices = [index for effect in model.preprocessor_.effects_ for index in effect.indices]
    assert {index.values.kind for index in indices} == {"numeric", "categorical", "date"}
    assert any(index.values.part for index in indices)
    assert any(effect.cells is not None for effect in model.preprocessor_.effects_)
    strange = table.assign(code=2.5, tenth=0.1234, city=["Lima", "?", "-"] * 200)
    exported = to_onnx(model)
    for rows in (table, strange):
        served = run_columns(exported, served_columns(rows))["probabilities"]
        assert_allclose(served, model.predict_proba(rows), atol=1e-5)


def test_effects_of_triples_and_differences():
    rng = np.random.default_rng(0)
    n = 4_000
    table = pandas.DataFrame({"route": rng.choice(list("pqrst"), n), "left": rng.integers(0, 300, n)})
    length = np.array([31, 44, 60, 75, 99])[np.searchsorted(list("pqrst"), table["route"])]
    table["landed"] = (table["left"] + length + rng.integers(-9, 10, n)) % 300
    table["day"] = rng.integers(1, 9, n)
    of_day = 2.0 * rng.normal(size=9)[table["day"]]
    score = 2.0 * np.sign((table["landed"] - table["left"]) % 300 - length) + of_day
    y = score + rng.logistic(size=n) > 0.0
    classifier = SEPClassifier(RBF(3.0), n_inducing=20, optimizer=None, random_state=0, n_jobs=1)
    model = TableClassifier(classifier, target_encoding="pairs").fit(table, y)
    effects = model.preprocessor_.effects_
    assert {1, 2, 3} == {len(effect.indices) for effect in effects}
    assert any(index.values.minus for effect in effects for index in effect.indices)
    strange = table.assign(landed=np.where(rng.random(n) < 0.5, np.nan, 1e6), left=2.5)
    exported = to_onnx(model)
    for rows in (table, strange):
        served = run_columns(exported, served_columns(rows, np.float64))["probabilities"]
        assert_allclose(served, model.predict_proba(rows), atol=1e-5)


def test_values_that_float32_does_not_tell_apart():
    table = frame().assign(account=np.arange(120) % 10 + 1_234_567_890)
    model = fitted(table, target_encoding=True)
    exported = to_onnx(model)
    served = run_columns(exported, served_columns(table, np.float64))["probabilities"]
    assert_allclose(served, model.predict_proba(table), atol=1e-5)
    with pytest.raises(ValueError, match="does not tell the values of column 'account' apart"):
        to_onnx(model, input_dtype="float32")


def test_the_calendar_is_that_of_the_preprocessor():
    dates = pytest.importorskip("cavity.data.columns")
    first = datetime.date(1580, 1, 1).toordinal() - datetime.date(1970, 1, 1).toordinal()
    days = np.concatenate([first + np.arange(0, 300_000, 1), [-1, 0, 1]])
    time = days.astype(np.int64) * 86_400_000_000 + 43_201_000_001
    graph = Graph()
    for name, value in _parts(graph.input("time", np.int64, ["N", 1])).items():
        graph.output(value, name, float, ["N", 1])
    served = run_columns(graph.model("", {}), {"time": time[:, None]})
    assert dates.PARTS == PARTS
    assert_allclose(np.hstack([served[name] for name in PARTS]), dates.parts_of(time), rtol=1e-14)


def test_parts_of_dates_are_those_of_the_values():
    rng = np.random.default_rng(0)
    time = rng.integers(-(10**16), 10**16, 20_000)
    graph = Graph()
    when = graph.input("time", np.int64, ["N", 1])
    for name in DATE_PARTS:
        graph.output(_part(when, name), name.replace(" ", "_"), np.int64, ["N", 1])
    served = run_columns(graph.model("", {}), {"time": time[:, None]})
    for name in DATE_PARTS:
        expected = Values("when", "date", name).cells(pa.array(time).cast(pa.timestamp("us")))
        assert_array_equal(served[name.replace(" ", "_")][:, 0], expected.to_numpy())


def test_a_table_is_not_a_matrix():
    model = fitted(frame())
    with pytest.raises(ValueError, match='inputs="matrix" does not go with a table'):
        to_onnx(model, inputs="matrix")

"""What `cavity explain` and `cavity export` say, against the model itself and ONNX Runtime."""

import json

import numpy as np
import onnxruntime
import pandas as pd
import pytest

import cavity
from cli_runs import run, with_model
from flights_table import flights


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return with_model(tmp_path_factory.mktemp("explain"))


def test_effects_are_means_over_rows_with_one_column_set(folder):
    result = run("explain", folder / "flights.cavity", folder / "new.parquet", "--json", "-q")
    found = json.loads(result.stdout)
    shares = {row["column"]: row["share"] for row in found["relevance"]}
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert set(list(shares)[:2]) == {"hour", "carrier"}
    model, frame = cavity.load(folder / "flights.cavity"), pd.read_parquet(folder / "new.parquet")
    assert {effect["column"] for effect in found["effects"]} == set(model.columns_)
    for effect in found["effects"]:
        name = effect["column"]
        for value, mean in zip(effect["values"], effect["probability"], strict=True):
            cell = pd.Timestamp(value) if name == "date" else value
            np.testing.assert_allclose(
                mean, model.predict_proba(frame.assign(**{name: cell})).mean(axis=0), rtol=1e-5
            )


def test_an_explanation_for_people_fits_the_screen(folder):
    flights(900, seed=2).drop(columns="delayed").to_csv(folder / "many.csv", index=False)
    result = run("explain", folder / "flights.cavity", folder / "many.csv", "--top", "2", "-q")
    assert result.exit_code == 0, result.stderr
    assert "hour, mean over 500 rows:" in result.stdout
    assert "distance" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    short = run("explain", folder / "flights.cavity")
    assert "squared slope" in short.stdout
    assert "mean over" not in short.stdout
    (folder / "few.csv").write_text("hour\n1\n")
    result = run("explain", folder / "flights.cavity", folder / "few.csv")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "lacks columns 'distance'" in result.stderr


def test_a_model_is_served_by_onnx_runtime(folder):
    result = run("export", folder / "flights.cavity", "--json")
    found = json.loads(result.stdout)
    assert found["onnx"] == str(folder / "flights.onnx")
    assert found["inputs"] == ["hour", "distance", "carrier", "date", "weekend"]
    frame = flights(20, seed=4)
    date = frame["date"].to_numpy().astype("datetime64[us]").astype(np.int64)
    session = onnxruntime.InferenceSession(found["onnx"])
    kinds = {value.name: value.type for value in session.get_inputs()}
    fed = {
        name: date
        if name == "date"
        else frame[name].fillna("").astype(object).to_numpy()
        if "string" in kinds[name]
        else frame[name].to_numpy(np.float32 if "float" in kinds[name] else None)
        for name in kinds
    }
    (p,) = session.run(["probabilities"], {name: values[:, None] for name, values in fed.items()})
    model = cavity.load(folder / "flights.cavity")
    np.testing.assert_allclose(p, model.predict_proba(frame), atol=1e-5)
    assert run("export", folder / "flights.cavity").exit_code == 2
    assert run("export", folder / "flights.cavity", "-f").exit_code == 0

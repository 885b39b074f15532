"""A column of weights, in fits and in evaluations."""

import json

import numpy as np
import pandas as pd
import pytest

import cavity
from cli_runs import FIT, run, with_model
from flights_table import flights


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return with_model(tmp_path_factory.mktemp("weights"))


def test_weights_are_a_column_of_the_table(folder, tmp_path):
    frame = pd.read_parquet(folder / "new.parquet")
    copies = np.arange(200) % 3
    frame.assign(copies=copies).to_csv(tmp_path / "t.csv", index=False)
    args = ("fit", tmp_path / "t.csv", *FIT, "--weight", "copies", "-o", tmp_path / "m.cavity", "--json")
    result = run(*args)
    assert result.exit_code == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["training"]["rows"] == 133
    assert "copies" not in [column["name"] for column in summary["columns"]]
    assert "67 rows of weight 0 are left out" in result.stderr
    # The column is known and ignored, and rows of no weight are no training rows.
    out = tmp_path / "r.html"
    args = ("report", tmp_path / "m.cavity", tmp_path / "t.csv", "--training", tmp_path / "t.csv")
    result = run(*args, "-o", out)
    assert result.exit_code == 0, result.stderr
    assert "warning" not in result.stderr
    assert f"Rows are counted from 0 in {tmp_path / 't.csv'}." in out.read_text()


def test_evaluate_counts_a_row_as_often_as_its_weight_says(folder, tmp_path):
    frame = flights(90, seed=3)
    frame.loc[:4, "delayed"] = None
    copies = np.arange(90) % 3
    # What rows of no weight say does not matter: not even a class that nobody knows.
    frame.assign(copies=copies).to_csv(tmp_path / "w.csv", index=False)
    strange = np.where(copies == 0, "perhaps", frame["delayed"])
    frame.assign(copies=copies, delayed=strange).to_parquet(tmp_path / "w.parquet")
    frame.loc[frame.index.repeat(copies)].to_csv(tmp_path / "c.csv", index=False)
    copied = json.loads(run("evaluate", folder / "flights.cavity", tmp_path / "c.csv", "--json").stdout)
    for name in ("w.csv", "w.parquet"):
        args = ("evaluate", folder / "flights.cavity", tmp_path / name, "--weight", "copies")
        result = run(*args, "--json")
        assert result.exit_code == 0, result.stderr
        assert "30 rows of weight 0 are left out" in result.stderr
        assert "3 rows without a target are left out" in result.stderr
        assert "ignores" not in result.stderr
        weighted = json.loads(result.stdout)
        assert weighted["rows"] == 57
        assert weighted["weight"] == copied["rows"] == 86
        assert weighted["confusion"] == copied["confusion"]
        for score in ("nll", "error", "brier", "calibration_error", "auc", "baseline"):
            assert weighted[score] == pytest.approx(copied[score])
    text = run(*args).stdout
    assert "57 rows with a total weight of 86" in text
    assert "weight of the rows of each class" in text


def test_frequencies_of_a_weighted_fit_are_weighted(folder, tmp_path):
    frame = pd.read_parquet(folder / "new.parquet")
    weight = np.where(frame["delayed"] == "yes", 5, 1)
    frame.assign(weight=weight).to_parquet(tmp_path / "t.parquet")
    args = ("fit", tmp_path / "t.parquet", *FIT, "--weight", "weight", "-o", tmp_path / "m.cavity")
    assert run(*args).exit_code == 0
    labels = cavity.load(tmp_path / "m.cavity").labels_
    counts = frame["delayed"].value_counts()
    assert labels.counts.tolist() == [counts["no"], counts["yes"]]
    assert labels.totals.tolist() == [counts["no"], 5 * counts["yes"]]
    share = labels.totals / labels.totals.sum()
    args = ("evaluate", tmp_path / "m.cavity", tmp_path / "t.parquet", "--weight", "weight", "--json")
    baseline = json.loads(run(*args).stdout)["baseline"]
    assert baseline["nll"] == pytest.approx(-(share @ np.log(share)), abs=1e-3)

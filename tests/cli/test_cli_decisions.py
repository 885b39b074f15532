"""Decisions on the command line: the positive class, a threshold, costs of mistakes."""

import io
import json

import numpy as np
import pandas as pd
import pytest

from cli_runs import FIT, run, with_model
from flights_table import flights


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return with_model(tmp_path_factory.mktemp("decisions"))


@pytest.fixture(scope="module")
def renamed(folder):
    """A model of labels that are no opposites; the first is rarer."""
    frame = flights(200, seed=1)
    frame["delayed"] = np.where(frame["delayed"] == "yes", "on time", "late")
    rare = frame[(frame["delayed"] != "late") | (np.arange(200) % 3 == 0)]
    rare.to_csv(folder / "renamed.csv", index=False)
    result = run("fit", folder / "renamed.csv", *FIT, "-o", folder / "renamed.cavity")
    assert "positive class 'late'" in result.stderr
    return folder


def predicted(folder, model, *args):
    result = run("predict", folder / model, folder / "new.parquet", "-q", *args)
    assert result.exit_code == 0, result.stderr
    return pd.read_csv(io.StringIO(result.stdout))


def test_a_threshold_decides_the_label(folder):
    usual, lower = (predicted(folder, "flights.cavity", *a) for a in ((), ("--threshold", "0.2")))
    assert np.array_equal(usual["label"] == "yes", usual["probability_yes"] >= 0.5)
    assert np.array_equal(lower["label"] == "yes", lower["probability_yes"] >= 0.2)
    assert (usual["label"] != lower["label"]).any()


def test_a_threshold_belongs_to_the_positive_class(folder):
    frame = predicted(folder, "flights.cavity", "--positive", "no", "--threshold", "0.2")
    usual = predicted(folder, "flights.cavity")
    assert np.array_equal(frame["label"] == "no", frame["probability_no"] >= 0.2)
    assert np.allclose(frame["probability_no"], 1.0 - usual["probability_yes"])
    assert np.allclose(frame["latent_mean"], -usual["latent_mean"])


def test_costs_decide_the_label(folder):
    frame = predicted(folder, "flights.cavity", "--cost", "yes:no=4")
    assert np.array_equal(frame["label"] == "yes", frame["probability_yes"] >= 0.2)


def test_the_rarer_class_is_positive_if_no_name_says_so(renamed):
    assert "probability_late" in predicted(renamed, "renamed.cavity").columns
    text = run("inspect", renamed / "renamed.cavity").stdout
    assert "positive class: 'late'" in text
    assert json.loads(run("inspect", renamed / "renamed.cavity", "--json").stdout)["positive"] == "late"
    assert "p(late)" in run("explain", renamed / "renamed.cavity", renamed / "renamed.csv").stdout


def test_evaluate_scores_the_decision(folder):
    args = ("evaluate", folder / "flights.cavity", folder / "new.parquet", "-q")
    text = run(*args, "--threshold", "0.2").stdout
    assert "positive class: 'yes', predicted from a probability of 0.2 on" in text
    scores = json.loads(run(*args, "--cost", "yes:no=4", "--json").stdout)
    labels = predicted(folder, "flights.cavity", "--threshold", "0.2")["label"]
    truth = pd.read_parquet(folder / "new.parquet")["delayed"]
    assert scores["positive"] == "yes"
    assert scores["threshold"] == pytest.approx(0.2)
    assert scores["error"] == pytest.approx(np.mean(labels != truth))
    assert scores["cost"] == pytest.approx(
        np.mean(4.0 * ((truth == "yes") & (labels == "no")) + ((truth == "no") & (labels == "yes")))
    )
    other = json.loads(run(*args, "--positive", "no", "--json").stdout)
    assert other["positive"] == "no"
    assert other["auc"] == pytest.approx(scores["auc"], abs=1e-3)
    assert max(len(line) for line in text.splitlines()) <= 80


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--threshold", "1.5"], "--threshold 1.5 is not between 0 and 1"),
        (["--threshold", "0.2", "--cost", "yes:no=4"], "give only one of them"),
        (["--positive", "ja"], "--positive 'ja' is not a class"),
        (["--cost", "yes=4"], "write TRUE:PREDICTED=COST with two of the classes 'no', 'yes'"),
        (["--cost", "yes:no=much"], "'much' is not a positive number"),
        (["--cost", "yes:no=-1"], "'-1' is not a positive number"),
    ],
)
def test_decisions_that_mean_nothing_are_refused(folder, args, words):
    result = run("evaluate", folder / "flights.cavity", folder / "new.parquet", *args)
    assert result.exit_code == 2
    assert words in result.stderr


def test_of_more_classes_costs_decide_and_thresholds_are_refused(folder, tmp_path):
    frame = flights(150, seed=3)
    frame["delayed"] = np.array(["early", "late", "on time"])[np.arange(150) % 3]
    frame.to_csv(tmp_path / "t.csv", index=False)
    args = ["fit", tmp_path / "t.csv", *FIT, "-o", tmp_path / "m.cavity"]
    fitted = run(*args)
    assert fitted.exit_code == 0, fitted.stderr
    assert "positive class" not in fitted.stderr
    for option in (["--threshold", "0.3"], ["--positive", "late"]):
        result = run("predict", tmp_path / "m.cavity", tmp_path / "t.csv", *option)
        assert result.exit_code == 2
        assert "is for two classes, and there are 3" in result.stderr
    cost = [word for other in ("early", "on time") for word in ("--cost", f"late:{other}=1000")]
    result = run("predict", tmp_path / "m.cavity", tmp_path / "t.csv", "-q", *cost)
    assert set(pd.read_csv(io.StringIO(result.stdout))["label"]) == {"late"}

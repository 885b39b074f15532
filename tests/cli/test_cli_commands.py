"""The commands in one process: what they write, what they print and where."""

import errno
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal
from scipy.special import ndtr, ndtri
from typer.testing import CliRunner

import cavity
from cavity import SEPClassifier
from cavity.cli.app import app
from cavity.errors import ModelFileError
from cavity.estimators import endings
from cavity.estimators.facts import fit_facts
from cavity.estimators.table import TableClassifier
from flights_table import flights
from support import interrupt_at

FIT = ["--target", "delayed", "--inducing", "8", "--budget", "30 iterations"]


def run(*args):
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables and a model fitted to one of them."""
    place = tmp_path_factory.mktemp("flights")
    flights(400).to_csv(place / "flights.csv", index=False)
    flights(200, seed=1).to_parquet(place / "new.parquet")
    flights(200, seed=1).to_csv(place / "new.tsv", sep="\t", index=False)
    result = run("fit", place / "flights.csv", *FIT, "-o", place / "flights.cavity", "--json")
    assert result.exit_code == 0, result.stderr
    (place / "fit.json").write_text(result.stdout)
    return place


def test_fit_tells_machines_what_it_did(folder):
    summary = json.loads((folder / "fit.json").read_text())
    assert summary["target"] == "delayed"
    assert [c["value"] for c in summary["classes"]] == ["no", "yes"]
    assert {c["name"]: c["kind"] for c in summary["columns"]}["date"] == "date"
    assert summary["training"]["rows"] == 400
    assert summary["training"]["iterations"] <= 30
    assert summary["relevance"][0]["share"] > 0.1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fit_is_the_fit_that_python_users_call(folder):
    ours = cavity.load(folder / "flights.cavity")
    inside = SEPClassifier(n_inducing=8, max_epochs=30.0, random_state=0)
    theirs = TableClassifier(inside).fit(folder / "flights.csv", "delayed")
    frame = flights(100, seed=6)
    assert_array_equal(ours.predict_proba(frame), theirs.predict_proba(frame))
    assert vars(ours).keys() == vars(theirs).keys()
    assert ours.fit_seconds_ > ours.estimator_.fit_seconds_


def test_a_parameter_at_a_bound_is_said_in_one_line(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(endings, "_words_of_ending", lambda *_: None)
    monkeypatch.setattr(endings, "_AT", 20.0)  # wherever it ends, it is at its bounds
    result = run("fit", folder / "flights.csv", *FIT, "-o", tmp_path / "m.cavity", "--quiet")
    assert result.exit_code == 0
    lines = [line for line in result.stderr.splitlines() if "at a bound" in line]
    assert len(lines) == 1
    assert "k1__constant_value" in lines[0]
    assert lines[0].endswith("; from Python, a kernel can have wider bounds")
    assert "model.kernel_" not in result.stderr


def test_a_fit_leaves_nothing_but_its_model(folder):
    assert [path.name for path in folder.iterdir() if "flights.cavity" in path.name] == [
        "flights.cavity"
    ]
    model = cavity.load(folder / "flights.cavity")
    assert str(folder) not in repr(model.get_params())
    assert model.cache_dir is None
    for classifier in (model.estimator, model.estimator_):
        assert classifier.checkpoint is None
        assert classifier.config is None


def test_a_fit_for_people_says_it_on_standard_error(folder, tmp_path):
    result = run("fit", folder / "new.parquet", *FIT, "-o", tmp_path / "m.cavity")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "200 rows, 5 columns" in result.stderr
    assert "leave-one-out NLL" in result.stderr


def test_a_model_for_which_there_is_no_room_any_more_is_kept_elsewhere(folder, tmp_path, monkeypatch):
    output, save = tmp_path / "m.cavity", TableClassifier.save

    def saved(model, path):
        if path != output:
            return save(model, path)
        full = OSError(errno.ENOSPC, "No space left on device", str(path))
        raise ModelFileError(f"{path}: cannot be written") from full

    monkeypatch.setattr(TableClassifier, "save", saved)
    result = run("fit", folder / "new.parquet", *FIT, "-o", output)
    assert result.exit_code == 1
    *_, rescued, failure = result.stderr.splitlines()
    assert failure.endswith("m.cavity: No space left on device")
    elsewhere = Path(rescued.split("saved to ")[1].removesuffix(" instead"))
    assert cavity.load(elsewhere).predict_proba(flights(5)).shape == (5, 2)
    shutil.rmtree(elsewhere.parent)


@pytest.mark.parametrize(("before", "after"), [(["-q"], []), ([], ["--quiet"])])
def test_quiet_shows_no_progress(folder, tmp_path, before, after):
    result = run(*before, "fit", folder / "new.parquet", *FIT, "-o", tmp_path / "m.cavity", *after)
    assert "objective" not in result.stderr
    assert "a larger --budget may do better" in result.stderr
    assert "200 rows" in result.stderr


def test_columns_that_go_together_told_apart(tmp_path):
    """What makes a trip late is in none of its columns, but in the small difference of two."""
    rng = np.random.default_rng(0)
    distance, hold_up = rng.normal(size=(2, 300))
    trips = {"distance": distance, "minutes": distance + 0.02 * hold_up, "late": np.sin(2 * hold_up) > 0}
    pd.DataFrame(trips).to_csv(tmp_path / "trips.csv", index=False)
    scores = []
    for options in ([], ["--scaling", "whiten"]):
        fit = [*FIT, "--target", "late", *options, "--force", "-o", tmp_path / "m.cavity"]
        assert run("fit", tmp_path / "trips.csv", *fit).exit_code == 0
        result = run("evaluate", tmp_path / "m.cavity", tmp_path / "trips.csv", "--json")
        scores.append(json.loads(result.stdout)["nll"])
    assert scores[1] < scores[0] - 0.1


@pytest.mark.parametrize("method", ["svi", "gfitc"])
def test_other_methods_and_options(folder, tmp_path, method):
    options = ["--method", method, "--likelihood", "logit", "--drop", "date", "--drop", "distance"]
    options += ["--categorical", "weekend", "--seed", "3", "--jobs", "1"]
    result = run("fit", folder / "new.parquet", *FIT, *options, "-o", tmp_path / "m.cavity", "--json")
    assert result.exit_code == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["training"]["method"].lower().startswith(method)
    assert summary["training"]["likelihood"] == "logit"
    assert [c["name"] for c in summary["columns"]] == ["hour", "carrier", "weekend"]
    assert summary["columns"][2]["kind"] == "categorical"


def test_a_fit_scores_rows_that_it_has_not_seen(folder, tmp_path):
    """The rows that are held out are the same ones from every kind of file."""
    options = [*FIT, "--holdout", "0.25", "--cv", "2", "-o", tmp_path / "m.cavity", "--json", "--force"]
    documents = [run("fit", folder / data, *options) for data in ("new.parquet", "new.tsv")]
    found, of_text = (json.loads(result.stdout) for result in documents)
    assert found["holdout"]["rows"] + found["training"]["rows"] == 200
    assert found["cross_validation"]["rows"] == found["training"]["rows"]
    for scores in (found["holdout"], found["cross_validation"]):
        assert scores["nll"] < scores["baseline"]["nll"]
    assert found["holdout"]["nll"] == pytest.approx(of_text["holdout"]["nll"], rel=1e-6)
    folds = found["cross_validation"]["nll_of_folds"]
    assert min(folds) < found["cross_validation"]["nll"] < max(folds)
    assert cavity.load(tmp_path / "m.cavity").estimator.checkpoint is None
    words = run("fit", folder / "new.tsv", *FIT, "--holdout", "0.5", "-o", tmp_path / "n.cavity", "-q")
    assert "holdout, " in words.stderr.splitlines()[-1]
    assert "class frequencies" in words.stderr.splitlines()[-1]


def test_words_for_missing_cells_are_those_of_the_whole_table(tmp_path):
    """Held-out rows leave a part of a table, of which the same words are missing cells."""
    frame = flights(120).assign(carrier=lambda f: f["carrier"].fillna("unknown"))
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = []
    for name, more in (("whole", []), ("part", ["--holdout", "0.2"])):
        path = tmp_path / f"{name}.cavity"
        assert run("fit", tmp_path / "t.csv", *FIT, "--na", "unknown", *more, "-o", path).exit_code == 0
        encoders = cavity.load(path).preprocessor_.encoders_
        words.append(next(e.missing_words for e in encoders if e.column == "carrier"))
    assert words[0] == words[1]
    assert "unknown" in words[0]


def test_kernel_batches_and_weights_of_classes(folder, tmp_path):
    models = {}
    for name, options in {
        "plain": [],
        "other": ["--kernel", "rbf", "--batch-size", "50", "--leaves", "3"],
        "heavy": ["--class-weight", "yes=20", "--class-weight", "no=1"],
        "even": ["--class-weight", "balanced"],
    }.items():
        out = tmp_path / f"{name}.cavity"
        result = run("fit", folder / "new.parquet", *FIT, *options, "-o", out)
        assert result.exit_code == 0, result.stderr
        models[name] = cavity.load(out)
    assert "RBF" in str(models["other"].estimator_.kernel_)
    assert models["other"].estimator_.config_.batch_size == 50
    assert models["other"].estimator_.config_.n_leaves == 3
    facts = fit_facts(models["other"])
    shown = run("inspect", tmp_path / "other.cavity").stdout
    assert f"{facts.inducing_points} inducing points, {facts.local_points} of them in 3 leaves" in shown
    document = json.loads(run("inspect", tmp_path / "other.cavity", "--json").stdout)["training"]
    assert (document["leaves"], document["local_points"]) == (3, facts.local_points)
    assert models["plain"].estimator_.config_.n_leaves is None
    assert models["even"].estimator_.class_weight == "balanced"
    frame = flights(100, seed=6)
    mean = {name: model.predict_proba(frame)[:, 1].mean() for name, model in models.items()}
    assert mean["heavy"] > mean["plain"] + 0.05


@pytest.mark.parametrize("data", ["new.parquet", "new.tsv"])
@pytest.mark.parametrize("suffix", ["parquet", "csv", "tsv"])
def test_predict_writes_what_the_model_says(folder, tmp_path, data, suffix):
    out = tmp_path / f"out.{suffix}"
    result = run("predict", folder / "flights.cavity", folder / data, "-o", out, "--keep", "distance")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    read = {"csv": pd.read_csv, "tsv": lambda p: pd.read_csv(p, sep="\t")}
    table = pd.read_parquet(out) if suffix == "parquet" else read[suffix](out)
    frame = pd.read_parquet(folder / "new.parquet")
    model = cavity.load(folder / "flights.cavity")
    mean, variance = model.latent_mean_and_variance(frame)
    assert np.allclose(table["probability_yes"], model.predict_proba(frame)[:, 1], rtol=1e-6)
    assert np.allclose(table["latent_mean"], mean, rtol=1e-6)
    assert np.allclose(table["latent_variance"], variance, rtol=1e-5)
    assert (table["label"] == model.predict(frame)).all()
    assert (table["distance"].astype(int) == frame["distance"]).all()


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_predict_says_how_uncertain_it_is(folder, tmp_path, suffix):
    out = tmp_path / f"out.{suffix}"
    options = ("-o", out, "--uncertainty", "--level", "0.8", "--keep", "distance")
    result = run("predict", folder / "flights.cavity", folder / "new.parquet", *options)
    assert result.exit_code == 0, result.stderr
    read = {"csv": pd.read_csv, "parquet": pd.read_parquet}
    table = read[suffix](out) if suffix in read else pd.read_json(out, lines=True)
    model, frame = cavity.load(folder / "flights.cavity"), pd.read_parquet(folder / "new.parquet")
    assert len(table) == len(frame)
    assert (table["distance"].astype(int) == frame["distance"]).all()
    mean, variance = model.latent_mean_and_variance(frame)
    low, high = (ndtr(mean + ndtri(q) * np.sqrt(variance)) for q in (0.1, 0.9))
    assert np.allclose(table["lower_yes"], low, atol=1e-5)
    assert np.allclose(table["upper_yes"], high, atol=1e-5)
    p = model.predict_proba(frame)
    entropy = -np.sum(p * np.log(p), axis=1)
    assert np.allclose(table["aleatoric"] + table["epistemic"], entropy, atol=1e-5)
    assert table["ood_score"].between(0, 1).all()


def test_predict_prints_csv_and_nothing_else(folder):
    result = run("predict", folder / "flights.cavity", folder / "new.tsv")
    lines = result.stdout.splitlines()
    assert lines[0].replace('"', "") == "label,probability_yes,latent_mean,latent_variance"
    assert len(lines) == 201


def test_predict_for_machines(folder, tmp_path):
    out = tmp_path / "p.parquet"
    result = run("predict", folder / "flights.cavity", folder / "new.tsv", "-o", out, "--json")
    answer = json.loads(result.stdout)
    assert answer["rows"] == 200 == pq.read_metadata(out).num_rows
    assert answer["rows_per_second"] > 0


def test_unseen_categories_and_new_columns_are_warned_of(folder, tmp_path):
    flights(30).assign(carrier="ZZ", gate=1).to_csv(tmp_path / "t.csv", index=False)
    result = run("predict", folder / "flights.cavity", tmp_path / "t.csv")
    assert result.exit_code == 0
    assert "warning" in result.stderr
    assert "ignores: 'gate'" in result.stderr
    assert "did not occur in training: 'ZZ'" in result.stderr
    assert len(result.stdout.splitlines()) == 31


def test_evaluate_for_people_and_for_machines(folder):
    args = ("evaluate", folder / "flights.cavity", folder / "new.tsv")
    scores = json.loads(run(*args, "--json").stdout)
    assert scores["rows"] == 200
    assert scores["nll"] < scores["baseline"]["nll"]
    assert scores["auc"] > 0.9
    assert np.sum(scores["confusion"]) == 200
    text = run(*args).stdout
    assert f"{scores['nll']:.4f}" in text
    assert "class frequencies" in text


def test_evaluate_leaves_out_rows_without_a_target(folder, tmp_path):
    frame = flights(50, seed=2)
    frame.loc[:9, "delayed"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    result = run("evaluate", folder / "flights.cavity", tmp_path / "t.csv", "--json")
    assert json.loads(result.stdout)["rows"] == 40
    assert "10 rows without a target" in result.stderr


def test_inspect_for_people_and_for_machines(folder):
    facts = json.loads(run("inspect", folder / "flights.cavity", "--json").stdout)
    fit = json.loads((folder / "fit.json").read_text())
    assert facts["training"] == fit["training"]
    assert facts["written_with"]["cavity"] == cavity.__version__
    text = run("inspect", folder / "flights.cavity").stdout
    assert max(len(line) for line in text.splitlines()[1:]) <= 80  # the first has a path
    for words in ("SEPClassifier", "8 inducing points", "Matern", "carrier=AA", "relevance", "numpy"):
        assert words in text


def test_the_rows_of_the_fit_are_noticed(folder, tmp_path):
    for args in (["evaluate"], ["report", "-o", tmp_path / "r.html"]):
        result = run(args[0], folder / "flights.cavity", folder / "flights.csv", *args[1:])
        assert result.exit_code == 0
        assert "as many rows of each class as the training table" in result.stderr


def test_a_model_remembers_what_its_fit_took(folder, tmp_path):
    model = cavity.load(folder / "flights.cavity")
    assert model.peak_memory_bytes_ > 10_000_000
    run("report", folder / "flights.cavity", folder / "new.tsv", "-o", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    for words in ("Time of the whole fit", "Most memory of the process that fitted it"):
        assert words in page
    assert "checkpoint_interval" not in page


def test_report_is_one_html_file(folder, tmp_path):
    out = tmp_path / "report.html"
    args = ("report", folder / "flights.cavity", folder / "new.tsv", "-o", out)
    result = run(*args, "--training", folder / "flights.csv", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["rows"] == 200
    page = out.read_text()
    assert ">carrier<" in page
    assert "carrier=AA" not in page, "a report is by column"
    assert "Predicting delayed" in page


def test_a_report_is_no_pdf(folder, tmp_path):
    result = run("report", folder / "flights.cavity", folder / "new.tsv", "-o", tmp_path / "r.pdf")
    assert result.exit_code == 2
    assert "print it to PDF" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_reports_on_many_rows_take_some(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("cavity.cli.predict.MOST_ROWS", 60)
    result = run("report", folder / "flights.cavity", folder / "new.tsv", "-o", tmp_path / "r.html")
    assert result.exit_code == 0, result.stderr
    assert "60 of 200 rows" in result.stderr


def test_shared_options_may_stand_before_the_command(folder, tmp_path):
    args = ("inspect", folder / "flights.cavity")
    assert run("--json", *args).stdout == run(*args, "--json").stdout
    (tmp_path / "p.csv").write_text("old")
    args = ("predict", folder / "flights.cavity", folder / "new.tsv", "-o", tmp_path / "p.csv")
    assert run("-q", *args).exit_code == 2
    assert run("-f", "--json", *args, "-q").exit_code == 0


def test_force_replaces_a_model(folder, tmp_path):
    (tmp_path / "m.cavity").write_text("old")
    result = run("fit", folder / "new.parquet", *FIT, "-o", tmp_path / "m.cavity", "--force")
    assert result.exit_code == 0
    assert cavity.load(tmp_path / "m.cavity").target_ == "delayed"


def test_a_model_has_the_name_of_its_table(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("fit", folder / "new.tsv", *FIT, "-q").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["new.cavity"]
    result = run("fit", "-", *FIT)
    assert result.exit_code == 2
    assert "name its file with -o" in result.stderr


def test_a_fit_that_was_stopped_goes_on_to_the_same_model(folder, tmp_path, monkeypatch):
    args = ("fit", folder / "flights.csv", *FIT, "-o", tmp_path / "m.cavity")
    with monkeypatch.context() as patch:
        interrupt_at(patch, 20, by_signal=True)
        result = run(*args)
    assert result.exit_code == 130
    assert "the same command with --resume goes on" in result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"m.cavity", "m.cavity.checkpoint"}

    result = run(*args)
    assert result.exit_code == 2
    assert "continue it with --resume, or start from scratch with --force" in result.stderr

    result = run(*args, "--resume")
    assert result.exit_code == 0, result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["m.cavity"]
    frame = pd.read_parquet(folder / "new.parquet")
    ours, whole = cavity.load(tmp_path / "m.cavity"), cavity.load(folder / "flights.cavity")
    assert np.array_equal(ours.predict_proba(frame), whole.predict_proba(frame))


def test_a_fit_that_is_stopped_twice_keeps_the_better_model(folder, tmp_path, monkeypatch):
    args = ["fit", folder / "flights.csv", *FIT, "-o", tmp_path / "m.cavity"]
    with monkeypatch.context() as patch:
        interrupt_at(patch, 20, by_signal=True)
        assert run(*args).exit_code == 130
    before = (tmp_path / "m.cavity").read_bytes()
    (tmp_path / "m.cavity.checkpoint").rename(tmp_path / "m.cavity.checkpoint.race")  # not readable
    with monkeypatch.context() as patch:
        interrupt_at(patch, 1, by_signal=True)
        result = run(*args, "--resume")
    assert result.exit_code == 130
    assert f"{tmp_path / 'm.cavity'} stays as it was; --resume goes on" in result.stderr
    assert (tmp_path / "m.cavity").read_bytes() == before


def test_a_fit_that_was_stopped_goes_on_to_another_limit(folder, tmp_path, monkeypatch):
    args = ["fit", folder / "flights.csv", *FIT, "-o", tmp_path / "m.cavity"]
    with monkeypatch.context() as patch:
        interrupt_at(patch, 20, by_signal=True)
        assert run(*args).exit_code == 130
    before = cavity.load(tmp_path / "m.cavity").estimator_
    result = run(*args, "--resume", "--budget", "35 iterations", "--json")
    assert result.exit_code == 0, result.stderr
    after = cavity.load(tmp_path / "m.cavity").estimator_
    assert before.n_iter_ < 20
    assert after.n_iter_ == 35
    objectives = [[record.objective for record in model.history_] for model in (before, after)]
    assert objectives[1][: len(objectives[0])] == objectives[0]


def test_resuming_nothing_is_said(folder, tmp_path):
    result = run("fit", folder / "new.parquet", *FIT, "-o", tmp_path / "m.cavity", "--resume")
    assert result.exit_code == 0
    assert "there is no such checkpoint to resume from" in result.stderr


def test_the_version():
    assert run("--version").stdout == f"cavity {cavity.__version__}\n"

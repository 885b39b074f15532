"""`cavity fit --continue-from`: a model learns the rows of another table, and forgets none."""

import json
import signal

import numpy as np
import pytest
from sklearn.metrics import log_loss

import cavity
from cavity.cli.holdout import holdout_parts
from cavity.data.table import open_table
from cavity.estimators.table_stream import absorb_rows
from cavity.gp.model import Model
from cli_runs import FIT, run
from flights_table import flights

WHOLE = flights(900, seed=4)
TEST = flights(400, seed=9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """First rows with one hour of the day only; the others have the rest."""
    place = tmp_path_factory.mktemp("continuing")
    early = WHOLE["hour"] < 9
    WHOLE[early].to_csv(place / "first.csv", index=False)
    WHOLE[~early].to_parquet(place / "more.parquet")
    result = run("fit", place / "first.csv", *FIT, "-o", place / "first.cavity")
    assert result.exit_code == 0, result.stderr
    return place


def loss(path):
    model = cavity.load(path)
    return log_loss(TEST["delayed"], model.predict_proba(TEST))


def test_old_rows_and_new_ones_are_known(folder, tmp_path):
    args = ["fit", folder / "more.parquet", "--continue-from", folder / "first.cavity"]
    result = run(*args, "-o", tmp_path / "both.cavity", "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["training"]["rows"] == 900
    assert sum(c["rows"] for c in document["classes"]) == 900
    before = document["new_rows_before"]
    assert before["rows"] == (~(WHOLE["hour"] < 9)).sum()
    # Before they were learned, rows of other hours were hard to predict.
    assert loss(tmp_path / "both.cavity") < 0.5 * loss(folder / "first.cavity")
    # The old rows are predicted far better than by a model that has never seen them.
    assert run("fit", folder / "more.parquet", *FIT, "-o", tmp_path / "new.cavity").exit_code == 0
    old = WHOLE[WHOLE["hour"] < 9]
    models = [cavity.load(tmp_path / name) for name in ("both.cavity", "new.cavity")]
    both, new = (log_loss(old["delayed"], model.predict_proba(old)) for model in models)
    assert both < 0.7 * new


def test_it_is_what_partial_fit_does(folder, tmp_path):
    args = ["fit", folder / "more.parquet", "--continue-from", folder / "first.cavity", "--jobs", "1"]
    assert run(*args, "-o", tmp_path / "both.cavity").exit_code == 0
    model = cavity.load(folder / "first.cavity")
    model.estimator_.set_params(n_jobs=1)
    model.partial_fit(WHOLE[~(WHOLE["hour"] < 9)], "delayed")
    ours = cavity.load(tmp_path / "both.cavity")
    assert np.allclose(ours.predict_proba(TEST), model.predict_proba(TEST), atol=1e-8)


def test_held_out_rows_score_it(folder, tmp_path):
    args = ["fit", folder / "more.parquet", "--continue-from", folder / "first.cavity"]
    result = run(*args, "-o", tmp_path / "m.cavity", "--holdout", "0.2")
    assert result.exit_code == 0, result.stderr
    assert "the new rows before they were learned, " in result.stderr
    assert "holdout, " in result.stderr


def test_the_row_whose_prediction_is_not_finite_is_named_by_its_number_in_the_file(
    folder, tmp_path, monkeypatch
):
    """Also beside rows without a target or a weight, and where a part of the rows is held out."""
    frame = flights(60, seed=2).assign(w=1.0, distance=lambda f: f["distance"].round())
    frame.loc[45, "distance"] = 123_456.0
    frame.loc[:9, "w"] = 0.0
    frame.loc[10:14, "delayed"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    moments = Model.latent_moments

    def broken_at_one_distance(model, X, *args, **options):
        mean, variance = moments(model, X, *args, **options)
        mean[0, X[:, 1] == 123_456.0] = np.nan
        return mean, variance

    monkeypatch.setattr("cavity.data.table.CHUNK_ROWS", 20)
    monkeypatch.setattr(Model, "latent_moments", broken_at_one_distance)
    more = ["fit", tmp_path / "t.csv", "--continue-from", folder / "first.cavity", "--weight", "w"]
    for command in (more, [*more, "--holdout", "0.3"]):
        result = run(*command, "-o", tmp_path / "m.cavity")
        assert result.exit_code != 0
        assert "row 45 of X is not finite" in result.stderr


def test_the_numbers_of_a_part_are_those_of_the_table():
    table = open_table({"age": list(range(1_000))})
    train, test = holdout_parts(table, 0.2, 0)
    for part in (train, test):
        [(numbers, chunk)] = part.numbered(["age"])
        assert numbers.tolist() == chunk.column("age").to_pylist()


def test_ctrl_c_keeps_the_chunks_that_are_learned(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("cavity.data.table.CHUNK_ROWS", 100)
    absorbed = []

    def interrupted(model, rows, *rest):
        absorbed.append(len(rows.X))
        if len(absorbed) == 3:
            signal.raise_signal(signal.SIGINT)
        absorb_rows(model, rows, *rest)

    monkeypatch.setattr("cavity.cli.continuing.absorb_rows", interrupted)
    args = ["fit", folder / "more.parquet", "--continue-from", folder / "first.cavity"]
    result = run(*args, "-o", tmp_path / "m.cavity")
    assert result.exit_code == 130
    assert f"interrupted; 200 rows of {folder / 'more.parquet'} were learned, and" in result.stderr
    n_first = int((WHOLE["hour"] < 9).sum())
    assert cavity.load(tmp_path / "m.cavity").labels_.counts.sum() == n_first + 200


def test_ctrl_c_before_a_chunk_is_learned_leaves_nothing(folder, tmp_path, monkeypatch):
    def interrupted(*_):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("cavity.cli.continuing.absorb_rows", interrupted)
    args = ["fit", folder / "more.parquet", "--continue-from", folder / "first.cavity"]
    result = run(*args, "-o", tmp_path / "m.cavity")
    assert result.exit_code == 130
    assert "interrupted; nothing was written" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "args", "words"),
    [
        (lambda f: f.drop(columns="hour"), [], "lacks the column 'hour'"),
        (lambda f: f.drop(columns="delayed"), [], "has no target column 'delayed'"),
        (lambda f: f.assign(delayed="maybe"), [], "not among the classes that the model knows"),
        (lambda f: f.assign(delayed=None), [], "no row has a target"),
        (lambda f: f, ["--target", "carrier"], "predicts 'delayed'; leave --target out"),
        (lambda f: f, ["--kernel", "rbf"], "--kernel cannot be used with --continue-from"),
        (lambda f: f, ["--inducing", "5"], "--inducing cannot be used with --continue-from"),
        (lambda f: f, ["--budget", "5s"], "--budget cannot be used with --continue-from"),
        (lambda f: f, ["--weight", "w"], "has no weight column 'w'"),
        (lambda f: f.assign(w=1e-200), ["--weight", "w"], "the sum of the weight 'w' is 5e-199"),
        (lambda f: f.assign(w=1e308), ["--weight", "w"], "the sum of the weight 'w' is inf"),
    ],
)
def test_tables_and_options_that_do_not_fit_are_refused(folder, tmp_path, change, args, words):
    change(WHOLE[:50]).to_csv(tmp_path / "t.csv", index=False)
    command = ["fit", tmp_path / "t.csv", "--continue-from", folder / "first.cavity", *args]
    result = run(*command, "-o", tmp_path / "m.cavity")
    assert result.exit_code == 2, result.stderr
    assert words in result.stderr
    assert not (tmp_path / "m.cavity").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "gfitc"], "a GFITCClassifier cannot learn more rows"),
        (["--class-weight", "balanced"], "was fitted with --class-weight balanced"),
    ],
)
def test_models_that_cannot_go_on_are_named(folder, tmp_path, options, words):
    fit = ["--target", "delayed", "--inducing", "4", "--budget", "2 iterations", *options]
    assert run("fit", folder / "first.csv", *fit, "-o", tmp_path / "m.cavity").exit_code == 0
    command = ["fit", folder / "more.parquet", "--continue-from", tmp_path / "m.cavity"]
    result = run(*command, "-o", tmp_path / "n.cavity")
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_fit_needs_a_target(folder, tmp_path):
    result = run("fit", folder / "first.csv", "-o", tmp_path / "m.cavity")
    assert result.exit_code == 2
    assert "--target is missing" in result.stderr

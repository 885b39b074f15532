"""Bad input ends in one sentence and exit status 2, before any work, with nothing written."""

import json
import os
import stat
import zipfile

import pytest
from sklearn.datasets import make_moons
from typer.testing import CliRunner

import cavity
from cavity.cli.app import app
from flights_table import flights


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def refused(result, *words, code=2):
    """The one sentence."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    said = [line for line in result.stderr.splitlines() if line.startswith("cavity: ")]
    assert len(said) == 1, result.stderr
    assert "Traceback" not in result.stderr
    assert said[0].isprintable()
    for word in words:
        assert word in said[0]
    return said[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("bad")
    flights(120).to_csv(place / "flights.csv", index=False)
    args = ("--target", "delayed", "--inducing", "4", "--budget", "5i", "-o", place / "m.cavity")
    assert run("fit", place / "flights.csv", *args).exit_code == 0
    return place


def fit(data, tmp_path, *options, target="delayed"):
    result = run("fit", data, "--target", target, "-o", tmp_path / "out.cavity", *options)
    assert not (tmp_path / "out.cavity").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.endswith((".part", ".checkpoint"))]
    return result


def test_a_missing_file(folder, tmp_path):
    refused(fit(folder / "flihgts.csv", tmp_path), "no such file", "did you mean 'flights.csv'?")
    refused(run("predict", folder / "n.cavity", folder / "flights.csv"), "did you mean 'm.cavity'?")
    refused(run("predict", folder / "m.cavity", folder / "none.csv"), "there is no such file")


def test_a_wrong_target_suggests_the_nearest(folder, tmp_path):
    refused(fit(folder / "flights.csv", tmp_path, target="delaid"), "did you mean 'delayed'?")
    refused(fit(folder / "flights.csv", tmp_path, target="zzz"), "there are 'hour', 'distance'")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("x,delayed\n", "has no rows"),
        ("x,delayed\n1,a\n2,a\n", "has one class ('a')"),
        ("x,delayed\n1,\n2,\n", "has no values"),
        ("x,delayed\n" + "\n".join(f"{i},{i}" for i in range(1_000)), "looks like a quantity"),
        ("x,delayed\n1,0.5\n2,0.7\n", "is a fraction"),
        ("delayed\na\nb\n", "no columns besides the target"),
        ("x,delayed\n1,a\n1,b\n", "no column to learn from"),
        ("x,delayed\n1,a,b,c\n", "has 4 cells, but there are 2 names"),
        ("x,delayed\n1,\x07\x1b[31m,c\n", "has 3 cells"),
    ],
)
def test_tables_that_cannot_be_learned_from(tmp_path, text, words):
    (tmp_path / "t.csv").write_text(text)
    refused(fit(tmp_path / "t.csv", tmp_path), words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--budget", "soon"], "60s, 5m, 1h"),
        (["--budget", "0s"], "not understood"),
        (["--drop", "houre"], "did you mean 'hour'"),
        (["--drop", "delayed"], "would leave the target out"),
        (["--weight", "distence"], "no weight column 'distence'; did you mean 'distance'?"),
        (["--weight", "carrier"], "'carrier' should be numeric, but has the value"),
        (["--weight", "date"], "'date' should be numeric, but has the value '2013-"),
        (["--method", "gfitc", "--budget", "5 epochs"], "('100 iterations') or a time (60s)"),
        (["--method", "gfitc", "--resume"], "--resume"),
        (["--method", "gfitc", "--kernel", "rbf"], "--kernel cannot be used with --method gfitc"),
        (["--method", "gfitc", "--leaves", "4"], "--leaves cannot be used with --method gfitc"),
        (
            ["--leaves", "off"],
            "is not understood; write none, auto or a number such as 64",
        ),
        (["--inducing", "many"], "write auto or a number"),
        (["--inducing", "0"], "write auto or a number"),
        (["--batch-size", "-3"], "write auto or a number"),
        (["--class-weight", "maybe=3"], "names no class; write balanced, or CLASS=WEIGHT"),
        (["--class-weight", "yes=lots"], "'lots' is not a number"),
        (["--holdout", "20"], "not between 0 and 1"),
        (["--cv", "1"], "2 folds or more"),
        (["--cv", "3", "--workers", "2"], "cannot be used on a cluster"),
        (["--workers", "2", "--scheduler", "tcp://x:1"], "only one of them"),
    ],
)
def test_options_that_mean_nothing(folder, tmp_path, options, words):
    refused(fit(folder / "flights.csv", tmp_path, *options), words)


def test_class_weights_of_a_target_that_is_not_there(folder, tmp_path):
    result = fit(folder / "flights.csv", tmp_path, "--class-weight", "yes=2", target="delaid")
    refused(result, "has no target column 'delaid'; did you mean 'delayed'?")


@pytest.mark.parametrize("options", [["--seed", "-1"], ["--method", "svm"], ["--colour", "red"]])
def test_usage_errors(folder, tmp_path, options):
    result = fit(folder / "flights.csv", tmp_path, *options)
    assert result.exit_code == 2
    assert options[0] in result.output
    assert "Traceback" not in result.output


def test_outputs_that_exist(folder, tmp_path):
    model = (folder / "m.cavity").read_bytes()
    refused(
        run("fit", folder / "flights.csv", "--target", "delayed", "-o", folder / "m.cavity"),
        "exists already",
        "--force",
    )
    assert (folder / "m.cavity").read_bytes() == model
    for command in ("predict", "report"):
        out = tmp_path / ("p.csv" if command == "predict" else "r.html")
        out.write_text("mine")
        args = (folder / "m.cavity", folder / "flights.csv", "-o", out)
        refused(run(command, *args), "exists already")
        assert out.read_text() == "mine"


def test_outputs_that_cannot_be_written(folder, tmp_path):
    args = ("fit", folder / "flights.csv", "--target", "delayed", "-o")
    refused(run(*args, tmp_path / "none" / "m.cavity"), "there is no folder")
    refused(run(*args, tmp_path), "is a folder")
    refused(run(*args, ""), "output is empty")
    refused(run("demo", "-o", ""), "output is empty")
    refused(
        run("predict", folder / "m.cavity", folder / "flights.csv", "-o", tmp_path / "p.xlsx"), ".csv"
    )


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--json", "-q", "predict", "m.cavity", "flights.csv"], "standard output"),
        (["predict", "m.cavity", "flights.csv", "--json"], "standard output"),
        (["inspect", "--json", "none.cavity"], "no such model file"),
        (["inspect", "--json", "--colour"], "--colour"),
        (["--json", "demo", "--seconds", "soon"], "--seconds"),
        (["--json", "fly"], "fly"),
    ],
)
def test_failures_are_json_if_asked_for(folder, monkeypatch, args, words):
    """One document on standard output, before or after the name of the command."""
    monkeypatch.chdir(folder)
    result = run(*args)
    assert result.exit_code == 2
    found = json.loads(result.stdout)
    assert found["status"] == 2
    assert words in found["error"]
    assert result.stderr == f"cavity: {found['error']}\n"


def test_json_leaves_success_and_help_alone(folder):
    assert run("--json", "inspect", folder / "m.cavity").exit_code == 0
    assert run("--json", "--version").stdout.startswith("cavity ")
    assert run("fit", "--help", "--json").exit_code == 0


def test_a_folder_without_permission(folder, tmp_path, monkeypatch):
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(stat.S_IRUSR | stat.S_IXUSR)
    if os.access(locked, os.W_OK):  # root may write anywhere

        def denied(self, *args, **kwargs):
            raise PermissionError(13, "Permission denied", str(self))

        monkeypatch.setattr("pathlib.Path.touch", denied)
    args = ("fit", folder / "flights.csv", "--target", "delayed", "-o", locked / "m.cavity")
    refused(run(*args), "cannot be written there (Permission denied)")


def test_model_files_that_are_none(folder, tmp_path):
    content = (folder / "m.cavity").read_bytes()
    table = folder / "flights.csv"
    path = tmp_path / "x.cavity"
    path.write_bytes(content[: len(content) // 2])
    refused(run("predict", path, table), "truncated")
    path.write_bytes(b"")
    refused(run("inspect", path), "is empty")
    path.write_text("not a model at all")
    refused(run("evaluate", path, table), "is not a model file")
    with zipfile.ZipFile(folder / "m.cavity") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            text = old.read(name)
            new.writestr(name, b'{"format": 99, "cavity": "9.9"}' if name == "cavity.json" else text)
    refused(run("predict", path, table), "upgrade cavity")


def test_a_model_of_arrays_knows_no_columns(folder, tmp_path):
    X, y = make_moons(60, noise=0.2, random_state=0)
    model = cavity.SEPClassifier(n_inducing=4, random_state=0, config={"tol": 1e-2}).fit(X, y)
    cavity.save(model, tmp_path / "arrays.cavity")
    refused(run("predict", tmp_path / "arrays.cavity", folder / "flights.csv"), "has no column names")


def test_tables_that_the_model_cannot_predict(folder, tmp_path):
    frame = flights(20)
    path = tmp_path / "t.csv"
    frame.drop(columns=["hour", "carrier"]).to_csv(path, index=False)
    refused(run("predict", folder / "m.cavity", path), "lacks columns 'hour', 'carrier'")
    report = ("report", folder / "m.cavity", path, "-o", tmp_path / "r.html")
    refused(run(*report), "lacks columns 'hour', 'carrier'")
    frame.rename(columns={"hour": "Hour"}).to_csv(path, index=False)
    refused(run("predict", folder / "m.cavity", path), "did you mean 'Hour'?")
    frame.astype({"hour": object}).assign(hour="noon").to_csv(path, index=False)
    result = run("predict", folder / "m.cavity", path, "-o", tmp_path / "p.csv")
    assert result.exit_code == 0
    words = "warning: {}: column 'hour' should be numeric; cells that are not count as missing: 'noon'"
    assert words.format(path) in " ".join(result.stderr.split())
    frame.drop(columns="delayed").to_csv(path, index=False)
    refused(run("evaluate", folder / "m.cavity", path), "has no target column 'delayed'")
    frame.assign(delayed="perhaps").to_csv(path, index=False)
    refused(run("evaluate", folder / "m.cavity", path), "'perhaps'", "not among the classes")
    frame.assign(delayed=None).to_csv(path, index=False)
    for command in (["evaluate"], ["report", "-o", tmp_path / "r.html"]):
        result = run(command[0], folder / "m.cavity", path, *command[1:])
        assert result.exit_code == 2
        assert "no row has a target" in result.stderr
    refused(run("predict", folder / "m.cavity", path, "--keep", "gat"), "no column to keep, 'gat'")
    level = ("--uncertainty", "--level", "90")
    refused(run("predict", folder / "m.cavity", path, *level), "--level 90 is not between 0 and 1")
    refused(run("predict", folder / "m.cavity", path, *level[1:]), "give --uncertainty, too")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_weights_that_mean_nothing(folder, tmp_path, suffix):
    def evaluate(weight, **columns):
        frame = flights(20).assign(**columns)
        path = tmp_path / f"t.{suffix}"
        frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
        return run("evaluate", folder / "m.cavity", path, "--weight", weight)

    refused(evaluate("distence"), "no weight column 'distence'; did you mean 'distance'?")
    refused(evaluate("delayed"), "--weight 'delayed' is the target of the model; name another column")
    refused(evaluate("w", w=-1.0), "the weight 'w' of a row is -1.0", "not negative")
    refused(evaluate("w", w=None), "the weight 'w' of a row is nan")
    assert "'w'" in refused(evaluate("w", w="many"), "many")
    result = evaluate("w", w=0)
    assert result.exit_code == 2
    assert "no row has a target and a weight above 0" in result.stderr


def test_a_failure_on_the_way_is_a_sentence_and_leaves_nothing(folder, tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("the machine is on fire")

    monkeypatch.setattr("cavity.estimators.table.TableClassifier.moments_and_log_proba", broken)
    args = ("predict", folder / "m.cavity", folder / "flights.csv", "-o", tmp_path / "p.csv")
    refused(run(*args), "RuntimeError: the machine is on fire", "--debug", code=1)
    assert list(tmp_path.iterdir()) == []
    assert "Traceback" in run("--debug", *args).stderr
    assert "Traceback" in run(*args, "--debug").stderr


@pytest.mark.parametrize("link", [False, True])
def test_no_command_replaces_what_it_reads(folder, tmp_path, link):
    table = tmp_path / "flights.csv"
    table.write_bytes((folder / "flights.csv").read_bytes())
    output = tmp_path / "link.csv" if link else table
    if link:
        output.symlink_to(table)
    before = table.read_bytes()
    model = folder / "m.cavity"
    refused(run("predict", model, table, "-o", output, "-f"), "is a file that this command reads")
    refused(run("fit", table, "--target", "delayed", "-o", output, "-f"), "this command reads")
    refused(run("fit", table, "--continue-from", model, "-o", output, "-f"), "this command reads")
    refused(run("report", model, table, "-o", output, "-f"), "is a file that this command reads")
    refused(run("export", model, "-o", model, "-f"), "is a file that this command reads")
    assert table.read_bytes() == before


def test_training_rows_of_a_fit_with_holdout_are_not_known(folder, tmp_path):
    table, model = folder / "flights.csv", tmp_path / "m.cavity"
    options = ("--target", "delayed", "--inducing", "4", "--budget", "5i", "--holdout", "0.2")
    assert run("fit", table, *options, "-o", model).exit_code == 0
    report = ("report", model, table, "-o", tmp_path / "r.html", "--training", table)
    refused(run(*report), "has 120 rows, and the model was fitted to", "--holdout has left rows")


def test_standard_input_is_called_so(folder):
    result = CliRunner().invoke(app, ["predict", str(folder / "m.cavity"), "-"], input=b"")
    assert "standard input: the file is empty" in refused(result)


def test_a_misspelt_word_is_told_without_the_type_of_an_error(folder):
    said = run("fit", folder / "flights.csv", "--target", "delayed", "--kernel", "rfb", "--json").stderr
    assert "Invalid value for '--kernel': 'rfb' is not one of" in said

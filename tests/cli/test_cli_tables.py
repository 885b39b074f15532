"""Tables of every kind through the commands: formats, dialects, folders, patterns, standard input."""

import io
import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from cavity.cli.app import app
from cli_runs import FIT, run, with_model
from flights_table import flights


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return with_model(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def frame():
    return flights(60, seed=5)


@pytest.fixture(scope="module")
def truth(folder, frame):
    """What evaluate says of the rows, whatever file they are in."""
    frame.to_parquet(folder / "some.parquet")
    return scores(folder, folder / "some.parquet")


def scores(folder, place, *args):
    result = run("evaluate", folder / "flights.cavity", place, "--json", "-q", *args)
    assert result.exit_code == 0, result.stderr
    return {name: value for name, value in json.loads(result.stdout).items() if name != "data"}


def hive(place, frame):
    for carrier, rows in frame.groupby("carrier", dropna=False):
        (place / f"carrier={carrier}").mkdir(parents=True)
        rows.drop(columns="carrier").to_parquet(place / f"carrier={carrier}" / "part.parquet")
    return place


def pattern(place, frame):
    place.mkdir()
    frame[:30].to_csv(place / "a.csv", index=False)
    frame[30:].to_csv(place / "b.csv", index=False)
    return f"{place}/*.csv"


def excel(place, frame):
    pytest.importorskip("openpyxl")
    frame.to_excel(place.with_suffix(".xlsx"), index=False)
    return place.with_suffix(".xlsx")


WRITERS = {
    "csv.gz": lambda p, f: (f.to_csv(p := p.with_suffix(".csv.gz"), index=False), p)[1],
    "tsv": lambda p, f: (f.to_csv(p := p.with_suffix(".tsv"), index=False, sep="\t"), p)[1],
    "feather": lambda p, f: (f.to_feather(p := p.with_suffix(".feather")), p)[1],
    "arrow": lambda p, f: (f.to_feather(p := p.with_suffix(".arrow")), p)[1],
    "json lines": lambda p, f: (
        f.to_json(p := p.with_suffix(".jsonl"), orient="records", lines=True, date_format="iso"),
        p,
    )[1],
    "excel": excel,
    "pattern": pattern,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_kind_of_file_is_evaluated_alike(folder, frame, truth, tmp_path, name):
    found = scores(folder, WRITERS[name](tmp_path / "some", frame))
    assert found["rows"] == 60
    assert found["nll"] == pytest.approx(truth["nll"], rel=1e-6)
    assert found["confusion"] == truth["confusion"]


def test_hive_folders_are_evaluated(folder, frame, tmp_path):
    known = frame.dropna(subset=["carrier"])
    known.to_parquet(tmp_path / "known.parquet")
    found = scores(folder, hive(tmp_path / "hive", known))
    assert found["nll"] == pytest.approx(scores(folder, tmp_path / "known.parquet")["nll"], rel=1e-6)


def odd(place, frame):
    """A file whose dialect nobody would guess."""
    text = frame.to_csv(index=False, sep="^", decimal=",", na_rep="unbekannt")
    place.write_bytes(text.encode("utf-16"))
    return place, ["--sep", "^", "--decimal", ",", "--encoding", "utf-16", "--na", "unbekannt"]


def test_a_dialect_can_be_named(folder, frame, truth, tmp_path):
    path, options = odd(tmp_path / "odd.csv", frame)
    found = scores(folder, path, *options)
    assert found["nll"] == pytest.approx(truth["nll"], rel=1e-6)
    fitted = run("fit", path, *FIT, *options, "-o", tmp_path / "m.cavity", "--json")
    assert fitted.exit_code == 0, fitted.stderr
    kinds = {column["name"]: column["kind"] for column in json.loads(fitted.stdout)["columns"]}
    assert kinds["hour"] == "numeric"
    for command in (["predict"], ["explain"], ["report", "-o", tmp_path / "r.html"]):
        result = run(command[0], folder / "flights.cavity", path, *command[1:], *options, "-q")
        assert result.exit_code == 0, result.stderr


def test_a_tab_may_be_spelt_out(folder, frame, truth, tmp_path):
    frame.to_csv(tmp_path / "t.csv", index=False, sep="\t")
    for word in ("tab", "\\t"):
        assert scores(folder, tmp_path / "t.csv", "--sep", word)["nll"] == pytest.approx(truth["nll"])


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--sep", ";;"], "a separator is one character"),
        (["--decimal", "x"], "the decimal sign is"),
        (["--encoding", "klingon"], "encoding='klingon' is unknown"),
    ],
)
def test_dialects_that_cannot_be_are_refused(folder, frame, tmp_path, args, words):
    frame.to_csv(tmp_path / "t.csv", index=False)
    result = run("evaluate", folder / "flights.cavity", tmp_path / "t.csv", *args)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_dialect_of_parquet_is_refused(folder):
    result = run("evaluate", folder / "flights.cavity", folder / "new.parquet", "--sep", ";")
    assert result.exit_code == 2
    assert "is for text files" in result.stderr


def piped(content, *args):
    return CliRunner().invoke(app, [str(arg) for arg in args], input=content)


def test_standard_input_is_fitted_and_predicted(folder, frame, truth, tmp_path):
    text = frame.to_csv(index=False)
    result = piped(text, "fit", "-", *FIT, "-o", tmp_path / "m.cavity")
    assert result.exit_code == 0, result.stderr
    assert "60 rows" in result.stderr
    result = piped(text, "predict", folder / "flights.cavity", "-", "-q")
    assert len(pd.read_csv(io.StringIO(result.stdout))) == 60
    found = piped(text, "evaluate", folder / "flights.cavity", "-", "--json", "-q")
    assert json.loads(found.stdout)["nll"] == pytest.approx(truth["nll"], rel=1e-6)


def test_standard_input_may_be_of_any_format(folder, frame, truth):
    lines = frame.to_json(orient="records", lines=True, date_format="iso")
    for content in (lines.encode(), (folder / "some.parquet").read_bytes()):
        found = piped(content, "evaluate", folder / "flights.cavity", "-", "--json", "-q")
        assert json.loads(found.stdout)["nll"] == pytest.approx(truth["nll"], rel=1e-6)


def test_nothing_on_standard_input_is_said(folder):
    result = piped("", "predict", folder / "flights.cavity", "-")
    assert result.exit_code == 2
    assert "the file is empty" in result.stderr

"""Names of columns, labels and files cannot steer the terminal that a command prints on."""

import io
import json
import sys

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from cavity.cli import progress
from cavity.cli.io import output_stream
from cli_runs import run

RED, TITLE, CSI, ARROW = "\x1b[31m", "\x1b]0;title\x07", "\x9b2J", "\u202e"
NUMBER, WORDS, TARGET = f"a{RED} $x^{{ $ 中", f"b\n{TITLE}", f"c{CSI}\r"
LABELS = [f"no{RED}\x08", f"yes{ARROW}\ncavity: all is well"]
FIT = ("--inducing", "5", "--budget", "3i")


def printed(result, code=0):
    """What a command has printed, of which every character is seen."""
    assert result.exit_code == code, result.output
    for line in (result.stdout + result.stderr).split("\n"):
        assert line.isprintable(), line
    return result.stdout, result.stderr


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("odd") / f"folder{RED}[b]"
    place.mkdir()
    x = np.arange(40.0)
    frame = pd.DataFrame({NUMBER: np.sin(x), WORDS: [f"x{TITLE}", f"y{CSI}"] * 20, "always": RED})
    frame[TARGET] = np.array(LABELS)[(np.sin(x) > 0).astype(int)]
    frame.to_parquet(place / "t.parquet")
    frame.assign(**{WORDS: f"new{RED}", ARROW: 1}).to_parquet(place / "new.parquet")
    fit = run("fit", place / "t.parquet", "-t", TARGET, "-o", place / "m.cavity", *FIT)
    _, said = printed(fit)
    assert "'always' is always '\\x1b[31m' and is left out" in said
    assert "folder\\x1b[31m[b]/t.parquet …" in said
    return place


def test_inspect(place):
    shown, _ = printed(run("inspect", place / "m.cavity"))
    assert "no\\x1b[31m\\x08" in shown
    assert "  b\\n\\x1b]0;title\\x07  categorical " in shown
    shown, _ = printed(run("inspect", place / "m.cavity", "--json"))
    what = json.loads(shown)
    assert [column["name"] for column in what["columns"]] == [NUMBER, WORDS]
    assert [one["value"] for one in what["classes"]] == LABELS
    assert what["target"] == TARGET


def test_evaluate_and_report(place):
    shown, said = printed(run("evaluate", place / "m.cavity", place / "new.parquet"))
    assert "no\\x1b[31m" in shown
    assert "did not occur in training: 'new\\x1b[31m'" in said
    output = place / "r.html"
    report = run("report", place / "m.cavity", place / "new.parquet", "-o", output)
    _, said = printed(report)
    assert "Glyph" not in said
    page = output.read_text(encoding="utf-8")
    assert all(line.isprintable() for line in page.replace("\xa0", " ").split("\n"))
    assert "no\\x1b[31m" in page


def test_errors_and_tracebacks(place):
    fit = ("-t", "d", "-o", place / "n.cavity")
    _, said = printed(run("fit", place / "t.parquet", *fit, "--debug"), code=2)
    assert "Traceback" in said
    assert "has no target column 'd'" in said
    (place / "bad.csv").write_text(f"a,b\n1,{RED}\n1\n")
    printed(run("fit", place / "bad.csv", "-t", "b", "-o", place / "n.cavity"), code=2)
    printed(run("predict", place / f"{RED}.cavity", place / "t.parquet"), code=2)
    printed(run("predict", place / "bad.csv", place / "t.parquet"), code=2)


def test_predictions_are_exact_in_a_file_and_escaped_on_a_terminal(place, monkeypatch):
    piped = run("predict", place / "m.cavity", place / "t.parquet", "--quiet").stdout
    assert set(pd.read_csv(io.StringIO(piped))["label"]) == set(LABELS)

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdout", screen := Terminal())
    with output_stream("-", force=False) as stream:
        for byte in "é,x\x1b[31m\n".encode():
            stream.write(bytes([byte]))
    assert screen.getvalue() == "é,x\\x1b[31m\n"


def test_a_bar_shows_brackets_as_they_are():
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    with progress.one_line_bar(console) as bar:
        progress.Bar(bar).stage(f"reading a[/b]{TITLE}")
    assert "reading a[/b]\\x1b]0;title\\x07" in console.file.getvalue()

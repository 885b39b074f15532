"""`make first-hour`: the built wheel in the hands of somebody who has nothing else.

`python -m first_hour DIST` takes the wheel in the folder DIST, makes a fresh environment and does what a
new user does: the README, the tutorial, a messy table from `fit` to a served prediction, an interrupted
fit, the report in a browser, every extra alone, and some tests of the installed package. Every step
prints a line. The first step that fails prints what it saw and ends the run with status 1.
"""

import argparse
import csv
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from datetime import date
from pathlib import Path
from zipfile import ZipFile

import pytest

from doc_blocks import blocks
from first_hour import messy_table
from flights_table import flights
from headless_browser import looked_at

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LONGEST = 600.0
"""Seconds after which a command counts as stuck."""
USER, DEVELOPER = "cli,serve,onnx", "dev"
"""Extras of somebody who uses all of the command line, and of somebody who runs the tests."""
WHEEL_TESTS = [
    "tests/test_types_for_users.py",
    "tests/cli/test_cli_commands.py",
    "tests/cli/test_explain_export.py",
    "tests/cli/test_serve.py",
    "tests/estimators/test_table_surface.py",
    "tests/export/test_model_file.py",
    "tests/export/onnx/test_export.py",
    "tests/report/test_in_a_browser.py",
]
"""Tests that run against the installed wheel: types, commands, files and pages, which ship with it."""


class StepError(Exception):
    """What went wrong in a step, with what the command printed."""


class SkippedError(Exception):
    """Why a step cannot be taken here."""


class Place:
    """A folder with a fresh environment in it; commands run there and see nothing of the repository."""

    def __init__(self, folder, wheel):
        self.folder, self.wheel = folder, wheel
        self.programs = folder / "fresh" / ("Scripts" if sys.platform == "win32" else "bin")
        hidden = ("PYTHON", "COV", "CAVITY", "VIRTUAL_ENV", "MYPY", "PYTEST")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
        self.environment["MPLBACKEND"] = "Agg"

    def run(self, program, *arguments, status=0):
        """Standard output and error of a program of the environment, which must end with the status."""
        command = [str(self.programs / program), *map(str, arguments)]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
        if done.returncode != status:
            words = shlex.join([program, *map(str, arguments)])
            said = done.stdout[-5_000:] + done.stderr[-5_000:]
            raise StepError(f"{words}: status {done.returncode}\n{said}")
        return done.stdout, done.stderr

    def cavity(self, *arguments, status=0):
        """Standard output and error of the installed command."""
        return self.run("cavity", *arguments, status=status)

    def started(self, *arguments):
        """A process of the installed command."""
        return subprocess.Popen(
            [str(self.programs / "cavity"), *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def install(self, extras=""):
        """Install the wheel with some extras."""
        package = f"{self.wheel}[{extras}]" if extras else str(self.wheel)
        self.run("python", "-m", "pip", "install", "--quiet", "--no-compile", package)


def expect(holds, words):
    """Fail with the words unless something holds."""
    if not holds:
        raise StepError(words)


def wheel_is_complete(place):
    """the wheel has the code, its pages, the mark of types and the licence, and nothing else"""
    names = ZipFile(place.wheel).namelist()
    source = ROOT / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in names if ".dist-info/" not in name}
    expect(packed == wanted, f"missing or not wanted in the wheel: {sorted(packed ^ wanted)}")
    expect("cavity/py.typed" in packed, "the wheel does not say that it is typed")
    expect(any(name.endswith("licenses/LICENSE") for name in names), "the wheel has no licence")
    sources = list(place.wheel.parent.glob("*.tar.gz"))
    expect(len(sources) == 1, f"one source distribution was expected, not {sources}")


def bare_install(place):
    """the wheel installs into a fresh environment; without extras the classifiers work"""
    subprocess.run([sys.executable, "-m", "venv", place.folder / "fresh"], check=True)
    place.install()
    where, _ = place.run("python", "-c", "import cavity; print(cavity.__file__)")
    expect(str(place.folder) in where, f"another cavity is imported: {where}")
    fit = (
        "from sklearn.datasets import make_moons; from cavity import SEPClassifier; "
        "X, y = make_moons(200, noise=0.2, random_state=0); "
        "print(SEPClassifier(n_inducing=10, max_epochs=20, random_state=0).fit(X, y).score(X, y))"
    )
    said, _ = place.run("python", "-W", "ignore", "-c", fit)
    expect(float(said) > 0.9, f"accuracy {said}")
    said = place.run("cavity", "--version", status=1)[1]
    expect("pip install 'cavity[cli]'" in said, f"the command does not name its extra: {said}")


def user_install(place):
    """the extras cli, serve and onnx install, and ONNX Runtime"""
    place.install(USER)
    place.run("python", "-m", "pip", "install", "--quiet", "--no-compile", "onnxruntime")
    place.cavity("--version")


def readme(place):
    """the README: its Python, its commands and the demo"""
    flights(300).to_csv(place.folder / "flights.csv", index=False)
    flights(100, seed=1).to_csv(place.folder / "new.csv", index=False)
    page = shutil.copy(ROOT / "README.md", place.folder)
    shutil.copy(HERE.parent / "doc_blocks.py", place.folder)
    place.run("python", "doc_blocks.py", "README.md")
    shell = "".join(block.text for block in blocks(Path(page)) if block.language == "sh")
    commands = [words for line in shell.splitlines() if (words := shlex.split(line, comments=True))]
    ours = [words[1:] for words in commands if words[0] == "cavity"]
    expect(ours, "the README has no command of cavity")
    for arguments in ours:
        place.cavity(*arguments)
    place.cavity("demo", "--seconds", "3", "--quiet")
    expect((place.folder / "cavity-demo.html").exists(), "the demo has written no report")


def tutorial(place):
    """the tutorial"""
    shutil.copy(ROOT / "docs" / "tutorial.md", place.folder)
    place.run("python", "-W", "error", "doc_blocks.py", "tutorial.md")


def messy_fit(place):
    """a messy CSV: fit"""
    for name, n, seed in (("orders.csv", 1_200, 1), ("new_orders.csv", 300, 2)):
        (place.folder / name).write_bytes(messy_table.as_text(messy_table.orders(n, seed)))
    options = ("--inducing", "20", "--budget", "60 iterations", "-q", "--json")
    said, notes = place.cavity("fit", "orders.csv", "-t", "late", "-o", "orders.cavity", *options)
    used = {column["name"] for column in json.loads(said)["columns"]}
    expect(used == set(messy_table.COLUMNS), f"columns {sorted(used)} are used")
    expect("'order'" in notes, f"nothing is said of the identifiers: {notes}")


def messy_scores(place):
    """evaluate, explain, predict with ids and intervals"""
    scores = json.loads(place.cavity("evaluate", "orders.cavity", "new_orders.csv", "-q", "--json")[0])
    expect(scores["nll"] < scores["baseline"]["nll"] - 0.15, f"evaluate: {scores}")
    said, _ = place.cavity("explain", "orders.cavity", "new_orders.csv", "-q", "--json")
    first = json.loads(said)["relevance"][0]["column"]
    expect(first == "weight", f"explain: {first} is said to matter most")
    options = ("--keep", messy_table.IDENTIFIER, "--uncertainty", "-o", "predictions.csv", "-q")
    place.cavity("predict", "orders.cavity", "new_orders.csv", *options)
    rows, given = predictions(place), messy_table.orders(300, 2)
    expect([row["order"] for row in rows] == [row["order"] for row in given], "predict: other ids")
    for row in rows:
        low, p, high = (float(row[f"{name}_yes"]) for name in ("lower", "probability", "upper"))
        expect(0.0 <= low <= p <= high <= 1.0, f"predict: {row}")


def predictions(place):
    """The rows of predictions.csv."""
    with (place.folder / "predictions.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def messy_report(place):
    """the report is one file that needs no network"""
    place.cavity("report", "orders.cavity", "new_orders.csv", "-o", "orders.html", "-q")
    page = (place.folder / "orders.html").read_text(encoding="utf-8")
    fetched = re.findall(r'(?:src|href)="(?!#|data:)[^"]*', page)
    expect(not fetched, f"the report fetches {fetched}")


def in_a_browser(place):
    """the report in a browser: no errors, no requests"""
    page = (place.folder / "orders.html").read_text(encoding="utf-8")
    try:
        seen = looked_at(page, "{shown: room(document.body)}", place.folder)
    except pytest.skip.Exception as reason:
        raise SkippedError(str(reason)) from None
    expect(seen["errors"] == [] and seen["requests"] == [], f"the browser saw {seen}")
    expect(min(seen["shown"]) > 100, f"the report is not shown: {seen}")


def onnx(place):
    """export, and the same probabilities in ONNX Runtime"""
    place.cavity("export", "orders.cavity", "-o", "orders.onnx", "-q")
    given = messy_table.orders(300, 2)
    columns = {
        name: (kind, [plain(row[name]) for row in given]) for name, kind in messy_table.COLUMNS.items()
    }
    (place.folder / "rows.json").write_text(json.dumps(columns), encoding="utf-8")
    script = shutil.copy(HERE / "onnx_round_trip.py", place.folder)
    place.run("python", script, "orders.onnx", "rows.json", "predictions.csv")


def plain(cell):
    """A cell as JSON can hold it: a date is the number of days since 1970."""
    return (cell - date(1970, 1, 1)).days if isinstance(cell, date) else cell


def serve(place):
    """a served prediction, and the end of the service"""
    given, wanted = messy_table.orders(300, 2)[:20], predictions(place)[:20]
    rows = [{name: row[name] for name in messy_table.COLUMNS} for row in given]
    with place.started("serve", "orders.cavity", "--port", "0") as service:
        try:
            url = re.search(r"http://\S+", service.stderr.readline())[0]
            body = json.dumps({"rows": rows}, default=str).encode()
            with urllib.request.urlopen(f"{url}/predict", body, timeout=60) as answer:
                answers = json.load(answer)["predictions"]
            with urllib.request.urlopen(url, timeout=60) as page:
                expect(b"<html" in page.read(), "there is no page for people")
            service.send_signal(signal.SIGINT)
            service.communicate(timeout=60)
        finally:
            service.kill()
    expect(service.returncode == 130, f"the service ended with status {service.returncode}")
    for ours, row in zip(answers, wanted, strict=True):
        expect(ours["label"] == row["label"], f"served {ours}, predicted {row}")
        distance = abs(ours["probability"]["yes"] - float(row["probability_yes"]))
        expect(distance < 1e-9, f"served {ours}, predicted {row}")


def interrupted(place):
    """Ctrl-C during a fit, and --resume to the same model"""
    (place.folder / "many.csv").write_bytes(messy_table.as_text(messy_table.orders(5_000, 3)))
    fit = ("fit", "many.csv", "-t", "late", "--inducing", "20", "--budget", "30 epochs", "-o")
    with place.started(*fit, "many.cavity") as process:
        try:
            stuck = time.monotonic() + LONGEST
            while not list(place.folder.glob("many.cavity.checkpoint*")):
                expect(process.poll() is None, "the fit ended before anything of it was kept")
                expect(time.monotonic() < stuck, "nothing was kept of the fit")
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=LONGEST)[1]
        finally:
            process.kill()
    expect(process.returncode == 130, f"status {process.returncode} after Ctrl-C: {said}")
    expect("--resume" in said and "Traceback" not in said, f"Ctrl-C: {said}")
    if (place.folder / "many.cavity").exists():
        place.cavity("predict", "many.cavity", "new_orders.csv", "-q")
    place.cavity(*fit, "many.cavity", "--resume", "-q")
    place.cavity(*fit, "undisturbed.cavity", "-q")
    resumed, undisturbed = (
        place.cavity("predict", model, "new_orders.csv", "-q")[0]
        for model in ("many.cavity", "undisturbed.cavity")
    )
    expect(resumed == undisturbed, "the resumed fit predicts otherwise than an undisturbed one")


def every_extra(place):
    """every extra works with its own packages alone"""
    place.install(DEVELOPER)
    script = shutil.copy(HERE / "extras.py", place.folder)
    ask = "from importlib.metadata import metadata as m; print(*m('cavity').get_all('Provides-Extra'))"
    declared = {*place.run("python", "-c", ask)[0].split()} - {"docs", "dev"}
    tried = place.run("python", script, "--list")[0].split()
    expect(declared <= set(tried), f"nothing here uses the extras {sorted(declared - set(tried))}")
    for extra in ("", *sorted(declared)):
        place.run("python", script, extra)


def wheel_tests(place):
    """tests of the installed wheel"""
    ignored = shutil.ignore_patterns("__pycache__", "first_hour")
    shutil.copytree(HERE.parent, place.folder / "tests", ignore=ignored)
    for name in ("pyproject.toml", "docs/tutorial.md"):
        (place.folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, place.folder / name)
    options = ("-m", "pytest", "-m", "", "-p", "no:cacheprovider", "--numprocesses", "auto")
    said, _ = place.run("python", *options, "--dist", "loadfile", *WHEEL_TESTS)
    print(f"       {said.strip().splitlines()[-1]}")


STEPS = [
    wheel_is_complete,
    bare_install,
    user_install,
    readme,
    tutorial,
    messy_fit,
    messy_scores,
    messy_report,
    in_a_browser,
    onnx,
    serve,
    interrupted,
    every_extra,
    wheel_tests,
]


def main():
    """Take all steps; the status is 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m first_hour", description=__doc__.partition("\n")[0])
    parser.add_argument("dist", type=Path, help="folder with the wheel and the source distribution")
    (wheel,) = parser.parse_args().dist.resolve().glob("*.whl")
    # A shell lets what it starts in the background ignore Ctrl-C, and then so would the commands.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="first-hour-") as folder:
        place = Place(Path(folder).resolve(), wheel)
        for step in STEPS:
            started = time.monotonic()
            try:
                step(place)
                result = "ok"
            except SkippedError as reason:
                result = f"skipped ({reason})"
            except (StepError, subprocess.SubprocessError, OSError, AssertionError) as error:
                print(f"FAILED {step.__doc__}\n{error}", flush=True)
                return 1
            print(f"{time.monotonic() - started:5.0f} s {step.__doc__}: {result}", flush=True)
    print(f"the first hour took {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

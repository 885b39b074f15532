"""The citation, and the wheel: built, installed into a fresh environment and used from elsewhere."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import yaml

from cavity.version import __version__
from flights_table import flights

ROOT = Path(__file__).parents[1]


def test_the_citation_is_that_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == __version__
    assert {"message", "title", "authors", "preferred-citation"} <= set(citation)


def test_the_readme_names_the_wheel_of_this_version():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"dist/cavity-{__version__}-py3-none-any.whl" in readme


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_the_wheel_works_in_a_fresh_environment(tmp_path):
    pytest.importorskip("build", reason="the wheel is built with the package build, of the extra dev")

    def run(*command):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV"))}
        done = subprocess.run(
            [str(word) for word in command],
            cwd=tmp_path,
            env=clean,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(sys.executable, "-m", "build", "--outdir", tmp_path / "dist", ROOT)
    assert len(list((tmp_path / "dist").glob("*.tar.gz"))) == 1
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    venv.create(tmp_path / "fresh", with_pip=True)
    programs = tmp_path / "fresh" / ("Scripts" if sys.platform == "win32" else "bin")
    run(programs / "python", "-m", "pip", "install", "--quiet", f"{wheel}[cli,serve]")

    where = run(programs / "python", "-c", "import cavity; print(cavity.__file__)")
    assert str(tmp_path / "fresh") in where
    assert "cavity" in run(programs / "cavity", "demo", "--help")
    assert __version__ in run(programs / "cavity", "--version")
    flights(200).to_csv(tmp_path / "flights.csv", index=False)
    options = ("--n-inducing", "5", "--budget", "5 iterations", "-o", "m.cavity", "-q")
    run(programs / "cavity", "fit", "flights.csv", "-t", "delayed", *options)
    lines = run(programs / "cavity", "predict", "m.cavity", "flights.csv", "--uncertainty", "-q")
    assert len(lines.splitlines()) == 201
    run(programs / "cavity", "report", "m.cavity", "flights.csv", "-o", "r.html", "-q")
    app = "import cavity; from cavity.cli.service import create_app; create_app(cavity.load('m.cavity'))"
    run(programs / "python", "-c", app)

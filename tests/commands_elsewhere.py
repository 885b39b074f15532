"""Commands of the documentation that no test can run: what can be checked of each without running it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml
from benchmarks.__main__ import parser as benchmark_parser
from benchmarks.registry import ALIASES, benchmarks
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]


def make(arguments):
    """The target is there, and its commands can be written out."""
    for target in (word for word in arguments if "=" not in word):
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"the Makefile has no {target}"
    if shutil.which("make"):
        subprocess.run(["make", "--dry-run", *arguments], cwd=ROOT, check=True, capture_output=True)


def pip(arguments):
    """The extras of this package are there; of other packages there is nothing to know."""
    assert arguments[0] == "install"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for word in arguments[1:]:
        wanted = Requirement(word)
        if wanted.name == project["name"]:
            assert wanted.extras <= set(project["optional-dependencies"]), word


def python(arguments):
    """Of `python -m benchmarks` the options and names are known."""
    assert arguments[:2] == ["-m", "benchmarks"], arguments
    parsed = benchmark_parser().parse_args(arguments[2:])
    assert set(getattr(parsed, "names", [])) <= {"all", *benchmarks(), *ALIASES}


def dask(arguments):
    """Dask's own parser takes the options; the file with the names of machines is the reader's."""
    from importlib.metadata import entry_points

    (found,) = entry_points(group="dask_cli", name=arguments[0])
    words = [__file__ if word == "machines.txt" else word for word in arguments[1:]]
    found.load().make_context(f"dask {arguments[0]}", words)


def helm(arguments):
    """A release of a chart, with values that YAML can read."""
    action, release, chart, *options = arguments
    assert action == "install"
    assert re.fullmatch(r"[a-z][\w-]*", release)
    assert re.fullmatch(r"[\w-]+/[\w-]+", chart)
    for option, argument in zip(options[0::2], options[1::2], strict=True):
        assert option in ("--set", "--values")
        if option == "--values":
            assert argument.endswith(".yaml")
            continue
        name, value = argument.split("=")
        assert re.fullmatch(r"\w+(\.\w+)*", name)
        assert not isinstance(yaml.safe_load(value), dict)


def kubectl(arguments):
    """A port of a service, made one of this machine."""
    action, service, ports = arguments
    assert action == "port-forward"
    assert re.fullmatch(r"service/[a-z][\w-]*", service)
    assert re.fullmatch(r"\d+:\d+", ports)


def export(arguments):
    """An environment variable that this project reads."""
    (assignment,) = arguments
    assert assignment.split("=")[0] in {"CAVITY_DATA", "CAVITY_CACHE"}


CHECKS = {check.__name__: check for check in (make, pip, python, dask, helm, kubectl, export)}
"""By program: everything else in a shell block is executed."""

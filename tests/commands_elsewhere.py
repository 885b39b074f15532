"""Checks of commands in the documentation that no test can run."""

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
    """The target exists, and make can print its commands."""
    for target in (word for word in arguments if "=" not in word):
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"the Makefile has no {target}"
    if shutil.which("make"):
        subprocess.run(["make", "--dry-run", *arguments], cwd=ROOT, check=True, capture_output=True)


def pip(arguments):
    """The extras of this package, `.` or a wheel, exist; other packages are not checked."""
    assert arguments[0] == "install"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for word in arguments[1:]:
        wanted = Requirement(re.sub(r"^(\.(?=$|\[)|dist/\S*\.whl)", project["name"], word))
        if wanted.name == project["name"]:
            assert wanted.extras <= set(project["optional-dependencies"]), word


def python(arguments):
    """The options and names of `python -m benchmarks` exist."""
    assert arguments[:2] == ["-m", "benchmarks"], arguments
    parsed = benchmark_parser().parse_args(arguments[2:])
    assert set(getattr(parsed, "names", [])) <= {"all", *benchmarks(), *ALIASES}


def dask(arguments):
    """Dask's own parser accepts the options; this file stands in for the file of machine names."""
    from importlib.metadata import entry_points

    (found,) = entry_points(group="dask_cli", name=arguments[0])
    words = [__file__ if word == "machines.txt" else word for word in arguments[1:]]
    found.load().make_context(f"dask {arguments[0]}", words)


def helm(arguments):
    """A release of a chart is installed, with values that YAML can read."""
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
    """A port of a service is forwarded to this machine."""
    action, service, ports = arguments
    assert action == "port-forward"
    assert re.fullmatch(r"service/[a-z][\w-]*", service)
    assert re.fullmatch(r"\d+:\d+", ports)


def export(arguments):
    """The environment variable is one that this project reads."""
    (assignment,) = arguments
    assert assignment.split("=")[0] in {"CAVITY_DATA", "CAVITY_CACHE", "CAVITY_TABLES"}


CHECKS = {check.__name__: check for check in (make, pip, python, dask, helm, kubectl, export)}
"""Programs that are checked; everything else in a shell block is executed."""

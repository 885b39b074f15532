"""A virtual environment per peer, made on demand from its pinned requirements.

The peers' dependencies contradict one another (and ours), so none of them is ever installed
next to the project.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements"
ENVIRONMENTS = HERE.parent / ".envs"
NO_DEPS = "# pip: --no-deps"  # a line of the requirements file: the list is complete as it stands


class UnknownPeerError(RuntimeError):
    """No requirements file has this name."""


def names() -> list[str]:
    """The peers, by their requirements files."""
    return sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))


def python(name: str) -> Path:
    """The interpreter of a peer's environment, there or not."""
    return ENVIRONMENTS / name / "bin" / "python"


def installed(name: str) -> bool:
    """Whether the environment was made from the requirements as they are now."""
    stamp = ENVIRONMENTS / name / "requirements.txt"
    return stamp.exists() and stamp.read_bytes() == requirements(name).read_bytes()


def install(name: str) -> None:
    """Make the environment of one peer; does nothing if it is up to date."""
    pinned = requirements(name)
    if installed(name):
        return
    folder = ENVIRONMENTS / name
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(python(name)), "-m", "pip", "install", "--quiet", "-r", str(pinned)]
    if NO_DEPS in pinned.read_text().splitlines():
        pip.append("--no-deps")
    subprocess.run(pip, check=True)
    # Written last: an installation that was interrupted does not count as one.
    shutil.copyfile(pinned, folder / "requirements.txt")


def requirements(name: str) -> Path:
    """The file with a peer's pinned requirements."""
    path = REQUIREMENTS / f"{name}.txt"
    if not path.exists():
        raise UnknownPeerError(f"no peer {name!r}; the peers are {', '.join(names())}")
    return path

"""Two commits against each other in one run: `python -m benchmarks.compare BASE [HEAD]`.

The micro-benchmarks of the working tree are run with the sources of BASE and of HEAD (default: the
working tree itself) in turns, A B A B …, so that whatever else the machine does hits both. Compared are
the fastest times of all rounds. A slow-down counts when it is larger than `SMALLEST` and than the noise,
twice the spread that the rounds of one and the same commit show.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SMALLEST = 0.10
"""A slow-down below this is not worth an alarm."""
NOISE_FACTOR = 2.0

Times = dict[str, float]
"""Fastest seconds of each micro-benchmark in one round."""


@dataclass(frozen=True)
class Verdict:
    """One micro-benchmark, both commits."""

    name: str
    base: float
    head: float
    noise: float
    """Relative spread of the rounds of one commit, the larger of the two."""

    @property
    def ratio(self) -> float:
        """Head's seconds in units of base's."""
        return self.head / self.base

    @property
    def allowed(self) -> float:
        """Largest ratio that may be noise."""
        return 1.0 + max(SMALLEST, NOISE_FACTOR * self.noise)

    @property
    def slower(self) -> bool:
        """Whether head is slower beyond noise."""
        return self.ratio > self.allowed


def verdicts(base: list[Times], head: list[Times]) -> list[Verdict]:
    """Compare rounds of two commits; a benchmark that one of them cannot run is left out.

    >>> a, b = [{"pass": 1.0}, {"pass": 1.02}], [{"pass": 1.3}, {"pass": 1.31}]
    >>> [v.slower for v in verdicts(a, b)], [v.slower for v in verdicts(a, a)]
    ([True], [False])
    """
    names = [n for n in base[0] if all(n in times for times in [*base, *head])]
    found = []
    for name in names:
        a, b = ([times[name] for times in side] for side in (base, head))
        noise = max(max(side) / min(side) - 1.0 for side in (a, b))
        found.append(Verdict(name, min(a), min(b), noise))
    return found


def measured(tree: Path, rounds_file: Path, only: str | None) -> Times:
    """One round: the micro-benchmarks of the working tree on the sources of `tree`."""
    paths = os.pathsep.join([str(tree / "src"), str(ROOT)])
    command = [sys.executable, "-m", "pytest", "benchmarks/micro", "-q", "--benchmark-only"]
    command += ["-p", "no:cacheprovider", f"--benchmark-json={rounds_file}"]
    # Seconds of the processor: what else the machine does is not counted.
    command += [
        "--benchmark-timer=time.process_time",
        "--benchmark-max-time=0.5",
        "--benchmark-warmup=on",
    ]
    command += ["-k", only] if only else []
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if not rounds_file.exists() or not rounds_file.stat().st_size:
        raise RuntimeError(f"the micro-benchmarks did not run:\n{done.stdout[-2000:]}")
    stored = json.loads(rounds_file.read_text())
    return {entry["name"]: float(entry["stats"]["min"]) for entry in stored["benchmarks"]}


@contextlib.contextmanager
def worktree(commit: str | None) -> Iterator[Path]:
    """The files of a commit in a folder of their own; None is the working tree as it is."""
    if commit is None:
        yield ROOT
        return
    with tempfile.TemporaryDirectory(prefix="cavity-compare-") as name:
        folder = Path(name) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "--quiet", str(folder), commit], check=True)
        try:
            yield folder
        finally:
            subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def compare(base: str, head: str | None, rounds: int, only: str | None = None) -> list[Verdict]:
    """Run both commits in turns."""
    times: tuple[list[Times], list[Times]] = ([], [])
    with worktree(base) as a, worktree(head) as b, tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for side, tree in ((0, a), (1, b)):
                print(f"round {number + 1} of {rounds}, {('base', 'head')[side]}", file=sys.stderr)
                times[side].append(measured(tree, Path(folder) / f"{side}-{number}.json", only))
    return verdicts(*times)


def main(argv: list[str] | None = None) -> int:
    """Print the comparison; the exit status is 1 if something is slower beyond noise."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("base", help="commit to compare with")
    parser.add_argument("head", nargs="?", help="commit to judge; default: the working tree")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", metavar="EXPRESSION", help="as pytest's -k")
    arguments = parser.parse_args(argv)
    found = compare(arguments.base, arguments.head, arguments.rounds, arguments.only)
    print("| micro-benchmark | base, ms | head, ms | ratio | allowed | |\n|---|---|---|---|---|---|")
    for v in found:
        word = "slower" if v.slower else ""
        print(
            f"| {v.name} | {1e3 * v.base:.3f} | {1e3 * v.head:.3f} | {v.ratio:.2f} "
            f"| {v.allowed:.2f} | {word} |"
        )
    return int(any(v.slower for v in found))


if __name__ == "__main__":
    sys.exit(main())

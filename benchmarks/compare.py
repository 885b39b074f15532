"""Two commits against each other in one run: `python -m benchmarks.compare BASE [HEAD]`.

The micro-benchmarks, or with `--workload` the quick form of benchmarks, run in the trees of BASE and of
HEAD (default: the working tree itself) in turns, A B A B …, so that whatever else the machine does hits
both. Each tree runs its own files, since they import the inside of `cavity`. If the micro-benchmarks
themselves have changed, that is said. Compared are the smallest costs of all rounds. A rise counts when
it is larger than `SMALLEST` and than the noise, twice the spread of the rounds of one commit.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.records import Repetition, read

ROOT = Path(__file__).parents[1]
SMALLEST = 0.10
"""A rise below this is not worth an alarm."""
NOISE_FACTOR = 2.0
OURS = ("cavity-", "here-", "paper-")
"""How the names of the project's own methods begin; workloads are compared without their peers."""

Costs = dict[str, float]
"""What each measurement of a round has cost, in the unit that its name ends with; less is better."""


@dataclass(frozen=True)
class Verdict:
    """One measurement, both commits."""

    name: str
    base: float
    head: float
    noise: float
    """Relative spread of the rounds of one commit, the larger of the two."""

    @property
    def ratio(self) -> float:
        """Head's cost in units of base's."""
        return self.head / self.base

    @property
    def allowed(self) -> float:
        """Largest ratio that may be noise."""
        return 1.0 + max(SMALLEST, NOISE_FACTOR * self.noise)

    @property
    def slower(self) -> bool:
        """Whether head costs more, beyond noise."""
        return self.ratio > self.allowed


def verdicts(base: list[Costs], head: list[Costs]) -> list[Verdict]:
    """Compare rounds of two commits; a measurement that one of them lacks is left out.

    >>> a, b = [{"pass": 1.0}, {"pass": 1.02}], [{"pass": 1.3}, {"pass": 1.31}]
    >>> [v.slower for v in verdicts(a, b)], [v.slower for v in verdicts(a, a)]
    ([True], [False])
    """
    names = [n for n in base[0] if all(n in costs for costs in [*base, *head])]
    found = []
    for name in names:
        a, b = ([costs[name] for costs in side] for side in (base, head))
        noise = max(max(side) / min(side) - 1.0 for side in (a, b))
        found.append(Verdict(name, min(a), min(b), noise))
    return found


def micro_costs(tree: Path, folder: Path, only: str | None) -> Costs:
    """One round of a tree's micro-benchmarks."""
    rounds_file = folder / "micro.json"
    command = ["pytest", "benchmarks/micro", "--benchmark-only", "-p", "no:cacheprovider"]
    # Seconds of the processor: what else the machine does is not counted.
    command += ["--benchmark-timer=time.process_time", f"--benchmark-json={rounds_file}"]
    command += ["--benchmark-max-time=0.5", "--benchmark-warmup=on"]
    command += ["-k", only] if only else []
    _run(tree, command, {"OMP_NUM_THREADS": "1"})
    stored = json.loads(rounds_file.read_text())
    return {f"{e['name']}, ms": 1e3 * float(e["stats"]["min"]) for e in stored["benchmarks"]}


def workload_costs(tree: Path, folder: Path, names: list[str], only: str | None) -> Costs:
    """One round of the quick form of a tree's benchmarks, without the peers."""
    from benchmarks.methods import methods

    command = ["benchmarks", "run", *names, "--quick", "--out", str(folder), "--figures", str(folder)]
    command += [] if "CAVITY_DATA" in os.environ else ["--stand-ins"]
    for method in [only] if only else [name for name in methods() if name.startswith(OURS)]:
        command += ["--only", method]
    _run(tree, command, {})
    costs: Costs = {}
    for file in sorted(folder.glob("*.jsonl")):
        for repetition in read(file).repetitions:
            costs |= costs_of(repetition)
    return costs


def costs_of(repetition: Repetition) -> Costs:
    """What a record says of seconds and memory; rates are turned round, so that less is better.

    >>> costs_of(Repetition("step-rate", "SEP", "s", "smooth", 0, {}, extra={"steps_per_second": 500.0}))
    {'step-rate smooth 0, SEP, ms a step': 2.0}
    >>> costs_of(Repetition("uci", "SEP", "s", "heart", 1, {"m": 40}, seconds=0.5))
    {'uci heart 1, SEP, m=40, ms': 500.0}
    """
    r, extra = repetition, repetition.extra
    if r.failure is not None:
        return {}
    m = f", m={r.settings['m']}" if r.seconds is not None and "m" in r.settings else ""
    name = f"{r.workload}{'' if r.dataset == '-' else f' {r.dataset} {r.split}'}, {r.label}{m}"
    # The seconds of a fit that has a budget are the budget.
    costs = {f"{name}, ms": 1e3 * r.seconds} if r.seconds is not None and r.budget is None else {}
    if "steps_per_second" in extra:
        costs[f"{name}, ms a step"] = 1e3 / extra["steps_per_second"]
    for key, unit, factor in _COSTS_NOTED:
        if key in extra:
            costs[f"{name}, {unit}"] = factor * extra[key]
    if "rows_per_second" in extra:
        costs[f"{name}, µs a row"] = 1e6 / extra["rows_per_second"]
    return costs


_COSTS_NOTED = [
    ("seconds", "ms", 1e3),  # iteration, footprint, predict-stream, dask
    ("local, 2 threads", "local, ms", 1e3),  # dask
    ("1 workers", "1 worker, ms", 1e3),
    ("2 workers", "2 workers, ms", 1e3),
    ("m=200", "m=200, ms", 1e3),
    ("m=1000", "m=1000, ms", 1e3),
    ("growth", "MB", 1e-6),
    ("extra_megabytes", "MB", 1.0),  # footprint
    ("peak", "MB at the peak", 1e-6),  # footprint, predict-stream
]
"""Numbers that benchmarks note beside their fits: key, words for the table, factor to that unit."""


def _run(tree: Path, module: list[str], variables: dict[str, str]) -> None:
    """Run a module with the sources and the benchmarks of a tree."""
    paths = os.pathsep.join([str(tree / "src"), str(tree)])
    done = subprocess.run(
        [sys.executable, "-m", *module],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": paths} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stdout + done.stderr)[-2000:]
        raise RuntimeError(f"{' '.join(module)} failed in {tree}:\n{said}")


def same_but_for_imports(a: Path, b: Path) -> bool:
    """Whether two trees have the same micro-benchmarks, whatever they import."""
    trees = []
    for tree in (a, b):
        module = ast.parse((tree / "benchmarks" / "micro" / "test_micro.py").read_text("utf-8"))
        kept = [node for node in module.body if not isinstance(node, (ast.Import, ast.ImportFrom))]
        trees.append([ast.dump(node) for node in kept])
    return trees[0] == trees[1]


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


def compare(
    base: str,
    head: str | None,
    rounds: int,
    only: str | None = None,
    workloads: list[str] | None = None,
) -> list[Verdict]:
    """Run both commits in turns."""
    costs: tuple[list[Costs], list[Costs]] = ([], [])
    with worktree(base) as a, worktree(head) as b:
        if not workloads and not same_but_for_imports(a, b):
            print(
                "the micro-benchmarks of the two commits differ by more than their imports; read the "
                "difference of benchmarks/micro before you trust a ratio",
                file=sys.stderr,
            )
        for number in range(rounds):
            for side, tree in ((0, a), (1, b)):
                print(f"round {number + 1} of {rounds}, {('base', 'head')[side]}", file=sys.stderr)
                with tempfile.TemporaryDirectory() as name:
                    if workloads:
                        costs[side].append(workload_costs(tree, Path(name), workloads, only))
                    else:
                        costs[side].append(micro_costs(tree, Path(name), only))
    found = verdicts(*costs)
    left_out = {name for side in costs for each in side for name in each} - {v.name for v in found}
    for name in sorted(left_out):
        print(f"not measured in every round of both commits: {name}", file=sys.stderr)
    if not found:
        raise RuntimeError("nothing was measured in both commits")
    return found


def main(argv: list[str] | None = None) -> int:
    """Print the comparison; the exit status is 1 if something costs more beyond noise."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("base", help="commit to compare with")
    parser.add_argument("head", nargs="?", help="commit to judge; default: the working tree")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", metavar="EXPRESSION", help="as pytest's -k; of a workload, a method")
    parser.add_argument(
        "--workload",
        action="append",
        metavar="NAME",
        help="in place of the micro-benchmarks, the quick form of this one; repeatable",
    )
    arguments = parser.parse_args(argv)
    found = compare(arguments.base, arguments.head, arguments.rounds, arguments.only, arguments.workload)
    print("| | base | head | ratio | allowed | |\n|---|---|---|---|---|---|")
    for v in found:
        word = "slower" if v.slower else ""
        print(f"| {v.name} | {v.base:.3f} | {v.head:.3f} | {v.ratio:.2f} | {v.allowed:.2f} | {word} |")
    return int(any(v.slower for v in found))


if __name__ == "__main__":
    sys.exit(main())

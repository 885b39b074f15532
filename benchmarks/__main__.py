"""`python -m benchmarks`: list and run the benchmarks, draw what is recorded, install the peers."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from pathlib import Path

from benchmarks import machine, results, stand_ins, tables
from benchmarks.context import Context, TimeUpError
from benchmarks.data import DataNotFoundError
from benchmarks.methods import methods
from benchmarks.peers import environments
from benchmarks.records import RecordFile, read
from benchmarks.registry import ALIASES, Benchmark, benchmarks

HERE = Path(__file__).parent
RECORDS = HERE / "records"
FIGURES = HERE / "figures"
RESULTS = HERE.parent / "docs" / "results.md"
README = HERE.parent / "README.md"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)

    commands.add_parser("list", help="name the benchmarks and the methods")

    run = commands.add_parser("run", help="run benchmarks; recorded repetitions are skipped")
    run.add_argument("names", nargs="+", metavar="NAME", help='names, or "all"')
    run.add_argument("--quick", action="store_true", help="a smoke test, in its own record file")
    run.add_argument("--budget", type=float, metavar="SECONDS", help="training time per method")
    run.add_argument("--splits", type=int, metavar="K", help="the first K splits only")
    run.add_argument("--minutes", type=float, help="begin no repetition after so many minutes")
    run.add_argument("--only", action="append", default=[], metavar="METHOD", help="repeatable")
    run.add_argument("--fresh", action="store_true", help="forget the recorded repetitions")

    draw = commands.add_parser("draw", help="table and figure of recorded benchmarks, without a run")
    draw.add_argument("names", nargs="+", metavar="NAME", help='names, or "all"')
    draw.add_argument("--quick", action="store_true", help="from the records of quick runs")

    for command in (run, draw):
        command.add_argument("--out", type=Path, default=RECORDS, metavar="DIR", help="record folder")
        command.add_argument("--figures", type=Path, default=FIGURES, metavar="DIR")
        command.add_argument(
            "--stand-ins", action="store_true", help="small sets of scikit-learn's for CAVITY_DATA"
        )

    results = commands.add_parser(
        "results", help="write results.md and the README's table from the records"
    )
    results.add_argument("--out", type=Path, default=RECORDS, metavar="DIR", help="record folder")
    results.add_argument("--page", type=Path, default=RESULTS)
    results.add_argument("--readme", type=Path, default=README)

    table = commands.add_parser("table", help="print a record file as a Markdown table")
    table.add_argument("file", type=Path)

    peers = commands.add_parser("peers", help="the other libraries, each in its own environment")
    peers.add_argument("action", choices=["install", "list"])
    peers.add_argument("names", nargs="*", metavar="NAME")
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit status is 0 if it did what was asked."""
    arguments = parser().parse_args(argv)
    try:
        return _COMMANDS[arguments.command](arguments)
    except (DataNotFoundError, machine.BusyError, environments.UnknownPeerError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1


def _list(arguments: argparse.Namespace) -> int:
    for item in benchmarks().values():
        print(f"{item.name:17s} {item.description}")
    print("\nmethods:", ", ".join(methods()))
    return 0


def _chosen(names: list[str]) -> list[Benchmark] | None:
    known = benchmarks()
    names = [ALIASES.get(name, name) if ALIASES.get(name) in known else name for name in names]
    for name in names:
        if name not in known and name != "all":
            there = ", ".join(known)
            print(f"benchmarks: no benchmark {name!r}; there are {there}", file=sys.stderr)
            return None
    return list(known.values()) if "all" in names else [known[name] for name in names]


def _stem(name: str, arguments: argparse.Namespace) -> str:
    return str(name + "-quick" * arguments.quick + "-stand-ins" * arguments.stand_ins)


def _run(arguments: argparse.Namespace) -> int:
    chosen = _chosen(arguments.names)
    if chosen is None:
        return 2
    deadline = None if arguments.minutes is None else time.monotonic() + 60.0 * arguments.minutes
    data = stand_ins.instead() if arguments.stand_ins else contextlib.nullcontext()
    alone = machine.exclusive() if any(item.timed for item in chosen) else contextlib.nullcontext()
    with alone, data:
        for item in chosen:
            if len(chosen) > 1:
                print(f"\n== {item.name}: {item.description}", flush=True)
            if not _run_one(item, arguments, deadline):
                return 1
    return 0


def _run_one(item: Benchmark, arguments: argparse.Namespace, deadline: float | None) -> bool:
    """Run, print and draw one benchmark; whether it came to its end."""
    path = _recorded(item, arguments)
    context = Context(
        workload=item.name,
        records=RecordFile(path, machine.facts, arguments.fresh),
        methods=methods(),
        quick=arguments.quick,
        budget=arguments.budget,
        only=tuple(arguments.only),
        splits=arguments.splits,
        deadline=deadline,
    )
    complete = True
    try:
        item.run(context)
    except (KeyboardInterrupt, TimeUpError) as end:
        complete = False
        context.bar.clear()
        print(f"benchmarks: {end or 'interrupted'}; below is what is recorded", file=sys.stderr)
    _show(item, path, arguments)
    return complete


def _show(item: Benchmark, path: Path, arguments: argparse.Namespace) -> None:
    repetitions = read(path).repetitions
    if not repetitions:
        return
    print(f"\n{item.table(repetitions)}", flush=True)
    if item.draw is not None:
        arguments.figures.mkdir(parents=True, exist_ok=True)
        for file in item.draw(repetitions, arguments.figures / path.stem):
            print(f"drawn: {file.name}")


def _draw(arguments: argparse.Namespace) -> int:
    chosen = _chosen(arguments.names)
    if chosen is None:
        return 2
    there = [item for item in chosen if _recorded(item, arguments).exists()]
    if not there:
        missing = ", ".join(_recorded(item, arguments).name for item in chosen)
        print(f"benchmarks: nothing is recorded yet ({missing})", file=sys.stderr)
        return 2
    with stand_ins.instead() if arguments.stand_ins else contextlib.nullcontext():
        for item in there:
            _show(item, _recorded(item, arguments), arguments)
    return 0


def _recorded(item: Benchmark, arguments: argparse.Namespace) -> Path:
    return Path(arguments.out) / f"{_stem(item.name, arguments)}.jsonl"


def _results(arguments: argparse.Namespace) -> int:
    arguments.page.write_text(results.page(arguments.out), encoding="utf-8")
    front = arguments.readme.read_text(encoding="utf-8")
    arguments.readme.write_text(results.readme(front, arguments.out), encoding="utf-8")
    return 0


def _table(arguments: argparse.Namespace) -> int:
    if not arguments.file.exists():
        print(f"benchmarks: no record file {arguments.file}", file=sys.stderr)
        return 2
    print(tables.table(read(arguments.file).repetitions))
    return 0


def _peers(arguments: argparse.Namespace) -> int:
    for name in arguments.names or environments.names():
        if arguments.action == "install":
            environments.install(name)
        print(f"{name:12s} {'installed' if environments.installed(name) else 'not installed'}")
    return 0


_COMMANDS = {
    "list": _list,
    "run": _run,
    "draw": _draw,
    "results": _results,
    "table": _table,
    "peers": _peers,
}

if __name__ == "__main__":
    sys.exit(main())

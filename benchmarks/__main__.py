"""`python -m benchmarks`: list and run the benchmarks, draw what is recorded, install the peers."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks import code, machine, results, stand_ins, tables
from benchmarks.context import Context, TimeUpError
from benchmarks.data import DataNotFoundError
from benchmarks.load import LIMIT, BusyError, Quiet
from benchmarks.methods import Method, code_of, methods
from benchmarks.peers import environments
from benchmarks.records import RecordFile, Repetition, prune, read
from benchmarks.registry import ALIASES, Benchmark, benchmarks

HERE = Path(__file__).parent
RECORDS = HERE / "records"
FIGURES = HERE / "figures"
RESULTS = HERE.parent / "docs" / "results.md"
README = HERE.parent / "README.md"
WAIT = 10.0
"""Minutes to wait for a quiet machine."""


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
    run.add_argument(
        "--keep", action="store_true", help="do not repeat what was recorded with other code"
    )
    run.add_argument(
        "--wait",
        type=float,
        default=WAIT,
        metavar="MINUTES",
        help="for other processes to end (default %(default)g)",
    )

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
    results.add_argument("--readme", type=Path, default=README, help="whose table is written too")

    status = commands.add_parser("status", help="what is recorded with this code, and what is not")
    status.add_argument("--out", type=Path, default=RECORDS, metavar="DIR", help="record folder")

    forget = commands.add_parser("prune", help="drop records that were not made with this code")
    forget.add_argument("--out", type=Path, default=RECORDS, metavar="DIR", help="record folder")
    forget.add_argument("names", nargs="+", metavar="NAME", help='names, or "all"')

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
    except (DataNotFoundError, BusyError, code.NotCleanError, environments.UnknownPeerError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1


def _list(arguments: argparse.Namespace) -> int:
    for item in benchmarks().values():
        minutes = "" if item.minutes is None else f"{item.minutes:4.0f} min"
        print(f"{item.name:17s} {minutes:8s}  {item.description}")
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
    if "all" not in names:
        return [known[name] for name in names]
    return sorted(known.values(), key=lambda item: item.minutes or float("inf"))  # the short ones first


def _stem(name: str, arguments: argparse.Namespace) -> str:
    return str(name + "-quick" * arguments.quick + "-stand-ins" * arguments.stand_ins)


def _run(arguments: argparse.Namespace) -> int:
    chosen = _chosen(arguments.names)
    if chosen is None:
        return 2
    real = not (arguments.quick or arguments.stand_ins)
    if real:
        code.check_clean()
    deadline = None if arguments.minutes is None else time.monotonic() + 60.0 * arguments.minutes
    data = stand_ins.instead() if arguments.stand_ins else contextlib.nullcontext()
    alone = machine.exclusive() if any(item.timed for item in chosen) else contextlib.nullcontext()
    missing = []
    with alone, data:
        for item in chosen:
            if len(chosen) > 1:
                print(f"\n== {item.name}: {item.description}", flush=True)
            try:
                if not _run_one(item, arguments, deadline, real):
                    return 1
            except DataNotFoundError as error:
                if len(chosen) == 1:
                    raise
                missing.append(item.name)
                print(f"benchmarks: {item.name} was left out: {error}", file=sys.stderr)
    return 1 if missing else 0


def _run_one(item: Benchmark, arguments: argparse.Namespace, deadline: float | None, real: bool) -> bool:
    """Run, print and draw one benchmark; whether it came to its end.

    The records of a real run are made on a quiet machine, and those of other code do not count.
    """
    path, known = _recorded(item, arguments), methods()
    strict = real and not arguments.keep
    context = Context(
        workload=item.name,
        records=RecordFile(
            path,
            machine.facts,
            arguments.fresh,
            (lambda r: _is_current(r, known)) if strict else (lambda r: True),
        ),
        methods=known,
        quick=arguments.quick,
        budget=arguments.budget,
        only=tuple(arguments.only),
        splits=arguments.splits,
        deadline=deadline,
        quiet=Quiet(60.0 * arguments.wait) if real and item.timed else None,
    )
    complete = True
    try:
        item.run(context)
    except (KeyboardInterrupt, TimeUpError, BusyError) as end:
        complete = False
        context.bar.clear()
        print(f"benchmarks: {end or 'interrupted'}; below is what is recorded", file=sys.stderr)
    _show(item, path, arguments)
    return complete


def _is_current(r: Repetition, known: Mapping[str, Method]) -> bool:
    """Whether a record was made with the code of now, on a quiet machine."""
    return _has_same_code(r, known) and (r.load is None or r.load <= LIMIT)


def _has_same_code(r: Repetition, known: Mapping[str, Method]) -> bool:
    return r.code == (code_of(known[r.method]) if r.method in known else code.ours())


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
    readme = arguments.readme.read_text(encoding="utf-8")
    arguments.readme.write_text(results.readme(readme, arguments.out), encoding="utf-8")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    known = methods()
    for item in benchmarks().values():
        stored = read(arguments.out / f"{item.name}.jsonl").repetitions
        current = sum(_is_current(r, known) for r in stored)
        failed = sum(r.failure is not None for r in stored)
        left = f", {failed} failed" if failed else ""
        print(f"{item.name:17s} {current} of {len(stored)} recorded with this code{left}")
    return 0


def _prune(arguments: argparse.Namespace) -> int:
    chosen = _chosen(arguments.names)
    if chosen is None:
        return 2
    known = methods()
    for item in chosen:
        path = arguments.out / f"{item.name}.jsonl"
        dropped = prune(path, lambda r: _has_same_code(r, known)) if path.exists() else 0
        print(f"{item.name:17s} {dropped} records dropped")
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
    "status": _status,
    "prune": _prune,
    "table": _table,
    "peers": _peers,
}

if __name__ == "__main__":
    sys.exit(main())

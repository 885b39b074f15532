"""`python -m benchmarks`: list and run the benchmarks, install the peers, print tables."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import machine, tables
from benchmarks.context import Context
from benchmarks.data import DataNotFoundError
from benchmarks.methods import methods
from benchmarks.peers import environments
from benchmarks.records import RecordFile, read
from benchmarks.registry import benchmarks

RECORDS = Path(__file__).parent / "records"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)

    commands.add_parser("list", help="name the benchmarks and the methods")

    run = commands.add_parser("run", help="run a benchmark; recorded repetitions are skipped")
    run.add_argument("name")
    run.add_argument("--quick", action="store_true", help="a smoke test, in its own record file")
    run.add_argument("--budget", type=float, metavar="SECONDS", help="training time per method")
    run.add_argument("--out", type=Path, default=RECORDS, metavar="DIR", help="record folder")
    run.add_argument("--only", action="append", default=[], metavar="METHOD", help="repeatable")
    run.add_argument("--fresh", action="store_true", help="forget the recorded repetitions")

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
        print(f"{item.name:12s} {item.description}")
    print("\nmethods:", ", ".join(methods()))
    return 0


def _run(arguments: argparse.Namespace) -> int:
    known = benchmarks()
    if arguments.name not in known:
        names = ", ".join(known)
        print(f"benchmarks: no benchmark {arguments.name!r}; there are {names}", file=sys.stderr)
        return 2
    stem = arguments.name + ("-quick" if arguments.quick else "")
    with machine.exclusive():
        records = RecordFile(arguments.out / f"{stem}.jsonl", machine.facts, arguments.fresh)
        known[arguments.name].run(
            Context(
                workload=arguments.name,
                records=records,
                methods=methods(),
                quick=arguments.quick,
                budget=arguments.budget,
                only=tuple(arguments.only),
            )
        )
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


_COMMANDS = {"list": _list, "run": _run, "table": _table, "peers": _peers}

if __name__ == "__main__":
    sys.exit(main())

"""What the campaigns against processes share: children that are started fast, and the summary."""

import argparse
import multiprocessing
import sys
import time
from collections import Counter

SECONDS = 120.0
"""How long a process may take to start, or to end after a signal: only what hangs takes longer."""

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["cavity.cli.fit", "cavity.export.model_file", "pandas"])


class Child:
    """A process that runs `function(connection, *args)`, with the other end of the connection."""

    def __init__(self, function, *args):
        self.connection, other = context.Pipe()
        self.process = context.Process(target=function, args=(other, *args), daemon=True)
        self.process.start()
        other.close()

    def answer(self, seconds=SECONDS):
        """What the child sends next, or None if it does not within these seconds, or has ended."""
        try:
            return self.connection.recv() if self.connection.poll(seconds) else None
        except (EOFError, OSError):
            return None

    def end(self, seconds=0.0):
        """Wait for the end, or kill the child; whether it ended by itself, and its exit code."""
        self.process.join(seconds)
        by_itself = self.process.exitcode is not None
        self.process.kill()
        self.process.join()
        self.connection.close()
        return by_itself, self.process.exitcode


def main(description, kinds, run, good, count):
    """Run a campaign from the command line; returns the exit code.

    run: a function of seed, count and names that yields (kind, number, outcome, words) of each trial.
    """
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--only", help="part of the names of the kinds to try")
    options = parser.parse_args()
    names = [name for name in kinds if (options.only or "") in name]
    begun, counts, failures = time.monotonic(), Counter(), 0
    for kind, number, result, words in run(options.seed, options.count, names=names):
        counts[kind, result] += 1
        if result not in good:
            failures += 1
            print(f"{number} {kind}: {result}: {words[-2_000:]}", file=sys.stderr, flush=True)
    for (kind, result), times in sorted(counts.items()):
        print(f"{kind:44}{result:30}{times:6}")
    print(f"seed {options.seed}, {time.monotonic() - begun:.0f} s, {failures} failures")
    return 1 if failures else 0

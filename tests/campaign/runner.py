"""What all campaigns share: their options, counting and printing, and the outcome of an error."""

import argparse
import signal
import sys
import time
import traceback
from collections import Counter
from contextlib import contextmanager
from pathlib import Path


class TooSlowError(BaseException):
    """A trial takes too long; no handler of ordinary exceptions may catch it."""


@contextmanager
def at_most(seconds):
    """Raise if what is inside takes more seconds of the processor, however busy the machine is."""

    def late(*_):
        raise TooSlowError

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def unexpected(error):
    """The outcome of an exception that should not have come, and its words with the place."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return type(error).__name__, f"{error} ({Path(place.filename).name}:{place.lineno})"


def main(about, kinds, run, *, allowed, count):
    """Run a campaign and print what was tried and what came out; returns 1 if anything failed.

    about: docstring of the campaign. kinds: names of the kinds of trials; trial number i is of kind
    i modulo their number. run(seed, numbers) yields (kind, detail, number, outcome, words).
    allowed: the outcomes that are no failures. count: number of trials unless an option says otherwise.
    """
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--only", type=int, metavar="N", help="repeat the trial of this number alone")
    parser.add_argument("--kind", default="", help="part of the names of the kinds to try")
    parser.add_argument("--words", action="store_true", help="print what each refusal says")
    options = parser.parse_args()
    numbers = range(options.count) if options.only is None else [options.only]
    numbers = [number for number in numbers if options.kind in kinds[number % len(kinds)]]
    begun, counts, n_failed = time.monotonic(), Counter(), 0
    for kind, detail, number, outcome, words in run(options.seed, numbers):
        failed = outcome not in allowed
        n_failed += failed
        counts.update(((kind, "failed" if failed else outcome), (kind, "tried")))
        if failed or options.words:
            line = f"{number} {kind}: {outcome}: {words[-300:]}\n    {detail}"
            print(line, file=sys.stderr if failed else sys.stdout, flush=True)
    columns = ["tried", *allowed, "failed"]
    print(f"{'kind':44}" + "".join(f"{column:>10.10}" for column in columns))
    for kind in kinds:
        if counts[kind, "tried"]:
            print(f"{kind:44}" + "".join(f"{counts[kind, column]:10}" for column in columns))
    totals = [sum(counts[kind, column] for kind in kinds) for column in columns]
    print(f"{'all':44}" + "".join(f"{total:10}" for total in totals))
    print(f"seed {options.seed}, {time.monotonic() - begun:.0f} s, {n_failed} failures")
    return 1 if n_failed else 0

"""The methods of `benchmarks/ours.py`, in a process of their own."""

import sys
from pathlib import Path

import protocol

sys.path.insert(
    0, str(Path(__file__).parents[2])
)  # the harness, which imports cavity as it is installed

from benchmarks.ours import Job, fit
from benchmarks.start import Start


def main():
    job = protocol.Job()
    arrays = (job.array(name) for name in ("X", "y", "X_test", "y_test"))
    start = Start(job.array("Z"), job.lengthscale, job.amplitude)
    done = fit(job.mode, Job(*arrays, start, job.settings, job.budget))
    job.report(done.curve, done.seconds, done.log_p, **done.extra)


if __name__ == "__main__":
    main()

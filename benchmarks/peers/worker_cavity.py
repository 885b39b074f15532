"""Our own classifiers, timed exactly as the peers are.

A budget is the estimator's `max_seconds`, everything included: scaling, the choice of inducing points,
the race and the final sweeps.
"""

import sys
import warnings
from pathlib import Path

from one_vs_rest import OneVsRestClassifier
from protocol import Job

sys.path.insert(
    0, str(Path(__file__).parents[2])
)  # the harness, which imports cavity as it is installed

from benchmarks.ours import KINDS, facts, parameters_of, uncertainty


def main():
    job = Job()
    X, y, X_test = job.array("X"), job.array("y"), job.array("X_test")
    parameters = parameters_of(job.settings, job.budget)
    if "one_vs_rest" in job.settings:
        model = OneVsRestClassifier(job.settings["one_vs_rest"], **parameters)
    else:
        model = KINDS[job.mode](**parameters)
    warnings.simplefilter("ignore")  # a fit that ends with its budget says so
    job.begin()
    model.fit(X, y)
    extra = facts(model, job.seconds())
    job.finish(
        lambda: model.predict_log_proba(X_test),
        one_row=lambda rows: model.predict_proba(rows),
        scores=lambda: uncertainty(model, X_test),
        **extra,
    )


if __name__ == "__main__":
    main()

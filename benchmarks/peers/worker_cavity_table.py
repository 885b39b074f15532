"""Our classifier of tables, timed exactly as the peers are.

The budget is the estimator's `max_seconds`; learning the columns is counted in the seconds as well.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
from protocol import Job
from pyarrow import parquet

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.ours import KINDS, facts, parameters_of, uncertainty
from cavity import TableClassifier


def main():
    job = Job()
    X, X_test = (parquet.read_table(job.folder / f"{name}.parquet") for name in ("X", "X_test"))
    y = job.array("y")
    model = TableClassifier(
        KINDS[job.mode](**parameters_of(job.settings, job.budget)), **job.settings.get("table", {})
    )
    warnings.simplefilter("ignore")  # a fit that ends with its budget says so
    job.begin()
    model.fit(X, y)
    extra = {**facts(model.estimator_, job.seconds()), "notes": model.notes_}
    job.finish(
        lambda: np.asarray(model.predict_log_proba(X_test)),
        scores=lambda: uncertainty(model, X_test),
        **extra,
    )


if __name__ == "__main__":
    main()

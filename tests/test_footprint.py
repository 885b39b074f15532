"""What the package costs: memory during a fit, and modules that an import loads."""

import subprocess
import sys
import tracemalloc
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from cavity import SEPClassifier


@pytest.mark.parametrize("optimizer", ["adam", None])
def test_no_array_of_rows_by_inducing_points(optimizer):
    n, d, m = 150_000, 4, 100
    X = np.random.default_rng(0).normal(size=(n, d))
    y = X[:, 0] + X[:, 1] > 0
    model = SEPClassifier(
        n_inducing=m,
        max_epochs=2,
        optimizer=optimizer,
        batch_size=None,
        scaling="standard",
        config={"kernel_name": "rbf"},  # with Adam the race has a question left, one is enough
        random_state=0,
        n_jobs=2,
    )
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y)
        fit_peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        model.predict_proba(X)
        predict_peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert fit_peak < n * m * 8 / 2
    assert predict_peak < n * m * 8 / 3


def packages_loaded(code):
    """Packages outside the standard library that a piece of code loads after the line `START`."""
    first, _, rest = code.rpartition("START\n")
    code = f"import sys\n{first}\nbefore = set(sys.modules)\n{rest}\nprint(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = {name.partition(".")[0] for name in done.stdout.split()}
    return names - sys.stdlib_module_names


def test_the_package_alone_loads_nothing_else():
    """How long imports take is measured by `python -m benchmarks.micro.import_time`."""
    assert packages_loaded("import cavity") == {"cavity"}


SCIKIT_LEARN = """
import numpy.typing, scipy.linalg, scipy.special, scipy.sparse, scipy.spatial.distance, threadpoolctl
import sklearn.base, sklearn.cluster, sklearn.gaussian_process.kernels, sklearn.utils.validation
START
"""


def test_classifiers_load_nothing_besides_scikit_learn():
    """Packages that a user may not have installed, or does not need yet, are not loaded."""
    code = f"{SCIKIT_LEARN}from cavity import GFITCClassifier, SEPClassifier, SVIClassifier"
    assert packages_loaded(code) == {"cavity"}

"""What the package costs: memory during a fit, and time to import."""

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
        n_inducing=m, max_epochs=2, optimizer=optimizer, batch_size=None, random_state=0, n_jobs=2
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


IMPORTS = """
import sys, time
import numpy, scipy.linalg, scipy.special, scipy.sparse, scipy.spatial.distance, threadpoolctl
import sklearn.base, sklearn.cluster, sklearn.gaussian_process.kernels, sklearn.utils.validation
loaded = set(sys.modules)
started = time.perf_counter()
from cavity import GFITCClassifier, SEPClassifier, SVIClassifier
print(time.perf_counter() - started)
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - loaded}))
"""


def test_import_adds_little_to_scikit_learn():
    """Best of three: a busy machine is not the package's fault."""
    seconds = []
    for _ in range(3):
        run = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True)
        elapsed, modules = run.stdout.splitlines()
        seconds.append(float(elapsed))
        if seconds[-1] < 0.5:
            break
    assert min(seconds) < 0.5
    # What a user may not have installed, or does not need yet, is not loaded.
    assert not set(modules.split()) & {
        "pandas",
        "pyarrow",
        "matplotlib",
        "rich",
        "dask",
        "skops",
        "onnx",
    }

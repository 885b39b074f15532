"""Seconds to import and bytes to fit, each in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks import tables
from benchmarks.context import Context
from benchmarks.registry import benchmark

_IMPORTS = """
import time
import sklearn.base, sklearn.cluster, sklearn.gaussian_process.kernels, sklearn.utils.validation
begin = time.perf_counter()
from cavity import GFITCClassifier, SEPClassifier, SVIClassifier
print(time.perf_counter() - begin)
"""

_FIT = """
import json, sys, warnings
sys.path.insert(0, sys.argv[1])
import numpy as np
from protocol import peak_memory
from cavity import SEPClassifier
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.standard_normal((1_000_000, 8))
y = X[:, 0] + rng.standard_normal(len(X)) > 0
before = peak_memory()
SEPClassifier(n_inducing=200, random_state=0, batch_size=BATCH, LIMIT).fit(X, y)
print(json.dumps({"data": X.nbytes + y.nbytes, "before": before, "peak": peak_memory()}))
"""

WORKERS = Path(__file__).parent.parent / "peers"


def _run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, str(WORKERS)], capture_output=True, text=True, check=True
    )
    return done.stdout


@benchmark(
    "footprint",
    "seconds that `import cavity` adds to scikit-learn's; peak memory of 10⁶ rows",
    table=tables.notes,
    minutes=2,
)
def run(context: Context) -> None:
    """Best of five imports; resident memory of a fit beyond that of the data and the libraries."""
    context.expect(3)
    context.note("import", lambda: {"seconds": min(float(_run(_IMPORTS)) for _ in range(5))})
    context.note("memory, minibatches", lambda: _memory('"auto"', "max_epochs=1"))
    context.note("memory, all rows", lambda: _memory("None", "max_epochs=2"))


def _memory(batch: str, limit: str) -> dict[str, float]:
    usage = json.loads(_run(_FIT.replace("BATCH", batch).replace("LIMIT", limit)))
    return {**usage, "extra_megabytes": (usage["peak"] - usage["before"]) / 1e6}

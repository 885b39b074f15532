"""How long imports take: `python -m benchmarks.micro.import_time`.

Each statement runs in fresh interpreters. Printed are the shortest time in milliseconds, without that of
the interpreter itself, and the number of modules loaded.
"""

from __future__ import annotations

import json
import subprocess
import sys

ROUNDS = 5
STATEMENTS = (
    "import numpy",
    "import sklearn.gaussian_process, sklearn.cluster",
    "import cavity",
    "import cavity.cli.app",
    "from cavity import SEPClassifier",
    "from cavity import TableClassifier",
    "from cavity import DaskSEPClassifier",
)
_MEASURED = """
import json, sys, time
loaded, started = set(sys.modules), time.perf_counter()
{statement}
print(json.dumps([1e3 * (time.perf_counter() - started), len(set(sys.modules) - loaded)]))
"""


def measure(statement: str) -> tuple[float, int]:
    """Milliseconds, the least of some rounds, and modules that a statement loads."""
    code = _MEASURED.format(statement=statement)
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
        for _ in range(ROUNDS)
    ]
    return min(milliseconds for milliseconds, _ in runs), int(runs[0][1])


def main() -> None:
    """Print a line for each statement."""
    print(f"{'statement':50}{'ms':>8}{'modules':>9}")
    for statement in STATEMENTS:
        milliseconds, modules = measure(statement)
        print(f"{statement:50}{milliseconds:8.0f}{modules:9}")


if __name__ == "__main__":
    main()

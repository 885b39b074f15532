"""Load that `cavity serve` holds: `python -m benchmarks.micro.serving`.

A service in a process of its own answers 1,000 requests of ten clients over loopback. It prints errors,
requests a second and rows a second, for requests of one row and of 100 rows.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd

from cavity import SEPClassifier, TableClassifier

CLIENTS, REQUESTS, ROWS = 10, 1_000, (1, 100)
M, COLUMNS = 200, 10


@contextmanager
def service(model: Path) -> Iterator[int]:
    """The port of a service of a model file, for as long as the block lasts."""
    command = [sys.executable, "-m", "cavity", "serve", str(model), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        yield int(process.stderr.readline().split(":")[-1].split()[0])
        process.terminate()


def load(port: int, body: str, n_requests: int) -> tuple[float, int]:
    """Seconds that all requests took, and the number of those that were not answered with 200."""

    def client(_: int) -> int:
        connection, failed = http.client.HTTPConnection("127.0.0.1", port), 0
        for _ in range(n_requests // CLIENTS):
            connection.request("POST", "/predict", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            failed += answer.status != 200
        connection.close()
        return failed

    begun = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as clients:
        failed = sum(clients.map(client, range(CLIENTS)))
    return time.perf_counter() - begun, failed


def main(n_requests: int = REQUESTS) -> None:
    """Print the table."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(2_000, COLUMNS)), columns=[f"x{j}" for j in range(COLUMNS)])
    labels = (table["x0"] + rng.normal(size=len(table)) > 0).astype(int)
    warnings.simplefilter("ignore")  # a fit of one epoch says that it ended early
    classifier = SEPClassifier(n_inducing=M, max_epochs=1, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.cavity"
        TableClassifier(classifier).fit(table, labels).save(model)
        with service(model) as port:
            print("rows  requests  errors  requests/s   rows/s")
            for n in ROWS:
                body = json.dumps({"rows": table.head(n).to_dict("records")})
                seconds, failed = load(port, body, n_requests)
                rate = n_requests / seconds
                print(f"{n:4d}  {n_requests:8,}  {failed:6d}  {rate:10,.0f}  {n * rate:7,.0f}")


if __name__ == "__main__":
    main()

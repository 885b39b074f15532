"""Facts of the machine that a timing was measured on, and a lock that keeps two timed runs apart."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn
from threadpoolctl import threadpool_info, threadpool_limits

import cavity
from benchmarks import code
from benchmarks.load import BusyError, sampled
from cavity.engines.threads import thread_count

LOCK = Path(tempfile.gettempdir()) / "cavity-benchmarks.lock"


def gemm_rate(dtype: Any, threads: int | None, size: int = 2048, repeats: int = 5) -> float:
    """Best of `repeats` products of two [size, size] matrices, in Gflop/s.

    With it a reader can relate our seconds to another machine. `threads=None` leaves BLAS its own
    choice.
    """
    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal((size, size)).astype(dtype) for _ in range(2))
    best = np.inf
    with threadpool_limits(threads, user_api="blas"):
        A @ B  # the first product pays for waking the threads
        for _ in range(repeats):
            begin = time.perf_counter()
            A @ B
            best = min(best, time.perf_counter() - begin)
    return 2.0 * size**3 / max(best, 1e-9) / 1e9


def facts(gemm_size: int = 2048) -> dict[str, Any]:
    """Facts of this machine, of the code and of the numerical stack; nothing names a host or a user."""
    now = datetime.now(timezone.utc)
    blas: dict[str, Any] = next((p for p in threadpool_info() if p["user_api"] == "blas"), {})
    rates = {
        f"{np.dtype(dtype).name}_{label}": round(gemm_rate(dtype, threads, gemm_size), 1)
        for dtype in (np.float32, np.float64)
        for label, threads in (("one_thread", 1), ("all_threads", None))
    }
    return {
        "cpu": _cpu_model(),
        "cores": thread_count(None),
        "ram_gb": round(_ram_bytes() / 2**30, 1),
        "os": _operating_system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "sklearn": sklearn.__version__,
        "cavity": cavity.__version__,
        "commit": code.commit(),
        "code": code.ours(),
        "blas": " ".join(
            str(blas[k]) for k in ("internal_api", "version", "architecture") if blas.get(k)
        ),
        "gemm_gflops": rates,
        "other_cores_at_start": sampled(1.0),
        "date": now.date().isoformat(),
        "time": now.strftime("%H:%M"),
    }


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _operating_system() -> str:
    # The distribution says more than the kernel's build string, which can name its builder.
    with contextlib.suppress(OSError):
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    return platform.system()


def _ram_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@contextlib.contextmanager
def exclusive(path: Path | None = None) -> Iterator[None]:
    """Reserve the machine for one timed run; raise `BusyError` at once if another is under way.

    The lock is the kernel's (flock), so a killed run leaves nothing to clean up.
    """
    path = path or LOCK
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BusyError(
                "another benchmark is being timed on this machine; wait until it ends"
            ) from error
        yield

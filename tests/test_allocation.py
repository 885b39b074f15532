"""Freed memory is kept: a second round of large arrays costs no page faults."""

import subprocess
import sys

import pytest

CODE = """
import resource, sys
import numpy as np
from cavity.allocation import keep_freed_memory
kept = keep_freed_memory() if sys.argv[1] == "keep" else False
def rounds(n):
    for _ in range(n):
        np.ones(500_000).sum()
rounds(3)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
rounds(20)
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(what):
    done = subprocess.run([sys.executable, "-c", CODE, what], capture_output=True, text=True, check=True)
    kept, count = done.stdout.split()
    return kept == "True", int(count)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of glibc")
def test_large_arrays_are_taken_from_what_was_freed():
    kept, count = faults("keep")
    if not kept:
        pytest.skip("another C library")
    assert count < 1_000  # 20 arrays have 20,000 pages


def test_other_systems_are_left_alone(monkeypatch):
    from cavity import allocation

    monkeypatch.setattr(sys, "platform", "darwin")
    assert not allocation.keep_freed_memory()

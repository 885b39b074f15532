"""Freed memory is kept: a second round of large arrays costs no page faults."""

import os
import platform
import subprocess
import sys

import pytest

CODE = """
import resource, sys
import numpy as np
from cavity.memory import expect_large_arrays, keep_freed_memory
kept = keep_freed_memory() if sys.argv[1] == "keep" else False
if sys.argv[1] == "expect":
    expect_large_arrays()
def rounds(n):
    for _ in range(n):
        [np.ones(500_000) for _ in range(4)]
rounds(3)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
rounds(20)
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def output_of(code, *arguments):
    # Dask sets the allocator by the environment, in a process that has ever made a cluster.
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=plain).stdout


def faults(what):
    kept, count = output_of(CODE, what).split()
    return kept == "True", int(count)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of glibc")
def test_large_arrays_are_taken_from_what_was_freed():
    kept, count = faults("keep")
    if not kept:
        pytest.skip("another C library")
    assert count < 4_000  # 80 arrays have 80,000 pages


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a habit of glibc")
def test_large_arrays_that_are_expected_are_taken_from_what_was_freed():
    assert faults("nothing")[1] > 10 * faults("expect")[1]


def test_other_systems_are_left_alone(monkeypatch):
    from cavity import memory as allocation

    monkeypatch.setattr(sys, "platform", "darwin")
    assert not allocation.keep_freed_memory()
    allocation.return_freed_memory()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a habit of glibc")
def test_freed_memory_goes_back_when_asked():
    code = """
import numpy as np
from cavity.memory import expect_large_arrays, return_freed_memory
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
expect_large_arrays()
arrays = [np.ones(1_250_000) for _ in range(5)]
del arrays
before = resident()
return_freed_memory()
print(before - resident())
"""
    assert int(output_of(code)) > 30e6

"""Available memory in machines and containers, and settings of the allocator."""

import os
import platform
import subprocess
import sys

import pytest

from cavity import memory
from cavity.memory import available_bytes, require_memory

MIB = 2**20


@pytest.fixture
def machine(tmp_path):
    """Writes files of a machine with 1,000 MiB left; returns the place they are in."""

    def write(**files):
        for name, text in {"proc/meminfo": f"MemTotal: 9 kB\nMemAvailable: {1_000 * 1024} kB\n"}.items():
            put(name, text)
        for name, text in files.items():
            put(name, text)
        return tmp_path

    def put(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text))

    return write


def group_v2(place, limit, used, cache=0):
    return {
        f"sys/fs/cgroup{place}/memory.max": f"{limit}\n",
        f"sys/fs/cgroup{place}/memory.current": f"{used}\n",
        f"sys/fs/cgroup{place}/memory.stat": f"anon 5\ninactive_file {cache}\n",
    }


def group_v1(place, limit, used, cache=0):
    return {
        f"sys/fs/cgroup/memory{place}/memory.limit_in_bytes": f"{limit}\n",
        f"sys/fs/cgroup/memory{place}/memory.usage_in_bytes": f"{used}\n",
        f"sys/fs/cgroup/memory{place}/memory.stat": f"cache 7\ntotal_inactive_file {cache}\n",
    }


V2, V1 = (
    {"proc/self/cgroup": "0::/app/fit\n"},
    {"proc/self/cgroup": "3:cpu:/\n4:memory:/app/fit\n0::/\n"},
)
NO_LIMIT_V1 = 9223372036854771712


def test_without_control_groups_the_machine_decides(machine):
    assert available_bytes(machine()) == 1_000 * MIB


def test_nothing_is_known_where_there_are_no_such_files(tmp_path):
    assert available_bytes(tmp_path) is None


@pytest.mark.parametrize(("about", "group"), [(V2, group_v2), (V1, group_v1)], ids=["v2", "v1"])
class TestControlGroups:
    def test_the_smaller_counts(self, machine, about, group):
        assert available_bytes(machine(**about, **group("/app/fit", 300 * MIB, 100 * MIB))) == 200 * MIB
        assert available_bytes(machine(**about, **group("/app/fit", 9_000 * MIB, 0))) == 1_000 * MIB

    def test_groups_around_it_count_too(self, machine, about, group):
        files = group("/app/fit", 300 * MIB, 0) | group("/app", 250 * MIB, 100 * MIB)
        assert available_bytes(machine(**about, **files)) == 150 * MIB

    def test_files_that_are_cached_make_room(self, machine, about, group):
        files = group("/app/fit", 300 * MIB, 290 * MIB, cache=50 * MIB)
        assert available_bytes(machine(**about, **files)) == 60 * MIB

    def test_a_container_sees_its_own_limit_at_the_root(self, machine, about, group):
        assert available_bytes(machine(**about, **group("", 300 * MIB, 100 * MIB))) == 200 * MIB

    def test_more_used_than_allowed_leaves_nothing(self, machine, about, group):
        assert available_bytes(machine(**about, **group("", 300 * MIB, 301 * MIB))) == 0

    def test_no_limit(self, machine, about, group):
        limit = "max" if group is group_v2 else NO_LIMIT_V1
        assert available_bytes(machine(**about, **group("/app/fit", limit, 0))) == 1_000 * MIB


def test_a_limit_is_what_work_is_refused_by(machine, monkeypatch):
    root = machine(**V2, **group_v2("/app/fit", 300 * MIB, 100 * MIB))
    monkeypatch.setattr(memory, "available_bytes", lambda: available_bytes(root))
    require_memory(200 * MIB, "this", instead="that")
    with pytest.raises(
        MemoryError, match=r"this needs .* bytes, and 209,715,200 are available; use that"
    ):
        require_memory(200 * MIB + 1, "this", instead="that")


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

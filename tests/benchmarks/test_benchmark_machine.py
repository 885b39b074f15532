import getpass
import json
import platform

import numpy as np
import pytest
from benchmarks.machine import BusyError, exclusive, facts, gemm_rate


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [1, None])
def test_gemm_rate_is_positive(dtype, threads):
    assert gemm_rate(dtype, threads, size=16, repeats=2) > 0


def test_facts_are_json_and_name_nobody():
    text = json.dumps(facts(gemm_size=16))
    assert "float64_all_threads" in text
    assert len(platform.node()) < 3 or platform.node() not in text
    assert f'"{getpass.getuser()}"' not in text


def test_one_timed_run_at_a_time(tmp_path):
    lock = tmp_path / "lock"
    with exclusive(lock), pytest.raises(BusyError, match="another benchmark"), exclusive(lock):
        pass
    with exclusive(lock):
        pass

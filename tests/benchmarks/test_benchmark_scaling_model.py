"""The model of an iteration on a cluster behaves as a cluster would."""

from dataclasses import replace

import pytest
from benchmarks.scaling_model import Costs, bottleneck, iteration

COSTS = Costs(
    row=20e-6,
    driver=5e-3,
    latency=2e-3,
    scheduler=3e-4,
    bandwidth=1e9,
    q_bytes=2e6,
    sum_bytes=2e6,
)


def test_one_worker_computes_all_rows():
    parts = iteration(60_000, 1, COSTS)
    assert parts.compute == pytest.approx(60_000 * COSTS.row)
    assert parts.seconds > parts.compute


def test_with_free_communication_the_speed_up_is_that_of_the_shards():
    free = replace(COSTS, driver=0.0, latency=0.0, scheduler=0.0, bandwidth=float("inf"))
    one = iteration(60_000, 1, free).seconds
    assert one / iteration(60_000, 8, free).seconds == pytest.approx(8.0)  # 32 shards
    assert one / iteration(60_000, 12, free).seconds == pytest.approx(32 / 3)


def test_more_workers_compute_less_and_talk_more():
    few, many = iteration(10**9, 10, COSTS), iteration(10**9, 1000, COSTS)
    assert many.compute < few.compute
    assert many.communication > few.communication


def test_the_bottleneck_moves_out_with_the_rows():
    small, large = bottleneck(60_000, COSTS), bottleneck(10**9, COSTS)
    assert small is not None
    assert large is not None
    assert large > small

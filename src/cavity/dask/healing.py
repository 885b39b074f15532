"""After a fault: what was lost is read again, or found again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from cavity.dask.faults import FAULTS
from cavity.dask.keeping import state_key
from cavity.dask.packing import packed_message
from cavity.dask.passes import Passes
from cavity.dask.tasks import healed_group
from cavity.posterior import Posterior
from cavity.prior import Prior
from cavity.sweep import SweepOptions


class LastPass(NamedTuple):
    """What the current sites were found with."""

    prior: Prior
    posterior: Posterior
    options: SweepOptions


def repair(passes: Passes, last: LastPass | None) -> None:
    """Find out what was lost: rows are read again, sites are found again from the last q."""
    passes.forget_workers()
    passes.source.reload()
    lost = passes.states.forget_lost()
    if lost and last is not None:
        with suppress(*FAULTS):  # then the sites of these shards start from nothing
            passes.states.update(_healed(passes, lost, last))


def _healed(passes: Passes, groups: list[int], last: LastPass) -> dict[int, str]:
    still = replace(last.options, gradient=False, damping=1.0, residual_penalty=0.0)
    message = passes.message(last.prior, last.posterior, still)
    q = packed_message(message)
    keys = {i: state_key(message.setting.fit, message.number, i) for i in groups}
    cluster, rows = passes.source.cluster, passes.source.rows
    cluster.results(
        [cluster.client.submit(healed_group, rows[i], q, key, pure=False) for i, key in keys.items()]
    )
    return keys

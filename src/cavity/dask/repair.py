"""After a fault: what was lost is read again, or found again."""

from __future__ import annotations

from cavity.dask.cluster import FAULTS
from cavity.dask.history import History, Past
from cavity.dask.keeping import state_key
from cavity.dask.passes import Passes
from cavity.dask.tasks import replayed_group

_TRIES = 5


def repair(passes: Passes, history: History) -> None:
    """Find out what was lost: rows are read again, sites are found again.

    If workers are lost time and again meanwhile, the sites start from nothing.
    """
    cluster, lost = passes.source.cluster, set[int]()
    for _ in range(_TRIES):
        passes.forget_workers()
        passes.source.reload()
        lost.update(passes.states.forget_lost())
        pasts = {i: past for i in sorted(lost) if (past := history.past_of(i)) is not None}
        try:
            passes.states.update(_replayed(passes, pasts))
            if not all(past.exact for past in pasts.values()):
                history.forget()
            history.copy_soon()
            return
        except FAULTS:
            cluster.wait_for_workers()
    history.forget()


def _replayed(passes: Passes, pasts: dict[int, Past]) -> dict[int, str]:
    passes.count += 1
    pass_ = (passes.setting.fit, passes.count)
    keys = {i: state_key(*pass_, i) for i in pasts}
    cluster, rows, live = passes.source.cluster, passes.source.rows, passes.states.live
    cluster.results(
        [
            cluster.client.submit(
                replayed_group, rows[i], *pasts[i][:2], keys[i], *pass_, live, pure=False
            )
            for i in pasts
        ]
    )
    return keys

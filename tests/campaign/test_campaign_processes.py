"""A few trials of each kind; `python -m campaign.kills`, `signals` and `faults` make many."""

import pytest

from campaign import faults, kills, signals


@pytest.mark.parametrize(
    ("campaign", "names", "good"),
    [
        (kills, ["minibatches"], {kills.SAME}),
        (signals, ["command, SIGTERM", "program, SIGINT"], {signals.ENDED, signals.STOPPED}),
        (faults, sorted(faults.DISK), {faults.SAME, faults.REFUSED}),
    ],
)
def test_fits_survive(campaign, names, good):
    tried = list(campaign.run(seed=0, count=len(names), names=names))
    assert len(tried) == len(names)
    assert not [one for one in tried if one[2] not in good]

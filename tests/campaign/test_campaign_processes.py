"""One trial of each campaign; `python -m campaign.kills`, `signals` and `faults` make many."""

import pytest

from campaign import faults, kills, signals


@pytest.mark.parametrize(
    ("campaign", "names", "good"),
    [
        (kills, ["minibatches"], {kills.SAME}),
        (signals, ["command, SIGTERM"], {signals.ENDED, signals.STOPPED}),
        (faults, ["full disk, program"], {faults.SAME, faults.REFUSED}),
    ],
)
def test_fits_survive(campaign, names, good):
    tried = list(campaign.run(seed=0, count=len(names), names=names))
    assert len(tried) == len(names)
    assert not [one for one in tried if one[2] not in good]

"""Every kind of damage once; `python -m campaign.checkpoints` tries hundreds."""

from campaign.checkpoints import ENDED, MUTATIONS, REFUSED, run


def test_damaged_checkpoints_are_refused_or_the_fit_ends():
    tried = list(run(0, range(len(MUTATIONS))))
    failures = [one for one in tried if one[3] not in (ENDED, REFUSED)]
    assert not failures
    assert {one[0] for one in tried} == set(MUTATIONS)
    assert sum(one[3] == REFUSED for one in tried) > len(tried) // 2

"""Every kind of damage once; `python -m campaign.model_files` tries thousands."""

from campaign.model_files import LOADED, REFUSED, TRANSFORMER, run
from campaign.mutations import MUTATIONS


def test_damaged_files_are_refused_or_predict_numbers():
    tried = list(run(0, range(len(MUTATIONS))))
    failures = [one for one in tried if one[3] not in (LOADED, REFUSED, TRANSFORMER)]
    assert not failures
    assert {one[0] for one in tried} == set(MUTATIONS)
    assert sum(one[3] == REFUSED for one in tried) > len(tried) // 2

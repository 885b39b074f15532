"""Some random fits; `python -m campaign.fits` tries thousands."""

from campaign.fits import FITTED, KINDS, REFUSED, run

FOUND = (34, 96, 102, 106, 112, 223, 241, 355)
"""Fits that failed when the campaign was new, each for a reason of its own."""


def test_random_fits_end_with_finite_numbers_or_are_refused():
    tried = list(run(0, [*FOUND, *range(32)]))
    assert not [one for one in tried if one[3] not in (FITTED, REFUSED)]
    assert {one[0] for one in tried} == set(KINDS)
    assert sum(one[3] == FITTED for one in tried) > len(tried) // 3

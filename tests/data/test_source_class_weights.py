"""A source whose classes are weighted still keeps the contract."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from cavity.data import ArraySource, check_source
from cavity.data.source import Source, class_totals

RNG = np.random.default_rng(0)
X, LABELS, WEIGHT = RNG.normal(size=(50, 2)), RNG.integers(0, 3, 50), RNG.uniform(size=50)
FACTORS = np.array([1.0, 0.0, 2.5])


class WithoutTotals(Source):
    """A source that has not counted its classes."""

    def __init__(self, source):
        self.source, self.n_features = source, source.n_features
        self.n_rows, self.dtype = source.n_rows, source.dtype

    def blocks(self, size):
        return self.source.blocks(size)

    def batches(self, size, rng, skip=0):
        return self.source.batches(size, rng, skip)


def test_the_contract_is_kept():
    for weight in (None, WEIGHT):
        source = ArraySource(X, LABELS, weight)
        for unweighted in (source, WithoutTotals(source)):
            check_source(unweighted.with_class_factors(FACTORS, source.class_totals))


def test_an_array_stays_an_array_with_the_same_rows():
    """So that everything that needs rows in memory, such as trials side by side, is possible."""
    source = ArraySource(X, LABELS, WEIGHT)
    array = source.with_class_factors(FACTORS, source.class_totals)
    other = WithoutTotals(source).with_class_factors(FACTORS, source.class_totals)
    assert isinstance(array, ArraySource)
    assert source.weight is WEIGHT
    assert_allclose(array.class_totals, other.class_totals)
    assert array.total_weight == other.total_weight
    numbers = np.array([7, 0, 31])
    for one, same in zip(array.take(numbers), other.take(numbers), strict=True):
        assert_array_equal(one, same)


def test_rows_without_weight_can_be_left_out_of_an_array():
    rows = np.flatnonzero(LABELS != 1)
    source = ArraySource(X, LABELS[rows], WEIGHT[rows], rows=rows)
    check_source(source)
    loaded = [block.load() for block in source.blocks(7)]
    assert_allclose(np.concatenate([part.X for part in loaded]), X[rows])
    assert source.n_rows == len(rows)


def test_class_totals_by_a_pass_are_those_of_the_source():
    source = ArraySource(X, LABELS, WEIGHT)
    expected = [WEIGHT[code == LABELS].sum() for code in range(3)]
    assert_allclose(source.class_totals, expected)
    assert_allclose(class_totals(WithoutTotals(source), 3), expected)


def test_values_of_rows_are_those_of_all_rows_that_there_were():
    rows = np.array([0, 2, 5])
    source = ArraySource(X[:7], LABELS[rows], rows=rows)
    weighted = source.with_class_factors(FACTORS, np.ones(3))
    values = weighted.expanded_to_input_rows(np.ones(3))
    assert np.flatnonzero(values == 1.0).tolist() == rows.tolist()
    assert len(values) == 7
    other = WithoutTotals(source).with_class_factors(FACTORS, np.ones(3))
    assert other.expanded_to_input_rows(values) is values

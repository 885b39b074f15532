"""Adding up what passes give."""

import numpy as np
from numpy.testing import assert_array_equal

from cavity.gp.tiles import Sums

GRADIENT_SHAPES = {
    "whitened_gradient": (2, 2),
    "mean_gradient": (1, 2),
    "theta": (3,),
    "Z": (2, 1),
    "replaced_precision": (1, 2, 2),
    "replaced_shift": (1, 2),
}


def make(value, gradient=True):
    arrays = {} if not gradient else GRADIENT_SHAPES
    return Sums(
        n_rows=value,
        n_visited=value,
        weight=value,
        precision=np.full((1, 2, 2), value),
        shift=np.full((1, 2), value),
        objective=value,
        log_predictive=value,
        site_change=value,
        **{name: np.full(shape, value) for name, shape in arrays.items()},
    )


def test_fields_add_one_by_one():
    total = make(1.0)
    total += make(2.0)
    for value in vars(total).values():
        assert_array_equal(value, np.full(np.shape(value), 3.0))


def test_fields_are_scaled_one_by_one():
    total = make(1.5)
    total *= 4.0
    for value in vars(total).values():
        assert_array_equal(value, np.full(np.shape(value), 6.0))


def test_missing_gradients_stay_missing():
    total = make(1.0, gradient=False)
    total += make(2.0, gradient=False)
    total *= 2.0
    assert total.theta is None
    assert total.Z is None
    assert_array_equal(total.naturals.precision, np.full((1, 2, 2), 6.0))

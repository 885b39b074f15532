"""Adam's own promises."""

import numpy as np
from numpy.testing import assert_allclose

from cavity.inference.optimizers import Adam


def test_first_step_is_the_learning_rate_whatever_the_scale():
    step, _ = Adam(0.03).step(Adam().initial(3), np.array([1e-3, -5.0, 1e6]))
    assert_allclose(step, [0.03, -0.03, 0.03], rtol=1e-4)


def test_bias_correction_makes_a_constant_gradient_a_constant_step():
    optimizer = Adam(0.1)
    state = optimizer.initial(1)
    for _ in range(50):
        step, state = optimizer.step(state, np.array([2.0]))
        assert_allclose(step, 0.1, rtol=1e-6)


def test_a_rate_for_each_parameter():
    step, _ = Adam(np.array([0.1, 0.01])).step(Adam().initial(2), np.array([1.0, 1.0]))
    assert_allclose(step, [0.1, 0.01], rtol=1e-6)

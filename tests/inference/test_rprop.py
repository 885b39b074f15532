"""The paper's rates: ×1.02 while a sign repeats, ×½ when it flips."""

import numpy as np
from numpy.testing import assert_allclose

from cavity.inference.optimizers import SignRates

OPTIMIZER = SignRates(learning_rate=0.1, largest_step=0.5)


def test_rates_follow_the_signs():
    state = OPTIMIZER.initial(3)
    _, state = OPTIMIZER.step(state, np.array([1.0, 1.0, 0.0]))
    assert_allclose(state.rates, 0.1)
    step, state = OPTIMIZER.step(state, np.array([2.0, -2.0, 1.0]))
    assert_allclose(state.rates, [0.102, 0.05, 0.1])
    assert_allclose(step, [0.204, -0.1, 0.1])


def test_a_step_is_bounded():
    step, _ = OPTIMIZER.step(OPTIMIZER.initial(2), np.array([1e9, -1e9]))
    assert_allclose(step, [0.5, -0.5])

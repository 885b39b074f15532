"""ADADELTA as Zeiler wrote it, with the paper's constants."""

import numpy as np
from numpy.testing import assert_allclose

from cavity.inference.optimizers import Adadelta


def test_two_steps_by_hand():
    optimizer = Adadelta()
    first, state = optimizer.step(optimizer.initial(1), np.array([2.0]))
    assert_allclose(first, 2.0 * np.sqrt(1e-5 / (0.1 * 4.0 + 1e-5)))
    second, _ = optimizer.step(state, np.array([-1.0]))
    squares = 0.9 * 0.4 + 0.1 * 1.0
    assert_allclose(second, -np.sqrt((0.1 * first**2 + 1e-5) / (squares + 1e-5)))

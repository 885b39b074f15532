"""What training relies on in every optimiser, and the rules of each."""

import copy

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from cavity.inference.optimizers import Adadelta, Adam, SignRates

every_optimizer = pytest.mark.parametrize("optimizer", [Adam(), SignRates(), Adadelta()], ids=repr)
PEAK = np.array([0.3, -0.2, 0.05])
CURVATURE = np.array([1.0, 30.0, 200.0])


def slope(x):
    return CURVATURE * (PEAK - x)


@every_optimizer
def test_climbs_a_hill_of_unequal_curvature(optimizer):
    x, state = np.zeros(3), optimizer.initial(3)
    for _ in range(3000):
        step, state = optimizer.step(state, slope(x))
        x = x + step
    assert_allclose(x, PEAK, atol=0.02)


@every_optimizer
def test_a_step_is_a_pure_function(optimizer):
    _, state = optimizer.step(optimizer.initial(3), np.array([1.0, -2.0, 0.5]))
    kept = copy.deepcopy(state)
    gradient = np.array([0.3, -1.0, -2.0])
    first, after = optimizer.step(state, gradient)
    second, again = optimizer.step(state, gradient)
    assert_array_equal(first, second)
    assert_array_equal(gradient, [0.3, -1.0, -2.0])
    for one, other in ((state, kept), (after, again)):
        for name, value in vars(one).items():
            assert_array_equal(value, getattr(other, name))


@every_optimizer
def test_first_step_goes_uphill_and_nowhere_without_slope(optimizer):
    step, _ = optimizer.step(optimizer.initial(3), np.array([2.0, -3.0, 0.0]))
    assert_array_equal(np.sign(step), [1, -1, 0])


@every_optimizer
def test_rate_scales_the_step_but_not_the_memory(optimizer):
    gradient = np.array([0.4, -0.1])
    full, state = optimizer.step(optimizer.initial(2), gradient)
    half, same = optimizer.step(optimizer.initial(2), gradient, 0.5)
    assert_allclose(half, 0.5 * full)
    for name, value in vars(state).items():
        assert_array_equal(value, getattr(same, name))


@every_optimizer
def test_shrinking_halves_every_later_step(optimizer):
    gradient = np.array([0.4, -0.1])
    _, state = optimizer.step(optimizer.initial(2), gradient)
    full, _ = optimizer.step(state, gradient)
    half, _ = optimizer.step(optimizer.shrunk(state), gradient)
    quarter, _ = optimizer.step(optimizer.shrunk(optimizer.shrunk(state)), gradient)
    assert_allclose(half, 0.5 * full)
    assert_allclose(quarter, 0.25 * full)


@every_optimizer
def test_no_parameters_no_step(optimizer):
    step, _ = optimizer.step(optimizer.initial(0), np.zeros(0))
    assert step.shape == (0,)


def test_first_step_of_adam_is_the_learning_rate_whatever_the_scale():
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


def test_two_steps_of_adadelta_by_hand():
    optimizer = Adadelta()
    first, state = optimizer.step(optimizer.initial(1), np.array([2.0]))
    assert_allclose(first, 2.0 * np.sqrt(1e-5 / (0.1 * 4.0 + 1e-5)))
    second, _ = optimizer.step(state, np.array([-1.0]))
    squares = 0.9 * 0.4 + 0.1 * 1.0
    assert_allclose(second, -np.sqrt((0.1 * first**2 + 1e-5) / (squares + 1e-5)))


SIGN_RATES = SignRates(learning_rate=0.1, largest_step=0.5)


def test_sign_rates_grow_while_a_sign_repeats_and_halve_when_it_flips():
    state = SIGN_RATES.initial(3)
    _, state = SIGN_RATES.step(state, np.array([1.0, 1.0, 0.0]))
    assert_allclose(state.rates, 0.1)
    step, state = SIGN_RATES.step(state, np.array([2.0, -2.0, 1.0]))
    assert_allclose(state.rates, [0.102, 0.05, 0.1])
    assert_allclose(step, [0.204, -0.1, 0.1])


def test_a_step_of_sign_rates_is_bounded():
    step, _ = SIGN_RATES.step(SIGN_RATES.initial(2), np.array([1e9, -1e9]))
    assert_allclose(step, [0.5, -0.5])

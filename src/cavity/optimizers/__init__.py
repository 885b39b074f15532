"""Gradient-ascent rules behind one small interface, `Optimizer`."""

from cavity.optimizers.adadelta import Adadelta
from cavity.optimizers.adam import Adam
from cavity.optimizers.protocol import Optimizer
from cavity.optimizers.rprop import SignRates

__all__ = ["Adadelta", "Adam", "Optimizer", "SignRates"]

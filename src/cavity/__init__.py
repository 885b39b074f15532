"""Gaussian process classification at any scale, by expectation propagation."""

from cavity.errors import NumericalError
from cavity.estimators.sep import SEPClassifier

__version__ = "0.1.0"

__all__ = ["NumericalError", "SEPClassifier", "__version__"]

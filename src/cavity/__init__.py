"""Gaussian process classification at any scale, by expectation propagation."""

from cavity.errors import CheckpointError, NumericalError, SourceError
from cavity.estimators.gfitc import GFITCClassifier
from cavity.estimators.sep import SEPClassifier
from cavity.estimators.svi import SVIClassifier

__version__ = "0.1.0"

__all__ = [
    "CheckpointError",
    "GFITCClassifier",
    "NumericalError",
    "SEPClassifier",
    "SVIClassifier",
    "SourceError",
    "__version__",
]

"""Gaussian process classification at any scale, by expectation propagation."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cavity.errors import CheckpointError, ClusterError, NumericalError, SourceError
    from cavity.estimators.gfitc import GFITCClassifier
    from cavity.estimators.sep import SEPClassifier
    from cavity.estimators.svi import SVIClassifier

__version__ = "0.1.0"

__all__ = [
    "CheckpointError",
    "ClusterError",
    "GFITCClassifier",
    "NumericalError",
    "SEPClassifier",
    "SVIClassifier",
    "SourceError",
    "__version__",
]

# Names are imported when they are first asked for: the command line must answer before
# scikit-learn has loaded.
_HOMES = {
    "CheckpointError": "cavity.errors",
    "ClusterError": "cavity.errors",
    "GFITCClassifier": "cavity.estimators.gfitc",
    "NumericalError": "cavity.errors",
    "SEPClassifier": "cavity.estimators.sep",
    "SVIClassifier": "cavity.estimators.svi",
    "SourceError": "cavity.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cavity' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *globals()])

"""Gaussian process classification at any scale, by expectation propagation."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from cavity.version import __version__

if TYPE_CHECKING:
    from cavity.errors import (
        CheckpointError,
        ClusterError,
        DatasetError,
        ModelFileError,
        NumericalError,
        SourceError,
    )
    from cavity.estimators.dask import DaskSEPClassifier, DaskSVIClassifier
    from cavity.estimators.gfitc import GFITCClassifier
    from cavity.estimators.sep import SEPClassifier
    from cavity.estimators.svi import SVIClassifier
    from cavity.estimators.table import TableClassifier
    from cavity.export.model_file import load, save
    from cavity.export.onnx.export import to_onnx

__all__ = [
    "CheckpointError",
    "ClusterError",
    "DaskSEPClassifier",
    "DaskSVIClassifier",
    "DatasetError",
    "GFITCClassifier",
    "ModelFileError",
    "NumericalError",
    "SEPClassifier",
    "SVIClassifier",
    "SourceError",
    "TableClassifier",
    "__version__",
    "load",
    "save",
    "to_onnx",
]

# Names are imported when they are first asked for: the command line must answer before
# scikit-learn has loaded.
_HOMES = {
    "CheckpointError": "cavity.errors",
    "ClusterError": "cavity.errors",
    "DatasetError": "cavity.errors",
    "DaskSEPClassifier": "cavity.estimators.dask",
    "DaskSVIClassifier": "cavity.estimators.dask",
    "GFITCClassifier": "cavity.estimators.gfitc",
    "ModelFileError": "cavity.errors",
    "NumericalError": "cavity.errors",
    "SEPClassifier": "cavity.estimators.sep",
    "SVIClassifier": "cavity.estimators.svi",
    "SourceError": "cavity.errors",
    "TableClassifier": "cavity.estimators.table",
    "to_onnx": "cavity.export.onnx.export",
    "load": "cavity.export.model_file",
    "save": "cavity.export.model_file",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'cavity' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *globals()])

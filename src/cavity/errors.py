"""Errors with a name, so that a caller can tell them apart."""

from __future__ import annotations

import sys
import warnings


class NumericalError(ArithmeticError):
    """A computation failed numerically and damping, retries and jitter did not help."""


class SourceError(ValueError):
    """Rows of a file or another source cannot be read, or cannot be used for training."""


class ClusterError(RuntimeError):
    """All workers of a cluster are gone, or the tasks of the fit end their processes."""


class CheckpointError(RuntimeError):
    """A checkpoint could not be written or read, or belongs to another fit."""


class ModelFileError(ValueError):
    """A model file could not be written or read, or holds what must not be loaded."""


class DatasetError(RuntimeError):
    """A dataset could not be downloaded or read, or has another content than expected."""


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the first line outside this package, which is the user's own."""
    level, frame = 2, sys._getframe(1)  # the caller of this function
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("cavity."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)

"""Real data to try the classifiers on."""

from cavity.datasets.loading import load, names

__all__ = ["load", "names"]

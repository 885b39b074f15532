"""Real data to try the classifiers on."""

from cavity.datasets.catalogue import load, names

__all__ = ["load", "names"]

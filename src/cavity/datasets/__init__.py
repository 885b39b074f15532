"""Real datasets by name, for examples and benchmarks."""

from cavity.datasets.catalogue import fetch, names

__all__ = ["fetch", "names"]

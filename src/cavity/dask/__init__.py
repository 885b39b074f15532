"""Fitting on many machines, with Dask; needs the extra `cavity[dask]`."""

try:
    import dask.array
    import dask.dataframe  # noqa: F401
    import distributed  # noqa: F401
except ImportError as error:
    raise ImportError("cavity.dask needs Dask: pip install 'cavity[dask]'") from error

from cavity.dask.estimators import DaskSEPClassifier, DaskSVIClassifier

__all__ = ["DaskSEPClassifier", "DaskSVIClassifier"]

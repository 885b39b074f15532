"""Fitting on many machines, with Dask; needs the extra `cavity[dask]`."""

from typing import NoReturn

try:
    import dask.array
    import dask.dataframe  # noqa: F401
    import distributed  # noqa: F401
except ImportError as error:
    raise ImportError("cavity.dask needs Dask: pip install 'cavity[dask]'") from error

from cavity.dask.estimators import DaskSEPClassifier, DaskSVIClassifier

__all__ = ["DaskSEPClassifier", "DaskSVIClassifier"]


def __getattr__(name: str) -> NoReturn:
    if name == "DaskGFITCClassifier":
        raise AttributeError(
            "cavity.dask has no DaskGFITCClassifier: each step of GFITC runs EP to convergence on all "
            "rows, many passes over a cluster; use DaskSEPClassifier, which has the same fixed point"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

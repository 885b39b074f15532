"""What makes a class the twin of a local classifier: one more parameter, and what is said of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Twin = TypeVar("Twin", bound=type)

_MORE = """

    The rows stay with the workers, as shards; each worker refines the sites of its own, and the driver
    sees sums. The result does not depend on the number of workers, nor on which of them did what, and a
    worker that is lost costs time and not the fit.

    Parameters
    ----------
    client : distributed.Client or None
        The cluster to fit on. None starts one on this machine, of `n_jobs` processes, for the fit.

    All other parameters and all attributes are those of `{local}`; `loo_log_proba_` is a lazy Dask
    array.

    Examples
    --------
    >>> from cavity.dask import {twin}
    >>> {twin}(n_inducing=20).get_params()["client"] is None
    True
    """


def twin_of(local: Any) -> Callable[[Twin], Twin]:
    """Makes a subclass of `local` its twin: its constructor with `client`, its documentation."""

    def complete(twin: Twin) -> Twin:
        twin.__init__ = _with_client(local)  # type: ignore[misc]
        twin.__doc__ = f"{twin.__doc__}{_MORE.format(local=local.__name__, twin=twin.__name__)}"
        attributes: Any = twin
        attributes._local = local
        attributes._parameter_constraints = {
            **local._parameter_constraints,
            "client": "no_validation",
        }
        return twin

    return complete


def _with_client(local: type) -> Callable[..., None]:
    """The constructor of `local` and one more parameter, `client`, by whatever others it has."""

    def initialize(self: Any, kernel: Any = None, *, client: Any = None, **parameters: Any) -> None:
        local.__init__(self, kernel, **parameters)  # type: ignore[misc]
        self.client = client

    signature = inspect.signature(local.__init__)  # type: ignore[misc]
    client = inspect.Parameter("client", inspect.Parameter.KEYWORD_ONLY, default=None)
    together = [*signature.parameters.values(), client]
    initialize.__signature__ = signature.replace(parameters=together)  # type: ignore[attr-defined]
    return initialize

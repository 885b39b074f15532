"""Where a fit runs: `Backend`, which the backends of this machine and of a Dask cluster share.

A backend reads a source once for its scaling, holds rows out, and makes the engine that runs the passes.
A fit is the same code with each of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, TypeVar

from sklearn.base import BaseEstimator

from cavity.data.routing import EstimatorRouting, Routing
from cavity.data.sampling import HeldOut, held_out_numbers, with_class_shares
from cavity.data.scaling import Scaling
from cavity.data.source import RowSource, Source, class_totals
from cavity.data.statistics import SAMPLED_KINDS, Moments, learn_from_sample, learn_standard
from cavity.engines.protocol import Engine
from cavity.engines.threads import Threads

Item = TypeVar("Item")
Result = TypeVar("Result")


class Backend(ABC):
    """Where a fit runs; subclasses say how rows are read and which engine runs the passes."""

    engine_type: ClassVar[type[Engine]]

    def __init__(self, threads: Threads) -> None:
        """threads: those of this process."""
        self.threads = threads

    def learn_scaling(self, source: RowSource, kind: str | None) -> Scaling:
        """The scaling of the columns of a source: from a sample, or from the moments of all rows."""
        if kind is None:
            return Scaling.identity(source.n_features)
        if kind in SAMPLED_KINDS:
            return learn_from_sample(source, kind)
        return learn_standard(self._moments(source, products=kind == "whiten"))

    @abstractmethod
    def _moments(self, source: RowSource, *, products: bool) -> Iterable[Moments]:
        """Moments of all parts of a source, in one streaming pass."""

    def hold_out(self, source: RowSource, fraction: float, seed: int) -> HeldOut:
        """A share of the rows, chosen by a hash of their numbers, and at most 20,000."""
        numbers = source.reserved
        if numbers is None:
            numbers = held_out_numbers(int(source.n_rows), source.n_features, fraction, seed)
        offset = None if source.offset is None else source.offset[numbers]
        rows, totals = source.take(numbers), source.class_totals
        if totals is None:
            assert isinstance(source, Source)
            totals = class_totals(source)
        return HeldOut(numbers, rows, offset, with_class_shares(rows, totals))

    @abstractmethod
    def with_leaves(self, source: RowSource, routing: Routing, rows_of_a_leaf: int | None) -> RowSource:
        """The rows with their leaves; rows_of_a_leaf: about how many of one a minibatch has."""

    @abstractmethod
    def routing_of(self, source: RowSource, estimator: BaseEstimator) -> EstimatorRouting:
        """The routing of a user's estimator, with the values that a source's rows have."""

    def engine(
        self,
        source: RowSource,
        scaling: Scaling,
        n_latents: int,
        held_out: HeldOut | None = None,
        n_directions: int = 0,
    ) -> Engine:
        """The engine that runs passes over a source and keeps its sites."""
        return self.engine_type(source, scaling, n_latents, self.threads, held_out, n_directions)

    def n_side_by_side(self, source: RowSource) -> int:
        """How many trainings over one source run at the same time in `side_by_side`."""
        return 1

    def side_by_side(
        self,
        source: RowSource,
        function: Callable[[Backend, Item], Result],
        items: Sequence[Item],
    ) -> Iterable[Result]:
        """The results of function(backend, item) for every item, in order."""
        return (function(self, item) for item in items)

    def status(self, rows_per_second: float) -> str:
        """What a progress line says about the place where a fit runs."""
        return ""

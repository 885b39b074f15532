"""What an engine is, and what a pass is that an engine runs.

An engine knows where the rows and their sites are. A pass knows what to compute from a tile of rows.
This module is all that they know about each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cavity.data.sampling import EVERY_ROW, HeldOut, RowSampler
from cavity.data.scaling import Scaling
from cavity.data.source import RowSource
from cavity.engines.threads import Threads
from cavity.gp.tiles import RefinedRows, Rows, Sites, Sums
from cavity.typing import Array, Dtype

if TYPE_CHECKING:
    import dask.array


class Pass(ABC):
    """The computation for one tile of rows; it is called from several threads at once."""

    @property
    @abstractmethod
    def n_inducing(self) -> int:
        """Number m of inducing points, on which the best size of a tile depends."""

    @property
    @abstractmethod
    def dtype(self) -> Dtype:
        """Precision in which the tiles are computed."""

    @property
    def scores(self) -> bool:
        """Whether rows are given leave-one-out probabilities; if not, there is nothing to commit."""
        return False

    @property
    def refines(self) -> bool:
        """Whether rows are given new sites."""
        return False

    @abstractmethod
    def __call__(self, rows: Rows, sites: Sites) -> tuple[RefinedRows | None, Sums]:
        """New sites and scores of the rows (None if the pass has none), and the sums of the tile."""

    def of_leaf(self, leaf: int) -> Pass:
        """The pass over rows of one leaf, if leaves have inducing points of their own."""
        raise NotImplementedError(f"{type(self).__name__} has no local inducing points")

    def joined(self, parts: Mapping[int, Sums], shares: Mapping[int, float]) -> Sums:
        """The sums of passes over rows of several leaves, by leaf.

        shares: of the rows of each leaf that were drawn.
        """
        raise NotImplementedError(f"{type(self).__name__} has no local inducing points")

    def finding_sites(self) -> Pass:
        """The pass that computes the sites of rows anew, after they were lost with a worker."""
        return self

    @abstractmethod
    def packed(self, *, has_directions: bool, leaves: Iterable[int] | None = None) -> Callable[[], Pass]:
        """A function that makes this pass again, and is small when it is sent to another process.

        has_directions: whether the sites store their directions, for which the pass may need more;
        leaves: those whose rows it is for, if there are leaves; None means all.
        """


Minibatch: TypeAlias = Any
"""A minibatch, in the form of the engine that made it; no other code reads it."""

RowValues: TypeAlias = "Array | dask.array.Array"
"""[n]: one number for each row; a Dask array where the rows are with the workers of a cluster."""


@dataclass(eq=False, repr=False)
class Engine(ABC):
    """Runs passes over rows and keeps the sites of the rows; it contains no mathematics."""

    source: RowSource
    """Where the rows are."""
    scaling: Scaling
    n_latents: int
    """Number C of latent functions, each of which has a site in every row."""
    threads: Threads
    """Threads of this process. With Dask it computes for a few rows only, the workers for most."""
    held_out: HeldOut | None = None
    """Rows that take no part in training, if there are any."""
    n_directions: int = 0
    """Length m of the vector that every site stores in the paper's scheme; 0 if sites store none."""
    n_commits: int = field(default=0, init=False)
    """How often the rows were given new sites; a commit counts from its beginning."""

    @abstractmethod
    def __post_init__(self) -> None:
        """Make sites for the rows, with a precision of zero."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.source.n_rows)  # a user's source may have NumPy's integers

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return int(self.source.n_features)

    @property
    def dtype(self) -> Dtype:
        """The source's precision, float32 or float64."""
        return self.source.dtype

    @property
    def total_weight(self) -> float:
        """Sum of the weights of all rows that take part."""
        missing = 0.0 if self.held_out is None else self.held_out.missing_weight
        return float(self.source.total_weight - missing)

    @abstractmethod
    def run(
        self, row_pass: Pass, batch: Minibatch | None = None, sampler: RowSampler = EVERY_ROW
    ) -> Sums:
        """Run a pass over all rows, or over those that the sampler takes of one of the `batches`.

        The rows keep their new sites and scores only after `commit`.
        """

    @abstractmethod
    def commit(self) -> None:
        """Let the rows keep the sites and scores of the last pass."""

    @abstractmethod
    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Minibatch]:
        """All rows once in random order, in minibatches of about `size`; the first `skip` left out."""

    @property
    @abstractmethod
    def log_predictive(self) -> RowValues:
        """[n]: log probability of each label with its row left out; NaN for rows not visited."""

    def expanded_to_input_rows(self, values: RowValues) -> RowValues:
        """Values [n], one a row, for as many rows as the user passed; NaN for rows left out before."""
        return values

    def fresh(self) -> Engine:
        """An engine for the same rows, with sites of zero precision."""
        return type(self)(self.source, self.scaling, self.n_latents, self.threads, self.held_out)

    @abstractmethod
    def with_held_out_rows(self) -> Engine:
        """An engine in which the held-out rows take part, too; the other rows keep their sites."""

    @abstractmethod
    def adopt(self, previous: Engine | None) -> bool:
        """Start from the sites of an earlier engine, if it has as many and the same kind of them.

        Returns whether that was possible. The earlier engine keeps its own.
        """

    @abstractmethod
    def saved_rows(self, path: Path) -> dict[str, Array]:
        """The rows' state for a checkpoint at `path`; large parts may be written to files beside it."""

    @abstractmethod
    def restore_rows(self, path: Path, arrays: dict[str, Array]) -> None:
        """Restore the state that `saved_rows` returned."""

    def forget_saved_rows(self, path: Path) -> None:  # noqa: B027 (most engines write no such files)
        """Remove the files that `saved_rows` has written beside the checkpoint."""

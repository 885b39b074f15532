"""What an engine says of its rows, wherever they are: the facts of its source.

What a schedule asks of an engine, wherever its rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from cavity.data.scaling import Standardizer
from cavity.data.source import RawRows
from cavity.engines.threads import Threads
from cavity.gp.posterior import Naturals, Posterior
from cavity.gp.prior import Prior
from cavity.gp.tiles import Sums
from cavity.inference.rule import Rule
from cavity.inference.sweep import SweepOptions
from cavity.typing import Array


class SourceFacts:
    """The part of `Engine` that its source and the rows held out of it answer."""

    source: Any
    held_out: Any

    @property
    def n_rows(self) -> int:
        """Number of rows of the source."""
        return int(self.source.n_rows)

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return int(self.source.n_features)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision that does the rows justice: the source's."""
        precision: np.dtype[Any] = self.source.dtype
        return precision

    @property
    def held_out_rows(self) -> RawRows | None:
        """The rows that take no part in training, if there are any."""
        return None if self.held_out is None else self.held_out.rows

    @property
    def total_weight(self) -> float:
        """Sum of the weights of all rows that take part."""
        held_out = 0.0 if self.held_out is None else self.held_out.weight
        return float(self.source.total_weight - held_out)


First = TypeVar("First")
Second = TypeVar("Second")


class Engine(Protocol):
    """Runs passes over rows and keeps their sites; it knows no mathematics."""

    source: Any
    """Where its rows are: it has `n_rows`, and `sample(size, rng)` for some of them."""
    rule: Rule
    standardizer: Standardizer
    threads: Threads
    """Of the process that drives the fit, for the few rows that it sees itself."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64: the precision that does the rows justice."""
        ...

    @property
    def total_weight(self) -> float:
        """Sum of the weights of all rows that take part."""
        ...

    @property
    def held_out_rows(self) -> RawRows | None:
        """The rows that take no part in training, if there are any."""
        ...

    @property
    def stores_directions(self) -> bool:
        """Whether a site keeps its own vector: the paper's scheme."""
        ...

    @property
    def log_predictive(self) -> Any:
        """[n]: log probability of each label with its row left out; NaN for rows not visited."""
        ...

    def of_all_rows(self, values: Any) -> Any:
        """Values [n], one a row, for as many rows as the user has passed; NaN where one was left out."""
        ...

    def sweep(
        self, prior: Prior, posterior: Posterior, options: SweepOptions, batch: Any = None
    ) -> Sums:
        """One pass over all rows or one of `batches`; the refined sites wait for `commit`."""
        ...

    def overlap(self, first: Callable[[], First], second: Callable[[], Second]) -> tuple[First, Second]:
        """first() and second(), which do not need each other, at once where that is possible."""
        ...

    def commit(self) -> None:
        """Make the sites of the last pass the current ones."""
        ...

    def summed_sites(self, prior: Prior) -> Naturals:
        """The naturals of all sites as they are, under this prior."""
        ...

    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Any]:
        """All rows once in random order, in minibatches of about `size`; the first `skip` left out."""
        ...

    def spared_rows(self, share: float, most: int, rng: np.random.Generator) -> Any:
        """A minibatch with about `most` of the rows that training was spared, if there are so many."""
        ...

    def first_rows(self, count: int) -> RawRows:
        """At most `count` rows from the beginning."""
        ...

    def fresh(self, rule: Rule | None = None) -> Engine:
        """The same rows, with sites that say nothing yet, by another rule if one is given."""
        ...

    def adopt(self, previous: Any) -> bool:
        """Go on with the sites of an earlier engine, if it has the same kind of them and as many.

        Returns whether it does. What becomes of them does not change the earlier engine.
        """
        ...

    def saved_rows(self, path: Path) -> dict[str, Array]:
        """The rows' state for a checkpoint at `path`; what is large may be written beside it."""
        ...

    def restore_rows(self, path: Path, arrays: dict[str, Array]) -> None:
        """Take back what `saved_rows` gave."""
        ...

    def forget_saved_rows(self, path: Path) -> None:
        """Remove what `saved_rows` has written beside the checkpoint."""
        ...

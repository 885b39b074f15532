"""What an engine says of its rows, wherever they are: the facts of its source."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.sources.protocol import RawRows


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

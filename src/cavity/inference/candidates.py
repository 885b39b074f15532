"""Which configurations race: `Candidate` is one of them, `Entrants` says which there are.

Each question of the race is a method of `Entrants`: which model on which set of features, which scaling
of the inputs, which kernel, and last how many inducing points. The other model takes part again before
that, since short trials favour models that learn fast. The winner grows as long as that is better: to
twice as many inducing points, or to local ones, and then to more leaves or more points in each.

The safe model is the paper's, with the trace penalty. The sharp one trains without the residual variance
and without the penalty: where inducing points can explain the data well, it is better.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cavity.data.routing import MOST_LEAVES, SAMPLE_ROWS
from cavity.inference.config import TrainingConfig
from cavity.inference.decisions import (
    DEFAULT_POINTS,
    POINTS_BESIDE_LEAVES,
    leaves_with_enough_rows,
)

if TYPE_CHECKING:
    from cavity.inference.race_records import RaceEntry

POINTS = 200
"""Number of inducing points that the questions about sizes begin with."""
SIZES_LENGTH, GROWN_LENGTH = 3, 6
"""Lengths of trials with so many inducing points, and with more, in units of the other trials."""
MORE_LEAVES = 4
"""How many times as many leaves are tried next."""
SAFE, SHARP = (
    {"residual_scale": 1.0, "trace_penalty": 1.0},
    {"residual_scale": 0.0, "trace_penalty": 0.0},
)
SCALINGS = ("robust", "standard", "quantile")
KERNELS = ("matern32", "rbf", "matern12")


class Candidate(NamedTuple):
    """What a race decides about a configuration."""

    residual_scale: float = 1.0
    trace_penalty: float = 1.0
    scaling: str | None = "robust"
    kernel_name: str | None = "matern32"
    n_inducing: int = DEFAULT_POINTS
    feature_set: str | None = None
    n_leaves: int | None = None
    n_local: int | None = None

    @classmethod
    def of(cls, settings: TrainingConfig | RaceEntry) -> Candidate:
        """What a configuration or an entry says about these fields."""
        return cls(
            settings.residual_scale,
            settings.trace_penalty,
            settings.scaling,
            settings.kernel_name,
            settings.n_inducing,
            settings.feature_set,
            settings.n_leaves,
            settings.n_local,
        )

    @property
    def width(self) -> int:
        """Number of global inducing points, plus those of the row's leaf if there are leaves."""
        return self.n_inducing + (self.n_local or 0)

    @property
    def n_points(self) -> int:
        """Number of inducing points, those of all leaves included."""
        return self.n_inducing + (self.n_leaves or 0) * (self.n_local or 0)

    def __str__(self) -> str:
        named = {(1.0, 1.0): "safe", (0.0, 0.0): "sharp", (1.0, 0.0): "full residual"}
        model = named.get(self[:2], f"κ={self.residual_scale:g}, penalty {self.trace_penalty:g}")
        inputs, kernel = self.scaling or "unscaled", self.kernel_name or "own kernel"
        features = "" if self.feature_set is None else f"{self.feature_set}, "
        leaves = "" if self.n_leaves is None else f" + {self.n_leaves} leaves × {self.n_local}"
        return f"{features}{model}, {inputs}, {kernel}, m={self.n_inducing}{leaves}"


@dataclass(frozen=True)
class Entrants:
    """Which candidates there are: where the race begins, and what it may change."""

    start: Candidate
    """What the parameters mean without a race."""
    free: frozenset[str]
    """Fields that the user has left open: those of `Candidate`, "max_epochs" and "n_predicting"."""
    n_rows: int
    feature_sets: tuple[str, ...] = ()
    """Names of the sets of features to choose from, smallest first."""
    n_local: int = DEFAULT_POINTS
    """Number of inducing points of a leaf, where leaves are tried first."""

    def varied(self, candidate: Candidate, **changes: object) -> Candidate:
        """A candidate with some fields changed, as far as they are free."""
        return candidate._replace(**{k: v for k, v in changes.items() if k in self.free})  # type: ignore[arg-type]

    def models(self) -> list[Candidate]:
        """The first question: features, the model, and a smooth kernel on plainly scaled inputs."""
        sharp = self.varied(self.start, **SHARP)
        smooth = self.varied(sharp, scaling="standard", kernel_name="rbf")
        more = [
            self.varied(model, feature_set=name)
            for name in self.feature_sets[1:2]
            for model in (self.start, sharp)
        ]
        return distinct([self.start, sharp, smooth, *more])

    def further_features(self, best: Candidate) -> list[Candidate]:
        """The question after the scaling, if there are more than two sets of features."""
        return distinct([best, *(self.varied(best, feature_set=s) for s in self.feature_sets[2:])])

    def scalings(self, best: Candidate) -> list[Candidate]:
        """The question after the model."""
        return distinct([best, *(self.varied(best, scaling=scaling) for scaling in SCALINGS)])

    def kernels(self, best: Candidate) -> list[Candidate]:
        """The question before the last."""
        return distinct([best, *(self.varied(best, kernel_name=name) for name in KERNELS)])

    def sizes(self, best: Candidate) -> list[Candidate]:
        """The question after the kernel: both models with more inducing points, or what one grows to."""
        best = self.varied(best, n_inducing=POINTS)
        other = self.varied(best, **(SHARP if best.residual_scale else SAFE))
        return [best, other] if other != best else [best, *self.larger(best)]

    def larger(self, best: Candidate) -> list[Candidate]:
        """What the winner of the last question grows to: it has no more inducing points than rows.

        It gets local inducing points, or twice as many for all rows.
        """
        if best.n_leaves is None:
            grown = [self.varied(best, n_inducing=2 * best.n_inducing), *self._leaves(best)]
        else:
            assert best.n_local is not None
            grown = [best._replace(n_leaves=MORE_LEAVES * best.n_leaves)]
            if "n_local" in self.free:
                grown.append(best._replace(n_local=2 * best.n_local))
        return [c for c in grown if best.n_points < c.n_points and self._is_possible(c)]

    def length(self, candidate: Candidate, is_last: bool) -> int:
        """Length of its trial; is_last: whether the question is about sizes."""
        if not is_last:
            return 1
        has_grown = "n_inducing" in self.free and candidate.n_points > POINTS
        return GROWN_LENGTH if has_grown else SIZES_LENGTH

    def of_ordinary_size(self, candidate: Candidate) -> Candidate:
        """The candidate with POINTS inducing points and no leaves, if a row now meets more of them.

        It stays as it is if the user has chosen the number of points.
        """
        if "n_inducing" not in self.free or candidate.width <= POINTS:
            return candidate
        return candidate._replace(n_inducing=POINTS, n_leaves=None, n_local=None)

    def _is_possible(self, candidate: Candidate) -> bool:
        """Whether there is a row for each inducing point; with leaves, one that their tree sees."""
        if candidate.n_leaves is None:
            return candidate.n_points <= self.n_rows
        return candidate.n_points <= min(self.n_rows, SAMPLE_ROWS) and candidate.n_leaves <= MOST_LEAVES

    def _leaves(self, best: Candidate) -> list[Candidate]:
        """The candidate with local inducing points, in as many leaves as have enough rows."""
        if "n_leaves" not in self.free:
            return []
        few = self.varied(best, n_inducing=POINTS_BESIDE_LEAVES)._replace(n_local=self.n_local)
        number = leaves_with_enough_rows(self.n_rows, few.width)
        while number > 1 and not self._is_possible(few._replace(n_leaves=number)):
            number //= 2
        return [few._replace(n_leaves=number)] if number > 1 else []


def distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates without repetitions, in their order."""
    return list(dict.fromkeys(candidates))

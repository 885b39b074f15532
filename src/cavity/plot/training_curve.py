"""Training curves of one or several fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from cavity.inference.history import Iteration
from cavity.plot.canvas import Display, colour
from cavity.plot.columns import Plottable
from cavity.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Y = {
    "leave_one_out": "leave-one-out NLL (nats a row)",
    "objective": "objective (nats)",
    "gradient_norm": "norm of the gradient",
}
"""Quantities of a history, with the labels of their axes."""
_X = {"seconds": "time (s)", "epochs": "passes over the data", "iteration": "iteration"}


class TrainingCurveDisplay(Display):
    """Objective, gradient or leave-one-out NLL in the course of a fit, from `history_`.

    >>> from sklearn.datasets import make_moons
    >>> from cavity import SEPClassifier, SVIClassifier
    >>> X, y = make_moons(200, noise=0.3, random_state=0)
    >>> sep = SEPClassifier(n_inducing=10, random_state=0).fit(X, y)
    >>> svi = SVIClassifier(n_inducing=10, random_state=0).fit(X, y)
    >>> display = TrainingCurveDisplay.from_estimators([sep, svi], x="epochs")
    >>> list(display.histories), display.ax_.get_xlabel()
    (['SEPClassifier', 'SVIClassifier'], 'passes over the data')
    """

    def __init__(self, histories: Mapping[str, Sequence[Iteration]], *, y: str, x: str) -> None:
        if y not in _Y:
            raise ValueError(f"y={y!r} is not an option; use one of {', '.join(_Y)}")
        if x not in _X:
            raise ValueError(f"x={x!r} is not an option; use one of {', '.join(_X)}")
        self.histories = dict(histories)
        self.y = y
        self.x = x

    @classmethod
    def from_estimator(
        cls,
        estimator: Plottable,
        *,
        y: str = "leave_one_out",
        x: str = "seconds",
        ax: Axes | None = None,
    ) -> TrainingCurveDisplay:
        """Draw the curve of one fitted estimator."""
        return cls.from_estimators([estimator], y=y, x=x, ax=ax)

    @classmethod
    def from_estimators(
        cls,
        estimators: Mapping[str, Plottable] | Sequence[Plottable],
        *,
        y: str = "leave_one_out",
        x: str = "seconds",
        ax: Axes | None = None,
    ) -> TrainingCurveDisplay:
        """Draw the curves of several fitted estimators: a list, or a dictionary by name."""
        if not isinstance(estimators, Mapping):
            estimators = _named(list(estimators))
        return cls({name: one.history_ for name, one in estimators.items()}, y=y, x=x).plot(ax)

    def curve(self, name: str) -> tuple[Array, Array]:
        """Coordinates x and y of one curve."""
        history = self.histories[name]
        sign = -1.0 if self.y == "leave_one_out" else 1.0
        return (
            np.array([*map(attrgetter(self.x), history)], dtype=float),
            sign * np.array([*map(attrgetter(self.y), history)], dtype=float),
        )

    def plot(self, ax: Axes | None = None) -> TrainingCurveDisplay:
        """Draw on `ax`, or on new axes."""
        ax = self._begin(ax)
        for position, name in enumerate(self.histories):
            x, y = self.curve(name)
            few = "o" if len(x) < 3 else None
            ax.plot(x, y, color=colour(position), lw=1.4, marker=few, ms=4, label=name)
        ax.set_xlabel(_X[self.x])
        ax.set_ylabel(_Y[self.y])
        if len(self.histories) > 1:
            ax.legend(frameon=False, fontsize="small")
        return self


def _named(estimators: list[Plottable]) -> dict[str, Plottable]:
    """Name estimators by their types, numbered where a type occurs more than once."""
    types = [type(one).__name__ for one in estimators]
    names = [
        name if types.count(name) == 1 else f"{name} {types[: i + 1].count(name)}"
        for i, name in enumerate(types)
    ]
    return dict(zip(names, estimators, strict=True))

"""The interface of an optimiser: a pure function from state and gradient to an ascent step."""

from __future__ import annotations

from typing import Any, Protocol

from cavity.typing import Array


class Optimizer(Protocol):
    """Turns gradients into steps uphill. States are values: a step returns a new one."""

    def initial(self, n_parameters: int) -> Any:
        """The state before the first step."""
        ...

    def step(self, state: Any, gradient: Array, rate: float = 1.0) -> tuple[Array, Any]:
        """The step to add to the parameters, and the next state.

        `rate` scales this step: schedules lower it towards the end of a budget.
        """
        ...

    def shrunk(self, state: Any) -> Any:
        """The state with its step sizes halved, after a step that failed."""
        ...

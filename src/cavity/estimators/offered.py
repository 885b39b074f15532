"""Methods that an estimator, or one of its settings, lacks."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any


class Offered:
    """A method that is absent to hasattr where there is a reason, which whoever asks for it is told."""

    def __init__(self, method: Any, why_not: Callable[[Any], str | None]) -> None:
        """Offer `method`, None if there never is one, where `why_not(estimator)` has nothing to say."""
        self.method = method
        self.why_not = why_not

    def __get__(self, instance: Any, owner: type) -> Any:
        """The method, bound to the estimator if there is one."""
        if instance is None:
            return self.method
        reason = self.why_not(instance)
        if reason is not None:
            raise AttributeError(reason)
        return MethodType(self.method, instance)

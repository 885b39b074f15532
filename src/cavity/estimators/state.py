"""What of an estimator outlives it, in a model file, a pickle or a copy; and what a failure leaves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np

from cavity.history import Iteration, Rung


def saved_state(state: dict[str, Any]) -> dict[str, Any]:
    """The attributes of an estimator, as they are to be saved.

    The training rows stay behind; what is left is plain data, and small: a history is saved as columns,
    a path as text.
    """
    state = dict(state)
    if "_training" in state:
        state["_training"] = None
    if "history_" in state:
        state["history_"] = _columns(state["history_"])
    if "inducing_path_" in state:
        state["inducing_path_"] = [rung.as_dict() for rung in state["inducing_path_"]]
    if isinstance(state.get("checkpoint"), os.PathLike):
        state["checkpoint"] = os.fspath(state["checkpoint"])
    if state.get("inducing_points") is not None:
        state["inducing_points"] = np.asarray(state["inducing_points"])
    return state


def restored_state(state: dict[str, Any]) -> dict[str, Any]:
    """The attributes of an estimator, from what `saved_state` gave."""
    state, history = dict(state), state.get("history_")
    if isinstance(history, dict):
        state["history_"] = _iterations(history)
    if "inducing_path_" in state:
        state["inducing_path_"] = [Rung(**rung) for rung in state["inducing_path_"]]
    return state


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """What fails, or is stopped, leaves the estimator as it was, not half of it as it was to be."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def _columns(history: list[Iteration]) -> dict[str, Any]:
    return {
        field.name: np.array([getattr(entry, field.name) for entry in history])
        for field in fields(Iteration)
    }


def _iterations(columns: dict[str, Any]) -> list[Iteration]:
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [Iteration(**dict(zip(columns, row, strict=True))) for row in rows]

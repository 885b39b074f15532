"""The attributes of estimators: how they are saved, restored, and taken back after an error."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from cavity.inference.history import Iteration
from cavity.inference.race_records import Race, RaceEntry

State: TypeAlias = dict[str, Any]
"""Attributes of an estimator, by name."""
RELEVANCE_CACHE = "_relevance_cache"
"""Attribute that keeps `relevance_`, which can be computed again."""


def saved_state(state: State) -> State:
    """The attributes of an estimator in the form in which they are saved.

    Training rows are left out. The rest is small, plain data: a history is saved as columns, a path and
    the names of the features as text.
    """
    state = dict(state)
    if "_training" in state:
        state["_training"] = None
    if "history_" in state:
        state["history_"] = _columns(state["history_"])
    if state.get("race_") is not None:
        state["race_"] = {"entries": state["race_"].as_dicts(), "seconds": state["race_"].seconds}
    if "feature_names_in_" in state:
        state["feature_names_in_"] = json.dumps(list(state["feature_names_in_"]))
    if isinstance(state.get("checkpoint"), os.PathLike):
        state["checkpoint"] = os.fspath(state["checkpoint"])
    if not isinstance(state.get("inducing_points"), (str, type(None))):
        state["inducing_points"] = np.asarray(state["inducing_points"])
    leaves = state.get("leaves")
    if isinstance(leaves, list) or hasattr(leaves, "__array__"):  # numbers or names of the rows' leaves
        names = np.asarray(leaves)
        state["leaves"] = names.astype(np.str_) if names.dtype == object else names
    return state


def restored_state(state: State) -> State:
    """The attributes of an estimator, from what `saved_state` gave."""
    state, history = dict(state), state.get("history_")
    if isinstance(history, dict):
        state["history_"] = _iterations(history)
    if state.get("race_") is not None:
        entries = tuple(RaceEntry(**entry) for entry in state["race_"]["entries"])
        state["race_"] = Race(entries, state["race_"]["seconds"])
    if "feature_names_in_" in state:
        state["feature_names_in_"] = np.array(json.loads(state["feature_names_in_"]), dtype=object)
    return state


@contextmanager
def rollback_on_error(estimator: BaseEstimator) -> Iterator[None]:
    """Give the estimator its earlier attributes back if the block fails or is interrupted."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def _columns(history: list[Iteration]) -> dict[str, NDArray[np.number]]:
    rows = [asdict(entry) for entry in history]
    return {field.name: np.array([row[field.name] for row in rows]) for field in fields(Iteration)}


def _iterations(columns: dict[str, NDArray[np.number]]) -> list[Iteration]:
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [Iteration(**dict(zip(columns, row, strict=True))) for row in rows]

"""Sites of shards beside a checkpoint: a file a shard, written by the worker that has it.

The folder is named after the checkpoint, with `.sites` at its end. If it is on a file system that all
workers share, a fit that is resumed finds every site, on any number of workers. Where a worker finds no
file, its shard starts from sites that say nothing: the fixed point is the same.
"""

from __future__ import annotations

import shutil
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from cavity.dask.keeping import keep
from cavity.dask.messages import GroupRows, GroupState, ShardState
from cavity.files import written_atomically
from cavity.rows import Sites


def folder_of(checkpoint: Path) -> Path:
    """Where the sites that belong to a checkpoint lie."""
    return checkpoint.with_name(f"{checkpoint.name}.sites")


def make_folder(checkpoint: Path) -> None:
    """Make the folder, where the driver can."""
    with suppress(OSError):
        folder_of(checkpoint).mkdir(exist_ok=True)


def remove_folder(checkpoint: Path) -> None:
    """Remove the folder, where the driver sees it."""
    shutil.rmtree(folder_of(checkpoint), ignore_errors=True)


def report_unwritten(checkpoint: Path, n_unwritten: int, n_groups: int) -> None:
    """Warn if workers could not write."""
    if n_unwritten:
        warnings.warn(
            f"{n_unwritten} of {n_groups} tasks could not write to {str(folder_of(checkpoint))!r} on "
            "their worker; a fit resumed from this checkpoint starts their sites anew. Put the "
            "checkpoint on a file system that the workers share",
            UserWarning,
            stacklevel=2,
        )


def write_group(rows: GroupRows, state: GroupState | None, checkpoint: str, version: str) -> bool:
    """Write the state of each shard; files of the version before the last are removed."""
    folder = folder_of(Path(checkpoint))
    try:
        for i, own in enumerate(state or ()):
            name = f"{rows.first + i:06d}"
            older = sorted(folder.glob(f"{name}-*.npz"), key=lambda file: file.stat().st_mtime)
            if own is not None:
                with written_atomically(folder / f"{name}-{version}.npz") as file:
                    np.savez(file, **_arrays(own))
            for file_ in older[:-1]:
                file_.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def read_group_state(
    rows: GroupRows, checkpoint: str, version: str, key: str, fit: str, number: int
) -> int:
    """Keep the state of each shard that there is a file of; their number."""
    folder = folder_of(Path(checkpoint))
    states: list[ShardState | None] = []
    for i, shard in enumerate(rows.shards):
        own = _read(folder / f"{rows.first + i:06d}-{version}.npz")
        fits = own is not None and len(own.log_predictive) == len(shard.labels)
        states.append(own if fits else None)
    keep({key: tuple(states)}, fit, number, frozenset())
    return sum(state is not None for state in states)


def _arrays(state: ShardState) -> dict[str, Any]:
    arrays = {
        "precision": state.sites.precision,
        "shift": state.sites.shift,
        "log_predictive": state.log_predictive,
    }
    if state.sites.directions is not None:
        arrays["directions"] = state.sites.directions
    return arrays


def _read(path: Path) -> ShardState | None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            directions = arrays["directions"] if "directions" in arrays.files else None
            sites = Sites(arrays["precision"], arrays["shift"], directions)
            return ShardState(sites, arrays["log_predictive"])
    except (OSError, EOFError, ValueError, KeyError, BadZipFile):
        return None

"""The file of a checkpoint: whether it can be written, what it holds, and how it is removed."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from cavity.errors import CheckpointError
from cavity.files import check_writable, remove_unfinished


def found(path: Path) -> bool:
    """Whether there is a file at `path`; raises if it could be neither read nor written, before work."""
    try:
        if path.is_dir():
            example = path / "fit.ckpt"
            raise CheckpointError(
                f"checkpoint={str(path)!r} is a folder; name a file, for instance {str(example)!r}"
            )
        if path.exists() and not path.is_file():
            raise _unusable(path, "it is no regular file")
        check_writable(path)
        remove_unfinished(path)  # of a run that was killed while it wrote
        path.stat()
    except FileNotFoundError as error:
        if path.parent.is_dir():
            return False
        raise _unusable(path, f"there is no folder {str(path.parent)!r}") from error
    except NotADirectoryError as error:
        raise _unusable(path, f"{str(path.parent)!r} is not a folder") from error
    except (OSError, ValueError) as error:
        raise _unusable(path, getattr(error, "strerror", None) or str(error)) from error
    return True


def writer(path: Path) -> str | None:
    """Which run has written the checkpoint at `path`; None if there is none."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return str(json.loads(archive["about"].tobytes()).get("run"))
    except FileNotFoundError:
        return None
    except Exception:  # whatever it is, it is not what a run of ours has left there
        return "unknown"


def require_own(path: Path, known: str | None) -> None:
    """Raise if the checkpoint at `path` is of another run than the one known to have written it."""
    if writer(path) not in (None, known):
        raise CheckpointError(
            f"the checkpoint {str(path)!r} was written by another fit while this one was running, and "
            "is left as it is; give each fit a checkpoint path of its own"
        )


def _unusable(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"checkpoint={str(path)!r} cannot be used: {why}; pass a path in a folder that exists and can "
        "be written to, or checkpoint=None"
    )


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays of a checkpoint and its description."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        about = json.loads(arrays["about"].tobytes())
        if not isinstance(about, dict):
            raise TypeError("no description")
    except PermissionError as error:
        raise CheckpointError(
            f"the checkpoint {str(path)!r} may not be read ({error.strerror}): change its "
            "permissions to go on from it, or pass another checkpoint path"
        ) from error
    except MemoryError as error:
        raise CheckpointError(
            f"the checkpoint {str(path)!r} takes more memory than there is, or is damaged ({error}); "
            "free some memory, or delete it to start afresh"
        ) from error
    except Exception as error:  # zipfile, NumPy and json have many for a file that is none of theirs
        raise unreadable(path, error) from error
    return arrays, about


def unreadable(path: Path, error: Exception) -> CheckpointError:
    """What to raise for a file that is no checkpoint."""
    return CheckpointError(
        f"{str(path)!r} is not a readable checkpoint ({type(error).__name__}: {error}); delete it "
        "to start afresh"
    )


def remove(path: Path) -> None:
    """Remove a checkpoint that has served; the fit is done, so that a failure is but a warning."""
    try:
        path.unlink(missing_ok=True)
        remove_unfinished(path)
    except OSError as error:
        warnings.warn(
            f"the fit is done, but its checkpoint {str(path)!r} could not be removed "
            f"({error.strerror}); delete it, or the next fit with this path goes on from it",
            UserWarning,
            stacklevel=2,
        )

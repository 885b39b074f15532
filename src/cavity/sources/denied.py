"""Files and folders that may not be read: an error of its own, for their contents may be sound."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cavity.errors import SourceError


@contextmanager
def permitted(path: object) -> Iterator[None]:
    """Turn a missing permission into an error that says what to change."""
    try:
        yield
    except PermissionError as error:
        raise SourceError(
            f"{path}: may not be read (Permission denied); change its permissions, or those of the "
            "folders that it lies in"
        ) from error

"""The file of a checkpoint: whether its path can be used, who wrote it, and its arrays.

Sizes, shapes and precisions are compared with what a fit needs before an array is read.
"""

from __future__ import annotations

import json
import math
import zipfile
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from cavity.errors import CheckpointError, warn_user
from cavity.files import check_writable, remove_unfinished
from cavity.typing import AnyArray, JsonObject


def prepare_path(path: Path) -> bool:
    """Check a path before training and remove unfinished files; returns whether there is a checkpoint.

    It raises if the path cannot be written to.
    """
    target = path
    try:
        target = path.resolve()  # a symbolic link stays a link
        if path.is_dir():
            example = path / "fit.ckpt"
            raise CheckpointError(
                f"checkpoint={str(path)!r} is a folder; name a file, for instance {str(example)!r}"
            )
        if path.exists() and not path.is_file():
            raise _unusable(path, "it is not a regular file")
        check_writable(target)
        remove_unfinished(target)  # left by a run that was killed while it was writing
        target.stat()
    except FileNotFoundError as error:
        if target.parent.is_dir():
            return False
        raise _unusable(path, f"there is no folder {str(target.parent)!r}") from error
    except NotADirectoryError as error:
        raise _unusable(path, f"{str(target.parent)!r} is not a folder") from error
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
        if isinstance(error, CheckpointError):
            raise
        reason = error.strerror if isinstance(error, OSError) else None
        raise _unusable(path, reason or str(error)) from error
    return True


def run_that_wrote(path: Path) -> str | None:
    """The identifier of the run that wrote the checkpoint at `path`; None if there is no file."""
    try:
        with path.open("rb") as file:
            return str(Archive(file).about().get("run"))
    except FileNotFoundError:
        return None
    except Exception:  # an unreadable file was not written by this run
        return "unknown"


def require_own(path: Path, known: str | None) -> None:
    """Raise if the checkpoint at `path` was written by another run than `known`."""
    if run_that_wrote(path) not in (None, known):
        raise CheckpointError(
            f"the checkpoint {str(path)!r} was written by another fit while this one was running, and "
            "was not changed; give each fit a checkpoint path of its own"
        )


def _unusable(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"checkpoint={str(path)!r} cannot be used: {why}; pass a path in a folder that exists and can "
        "be written to, or checkpoint=None"
    )


class Field(NamedTuple):
    """Shape and precision that an array of a checkpoint must have."""

    shape: tuple[int | range, ...]
    """A range holds the possible lengths."""
    dtypes: tuple[np.dtype[Any], ...]

    @classmethod
    def like(cls, value: object) -> Field:
        """The field of a value of the same shape and precision."""
        array = np.asarray(value)
        return cls(array.shape, (array.dtype,))

    def check(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Raise if an array has another shape or precision."""
        if len(shape) != len(self.shape) or any(
            size not in (expected if isinstance(expected, range) else (expected,))
            for size, expected in zip(shape, self.shape, strict=True)
        ):
            lengths = (f"≤{n[-1]}" if isinstance(n, range) else f"{n}" for n in self.shape)
            raise ValueError(f"{name} has the shape {shape}, where this fit has ({', '.join(lengths)})")
        if dtype not in self.dtypes:
            raise ValueError(f"{name} is of type {dtype}, where this fit has {self.dtypes[0]}")


_LARGEST_DESCRIPTION = 16_000_000
"""Most bytes of the description of a checkpoint."""
_MOST_MEMBERS = 200


class Archive:
    """The members of an archive as `np.savez` writes it; sizes are checked before anything is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._archive = zipfile.ZipFile(file)
        size = file.seek(0, 2)
        members = self._archive.infolist()
        self._members = {info.filename.removesuffix(".npy"): info for info in members}
        if len(members) > _MOST_MEMBERS or len(self._members) < len(members):
            raise ValueError("it has too many arrays, or two of the same name")
        # Without compression, arrays need no more memory than the file has bytes.
        if any(
            info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size
            for info in members
        ):
            raise ValueError("its arrays are compressed")
        if sum(info.file_size for info in members) > size:
            raise ValueError("its arrays are larger than the file")
        self.names = set(self._members)

    def about(self) -> JsonObject:
        """The description."""
        field = Field((range(_LARGEST_DESCRIPTION + 1),), (np.dtype(np.uint8),))
        about = json.loads(self.array("about", field).tobytes())
        if not isinstance(about, dict):
            raise ValueError("it has no description")
        return about

    def array(self, name: str, field: Field) -> AnyArray:
        """One array, which must fit a field; its header is checked before its numbers are read."""
        if name not in self._members:
            raise ValueError(f"it has no {name}")
        with self._archive.open(self._members[name]) as member:
            version = np.lib.format.read_magic(member)
            headers = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }
            shape, _, dtype = headers[version](member)
            field.check(name, shape, dtype)
            if member.tell() + math.prod(shape) * dtype.itemsize != self._members[name].file_size:
                raise ValueError(f"{name} has not as many numbers as it says")
        with self._archive.open(self._members[name]) as member:
            array = np.lib.format.read_array(member, allow_pickle=False)
            member.read()  # the checksum is compared at the end
        return np.asarray(array, order="C")


def unreadable(path: Path, why: str) -> CheckpointError:
    """The error for a file that is no checkpoint, or a damaged one."""
    return CheckpointError(
        f"{str(path)!r} is not a readable checkpoint ({why}); delete it to start afresh"
    )


def race_file(path: Path) -> Path:
    """Where the race before a fit with this checkpoint keeps its finished trials."""
    return path.with_name(f"{path.name}.race")


def remove(path: Path) -> None:
    """Remove the checkpoint of a finished fit; a failure is only a warning, since the fit succeeded."""
    try:
        target = path.resolve()  # a symbolic link stays a link
        target.unlink(missing_ok=True)
        remove_unfinished(target)
    except OSError as error:
        warn_user(
            f"the fit is done, but its checkpoint {str(path)!r} could not be removed "
            f"({error.strerror}); delete it, or the next fit with this path resumes from it"
        )

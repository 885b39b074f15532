"""The file of a checkpoint: whether its path can be used, who wrote it, and its arrays.

Sizes, shapes and precisions are compared with what a fit needs before an array is read. A fingerprint
of parameters, rows and labels tells whether a checkpoint belongs to a fit: small values are stored as
they are, so that an error can show a difference, and arrays as digests.
"""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from cavity.data.source import RawRows, RowSource
from cavity.errors import CheckpointError, warn_user
from cavity.files import check_writable, remove_unfinished
from cavity.gp.posterior import Posterior
from cavity.inference.config import TrainingConfig
from cavity.typing import AnyArray, AnyDtype, Array, ClassWeight, JsonObject


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
    dtypes: tuple[AnyDtype, ...]

    @classmethod
    def like(cls, value: object) -> Field:
        """The field of a value of the same shape and precision."""
        array = np.asarray(value)
        return cls(array.shape, (array.dtype,))

    def check(self, name: str, shape: tuple[int, ...], dtype: AnyDtype) -> None:
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
"""Most arrays of a checkpoint; a file with more is not one."""


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


@dataclass(frozen=True)
class Fingerprint:
    """What a run and a checkpoint must have in common, if the run is to resume from it.

    >>> mine = Fingerprint({"tol": 0.1}, {"number of rows": 9}, {"labels": "77af", "start": "90b1"})
    >>> theirs = mine.as_json()
    >>> mine.difference(theirs)
    >>> mine.difference({**theirs, "contents": {"labels": "1234", "start": "5678"}})
    'its labels are not those passed now'
    >>> mine.difference({**theirs, "parameters": {"tol": 0.2}})
    'its parameters differ: tol is 0.2, and 0.1 now'
    """

    parameters: JsonObject = field(default_factory=dict)
    """Parameters by name: numbers, strings, and lists and dictionaries of these."""
    table: JsonObject = field(default_factory=dict)
    """Number and kind of the rows."""
    contents: dict[str, str] = field(default_factory=dict)
    """Digests of arrays by name."""

    def as_json(self) -> JsonObject:
        """The fingerprint as plain dictionaries, as a checkpoint stores it."""
        return asdict(self)

    def difference(self, stored: object) -> str | None:
        """How a stored fingerprint differs from this one, in words; None if it does not."""
        for what, mine, other in (
            ("parameters", self.parameters, _part(stored, "parameters")),
            ("rows", self.table, _part(stored, "table")),
        ):
            changed = [
                f"{name} is {other.get(name)!r}, and {value!r} now"
                for name, value in mine.items()
                if other.get(name) != value
            ]
            if changed:
                return f"its {what} differ: {'; '.join(changed)}"
        return self._other_contents(_part(stored, "contents"))

    def _other_contents(self, theirs: Mapping[str, object]) -> str | None:
        others = [name for name, mine in self.contents.items() if theirs.get(name) != mine]
        # An earlier fit depends on rows and labels: if these differ, they are the cause to report.
        causes = [name for name in others if name != "start"]
        if causes:
            return f"its {' and '.join(causes)} are not those passed now"
        if others:
            return "its start is another: one of the two continues an earlier fit by warm_start"
        return None


def _part(stored: object, name: str) -> Mapping[str, object]:
    """A part of a stored fingerprint; empty if there is none."""
    part = stored.get(name) if isinstance(stored, Mapping) else None
    return part if isinstance(part, Mapping) else {}


_ROWS = 1_000
"""Number of rows that are digested, from all over the source."""
_BYTES = 16_000_000
"""Most bytes of rows that are digested."""
_FEW = 20
"""Number of values up to which an array is stored as it is, without a digest."""


def fingerprint(
    config: TrainingConfig,
    source: RowSource,
    kernel: Kernel | None,
    inducing_points: Array | str | None,
    class_weight: ClassWeight,
    posterior: Posterior | None = None,
    validation: RawRows | None = None,
    mean_function: object = None,
    leaves: object = None,
) -> Fingerprint:
    """The fingerprint of a fit, from its settings and some rows of its source.

    kernel, inducing_points, class_weight, mean_function and leaves (an estimator or leaf numbers) are
    the user's parameters; posterior is the one of the earlier fit that this one continues, or the prior;
    validation: the user's own validation rows.
    """
    fitting = min(_ROWS, _BYTES // (8 * source.n_features))
    sample = source.sample(max(1, fitting), np.random.default_rng(0))
    n_latents = config.n_latents
    before = None if posterior is None else posterior.naturals
    return Fingerprint(
        {
            **{name: plain(value) for name, value in config.as_dict().items()},
            # How often a run is saved does not change it, and it may go on to another limit.
            **dict.fromkeys(("checkpoint_interval", "max_epochs", "max_seconds")),
            "kernel": plain(kernel),
            "inducing_points": plain(inducing_points),
            "class_weight": plain(class_weight),
            "mean_function": plain(mean_function),
            "leaves": plain(leaves),
        },
        {
            "number of rows": int(source.n_rows),
            "number of features": int(source.n_features),
            **({} if n_latents == 1 else {"number of classes": n_latents}),
            "kind of source": source.arrangement,
            "precision": str(source.dtype),
        },
        {
            "rows": digest(np.asarray(sample.X, dtype=np.float64)),
            "labels": _labels(source, sample),
            "weights": _weights(source, sample),
            "validation rows": digest(*(() if validation is None else validation)),
            # What a mean function says of the rows may round otherwise with another number of threads.
            "offsets": digest(source.offset if mean_function is None else None),
            # What is chosen from the rows may round otherwise with another number of threads. Only the
            # posterior of an earlier fit is compared; without one, it is the prior.
            "start": digest(*(() if before is None else before.parts)),
        },
    )


def digest(*arrays: AnyArray | None) -> str:
    """A hash of the values and shapes of arrays; None differs from every array.

    >>> digest(np.eye(2)) == digest(np.eye(2)), digest(np.eye(2)) == digest(np.ones(4))
    (True, False)
    """
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(repr(None if array is None else np.shape(array)).encode())
        whole.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()[:16]


def plain(value: object) -> object:
    """A parameter as a JSON value, equal for values that mean the same.

    >>> plain(np.int64(3)) == plain(3.0), plain([1, 2]), plain(np.bool_(True))
    (True, [1.0, 2.0], True)
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, Kernel):
        return _kernel(value)
    if isinstance(value, Mapping):
        return {repr(plain(key)): plain(one) for key, one in value.items()}
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return repr(value)
    return array.tolist() if array.size <= _FEW else f"{array.shape} {digest(array)}"


def _kernel(kernel: Kernel) -> str:
    """A kernel with its bounds, which scikit-learn's own text leaves out."""
    parts = []
    for name, value in sorted(kernel.get_params(deep=False).items()):
        if name.endswith("_bounds") and not isinstance(value, str):
            pairs = np.atleast_2d(np.asarray(value, dtype=np.float64))
            value = pairs[0] if (pairs == pairs[0]).all() else pairs  # one pair for all
        elif isinstance(value, Integral) and not isinstance(value, bool):
            value = float(value)
        parts.append(f"{name}={plain(value)}")
    return f"{type(kernel).__name__}({', '.join(parts)})"


def _labels(source: RowSource, sample: RawRows) -> str:
    """Digest of all labels, if the source has them in memory, and otherwise of the sample's labels."""
    some = np.asarray(sample.labels, dtype=np.int32)
    if (elsewhere := source.label_digests()) is not None:
        return digest(some, np.array(elsewhere))
    return digest(some, None if source.labels is None else source.labels.astype(np.int32))


def _weights(source: RowSource, sample: RawRows) -> str:
    """Digest of all weights, if the source has them in memory, and otherwise of the sample's weights."""
    some = None if sample.weight is None else np.asarray(sample.weight, dtype=np.float64)
    return digest(some, None if source.weight is None else source.weight.astype(np.float64))

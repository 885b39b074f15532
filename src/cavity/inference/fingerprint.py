"""Fingerprints of fits: parameters, rows and labels, which tell whether a checkpoint belongs to a fit.

Small values are stored as they are, so that an error can show a difference. Arrays are stored as
digests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from numbers import Integral, Real

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from cavity.data.source import ClassWeightedSource, RawRows, RowSource
from cavity.gp.posterior import Posterior
from cavity.inference.config import TrainingConfig
from cavity.typing import AnyArray, Array, ClassWeight, JsonObject


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
) -> Fingerprint:
    """The fingerprint of a fit, from its settings and some rows of its source.

    kernel, inducing_points, class_weight and mean_function are the user's parameters; posterior is the
    one of the earlier fit that this one continues, or the prior; validation: the user's own validation
    rows.
    """
    table = source.source if isinstance(source, ClassWeightedSource) else source
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
        },
        {
            "number of rows": int(source.n_rows),
            "number of features": int(source.n_features),
            **({} if n_latents == 1 else {"number of classes": n_latents}),
            "kind of source": table.arrangement,
            "precision": str(source.dtype),
        },
        {
            "rows": digest(np.asarray(sample.X, dtype=np.float64)),
            "labels": _labels(table, sample),
            "weights": _weights(table, sample),
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


def _labels(table: RowSource, sample: RawRows) -> str:
    """Digest of all labels, if the source has them in memory, and otherwise of the sample's labels."""
    some = np.asarray(sample.labels, dtype=np.int32)
    if (elsewhere := table.label_digests()) is not None:
        return digest(some, np.array(elsewhere))
    return digest(some, None if table.labels is None else table.labels.astype(np.int32))


def _weights(table: RowSource, sample: RawRows) -> str:
    """Digest of all weights, if the source has them in memory, and otherwise of the sample's weights."""
    some = None if sample.weight is None else np.asarray(sample.weight, dtype=np.float64)
    return digest(some, None if table.weight is None else table.weight.astype(np.float64))

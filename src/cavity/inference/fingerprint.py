"""By what a checkpoint knows its fit: what can be shown, and what is digested.

What makes a fit this fit: parameters, rows, labels, and where it starts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from cavity.data.source import ClassWeightedSource, RawRows
from cavity.inference.trainer import Problem


@dataclass(frozen=True)
class Fingerprint:
    """What a run must have in common with a checkpoint to go on from it.

    >>> mine = Fingerprint({"tol": 0.1}, {"number of rows": 9}, {"labels": "77af", "start": "90b1"})
    >>> theirs = mine.as_json()
    >>> mine.difference(theirs)
    >>> mine.difference({**theirs, "contents": {"labels": "1234", "start": "5678"}})
    'its labels are not those passed now'
    >>> mine.difference({**theirs, "parameters": {"tol": 0.2}})
    'its parameters are others: tol is 0.2, and 0.1 now'
    """

    parameters: dict[str, Any] = field(default_factory=dict)
    """Numbers, strings, and lists and dictionaries of these, by name."""
    table: dict[str, Any] = field(default_factory=dict)
    """The same of the rows' number and kind."""
    contents: dict[str, str] = field(default_factory=dict)
    """Digests of what is too large to be shown."""

    def as_json(self) -> dict[str, Any]:
        """For a checkpoint."""
        return asdict(self)

    def difference(self, stored: Any) -> str | None:
        """In what the fit of a stored fingerprint was another one, or None."""
        theirs = stored if isinstance(stored, Mapping) else {}
        for what in ("parameters", "table"):
            mine, other = getattr(self, what), theirs.get(what) or {}
            changed = [
                f"{name} is {other.get(name)!r}, and {value!r} now"
                for name, value in mine.items()
                if other.get(name) != value
            ]
            if changed:
                name = "rows" if what == "table" else what
                return f"its {name} are others: {'; '.join(changed)}"
        return self._other_contents(theirs.get("contents") or {})

    def _other_contents(self, theirs: Mapping[str, str]) -> str | None:
        others = [name for name, mine in self.contents.items() if theirs.get(name) != mine]
        # The start follows from rows and labels: to say that it differs too would only confuse.
        causes = [name for name in others if name != "start"]
        if causes:
            return f"its {' and '.join(causes)} are not those passed now"
        if others:
            return (
                "its start (kernel, inducing points, standardisation) is another, although parameters, "
                "labels and the rows that were compared are the same: are other rows not, was it "
                "another version of cavity, NumPy or scikit-learn, or an estimator with warm_start that "
                "had been fitted?"
            )
        return None


_ROWS = 1_000
"""Rows that are digested, from all over the source …"""
_BYTES = 16_000_000
"""… if they take no more than this."""
_FEW = 20
"""Values of an array that are shown, not digested."""
_NOT_OF_THE_FIT = {"n_jobs", "verbose", "checkpoint", "checkpoint_interval", "warm_start", "client"}


def fingerprint(estimator: Any, problem: Problem) -> Fingerprint:
    """The fingerprint of a fit; reads some rows of its source."""
    engine = problem.engine
    source = engine.source
    table = source.source if isinstance(source, ClassWeightedSource) else source
    scaling = engine.standardizer
    fitting = min(_ROWS, _BYTES // (8 * engine.n_features))
    sample = source.sample(max(1, fitting), np.random.default_rng(0))
    n_classes = engine.rule.n_latents
    return Fingerprint(
        {
            "estimator": type(estimator).__name__,
            **{
                name: plain(value)
                for name, value in sorted(estimator.get_params(deep=False).items())
                if name not in _NOT_OF_THE_FIT
            },
        },
        {
            "number of rows": engine.n_rows,
            "number of features": engine.n_features,
            **({} if n_classes == 1 else {"number of classes": n_classes}),
            "kind of source": table.arrangement,
            "precision": str(engine.dtype),
        },
        {
            "rows": digest(np.asarray(sample.X, dtype=np.float64)),
            "labels": _labels(table, sample),
            "weights": _weights(table, sample),
            "start": digest(problem.space.start, scaling.mean, scaling.scale, scaling.whitening_matrix),
        },
    )


def digest(*arrays: Any) -> str:
    """A short name of arrays, by their values and shapes; None is one of its own.

    >>> digest(np.eye(2)) == digest(np.eye(2)), digest(np.eye(2)) == digest(np.ones(4))
    (True, False)
    """
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(repr(None if array is None else np.shape(array)).encode())
        whole.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()[:16]


def plain(value: Any) -> Any:
    """A parameter as JSON, equal for values that mean the same.

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
            value = pairs[0] if (pairs == pairs[0]).all() else pairs  # one pair is meant for all
        elif isinstance(value, Integral) and not isinstance(value, bool):
            value = float(value)
        parts.append(f"{name}={plain(value)}")
    return f"{type(kernel).__name__}({', '.join(parts)})"


def _labels(table: Any, sample: RawRows) -> str:
    """Of all labels, where the source has them at hand; else of some."""
    some = np.asarray(sample.labels, dtype=np.int32)
    if (elsewhere := table.label_digests()) is not None:
        return digest(some, np.array(elsewhere))
    return digest(some, None if table.labels is None else table.labels.astype(np.int32))


def _weights(table: Any, sample: RawRows) -> str:
    some = None if sample.weight is None else np.asarray(sample.weight, dtype=np.float64)
    return digest(some, None if table.weight is None else table.weight.astype(np.float64))

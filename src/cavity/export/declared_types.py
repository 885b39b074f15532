"""Check values of unknown origin against declared types, shapes and precisions.

The types of a record are those that its class declares. Each check raises `ModelFileError`.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from inspect import signature
from numbers import Integral, Real
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from sklearn.base import BaseEstimator

from cavity.errors import ModelFileError


def check_array(
    name: str, array: object, shape: tuple[int, ...] | None, *, kinds: str = "f", finite: bool = True
) -> None:
    """Check type, dtype, shape and finiteness of an array; `shape` None accepts any shape."""
    if type(array) is not np.ndarray:
        raise ModelFileError(f"its {name} is a {type(array).__name__}, not an array")
    wide = array.dtype.kind != "f" or array.dtype.itemsize in (4, 8)
    if array.dtype.kind not in kinds or not array.dtype.isnative or not wide:
        raise ModelFileError(f"its {name} has dtype {array.dtype}, which is not one that cavity saves")
    if shape is not None and array.shape != shape:
        raise ModelFileError(f"its {name} has shape {array.shape}, but the other parts need {shape}")
    if finite and not np.isfinite(array).all():
        raise ModelFileError(f"its {name} has numbers that are not finite")


def agree(what: str, one: object, other: object) -> None:
    """Raise an error unless two values are equal."""
    if one != other:
        raise ModelFileError(f"its parts disagree about the {what}: {one!s:.60} and {other!s:.60}")


def check_attributes(estimator: BaseEstimator, wanted: Mapping[str, object]) -> None:
    """Check that an estimator has all its parameters, and these attributes of these types."""
    held = vars(estimator)
    for name, kind in {**dict.fromkeys(signature(type(estimator)).parameters, Any), **wanted}.items():
        if name not in held:
            raise ModelFileError(f"its {type(estimator).__name__} lacks {name}")
        if not has_type(held[name], kind):
            raise ModelFileError(
                f"its {type(estimator).__name__} has a {name} of the wrong kind, "
                f"{type(held[name]).__name__}"
            )


def check_records(values: list[object]) -> None:
    """Check every field of every record of cavity, at any depth, against the type that it declares."""
    for record in _records(values):
        record_type: type = type(record)
        declared = _declared(record_type)
        for name, value in _fields_of(record).items():
            if not has_type(value, declared[name]):
                raise ModelFileError(
                    f"its {record_type.__name__} has a {name} of the wrong kind, {type(value).__name__}"
                )


def _records(values: list[object]) -> Iterator[Any]:
    """Iterate over the records (dataclasses) among values, and inside them."""
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if is_dataclass(value) and type(value).__module__.startswith("cavity."):
            yield value
            waiting.extend(_fields_of(value).values())
        elif isinstance(value, (list, tuple)):
            waiting.extend(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())


def _fields_of(record: Any) -> dict[str, object]:
    """The fields of a record by name."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


@lru_cache(maxsize=256)
def _declared(kind: type) -> dict[str, object]:
    """Types of the fields of a record; a type that is imported for type checkers only is `Any`."""
    unknown: dict[str, object] = {}
    while True:
        try:
            hints = get_type_hints(kind, localns=unknown)
        except NameError as error:
            unknown[error.name] = Any
        else:
            return {field.name: hints[field.name] for field in fields(kind)}


def has_type(value: Any, kind: object) -> bool:
    """Return whether a value is of a declared type; types that cannot be checked accept all values.

    >>> has_type(("a", "b"), tuple[str, ...]), has_type([1.0, None], list[float])
    (True, False)
    """
    if kind is Any:
        return True
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(has_type(value, one) for one in arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return (
            isinstance(value, tuple)
            and len(value) == len(arguments)
            and all(map(has_type, value, arguments))
        )
    if origin in (tuple, list, Sequence):
        sequence = (list, tuple) if origin is Sequence else origin
        return isinstance(value, sequence) and all(has_type(item, arguments[0]) for item in value)
    if kind is bool:
        return isinstance(value, (bool, np.bool_))
    if kind in (int, float):
        number = Integral if kind is int else Real
        return isinstance(value, number) and not isinstance(value, (bool, np.bool_))
    plain = origin or kind
    if not isinstance(plain, type) or getattr(plain, "_is_protocol", False):
        return True
    return isinstance(value, plain)

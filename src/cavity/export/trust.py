"""Decide which types a model file may name.

skops builds objects from a tree of nodes, each of which names a type. Trusting whole packages by name is
not safe: NumPy alone has functions that execute strings. A name is therefore accepted only if it is a
class whose objects are plain data: a record (dataclass or named tuple) or an estimator of cavity, or a
scikit-learn kernel. The types that skops itself trusts (arrays, containers, scikit-learn's estimators)
are accepted too. Nodes that call something, such as bound methods and partial functions, never are.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from typing import Any
from zipfile import ZipFile

from sklearn.base import BaseEstimator
from sklearn.gaussian_process import kernels
from sklearn.gaussian_process.kernels import Kernel

from cavity.errors import ModelFileError

SCHEMA = "schema.json"
"""File in the archive that holds skops' tree of nodes."""
_PLAIN_NODES = {
    "BytesNode",
    "DTypeNode",
    "DefaultDictNode",
    "DictNode",
    "FunctionNode",
    "JsonNode",
    "ListNode",
    "MaskedArrayNode",
    "NdArrayNode",
    "RandomGeneratorNode",
    "RandomStateNode",
    "SetNode",
    "SliceNode",
    "SparseMatrixNode",
    "TypeNode",
}
"""Nodes of data that skops checks itself."""
_OBJECT_NODES = {"ObjectNode", "TupleNode"}
"""Nodes in which our own types may appear: loading them only sets attributes."""


def audited(content: bytes, trusted: Sequence[str | type] = ()) -> list[str]:
    """List the types in an archive that skops may trust; raise `ModelFileError` for any other.

    trusted: types or functions, or their full names, that the user trusts.
    """
    from skops.io import get_untrusted_types

    with ZipFile(io.BytesIO(content)) as archive:
        schema = json.loads(archive.read(SCHEMA))
    trusted = [trusted] if isinstance(trusted, (str, type)) else trusted
    trusted_names = {name if isinstance(name, str) else full_name(name) for name in trusted}
    objects, others, refused = set(), set(), set()
    for node in _nodes(schema):
        name = f"{node.get('__module__')}.{node.get('__class__')}"
        if node["__loader__"] in _OBJECT_NODES:
            kind = _plain_data(name)
            if kind is not None:
                objects.add(name)
                _check_fields(kind, node)
        elif node["__loader__"] in _PLAIN_NODES:
            others.add(name)
        else:
            refused.add(name)
    # A type whose attributes may be set is not therefore safe to call.
    refused |= objects & others
    allowed = objects | trusted_names | {"numpy.dtype"}
    if not refused:
        refused = set(get_untrusted_types(data=content)) - allowed
    if refused:
        raise ModelFileError(
            f"it holds {', '.join(sorted(refused))}, which cavity does not trust; if you know that "
            "these types are safe, pass them as trusted=[...]"
        )
    return sorted(allowed)


def full_name(kind: type) -> str:
    """Return module and name of a class.

    >>> full_name(BaseEstimator)
    'sklearn.base.BaseEstimator'
    """
    return f"{kind.__module__}.{kind.__name__}"


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Iterate over every node of a schema, at any depth."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if isinstance(part.get("__loader__"), str):
                yield part
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)


def _plain_data(name: str) -> type | None:
    """Return the class of that name if it is plain data of cavity or a scikit-learn kernel."""
    module, _, attribute = name.rpartition(".")
    if module == kernels.__name__:
        kind = getattr(kernels, attribute, None)
        return kind if isinstance(kind, type) and issubclass(kind, Kernel) else None
    if module.partition(".")[0] != "cavity" or "__" in module:  # a __main__ runs when it is imported
        return None
    try:
        kind = getattr(import_module(module), attribute, None)
    except ImportError:
        return None
    if not isinstance(kind, type) or full_name(kind) != name:
        return None
    is_record = is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    return kind if is_record or issubclass(kind, BaseEstimator) else None


def _check_fields(kind: type, node: dict[str, Any]) -> None:
    """Raise an error if a stored record lacks fields of its class or has others."""
    if not is_dataclass(kind):
        return
    content = node.get("content")
    stored = content.get("content") if isinstance(content, dict) else None
    names = set(stored) if isinstance(stored, dict) else set()
    needed = {
        field.name
        for field in fields(kind)
        if field.default is MISSING and field.default_factory is MISSING
    }
    known = {field.name for field in fields(kind)} | set(dir(kind))
    for problem, which in (("lacks", needed - names), ("has an unknown", names - known)):
        if which:
            raise ModelFileError(
                f"its {kind.__name__} {problem} {', '.join(sorted(which))}, so it was written by "
                "another version of cavity: load it with that one"
            )

"""Which types a model file may name.

skops makes objects of a tree of nodes, each of which names a type. Trusting whole packages by name would
not do: NumPy alone has functions that execute strings. So a name passes only if it is that of a class
whose objects are plain data: a record (dataclass or named tuple) or an estimator of cavity, or a
scikit-learn kernel. What skops itself trusts, arrays, containers, scikit-learn's estimators, passes too.
Nodes of kinds that call something, such as bound methods and partial functions, never do."""

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
"""Where skops puts the tree of nodes."""
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
_OBJECT_NODES = {"ObjectNode", "TupleNode"}
"""The nodes in which types beyond those that skops trusts may appear: they set attributes, no more."""


def audited(content: bytes, trusted: Sequence[str | type] = ()) -> list[str]:
    """The names in an archive that skops is to trust; raises and names any that it must not.

    trusted: types or functions, or their full names, that the user vouches for.
    """
    from skops.io import get_untrusted_types

    with ZipFile(io.BytesIO(content)) as archive:
        schema = json.loads(archive.read(SCHEMA))
    trusted = [trusted] if isinstance(trusted, (str, type)) else trusted
    vouched = {name if isinstance(name, str) else full_name(name) for name in trusted}
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
    # A type that may have its attributes set need not be one that may be called.
    refused |= objects & others
    allowed = objects | vouched | {"numpy.dtype"}
    if not refused:
        refused = set(get_untrusted_types(data=content)) - allowed
    if refused:
        raise ModelFileError(
            f"it holds {', '.join(sorted(refused))}, which cavity does not trust; if you wrote or "
            "reviewed what these names stand for, pass them as trusted=[...]"
        )
    return sorted(allowed)


def full_name(kind: type) -> str:
    """Module and name of a class.

    >>> full_name(BaseEstimator)
    'sklearn.base.BaseEstimator'
    """
    return f"{kind.__module__}.{kind.__name__}"


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Every node of a schema, wherever it hides."""
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
    """The class of that name, if its objects are plain data of cavity or kernels of scikit-learn."""
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
    """A record with other fields than today's would fail later, and less clearly."""
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

"""Decide what a model file may hold before any object is made from it.

skops builds objects from a tree of nodes, each of which names a type. Trusting whole packages by name is
not safe: NumPy alone has functions that execute strings. A name is therefore accepted only if it is a
class whose objects are plain data: a record (dataclass or named tuple), an estimator or a kernel of
cavity, or a scikit-learn kernel. The types that skops itself trusts (arrays, containers, scikit-learn's
estimators) are accepted too. Nodes that call something, such as bound methods and partial functions,
never are.

The sizes of all arrays are checked against the size of the file, so that a small file stays small in
memory.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from math import prod
from zipfile import ZIP_STORED, ZipFile

from numpy.lib import format as npy_format
from sklearn.base import BaseEstimator
from sklearn.gaussian_process import kernels
from sklearn.gaussian_process.kernels import Kernel

from cavity.errors import ModelFileError
from cavity.memory import require_memory
from cavity.typing import JsonObject

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
    "RandomStateNode",
    "SetNode",
    "SliceNode",
    "TypeNode",
}
"""Nodes of data that skops checks itself."""
_OBJECT_NODES = {"ObjectNode", "TupleNode"}
"""Nodes in which our own types may appear: loading them only sets attributes."""
_ARRAY_KINDS = "biufSUmM"
"""Kinds of NumPy dtypes that arrays in a file may have: truth values, numbers, text and dates."""
_LARGEST_ARRAY_HEADER = 10_000
"""Most bytes that the header of an array may have; NumPy has the same limit."""
_MEMORY_PER_SCHEMA_BYTE = 100
"""Bytes of memory that skops needs for a byte of a schema, at most about."""


def audited(content: bytes, trusted: Sequence[str | type] = ()) -> list[str]:
    """List the types in an archive that skops may trust; raise `ModelFileError` for any other.

    trusted: types or functions, or their full names, that the user trusts.
    """
    from skops.io import get_untrusted_types

    with ZipFile(io.BytesIO(content)) as archive:
        check_members(archive, len(content))
        needed = _MEMORY_PER_SCHEMA_BYTE * archive.getinfo(SCHEMA).file_size
        require_memory(needed, "its tree of types", "a machine with more memory")
        schema = json.loads(archive.read(SCHEMA))
        _check_protocol(schema)
        nodes = list(_nodes(schema))
        _check_references(schema, nodes)
        for node in nodes:
            _check_node(node, archive)
    trusted = [trusted] if isinstance(trusted, (str, type)) else trusted
    trusted_names = {name if isinstance(name, str) else full_name(name) for name in trusted}
    objects, others, refused = set(), set(), set()
    for node in nodes:
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


def check_members(archive: ZipFile, size: int) -> None:
    """Raise an error unless the members of an archive of `size` bytes are as large as they say.

    `save` does not compress. So nothing that is read from a file is larger than the file.
    """
    members = archive.infolist()
    if len({member.filename for member in members}) < len(members):
        raise ModelFileError("two members of the archive have the same name")
    for member in members:
        encrypted = member.flag_bits & 1
        if member.compress_type != ZIP_STORED or member.file_size != member.compress_size or encrypted:
            raise ModelFileError(
                f"its member {member.filename!r} is compressed or encrypted; cavity.save does neither"
            )
    if sum(member.file_size for member in members) > size:
        raise ModelFileError("the members of the archive are larger than the file")


def _check_protocol(schema: object) -> None:
    """Raise an error for a protocol of skops other than the current one, whose checks may be older."""
    from skops.io._protocol import PROTOCOL

    protocol = schema.get("protocol") if isinstance(schema, dict) else None
    if type(protocol) is not int or protocol != PROTOCOL:
        raise ModelFileError(
            f"it has the protocol {protocol!s:.20} of skops, and the skops that is installed writes "
            f"{PROTOCOL}: install the version of skops that wrote the file, or save the model again"
        )


def _nodes(schema: object) -> Iterator[JsonObject]:
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


def _check_references(schema: JsonObject, nodes: list[JsonObject]) -> None:
    """Raise an error if an object or an array would be visited more often than it is written.

    skops writes an object that occurs twice in full both times, with the same number. When it reads, it
    goes by the number alone, so a crafted file could otherwise unfold to any size, or show one object to
    the checks and use another.
    """
    forms: dict[object, int] = {}
    form_of_number: dict[int, int] = {}

    def form(part: object) -> int:
        """Number the forms of parts: equal up to numbers and names of members."""
        if isinstance(part, dict):
            names = {"__id__", "file"} if isinstance(part.get("__loader__"), str) else set()
            inside = tuple((name, form(value)) for name, value in part.items() if name not in names)
            own = forms.setdefault((dict, inside), len(forms))
            number = part.get("__id__") if names else None
            if number is not None:
                if type(number) is not int or number < 1:
                    raise ModelFileError("an object in it has a number that is not a whole number")
                if form_of_number.setdefault(number, own) != own:
                    raise ModelFileError("two different objects in it have the same number")
            return own
        if isinstance(part, list):
            return forms.setdefault((list, tuple(map(form, part))), len(forms))
        return forms.setdefault((type(part), part), len(forms))

    form(schema)
    users: dict[str, JsonObject] = {}
    for node in nodes:
        member, number = node.get("file"), node.get("__id__")
        if isinstance(member, str):
            first = users.setdefault(member, node)
            if first is not node and (number is None or first.get("__id__") != number):
                raise ModelFileError(f"two different objects in it are stored as {member[:40]!r}")


def _check_node(node: JsonObject, archive: ZipFile) -> None:
    """Raise an error for a node whose content does not have the form that skops writes."""
    loader = node["__loader__"]
    if loader == "DictNode":
        keys = node.get("key_types")
        kinds = keys.get("content") if isinstance(keys, dict) and _loader(keys) == "ListNode" else None
        if not isinstance(kinds, list) or any(_loader(kind) != "TypeNode" for kind in kinds):
            raise ModelFileError("a dictionary in it has keys of unknown types")
    elif loader == "NdArrayNode" and node.get("type") == "numpy":
        _check_array(node, archive)


def _loader(node: object) -> object:
    """Return the kind of a node, or None if it is not a node."""
    return node.get("__loader__") if isinstance(node, dict) else None


def _check_array(node: JsonObject, archive: ZipFile) -> None:
    """Raise an error unless the header of a stored array agrees with the size of its member."""
    member = archive.getinfo(node["file"])
    with archive.open(member) as file:
        head = io.BytesIO(file.read(_LARGEST_ARRAY_HEADER))
    try:
        version = npy_format.read_magic(head)
        read = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
        shape, _, dtype = read[version](head, max_header_size=_LARGEST_ARRAY_HEADER)
    except Exception as error:  # NumPy raises many kinds of errors for headers that it cannot read
        raise ModelFileError(f"its array {member.filename!r} has a damaged header: {error}") from error
    size, name = member.file_size - head.tell(), f"{node.get('__module__')}.{node.get('__class__')}"
    said = f"its array {member.filename!r} has shape {shape} and dtype {dtype}"
    if dtype.names is not None:
        raise ModelFileError(
            "it holds an array of records, as the trees of scikit-learn's forests and boosting are, and "
            "a model file cannot hold these; use pickle for files of your own, or another mean_function"
        )
    if dtype.kind not in _ARRAY_KINDS or dtype.itemsize == 0:
        raise ModelFileError(f"{said}, which is not plain data")
    if prod(shape) * dtype.itemsize != size or min(shape, default=0) < 0:
        raise ModelFileError(f"{said}, but {size} bytes of data")
    if max(shape, default=0) > member.file_size:  # beside a dimension of 0, others could be of any size
        raise ModelFileError(f"{said}, which is impossible")
    if name != "numpy.ndarray" and (shape != () or name != full_name(dtype.type)):
        raise ModelFileError(f"{said}, but is to be a {name}")


def _plain_data(name: str) -> type | None:
    """Return the class of that name if it is plain data of cavity, or a kernel."""
    module, _, attribute = name.rpartition(".")
    if module == kernels.__name__:
        kind = vars(kernels).get(attribute)
        return kind if isinstance(kind, type) and issubclass(kind, Kernel) else None
    if module.partition(".")[0] != "cavity" or "__" in module:  # a __main__ runs when it is imported
        return None
    try:
        kind = vars(import_module(module)).get(attribute)
    except ImportError:
        return None
    if not isinstance(kind, type) or full_name(kind) != name:
        return None
    is_record = is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    return kind if is_record or issubclass(kind, (BaseEstimator, Kernel)) else None


def _check_fields(kind: type, node: JsonObject) -> None:
    """Raise an error if a stored object lacks fields of its class, has others, or hides a method."""
    content = node.get("content")
    stored = content.get("content") if isinstance(content, dict) else None
    names = set(stored) if isinstance(stored, dict) else set()
    hidden = sorted(name for name in names if callable(getattr(kind, name, None)))
    if hidden:
        raise ModelFileError(f"its {kind.__name__} has a value in the place of the method {hidden[0]!r}")
    if not is_dataclass(kind):
        return
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

"""Ways to damage a model file: each takes a random generator and the parts of an honest file.

The parts are the members of the archive by name. A mutation returns the bytes of the damaged file. All
checksums are right unless the mutation says otherwise, so that the damage reaches the reader.
"""

import copy
import io
import json
import zipfile
from itertools import pairwise

import numpy as np

HEADER, SCHEMA = "cavity.json", "schema.json"
SCALARS = [
    "null", "true", "0", "-1", "1e999", "NaN", "-Infinity", "1e300", "1e-320", "3.5", '"text"',
    '"\\u0000"', "[]", "{}", "[[[]]]", "1" + "0" * 400, "not json", "", '"float32"', "2", "7",
]  # fmt: skip
"""Values that are put in the place of a number or a text."""


def packed(parts, compression=zipfile.ZIP_STORED):
    """The bytes of an archive with these members: a dict, or pairs of names and contents."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in parts.items() if isinstance(parts, dict) else parts:
            archive.writestr(zipfile.ZipInfo(name), content, compression)
    return buffer.getvalue()


def npy(array, *, allow_pickle=False):
    """The bytes of an array in NumPy's format."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


def lying(shape, dtype="<f8", data=b"\0" * 64):
    """The bytes of an array whose header does not agree with its data."""
    fields = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape!r}}}"
    text = fields.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


# Arrays.


def numeric(change):
    """A change of the numbers of an array; arrays of text are changed as numbers 0, 1, …"""

    def changed(array):
        if array.dtype.kind not in "fiu":
            array = np.arange(array.size, dtype=float).reshape(array.shape)
        return npy(change(np.array(array, dtype=float)))

    return changed


def filled(value, *, everywhere=False):
    """A change that sets the first number, or all of them."""

    def fill(array):
        if everywhere or array.ndim == 0:
            return np.full_like(array, value)
        array.ravel()[:1] = value
        return array

    return numeric(fill)


ARRAYS = {
    "wide": lambda a: npy(np.concatenate([a, a], axis=-1) if a.ndim else np.array([a, a])),
    "flat": lambda a: npy(a.ravel()),
    "reversed": lambda a: npy(a[::-1].copy() if a.ndim else a),
    "short": lambda a: npy(a[:-1].copy() if a.ndim else a),
    "float32": numeric(lambda a: a.astype(np.float32)),
    "float16": numeric(lambda a: a.astype(np.float16)),
    "long double": numeric(lambda a: a.astype(np.longdouble)),
    "big-endian": numeric(lambda a: a.astype(">f8")),
    "columns first": lambda a: npy(np.asfortranarray(a)),
    "transposed": lambda a: npy(a.T.copy()),
    "one more dimension": lambda a: npy(a[None]),
    "empty": lambda a: npy(a[:0] if a.ndim else np.zeros(0)),
    "integers": numeric(lambda a: np.nan_to_num(a).astype(np.int64)),
    "truth values": numeric(lambda a: a > 0),
    "complex": numeric(lambda a: a.astype(complex)),
    "text": lambda a: npy(a.astype(str)),
    "dates": lambda a: npy(np.zeros(a.shape, "M8[s]")),
    "one NaN": filled(np.nan),
    "all NaN": filled(np.nan, everywhere=True),
    "one infinity": filled(np.inf),
    "all zero": filled(0.0, everywhere=True),
    "all negative": filled(-1.0, everywhere=True),
    "one huge": filled(1e300),
    "all huge": filled(1e30, everywhere=True),
    "all tiny": filled(1e-320, everywhere=True),
    "object": lambda a: npy(np.array([None, 1, "x"], dtype=object), allow_pickle=True),
    "record": lambda a: npy(np.zeros(3, dtype=[("a", "f8"), ("b", "i4")])),
    "header of a terabyte": lambda a: lying((10**12,)),
    "header of one dimension of 0": lambda a: lying((10**15, 0), data=b""),
    "header of no bytes an item": lambda a: lying((10**12,), "<U0", b""),
    "header of negative shape": lambda a: lying((-1, -8)),
    "header of a pickle": lambda a: lying((1,), "|O"),
    "header that is damaged": lambda a: b"\x93NUMPY\x01\x00\xff\x00" + b"{" * 255,
    "no array": lambda a: b"",
}


def array_mutation(name):
    """Replace one array of the file."""

    def mutate(rng, parts):
        member = rng.choice(sorted(part for part in parts if part.endswith(".npy")))
        array = np.load(io.BytesIO(parts[member]))
        return packed({**parts, member: ARRAYS[name](array)})

    return mutate


# Header and schema.


def header_mutation(rng, parts):
    """Change, remove or add a field of the header, or replace the header."""
    header = json.loads(parts[HEADER])
    field = rng.choice(sorted(header))
    values = [None, -1, 10**30, True, "", "x" * 5_000, [], {}, "\x1b[31m", "9.9.9", "cavity.Classifier"]
    whole = [b"", b"null", b"{", b"[" * 100_000, b'{"a": 1}', b"\xff\xfe", b" " * 100_000]
    way = rng.choice(["change", "change", "remove", "whole"])
    if way == "change":
        header[field] = rng.choice(values)
    elif way == "remove":
        del header[field]
    content = rng.choice(whole) if way == "whole" else json.dumps(header).encode()
    return packed({**parts, HEADER: content})


def node(name, loader):
    """A node of a type, without content."""
    module, _, kind = name.rpartition(".")
    return {"__class__": kind, "__module__": module, "__loader__": loader}


LIST = node("builtins.list", "ListNode")


def places(schema):
    """All (container, key) in a schema whose value is a node."""
    found, waiting = [], [schema]
    while waiting:
        part = waiting.pop()
        items = part.items() if isinstance(part, dict) else enumerate(part)
        for key, value in items:
            if isinstance(value, (dict, list)):
                waiting.append(value)
                if isinstance(value, dict) and "__loader__" in value:
                    found.append((part, key))
    return found


def schema_mutation(change):
    """Change the tree of types: `change(rng, schema, places)`.

    Mostly every node has a number of its own first, or the damage would be seen by the other copies.
    """

    def mutate(rng, parts):
        schema = json.loads(parts[SCHEMA])
        if rng.random() < 0.7:
            for i, (container, key) in enumerate(places(schema)):
                if "file" not in container[key]:
                    container[key]["__id__"] = 10**16 + i
        result = change(rng, schema, places(schema))
        schema = schema if result is None else result
        content = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
        return packed({**parts, SCHEMA: content})

    return mutate


def change_scalar(rng, schema, places):
    container, key = rng.choice([p for p in places if p[0][p[1]]["__loader__"] == "JsonNode"])
    container[key]["content"] = rng.choice(SCALARS)


def change_name(rng, schema, places):
    container, key = rng.choice(places)
    other, where = rng.choice(places)
    for part in ("__module__", "__class__"):
        container[key][part] = other[where][part]


def change_loader(rng, schema, places):
    container, key = rng.choice(places)
    other, where = rng.choice(places)
    container[key]["__loader__"] = other[where]["__loader__"]


def change_type(rng, schema, places):
    container, key = rng.choice(places)
    container[key][rng.choice(sorted(container[key]))] = rng.choice([None, 0, -1, "", [], {}, [[]], "x"])


def remove_node(rng, schema, places):
    container, key = rng.choice(places)
    del container[key]


def copy_node(rng, schema, places):
    container, key = rng.choice(places)
    other, where = rng.choice(places)
    container[key] = copy.deepcopy(other[where])


def same_number(rng, schema, places):
    container, key = rng.choice(places)
    other, where = rng.choice(places)
    container[key]["__id__"] = other[where].get("__id__", 1)


def strange_number(rng, schema, places):
    container, key = rng.choice(places)
    container[key]["__id__"] = rng.choice([0, -1, True, "1", [], 1.5, 10**100])


def rename_attribute(rng, schema, places):
    container, key = rng.choice([p for p in places if isinstance(p[1], str)])
    new = rng.choice([key + "x", "predict_proba", "__class__", "model_", "__dict__", ""])
    container[new] = container.pop(key)


def change_protocol(rng, schema, places):
    schema["protocol"] = rng.choice([0, 1, 3, -1, True, None, "2", 2.0, 10**30, []])


def change_root(rng, schema, places):
    whole = [b"", b"null", b"[]", b"{}", b"0", b"{" * 50_000, b"\xff", b'"x"', b"[" * 200_000]
    return rng.choice([*whole, b'{"protocol": 2}'])


def execute(rng, schema, places):
    """Put something that would be called in the place of a node."""
    container, key = rng.choice(places)
    word = {**node("builtins.str", "JsonNode"), "content": '"exit 3"'}
    words = {**node("builtins.tuple", "TupleNode"), "content": [word]}
    name = rng.choice(["os.system", "os._exit", "builtins.exec", "subprocess.call", "ctypes.string_at"])
    loader = rng.choice(["ConstructorFromReduceNode", "FunctionNode", "TypeNode", "OperatorFuncNode"])
    container[key] = {**node(name, loader), "content": words}


def transplant(rng, parts):
    """Replace a node by a copy of another, with numbers and members of its own."""
    schema, parts = json.loads(parts[SCHEMA]), dict(parts)
    found = places(schema)
    (container, key), (other, where) = rng.choice(found), rng.choice(found)
    copied = {"copy": copy.deepcopy(other[where])}
    for i, (holder, name) in enumerate(places(copied)):
        holder[name]["__id__"] = 10**15 + i
        if "file" in holder[name]:
            parts[f"{i}.npy"] = parts[holder[name]["file"]]
            holder[name]["file"] = f"{i}.npy"
    container[key] = copied["copy"]
    return packed({**parts, SCHEMA: json.dumps(schema).encode()})


# The archive.


def remove_member(rng, parts):
    """Leave out one member."""
    gone = rng.choice(sorted(parts))
    return packed({name: content for name, content in parts.items() if name != gone})


def rename_member(rng, parts):
    """Give a member another name."""
    old = rng.choice(sorted(parts))
    new = rng.choice(["x", "../x", "/etc/x", "", "x" * 60_000, "a\\b", "schema.json/", "é"])
    return packed([(new if name == old else name, content) for name, content in parts.items()])


def swap_members(rng, parts):
    """Exchange the contents of two members."""
    one, other = rng.sample(sorted(parts), 2)
    return packed({**parts, one: parts[other], other: parts[one]})


def duplicate_member(rng, parts):
    """Write two members of the same name."""
    name = rng.choice(sorted(parts))
    return packed([*parts.items(), (name, parts[rng.choice(sorted(parts))])])


def empty_member(rng, parts):
    """Take away the content, or some of it."""
    name = rng.choice(sorted(parts))
    return packed({**parts, name: parts[name][: rng.choice([0, 1, len(parts[name]) // 2])]})


def compress_members(rng, parts):
    """Compress, as `save` never does."""
    return packed(parts, rng.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]))


def truncate(rng, parts):
    """Cut the file off."""
    content = packed(parts)
    return content[: rng.randrange(len(content))]


def flip_bytes(rng, parts):
    """Change bytes anywhere, so that checksums may be wrong."""
    content = bytearray(packed(parts))
    for _ in range(rng.choice([1, 1, 3, 30])):
        content[rng.randrange(len(content))] = rng.randrange(256)
    return bytes(content)


def flip_directory(rng, parts):
    """Change bytes of the archive's directory, where sizes and places are."""
    content = bytearray(packed(parts))
    start = content.index(b"PK\x01\x02")
    for _ in range(rng.choice([1, 2, 5])):
        content[rng.randrange(start, len(content))] = rng.choice([0, 1, 8, 127, 255, rng.randrange(256)])
    return bytes(content)


def flip_inside(rng, parts):
    """Change bytes of one member, with the right checksum."""
    name = rng.choice(sorted(parts))
    content = bytearray(parts[name])
    for _ in range(rng.choice([1, 3])):
        content[rng.randrange(len(content))] = rng.randrange(256)
    return packed({**parts, name: bytes(content)})


def surround(rng, parts):
    """Write something before or after the archive."""
    junk = rng.randbytes(rng.choice([1, 100, 70_000]))
    return junk + packed(parts) if rng.random() < 0.5 else packed(parts) + junk


# Bombs: small files that would need much memory or time.


def referred_to(rng, parts, number):
    """A list of a thousand arrays, all one member of 4 MB; `number(i)` is the number of the i-th."""
    schema = json.loads(parts[SCHEMA])
    array = {**node("numpy.ndarray", "NdArrayNode"), "type": "numpy", "file": "b.npy"}
    container, key = rng.choice(places(schema))
    container[key] = {**LIST, "content": [{**array, "__id__": number(i)} for i in range(1_000)]}
    return {**parts, SCHEMA: json.dumps(schema).encode(), "b.npy": npy(np.zeros(1_000_000, np.float32))}


def unfolding(rng, parts):
    """Lists of two lists of two lists …, all of one number each."""
    schema = json.loads(parts[SCHEMA])
    first = 10**15
    lists = [{**LIST, "__id__": first, "content": []}]
    for depth in range(1, 60):
        inside = [{**LIST, "__id__": first + depth - 1, "content": []} for _ in range(2)]
        lists.append({**LIST, "__id__": first + depth, "content": inside})
    container, key = rng.choice(places(schema))
    container[key] = {**LIST, "content": lists}
    return packed({**parts, SCHEMA: json.dumps(schema).encode()})


def nested(rng, parts):
    """Lists in lists in lists."""
    schema = json.loads(parts[SCHEMA])
    container, key = rng.choice(places(schema))
    container[key] = "HERE"
    depth = rng.choice([100, 300, 900, 5_000, 100_000])
    opening = '{"__class__": "list", "__module__": "builtins", "__loader__": "ListNode", "content": ['
    text = json.dumps(schema).replace('"HERE"', opening * depth + "]}" * depth)
    return packed({**parts, SCHEMA: text.encode()})


def many_members(rng, parts):
    """Twenty thousand members of no bytes."""
    return packed([*parts.items(), *((str(i), b"") for i in range(20_000))])


def many_nodes(rng, parts):
    """As many nodes as a schema of a megabyte can have."""
    schema = json.loads(parts[SCHEMA])
    container, key = rng.choice(places(schema))
    container[key] = {**LIST, "content": [node("a.b", "ObjectNode")] * 15_000}
    return packed({**parts, SCHEMA: json.dumps(schema).encode()})


def compressed_zeros(rng, parts):
    """A member of 200 MB that is compressed to 200 kB."""
    bomb = npy(np.zeros(25_000_000))
    name = rng.choice(sorted(parts))
    return packed({**parts, name: bomb}, zipfile.ZIP_DEFLATED)


def overlapping(rng, parts):
    """Two members at the same place of the file."""
    content = bytearray(packed(parts))
    entries = [i for i in range(len(content)) if content.startswith(b"PK\x01\x02", i)]
    one, other = rng.choice(list(pairwise(entries)))
    for field in (slice(16, 28), slice(42, 46)):  # checksum and sizes, and the place
        content[other + field.start : other + field.stop] = content[one + field.start : one + field.stop]
    return bytes(content)


MUTATIONS = {
    **{f"array: {name}": array_mutation(name) for name in ARRAYS},
    "header: a field": header_mutation,
    "schema: a scalar": schema_mutation(change_scalar),
    "schema: the name of a type": schema_mutation(change_name),
    "schema: the kind of a node": schema_mutation(change_loader),
    "schema: a part of a node": schema_mutation(change_type),
    "schema: a node is gone": schema_mutation(remove_node),
    "schema: a node is another": schema_mutation(copy_node),
    "schema: a node is a copy of another": transplant,
    "schema: two nodes of one number": schema_mutation(same_number),
    "schema: a strange number": schema_mutation(strange_number),
    "schema: an attribute is renamed": schema_mutation(rename_attribute),
    "schema: another protocol": schema_mutation(change_protocol),
    "schema: something else": schema_mutation(change_root),
    "schema: a call": schema_mutation(execute),
    "archive: a member is gone": remove_member,
    "archive: a member is renamed": rename_member,
    "archive: two members are exchanged": swap_members,
    "archive: a member twice": duplicate_member,
    "archive: a member is cut": empty_member,
    "archive: compressed": compress_members,
    "archive: truncated": truncate,
    "archive: bytes flipped": flip_bytes,
    "archive: bytes of the directory flipped": flip_directory,
    "archive: bytes of a member flipped": flip_inside,
    "archive: junk around it": surround,
    "bomb: one member a thousand times": lambda rng, parts: packed(
        referred_to(rng, parts, lambda i: 10**15 + i), zipfile.ZIP_DEFLATED
    ),
    "bomb: the same, not compressed": lambda rng, parts: packed(
        referred_to(rng, parts, lambda i: 10**15 + i)
    ),
    "bomb: unfolding lists": unfolding,
    "bomb: nested lists": nested,
    "bomb: many members": many_members,
    "bomb: many nodes": many_nodes,
    "bomb: compressed zeros": compressed_zeros,
    "bomb: overlapping members": overlapping,
}
"""Every kind of damage, by name."""

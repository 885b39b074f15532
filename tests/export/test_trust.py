"""A crafted file is refused by the name of what it holds, and nothing of it is executed."""

import io
import json
from zipfile import ZipFile

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

import cavity
from cavity.export.trust import audited
from support import table

X, LABELS = table(30)


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The entries of an honest file."""
    path = tmp_path_factory.mktemp("honest") / "model.cavity"
    cavity.GFITCClassifier(RBF(), n_inducing=3, optimizer=None, random_state=0).fit(X, LABELS).save(path)
    with ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def crafted(archive, node, path):
    """A file with a node in the place of the estimator's `kernel` parameter."""
    schema = json.loads(archive["schema.json"])
    schema["content"]["content"]["kernel"] = node
    with ZipFile(path, "w") as file:
        for name, content in archive.items():
            file.writestr(name, json.dumps(schema) if name == "schema.json" else content)


def named(name, loader, **more):
    module, _, attribute = name.rpartition(".")
    return {"__module__": module, "__class__": attribute, "__loader__": loader, **more}


def text(value):
    return named("builtins.str", "JsonNode", content=json.dumps(value), is_json=True)


def several(*nodes):
    return named("builtins.tuple", "TupleNode", content=list(nodes))


def mapping(**nodes):
    keys = [named("builtins.str", "TypeNode") for _ in nodes]
    return named(
        "builtins.dict",
        "DictNode",
        content=nodes,
        key_types=named("builtins.list", "ListNode", content=keys),
    )


def attacks(canary):
    """Every way we know to have something called while a tree of nodes becomes objects."""
    shell = text(f"touch {canary}")
    code = text(f"open({str(canary)!r}, 'w')")
    system = named("os.system", "FunctionNode")
    partial = {"args": several(shell), "kwds": mapping(), "namespace": mapping()}
    owner = named("cavity.gp.likelihoods.binary.Probit", "ObjectNode", content=mapping())
    return {
        "os.system": system,
        "posix.system": named("posix.system", "TypeNode"),
        "subprocess.Popen": named(
            "subprocess.Popen", "ConstructorFromReduceNode", content=several(shell)
        ),
        "builtins.eval": named("builtins.eval", "ConstructorFromReduceNode", content=several(code)),
        "numpy.testing._private.utils.runstring": named(
            "numpy.testing._private.utils.runstring",
            "ConstructorFromReduceNode",
            content=several(code, mapping()),
        ),
        "functools.partial": named(
            "functools.partial", "PartialNode", content={"func": system, **partial}
        ),
        "operator.methodcaller": named(
            "operator.methodcaller", "OperatorFuncNode", attrs=several(shell)
        ),
        "cavity.gp.likelihoods.binary.Probit": named(
            "cavity.gp.likelihoods.binary.Probit",
            "MethodNode",
            content={"func": "__init_subclass__", "obj": owner},
        ),
        "pathlib.Path": named("pathlib.Path", "ObjectNode", content=mapping(a=text("a"))),
        "code.InteractiveConsole": named("code.InteractiveConsole", "DictNode", **_dict()),
        # Ours in name only: functions, modules and what our modules have imported.
        "cavity.files.written_atomically": named("cavity.files.written_atomically", "ObjectNode"),
        "cavity.files.Path": named("cavity.files.Path", "ObjectNode", content=mapping()),
        "cavity.engines.threads.Threads": named("cavity.engines.threads.Threads", "ObjectNode"),
        "cavity.nowhere.Thing": named("cavity.nowhere.Thing", "ObjectNode"),
        "cavity.__main__.Thing": named("cavity.__main__.Thing", "ObjectNode"),
        # Ours, but called rather than filled.
        "cavity.inference.checkpoint.Checkpointer": named(
            "cavity.inference.checkpoint.Checkpointer", "DictNode", **_dict()
        ),
        "sklearn.gaussian_process.kernels.np": named(
            "sklearn.gaussian_process.kernels.np", "ObjectNode"
        ),
        "sklearn.tree._tree.Tree": named(
            "sklearn.tree._tree.Tree",
            "TreeNode",
            __reduce__={"args": several()},
            content=mapping(),
        ),
    }


def _dict():
    return {"content": {}, "key_types": named("builtins.list", "ListNode", content=[])}


@pytest.mark.parametrize("name", sorted(attacks("canary")))
def test_a_crafted_file_is_refused_by_name_and_not_executed(archive, tmp_path, name):
    path, canary = tmp_path / "evil.cavity", tmp_path / "canary"
    crafted(archive, attacks(canary)[name], path)
    with pytest.raises(cavity.ModelFileError) as caught:
        cavity.load(path)
    assert not canary.exists()
    assert str(path) in str(caught.value)
    assert name in str(caught.value)
    assert "does not trust" in str(caught.value)


def test_the_same_way_in_with_an_honest_node_loads(archive, tmp_path):
    """Or the test above would prove nothing."""
    crafted(archive, text("a kernel"), tmp_path / "model.cavity")
    assert cavity.load(tmp_path / "model.cavity").kernel == "a kernel"


def test_a_type_that_is_filled_in_one_place_is_not_called_in_another(archive, tmp_path):
    filled = named("cavity.gp.likelihoods.binary.Probit", "ObjectNode", content=mapping())
    called = named("cavity.gp.likelihoods.binary.Probit", "DictNode", **_dict())
    crafted(archive, several(filled, called), tmp_path / "evil.cavity")
    with pytest.raises(cavity.ModelFileError, match="Probit, which cavity does not trust"):
        cavity.load(tmp_path / "evil.cavity")


def test_vouching_for_one_name_vouches_for_no_other(archive, tmp_path):
    path = tmp_path / "evil.cavity"
    nodes = attacks(tmp_path / "canary")
    crafted(archive, several(nodes["pathlib.Path"], nodes["os.system"]), path)
    with pytest.raises(cavity.ModelFileError, match=r"holds os\.system, which"):
        cavity.load(path, trusted=["pathlib.Path"])


def test_names_that_an_honest_file_needs(archive):
    buffer = io.BytesIO()
    with ZipFile(buffer, "w") as file:
        for name, content in archive.items():
            file.writestr(name, content)
    names = audited(buffer.getvalue())
    assert "cavity.gp.model.Model" in names
    assert "sklearn.gaussian_process.kernels.RBF" in names
    assert all(name.partition(".")[0] in {"cavity", "sklearn", "numpy"} for name in names)


def test_an_array_of_objects_is_no_pickle(archive, tmp_path):
    """`np.load` would unpickle it, if it were allowed to."""

    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "canary"), "w"))

    buffer = io.BytesIO()
    np.save(buffer, np.array([Bomb()], dtype=object), allow_pickle=True)
    node = named("numpy.ndarray", "NdArrayNode", type="numpy", file="bomb.npy")
    crafted({**archive, "bomb.npy": buffer.getvalue()}, node, tmp_path / "evil.cavity")
    with pytest.raises(cavity.ModelFileError, match="dtype object, which is not plain data"):
        cavity.load(tmp_path / "evil.cavity")
    assert not (tmp_path / "canary").exists()

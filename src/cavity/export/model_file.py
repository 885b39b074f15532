"""Save and load a fitted model as one file, without pickle.

A model file is an archive that skops writes, with a header that names the versions that wrote it. See
SECURITY.md for what loading a file promises.
"""

from __future__ import annotations

import inspect
import io
import json
import os
import platform
import re
import stat
from collections import UserList
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile, ZipFile

import numpy as np
import scipy
import sklearn
from sklearn.base import BaseEstimator
from sklearn.utils.fixes import parse_version
from sklearn.utils.validation import check_is_fitted

from cavity.errors import ModelFileError
from cavity.export.trust import audited, check_members, full_name
from cavity.files import written_atomically
from cavity.gp.mean_function import MeanFunction
from cavity.gp.model import Model
from cavity.memory import require_memory
from cavity.version import __version__

FORMAT = 4
"""Version of the file format. It is raised whenever this version of cavity cannot read older files, for
example because a class has moved: files name classes by their modules."""
_HEADER = "cavity.json"
"""Name of the header inside the archive."""
_LARGEST_HEADER = 10_000
"""Most bytes that a header may have."""
_VERSION = re.compile(r"[\w.+!-]{1,100}")
"""What versions and names of classes look like."""
_COPIES = 4
"""How often the content of a file is in memory while it is loaded, at most."""
_FIRST_SAFE_SKOPS = "0.16"
"""Earlier versions of skops can be made to call what a file names."""
_RUN_PARAMETERS = ("checkpoint", "n_jobs", "verbose", "client", "cache_dir", "memory")
"""Parameters of estimators that say where and how a fit ran; files hold their defaults instead, and what
a file says of them is not used."""


@dataclass(frozen=True)
class ModelFile:
    """Header of a model file: its format, its estimator and the versions that wrote it."""

    format: int
    """Version of the file format."""
    estimator: str
    """Full name of the estimator's class."""
    cavity: str
    """Version of cavity that wrote the file; the other packages follow."""
    python: str
    numpy: str
    scipy: str
    sklearn: str
    skops: str


def save(
    estimator: BaseEstimator, path: str | os.PathLike[str], *, trusted: Sequence[str | type] = ()
) -> None:
    """Write a fitted estimator, or a scikit-learn pipeline around one, to one file.

    The file holds the fitted model, the parameters, the training history, the leave-one-out
    probabilities and the state of a stream. It holds neither training rows nor the parameters that say
    where and how the fit ran (`checkpoint`, `cache_dir`, `memory`, `n_jobs`, `verbose`, `client`). An
    existing file is replaced only when the new one is complete. If the estimator holds types of your
    own, such as a kernel that you registered, list them in `trusted`, here and in `load`.

    Examples
    --------
    >>> import tempfile
    >>> import cavity
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(100, noise=0.2, random_state=0)
    >>> model = cavity.GFITCClassifier(n_inducing=10, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cavity.save(model, f"{folder}/moons.cavity")
    ...     again = cavity.load(f"{folder}/moons.cavity")
    >>> bool((again.predict_proba(X) == model.predict_proba(X)).all())
    True
    """
    if not isinstance(estimator, BaseEstimator):
        raise ModelFileError(f"only estimators can be saved, not {type(estimator).__name__!r} objects")
    check_is_fitted(estimator)
    content = _archive(estimator, trusted)
    try:
        with written_atomically(path) as file:
            file.write(content)
    except OSError as error:
        raise ModelFileError(f"could not write {str(path)!r}: {_reason(error, path)}") from error


def load(path: str | os.PathLike[str], *, trusted: Sequence[str | type] = ()) -> Any:
    """Load the estimator from a file that `save` wrote; its predictions are the same, to the bit.

    Nothing in the file is executed. Every type that the file names is checked first. Plain records and
    estimators of cavity, scikit-learn's estimators and kernels, and NumPy arrays are accepted. Any other
    type raises `ModelFileError`, unless it is in `trusted` (types, or their full names). Sizes are
    checked before anything is read, and the parts of the model against each other at the end.
    """
    _skops()
    name = str(path)
    with _opened(path) as (file, size):
        header = _header_of(file, name, size)
        try:
            require_memory(_COPIES * size, "loading it", "a machine with more memory")
            file.seek(0)
            content = file.read(size)  # at once, so that what is checked is what is loaded
            estimator = _rebuilt(content, trusted)
            found = full_name(type(estimator))
            if header.estimator != found:
                raise ModelFileError(f"its header names a {header.estimator}, and it holds a {found}")
        except (ModelFileError, MemoryError) as error:
            raise ModelFileError(f"{name!r} was not loaded: {error}{_versions(header)}") from error
        except Exception as error:
            raise ModelFileError(
                f"{name!r} is damaged, or these versions of the packages cannot read it "
                f"({type(error).__name__}: {error!s:.200}){_versions(header)}"
            ) from error
    return estimator


def describe(path: str | os.PathLike[str]) -> ModelFile:
    """Read the header of a model file, without loading the model."""
    with _opened(path) as (file, size):
        return _header_of(file, str(path), size)


def _archive(estimator: BaseEstimator, trusted: Sequence[str | type]) -> bytes:
    """Serialise an estimator, and check that the result can be loaded."""
    skops_io = _skops()
    buffer = io.BytesIO()
    try:
        skops_io.dump(_without_run_parameters(estimator), buffer)
        _rebuilt(buffer.getvalue(), trusted)
        with ZipFile(buffer, "a") as archive:
            archive.writestr(_HEADER, json.dumps(asdict(_header(estimator))))
    except ModelFileError as error:
        raise ModelFileError(f"this {type(estimator).__name__} cannot be saved: {error}") from error
    except Exception as error:  # skops raises many kinds of errors for types that it does not know
        raise ModelFileError(
            f"this {type(estimator).__name__} cannot be saved: {type(error).__name__}: {error}"
        ) from error
    return buffer.getvalue()


def _rebuilt(content: bytes, trusted: Sequence[str | type]) -> Any:
    """Make the estimator from the bytes of an archive, and check both."""
    from cavity.export.checks import check_estimator  # not above: it would slow `import cavity` down

    estimator = _skops().loads(content, trusted=audited(content, trusted))
    estimator = _without_run_parameters(estimator)
    check_estimator(estimator)
    return estimator


def _without_run_parameters(value: Any) -> Any:
    """Copy an estimator and those inside it, with their run parameters set to the defaults."""
    if isinstance(value, UserList):  # so scikit-learn 1.6 keeps the other columns of a ColumnTransformer
        return list(value.data)
    if type(value) in (list, tuple):
        return type(value)(_without_run_parameters(item) for item in value)
    if type(value) is dict:
        return {name: _without_run_parameters(item) for name, item in value.items()}
    if isinstance(value, Model) and isinstance(value.mean_function, MeanFunction):
        classifier = _without_run_parameters(value.mean_function.classifier)
        return replace(value, mean_function=replace(value.mean_function, classifier=classifier))
    if not isinstance(value, BaseEstimator):
        return value
    if hasattr(value, "to_local"):  # a classifier of Dask, inside of a table classifier
        value = value.to_local()
    kind: Any = type(value)
    copied, parameters = kind.__new__(kind), inspect.signature(kind).parameters
    for name, item in vars(value).items():
        if name == "config" and type(item) is dict:  # how often a run was saved is not of the model
            item = {field: v for field, v in item.items() if field != "checkpoint_interval"} or None
        reset = name in _RUN_PARAMETERS and name in parameters
        vars(copied)[name] = parameters[name].default if reset else _without_run_parameters(item)
    return copied


def _header(estimator: BaseEstimator) -> ModelFile:
    import skops

    return ModelFile(
        format=FORMAT,
        estimator=full_name(type(estimator)),
        cavity=__version__,
        python=platform.python_version(),
        numpy=np.__version__,
        scipy=scipy.__version__,
        sklearn=sklearn.__version__,
        skops=skops.__version__,
    )


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[tuple[BinaryIO, int]]:
    """Open a model file and give its size; refuse devices and pipes, which may never end."""
    name = str(path)
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode) and not Path(path).is_dir():
            raise ModelFileError(f"could not read {name!r}: it is not a regular file")
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                raise ModelFileError(f"{name!r} is empty: copy it again, or save the model again")
            yield file, size
    except (OSError, ValueError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"could not read {name!r}: {_reason(error, path)}") from error


def _header_of(file: BinaryIO, name: str, size: int) -> ModelFile:
    """Read and check the header, and the sizes of all members, of a file of `size` bytes."""
    try:
        with ZipFile(file) as archive:
            check_members(archive, size)
            if archive.getinfo(_HEADER).file_size > _LARGEST_HEADER:
                raise ModelFileError(f"it is longer than {_LARGEST_HEADER:,} bytes")
            described = json.loads(archive.read(_HEADER))
    except BadZipFile as error:
        file.seek(0)
        raise ModelFileError(
            f"{name!r} is truncated: copy it again, or save the model again"
            if file.read(4) == b"PK\x03\x04"
            else f"{name!r} is not a model file: cavity.save writes those"
        ) from error
    except KeyError as error:
        raise ModelFileError(
            f"{name!r} is an archive, but not one that cavity.save wrote: it has no {_HEADER}"
        ) from error
    except Exception as error:  # damaged archives raise many kinds of errors
        raise ModelFileError(f"{name!r} has a damaged header: {error}") from error
    return _checked(name, described)


def _checked(name: str, described: Any) -> ModelFile:
    """Check the format of a header and make a record of it."""
    version = described.get("format") if isinstance(described, dict) else None
    if type(version) is not int or version < 1:
        raise ModelFileError(f"{name!r} has a damaged header: it does not name its format")
    if version != FORMAT:
        way_out = "upgrade cavity" if version > FORMAT else "fit and save the model again"
        raise ModelFileError(
            f"{name!r} has format {version} and was written by cavity {described.get('cavity')!s:.20}; "
            f"this is cavity {__version__}, which reads format {FORMAT}: {way_out}"
        )
    texts = {field.name: described.get(field.name) for field in fields(ModelFile)}
    del texts["format"]
    for field, text in texts.items():
        if not isinstance(text, str) or not _VERSION.fullmatch(text):
            raise ModelFileError(f"{name!r} has a damaged header: it does not name its {field}")
    return ModelFile(format=version, **texts)


def _versions(header: ModelFile) -> str:
    """Name the versions that wrote the file where they differ from those installed here."""
    wrote = {"cavity": header.cavity, "scikit-learn": header.sklearn, "numpy": header.numpy}
    here = {"cavity": __version__, "scikit-learn": sklearn.__version__, "numpy": np.__version__}
    differ = [f"{name} {wrote[name]} (here {here[name]})" for name in here if wrote[name] != here[name]]
    return f"; it was written with {', '.join(differ)}" if differ else ""


def _reason(error: Exception, path: str | os.PathLike[str]) -> str:
    """Say why a file could not be read or written."""
    folder = Path(path).parent
    if isinstance(error, OSError) and not folder.exists():
        return f"there is no folder {str(folder)!r}"
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _skops() -> Any:
    """Import skops, in a version that can be trusted with the files of strangers."""
    try:
        import skops
        import skops.io
    except ImportError as error:
        raise ImportError("saving and loading models needs skops: pip install 'cavity[save]'") from error
    if parse_version(skops.__version__) < parse_version(_FIRST_SAFE_SKOPS):
        raise ImportError(
            f"skops {skops.__version__} is not safe with files of strangers; saving and loading models "
            f"needs {_FIRST_SAFE_SKOPS} or later: pip install --upgrade 'cavity[save]'"
        )
    return skops.io

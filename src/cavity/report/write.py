"""One HTML file about a fitted classifier."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from cavity.files import written_atomically
from cavity.plot.canvas import require_matplotlib
from cavity.report.contents import Wishes, contents
from cavity.report.target import subject_of


def write_report(
    estimator: Any,
    path: str | os.PathLike[str],
    X: Any = None,
    y: Any = None,
    *,
    X_train: Any = None,
    y_train: Any = None,
    feature_names: Any = None,
    title: str | None = None,
    max_rows: int = 10_000,
    n_hardest: int = 15,
    n_effects: int = 4,
    random_state: int = 0,
) -> Path:
    """Write a report of a fitted estimator to `path`: one HTML file that needs nothing else.

    Parameters
    ----------
    estimator
        A fitted classifier of this library, a scikit-learn pipeline that ends in one, or a table
        classifier (which has `classifier_` and `transform`).
    path
        The file to write; it is written whole or not at all.
    X, y
        Rows [n, d] that took no part in training, and their labels [n], to judge the predictions by.
        Without them leave-one-out probabilities of the training rows are used, and the report says so.
    X_train, y_train
        The rows that the estimator was fitted to, in the same order. Needed for an estimator that was
        saved and loaded, which no longer has them.
    feature_names
        [d] words; by default those that the estimator was fitted with.
    title
        Heading of the report.
    max_rows
        Larger tables are judged and summarised by so many rows drawn at random; the report says so.
    n_hardest, n_effects
        How many surprising rows and partial dependences to show.
    random_state
        Seed of all that is drawn.

    Returns
    -------
    The path.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import make_moons
    >>> from cavity import SEPClassifier
    >>> X, y = make_moons(300, noise=0.3, random_state=0)
    >>> model = SEPClassifier(n_inducing=10, random_state=0).fit(X[:200], y[:200])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = write_report(model, f"{folder}/moons.html", X[200:], y[200:])
    ...     "Most surprising rows" in written.read_text(encoding="utf-8")
    True
    """
    target = Path(path)
    _check(target, {"X": X, "y": y}, {"X_train": X_train, "y_train": y_train}, max_rows)
    require_matplotlib()
    render = _renderer()
    subject = subject_of(estimator, feature_names)
    wishes = Wishes(int(max_rows), int(n_hardest), int(n_effects), int(random_state))
    page = render(
        title=title or f"{type(subject.classifier).__name__}: {', '.join(subject.classes[:4])}",
        style=_asset("style.css"),
        **contents(subject, (X, y), (X_train, y_train), wishes),
    )
    with written_atomically(target) as file:
        file.write(page.encode("utf-8"))
    return target


def _check(target: Path, *pairs_and_size: Any) -> None:
    *pairs, max_rows = pairs_and_size
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path={str(target)!r}: the folder {str(target.parent)!r} is not there")
    if target.is_dir():
        raise IsADirectoryError(f"path={str(target)!r} is a folder; give the name of a file in it")
    for pair in pairs:
        missing = [name for name, value in pair.items() if value is None]
        if len(missing) == 1:
            raise ValueError(f"{' and '.join(pair)} belong together; {missing[0]} is missing")
    if max_rows < 10:
        raise ValueError(f"max_rows={max_rows}; a report needs at least 10 rows")


def _renderer() -> Callable[..., str]:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise ImportError(
            f"{error}: the report is put together with jinja2; install it with: "
            "pip install 'cavity[report]'"
        ) from error
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_asset("page.html.jinja")).render


def _asset(name: str) -> str:
    return files("cavity.report").joinpath(name).read_text(encoding="utf-8")

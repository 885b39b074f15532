"""Write a report on a fitted classifier as one HTML file."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from sklearn.base import BaseEstimator

from cavity.files import written_atomically
from cavity.plot.canvas import require_matplotlib
from cavity.report.contents import ReportOptions, contents
from cavity.report.target import report_target
from cavity.text import printable_lines
from cavity.typing import FeatureNames, InputLabels, InputRows


def write_report(
    estimator: BaseEstimator,
    path: str | os.PathLike[str],
    X: InputRows = None,
    y: InputLabels = None,
    *,
    X_train: InputRows = None,
    y_train: InputLabels = None,
    feature_names: FeatureNames = None,
    title: str | None = None,
    max_rows: int = 10_000,
    n_hardest: int = 15,
    n_effects: int = 4,
    random_state: int = 0,
) -> Path:
    """Write a report on a fitted estimator to `path`: one HTML file that needs no other files.

    Parameters
    ----------
    estimator
        A fitted classifier of this library, a scikit-learn pipeline that ends in one, or a table
        classifier (which has `estimator_` and `transform`).
    path
        The file to write. An error leaves an existing file as it was.
    X, y
        Rows [n, d] that took no part in training, and their labels [n], to judge the predictions by.
        Without them leave-one-out probabilities of the training rows are used, and the report says so.
    X_train, y_train
        The rows that the estimator was fitted to, in the same order. An estimator that was saved and
        loaded needs them, because it no longer holds its rows.
    feature_names
        Names [d] of the features; by default those that the estimator was fitted with.
    title
        Heading of the report.
    max_rows
        Number of rows, drawn at random from larger tables, that are judged and summarised. The report
        says so.
    n_hardest, n_effects
        Numbers of rows with improbable labels and of partial dependences to show.
    random_state
        Random seed.

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
    path = Path(path)
    _check_path(path)
    _check_pair(X=X, y=y)
    _check_pair(X_train=X_train, y_train=y_train)
    if max_rows < 10:
        raise ValueError(f"max_rows={max_rows} is too small; a report needs at least 10 rows")
    require_matplotlib()
    render = _renderer()
    target = report_target(estimator, feature_names)
    options = ReportOptions(int(max_rows), int(n_hardest), int(n_effects), int(random_state))
    page = render(
        title=title or f"{target.facts.method}: {', '.join(target.classes[:4])}",
        style=_asset("style.css"),
        **contents(target, (X, y), (X_train, y_train), options),
    )
    with written_atomically(path) as file:
        file.write(printable_lines(page).encode("utf-8"))
    return path


def _check_path(path: Path) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path={str(path)!r}: there is no folder {str(path.parent)!r}; make it")
    if path.is_dir():
        raise IsADirectoryError(f"path={str(path)!r} is a folder; give the name of a file in it")


def _check_pair(**rows: InputRows | InputLabels) -> None:
    missing = [name for name, value in rows.items() if value is None]
    if len(missing) == 1:
        raise ValueError(f"{' and '.join(rows)} belong together; {missing[0]} is missing")


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

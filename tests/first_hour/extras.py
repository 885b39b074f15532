"""Uses the feature of one extra with the packages of that extra alone; runs in the fresh environment.

`python extras.py EXTRA` hides all installed packages but those that `pip install 'cavity[EXTRA]'` would
install, and then does what the extra is for. The extra "" stands for `cavity` alone. `python extras.py
--list` prints the names of the extras that have a feature here.
"""

import sys
import tempfile
from importlib import metadata
from importlib.abc import MetaPathFinder
from pathlib import Path


def needed(extra):
    """Names of the distributions that cavity with this extra needs, and they need in turn."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    done, left = set(), [("cavity", frozenset({extra} - {""}))]
    while left:
        name, extras = left.pop()
        if (name, extras) in done:
            continue
        done.add((name, extras))
        for line in metadata.requires(name) or ():
            wanted = Requirement(line)
            asked = (wanted.marker.evaluate({"extra": word}) for word in (*extras, ""))
            if wanted.marker is None or any(asked):
                left.append((canonicalize_name(wanted.name), frozenset(wanted.extras)))
    return {name for name, _ in done}


class Hidden(MetaPathFinder):
    """Refuses to import the modules of installed packages, as if they were not there."""

    def __init__(self, modules):
        self.modules = modules

    def find_spec(self, name, path=None, target=None):
        """Raise for a hidden module; leave all others to the finders that follow."""
        if name.partition(".")[0] in self.modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def hide_others(extra):
    """Hide all packages but those of the extra."""
    from packaging.utils import canonicalize_name

    kept = needed(extra)
    modules = {
        module
        for module, owners in metadata.packages_distributions().items()
        if not any(canonicalize_name(owner) in kept for owner in owners)
    }
    for name in [name for name in sys.modules if name.partition(".")[0] in modules]:
        del sys.modules[name]  # `packaging`, which has done its work
    sys.meta_path.insert(0, Hidden(modules))


def moons():
    """A classifier that is fitted to arrays, with the rows and labels."""
    from sklearn.datasets import make_moons

    from cavity import SEPClassifier

    X, y = make_moons(120, noise=0.2, random_state=0)
    return SEPClassifier(n_inducing=8, max_epochs=10, random_state=0, n_jobs=1).fit(X, y), X, y


def refused(feature):
    """Fail unless a feature says by which extra it is installed."""
    said = ""
    try:
        feature()
    except ImportError as error:
        said = str(error)
    assert "pip install 'cavity[" in said, said or "a feature works without its extra"


def alone():
    """The classifiers work, and everything else names its extra."""
    import cavity

    model, X, y = moons()
    assert model.score(X, y) > 0.8
    table = {"east": X[:, 0], "moon": y.astype(str)}
    for feature in (
        lambda: model.save("m.cavity"),
        lambda: cavity.to_onnx(model),
        lambda: cavity.TableClassifier().fit(table, "moon"),
        lambda: cavity.DaskSEPClassifier,
        plot,
        report,
    ):
        refused(feature)


def parquet():
    """Tables and Parquet files."""
    import pyarrow
    from pyarrow import parquet

    from cavity import SEPClassifier, TableClassifier

    _, X, y = moons()
    table = pyarrow.table({"east": X[:, 0], "north": X[:, 1], "moon": y.astype(str)})
    parquet.write_table(table, "moons.parquet")
    small = SEPClassifier(n_inducing=8, max_epochs=10, random_state=0, n_jobs=1)
    assert small.fit("moons.parquet", "moon").predict_proba(X).shape == (120, 2)
    fitted = TableClassifier(small).fit("moons.parquet", "moon")
    assert fitted.predict_proba(table).shape == (120, 2)


def plot():
    """Displays."""
    from cavity.plot import CalibrationDisplay

    model, X, y = moons()
    CalibrationDisplay.from_estimator(model, X, y)


def report():
    """The report on a classifier of arrays."""
    from cavity.report import write_report

    model, X, y = moons()
    assert "<html" in write_report(model, "report.html", X, y).read_text(encoding="utf-8")


def save():
    """Model files."""
    import cavity

    model, X, _ = moons()
    model.save("moons.cavity")
    assert (cavity.load("moons.cavity").predict_proba(X) == model.predict_proba(X)).all()


def onnx():
    """Export."""
    import cavity

    cavity.to_onnx(moons()[0], "moons.onnx")
    assert Path("moons.onnx").stat().st_size > 1_000


def dask():
    """A fit and a prediction on a cluster of this machine."""
    import dask.array
    from distributed import Client

    from cavity import DaskSEPClassifier

    _, X, y = moons()
    with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
        model = DaskSEPClassifier(n_inducing=8, max_epochs=5, random_state=0, client=client)
        model.fit(dask.array.from_array(X), dask.array.from_array(y))
        assert model.predict_proba(dask.array.from_array(X)).compute().shape == (120, 2)


def cli():
    """Commands, from a CSV file to a report."""
    _, X, y = moons()
    lines = ["east,moon", *(f"{x},{label}" for x, label in zip(X[:, 0], y, strict=True))]
    Path("moons.csv").write_text("\n".join(lines))
    fit = ("fit", "moons.csv", "-t", "moon", "-o", "m.cavity", "--inducing", "8")
    _command(*fit, "--budget", "5 iterations", "-q")
    _command("evaluate", "m.cavity", "moons.csv", "-q")
    _command("explain", "m.cavity", "moons.csv", "-q")
    _command("report", "m.cavity", "moons.csv", "-o", "m.html", "-q")


def excel():
    """Sheets of Excel."""
    import openpyxl

    from cavity import SEPClassifier, TableClassifier

    _, X, y = moons()
    book = openpyxl.Workbook()
    for row in [("east", "moon"), *zip(X[:, 0].tolist(), map(str, y), strict=True)]:
        book.active.append(row)
    book.save("moons.xlsx")
    small = SEPClassifier(n_inducing=8, max_epochs=10, random_state=0, n_jobs=1)
    assert TableClassifier(small).fit("moons.xlsx", "moon").n_features_in_ == 1


def serve():
    """The service, up to its first answer."""
    import cavity
    from cavity.cli.service import create_app

    parquet()
    fitted = cavity.TableClassifier(moons()[0]).fit("moons.parquet", "moon")
    assert callable(create_app(fitted))
    import uvicorn  # the server of `cavity serve`

    assert uvicorn.Config


def _command(*arguments):
    """Run `cavity` with these arguments in this process."""
    from cavity.cli.app import app

    status = app([*arguments], prog_name="cavity", standalone_mode=False)
    assert not status, f"cavity {' '.join(arguments)}: status {status}"


FEATURES = {
    "": alone,
    **{use.__name__: use for use in (parquet, excel, plot, report, save, onnx, dask, cli, serve)},
}
"""What each extra is for; the extras `docs` and `dev` are for those who work on cavity."""


def main():
    """Use the feature of the extra that is named."""
    (extra,) = sys.argv[1:]
    if extra == "--list":
        print("\n".join(FEATURES))
        return
    import os
    import warnings

    os.chdir(tempfile.mkdtemp())
    hide_others(extra)
    warnings.filterwarnings("ignore", category=UserWarning)  # fits this short have not converged
    FEATURES[extra]()


if __name__ == "__main__":
    main()

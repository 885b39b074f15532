"""The command line inside this process, and a folder with flights and a model of them."""

from typer.testing import CliRunner

from cavity.cli.app import app
from flights_table import flights

FIT = ["--target", "delayed", "--inducing", "8", "--budget", "30 iterations"]


def run(*args):
    """What `cavity args` has come to."""
    return CliRunner().invoke(app, [str(arg) for arg in args])


def with_model(place):
    """The folder, with new.parquet and flights.cavity in it."""
    flights(200, seed=1).to_parquet(place / "new.parquet")
    assert run("fit", place / "new.parquet", *FIT, "-o", place / "flights.cavity").exit_code == 0
    return place

"""Tables behind URLs: of this machine, of the web."""

import json

import numpy as np
import pandas as pd
import pytest

import cavity
from cli_runs import FIT, run, with_model
from local_server import serving


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return with_model(tmp_path_factory.mktemp("urls"))


def test_tables_behind_urls(folder, tmp_path):
    data = (folder / "new.parquet").as_uri()
    result = run("evaluate", folder / "flights.cavity", data, "--json")
    assert json.loads(result.stdout)["rows"] == 200


def as_file(frame, path):
    """The bytes of a table in a file of that name, which is written too."""
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)
    return path.read_bytes()


@pytest.mark.parametrize("name", ["new.parquet", "new.csv", "new.csv.gz"])
def test_tables_of_the_web(folder, tmp_path, name):
    """From a server that sends whole files only, as many do."""
    pytest.importorskip("aiohttp")
    frame = pd.read_parquet(folder / "new.parquet")
    with serving() as site:
        site.ranges = False
        url = f"{site.url}/{name}"
        model = tmp_path / "m.cavity"
        for n_rows in (200, 150):  # no copy outlives its command
            site.files[f"/{name}"] = as_file(frame[:n_rows], tmp_path / name)
            fit = run("fit", url, *FIT, "-o", model, "--force", "--json")
            assert fit.exit_code == 0, fit.stderr
            result = run("evaluate", model, url, "--json")
            assert json.loads(result.stdout)["rows"] == n_rows
        absent = run("evaluate", model, f"{site.url}/none.csv")
    silent = run("evaluate", model, url)
    for answer, what in ((absent, "none.csv"), (silent, name)):
        assert answer.exit_code == 2
        assert f"{what}: there is no such file, or its server does not answer" in answer.stderr
    run("fit", tmp_path / name, *FIT, "-o", tmp_path / "local.cavity")
    ours, local = cavity.load(model), cavity.load(tmp_path / "local.cavity")
    assert np.array_equal(ours.predict_proba(frame), local.predict_proba(frame))


def test_what_the_web_needs_is_named(folder, monkeypatch):
    def lacking(url, **options):
        raise ImportError('HTTPFileSystem requires "requests" and "aiohttp" to be installed')

    monkeypatch.setattr("fsspec.core.url_to_fs", lacking)
    result = run("evaluate", folder / "flights.cavity", "https://nowhere.invalid/new.csv")
    assert result.exit_code == 2
    assert "https://nowhere.invalid/new.csv: files of the web are read with" in result.stderr
    assert "pip install 'fsspec[http]'" in result.stderr

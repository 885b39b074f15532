"""The service of `cavity serve`: answers, refusals in words, load, pages and the end of the process."""

import asyncio
import http.client
import json
import os
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pytest
import uvicorn
from starlette.responses import HTMLResponse

import cavity
from cavity.cli.serve import listening
from cavity.cli.service import Limits, create_app
from cli_runs import run, with_model
from flights_table import flights
from headless_browser import BROWSER, opened, watched

JSON, CSV = "application/json", "text/csv"
ROW = {"hour": 7, "distance": 900, "carrier": "AA", "date": "2013-05-01", "weekend": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return with_model(tmp_path_factory.mktemp("serve"))


@pytest.fixture(scope="module")
def model(folder):
    return cavity.load(folder / "flights.cavity")


@contextmanager
def served(model, **options):
    """A client of a real server."""
    with listening("127.0.0.1", 0) as listener:
        config = uvicorn.Config(
            create_app(model, **options), log_config=None, access_log=False, lifespan="off"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        try:
            yield Client(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()


class Client:
    """Sends requests to a port of this machine."""

    def __init__(self, port):
        self.port = port

    def get(self, path, **headers):
        return self.ask("GET", path, None, headers)

    def post(self, path, content=None, *, rows=None, kind="application/json"):
        body = json.dumps({"rows": rows}) if content is None else content
        return self.ask("POST", path, body, {"content-type": kind})

    def ask(self, method, path, body, headers, **options):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body, headers, **options)
        answer = connection.getresponse()
        found = Answer(answer.status, answer.headers, answer.read().decode())
        connection.close()
        return found


class Answer(NamedTuple):
    status: int
    headers: dict
    text: str

    def json(self):
        return json.loads(self.text)


@pytest.fixture(scope="module")
def client(model):
    with served(model, limits=Limits(bytes=20_000, rows=200)) as found:
        yield found


def test_an_answer_is_what_the_model_says(client, model):
    frame = flights(20, seed=5).drop(columns="delayed")
    rows = json.loads(frame.to_json(orient="records", date_format="iso"))
    found = client.post("/predict?level=0.8", rows=rows).json()
    of_csv = client.post("/predict?level=0.8", frame.to_csv(index=False), kind=CSV)
    assert of_csv.json() == found
    of_csv = client.post("/predict?level=0.8", frame.to_csv(index=False, sep=";"), kind=CSV)
    assert of_csv.json() == found
    predictions = found["predictions"]
    mean, variance = model.latent_mean_and_variance(frame)
    p = model.predict_proba(frame)
    assert found["level"] == 0.8
    assert [row["label"] for row in predictions] == model.predict(frame).tolist()
    np.testing.assert_allclose([row["probability"]["yes"] for row in predictions], p[:, 1])
    np.testing.assert_allclose([row["latent_mean"] for row in predictions], mean)
    np.testing.assert_allclose([row["latent_variance"] for row in predictions], variance)
    total = -np.sum(p * np.log(p), axis=1)
    np.testing.assert_allclose([row["aleatoric"] + row["epistemic"] for row in predictions], total)
    for row in predictions:
        low, high = row["interval"]["yes"]
        assert 0 <= low <= row["probability"]["yes"] <= high <= 1
        assert 0 <= row["ood_score"] <= 1


def test_a_row_far_away_and_cells_that_are_new_or_absent_are_pointed_out(client):
    far = {**ROW, "distance": 1e7, "carrier": "ZZ"}
    near, far = client.post("/predict", rows=[ROW, far]).json()["predictions"]
    assert near["warnings"] == []
    assert far["ood_score"] > near["ood_score"]
    words = " ".join(far["warnings"])
    assert "distance is 1e+07, far from the usual" in words
    assert "carrier is 'ZZ', which training did not have" in words
    assert "the training rows are far from this one" in words
    # As curl sends it, with one column only.
    found = client.post(
        "/predict", '{"rows": [{"hour": 7}]}', kind="application/x-www-form-urlencoded"
    ).json()
    assert "no 'distance', 'carrier', 'date', 'weekend': counted as missing" in found["warnings"][0]


REFUSED = [
    (JSON, b"{", 400, "not JSON"),
    (JSON, b"\xff\xfe", 400, "not JSON"),
    (JSON, b"[" * 100_00, 400, "not JSON"),
    (JSON, b'{"rows": [{"hour": NaN}]}', 400, "NaN is not a number in JSON"),
    (JSON, b"[1]", 422, "another form"),
    (JSON, b'{"rows": [3]}', 422, "list of objects"),
    (JSON, b'{"rows": []}', 422, "no rows"),
    (JSON, b'{"rows": [{}]}', 422, "no values"),
    (JSON, b'{"rows": [{"our": 7}]}', 422, "no column 'our'; did you mean 'hour'?"),
    (JSON, b'{"rows": [{"\\ud800": 7}]}', 422, "no column"),
    (JSON, b'{"rows": [{"hour": "noon"}]}', 422, "'hour' should be numeric, but has the value 'noon'"),
    (JSON, b'{"rows": [{"hour": [7]}]}', 422, "row 1, column 'hour': a list is no value"),
    (JSON, b'{"rows": [{"carrier": "\\ud800"}]}', 422, "'carrier'"),
    (JSON, b'{"rows": [{"hour": ' + b"9" * 400 + b"}]}", 422, "'hour'"),
    (JSON, b'{"rows": [{"date": "soon"}]}', 422, "'date' should be date"),
    (JSON, b'{"rows": [' + b"{}," * 300 + b"{}]}", 413, "more than 200 rows"),
    (JSON, b" " * 20_001, 413, "more than 20,000 bytes"),
    (CSV, b"", 400, "is empty"),
    (CSV, b"hour\n", 422, "no rows"),
    (CSV, b"hour\nnoon\n", 422, "'hour' should be numeric, but has the value 'noon'"),
    (CSV, b"hour,distance\n1,2,3\n", 422, "3 cells, but there are 2 names"),
    (CSV, b"hour,hour\n1,2\n", 422, "more than one column"),
    (CSV, b"our\n7\n", 422, "did you mean 'hour'?"),
    (CSV, b"delayed\nyes\n", 422, "none of the model's columns"),
    (CSV, b"hour\n\xff\n", 422, "should be numeric"),
    (CSV, b"hour\n" + b"7\n" * 300, 413, "more than 200 rows"),
    ("image/png", b"x", 415, "'image/png' cannot be read"),
]


@pytest.mark.parametrize(("kind", "body", "status", "words"), REFUSED)
def test_a_bad_request_is_refused_in_words(client, kind, body, status, words):
    found = client.post("/predict", body, kind=kind)
    assert (found.status, list(found.json())) == (status, ["error"])
    assert words in found.json()["error"]


def test_wrong_addresses_and_levels(client):
    assert "/predict" in client.get("/nothing").json()["error"]
    wrong = client.get("/predict")
    assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
    assert "it answers POST" in wrong.json()["error"]
    for level in ("2", "nan", "high"):
        assert client.post(f"/predict?level={level}", rows=[ROW]).status == 422


def test_what_the_service_tells_about_itself(client, model):
    schema = client.get("/schema").json()
    columns = {column["name"]: column for column in schema["columns"]}
    assert (schema["target"], schema["classes"]) == ("delayed", ["no", "yes"])
    assert columns["carrier"]["categories"] == ["AA", "DL", "UA"]
    assert columns["weekend"]["kind"] == "boolean"
    low, high = columns["hour"]["range"]
    assert 0 <= low < columns["hour"]["example"] < high < 24
    first, last = columns["date"]["range"]
    assert "2013-01-01" <= first < last <= "2013-12-31"
    api = client.get("/openapi.json").json()
    body = api["paths"]["/predict"]["post"]["requestBody"]["content"][JSON]
    assert set(body["schema"]["properties"]["rows"]["items"]["properties"]) == set(model.columns_)
    found = client.post("/predict", json.dumps(body["example"]))
    assert found.json()["predictions"][0]["warnings"] == []
    promised = api["paths"]["/predict"]["post"]["responses"]["200"]["content"][JSON]["schema"]
    assert set(promised["properties"]) == set(found.json())
    assert set(promised["properties"]["predictions"]["items"]["properties"]) == set(
        found.json()["predictions"][0]
    )
    assert client.get("/health").json() == {"status": "ok"}


def test_cells_may_be_text_numbers_truth_values_or_missing(client):
    rows = [{**ROW, "hour": hour, "weekend": 0} for hour in ("7", "7.0", "7")]
    found = client.post("/predict", rows=rows).json()["predictions"]
    assert found == client.post("/predict", rows=[ROW] * 3).json()["predictions"]
    missing = client.post("/predict", rows=[dict.fromkeys(ROW)]).json()
    assert missing["warnings"] == []
    coded = client.post("/predict", rows=[{**ROW, "carrier": 7}]).json()["predictions"][0]
    assert coded["warnings"] == ["carrier is '7', which training did not have"]


def test_counts_for_prometheus(model):
    with served(model) as fresh:
        fresh.post("/predict", rows=[ROW, ROW])
        fresh.post("/predict", b"{")
        fresh.get("/a/path/of/its/own")
        lines = fresh.get("/metrics").text.splitlines()
    assert 'cavity_requests_total{path="/predict",status="200"} 1' in lines
    assert 'cavity_requests_total{path="other",status="404"} 1' in lines
    assert "cavity_errors_total 2" in lines
    assert "cavity_rows_total 2" in lines
    assert 'cavity_request_seconds_count{path="/predict"} 2' in lines


def test_a_failure_inside_is_a_sentence_too(model, monkeypatch, capsys):
    def broken(*_):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("cavity.cli.service.app.answer", broken)
    with served(model) as fresh:
        found = fresh.post("/predict", rows=[ROW])
    assert found.status == 500
    assert "ZeroDivisionError" in found.json()["error"]
    assert "by zero" in capsys.readouterr().err


def test_only_the_names_of_this_machine_are_answered_on_loopback(model):
    with served(model, hosts=["localhost", "[::1]"]) as found:
        for host, status in [("localhost:8000", 200), ("[::1]:80", 200), ("evil.example", 421)]:
            assert found.get("/health", host=host).status == status


def test_a_thousand_requests_from_ten_clients(model):
    body = json.dumps({"rows": [ROW] * 3})

    def many(_):
        connection = http.client.HTTPConnection("127.0.0.1", found.port)
        statuses = []
        for _ in range(100):
            connection.request("POST", "/predict", body, {"content-type": JSON})
            answer = connection.getresponse()
            statuses.append((answer.status, len(json.loads(answer.read())["predictions"])))
        connection.close()
        return statuses

    with served(model) as found, ThreadPoolExecutor(10) as clients:
        answers = [answer for some in clients.map(many, range(10)) for answer in some]
    assert answers == [(200, 3)] * 1_000


def test_a_body_that_is_too_large_is_answered_not_cut_off(model):
    with served(model, limits=Limits(bytes=1_000)) as found:
        for headers in ({"content-length": "3000000"}, {"transfer-encoding": "chunked"}):
            pieces = (b"x" * 30_000 for _ in range(100))
            chunked = "transfer-encoding" in headers
            answer = found.ask("POST", "/predict", pieces, headers, encode_chunked=chunked)
            assert answer.status == 413
            assert "1,000 bytes" in answer.json()["error"]


def test_pages_need_nothing_from_elsewhere(client):
    for path in ("/", "/docs"):
        page = client.get(path)
        assert "http" not in page.text.replace("http-equiv", "")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert 'lang="en"' in page.text


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_a_person_moves_a_value_and_sees_the_prediction_move(client, model, tmp_path, monkeypatch):
    look = """(async () => {
      const wait = ms => new Promise(done => setTimeout(done, ms));
      const shown = () => document.querySelector("#classes strong")?.textContent;
      const until = async old => { for (let i = 0; i < 50 && shown() === old; i++) await wait(100); };
      await until(undefined);
      const first = shown(), box = document.querySelector("input[type=number]");
      box.value = "19";
      box.dispatchEvent(new Event("input"));
      await until(first);
      const second = shown();
      box.value = "-1e9";
      box.dispatchEvent(new Event("input"));
      await until(second);
      const unnamed = [...document.querySelectorAll("input, select")]
        .filter(node => !node.labels.length && !node.getAttribute("aria-label"));
      return {first, second, notice: document.getElementById("notice").textContent,
              unnamed: unnamed.length,
              overflows: document.documentElement.scrollWidth > window.innerWidth};
    })()"""
    page = watched(client.get("/").text, look)

    async def shown(*_):
        return HTMLResponse(page)

    monkeypatch.setattr("cavity.cli.service.app._page", shown)
    with served(model) as server:
        found = opened(f"http://127.0.0.1:{server.port}/", tmp_path)
    assert found["errors"] == []
    assert found["first"] != found["second"]
    assert "hour is" in found["notice"]
    assert found["unnamed"] == 0
    assert not found["overflows"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_service_in_words(start_command, folder, number):
    serve = ["serve", "flights.cavity", "--port", "0", "--json"]
    process = start_command("from cavity.cli import main; main()", serve, folder)
    said = process.stderr.readline()
    assert "serving flights.cavity at http://127.0.0.1:" in said
    connection = http.client.HTTPConnection("127.0.0.1", int(said.split(":")[-1].split()[0]), timeout=60)
    connection.request("GET", "/health")
    assert connection.getresponse().status == 200
    os.kill(process.pid, number)  # with a connection that is still open
    out, err = process.communicate()
    connection.close()
    assert process.returncode == 128 + number
    assert err == "cavity: the service has ended\n"
    assert json.loads(out)["url"] in said


def test_a_port_that_is_taken_and_packages_that_are_not_there(folder, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run("serve", folder / "flights.cavity", "--port", taken.getsockname()[1])
    assert result.exit_code == 2
    assert "cannot listen there" in result.stderr
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = run("serve", folder / "flights.cavity")
    assert result.exit_code == 2
    assert result.stderr == "cavity: cavity serve needs uvicorn: pip install 'cavity[serve]'\n"

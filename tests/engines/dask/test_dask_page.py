"""The code on the page about clusters runs, on a cluster of processes on this machine."""

import re

import pytest
import yaml

from dask_clusters import QUIET, started
from doc_blocks import blocks
from doc_pages import ROOT, Reader

PAGE = ROOT / "docs" / "cluster.md"
ELSEWHERE = re.compile(r"tcp://(first-machine|localhost):8786")

pytestmark = [*QUIET, pytest.mark.filterwarnings("ignore:.*stopped after .* iterations")]


def test_the_page_runs(capsys):
    page = blocks(PAGE)
    assert sum(len(ELSEWHERE.findall(block.text)) for block in page) == 2
    reader = Reader(PAGE)
    with started(1) as client:
        for block in page:
            text = ELSEWHERE.sub(client.scheduler.address, block.text)
            reader.execute(block._replace(text=text))
    assert capsys.readouterr().out == "(400, 2)\n"
    model, X, y = (reader.names[name] for name in ("model", "X", "y"))
    assert model.score(X.compute(), y.compute()) > 0.9


def test_scheduler_and_workers_of_the_chart_get_the_package():
    (values,) = [yaml.safe_load(block.text) for block in blocks(PAGE) if block.language == "yaml"]
    assert values["scheduler"]["env"] == values["worker"]["env"]
    ((name, value),) = [entry.values() for entry in values["worker"]["env"]]
    assert name == "EXTRA_PIP_PACKAGES"
    assert re.fullmatch(r"cavity\[dask\]@https://\S+\.whl", value)
    assert values["worker"]["threads_per_worker"] == 1

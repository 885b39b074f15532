"""The Python blocks of the page about clusters run; its shell commands have the options they use."""

import re
from pathlib import Path

import pytest
import yaml
from dask_clusters import QUIET, started
from distributed.cli import dask_ssh

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
ELSEWHERE = re.compile(r"tcp://(first-machine|localhost):8786")

pytestmark = [*QUIET, pytest.mark.filterwarnings("ignore:.*stopped after .* iterations")]


def blocks(language):
    return [match[2] for match in BLOCK.finditer(PAGE.read_text("utf-8")) if match[1] == language]


def test_python_of_the_page_runs(capsys):
    code = blocks("python")
    assert sum(len(ELSEWHERE.findall(block)) for block in code) == 2
    names = {"__name__": "__main__"}
    with started(1) as client:
        address = client.scheduler.address
        for block in code:
            exec(compile(ELSEWHERE.sub(address, block), PAGE, "exec"), names)
    assert capsys.readouterr().out == "(400, 2)\n"
    assert names["model"].score(names["X"].compute(), names["y"].compute()) > 0.9


def test_scheduler_and_workers_of_the_chart_get_the_package():
    (values,) = [yaml.safe_load(block) for block in blocks("yaml")]
    assert values["scheduler"]["env"] == values["worker"]["env"]
    assert values["worker"]["env"] == [{"name": "EXTRA_PIP_PACKAGES", "value": "cavity[dask]"}]
    assert values["worker"]["threads_per_worker"] == 1


def test_options_of_dask_ssh_exist():
    (command,) = [line for block in blocks("sh") for line in block.splitlines() if "dask ssh" in line]
    known = {name for parameter in dask_ssh.main.params for name in parameter.opts}
    used = re.findall(r"--[\w-]+", command)
    assert len(used) == 3
    assert known.issuperset(used)

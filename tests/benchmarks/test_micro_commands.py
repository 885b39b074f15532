"""Micro benchmarks whose output is on a page of the documentation run and print what the page shows."""

import pytest
from benchmarks.micro import serving, step_parts


def test_the_load_that_the_service_holds(capsys):
    serving.main(n_requests=20)
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["rows", "requests", "errors", "requests/s", "rows/s"]
    assert [row.split()[:3] for row in rows] == [["1", "20", "0"], ["100", "20", "0"]]


@pytest.mark.slow
def test_the_parts_of_a_step(capsys):
    step_parts.main()
    assert "a step of svi-gradient" in capsys.readouterr().out

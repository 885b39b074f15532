import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.__main__ import main
from benchmarks.methods import methods
from benchmarks.records import RecordFile, Repetition
from benchmarks.registry import benchmark
from benchmarks.registry import benchmarks as registered

from benchmarks import code, machine, registry

ROOT = Path(__file__).parents[2]


def test_list_names_every_benchmark():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "list"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in ("airline", "mnist", "step-rate", "uci", "table1", "fig4-airline"):
        assert name in done.stdout


def test_a_name_is_taken_once():
    registered()
    with pytest.raises(ValueError, match="two benchmarks are named 'uci'"):
        benchmark("uci", "again", table=len)(lambda context: None)


def test_contenders_use_known_methods_and_distinct_labels():
    from benchmarks.workloads import fig1, fig2, fig3, fig4, large, step_rate, table1, uci

    for contenders in (
        uci.CONTENDERS,
        large.OURS + large.PEERS,
        step_rate.CONTENDERS,
        table1.SPARSE + table1.FULL,
        fig1.CONTENDERS,
        fig2.CONTENDERS,
        fig3.CONTENDERS,
        (*fig4.STOCHASTIC, *fig4.BATCH, *fig4.DEFAULTS, fig4.LINEAR),
    ):
        labels = [c.label for c in contenders]
        assert len(set(labels)) == len(labels)
        assert {c.method for c in contenders} <= set(methods())


def test_unknown_benchmark_is_an_error(capsys):
    assert main(["run", "nothing"]) == 2
    assert "no benchmark 'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize(("timed", "status"), [(True, 1), (False, 0)])
def test_only_what_measures_seconds_waits_for_the_machine(monkeypatch, tmp_path, timed, status):
    ran = []
    item = registry.Benchmark("dummy", "", ran.append, lambda repetitions: "", timed=timed)
    registered()
    monkeypatch.setitem(registry._BENCHMARKS, "dummy", item)
    monkeypatch.setattr(machine, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(code, "check_clean", lambda: None)
    with machine.exclusive():
        assert main(["run", "dummy", "--out", str(tmp_path)]) == status
    assert len(ran) == 1 - status


def test_table_of_a_record_file(tmp_path, capsys):
    file = RecordFile(tmp_path / "r.jsonl", dict)
    for dataset, nll in (("crabs", 0.1), ("heart", 0.3)):
        for split in (0, 1):
            metrics = {"nll": nll, "error": 0.0}
            file.append(Repetition("uci", "A", "a", dataset, split, {}, seconds=2.0, metrics=metrics))
    file.append(Repetition("uci", "B", "b", "heart", 0, {}, failure="no"))
    half = {"nll": 0.2, "error": 0.0}
    file.append(Repetition("uci", "C", "c", "crabs", 0, {}, seconds=1.0, metrics=half))
    file.append(Repetition("uci", "C", "c", "heart", 0, {}, seconds=1.0, metrics=half))
    file.append(Repetition("uci", "C", "c", "heart", 1, {}, failure="no"))
    assert main(["table", str(file.path)]) == 0
    out = capsys.readouterr().out
    assert "| A | 0.100 | 0.300 | **0.200** | 2.00 |  |" in out
    assert "| B | – | – | – | – | 1/1 |" in out
    # A split that failed must not make the mean look better than the others'.
    assert "| C | 0.200 | 0.200* | – | 1.00 | 1/3 |" in out

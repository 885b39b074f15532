"""Which code was measured, and what a real run refuses."""

from types import SimpleNamespace

import pytest
from benchmarks.__main__ import _is_current, main
from benchmarks.context import Context
from benchmarks.load import BusyError, OtherWork, Quiet
from benchmarks.records import RecordFile, Repetition, read
from benchmarks.registry import Benchmark
from benchmarks.registry import benchmarks as registered

from benchmarks import code, machine, registry

DONE = Repetition("w", "A", "a", "d", 0, {}, code="abc", load=0.0)


def test_a_digest_is_of_names_and_contents(tmp_path):
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text("x")
    two.write_text("x")
    assert code.digest([one]) == code.digest([one])
    assert code.digest([one]) != code.digest([two])
    before = code.digest([one, two])
    two.write_text("y")
    assert code.digest([one, two]) != before


def test_our_code_is_that_of_the_rooms_that_compute(tmp_path, monkeypatch):
    for name in ("gp/a.py", "cli/b.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("x")
    monkeypatch.setattr(code, "SOURCE", tmp_path)
    first = code.ours.__wrapped__()
    (tmp_path / "cli/b.py").write_text("y")
    assert code.ours.__wrapped__() == first
    (tmp_path / "gp/a.py").write_text("y")
    assert code.ours.__wrapped__() != first


@pytest.fixture
def dummy(monkeypatch, tmp_path):
    """A benchmark that notes one number, on a machine that nobody else uses."""
    registered()
    item = Benchmark("dummy", "", lambda c: c.note("n", {"x": 1.0}), lambda repetitions: "")
    monkeypatch.setitem(registry._BENCHMARKS, "dummy", item)
    monkeypatch.setattr(machine, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(machine, "facts", lambda: {"commit": "abc", "code": code.ours()})
    monkeypatch.setattr(code, "SOURCE", code.ROOT / "src" / "cavity")
    monkeypatch.setattr(code, "changed", list)
    monkeypatch.setattr(Quiet, "wait", lambda self: None)
    monkeypatch.setattr(OtherWork, "cores", lambda self: 0.0)
    folders = ["--out", str(tmp_path), "--figures", str(tmp_path)]
    return SimpleNamespace(run=lambda *more: main(["run", "dummy", *folders, *more]), folder=tmp_path)


def test_a_changed_tree_is_not_recorded(dummy, monkeypatch, capsys):
    monkeypatch.setattr(code, "changed", lambda: ["src/cavity/a.py"])
    assert dummy.run() == 1
    assert "src/cavity/a.py differ from the last commit" in capsys.readouterr().err
    assert not (dummy.folder / "dummy.jsonl").exists()
    assert dummy.run("--quick") == 0
    assert (dummy.folder / "dummy-quick.jsonl").exists()


def test_a_library_from_elsewhere_is_not_recorded(dummy, monkeypatch, capsys):
    monkeypatch.setattr(code, "SOURCE", dummy.folder)
    assert dummy.run() == 1
    assert "not from this tree" in capsys.readouterr().err


def test_a_busy_machine_is_not_recorded(dummy, monkeypatch, capsys):
    def busy(self):
        raise BusyError("other processes use 1.9 cores")

    monkeypatch.setattr(Quiet, "wait", busy)
    assert dummy.run() == 1
    assert "1.9 cores" in capsys.readouterr().err
    assert not (dummy.folder / "dummy.jsonl").exists()
    assert dummy.run("--quick") == 0


def test_a_run_goes_on_and_repeats_what_other_code_measured(dummy, monkeypatch):
    def lines():
        return (dummy.folder / "dummy.jsonl").read_text().count('"repetition"')

    for _ in range(2):
        assert dummy.run() == 0
    assert lines() == 1
    monkeypatch.setattr(code, "ours", lambda: "other")
    assert dummy.run("--keep") == 0
    assert lines() == 1
    assert dummy.run() == 0
    assert lines() == 2
    assert [r.code for r in read(dummy.folder / "dummy.jsonl").repetitions] == ["other"]
    assert main(["prune", "dummy", "--out", str(dummy.folder)]) == 0
    assert lines() == 1


def test_a_record_counts_if_its_code_is_the_methods_and_nobody_disturbed_it():
    known = {"a": SimpleNamespace(code="abc")}
    assert _is_current(DONE, known)
    assert not _is_current(Repetition("w", "A", "a", "d", 0, {}), known)  # an old record
    assert not _is_current(DONE, {"a": SimpleNamespace(code="def")})
    assert not _is_current(Repetition("w", "A", "a", "d", 0, {}, code="abc", load=1.0), known)


def test_the_load_is_what_others_use():
    moments = iter([(0.0, 100.0, 5.0), (10.0, 118.0, 15.0)])
    now = {}

    def tick():
        now["clock"], now["total"], now["own"] = next(moments)
        return now["clock"]

    work = OtherWork(total=lambda: now["total"], own=lambda: now["own"], clock=tick)
    assert work.cores() == pytest.approx(0.8)  # 18 core-seconds in all, 10 of them ours, in 10 s


def test_where_the_system_does_not_tell_the_load_is_unknown():
    assert OtherWork(total=lambda: None).cores() is None


def test_waiting_for_a_quiet_machine():
    loads, clock = iter([2.0, 1.0, 0.1]), iter(range(100))
    quiet = Quiet(10.0, look=lambda: next(loads), clock=lambda: next(clock))
    quiet.wait()
    quiet.wait()  # nothing has happened since: it does not look again
    assert next(loads, None) is None
    quiet.seen(1.5)
    quiet.look = lambda: 1.7
    with pytest.raises(BusyError, match=r"use 1\.7 cores, more than 0\.25, after a wait of 0 min"):
        quiet.wait()


def test_every_measurement_records_code_and_load(tmp_path):
    context = Context(
        "w", RecordFile(tmp_path / "w.jsonl", dict), {}, quiet=Quiet(1.0, look=lambda: 0.0)
    )
    assert not context.noted("n")
    context.note("n", {"x": 1.0})
    assert context.noted("n")
    (done,) = read(tmp_path / "w.jsonl").repetitions
    assert done.code == code.ours()
    assert done.load is None or done.load >= 0.0

import json
from dataclasses import replace

from benchmarks.records import RecordFile, Repetition, read, scrub

FACTS = {"cpu": "one", "cores": 2}
DONE = Repetition(
    workload="uci",
    label="A",
    method="a",
    dataset="heart",
    split=0,
    settings={"m": 3, "seed": 0},
    seconds=1.5,
    metrics={"nll": 0.3, "error": 0.1},
    curve=[{"seconds": 1.0, "nll": 0.4}],
)


def open_file(tmp_path, **options):
    return RecordFile(tmp_path / "records" / "uci.jsonl", lambda: FACTS, **options)


def test_round_trip(tmp_path):
    file = open_file(tmp_path)
    file.append(DONE)
    file.append(replace(DONE, split=1))
    records = read(file.path)
    assert records.repetitions == [DONE, replace(DONE, split=1)]
    assert records.machines == [FACTS]
    assert json.loads(file.path.read_text().splitlines()[0])["kind"] == "machine"


def test_a_rerun_knows_what_is_recorded(tmp_path):
    open_file(tmp_path).append(DONE)
    again = open_file(tmp_path)
    assert again.has(replace(DONE, seconds=None, metrics={}))
    assert not again.has(replace(DONE, settings={"m": 4, "seed": 0}))
    assert not again.has(replace(DONE, budget=5.0))
    assert not again.has(replace(DONE, split=1))


def test_fresh_starts_over(tmp_path):
    open_file(tmp_path).append(DONE)
    again = open_file(tmp_path, fresh=True)
    assert not again.has(DONE)
    assert not again.path.exists()


def test_a_failure_is_kept_and_tried_again(tmp_path):
    open_file(tmp_path).append(replace(DONE, failure="exit status 1"))
    again = open_file(tmp_path)
    assert not again.has(DONE)
    assert read(again.path).repetitions[0].failure == "exit status 1"
    again.append(DONE)
    assert read(again.path).repetitions == [DONE]


def test_every_run_writes_its_own_machine_line(tmp_path):
    open_file(tmp_path).append(DONE)
    open_file(tmp_path)  # a run that adds nothing leaves nothing
    open_file(tmp_path).append(replace(DONE, split=1))
    kinds = [json.loads(s)["kind"] for s in (tmp_path / "records/uci.jsonl").read_text().splitlines()]
    assert kinds == ["machine", "repetition", "machine", "repetition"]


def test_scrub_leaves_no_absolute_path():
    text = 'File "/home/someone/x-1.2/lib/model.py", line 3: ratio 1/2, see a/b'
    assert scrub(text) == 'File "model.py", line 3: ratio 1/2, see a/b'

"""Every experiment of the paper, end to end, on data that install with scikit-learn."""

import hashlib

import experiments
import numpy as np
import pytest
from benchmarks.__main__ import main
from benchmarks.data import splits
from benchmarks.methods import methods
from benchmarks.ours import Job, fit
from benchmarks.paper.numbers import FRACTIONS, METHODS, TABLE1
from benchmarks.paper.schemes import paper_kernel
from benchmarks.records import read
from benchmarks.start import starting_point

from benchmarks import machine, stand_ins
from cavity.gp.parameters import ParameterSpace

FIGURES = {
    "fig1-inner-outer": None,
    "fig2-banana": None,
    "fig3-time-image": None,
    "fig4-mnist": experiments.TINY_BUDGET,
    "fig4-airline": experiments.TINY_BUDGET,
}


@pytest.fixture(scope="module")
def table1(tmp_path_factory):
    item, path = experiments.run("table1", tmp_path_factory.mktemp("table1"), splits=2)
    return item, read(path).repetitions


@pytest.mark.parametrize(("name", "budget"), FIGURES.items())
def test_figures_run_and_are_redrawn_from_their_records(name, budget, tmp_path, capsys):
    item, path = experiments.run(name, tmp_path, budget=budget)
    repetitions = read(path).repetitions
    assert [r.failure for r in repetitions] == [None] * len(repetitions)
    first = item.draw(repetitions, tmp_path / "first" / name)
    assert {file.suffix for file in first} == {".png", ".svg"}
    assert all(2_000 < file.stat().st_size < 200_000 for file in first)
    # The command draws the same picture from the file alone; CAVITY_DATA is only needed for the dots.
    with stand_ins.instead():
        arguments = ["draw", name, "--out", str(tmp_path), "--figures", str(tmp_path / "again")]
        assert main(arguments) == 0
    assert item.table(repetitions) in capsys.readouterr().out
    if name != "fig2-banana":
        again = (tmp_path / "again" / f"{name}.svg").read_bytes()
        assert again == (tmp_path / "first" / f"{name}.svg").read_bytes()
    for label in {r.label for r in repetitions}:
        assert label in item.table(repetitions)


def test_table1_shows_every_contender_beside_the_paper(table1):
    item, repetitions = table1
    text = item.table(repetitions)
    for label in ("GFITC, paper", "SEP, paper", "SVI, paper", "SEP, default", "scikit-learn GPC"):
        assert label in text
    assert "[0.40 ± 0.13]" in text  # the paper's SEP on heart at 15 %
    assert "within the paper's ±" in text


def test_all_methods_of_an_experiment_have_the_same_rows_and_start(table1):
    """Not what they were told but where their schedules began, seen at the first pass."""
    _, repetitions = table1
    groups = {}
    for r in repetitions:
        if r.settings.get("scheme") == "paper":
            key = (r.dataset, r.split, r.settings["m"])
            groups.setdefault(key, {})[r.method] = (r.extra["start"], r.extra["rows"])
    assert len(groups) == 8  # two sets, two splits, two m
    for group in groups.values():
        assert set(group) == {"here-sep", "here-svi", "here-gfitc"}
        assert len(set(group.values())) == 1
    assert len({start for group in groups.values() for start, _ in group.values()}) == len(groups)
    assert len({rows for group in groups.values() for _, rows in group.values()}) == 4


@pytest.mark.parametrize("mode", ["sep", "svi", "gfitc", "outer"])
@pytest.mark.parametrize("minibatch", [None, 20])
def test_the_start_is_the_one_that_was_given(mode, minibatch):
    if minibatch is not None and mode in ("gfitc", "outer"):
        pytest.skip("no minibatches")
    with stand_ins.instead():
        split = next(splits("heart", 1))
    start = starting_point(split.train.X, 10, 3)
    space = ParameterSpace(paper_kernel(start), start.Z)
    expected = hashlib.sha256(np.asarray(space.start, dtype=float).tobytes()).hexdigest()[:16]
    settings = {"scheme": "paper", "iterations": 3, "minibatch": minibatch, "threads": 1}
    job = Job(split.train.X, split.train.y, split.test.X, split.test.y, start, settings, budget=0.2)
    assert fit(mode, job).extra["start"] == expected


def test_peers_are_given_the_same_start(tmp_path):
    """The process of a peer reads the inducing points and the lengthscale from its job."""
    with stand_ins.instead():
        split = next(splits("heart", 1))
    start = starting_point(split.train.X, 8, 0)
    settings = {"m": 8, "seed": 0}
    methods()["gpflow-adam"]._write_job(tmp_path, split.train, split.test, settings, 1.0)
    np.testing.assert_array_equal(np.load(tmp_path / "Z.npy"), start.Z)
    assert f'"lengthscale": {start.lengthscale}' in (tmp_path / "job.json").read_text()


def test_our_worker_gives_what_the_process_itself_gives():
    with stand_ins.instead():
        split = next(splits("heart", 1))
    settings = {"scheme": "paper", "m": 10, "seed": 0, "threads": 1, "iterations": 15}
    there, here = (
        methods()[f"{where}-sep"](split.train, split.test, settings, None) for where in ("paper", "here")
    )
    assert there.nll == pytest.approx(here.nll, rel=1e-9)
    assert there.extra["start"] == here.extra["start"]
    assert there.extra["versions"]["cavity"]
    assert there.peak_memory > 1e6


def test_the_papers_table_is_typed_in_whole():
    assert len(TABLE1) == 8 * len(FRACTIONS) * len(METHODS)
    assert TABLE1["pima", 0.15, "SVI"] == (0.49, 0.05)
    assert TABLE1["sonar", 0.5, "SEP"] == (0.29, 0.09)
    assert TABLE1["seconds", 0.25, "GFITC"] == (133, 6)


def test_a_run_out_of_time_shows_what_it_has(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(machine, "LOCK", tmp_path / "lock")  # a real run may hold the machine
    experiments.run("fig3-time-image", tmp_path)
    (tmp_path / "fig3-time-image.jsonl").rename(tmp_path / "fig3-time-image-quick-stand-ins.jsonl")
    options = ["--quick", "--stand-ins", "--out", str(tmp_path), "--figures", str(tmp_path)]
    # One split more than is recorded, and no time for it.
    arguments = ["run", "fig3-time-image", "--splits", "2", "--minutes", "-1", *options]
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert "time of this run is up" in err
    assert "| 4 | SEP |" in out
    assert (tmp_path / "fig3-time-image-quick-stand-ins.png").exists()

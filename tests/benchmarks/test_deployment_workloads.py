"""The workloads of a classifier to deploy: their tables, and that they run."""

import re
from dataclasses import replace

import experiments
import numpy as np
import pytest
from benchmarks.data import Dataset
from benchmarks.here import Here
from benchmarks.methods import MethodFailedError
from benchmarks.records import Repetition, read
from benchmarks.registry import benchmarks
from benchmarks.results import LOSSES, TEMPLATE
from benchmarks.workloads import defaults, known_gp, leaves, sixty_seconds, step_rate, tables


def fit(label, nll, *, dataset="d", split=0, seconds=1.0, m=25, ece=0.01):
    return Repetition(
        "w",
        label,
        label,
        dataset,
        split,
        {"parameters": {"n_inducing": m}},
        seconds=seconds,
        metrics={"nll": nll, "error": 0.1, "ece": ece},
        extra={"m": m},
    )


def test_every_benchmark_is_on_the_results_page():
    places = set(re.findall(r"^\{\{ ([\w-]+) \}\}$", TEMPLATE.read_text(encoding="utf-8"), re.MULTILINE))
    assert {*benchmarks(), LOSSES} == places


def test_the_table_of_defaults_says_what_misses():
    ours, linear = defaults.OURS.label, defaults.LOGISTIC.label
    repetitions = [
        fit(ours, 0.32, dataset="heart"),
        fit(linear, 0.30, dataset="heart"),
        fit(ours, 0.34, dataset="heart", split=1),
        fit(linear, 0.30, dataset="heart", split=1),
        fit(ours, 0.20, dataset="adult", ece=0.03),
        fit(linear, 0.30, dataset="adult"),
    ]
    text = defaults.table(repetitions)
    assert "on 1 of 2 sets; worse by more than 0.01: heart (+0.0300 ± 0.0100)." in text
    assert "above 0.02 on adult (0.0300) of adult." in text
    assert "| heart | 2 | 0.3300 / 10.00 / 0.0100 | 0.3000" in text
    assert "| -0.1000 | 1.0 |" in text  # one split has no standard error


def test_a_fit_here_fails_with_its_reason():
    data = Dataset(np.eye(20), np.tile([-1, 1], 10).astype(np.int8), "d")
    with pytest.raises(MethodFailedError, match="n_inducing"):
        Here("sep")(data, data, {"seed": 0, "parameters": {"n_inducing": -1}}, None)


def raced(nll=0.2, *, label="default", dataset="mnist", seed=0, chosen="b, m=400", **extra):
    """A fit with a budget of 10 s, of which the race took 3 s."""
    race = [
        entry("a, m=200", 3, 0.30, 200),
        entry("b, m=400", 3, 0.31, 400),
        entry("c, m=100", 1, 0.33, 100),
        entry("b, m=100", 1, 0.32, 100),
        entry("d, m=100", 1, 0.34, 100),
        entry("e, m=100", 1, float("inf"), 100),
    ]
    race = [{**one, "chosen": one["candidate"] == chosen} for one in race]
    return Repetition(
        "w",
        label,
        label,
        dataset,
        0,
        {"seed": seed},
        10.0,
        seconds=10.5,
        metrics={"nll": nll, "error": 0.1, "ece": 0.01 + nll / 10},
        extra={"race": race, "race_seconds": 3.0, **extra},
    )


def entry(candidate, length, nll, m):
    parameters = {"n_inducing": m, "config": {"name": candidate[0]}}
    return {"candidate": candidate, "length": length, "held_out_nll": nll, "parameters": parameters}


def test_tables_are_compared_with_the_better_tree():
    ours, (first, second), linear = (
        tables.OURS.label,
        (c.label for c in tables.TREES),
        tables.LINEAR.label,
    )
    repetitions = [
        fit(ours, 0.30, dataset="adult", ece=0.01),
        fit(first, 0.25, dataset="adult", ece=0.02),
        fit(second, 0.40, dataset="adult", ece=0.03),
        fit(linear, 0.29, dataset="adult"),
        fit(ours, 0.20, dataset="kick", ece=0.01),
        fit(second, 0.25, dataset="kick", ece=0.02),
        fit(ours, 0.50, dataset="airline", ece=0.01),
    ]
    text = tables.table(repetitions)
    assert "| adult | 0.3000 / 0.0100 / 1 | 0.2500 / 0.0200 / 1 | 0.4000 / 0.0300 / 1 |" in text
    assert "| 0.2900 / 0.0100 / 1 | 1.200 |" in text
    assert "* geometric mean of the ratios on tables: 0.9798, at most 1: met" in text
    assert "* tables with a ratio above 1.05 (adult): 1, at most 2: met" in text
    assert "* airline, NLL: 0.5, at most 0.56: met" in text
    assert "* mean ECE: 0.01, at most 0.02: met" in text
    assert "* worst ratio to logistic regression (adult): 1.034, at most 1.01: **missed**" in text


class TestSixtySeconds:
    def test_medians_and_a_verdict_for_each_goal(self):
        text = sixty_seconds.table([raced(nll, seed=k) for k, nll in enumerate((0.03, 0.5, 0.02))])
        row = "| mnist | 3 | 0.0300 (0.0200 … 0.5000) | 10.00 | 0.0130 | 10.5 | 30 % | b, m=400 |"
        assert row in text
        assert "* mnist, NLL: 0.0300, at most 0.036: met" in text
        assert "* mnist, ECE: 0.0130, at most 0.015: met" in text
        assert "* mnist, share of the race: 0.3000, at most 0.4: met" in text
        assert "* mnist, budget overrun: 0.0500, at most 0.1: met" in text
        assert "* mnist, NLL: 0.2000, at most 0.036: **missed**" in sixty_seconds.table([raced()])

    def test_a_small_set_has_no_race(self):
        text = sixty_seconds.table([replace(raced(dataset="heart"), extra={})])
        assert "| 0 % | no race |" in text

    def test_late_candidates_are_trained_alone(self):
        """Those of the last trials; of the others the best two, with the winner's inducing points."""
        alone = {
            c.label: c.settings["parameters"] for c in sixty_seconds.candidates(raced().extra["race"])
        }
        assert list(alone) == ["a, m=200", "b, m=400", "a, m=400", "c, m=400"]
        assert alone["c, m=400"] == {"n_inducing": 400, "config": {"name": "c"}}

    def test_other_candidates_get_the_leaves_of_the_winner(self):
        winner = {**entry("b, m=20 + 4 leaves × 100", 6, 0.2, 20), "chosen": True}
        winner["parameters"] = {"n_inducing": 20, "leaves": 4, "config": {"name": "b", "n_local": 100}}
        other = {**entry("c, m=100", 1, 0.3, 100), "chosen": False}
        found = sixty_seconds.candidates([winner, other])
        assert [c.label for c in found] == ["b, m=20 + 4 leaves × 100", "c, m=20 + 4 leaves × 100"]
        given = found[1].settings["parameters"]
        assert given == {"n_inducing": 20, "leaves": 4, "config": {"name": "c", "n_local": 100}}

    def test_the_choice_beside_the_best(self):
        fits = [raced(0.21), raced(0.2, label="b, m=400"), raced(0.199, label="a, m=200")]
        fits += [replace(r, dataset="skin") for r in fits[:2]]
        fits += [raced(0.1, dataset="skin", label="a, m=200")]
        fits += [raced(0.1, dataset="adult")]  # no candidate has run yet
        text = sixty_seconds.choice_table(fits)
        row = "| mnist | 2 | b, m=400 | 0.2000 | a, m=200 | 0.1990 | 0.5 % | 0.2100 | +5.5 % | 30 % |"
        assert row in text
        assert "within 1 % of the best on 1 of 2; the fit that includes the race is on 0 of 2." in text

    def test_the_choice_beside_a_fit_without_leaves(self):
        without = leaves.WITHOUT.label
        fits = [raced(0.2), raced(0.19, label=without)]
        fits += [raced(0.1, dataset="adult"), raced(0.1, dataset="adult", label=without)]
        text = leaves.choice_table([*fits, raced(0.1, dataset="skin")])
        assert "| mnist | b, m=400 | 0.2000 | 0.1900 | 1.053 |" in text
        assert "Above 1.01: mnist (1.053)." in text
        assert "skin" not in text

    @pytest.mark.parametrize("name", ["sixty-seconds", "race-choice"])
    def test_it_runs_and_pins_the_candidates(self, name, tmp_path, monkeypatch, few_test_rows):
        split = known_gp.drawn(2, "smooth", 2_100, 0)
        monkeypatch.setattr(sixty_seconds, "one_split", lambda name: split)
        item, path = experiments.run(name, tmp_path, budget=0.1)
        default, *alone = read(path).repetitions
        assert [r.failure for r in (default, *alone)] == [None] * (1 + len(alone))
        assert "race" in default.extra
        assert not any("race" in r.extra for r in alone)
        assert len(alone) >= (3 if name == "race-choice" else 0)
        assert "| 2 inputs, smooth |" in item.table([default, *alone])


@pytest.fixture
def few_test_rows(monkeypatch):
    monkeypatch.setattr(known_gp, "TEST_ROWS", 50)


@pytest.mark.usefixtures("few_test_rows")
class TestKnownGP:
    def test_sets_of_one_seed_share_function_and_rows(self):
        few, many = (known_gp.drawn(2, "hard", n, 0) for n in (30, 50))
        np.testing.assert_array_equal(few.train.X, many.train.X[:30])
        np.testing.assert_allclose(few.train.f, many.train.f[:30], atol=1e-12)
        np.testing.assert_array_equal(few.train.y, many.train.y[:30])
        other = known_gp.drawn(2, "hard", 30, 1)
        assert not np.allclose(few.train.X, other.train.X)
        assert not np.allclose(few.train.X[:20], few.test.X[:20])

    def test_the_function_has_the_stated_kernel(self):
        """Over many seeds: its variance, and its covariance at a distance of one lengthscale."""
        lengthscale, variance = known_gp.FUNCTIONS[2, "hard"]
        rng = np.random.default_rng(0)
        pair = np.array([[0.3, -0.2], [0.3 + lengthscale, -0.2]])
        f = np.array([known_gp._values(pair, *known_gp.spectrum(2, "hard", rng)) for _ in range(1_000)])
        assert f.var() == pytest.approx(variance, rel=0.1)
        assert np.mean(f[:, 0] * f[:, 1]) == pytest.approx(variance * np.exp(-0.5), rel=0.1)

    def scored(self, n, seed, label="default", **changes):
        names = ("coverage", "slope", "excess", "width", "aleatoric", "epistemic", "ood")
        latent = dict(zip(names, (0.95, 1.0, 0.02, 2.0, 0.3, 0.05, 0.1), strict=True)) | changes
        settings = {"seed": seed, "rows": n}
        return Repetition("w", label, label, "d", seed, settings, extra={"latent": latent})

    def test_goals_and_steps(self):
        fits = [self.scored(500, 0), self.scored(9_500, 0), self.scored(9_500, 1, width=2.1)]
        fits += [
            self.scored(10_500, 0, width=4.0, ood=0.104),
            self.scored(10_500, 1, width=4.2, ood=0.104),
        ]
        fits += [self.scored(100_000, 0, coverage=0.7, slope=1.2, excess=0.03)]
        text = known_gp.table(fits)
        assert "| d | 9,500 | default | 2 | 0.95 | 1 | 0.02 | 2.05 | 0.3 | 0.05 | 0.1 |" in text
        assert "| d | 100,000 | default | 1 | 0.7* | 1.2* | 0.03 |" in text
        assert "missed by coverage 0.70 (d, n = 100,000, default), slope 1.20 (d, n = 1" in text
        assert "rises with n: d, 9,500 to 100,000 (default)." in text
        assert "| 9,500 and 10,500 | d | default | +0 ± 0 | +2.05 ± 0.1* |" in text
        assert "of the value: width +2.05 (d, n = 10,500, default)." in text

    def test_it_runs(self, tmp_path, monkeypatch):
        monkeypatch.setattr(known_gp, "SIZES", (60, 70))
        item, path = experiments.run("known-gp", tmp_path, budget=0.1)
        done = read(path).repetitions
        assert [r.failure for r in done] == [None] * 16
        assert "| 6 inputs, hard | 70 | sharp | 1 |" in item.table(done)


def test_uci_says_whether_a_fit_is_short():
    fits = [fit("cavity SEP", 0.2, dataset=d, seconds=s) for d, s in (("a", 0.3), ("b", 0.1))]
    text = benchmarks()["uci"].table(fits)
    assert "cavity SEP: 0.20 s a fit in the mean of 2, at most 0.25 s: met." in text
    assert "**missed**" in benchmarks()["uci"].table(fits[:1])


def test_step_rates_go_by_the_best_round_and_the_threads_that_suit_a_peer():
    def steps(label, split, rate):
        return Repetition("w", label, label, "d", split, {}, extra={"steps_per_second": rate})

    adam, natural = step_rate.COMPARED
    rounds = [
        ("cavity", (100.0, 300.0, 250.0)),
        (f"{adam}, 1 thread", (150.0, 90.0, 140.0)),
        (f"{adam}, all threads", (120.0, 80.0, 100.0)),
        (f"{natural}, 1 thread", (50.0, 75.0, 60.0)),
    ]
    text = step_rate.table([steps(label, k, r) for label, rates in rounds for k, r in enumerate(rates)])
    assert "| cavity | 300 | 250 | 2.00 | 4.00 |" in text

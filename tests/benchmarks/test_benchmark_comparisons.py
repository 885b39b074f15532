"""Footers and warnings of the page, where we lose, ranks, searches, foreign rows."""

import doctest

import experiments
import numpy as np
import pytest
from benchmarks.data import Dataset, splits
from benchmarks.load import LIMIT
from benchmarks.methods import MethodFailedError, Result, methods
from benchmarks.metrics import auroc, rejection
from benchmarks.peers.search import Searched, hold_out
from benchmarks.records import RecordFile, Records, Repetition, read
from benchmarks.summary import Scores
from benchmarks.workloads import scale, small, uncertainty

from benchmarks import losses, metrics, results, stand_ins, summary, tables


def fit(label, nll, dataset="d", split=0, method=None, **rest):
    rest = {"seconds": 1.0, "metrics": {"nll": nll, "error": 0.1, "ece": 0.02}} | rest
    return Repetition("w", label, method or label, dataset, split, {}, **rest)


@pytest.mark.parametrize("module", [losses, metrics, summary])
def test_examples(module):
    assert doctest.testmod(module).failed == 0


NEW = {"cpu": "A", "cores": 2, "numpy": "2", "commit": "abc", "code": "new", "date": "2026-02-02"}
OLD = {"cpu": "B", "cores": 4, "numpy": "1", "commit": "def+", "date": "2026-01-01"}


class TestFooter:
    def test_it_names_machines_versions_days_and_commits(self):
        stored = Records([OLD, NEW], [fit("a", 1.0), fit("b", 1.0)], [0, 1])
        text = results.footer(stored, "new")
        assert "B, 4 cores; A, 2 cores; NumPy 1 and 2; 2026-01-01 to 2026-02-02; " in text
        assert "commit def+ (1), abc (1)." in text

    def test_it_warns_of_other_code_changed_trees_and_busy_machines(self):
        ours = {"method": "cavity-sep"}
        stored = Records(
            [OLD, NEW],
            [
                fit("a", 1.0, **ours, code="old"),
                fit("b", 1.0, **ours, code="new", load=LIMIT + 0.1),
                fit("c", 1.0, code="a peer's"),
            ],
            [0, 1, 1],
        )
        assert results.warnings(stored, "new") == [
            "1 of 3 measurements are of older code than the newest on this page.",
            "1 of 3 measurements are of a tree with changes or no known commit.",
            "1 of 3 measurements are of a busy machine.",
        ]
        clean = Records([NEW], [fit("c", 1.0, code="a peer's")], [0])
        assert results.warnings(clean, "new") == []

    def test_the_newest_code_is_that_of_the_last_run(self):
        machines = [
            {"code": c, "date": d, "time": t}
            for c, d, t in (
                ("a", "2026-01-02", "09:00"),
                ("b", "2026-01-02", "10:00"),
                ("c", "2026-01-01", "11:00"),
            )
        ]
        assert results.newest_code([Records(machines[:2], []), Records(machines[2:], [])]) == "b"
        assert results.newest_code([Records([OLD], [])]) is None


def test_a_method_that_refused_its_steps_has_failed(tmp_path):
    file = RecordFile(tmp_path / "r.jsonl", dict)
    file.append(fit("A", 1.946, extra={"steps": 372, "refused_steps": 372}))
    file.append(fit("B", 0.5, extra={"steps": 372, "refused_steps": 20}))
    first, second = read(file.path).repetitions
    assert first.failure == "refused 372 of 372 steps"
    assert second.failure is None
    assert tables.failures([first, second]) == "\n\n* A failed: `refused 372 of 372 steps`"


class TestLosses:
    def test_every_set_with_a_better_peer_is_named(self):
        fits = [
            fit("cavity SEP", 0.30, "one", method="cavity-sep"),
            fit("cavity SVI", 0.10, "one", method="cavity-svi"),
            fit("B", 0.25, "one"),
            fit("C", 0.20, "one"),
            fit("D", 0.01, "one", failure="no"),
            fit("cavity SEP", 0.1, "two", method="cavity-sep"),
            fit("B", 0.2, "two"),
        ]
        (loss,) = losses.losses("w", fits)
        assert loss.row() == ["w", "one", "NLL", "cavity SEP 0.3000", "C 0.2000; B 0.2500"]
        assert "| w | one | NLL |" in losses.table([loss])
        assert losses.table([]) == "*Nowhere in these records.*"

    def test_only_common_splits_and_the_longest_budget_count(self):
        ours = {"method": "cavity-sep"}
        fits = [
            fit("cavity", 0.5, split=0, budget=3.0, **ours),
            fit("cavity", 0.3, split=0, budget=9.0, **ours),
            fit("cavity", 0.9, split=1, budget=9.0, **ours),
            fit("B", 0.4, split=0),
        ]
        assert losses.losses("w", fits) == []

    def test_rates_are_better_if_they_are_larger_in_the_best_round(self):
        def rate(label, split, value):
            return fit(label, 1.0, split=split, extra={"steps_per_second": value})

        fits = [rate("cavity", k, v) for k, v in enumerate((9.0, 10.0))]
        fits += [rate("B", k, v) for k, v in enumerate((1.0, 12.0))] + [rate("C", 1, 9.5)]
        (loss,) = losses.losses("w", fits, [losses.STEPS])
        assert loss.better == {"B": 12.0}


FITS = [
    fit(label, nll, dataset)
    for label, values in {"A": (0.1, 0.4, 0.9), "B": (0.2, 0.2, 0.9), "C": (0.4, 0.4)}.items()
    for dataset, nll in zip("xyz", values, strict=False)
]


class TestSummary:
    def test_ranks_wins_and_ratios(self):
        scores = Scores.of(FITS).complete()
        assert scores.labels == ["A", "B"]
        np.testing.assert_allclose(scores.ranks(), [[1, 2, 1.5], [2, 1, 1.5]])
        np.testing.assert_allclose(scores.ratios(), [[1, 2, 1], [2, 1, 1]])
        text = summary.table(scores)
        assert "| A | 1.50 | 2 | 1.260 | 0.0200 | 1.0 | 3 |" in text

    def test_the_sets_of_a_method_that_has_only_some(self):
        scores = Scores.of(FITS).only("C")
        assert scores.labels == ["A", "B", "C"]
        assert scores.datasets == ["x", "y"]
        np.testing.assert_allclose(scores.ranks()[:, 1], [2.5, 1, 2.5])

    def test_it_is_drawn(self, tmp_path):
        files = summary.draw(Scores.of(FITS), tmp_path / "s")
        assert all(file.stat().st_size > 2_000 for file in files)


class TestSearch:
    DATA = Dataset(np.arange(100.0)[:, None], np.tile([-1, 1], 50).astype(np.int8), "d")

    def method(self, nll, calls):
        def run(train, test, settings, budget):
            calls.append((len(train.y), settings, budget))
            if settings.get("broken"):
                raise MethodFailedError("no\nsuch kernel")
            return Result(nll + settings.get("rate", 0.0), 0.1, 2.0)

        return run

    def test_the_best_on_held_out_rows_is_trained_on_all_rows(self):
        calls = []
        searched = Searched({"a": self.method(0.5, calls), "b": self.method(0.3, calls)})
        candidates = [
            {"method": "a"},
            {"method": "b", "rate": 0.1},
            {"method": "b"},
            {"method": "b", "broken": True},
        ]
        settings = {"seed": 0, "m": 5, "search": {"seconds": 3.0, "candidates": candidates}}
        done = searched(self.DATA, self.DATA, settings, 60.0)
        assert [n for n, _, _ in calls] == [90] * 4 + [100]
        assert [budget for _, _, budget in calls] == [3.0] * 4 + [60.0]
        assert calls[-1][1] == {"seed": 0, "m": 5}
        assert done.extra["chosen"] == {"method": "b"}
        assert done.extra["search_seconds"] == 6.0
        assert done.extra["search"][3]["failure"] == "such kernel"
        r = fit("P", 0.3, extra=done.extra)
        assert "P on d chose b (method) of 4 candidates, in 6 s" in tables.choices([r])

    def test_it_fails_if_all_do(self):
        searched = Searched({"a": self.method(0.5, [])})
        candidates = [{"method": "a", "broken": True}]
        with pytest.raises(MethodFailedError, match="every candidate failed; the last: such kernel"):
            searched(self.DATA, self.DATA, {"search": {"seconds": 1.0, "candidates": candidates}}, 1.0)

    def test_held_out_rows_are_not_trained_on(self):
        inner, held_out = hold_out(self.DATA, 3)
        assert sorted([*inner.X[:, 0], *held_out.X[:, 0]]) == list(range(100))
        np.testing.assert_array_equal(hold_out(self.DATA, 3)[1].X, held_out.X)


class TestUncertainty:
    def test_auroc_is_the_share_of_pairs_in_order(self):
        rng = np.random.default_rng(0)
        known, foreign = rng.integers(5, size=30), rng.integers(7, size=20)
        pairs = np.sign(foreign[:, None] - known) / 2 + 0.5
        assert auroc(known, foreign) == pytest.approx(pairs.mean())

    def test_rejection_leaves_the_certain_rows(self):
        rng = np.random.default_rng(0)
        score, correct = rng.uniform(size=40), rng.uniform(size=40) < 0.7
        for share, error in zip(metrics.SHARES, rejection(correct, score), strict=True):
            kept = score <= np.sort(score)[39 - round(share * 40)]
            assert error == pytest.approx(np.mean(~correct[kept]))

    def test_foreign_rows_are_told_but_not_scored(self):
        log_p = np.log([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.6, 0.4]])
        y = np.array([-1, 1, -1, -1])
        done = Result.from_log_probabilities(
            log_p, y, 1.0, n_foreign=2, uncertainty={"ood": np.array([0.0, 1.0, 0.5, 2.0])}
        )
        assert done.nll == pytest.approx(-np.log([0.9, 0.8]).mean())
        assert done.extra["auroc"] == {"entropy": 1.0, "ood": 0.75}
        assert done.extra["rejection"]["ood"] == [0.0] * 6
        assert "rejection" not in Result.from_log_probabilities(log_p, y, 1.0).extra

    def test_foreign_images_have_the_size_and_range_of_the_others(self):
        for images in (uncertainty.digits(), uncertainty.photographs()):
            assert images.shape[1] == 28 * 28
            assert 0.0 <= images.min() < images.max() <= 1.0
        first = uncertainty.photographs()[0].reshape(28, 28)
        assert np.abs(np.diff(first)).mean() < 0.2  # a square of a picture, not of mixed pixels

    def test_months_after_spring_are_foreign(self):
        with stand_ins.instead():
            with_month = uncertainty.months("airline", with_month=True)
            without = uncertainty.months("airline", with_month=False)
        d = with_month.train.X.shape[1]
        assert without.train.X.shape[1] == d - 1
        n = with_month.test.n_foreign
        assert n > 100
        assert with_month.test.X[-n:, -1].min() > with_month.train.X[:, -1].max()
        assert with_month.test.X[:-n, -1].max() <= with_month.train.X[:, -1].max()

    def test_permuted_columns_keep_their_values_and_lose_their_rows(self):
        with stand_ins.instead():
            split = uncertainty.permuted("german_credit")
        n = split.test.n_foreign
        own, mixed = split.test.table.slice(0, n), split.test.table.slice(n)
        assert own != mixed
        for name in own.column_names:
            assert sorted(own[name].to_pylist()) == sorted(mixed[name].to_pylist())

    def test_every_method_is_asked_on_every_pair(self, tmp_path):
        names = {c.method for c in (*uncertainty.ARRAYS, *uncertainty.FRAMES)}
        item, path = experiments.run("uncertainty", tmp_path, own=dict.fromkeys(names, guess))
        done = read(path).repetitions
        assert len(done) == 4 * len(uncertainty.ARRAYS) + len(uncertainty.FRAMES)
        assert all(set(r.extra["auroc"]) == {"entropy", "epistemic"} for r in done)
        text = item.table(done)
        assert "| MNIST, photographs | cavity SEP |" in text
        assert "| german_credit, columns permuted | cavity | epistemic |" in text
        assert all(file.exists() for file in item.draw(done, tmp_path / "u"))


def guess(train, test, settings, budget):
    """Says anything."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.1, 0.9, len(test.y))
    return Result.from_log_probabilities(
        np.log(np.column_stack([1 - p, p])),
        test.y,
        1.0,
        n_foreign=test.n_foreign,
        uncertainty={"epistemic": p},
        extra={"one_row_microseconds": 50.0},
    )


def test_our_worker_gives_scores_of_foreign_rows_and_the_time_of_one_row():
    with stand_ins.instead():
        split = next(splits("heart", 1))
    split = uncertainty.with_foreign(split, split.test.X + 100.0, "far")
    settings = {"m": 5, "seed": 0, "threads": 1, "one_row": True, "uncertainty": True}
    settings["parameters"] = {"max_epochs": 5}
    done = methods()["cavity-sep"](split.train, split.test, settings, None)
    assert set(done.extra["auroc"]) == {"entropy", "epistemic", "ood"}
    assert done.extra["auroc"]["ood"] == 1.0
    assert done.extra["one_row_microseconds"] > 1.0
    assert done.curve == []


def test_a_fit_from_files_of_every_series(tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "QUICK", {"classes": (3,)})
    monkeypatch.setattr(scale, "QUICK_BASE", {**scale.BASE, "rows": 200, "m": 5})
    item, path = experiments.run("scale", tmp_path)
    done = read(path).repetitions
    assert [(r.extra["rows"], r.extra["classes"]) for r in done] == [(200, 3)]
    text = item.table(done)
    assert "| classes | s a fit |" in text
    assert "with rows 200, inducing points m 5, columns 8" in text
    assert all(file.exists() for file in item.draw(done, tmp_path / "s"))


def test_small_fits_tell_the_time_of_one_row(tmp_path):
    names = {c.method for c in small.CONTENDERS}
    item, path = experiments.run("small", tmp_path, own=dict.fromkeys(names, guess))
    done = read(path).repetitions
    assert len(done) == len(small.CONTENDERS)
    assert " / 1.000 / 50 |" in item.table(done)
    assert small._cell([]) == tables.MISSING

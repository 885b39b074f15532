"""The results page, the comparison of commits, tables and the progress bar."""

import doctest
import io
from pathlib import Path

import pytest
from benchmarks.__main__ import README, RECORDS, RESULTS
from benchmarks.drawing import mean_curve
from benchmarks.progress import Bar
from benchmarks.records import Repetition

from benchmarks import compare, progress, records, results, same_results, tables


def repetition(label, seconds, nll, budget=None, **rest):
    curve = [{"seconds": s, "nll": v, "error": v} for s, v in zip(seconds, nll, strict=True)]
    return Repetition("w", label, label, "d", 0, {}, budget, curve=curve, **rest)


def test_the_committed_page_is_what_the_records_say():
    text = Path(RESULTS).read_text(encoding="utf-8")
    assert text == results.page(RECORDS), "run: python -m benchmarks results"


def test_the_readmes_table_is_what_the_records_say():
    text = README.read_text(encoding="utf-8")
    assert text == results.readme(text, RECORDS), "run: python -m benchmarks results"
    with pytest.raises(ValueError, match="lacks <!-- results"):
        results.readme("# A page", RECORDS)


def test_the_readme_shows_the_best_variant_of_a_library(tmp_path):
    file = records.RecordFile(tmp_path / "airline.jsonl", dict)
    for label, nll in (("GPflow, searched", [0.9, 0.5]), ("GPflow, searched, whitened", [0.8, 0.6])):
        file.append(repetition(label, [5.0, 90.0], nll, 90.0, metrics={"nll": nll[-1], "error": 0.1}))
    for budget, nll in ((6.0, 0.7), (90.0, 0.4)):
        end = {"metrics": {"nll": nll, "error": 0.1}}
        file.append(repetition("cavity SEP", [1.1 * budget], [nll], budget, **end))
    text = results.readme_table(tmp_path)
    assert "| GPflow, its best | – | – | 0.9000 | 0.5000 |" in text
    assert "| cavity SEP | – | – | 0.7000 | 0.4000 |" in text


def test_a_benchmark_without_records_says_how_to_get_them(tmp_path):
    text = results.page(tmp_path, "{{ table1 }}\n")
    assert text == "*Not recorded yet; `python -m benchmarks run table1` measures it.*\n"
    with pytest.raises(ValueError, match="asks for 'table9'"):
        results.page(tmp_path, "{{ table9 }}\n")


@pytest.mark.parametrize("module", [compare, progress, records, results, same_results])
def test_examples(module):
    assert doctest.testmod(module).failed == 0


def test_only_a_slow_down_beyond_the_noise_counts():
    quiet = [{"a": 1.0, "b": 1.0, "gone": 1.0}, {"a": 1.01, "b": 1.0, "gone": 1.0}]
    slower = [{"a": 1.2, "b": 1.05}, {"a": 1.21, "b": 1.06}]
    found = {v.name: v for v in compare.verdicts(quiet, slower)}
    assert set(found) == {"a", "b"}
    assert found["a"].slower
    assert not found["b"].slower  # five per cent is no alarm
    noisy = [{"a": 1.0}, {"a": 1.4}]
    assert not compare.verdicts(noisy, [{"a": 1.2}, {"a": 1.3}])[0].slower


def test_the_working_tree_is_its_own_worktree():
    with compare.worktree(None) as tree:
        assert (tree / "src" / "cavity").is_dir()


def test_seconds_to_reach_take_the_shortest_fit():
    rows = [
        repetition("A", [3.0], [0.5], budget=3.0),
        repetition("A", [6.0], [0.3], budget=6.0),
        repetition("B", [1.0, 2.0, 4.0], [0.6, 0.4, 0.2]),
        repetition("C", [], [], failure="out of memory"),
    ]
    text = tables.seconds_to_reach(rows, (0.45, 0.25))
    assert "| A | 6.0 | – |" in text
    assert "| B | 2.0 | 4.0 |" in text
    assert "| C | – | – |" in text
    assert tables.failures(rows) == "\n\n* C failed: `out of memory`"


def test_mean_curve_waits_for_all_and_keeps_what_has_ended():
    rows = [repetition("A", [1.0, 2.0], [1.0, 0.5]), repetition("A", [2.0, 8.0], [0.9, 0.1])]
    seconds, mean, error = mean_curve(rows, "nll", points=3)
    assert seconds == pytest.approx([2.0, 4.0, 8.0])
    assert mean == pytest.approx([0.7, 0.7, 0.3])
    assert error == pytest.approx([0.2, 0.2, 0.2])


def test_the_bar_counts_and_estimates():
    stream = io.StringIO()
    bar = Bar(stream)
    bar.starting("nothing is known of the total: silent")
    assert not stream.getvalue()
    bar.expect(4)
    bar.step(measured=False)
    bar.step(measured=True)
    bar.starting("heart, SEP")
    assert "2/4, about" in stream.getvalue()
    assert "heart, SEP" in stream.getvalue()

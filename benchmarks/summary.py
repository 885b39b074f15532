"""Many methods on many sets in one table: ranks, wins, ratios, calibration, seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, studentized_range

from benchmarks.drawing import (
    BLACK,
    BLUE,
    COLUMN,
    GREEN,
    ORANGE,
    SKY,
    VERMILION,
    YELLOW,
    figure,
    labelled,
    plain_ticks,
    time_axis,
)
from benchmarks.records import Repetition
from benchmarks.tables import MISSING, markdown

LEVEL = 0.95
"""Confidence level of the critical difference."""


@dataclass(frozen=True)
class Scores:
    """NLL, ECE and seconds of methods on sets, each [methods, sets]; NaN where there is none."""

    labels: list[str]
    datasets: list[str]
    nll: NDArray[np.float64]
    ece: NDArray[np.float64]
    seconds: NDArray[np.float64]

    @classmethod
    def of(cls, repetitions: Sequence[Repetition]) -> Scores:
        """Means over the splits."""
        done = [r for r in repetitions if r.failure is None and "nll" in r.metrics]
        labels = list(dict.fromkeys(r.label for r in done))
        datasets = list(dict.fromkeys(r.dataset for r in done))
        sums = np.zeros((4, len(labels), len(datasets)))
        for r in done:
            at = labels.index(r.label), datasets.index(r.dataset)
            values = (r.metrics["nll"], r.metrics.get("ece", np.nan), r.seconds or np.nan, 1.0)
            sums[(slice(None), *at)] += values
        count = np.where(sums[3] > 0, sums[3], np.nan)
        return cls(labels, datasets, *(sums[:3] / count))

    def complete(self) -> Scores:
        """The sets that every method has which has most of them."""
        many = np.isfinite(self.nll).sum(axis=1)
        methods = [k for k in range(len(self.labels)) if many[k] == many.max(initial=0)]
        sets = np.flatnonzero(np.isfinite(self.nll[methods]).all(axis=0))
        part = np.ix_(methods, sets)
        return Scores(
            [self.labels[k] for k in methods],
            [self.datasets[k] for k in sets],
            self.nll[part],
            self.ece[part],
            self.seconds[part],
        )

    def only(self, label: str) -> Scores:
        """The sets that a method has, and the methods that have all of these."""
        sets = np.flatnonzero(np.isfinite(self.nll[self.labels.index(label)]))
        rows = np.flatnonzero(np.isfinite(self.nll[:, sets]).all(axis=1))
        part = np.ix_(rows, sets)
        return Scores(
            [self.labels[k] for k in rows],
            [self.datasets[k] for k in sets],
            self.nll[part],
            self.ece[part],
            self.seconds[part],
        )

    def ranks(self) -> NDArray[np.float64]:
        """By NLL, 1 is the lowest; equal ones share their mean rank [methods, sets]."""
        return np.asarray(rankdata(self.nll, axis=0), dtype=np.float64)

    def ratios(self) -> NDArray[np.float64]:
        """NLL over the lowest of the set [methods, sets]."""
        return self.nll / self.nll.min(axis=0)


def critical_difference(n_methods: int, n_sets: int) -> float:
    """Mean ranks that differ by less may do so by chance (Nemenyi, 5 %).

    >>> round(critical_difference(5, 30), 2)  # Demšar (2006), Table 5: q = 2.728
    1.11
    """
    q = studentized_range.ppf(LEVEL, n_methods, np.inf) / np.sqrt(2.0)
    return float(q * np.sqrt(n_methods * (n_methods + 1) / (6.0 * n_sets)))


def table(scores: Scores) -> str:
    """A row a method, the best mean rank first; then the critical difference of the ranks."""
    if len(scores.labels) < 2 or not scores.datasets:
        return ""
    ranks, ratios = scores.ranks(), scores.ratios()
    order = np.argsort(ranks.mean(axis=1), kind="stable")
    rows = [
        [
            scores.labels[k],
            f"{ranks[k].mean():.2f}",
            f"{np.sum(scores.nll[k] <= scores.nll.min(axis=0))}",
            f"{np.exp(np.log(ratios[k]).mean()):.3f}",
            f"{scores.ece[k].mean():.4f}" if np.isfinite(scores.ece[k]).all() else MISSING,
            f"{np.median(scores.seconds[k]):.1f}",
            f"{scores.seconds[k].sum():.0f}",
        ]
        for k in order
    ]
    n, sets = len(scores.labels), len(scores.datasets)
    header = [
        f"on {sets} sets",
        "mean rank",
        "wins",
        "NLL over the best, geometric mean",
        "mean ECE",
        "median s",
        "s in all",
    ]
    chance = (
        f"Mean ranks that differ by less than {critical_difference(n, sets):.2f} may do so by chance."
    )
    return f"{markdown(header, rows)}\n\n{chance}"


COLOURS: Mapping[str, str] = {
    "cavity": BLUE,
    "LightGBM": VERMILION,
    "CatBoost": GREEN,
    "HistGradientBoosting": ORANGE,
    "logistic regression": BLACK,
    "xRFM": SKY,
    "RealMLP": YELLOW,
}


def draw(scores: Scores, stem: Path) -> list[Path]:
    """NLL over the best against seconds: a point a set, a large one for a method's geometric means."""
    with figure(stem, 2 * COLUMN, 3.2) as (axes, files):
        axis, markers = axes[0, 0], cycle("osD^vP*X")
        several = np.isfinite(scores.nll).sum(axis=0) > 1  # one method alone is not compared
        best = np.nanmin(scores.nll, axis=0)
        for k, label in enumerate(scores.labels):
            there = several & np.isfinite(scores.nll[k]) & np.isfinite(scores.seconds[k])
            ratio, seconds = (scores.nll[k] / best)[there], scores.seconds[k][there]
            if not len(ratio):
                continue
            colour, marker = COLOURS.get(label, BLACK), next(markers)
            axis.plot(seconds, ratio, marker, color=colour, markersize=2.5, alpha=0.45)
            middle = (np.exp(np.log(v).mean()) for v in (seconds, ratio))
            axis.plot(*middle, marker, color=colour, markersize=8, markeredgecolor="white", label=label)
        axis.set_yscale("log")
        plain_ticks(axis.yaxis, decades=1.0)
        time_axis(axis)
        labelled(axis, "training time (s)", "test NLL over the lowest of the set")
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return files

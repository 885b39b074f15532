"""Rows drawn from a known Gaussian process: what means and intervals of the latent function are worth.

Inputs are standard normal. The function is drawn once for each seed, with a squared exponential kernel,
by 2,048 random frequencies, so that its value is known at every row. A label is +1 with probability
Φ(f). Sets of different sizes with the same seed share the function and their first rows. So what differs
between neighbouring sizes is due to the classifier.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from benchmarks.context import Context
from benchmarks.data import Dataset, Split
from benchmarks.methods import Contender
from benchmarks.records import Repetition
from benchmarks.registry import benchmark
from benchmarks.tables import failures, markdown

FUNCTIONS: Mapping[tuple[int, str], tuple[float, float]] = {
    (2, "smooth"): (1.5, 4.0),
    (2, "hard"): (0.4, 9.0),
    (6, "smooth"): (4.0, 4.0),
    (6, "hard"): (2.0, 9.0),
}
"""Lengthscale and variance by number of inputs and difficulty."""
SIZES = (500, 2_000, 9_500, 10_500, 24_000, 26_000, 100_000)
NEIGHBOURS = ((9_500, 10_500), (24_000, 26_000))
SEEDS, TEST_ROWS, SECONDS = 3, 5_000, 14.0
FREQUENCIES, CHUNK = 2_048, 4_096

GOALS = {"coverage": (0.90, 0.98), "slope": (0.9, 1.1)}
CONTINUOUS = ("excess", "width", "aleatoric", "epistemic", "ood")
"""Scores that may not have a step between neighbouring sizes."""
SLIGHT = 0.05
"""A step by at most this share of the value is what more rows may change."""
MEASURES = {
    "coverage": "coverage",
    "slope": "slope",
    "excess": "NLL − Bayes rate",
    "width": "width",
    "aleatoric": "aleatoric",
    "epistemic": "epistemic",
    "ood": "ood score",
}
CONTENDERS = (
    Contender("default", "here-cavity-sep"),
    Contender(
        "sharp",
        "here-cavity-sep",
        {"parameters": {"config": {"residual_scale": 0.0, "trace_penalty": 0.0}}},
    ),
)

Scores = dict[str, float]
Cells = dict[tuple[str, str], dict[int, dict[int, Scores]]]
"""Scores by set and label, number of rows, and seed."""


def drawn(d: int, kind: str, n: int, seed: int) -> Split:
    """n training rows and `TEST_ROWS` test rows of one function."""
    function = spectrum(d, kind, np.random.default_rng([seed, d]))

    def part(size: int, number: int) -> Dataset:
        rows, labels = (np.random.default_rng([seed, d, number, k]) for k in range(2))
        X = rows.standard_normal((size, d))
        f = _values(X, *function)
        y = np.where(labels.uniform(size=size) < ndtr(f), 1, -1).astype(np.int8)
        return Dataset(X, y, f"{d} inputs, {kind}", f=f)

    return Split(part(n, 0), part(TEST_ROWS, 1), seed)


def spectrum(
    d: int, kind: str, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Frequencies [d, q], and the weights [2, q] of their cosines and sines, of a function."""
    lengthscale, variance = FUNCTIONS[d, kind]
    frequencies = rng.standard_normal((d, FREQUENCIES)) / lengthscale
    return frequencies, rng.standard_normal((2, FREQUENCIES)) * np.sqrt(variance / FREQUENCIES)


def _values(
    X: NDArray[np.float64], frequencies: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    f = np.empty(len(X))
    for first in range(0, len(X), CHUNK):
        phase = X[first : first + CHUNK] @ frequencies
        f[first : first + CHUNK] = np.cos(phase) @ weights[0] + np.sin(phase) @ weights[1]
    return f


def table(repetitions: Sequence[Repetition]) -> str:
    """Medians over the seeds; then the steps between neighbouring sizes; then what misses a goal."""
    cells: Cells = {}
    for r in repetitions:
        if r.failure is None:
            sizes = cells.setdefault((r.dataset, r.label), {})
            sizes.setdefault(r.settings["rows"], {})[r.split] = r.extra["latent"]
    rows, misses = [], []
    for (dataset, label), sizes in cells.items():
        for n, seeds in sorted(sizes.items()):
            middle = {name: median(s[name] for s in seeds.values()) for name in MEASURES}
            missed = [k for k, (low, high) in GOALS.items() if not low <= middle[k] <= high]
            misses += [f"{k} {middle[k]:.2f} ({dataset}, n = {n:,}, {label})" for k in missed]
            marked = [f"{middle[k]:.4g}" + "*" * (k in missed) for k in MEASURES]
            rows.append([dataset, f"{n:,}", label, str(len(seeds)), *marked])
    steps, beyond = _steps(cells)
    goals = " and ".join(f"{name} in {low:g} to {high:g}" for name, (low, high) in GOALS.items())
    parts = [markdown(["set", "n", "fit", "seeds", *MEASURES.values()], rows)]
    if steps:
        header = ["step between", "set", "fit", *(MEASURES[name] for name in CONTINUOUS)]
        parts.append(markdown(header, steps))
    parts.append(
        f"* Goals, {goals}: missed by {', '.join(misses) or 'none'}.\n"
        f"* NLL − Bayes rate rises with n: {', '.join(_rises(cells)) or 'nowhere'}.\n"
        f"* Steps beyond the seeds' noise and {100 * SLIGHT:.0f} % of the value: "
        f"{', '.join(beyond) or 'none'}."
    )
    return "\n\n".join(parts) + failures(repetitions)


def _rises(cells: Cells) -> Iterator[str]:
    """Where the median distance to the Bayes rate is larger with many more rows."""
    upper = {high for _, high in NEIGHBOURS}
    for (dataset, label), sizes in cells.items():
        excess = {
            n: median(s["excess"] for s in seeds.values())
            for n, seeds in sorted(sizes.items())
            if n not in upper
        }
        for few, many in pairwise(excess):
            if excess[many] > excess[few]:
                yield f"{dataset}, {few:,} to {many:,} ({label})"


def _steps(cells: Cells) -> tuple[list[list[str]], list[str]]:
    """The median of the seeds' differences ± their range, for each measure; and which are steps."""
    rows, beyond = [], []
    for (low, high), ((dataset, label), sizes) in product(NEIGHBOURS, cells.items()):
        pairs = [
            (sizes[low][seed], sizes[high][seed])
            for seed in sizes.get(low, {})
            if seed in sizes.get(high, {})
        ]
        if len(pairs) < 2:
            continue
        row = [f"{low:,} and {high:,}", dataset, label]
        for name in CONTINUOUS:
            change = [after[name] - before[name] for before, after in pairs]
            step, noise = median(change), max(change) - min(change)
            level = median(before[name] for before, _ in pairs)
            is_step = abs(step) > max(noise, SLIGHT * abs(level))
            row.append(f"{step:+.3g} ± {noise:.2g}" + "*" * is_step)
            if is_step:
                beyond.append(f"{MEASURES[name]} {step:+.3g} ({dataset}, n = {high:,}, {label})")
        rows.append(row)
    return rows, beyond


@benchmark(
    "known-gp",
    "rows from a known GP, 500 to 100,000 of them: coverage, slope, and distance to the Bayes rate",
    table=table,
    minutes=35,
)
def run(context: Context) -> None:
    """The default and the sharp configuration at every size, the same seconds for each fit."""
    sizes = SIZES[:2] if context.quick else SIZES
    seeds = range(context.repetitions(SEEDS, quick=1))
    budget = context.seconds(SECONDS, quick=3.0)
    context.expect(len(FUNCTIONS) * len(sizes) * len(seeds) * len(CONTENDERS))
    for (d, kind), n, seed in product(FUNCTIONS, sizes, seeds):
        split = drawn(d, kind, n, seed)
        for contender in CONTENDERS:
            context.measure(contender, split, {"seed": seed, "rows": n}, budget)

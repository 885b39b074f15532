"""The tables of a report, in words: facts of the fit, the data, the hardest rows, time and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from inspect import signature
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.gaussian_process import kernels

from cavity.data.frames import is_pandas
from cavity.estimators.facts import training_source
from cavity.memory import peak_bytes
from cavity.plot.canvas import number, proba_at
from cavity.report.target import ReportRows, ReportTarget, View, column_cells, column_names
from cavity.text import printable
from cavity.typing import AnyArray, Array, InputRows, IntArray


class Cells(NamedTuple):
    """Some columns of some rows, as text."""

    columns: list[str]
    rows: list[list[str]]
    n_columns: int
    """Number of all columns."""


def cells_of_features(X: Array, names: list[str], order: IntArray, most: int) -> Cells:
    """Format the most relevant features of inputs X [k, d]; order [d]: features by relevance."""
    shown = order[:most]
    rows = [[number(float(value)) for value in row] for row in X[:, shown]]
    return Cells([names[i] for i in shown], rows, len(names))


def cells_of_columns(frame: InputRows, names: list[str], order: IntArray, most: int) -> Cells:
    """Format the most relevant of a table's columns; order: their positions by relevance.

    >>> import pyarrow
    >>> frame = pyarrow.table({"age": [31], "carrier": ["AA"], "unused": [0]})
    >>> cells_of_columns(frame, ["age", "carrier"], np.array([1, 0]), most=2)
    Cells(columns=['carrier', 'age'], rows=[['AA', '31']], n_columns=2)
    """
    shown = [names[j] for j in order[:most]]
    return Cells(shown, _lines(frame, shown), len(names))


def cells_of_frame(frame: InputRows, names: list[str], order: IntArray, most: int) -> Cells:
    """Format the columns of a data frame from which the most relevant features of a pipeline were made.

    >>> import pandas
    >>> frame = pandas.DataFrame({"age": [31], "carrier": ["AA"]})
    >>> cells_of_frame(frame, ["age", "carrier=AA", "carrier=UA"], np.array([2, 0, 1]), most=2)
    Cells(columns=['carrier', 'age'], rows=[['AA', '31']], n_columns=2)
    """
    ranked, there = [names[i] for i in order], column_names(frame)
    columns = sorted(there, key=lambda column: _rank(str(column), ranked))[:most]
    return Cells([str(column) for column in columns], _lines(frame, columns), len(there))


def _lines(
    frame: InputRows, columns: Sequence[str], words: Callable[[object], str] | None = None
) -> list[list[str]]:
    """Cells of some columns of a data frame in words, row by row."""
    cells = [[(words or as_words)(value) for value in column_cells(frame, name)] for name in columns]
    return [list(line) for line in zip(*cells, strict=True)]


def _rank(column: str, ranked: list[str]) -> int:
    """Position of the first feature whose name begins with that of the column."""
    for position, name in enumerate(ranked):
        rest = name[len(column) :]
        if name.startswith(column) and not rest[:1].isalnum() and not rest.startswith("_"):
            return position
    return len(ranked)


def as_words(value: object) -> str:
    """Format a cell of a table.

    >>> as_words(3.14159), as_words(np.True_), as_words(None), as_words("x" * 50)[-3:]
    ('3.14', 'True', '', 'xx…')
    """
    if value is None or str(value) in ("nan", "NaT", "<NA>"):
        return ""
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, (int, float, np.number)):
        return number(float(value))
    words = str(value).removesuffix(" 00:00:00")
    return printable(words if len(words) <= 40 else f"{words[:39]}…")


def as_name(value: object) -> str:
    """Format the name of a row: whole numbers with all their digits.

    >>> as_name(20240117.0), as_name("a-7"), as_name(None)
    ('20240117', 'a-7', '')
    """
    if isinstance(value, (int, float, np.number)) and float(value).is_integer():
        return str(int(value))
    return as_words(value)


def kernel_in_words(kernel: kernels.Kernel) -> str:
    """Describe a scikit-learn kernel in words.

    >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    >>> kernel_in_words(ConstantKernel(4.0) * RBF([1.0, 2.0]) + WhiteKernel(0.1))
    'an amplitude (latent standard deviation 2) times a smooth kernel (RBF) with a lengthscale for each \
feature (1 to 2), plus independent noise of variance 0.1'
    """
    if isinstance(kernel, kernels.Sum):
        return f"{kernel_in_words(kernel.k1)}, plus {kernel_in_words(kernel.k2)}"
    if isinstance(kernel, kernels.Product):
        return " times ".join(_factor_in_words(part) for part in (kernel.k1, kernel.k2))
    if isinstance(kernel, kernels.Exponentiation):
        return f"{_factor_in_words(kernel.kernel)} to the power of {kernel.exponent:g}"
    if isinstance(kernel, kernels.ConstantKernel):
        return f"an amplitude (latent standard deviation {number(np.sqrt(kernel.constant_value))})"
    if isinstance(kernel, kernels.WhiteKernel):
        return f"independent noise of variance {number(kernel.noise_level)}"
    if isinstance(kernel, kernels.DotProduct):
        return f"a linear kernel with offset {number(kernel.sigma_0)}"
    if isinstance(kernel, kernels.RationalQuadratic):
        return (
            f"a rational quadratic kernel (lengthscale {number(kernel.length_scale)}, "
            f"mixture {number(kernel.alpha)})"
        )
    if isinstance(kernel, kernels.Matern):
        return f"a Matérn kernel (ν = {kernel.nu:g}) {_lengthscales(kernel)}"
    if isinstance(kernel, kernels.RBF):
        return f"a smooth kernel (RBF) {_lengthscales(kernel)}"
    return f"a kernel of type {type(kernel).__name__}"


def _factor_in_words(kernel: kernels.Kernel) -> str:
    words = kernel_in_words(kernel)
    return f"({words})" if isinstance(kernel, kernels.Sum) else words


def _lengthscales(kernel: kernels.RBF) -> str:
    scales = np.atleast_1d(kernel.length_scale)
    if len(scales) == 1:
        return f"with the lengthscale {number(scales[0])}"
    return f"with a lengthscale for each feature ({number(scales.min())} to {number(scales.max())})"


def size(n_bytes: float) -> str:
    """Format a number of bytes.

    >>> size(2_500_000), size(800)
    ('2.5 MB', '800 B')
    """
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.1f} {unit}"
    return f"{n_bytes:.0f} B"


def duration(seconds: float) -> str:
    """Format a number of seconds.

    >>> duration(0.52), duration(75), duration(7_300)
    ('0.52 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def fitted_facts(target: ReportTarget) -> dict[str, str]:
    """The facts of the fit, with the kernel in words."""
    facts = target.facts.as_words()
    words = kernel_in_words(target.classifier.kernel_)
    return facts | {"Kernel": f"{words[0].upper()}{words[1:]}."}


def chosen_parameters(estimator: BaseEstimator) -> dict[str, str]:
    """Parameters that differ from their defaults."""
    defaults = {
        name: parameter.default
        for name, parameter in signature(type(estimator).__init__).parameters.items()
    }
    return {
        name: _value_in_words(value)
        for name, value in estimator.get_params(deep=False).items()
        if not _is_default(value, defaults.get(name))
    }


class Column(NamedTuple):
    """Summary of a column."""

    name: str
    typical: str
    """The median, or the commonest value and its share."""
    range: str
    """The smallest and the largest value, or the number of values."""
    missing: str
    """Share of the rows without a value; empty if all have one."""
    bars: list[float]
    """Heights of a histogram, the largest 1; one bar for each value if there are few."""


_FEW = 31
"""Distinct values up to which each has a bar of its own."""
_N_BARS = 20


def columns_of(view: View, most: int) -> list[Column]:
    """Summarise the most relevant columns."""
    return [_column(view.columns.values(int(j)), view.names[j]) for j in view.order[:most]]


def _column(values: AnyArray, name: str) -> Column:
    """Summarise numbers, dates or strings [n]."""
    kind = values.dtype.kind
    lacks = np.array([v is None for v in values]) if kind == "O" else ~np.isfinite(values)
    known, missing = values[~lacks], f"{lacks.mean():.1%}" if lacks.any() else ""
    if not len(known):
        return Column(name, "", "", missing, [])
    if kind == "O":
        counts = Counter(known.tolist()).most_common()
        top, n = counts[0]
        bars = [count / n for _, count in counts[:_FEW]]
        n_values = "1 value" if len(counts) == 1 else f"{len(counts):,} values"
        return Column(name, f"{as_words(top)} ({n / len(values):.0%})", n_values, missing, bars)
    if kind == "M":
        days = known.astype("datetime64[D]")
        middle = np.sort(days)[len(days) // 2]
        return Column(
            name, str(middle), f"{days.min()} – {days.max()}", missing, _bars(days.astype(float))
        )
    low, high = number(known.min()), number(known.max())
    return Column(name, number(float(np.median(known))), f"{low} – {high}", missing, _bars(known))


def _bars(numbers: Array) -> list[float]:
    """Heights of a histogram, without the outermost half per cent on each side."""
    few, counts = np.unique(numbers, return_counts=True)
    if len(few) > _FEW:
        low, high = np.quantile(numbers, [0.005, 0.995])
        if high <= low:
            low, high = numbers.min(), numbers.max()
        counts, _ = np.histogram(numbers.clip(low, high), bins=_N_BARS, range=(low, high))
    return [round(float(count / max(1, counts.max())), 3) for count in counts]


def class_shares(codes: IntArray, target: ReportTarget) -> list[tuple[str, int, float]]:
    """Name, count and share of each class."""
    counts = np.bincount(codes, minlength=len(target.classes))
    return [
        (name, int(count), float(count / max(1, len(codes))))
        for name, count in zip(target.classes, counts, strict=True)
    ]


class Surprise(NamedTuple):
    """A row with an improbable label."""

    row: str
    ids: list[str]
    """Its cells in the columns that name rows."""
    label: str
    probability: str
    expected: str
    values: list[str]


class Surprises(NamedTuple):
    """The table of the rows with the least probable labels."""

    left_out: bool
    """Whether these are training rows, by their leave-one-out probabilities."""
    ids: list[str]
    """Columns that name rows."""
    columns: list[str]
    """Names of the columns that are shown; none if the rows are not available."""
    n_columns: int
    rows: list[Surprise]
    naming: str
    """Sentence that explains the names of the rows."""


def unseen_surprises(target: ReportTarget, n: int) -> Surprises:
    """Numbers of the n least probable training rows, of an estimator that no longer holds its rows."""
    loo = np.asarray(target.classifier.loo_log_proba_, dtype=np.float64)
    worst = lowest(loo, n)
    rows = [
        Surprise(str(i), [], "", _probability_in_words(float(np.exp(loo[i]))), "", []) for i in worst
    ]
    return Surprises(True, [], [], len(target.names), rows, counted_from_0(True))


def counted_from_0(left_out: bool) -> str:
    """Sentence that explains the numbers of training or held-out rows."""
    return f"Rows are counted from 0, in the order of the {'training' if left_out else 'held-out'} rows."


def names_of_rows(rows: ReportRows, left_out: bool) -> tuple[list[str], str]:
    """Names of the rows, and a sentence that explains them.

    They are the index of the user's data frame, if there is one. A frame that was read from a table has
    the name of the table in `attrs["table"]`, and its index counts the rows of the table.
    """
    if not is_pandas(rows.frame):
        return [str(number) for number in rows.index], counted_from_0(left_out)
    index = rows.frame.index
    if "table" in rows.frame.attrs:
        meaning = f"Rows are counted from 0 in {rows.frame.attrs['table']}."
    elif list(index) == rows.index.tolist():
        meaning = counted_from_0(left_out)
    else:
        meaning = "Rows have the names that the index of their data frame gives them."
    return [str(name) for name in index], meaning


def surprises(
    target: ReportTarget, rows: ReportRows, log_proba: Array, cells: Cells, names: list[str]
) -> list[Surprise]:
    """Lines of the table, for rows with log probabilities [k] of their labels; the lowest first."""
    order = lowest(log_proba, len(log_proba))
    if not len(order):
        return []
    likeliest = proba_at(target.classifier, np.asarray(rows.X[order])).argmax(axis=1)
    ids = _lines(rows.frame, rows.ids, as_name) if rows.ids else [[]] * len(names)
    return [
        Surprise(
            names[i],
            ids[i],
            target.classes[rows.codes[i]],
            _probability_in_words(float(np.exp(log_proba[i]))),
            target.classes[code],
            cells.rows[i],
        )
        for i, code in zip(order, likeliest, strict=True)
    ]


def time_and_memory(target: ReportTarget) -> dict[str, str]:
    """Time and memory that the fit took."""
    facts = target.facts
    costs = {}
    if facts.fit_seconds is not None:
        costs["Time of the whole fit, reading included"] = duration(facts.fit_seconds)
    if facts.seconds is not None:
        costs["Time to the last iteration"] = duration(facts.seconds)
    costs["Iterations"] = f"{facts.iterations:,}"
    if facts.epochs is not None:
        costs["Passes over the data"] = f"{facts.epochs:,.1f}"
    if facts.rows_per_second is not None:
        costs["Rows a second"] = f"{facts.rows_per_second:,.0f}"
    costs["Memory of the fitted model"] = f"about {size(facts.model_bytes)}"
    if facts.peak_memory_bytes is not None:
        costs["Most memory of the process that fitted it"] = size(facts.peak_memory_bytes)
    elif training_source(target.classifier) is not None and (peak := peak_bytes()) is not None:
        # Only a classifier that still holds its rows was fitted in this process.
        costs["Most memory this process has used"] = size(peak)
    return costs


def lowest(log_proba: Array, n: int) -> IntArray:
    """Positions of the n lowest of the known (finite) log probabilities."""
    known = np.flatnonzero(np.isfinite(log_proba))
    return known[np.argsort(log_proba[known], kind="stable")[:n]]


def _probability_in_words(probability: float) -> str:
    return f"{probability:.1%}" if probability >= 0.001 else f"{probability:.1e}"


def _value_in_words(value: object) -> str:
    words, shape = repr(value), np.asarray(value).shape
    if shape:
        words = f"array of shape {shape}"
    return words if len(words) <= 200 else f"{words[:199]}…"


def _is_default(value: object, default: object) -> bool:
    return value is default or (np.isscalar(value) and bool(value == default))

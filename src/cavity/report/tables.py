"""Rows as the user knows them: the columns of a data frame, before they became features.

Kernels, numbers and methods in words.

The tables of the report: what was fitted, the data, the surprising rows, time and memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.gaussian_process import kernels

from cavity.memory import peak_bytes
from cavity.plot.canvas import number, proba_at
from cavity.report.target import KnownRows, Subject
from cavity.typing import Array, IntArray


class Cells(NamedTuple):
    """Some columns of some rows, as words."""

    columns: list[str]
    rows: list[list[str]]
    n_columns: int
    """Columns there are."""


def cells_of_features(X: Array, names: list[str], order: IntArray, most: int) -> Cells:
    """The most important features of inputs X [k, d]."""
    shown = order[:most]
    rows = [[number(float(value)) for value in row] for row in X[:, shown]]
    return Cells([names[i] for i in shown], rows, len(names))


def cells_of_frame(frame: Any, names: list[str], order: IntArray, most: int) -> Cells:
    """The columns of a data frame that the most important features were made of.

    >>> import pandas
    >>> frame = pandas.DataFrame({"age": [31], "carrier": ["AA"]})
    >>> cells_of_frame(frame, ["age", "carrier=AA", "carrier=UA"], np.array([2, 0, 1]), most=2)
    Cells(columns=['carrier', 'age'], rows=[['AA', '31']], n_columns=2)
    """
    ranked = [names[i] for i in order]
    columns = sorted(frame.columns, key=lambda column: _rank(str(column), ranked))[:most]
    rows = [[as_words(frame[column].iloc[i]) for column in columns] for i in range(len(frame))]
    return Cells([str(column) for column in columns], rows, len(frame.columns))


def _rank(column: str, ranked: list[str]) -> int:
    """Position of the first feature whose name begins with that of the column."""
    for position, name in enumerate(ranked):
        rest = name[len(column) :]
        if name.startswith(column) and not rest[:1].isalnum() and not rest.startswith("_"):
            return position
    return len(ranked)


def as_words(value: Any) -> str:
    """A cell of a table.

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
    return words if len(words) <= 40 else f"{words[:39]}…"


METHODS = {
    "SEPClassifier": "scalable expectation propagation (SEP)",
    "SVIClassifier": "scalable variational inference (SVI)",
    "GFITCClassifier": "expectation propagation to convergence (GFITC)",
}


def kernel_in_words(kernel: Any) -> str:
    """A scikit-learn kernel as a sentence without its full stop.

    >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    >>> kernel_in_words(ConstantKernel(4.0) * RBF([1.0, 2.0]) + WhiteKernel(0.1))
    'an amplitude (latent standard deviation 2) times a smooth kernel (RBF) with a lengthscale for each \
feature (1 to 2), plus independent noise of variance 0.1'
    """
    if isinstance(kernel, kernels.Sum):
        return f"{kernel_in_words(kernel.k1)}, plus {kernel_in_words(kernel.k2)}"
    if isinstance(kernel, kernels.Product):
        return " times ".join(_factor(part) for part in (kernel.k1, kernel.k2))
    if isinstance(kernel, kernels.Exponentiation):
        return f"{_factor(kernel.kernel)} to the power of {kernel.exponent:g}"
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


def _factor(kernel: Any) -> str:
    words = kernel_in_words(kernel)
    return f"({words})" if isinstance(kernel, kernels.Sum) else words


def _lengthscales(kernel: Any) -> str:
    scales = np.atleast_1d(kernel.length_scale)
    if len(scales) == 1:
        return f"with the lengthscale {number(scales[0])}"
    return f"with a lengthscale for each feature ({number(scales.min())} to {number(scales.max())})"


def size(n_bytes: float) -> str:
    """Bytes in the unit that suits them.

    >>> size(2_500_000), size(800)
    ('2.5 MB', '800 B')
    """
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.1f} {unit}"
    return f"{n_bytes:.0f} B"


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> duration(0.52), duration(75), duration(7_300)
    ('0.52 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


class Fact(NamedTuple):
    """A line of a table of facts."""

    name: str
    value: str


def fitted_facts(subject: Subject) -> list[Fact]:
    """What was fitted, in a few lines."""
    fit = subject.classifier
    kind = type(fit).__name__
    loo = np.asarray(fit.loo_log_proba_)
    visited = np.isfinite(loo)
    streamed = getattr(fit, "_stream", None) is not None
    facts = [
        Fact("Method", f"{kind}: {METHODS.get(kind, 'Gaussian process classification')}"),
        Fact("Likelihood", str(fit.likelihood)),
        Fact("Classes", ", ".join(subject.classes)),
        Fact("Rows of the last chunk" if streamed else "Training rows", f"{len(loo):,}"),
        Fact("Features", f"{len(subject.names):,}"),
        Fact("Inducing points", f"{len(fit.inducing_points_):,}"),
        Fact("Kernel", _sentence(kernel_in_words(fit.kernel_))),
    ]
    if np.isfinite(evidence := fit.log_marginal_likelihood_value_):
        facts.append(Fact("Log marginal likelihood", f"{evidence:,.1f} (estimate)"))
    if (inverse_temperature := fit.model_.inverse_temperature) != 1.0:
        facts.append(
            Fact("Calibration", f"latent means × {inverse_temperature:.2f}, chosen by leave-one-out")
        )
    if visited.any():
        few = "" if visited.all() else f", over the {visited.sum():,} rows that training has seen"
        facts.append(Fact("Leave-one-out NLL", f"{-loo[visited].mean():.4f}{few}"))
    return facts


def chosen_parameters(estimator: Any) -> list[Fact]:
    """Parameters that differ from their defaults."""
    from inspect import signature

    defaults = {
        name: parameter.default
        for name, parameter in signature(type(estimator).__init__).parameters.items()
    }
    return [
        Fact(name, _short(value))
        for name, value in estimator.get_params(deep=False).items()
        if not _same(value, defaults.get(name))
    ]


class Column(NamedTuple):
    """A feature of the data, summarised."""

    name: str
    mean: str
    deviation: str
    smallest: str
    median: str
    largest: str
    bars: list[float]
    """Heights of a histogram, the largest 1; one bar a value if they are few."""


def columns_of(X: Array, names: list[str], order: IntArray) -> list[Column]:
    """Summaries of the features of X [n, d], in this order."""
    return [_column(np.asarray(X[:, i], dtype=np.float64), names[i]) for i in order]


def _column(values: Array, name: str, n_bars: int = 20) -> Column:
    few = np.unique(values)
    if len(few) <= 31:
        counts = np.array([np.sum(values == value) for value in few])
    else:
        low, high = np.quantile(values, [0.005, 0.995])
        if high <= low:
            low, high = values.min(), values.max()
        counts, _ = np.histogram(values.clip(low, high), bins=n_bars, range=(low, high))
    return Column(
        name,
        number(values.mean()),
        number(values.std()),
        number(values.min()),
        number(float(np.median(values))),
        number(values.max()),
        [round(float(count / max(1, counts.max())), 3) for count in counts],
    )


def class_shares(codes: IntArray, subject: Subject) -> list[tuple[str, int, float]]:
    """Name, count and share of each class."""
    counts = np.bincount(codes, minlength=len(subject.classes))
    return [
        (name, int(count), float(count / max(1, len(codes))))
        for name, count in zip(subject.classes, counts, strict=True)
    ]


class Surprise(NamedTuple):
    """A row whose label the others do not expect."""

    row: str
    label: str
    probability: str
    expected: str
    values: list[str]


class Surprises(NamedTuple):
    """The part about surprising rows."""

    left_out: bool
    """By leave-one-out rather than of held-out rows."""
    columns: list[str]
    """Columns that are shown: none if the rows are not at hand."""
    n_columns: int
    rows: list[Surprise]
    naming: str
    """What the names of the rows mean."""


def unseen_surprises(subject: Subject, n: int) -> Surprises:
    """The n least probable training rows by number, of an estimator without its rows."""
    loo = np.asarray(subject.classifier.loo_log_proba_, dtype=np.float64)
    worst = lowest(loo, n)
    rows = [Surprise(str(i), "", _chance(float(np.exp(loo[i]))), "", []) for i in worst]
    return Surprises(True, [], len(subject.names), rows, counted_from_0(True))


def counted_from_0(left_out: bool) -> str:
    """What the number of a row means, of the training or of the held-out rows."""
    return f"Rows are counted from 0, in the order of the {'training' if left_out else 'held-out'} rows."


def names_of_rows(rows: KnownRows, raw: Any, left_out: bool) -> tuple[list[str], str]:
    """What to call rows, and what that means; `raw`: the same rows in a data frame, or None.

    The index of a data frame says where its rows come from, if others lay between them; a frame that
    was read from a table has the name of that in `attrs["table"]`, and its index counts the rows there.
    """
    index = getattr(raw, "index", None)
    names = rows.index if index is None else index
    meaning = counted_from_0(left_out)
    if index is not None and "table" in raw.attrs:
        meaning = f"Rows are counted from 0 in {raw.attrs['table']}."
    elif list(names) != rows.index.tolist():
        meaning = "Rows have the names that the index of their data frame gives them."
    return [str(name) for name in names], meaning


def surprises(
    subject: Subject, rows: KnownRows, log_proba: Array, cells: Cells, names: list[str]
) -> list[Surprise]:
    """Rows with the log probabilities [k] of their labels, the least probable first."""
    order = lowest(log_proba, len(log_proba))
    if not len(order):
        return []
    likeliest = proba_at(subject.classifier, np.asarray(rows.X[order])).argmax(axis=1)
    return [
        Surprise(
            names[i],
            subject.classes[rows.codes[i]],
            _chance(float(np.exp(log_proba[i]))),
            subject.classes[code],
            cells.rows[i],
        )
        for i, code in zip(order, likeliest, strict=True)
    ]


def time_and_memory(subject: Subject) -> list[Fact]:
    """What the fit took."""
    fit = subject.classifier
    facts = []
    if subject.fit_seconds is not None:
        facts.append(Fact("Time of the whole fit, reading included", duration(subject.fit_seconds)))
    if fit.history_:
        facts.append(Fact("Time to the last iteration", duration(fit.history_[-1].seconds)))
    facts.append(Fact("Iterations", f"{fit.n_iter_:,}"))
    if fit.history_:
        last, n = fit.history_[-1], len(fit.loo_log_proba_)
        facts.append(Fact("Passes over the data", f"{last.epochs:,.1f}"))
        if getattr(fit, "_stream", None) is None and last.seconds > 0:
            facts.append(Fact("Rows a second", f"{last.epochs * n / last.seconds:,.0f}"))
    model = fit.model_
    m = len(model.Z)
    latents = len(model.posterior.mean)
    held = 8 * (model.Z.size + m * m + latents * (m + m * m))
    facts.append(Fact("Memory of the fitted model", f"about {size(held)}"))
    if subject.fit_memory is not None:
        facts.append(Fact("Most memory of the process that fitted it", size(subject.fit_memory)))
    elif subject.source is not None and (peak := peak_bytes()) is not None:
        # A model that was loaded was fitted in another process, of which this one knows nothing.
        facts.append(Fact("Most memory this process has used", size(peak)))
    return facts


def lowest(log_proba: Array, n: int) -> IntArray:
    """Positions of the n lowest, without those that are not known."""
    known = np.flatnonzero(np.isfinite(log_proba))
    return known[np.argsort(log_proba[known], kind="stable")[:n]]


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _chance(probability: float) -> str:
    return f"{probability:.1%}" if probability >= 0.001 else f"{probability:.1e}"


def _short(value: Any) -> str:
    words = repr(value)
    if hasattr(value, "shape") or isinstance(value, list):
        words = f"array of shape {np.shape(value)}"
    return words if len(words) <= 200 else f"{words[:199]}…"


def _same(value: Any, default: Any) -> bool:
    return value is default or (np.isscalar(value) and bool(value == default))

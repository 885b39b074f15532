"""The command `cavity explain`: which columns matter, and how the probability depends on each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cavity.cli.guard import Settings, show
from cavity.cli.io import loaded_model, print_json
from cavity.cli.progress import progress_shown
from cavity.data.columns import BOOLEAN, DATE, CategoricalEncoder, Encoder, coerced
from cavity.data.parts import import_arrow
from cavity.data.table import Table, open_table
from cavity.estimators.table import TableClassifier
from cavity.plot.partial_dependence import grid_of
from cavity.text import printable, shown
from cavity.typing import Array, JsonObject

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_ROWS = 500
"""Rows of the table, drawn at random, over which an effect is the mean."""
_N_GRID = 8
"""Values of a column of numbers or dates at which its effect is computed."""
_MOST_CLASSES = 4
"""Classes whose probabilities fit on a line of text."""


class ColumnEffect(NamedTuple):
    """Mean probabilities as a function of one column."""

    column: str
    values: list[Any]
    """[g]: values that every row is given."""
    probability: Array
    """[g, C]: mean over the rows."""


def run_explain(
    model_path: str, data: str | None, top: int, jobs: int | None, settings: Settings
) -> None:
    """Show the relevance of the columns and, on a table, their effects."""
    model = loaded_model(model_path, jobs)
    table = None if data is None else open_table(data)
    relevance = column_relevance(model)[:top]
    effects, n_rows = [], 0
    if table is not None:
        model.preprocessor_.check_columns(table.columns, table.name)
        with progress_shown(settings.quiet) as watcher:
            watcher.stage(f"reading {data}")
            rows = some_rows(model, table)
            n_rows = rows.num_rows
            watcher.stage("computing effects")
            effects = [column_effect(model, rows, name) for name, _ in relevance]
    document = {
        "model": model_path,
        "classes": [str(value) for value in model.classes_],
        "relevance": [{"column": name, "share": share} for name, share in relevance],
        "rows": n_rows,
        "effects": [
            {"column": e.column, "values": e.values, "probability": e.probability.tolist()}
            for e in effects
        ],
    }
    if settings.json:
        print_json(document)
    else:
        show(as_text(document))


def column_relevance(model: TableClassifier) -> list[tuple[str, float]]:
    """The columns and their shares of the latent function's squared slope, the largest first."""
    shares = np.asarray(model.estimator_.relevance_.value)
    encoders = model.preprocessor_.encoders_
    first = np.cumsum([0, *(len(e.features) for e in encoders[:-1])])
    of_columns = np.add.reduceat(shares, first)
    order = np.argsort(-of_columns, kind="stable")
    return [(encoders[j].column, float(of_columns[j])) for j in order]


def some_rows(model: TableClassifier, table: Table) -> pa.Table:
    """At most 500 rows of a table, drawn at random in one pass."""
    pa, _ = import_arrow()
    rng = np.random.default_rng(0)
    kept, keys = None, np.empty(0)
    for chunk in table.chunks(model.columns_, model.preprocessor_.text_types()):
        rows = pa.Table.from_batches([chunk])
        rows = rows if kept is None else pa.concat_tables([kept, rows])
        keys = np.concatenate([keys, rng.random(chunk.num_rows)])
        chosen = np.sort(np.argsort(keys)[:_MOST_ROWS])
        kept, keys = rows.take(pa.array(chosen)), keys[chosen]
    return kept


def column_effect(model: TableClassifier, rows: pa.Table, name: str) -> ColumnEffect:
    """Mean probabilities over rows whose column `name` is set to one value after the other."""
    encoders = model.preprocessor_.encoders_
    j = [encoder.column for encoder in encoders].index(name)
    first = sum(len(encoder.features) for encoder in encoders[:j])
    grid = grid_of_column(encoders[j], rows.column(name))
    block = np.empty((len(grid), len(encoders[j].features)))
    encoders[j].encode(grid, block)
    base = model.preprocessor_.transform(rows)
    inputs = np.tile(base, (len(grid), 1))
    inputs[:, first : first + block.shape[1]] = np.repeat(block, len(base), axis=0)
    with model.compute_context() as threads:
        log_proba = model.moments_and_log_proba(inputs, threads)[2]
    mean = np.exp(log_proba).reshape(len(grid), len(base), -1).mean(axis=1)
    words = [str(value) if encoders[j].kind == DATE else value for value in grid.to_pylist()]
    return ColumnEffect(name, words, mean)


def grid_of_column(encoder: Encoder, column: pa.ChunkedArray) -> pa.Array:
    """Values of a column: its categories, or some between the extremes of these rows."""
    pa, _ = import_arrow()
    if isinstance(encoder, CategoricalEncoder):
        return pa.array(encoder.levels, pa.string())
    if encoder.kind == BOOLEAN:
        return pa.array([False, True])
    values = coerced(column.combine_chunks(), encoder.kind, encoder.column).drop_null()
    if encoder.kind == DATE:
        days = values.cast(pa.timestamp("us")).cast(pa.date32()).cast(pa.int32())
        grid = np.unique(np.round(_grid(days.to_numpy()))).astype(np.int32)
        return pa.array(grid).cast(pa.date32())
    return pa.array(_grid(values.to_numpy()))


def _grid(values: Array) -> Array:
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    return grid_of(finite, _N_GRID) if len(finite) else np.zeros(0)


def as_text(document: JsonObject) -> str:
    """Format the relevance and the effects."""
    lines = ["relevance of the columns (share of the latent function's squared slope):"]
    lines += [f"  {e['share']:6.1%}  {printable(e['column'])}" for e in document["relevance"]]
    classes = [printable(word) for word in document["classes"]]
    for effect in document["effects"]:
        probability = np.array(effect["probability"]).reshape(-1, len(classes))
        codes = _classes_shown(probability)
        lines += ["", f"{printable(effect['column'])}, mean over {document['rows']:,} rows:"]
        lines.append(" " * 22 + "".join(f"{f'p({classes[c][:11]})':>14}" for c in codes))
        for value, row in zip(effect["values"], probability, strict=True):
            word = f"{value:.4g}" if isinstance(value, float) else shown(value).strip("'")
            lines.append(f"  {printable(word)[:20]:20}" + "".join(f"{row[c]:14.3f}" for c in codes))
    return "\n".join(lines)


def _classes_shown(probability: Array) -> list[int]:
    """The second of two classes, or of more those whose probabilities vary most."""
    if probability.shape[1] == 2:
        return [1]
    span = np.ptp(probability, axis=0) if len(probability) else np.zeros(probability.shape[1])
    return sorted(np.argsort(-span, kind="stable")[:_MOST_CLASSES].tolist())

"""The command `cavity explain`: which columns matter, and how the probability depends on each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cavity.cli.deciding import positive_code
from cavity.cli.guard import Settings, show
from cavity.cli.io import loaded_model, opened_table, print_json
from cavity.cli.options import Reading
from cavity.cli.progress import progress_shown
from cavity.data.parts import import_arrow
from cavity.data.table import Table
from cavity.estimators.table import TableClassifier
from cavity.plot.columns import columns_of
from cavity.plot.features import Effect, partial_effect
from cavity.text import printable
from cavity.typing import Array, JsonObject

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_ROWS = 500
"""Rows of the table, drawn at random, over which an effect is the mean."""
_N_GRID = 8
"""Values of a column of numbers or dates at which its effect is computed."""
_MOST_CLASSES = 4
"""Classes whose probabilities fit on a line of text."""


def run_explain(
    model_path: str,
    data: str | None,
    top: int,
    positive: str | None,
    jobs: int | None,
    reading: Reading,
    settings: Settings,
) -> None:
    """Show the relevance of the columns and, on a table, their effects."""
    model = loaded_model(model_path, jobs)
    code = positive_code(positive, model.labels_)
    words = [str(value) for value in model.classes_]
    ranked = model.relevance_.ranked()[:top]
    effects: list[JsonObject] = []
    n_rows = 0
    if data is not None:
        with opened_table(data, reading) as table, progress_shown(settings.quiet) as watcher:
            model.preprocessor_.check_columns(table.columns, table.name)
            watcher.stage(f"reading {table.name}")
            rows = some_rows(model, table)
            n_rows = rows.num_rows
            watcher.stage("computing effects")
            for one in ranked:
                j = model.columns_.index(one.name)
                effect = partial_effect(model, rows, j, n_grid=_N_GRID, n_rows=n_rows)
                cells = columns_of(model, rows).grid(j, _N_GRID).cells
                effects.append({"column": one.name, **_as_document(effect, cells)})
    document = {
        "model": model_path,
        "classes": words,
        "positive": None if code is None else words[code],
        "relevance": [
            {"column": one.name, "share": one.value, "lower": one.lower, "upper": one.upper}
            for one in ranked
        ],
        "rows": n_rows,
        "effects": effects,
    }
    if settings.json:
        print_json(document)
    else:
        show(as_text(document))


def _as_document(effect: Effect, cells: pa.Array) -> JsonObject:
    plain = (bool, int, float, str, type(None))
    return {
        "values": [v if isinstance(v, plain) else str(v) for v in cells.to_pylist()],
        "probability": effect.probability.tolist(),
        "lower": effect.low.tolist(),
        "upper": effect.high.tolist(),
    }


def some_rows(model: TableClassifier, table: Table) -> pa.Table:
    """At most 500 rows of a table, drawn at random in one pass."""
    pa, _ = import_arrow()
    rng = np.random.default_rng(0)
    kept, keys = None, np.empty(0)
    preprocessor = model.preprocessor_.reading(table)
    for chunk in table.chunks(model.columns_):
        rows = pa.Table.from_batches([preprocessor.typed(chunk)])
        rows = rows if kept is None else pa.concat_tables([kept, rows])
        keys = np.concatenate([keys, rng.random(chunk.num_rows)])
        chosen = np.sort(np.argsort(keys)[:_MOST_ROWS])
        kept, keys = rows.take(pa.array(chosen)), keys[chosen]
    return kept


def as_text(document: JsonObject) -> str:
    """Format the relevance and the effects."""
    lines = ["relevance of the columns (share of the latent function's squared slope):"]
    lines += [f"  {e['share']:6.1%}  {printable(e['column'])}" for e in document["relevance"]]
    classes = [printable(word) for word in document["classes"]]
    for effect in document["effects"]:
        probability = np.array(effect["probability"]).reshape(-1, len(classes))
        codes = _classes_shown(probability, document["positive"], document["classes"])
        lines += ["", f"{printable(effect['column'])}, mean over {document['rows']:,} rows:"]
        lines.append(" " * 22 + "".join(f"{f'p({classes[c][:11]})':>14}" for c in codes))
        for value, row in zip(effect["values"], probability, strict=True):
            word = f"{value:.4g}" if isinstance(value, float) else str(value)
            word = "(missing)" if value is None else printable(word)[:20]
            lines.append(f"  {word:20}" + "".join(f"{row[c]:14.3f}" for c in codes))
    return "\n".join(lines)


def _classes_shown(probability: Array, positive: str | None, classes: list[str]) -> list[int]:
    """The positive one of two classes, or of more those whose probabilities vary most."""
    if positive is not None:
        return [classes.index(positive)]
    span = np.ptp(probability, axis=0) if len(probability) else np.zeros(probability.shape[1])
    return sorted(np.argsort(-span, kind="stable")[:_MOST_CLASSES].tolist())

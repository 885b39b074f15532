"""The commands that show or convert a model: `cavity inspect`, `cavity explain`, `cavity export`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from cavity.cli.deciding import positive_code
from cavity.cli.guard import Settings, say, show
from cavity.cli.io import checked_output, loaded_model, opened_table, print_json
from cavity.cli.options import Reading
from cavity.cli.progress import progress_shown
from cavity.data.parts import import_arrow
from cavity.data.table import Table
from cavity.estimators.facts import fit_facts, in_leaves
from cavity.estimators.table import TableClassifier
from cavity.gp.relevance import FeatureRelevance
from cavity.plot.columns import columns_of
from cavity.plot.features import Effect, partial_effect
from cavity.text import listed, printable
from cavity.typing import Array, JsonObject

if TYPE_CHECKING:
    import pyarrow as pa


_MOST_COLUMNS = 20
"""Most columns whose relevance is shown as text."""


def run_inspect(path: str, settings: Settings) -> None:
    """Show what a model file holds."""
    from cavity.export.model_file import describe

    model = loaded_model(path)
    file = asdict(describe(path))
    if settings.json:
        print_json({"model": path, **description(model), "written_with": file})
    else:
        show(description_as_text(printable(path), _in_lines(description(model)), file))


def run_export(path: str, output: str | None, settings: Settings) -> None:
    """Write a model as an ONNX file."""
    target = checked_output(
        str(Path(path).with_suffix(".onnx")) if output is None else output, settings.force, (path,)
    )
    from cavity.export.onnx import to_onnx

    graph = to_onnx(loaded_model(path), target).graph
    names = {
        "inputs": [value.name for value in graph.input],
        "outputs": [value.name for value in graph.output],
    }
    if settings.json:
        print_json({"model": path, "onnx": str(target), **names})
    else:
        say(f"{target}: {listed(names['inputs'])} in, {listed(names['outputs'])} out")


def _in_lines(value: Any) -> Any:
    """Plain data with `printable` text, so that a name in a table does not end its line."""
    if isinstance(value, dict):
        return {name: _in_lines(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_in_lines(item) for item in value]
    return printable(value) if isinstance(value, str) else value


def description(model: TableClassifier) -> JsonObject:
    """Describe a model as plain data."""
    facts, labels = fit_facts(model), model.labels_
    code = positive_code(None, labels)
    return {
        "target": model.target_,
        "positive": None if code is None else labels.values.tolist()[code],
        "classes": [
            {"value": value, "rows": count}
            for value, count in zip(labels.values.tolist(), labels.counts.tolist(), strict=True)
        ],
        "columns": [
            {"name": e.column, "kind": e.kind, "features": list(e.features)}
            for e in model.preprocessor_.encoders_
        ],
        "features": model.preprocessor_.n_features_out_,
        "notes": list(model.notes_),
        "training": {
            "method": facts.method,
            "rows": int(labels.counts.sum()),
            "inducing_points": facts.inducing_points,
            "leaves": facts.leaves,
            "local_points": facts.local_points,
            "likelihood": facts.likelihood,
            "iterations": facts.iterations,
            "epochs": None if facts.streamed else facts.epochs,
            "streamed": facts.streamed,
            "seconds": facts.fit_seconds,
            "log_marginal_likelihood": facts.log_marginal_likelihood,
            "inverse_temperature": facts.inverse_temperature,
            "residual_variance_scale": facts.residual_variance_scale,
            "held_out_nll": facts.validation_log_loss,
            "held_out_standard_error": facts.validation_standard_error,
            "held_out_rows": facts.validation_rows,
            "leave_one_out_nll": facts.loo_log_loss,
        },
        "kernel": facts.kernel,
        "relevance": _relevance(model.relevance_.ranked()),
    }


def _relevance(rows: Iterable[FeatureRelevance]) -> list[JsonObject]:
    """Columns and their relevance, in the given order, as plain data."""
    return [
        {"column": row.name, "share": row.value, "lower": row.lower, "upper": row.upper} for row in rows
    ]


def score_line(training: JsonObject) -> str:
    """Say how good the probabilities are: on held-out rows, or else by leave-one-out.

    >>> score_line({"held_out_nll": 0.25, "held_out_standard_error": 0.01, "held_out_rows": 500})
    'held-out NLL 0.2500 ± 0.0100 (500 rows)'
    """
    if training["held_out_nll"] is not None:
        return (
            f"held-out NLL {training['held_out_nll']:.4f} ± {training['held_out_standard_error']:.4f} "
            f"({training['held_out_rows']:,} rows)"
        )
    if training["leave_one_out_nll"] is None:
        return "no score"
    if training["streamed"]:
        return f"NLL {training['leave_one_out_nll']:.4f} of the last rows when they were learned"
    return f"leave-one-out NLL {training['leave_one_out_nll']:.4f} (optimistic: no rows were held out)"


def points(training: JsonObject) -> str:
    """How many inducing points a model has, and how many of them are in leaves.

    >>> points({"inducing_points": 1_020, "leaves": 10, "local_points": 1_000})
    '1,020 inducing points, 1,000 of them in 10 leaves'
    """
    words = f"{training['inducing_points']:,} inducing points"
    return words + in_leaves(training["local_points"], training["leaves"])


def training_length(training: JsonObject) -> str:
    """How far a training has come: in epochs, as the progress bar counts, and in iterations.

    >>> training_length({"iterations": 1_200, "epochs": 12.5})
    '12.5 epochs (1,200 iterations)'
    >>> training_length({"iterations": 3, "epochs": None})
    '3 iterations'
    """
    steps = f"{training['iterations']:,} iterations"
    return steps if training["epochs"] is None else f"{training['epochs']:.1f} epochs ({steps})"


def description_as_text(path: str, what: JsonObject, file: JsonObject) -> str:
    """Format the description of a model."""
    training = what["training"]
    classes = ", ".join(f"{c['value']} ({c['rows']:,} rows)" for c in what["classes"])
    lines = [f"{path}: predicts {what['target']!r}: {classes}"]
    if what["positive"] is not None:
        lines.append(f"positive class: {str(what['positive'])!r}")
    lines += [
        "",
        f"{training['method']}, {training['likelihood']}, {points(training)}, "
        f"{training_length(training)}, {training['seconds']:.1f} s",
        f"kernel, on scaled features: {what['kernel']}",
    ]
    if training["log_marginal_likelihood"] is not None:
        lines.append(f"log marginal likelihood: {training['log_marginal_likelihood']:,.2f}")
    lines.append(score_line(training))
    lines += ["", f"{len(what['columns'])} columns, {what['features']} features:"]
    width = max(len(column["name"]) for column in what["columns"])
    for column in what["columns"]:
        features = column["features"]
        words = ", ".join(features[:6]) + (f" and {len(features) - 6} more" if len(features) > 6 else "")
        lines.append(f"  {column['name']:{width}}  {column['kind']:12} {words}")
    if what["relevance"]:
        lines += ["", "relevance of the columns, with a 90% band:"]
        lines += [
            f"  {e['share']:6.1%}  ({e['lower']:.1%} to {e['upper']:.1%})  {e['column']}"
            for e in what["relevance"][:_MOST_COLUMNS]
        ]
    if what["notes"]:
        lines += ["", *(f"note: {note}" for note in what["notes"])]
    versions = ", ".join(f"{name} {file[name]}" for name in ("cavity", "python", "numpy", "sklearn"))
    lines += ["", f"written with {versions}"]
    return "\n".join(_folded(line) for line in lines)


def _folded(line: str) -> str:
    """A line, broken between words if it is longer than 80 characters."""
    if len(line) <= 80:
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return fill(line, 80, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


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
            columns = columns_of(model, rows)
            for one in ranked:
                j = model.columns_.index(one.name)
                grid = columns.grid(j, _N_GRID)
                if grid.has_values:
                    effect = partial_effect(model, rows, j, n_grid=_N_GRID, n_rows=n_rows)
                    effects.append({"column": one.name, **_as_document(effect, grid.cells)})
    document = {
        "model": model_path,
        "classes": words,
        "positive": None if code is None else words[code],
        "relevance": _relevance(ranked),
        "rows": n_rows,
        "effects": effects,
    }
    if settings.json:
        print_json(document)
    else:
        show(explanation_as_text(document))


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


def explanation_as_text(document: JsonObject) -> str:
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

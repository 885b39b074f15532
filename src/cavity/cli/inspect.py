"""The commands `cavity inspect` and `cavity export`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from textwrap import fill
from typing import Any

from cavity.cli.deciding import positive_code
from cavity.cli.guard import Settings, say, show
from cavity.cli.io import checked_output, loaded_model, print_json
from cavity.estimators.facts import fit_facts
from cavity.estimators.table import TableClassifier
from cavity.text import listed, printable
from cavity.typing import JsonObject

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
        show(as_text(printable(path), _in_lines(description(model)), file))


def run_export(path: str, output: str | None, settings: Settings) -> None:
    """Write a model as an ONNX file."""
    target = checked_output(
        str(Path(path).with_suffix(".onnx")) if output is None else output, settings.force
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
        "relevance": _relevance(model),
    }


def _relevance(model: TableClassifier) -> list[JsonObject]:
    """List the columns and their relevance, the most relevant first."""
    return [
        {"column": row.name, "share": row.value, "lower": row.lower, "upper": row.upper}
        for row in model.relevance_.ranked()
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


def course(training: JsonObject) -> str:
    """How far a training has come: in epochs, as the progress bar counts, and in iterations.

    >>> course({"iterations": 1_200, "epochs": 12.5}), course({"iterations": 3, "epochs": None})
    ('12.5 epochs (1,200 iterations)', '3 iterations')
    """
    steps = f"{training['iterations']:,} iterations"
    return steps if training["epochs"] is None else f"{training['epochs']:.1f} epochs ({steps})"


def as_text(path: str, what: JsonObject, file: JsonObject) -> str:
    """Format the description of a model."""
    training = what["training"]
    classes = ", ".join(f"{c['value']} ({c['rows']:,} rows)" for c in what["classes"])
    lines = [f"{path}: predicts {what['target']!r}: {classes}"]
    if what["positive"] is not None:
        lines.append(f"positive class: {str(what['positive'])!r}")
    lines += [
        "",
        f"{training['method']}, {training['likelihood']}, {training['inducing_points']} inducing "
        f"points, {course(training)}, {training['seconds']:.1f} s",
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

"""Rows of a request, in JSON or CSV, the answer of the model, and a description of both.

The description is for people (columns and their usual ranges) and for programs (OpenAPI).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from cavity.data.columns import (
    BOOLEAN,
    CATEGORICAL,
    DATE,
    NUMERIC,
    CategoricalEncoder,
    DateEncoder,
    Encoder,
    NumericEncoder,
    coerced,
)
from cavity.data.dialect import Dialect
from cavity.data.frames import as_arrow
from cavity.data.locations import RemoteFile
from cavity.data.parts import import_arrow
from cavity.data.table import Table, TextTable
from cavity.errors import SourceError
from cavity.estimators.table import TableClassifier
from cavity.gp.uncertainty import predictive_uncertainty
from cavity.text import listed, suggestion
from cavity.typing import Array, JsonObject
from cavity.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa


OOD_WARNING = 0.5
"""Score from which a prediction warns: half of the variance that there was before training is left."""


def model_schema(model: TableClassifier) -> JsonObject:
    """Describe the columns, in the order of the training table, and the classes."""
    return {
        "target": model.target_,
        "classes": model.classes_.tolist(),
        "columns": [_column(encoder) for encoder in model.preprocessor_.encoders_],
        "ood_warning": OOD_WARNING,
    }


def _column(encoder: Encoder) -> JsonObject:
    """One column: its kind, what it may hold, and a value in the middle."""
    column: JsonObject = {"name": encoder.column, "kind": encoder.kind}
    if isinstance(encoder, CategoricalEncoder):
        column |= {
            "categories": list(encoder.levels),
            "others": encoder.has_other,
            "missing": encoder.marks_missing,
            "example": encoder.levels[0],
        }
    elif isinstance(encoder, DateEncoder):
        days = "days" in encoder.parts
        middle = encoder.first + (encoder.fill[0] if days else 0.0)
        column |= {"missing": encoder.marks_missing, "example": _date(middle)}
        if days:
            column["range"] = [_date(day) for day in encoder.usual]
    elif isinstance(encoder, NumericEncoder):
        column |= {"missing": encoder.marks_missing, "example": encoder.fill}
        if encoder.kind == BOOLEAN:
            column["example"] = encoder.fill > 0.5
        else:
            column["range"] = list(encoder.usual)
    return column


def _date(days: float) -> str | None:
    try:
        return (datetime(1970, 1, 1) + timedelta(days=round(days))).date().isoformat()
    except OverflowError:
        return None


_JSON_TYPES: dict[str, JsonObject] = {
    NUMERIC: {"type": ["number", "null"]},
    BOOLEAN: {"type": ["boolean", "null"]},
    DATE: {"type": ["string", "null"], "description": "a date or time, such as 2013-01-31T12:00"},
}
_NUMBER = {"type": "number"}


def openapi(model: TableClassifier, most_bytes: int, most_rows: int) -> JsonObject:
    """The OpenAPI 3.1 description of the service."""
    columns = model_schema(model)["columns"]
    row = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            column["name"]: _JSON_TYPES.get(column["kind"], {"type": ["string", "null"]})
            for column in columns
        },
    }
    example = {"rows": [{column["name"]: column["example"] for column in columns}]}
    error = {
        "description": "what is wrong, in words",
        "content": _json(_object(error={"type": "string"})),
    }
    by_class = {"type": "object", "additionalProperties": _NUMBER}
    latent = {"oneOf": [_NUMBER, by_class]}
    words = {"type": "array", "items": {"type": "string"}}
    prediction = _object(
        label={"enum": model.classes_.tolist()},
        probability=by_class,
        interval={"type": "object", "additionalProperties": {"type": "array", "items": _NUMBER}},
        aleatoric=_NUMBER,
        epistemic=_NUMBER,
        ood_score=_NUMBER,
        latent_mean=latent,
        latent_variance=latent,
        warnings=words,
    )
    answers = _object(level=_NUMBER, predictions={"type": "array", "items": prediction}, warnings=words)
    request = _object(rows={"type": "array", "maxItems": most_rows, "items": row})
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"Predictions of {model.target_}",
            "version": __version__,
            "description": f"At most {most_rows:,} rows and {most_bytes:,} bytes in a request.",
        },
        "paths": {
            "/predict": {
                "post": {
                    "summary": "Probability, interval and uncertainty of each row",
                    "parameters": [
                        {
                            "name": "level",
                            "in": "query",
                            "description": "probability that an interval holds, between 0 and 1",
                            "schema": {"type": "number", "default": 0.9},
                        }
                    ],
                    "requestBody": {
                        "required": True,
                        "content": {
                            **_json(request, example),
                            "text/csv": {"schema": {"type": "string"}},
                        },
                    },
                    "responses": {
                        "200": {"description": "the predictions", "content": _json(answers)},
                        **dict.fromkeys(("400", "413", "415", "422"), error),
                    },
                }
            },
            **{
                path: {"get": {"summary": summary, "responses": {"200": {"description": "as it says"}}}}
                for path, summary in (
                    ("/schema", "Columns and classes of the model"),
                    ("/health", "Whether the service answers"),
                    ("/metrics", "Numbers of requests, rows, errors and seconds, for Prometheus"),
                )
            },
        },
    }


def _object(**properties: JsonObject) -> JsonObject:
    return {"type": "object", "required": list(properties), "properties": properties}


def _json(schema: JsonObject, example: JsonObject | None = None) -> JsonObject:
    content: JsonObject = {"schema": schema}
    return {"application/json": content if example is None else {**content, "example": example}}


_BODY = "the body"
"""What errors call the body of a request."""
_FORM = '{"rows": [{"column": value, …}, …]}'
_TOLERANCE = 0.25
"""How far beyond its usual range, in shares of the range's width, a number gives no warning yet."""


class RequestError(Exception):
    """A request that cannot be answered: the HTTP status, and the reason in words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def rows_of_json(body: bytes, model: TableClassifier, most: int) -> pa.Table:
    """The rows of a JSON document, with the columns that it names."""
    try:
        document = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"{_BODY} is not JSON ({error}); send {_FORM}") from None
    if not isinstance(document, dict) or set(document) != {"rows"}:
        raise RequestError(422, f"{_BODY} is JSON of another form; send {_FORM}")
    rows = document["rows"]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise RequestError(422, f'"rows" is not a list of objects; send {_FORM}')
    _check_number(len(rows), most)
    columns = dict.fromkeys(name for row in rows for name in row)
    check_names(list(columns), model)
    for number, row in enumerate(rows, 1):
        for name, cell in row.items():
            if not (cell is None or isinstance(cell, (str, int, float))):
                raise RequestError(
                    422,
                    f"row {number}, column {name!r}: a {type(cell).__name__} is no value; send a "
                    "number, a string, true, false or null",
                )
    used = [name for name in model.columns_ if name in columns]
    if not used:
        raise RequestError(422, f"the rows have no values; the columns are {listed(model.columns_)}")
    return as_arrow({name: [row.get(name) for row in rows] for name in used})


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not a number in JSON; send null for a missing value")


def rows_of_csv(body: bytes, model: TableClassifier, most: int) -> pa.Table:
    """The rows of a CSV file with a line of names."""
    pa, _ = import_arrow()
    if not body.strip():
        raise RequestError(400, f"{_BODY} is empty; send a line of names and a line for each row")
    table: Table = TextTable([RemoteFile(_BODY, "body", _OneFile(body))], _BODY, Dialect())
    check_names(table.columns, model)
    used = [name for name in model.columns_ if name in table.columns]
    if not used:
        raise RequestError(
            422, f"{_BODY} has none of the model's columns, which are {listed(model.columns_)}"
        )
    chunks, number = [], 0
    for chunk in table.chunks(used):
        number += chunk.num_rows
        _check_number(number, most)
        chunks.append(chunk)
    return pa.Table.from_batches(chunks)


class _OneFile:
    """A file system, as far as `TextTable` uses it, with the bytes of one file."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def open_input_stream(self, path: str, compression: str) -> pa.BufferReader:
        """The bytes."""
        pa, _ = import_arrow()
        return pa.BufferReader(self._content)


def _check_number(rows: int, most: int) -> None:
    if rows > most:
        raise RequestError(413, f"there are more than {most:,} rows; send fewer in one request")
    if rows == 0:
        raise RequestError(422, "there are no rows, so there is nothing to predict")


def check_names(names: list[str], model: TableClassifier) -> None:
    """Refuse columns that the training table did not have."""
    known = {*model.columns_, *model.preprocessor_.drop_features, *model.preprocessor_.ignored_}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise RequestError(
            422,
            f"the model has no column {listed(unknown[:3])}{suggestion(unknown[0], model.columns_)}",
        )


def answer(model: TableClassifier, rows: pa.Table, level: float) -> JsonObject:
    """Predict rows: probabilities, label, latent moments and uncertainty of each, as plain data."""
    pa, _ = import_arrow()
    absent = [name for name in model.columns_ if name not in rows.schema.names]
    for name in absent:
        rows = rows.append_column(name, pa.nulls(rows.num_rows))
    try:
        _check_cells(model, rows)
        features = model.preprocessor_.transform(rows)
    except SourceError as error:
        raise RequestError(422, str(error)) from None
    with model.compute_context() as threads:
        mean, variance, log_proba = model.moments_and_log_proba(features, threads)
        ood_score = model.ood_score_at(features, threads)
    more = predictive_uncertainty(model.estimator_.model_.likelihood, mean, variance, level)
    words = [str(value) for value in model.classes_]
    labels = model.classes_[log_proba.argmax(axis=1)].tolist()
    proba = np.exp(log_proba)
    notes = _notes(model, rows, ood_score)
    predictions = [
        {
            "label": labels[i],
            "probability": dict(zip(words, proba[i].tolist(), strict=True)),
            "interval": {
                word: [float(more.interval.lower[i, c]), float(more.interval.upper[i, c])]
                for c, word in enumerate(words)
            },
            "aleatoric": float(more.aleatoric[i]),
            "epistemic": float(more.epistemic[i]),
            "ood_score": float(ood_score[i]),
            "latent_mean": _of_latents(mean[:, i], words),
            "latent_variance": _of_latents(variance[:, i], words),
            "warnings": notes[i],
        }
        for i in range(rows.num_rows)
    ]
    warnings = [f"the rows have no {listed(absent)}: counted as missing"] if absent else []
    return {"level": level, "predictions": predictions, "warnings": warnings}


def _check_cells(model: TableClassifier, rows: pa.Table) -> None:
    """Refuse words in columns of numbers, truth values and dates."""
    for encoder in model.preprocessor_.encoders_:
        cells = rows.column(encoder.column).combine_chunks()
        words = sorted(encoder.form.unreadable(cells, encoder.column))
        if words:
            raise RequestError(
                422,
                f"{encoder.column!r} should be {encoder.kind}, but has the value {words[0]!r:.60}; send "
                "such a value, or null",
            )


def _of_latents(values: Array, words: list[str]) -> float | dict[str, float]:
    """A latent value of a row as JSON: a number for two classes; for more, a number for each by name."""
    if len(values) == 1:
        return float(values[0])
    return dict(zip(words, values.tolist(), strict=True))


def _notes(model: TableClassifier, rows: pa.Table, ood_score: Array) -> list[list[str]]:
    """What the reader of each prediction should know about its row."""
    notes: list[list[str]] = [[] for _ in range(rows.num_rows)]
    for encoder in model.preprocessor_.encoders_:
        if isinstance(encoder, CategoricalEncoder):
            words = coerced(rows.column(encoder.column).combine_chunks(), CATEGORICAL, encoder.column)
            new = encoder.unseen(words)
            for i, word in enumerate(words.to_pylist()) if new else ():
                if word in new:
                    notes[i].append(f"{encoder.column} is {word!r}, which training did not have")
        elif isinstance(encoder, NumericEncoder) and encoder.kind == NUMERIC:
            low, high = encoder.usual
            for i, value in _beyond(rows.column(encoder.column), low, high):
                notes[i].append(
                    f"{encoder.column} is {value:g}, far from the usual {low:.4g} to {high:.4g}"
                )
    for i in np.flatnonzero(ood_score > OOD_WARNING).tolist():
        notes[i].append("little is known about such rows: the training rows are far from this one")
    return notes


def _beyond(column: pa.ChunkedArray, low: float, high: float) -> Iterator[tuple[int, float]]:
    """Positions and values of the numbers of a column that are far from a range."""
    pa, _ = import_arrow()
    numbers: Array = column.cast(pa.float64(), safe=False).to_numpy()
    room = _TOLERANCE * (high - low)
    with np.errstate(invalid="ignore"):
        far = np.flatnonzero((numbers < low - room) | (numbers > high + room))
    return ((int(i), float(numbers[i])) for i in far)

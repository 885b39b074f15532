"""What a model expects and answers: the columns for people, and the OpenAPI description for programs."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np

from cavity.data.columns import (
    BOOLEAN,
    DATE,
    NUMERIC,
    CategoricalEncoder,
    DateEncoder,
    Encoder,
    NumericEncoder,
)
from cavity.estimators.table import TableClassifier
from cavity.typing import JsonObject
from cavity.version import __version__

OOD_WARNING = 0.5
"""Score from which a prediction warns: half of the variance that there was before training is left."""


def model_schema(model: TableClassifier) -> JsonObject:
    """Describe the columns, in the order of the training table, and the classes."""
    places = _places(model)
    return {
        "target": model.target_,
        "classes": model.classes_.tolist(),
        "columns": [_column(e, *places[e.column]) for e in model.preprocessor_.encoders_],
        "ood_warning": OOD_WARNING,
    }


def typical_ranges(model: TableClassifier) -> dict[str, tuple[float, float]]:
    """The range of the inducing points, which stand for the training rows, in each column of numbers."""
    places = _places(model)
    return {e.column: places[e.column] for e in model.preprocessor_.encoders_ if e.kind == NUMERIC}


def _places(model: TableClassifier) -> dict[str, tuple[float, float]]:
    """The range of the inducing points along the first feature of each column."""
    points = np.asarray(model.estimator_.inducing_points_, dtype=np.float64)
    encoders = model.preprocessor_.encoders_
    first = np.cumsum([0, *(len(e.features) for e in encoders[:-1])])
    low, high = points.min(axis=0)[first].tolist(), points.max(axis=0)[first].tolist()
    return {e.column: (a, b) for e, a, b in zip(encoders, low, high, strict=True)}


def _column(encoder: Encoder, low: float, high: float) -> JsonObject:
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
            column["range"] = [_date(encoder.first + low), _date(encoder.first + high)]
    elif isinstance(encoder, NumericEncoder):
        column |= {"missing": encoder.marks_missing, "example": encoder.fill}
        if encoder.kind == BOOLEAN:
            column["example"] = encoder.fill > 0.5
        else:
            column["range"] = [low, high]
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

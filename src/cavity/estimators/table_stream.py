"""Table classifiers on streams: columns are learned from the first chunk, later chunks follow them."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from cavity.data.encoded import EncodedRows, encoded_rows
from cavity.data.labels import Classes, LabelScan
from cavity.data.preprocess import TablePreprocessor
from cavity.data.table import FrameTable
from cavity.errors import SourceError
from cavity.estimators.sep import SEPClassifier
from cavity.estimators.streaming import TrainedGPClassifier, check_chunk
from cavity.estimators.table_input import LABELS, check_width, fits_on_cluster, is_dask, training_table
from cavity.text import suggestion
from cavity.typing import InputLabels, InputRows, InputWeights

if TYPE_CHECKING:
    from cavity.estimators.table import TableClassifier


def absorb_chunk(
    model: TableClassifier,
    X: InputRows,
    y: InputLabels,
    classes: ArrayLike | None,
    sample_weight: InputWeights,
) -> None:
    """Let a table classifier learn from one more chunk of a stream."""
    if is_dask(X) or fits_on_cluster(model.estimator):
        raise TypeError("partial_fit takes the chunks of a stream on one machine; fit runs on a cluster")
    check_chunk(X)
    table, target, weight = training_table(X, y, sample_weight)
    assert isinstance(table, FrameTable)
    for name in (target, weight):
        if name is not None and name not in table.columns:
            raise SourceError(f"{table.name} has no column {name!r}{suggestion(name, table.columns)}")
    first = "estimator_" not in vars(model)
    if first:
        _learn(model, table, target, weight, classes)
    check_width(model.preprocessor_, table)
    model.preprocessor_.check_columns(table.columns, table.name)
    labels = replace(model.labels_, target=target)
    parts = list(encoded_rows(table, model.preprocessor_, labels, weight))
    rows = EncodedRows(
        np.concatenate([part.X for part in parts]),
        np.concatenate([part.codes for part in parts]),
        None
        if weight is None
        else np.concatenate([part.weight for part in parts if part.weight is not None]),
    )
    if first or len(rows.X):
        absorb_rows(model, rows, classes)


def absorb_rows(model: TableClassifier, rows: EncodedRows, classes: ArrayLike | None = None) -> None:
    """Let a table classifier learn from rows of a stream that are encoded with its columns."""
    classifier = _continued(model, rows, classes)
    labels = _with_rows(model.labels_, rows)
    model.keep(classifier)
    model.labels_ = labels


def _learn(
    model: TableClassifier,
    table: FrameTable,
    target: str,
    weight: str | None,
    classes: ArrayLike | None,
) -> None:
    """Learn the columns and the classes from the first chunk."""
    others = [name for name in (target, weight) if name is not None]
    model.preprocessor_ = TablePreprocessor(
        max_categories=model.max_categories,
        drop_features=tuple(model.drop_features),
        categorical_features=tuple(model.categorical_features),
    )
    try:
        model.preprocessor_.fit(table.table.drop_columns(others))
    except SourceError as error:
        raise SourceError(
            f"the first chunk, from which the columns are learned, is too small or has nothing to learn "
            f"from: {error}; begin with more rows, better a few thousand"
        ) from error
    left_out = {*table.columns, target} - set(model.preprocessor_.columns_)
    model.preprocessor_.ignored_ = sorted(left_out)
    scan = LabelScan(target, table.name, classes)
    codes = scan.add(table.table.column(target).combine_chunks())
    n_classes = len(np.unique(codes[codes >= 0]))
    if classes is None and n_classes < 2:
        raise SourceError(
            f"the first chunk has {n_classes} classes; pass classes=[...] with all labels that the "
            "stream will have"
        )
    found = scan.finish()
    nothing = np.zeros(len(found.values))
    model.labels_ = replace(found, counts=nothing.astype(np.int64), totals=nothing, missing=0)
    model.target_ = None if target == LABELS else target
    model.weight_ = weight


def _continued(
    model: TableClassifier, rows: EncodedRows, classes: ArrayLike | None
) -> TrainedGPClassifier:
    """The classifier after some more rows; the one before stays as it is."""
    if "estimator_" not in vars(model):
        before = SEPClassifier(random_state=0) if model.estimator is None else clone(model.estimator)
    else:
        before = copy(model.estimator_)
    if not hasattr(before, "partial_fit"):
        raise AttributeError(f"{type(before).__name__} has no partial_fit; use SEPClassifier")
    classifier: TrainedGPClassifier = before
    classifier.__dict__.pop("feature_names_in_", None)  # the features come without names
    values = model.labels_.values
    known = values if classes is None else np.asarray(classes)
    classifier.partial_fit(rows.X, values[rows.codes], known, rows.weight)
    classifier.feature_names_in_ = model.preprocessor_.get_feature_names_out()
    return classifier


def _with_rows(labels: Classes, rows: EncodedRows) -> Classes:
    """The classes with the rows counted that a chunk has."""
    n = len(labels.values)
    return replace(
        labels,
        counts=labels.counts + np.bincount(rows.codes, minlength=n),
        totals=labels.totals + np.bincount(rows.codes, rows.weight, minlength=n),
    )

"""Table classifiers on streams: columns are learned from the first chunk, later chunks follow them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cavity.data import ArraySource
from cavity.data.effect_counts import TableSummariser
from cavity.data.effect_learning import LearnedEffects, effect_notes, learn_effects, refined
from cavity.data.encoded import encoded_rows
from cavity.data.labelled import LabelledRows, labelled_rows
from cavity.data.labels import Classes, LabelScan
from cavity.data.source import RawRows, joined
from cavity.data.table import FrameTable
from cavity.data.weights import check_total_weight, checked_class_factors, name_of_weight
from cavity.errors import SourceError
from cavity.estimators.base import SparseGPClassifier
from cavity.estimators.streaming import StreamingGPClassifier, check_chunk, check_stream_classes
from cavity.estimators.table_input import (
    LABELS,
    check_width,
    fits_on_cluster,
    is_dask,
    take_leaves,
    training_table,
)
from cavity.inference.decisions import FEWEST_ROWS_TO_HOLD_OUT
from cavity.typing import Array, InputLabels, InputRows, InputWeights

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
    chunk = training_table(X, y, sample_weight)
    chunk.check_columns()
    table, target, weight = chunk
    if not isinstance(table, FrameTable):
        raise TypeError(
            f"X is {table.name}; partial_fit takes the rows of a chunk: read them, or call fit, which "
            "goes over files itself"
        )
    first = "estimator_" not in vars(model)
    if first:
        _learn(model, table, target, weight, classes)
    check_width(model.preprocessor_, table)
    model.preprocessor_.check_columns(table.columns, table.name)
    rows = _encoded(model, table, replace(model.labels_, target=target), weight, first)
    if first and not len(rows.X):
        raise SourceError("no row of the first chunk has a target and a weight; begin with rows that do")
    if len(rows.X):
        classifier = None
        if first:
            classifier = model._new_classifier()
            take_leaves(classifier, table, replace(model.labels_, target=target), weight)
        absorb_rows(model, rows, weight, classes, classifier)


def absorb_rows(
    model: TableClassifier,
    rows: RawRows,
    weight: str | None,
    classes: ArrayLike | None = None,
    classifier: SparseGPClassifier | None = None,
) -> None:
    """Let a table classifier learn from rows of a stream that are encoded with its columns.

    weight: name of the column that their weights were; classifier: one to begin with; None goes on with
    that of the model, which stays as it is.
    """
    if weight is not None and rows.weight is not None:
        with np.errstate(over="ignore"):
            check_total_weight(float(rows.weight.sum()), name_of_weight(weight))
    if classifier is None:
        classifier = copy(model.estimator_)
    _learn_rows(classifier, model, rows, classes)
    labels = _with_rows(model.labels_, rows)
    model.keep(classifier)
    model.labels_ = labels


def _encoded(
    model: TableClassifier, table: FrameTable, labels: Classes, weight: str | None, first: bool
) -> RawRows:
    """The features of a chunk; its labels have become part of the model's value effects."""
    before, n_before = model.preprocessor_, int(labels.counts.sum())
    columns = copy(before)
    columns.effects_ = []
    effects = None
    if first:
        effects = _first_effects(model, TableSummariser(table, columns.typed, labels, weight), table)
    elif before.effects_ and before.effects_[0].counts is not None:
        read = columns.columns_, columns.typed, labels, weight, n_before
        rows = list(labelled_rows(table, *read))
        effects = refined(before.effects_, rows, _class_factors(model), _share_kept(model, rows))
    if effects is None:
        return joined(list(encoded_rows(table, before, labels, weight)))
    after = copy(before)  # the one before stays as it is, if this chunk cannot be learned
    after.effects_ = effects.chosen(None)
    if first:
        after.notes_ = [*before.notes_, *effect_notes(after.effects_)]
    model.preprocessor_ = after
    return joined(list(encoded_rows(table, columns, labels, weight, effects, n_before)))


def _first_effects(
    model: TableClassifier, summarise: TableSummariser, table: FrameTable
) -> LearnedEffects | None:
    """The value effects that a stream has, by its first chunk."""
    mode, n_rows = model.target_encoding, table.table.num_rows
    if mode is False or (mode == "auto" and n_rows < FEWEST_ROWS_TO_HOLD_OUT):
        return None
    return learn_effects(
        summarise,
        model.preprocessor_.encoders_,
        n_rows,
        _class_factors(model),
        [str(value) for value in model.labels_.values],
        np.zeros(0, dtype=np.int64),
        mode,
        for_stream=True,
    )


def _class_factors(model: TableClassifier) -> Array:
    inside = vars(model).get("estimator_", model.estimator)
    weights = None if inside is None else inside.class_weight
    values = model.labels_.values
    factors = None
    if weights != "balanced":  # which partial_fit refuses
        factors = checked_class_factors(weights, values, np.ones(len(values)))
    return np.ones(len(values)) if factors is None else factors


def _share_kept(model: TableClassifier, rows: Sequence[LabelledRows]) -> float:
    """The share of the rows so far that the stream remembers after some more, as its posterior does."""
    memory = model.estimator_.window_size
    before = float(model.labels_.totals.sum())
    if memory is None or not before:
        return 1.0
    weight = sum(float(len(r.codes) if r.weight is None else r.weight.sum()) for r in rows)
    return min(1.0, max(0.0, float(memory) - weight) / min(before, float(memory)))


def _learn(
    model: TableClassifier,
    table: FrameTable,
    target: str,
    weight: str | None,
    classes: ArrayLike | None,
) -> None:
    """Learn the columns and the classes from the first chunk."""
    others = [name for name in (target, weight) if name is not None]
    model.preprocessor_ = model._new_preprocessor()
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


def _learn_rows(
    classifier: SparseGPClassifier,
    model: TableClassifier,
    rows: RawRows,
    classes: ArrayLike | None,
) -> None:
    """Let the classifier inside a table classifier learn from some more rows."""
    if not isinstance(classifier, StreamingGPClassifier):
        raise AttributeError(f"{type(classifier).__name__} has no partial_fit; use SEPClassifier")
    classifier.__dict__.pop("feature_names_in_", None)  # the features come without names
    values = model.labels_.values
    check_stream_classes(values, classes, values)
    classifier._learn_chunk(ArraySource(*rows), values)
    classifier.feature_names_in_ = model.preprocessor_.get_feature_names_out()


def _with_rows(labels: Classes, rows: RawRows) -> Classes:
    """The classes, with the rows of a chunk added to their counts."""
    n = len(labels.values)
    return replace(
        labels,
        counts=labels.counts + np.bincount(rows.labels, minlength=n),
        totals=labels.totals + np.bincount(rows.labels, rows.weight, minlength=n),
    )

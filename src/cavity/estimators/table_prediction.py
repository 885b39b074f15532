"""Predictions for whole tables, chunk by chunk, and labelled rows of a table by number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cavity.data.columns import CategoricalEncoder, unread_words
from cavity.data.labelled import numbered_chunks
from cavity.data.parts import import_arrow
from cavity.data.preprocess import TablePreprocessor, warn_of_words
from cavity.data.shuffle import read_ahead
from cavity.data.table import Table
from cavity.errors import SourceError, warn_user
from cavity.gp.metrics import Decision
from cavity.gp.uncertainty import predictive_uncertainty
from cavity.text import listed
from cavity.typing import Array, IntArray

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from cavity.estimators.table import TableClassifier


class LabelledTableRows:
    """The rows of a table that have a label, read from the table when they are asked for.

    `take` reads the whole table and returns a data frame of some rows, whose index has their numbers in
    the table. With `weight`, rows of weight 0 are left out too, as in a fit.

    ids: columns that name the rows, which the frame has besides those that the model uses; None means
    those that the model has left out because they number or name the rows.
    """

    def __init__(
        self,
        model: TableClassifier,
        table: Table,
        weight: str | None = None,
        ids: Sequence[str] | None = None,
    ) -> None:
        if model.target_ is None:
            raise SourceError(
                f"the model was fitted to labels without a name, so that no column of {table.name} has "
                "them; pass y, the labels, along with a data frame"
            )
        table.require(model.target_, "target column")
        if weight is not None:
            table.require(weight, "weight column")
        if ids is None:
            ids = [name for name in model.preprocessor_.identifiers_ if name in table.columns]
        for name in ids:
            table.require(name, "column of ids,")
        warn_of_new_columns(model.preprocessor_, table)
        self.model, self.table, self.weight, self.ids = model, table, weight, list(ids)
        codes = [codes for _, codes, _ in self._chunks([])]
        self.codes: IntArray = np.concatenate(codes)
        if not len(self.codes):
            raise SourceError(f"{table.name}: no row has a target, so there is nothing to report")
        self._warned = False

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def labels(self) -> pandas.Categorical:
        """The labels [n], in the memory that their codes take."""
        import pandas

        return pandas.Categorical.from_codes(self.codes, categories=self.model.classes_)

    def take(self, numbers: IntArray) -> pandas.DataFrame:
        """The rows with these numbers, in their order."""
        pa, _ = import_arrow()
        wanted: IntArray = np.unique(numbers)
        preprocessor = self.model.preprocessor_.reading(self.table)
        unseen, parts, first = UnseenLevels(preprocessor), [], 0
        places: list[IntArray] = []
        for chunk, codes, at in self._chunks(list(dict.fromkeys([*self.model.columns_, *self.ids]))):
            typed = preprocessor.typed(chunk)
            unseen.look_at(chunk, typed)
            inside = wanted[(wanted >= first) & (wanted < first + len(codes))] - first
            rows, some = chunk.take(pa.array(inside)), typed.take(pa.array(inside))
            for name in self.ids:
                if name not in some.schema.names:
                    some = some.append_column(name, rows.column(name))
            plain = [c.dictionary_decode() if isinstance(c, pa.DictionaryArray) else c for c in some]
            parts.append(pa.Table.from_arrays(plain, names=some.schema.names))
            places.append(at[inside])
            first += len(codes)
        if not self._warned:
            unseen.warn(self.table.name)
            self._warned = True
        frame = pa.concat_tables(parts).to_pandas()
        frame.index = np.concatenate(places)
        frame.attrs["table"] = self.table.name
        return frame.iloc[np.searchsorted(wanted, numbers)]

    def _chunks(self, columns: list[str]) -> Iterator[tuple[pyarrow.RecordBatch, IntArray, IntArray]]:
        """Record batches of rows that have a target, their class codes and their places in the table."""
        pa, _ = import_arrow()
        labels = self.model.labels_
        read = [*columns, labels.target]
        if self.weight is not None:
            read = [*read, self.weight]
        for rows, _, places, _ in numbered_chunks(self.table, read, self.weight):
            codes = labels.codes(rows.column(labels.target))
            known = codes >= 0
            yield rows.filter(pa.array(known)), codes[known], places[known]


def predictions(
    model: TableClassifier,
    table: Table,
    keep: Sequence[str] = (),
    level: float | None = None,
    decision: Decision | None = None,
) -> Iterator[pyarrow.RecordBatch]:
    """Arrow record batches of predictions for all rows of a table, in order.

    Columns: those named in `keep`, copied; `label`, the class that the decision predicts, by default the
    most probable one; `probability_<class>`, `latent_mean` and `latent_variance` (of the positive class
    alone, if there are two, by default the second; `latent_…_<class>` for more). With a `level`, also
    `lower_<class>` and `upper_<class>`, the ends of the interval that holds the probability with that
    posterior probability, and `aleatoric`, `epistemic` and `ood_score`, as those of
    `predict_uncertainty` and `ood_score` of the classifiers.

    The next chunk is read and encoded while this one is computed, and computed while the last is used.
    """
    warn_of_new_columns(model.preprocessor_, table)
    return read_ahead(_predicted(model, table, keep, level, decision or Decision()))


def warn_of_new_columns(preprocessor: TablePreprocessor, table: Table, *known: str | None) -> None:
    """Raise if columns are missing; warn of columns that are ignored, except those that are known."""
    unknown = preprocessor.check_columns(table.columns, table.name)
    more = [name for name in unknown if name not in known]
    if more:
        warn_user(f"{table.name} has columns that the model does not know and ignores: {listed(more)}")


class EncodedChunk(NamedTuple):
    """Rows of a table, as the classifier and as the file have them."""

    features: Array
    """[t, d]"""
    rows: pyarrow.RecordBatch
    """A record batch of t rows, with the columns that were asked for."""
    weights: Array | None
    """[t], if there is a column of them."""
    numbers: IntArray
    """[t]: numbers of the rows in the table."""
    n_read: int
    """Number of rows that were read: t, and those of weight 0, which are left out."""


def encoded_chunks(
    preprocessor: TablePreprocessor,
    table: Table,
    others: Sequence[str],
    weight: str | None = None,
    *,
    warn_unseen: bool = True,
) -> Iterator[EncodedChunk]:
    """The rows of a table whose weight is positive, read ahead, with other columns of it.

    In the end, it warns of words that cannot be read and, with `warn_unseen`, of categories that did not
    occur in training.
    """
    preprocessor = preprocessor.reading(table)
    weights = [] if weight is None else [weight]
    columns = list(dict.fromkeys([*preprocessor.columns_, *others, *weights]))
    unseen = UnseenLevels(preprocessor, levels=warn_unseen)

    def encoded() -> Iterator[EncodedChunk]:
        for rows, weights, numbers, n_read in numbered_chunks(table, columns, weight):
            typed = preprocessor.typed(rows)
            unseen.look_at(rows, typed)
            yield EncodedChunk(preprocessor.encode(typed), rows, weights, numbers, n_read)

    yield from read_ahead(encoded())
    unseen.warn(table.name)


def _predicted(
    model: TableClassifier,
    table: Table,
    keep: Sequence[str],
    level: float | None,
    decision: Decision,
) -> Iterator[pyarrow.RecordBatch]:
    pa, _ = import_arrow()
    words = [str(value) for value in model.classes_]
    with model.compute_context() as threads:
        for features, chunk, _, numbers, _ in encoded_chunks(model.preprocessor_, table, keep):
            mean, variance, log_proba = model.moments_and_log_proba(features, threads, numbers)
            columns = {"label": pa.array(model.classes_[decision.codes(log_proba)])}
            probability = np.exp(log_proba)
            shown = [decision.positive] if len(words) == 2 else range(len(words))
            columns |= {f"probability_{words[c]}": pa.array(probability[:, c]) for c in shown}
            for name, values in (("latent_mean", mean), ("latent_variance", variance)):
                if len(values) == 1:
                    # The latent function of two classes is that of the second; the first has minus it.
                    flips = name == "latent_mean" and decision.positive == 0
                    columns[name] = pa.array(-values[0] if flips else values[0])
                else:
                    columns |= {f"{name}_{words[c]}": pa.array(values[c]) for c in range(len(values))}
            if level is not None:
                likelihood = model.estimator_.model_.likelihood
                more = predictive_uncertainty(likelihood, mean, variance, level)
                for c in shown:
                    columns[f"lower_{words[c]}"] = pa.array(more.interval.lower[:, c])
                    columns[f"upper_{words[c]}"] = pa.array(more.interval.upper[:, c])
                columns["aleatoric"] = pa.array(more.aleatoric)
                columns["epistemic"] = pa.array(more.epistemic)
                columns["ood_score"] = pa.array(model.ood_score_at(features, threads))
            twice = [name for name in keep if name in columns]
            if twice:
                raise SourceError(
                    f"{table.name}: the column to keep, {twice[0]!r}, has the name of a column of the "
                    "predictions; rename it"
                )
            yield pa.RecordBatch.from_pydict({name: chunk.column(name) for name in keep} | columns)


_MOST_UNSEEN = 100
"""Values of a column that are collected; a chunk may bring more. The warning names five of them."""


class UnseenLevels:
    """Collects values that did not occur in training, or cannot be read, for one warning a column.

    levels: whether to collect categories that did not occur in training.
    """

    def __init__(self, preprocessor: TablePreprocessor, *, levels: bool = True) -> None:
        self._encoders = [
            encoder
            for encoder in preprocessor.encoders_
            if not isinstance(encoder, CategoricalEncoder) or (levels and not encoder.has_other)
        ]
        self._found: dict[str, set[str]] = {}

    def look_at(self, chunk: pyarrow.RecordBatch, typed: pyarrow.RecordBatch) -> None:
        """Look for such values in a record batch; typed: what `TablePreprocessor.typed` has read."""
        for encoder in self._encoders:
            found = self._found.setdefault(encoder.column, set())
            if len(found) < _MOST_UNSEEN:
                values = typed.column(encoder.column)
                if isinstance(encoder, CategoricalEncoder):
                    found |= encoder.unseen(values)
                else:
                    found |= unread_words(chunk.column(encoder.column), values)

    def warn(self, name: str) -> None:
        """Warn of what was found in the table of that name."""
        for encoder in self._encoders:
            values = self._found.get(encoder.column, set())
            if not isinstance(encoder, CategoricalEncoder):
                warn_of_words(encoder, values, name)
            elif values:
                warn_user(
                    f"{name}: column {encoder.column!r} has values that did not occur in "
                    f"training: {listed(sorted(values), most=5)}; they are treated as none of the known "
                    "values"
                )

"""A classifier for data frames and files with columns of any kind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from operator import attrgetter
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import TransformerMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from cavity.data import ArraySource
from cavity.data.effect_counts import Summariser, TableSummariser
from cavity.data.effect_learning import (
    COLUMNS,
    EFFECTS,
    PAIRS,
    LearnedEffects,
    effect_notes,
    learn_effects,
)
from cavity.data.encoded import encoded_rows, encoded_source
from cavity.data.labels import check_classes
from cavity.data.preprocess import TablePreprocessor, check_names_of_columns
from cavity.data.sampling import held_out_numbers
from cavity.data.source import joined
from cavity.data.table import FrameTable, Table
from cavity.data.weights import check_total_weight, checked_class_factors, name_of_weight
from cavity.errors import SourceError
from cavity.estimators.base import SparseGPClassifier
from cavity.estimators.gfitc import GFITCClassifier
from cavity.estimators.predictor import GPPredictor, R
from cavity.estimators.sep import SEPClassifier
from cavity.estimators.state import rollback_on_error
from cavity.estimators.table_input import (
    LABELS,
    ArrayTable,
    LabelledTable,
    as_table,
    check_place,
    check_width,
    fits_on_cluster,
    is_dask,
    take_leaves,
    training_table,
    validation_table,
)
from cavity.estimators.table_prediction import EncodedChunk, encoded_chunks, warn_of_new_columns
from cavity.estimators.table_stream import absorb_chunk
from cavity.gp.model import Model
from cavity.gp.relevance import Relevance
from cavity.inference.config import TrainingConfig
from cavity.inference.config_checks import any_of, check_value, is_flag, one_of
from cavity.inference.history import Iteration
from cavity.inference.race_records import Race
from cavity.memory import peak_bytes
from cavity.typing import (
    AnyArray,
    Array,
    FeatureNames,
    InputLabels,
    InputOffset,
    InputRows,
    InputWeights,
    IntArray,
)

_TARGET_ENCODINGS = any_of(is_flag, one_of("auto", "pairs")), '"auto", True, False or "pairs"'


def _learned(name: str, text: str) -> Any:
    """A property that reads a learned attribute of the classifier inside."""
    return property(attrgetter(f"_fitted.{name}"), doc=text)


class TableClassifier(TransformerMixin, GPPredictor):
    """A Gaussian process classifier of tables: numbers, strings, truth values, dates, missing cells.

    It learns a `TablePreprocessor` and one of cavity's classifiers, both in streaming passes, so that
    files may be larger than memory. `cavity.save` writes both into one file.

    Parameters
    ----------
    estimator : classifier or None
        A `SEPClassifier`, `SVIClassifier` or `GFITCClassifier`; or a `DaskSEPClassifier` or
        `DaskSVIClassifier`, to fit files or a Dask data frame on a cluster. None is
        `SEPClassifier(random_state=0)`. It has no `warm_start`: a fit learns the columns anew.
    max_categories, drop_features, categorical_features
        As in `TablePreprocessor`.
    target_encoding : "auto", False, True or "pairs"
        Whether *effects* of values are features beside the columns: how much more probable each class
        is, on the log-odds scale, where a column has a certain value, learned from other rows and
        shrunken where rows are few. They help with codes, with strings of many levels, and with numbers
        that have special values. "auto" lets held-out rows decide, if there are 2,000 rows or more, for
        those columns whose values tell more than their size, and for the best pairs and triples of
        columns. True takes all columns whose values repeat, and "pairs" takes the best pairs and triples
        as well.
    cache_dir : path or None
        Where a temporary folder is made if the features of all rows take more than a quarter of the
        available memory, or more than 400 MB for files; None leaves it to the system.

    Attributes
    ----------
    preprocessor_ : the fitted `TablePreprocessor`
    estimator_ : the fitted classifier
    target_, weight_ : str or None, the names of the target column and of that of the weights
    labels_ : `cavity.data.labels.Classes`, the classes and how often each occurred
    classes_ : array [C]
    columns_, feature_names_in_ : names of the columns that are used
    notes_ : list of str, what became of other columns
    relevance_ : `cavity.gp.relevance.Relevance`, how much each column matters, with a 90 % band
    feature_importances_ : array [n_features_in_], the shares of `relevance_`
    fit_seconds_ : float
    peak_memory_bytes_ : int or None, most bytes that the process of the fit had used when it ended

    The other learned attributes, such as `kernel_`, `history_` and `validation_log_loss_`, are those of
    `estimator_`; see `SEPClassifier`.

    Examples
    --------
    >>> import pandas
    >>> from cavity import SEPClassifier
    >>> frame = pandas.DataFrame({"hour": [6, 7, 8, 18, 19, 20] * 5, "carrier": ["AA", "UA", None] * 10})
    >>> frame["late"] = frame["hour"] > 12
    >>> model = TableClassifier(SEPClassifier(n_inducing=5, random_state=0)).fit(frame, "late")
    >>> model.predict(pandas.DataFrame({"hour": [5, 22], "carrier": ["AA", "DL"]}))
    array([False,  True])
    """

    def __init__(
        self,
        estimator: SparseGPClassifier | None = None,
        *,
        max_categories: int = 20,
        drop_features: Sequence[str] = (),
        categorical_features: Sequence[str] = (),
        target_encoding: str | bool = "auto",
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.estimator = estimator
        self.target_encoding = target_encoding
        self.max_categories = max_categories
        self.drop_features = drop_features
        self.categorical_features = categorical_features
        self.cache_dir = cache_dir

    def fit(
        self,
        X: InputRows,
        y: InputLabels,
        sample_weight: InputWeights = None,
        *,
        X_val: InputRows = None,
        y_val: InputLabels = None,
        sample_weight_val: InputWeights = None,
    ) -> TableClassifier:
        """Fit to a table: a data frame, or the paths, patterns or URLs of files that `open_table` reads.

        Data frames are those of pandas, polars, Arrow and, with a classifier of Dask as `estimator`,
        Dask. The columns of an array are x0, x1, …

        y is the name of the target column, `sample_weight` that of a column with the weights of the
        rows; for a data frame they may be arrays [n] instead. A weight of w counts a row w times. Rows
        without a target, or of weight 0, are left out.

        X_val is a table of validation rows of your own, of any of these kinds, with y_val its target
        (by default the column that y names) and sample_weight_val its weights. These rows take the
        place of held-out ones, as those of `SEPClassifier.fit` do, and the model does not learn from
        them; they must fit into memory.
        """
        begun = time.perf_counter()
        self._check_parameters()
        check_place(self.estimator, X)
        client = self.estimator.client if fits_on_cluster(self.estimator) else None
        table, target, weight = training_table(X, y, sample_weight, client)
        validation = validation_table(X_val, y_val, sample_weight_val, y, client)
        if validation is not None and isinstance(self.estimator, GFITCClassifier):
            raise TypeError(
                "X_val cannot be used with GFITCClassifier, which has no training steps that validation "
                "rows could judge; leave X_val out, or use SEPClassifier"
            )
        with rollback_on_error(self):  # columns and classifier must be of the same table
            self.learn_columns(table, target, weight)
            self.train(table, validation)
        self.note_costs(time.perf_counter() - begun)
        return self

    def learn_columns(self, table: Table, target: str, weight: str | None = None) -> None:
        """Learn the columns and the classes; the first half of a fit."""
        if table.n_rows == 1:
            raise SourceError(
                f"{table.name} has one row (n_samples=1); pass rows of two classes or more"
            )
        self.preprocessor_ = self._new_preprocessor()
        scan = self.preprocessor_.learn(table, target, weight)
        assert scan is not None
        if isinstance(table, ArrayTable):
            self.preprocessor_.dtype_ = table.precision
        self.labels_ = scan.finish()
        check_classes(self.labels_.values, int(self.labels_.counts.sum()), listed_by_user=True)
        if weight is not None:
            with np.errstate(over="ignore"):
                check_total_weight(float(self.labels_.totals.sum()), name_of_weight(weight))
        self.target_ = None if target == LABELS else target
        self.weight_ = weight
        left_out = {target, *table.columns} - set(self.preprocessor_.columns_)
        self.preprocessor_.ignored_ = sorted(left_out)
        if self.labels_.missing:
            self.notes_.append(f"{self.labels_.missing:,} rows without a target are left out")
        if scan.weightless:
            self.notes_.append(f"{scan.weightless:,} rows of weight 0 are left out")

    def train(
        self,
        table: Table,
        validation: LabelledTable | None = None,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Train the classifier on the columns that were learned; the second half of a fit.

        validation: validation rows of the user's own; ready: called when everything is checked and
        encoded, before the first step.
        """
        classifier = self._new_classifier()
        factors = checked_class_factors(
            classifier.class_weight, self.labels_.values, self.labels_.totals
        )
        take_leaves(classifier, table, self.labels_, self.weight_)
        rows, validates = (self.preprocessor_, self.labels_, self.weight_), validation is not None
        if fits_on_cluster(classifier):
            from cavity.engines.dask.tables import TablePieces  # Dask is an extra

            pieces = TablePieces(table, *rows, classifier.client)
            effects = self._learn_effects(classifier, pieces, factors, validates=validates)
            encoded = pieces.lazy_table(effects)
            options = self._validation_options(validation, effects)
            ready()
            classifier.fit(encoded, **options)
            classifier = classifier.to_local()
        else:
            if self.target_encoding is not False:  # which takes several passes
                table = self.preprocessor_.read_once(table)
            summarise = TableSummariser(table, self.preprocessor_.typed, self.labels_, self.weight_)
            effects = self._learn_effects(classifier, summarise, factors, validates=validates)
            options = self._validation_options(validation, effects)
            with encoded_source(
                table, *rows[:2], weight=self.weight_, effects=effects, folder=self.cache_dir
            ) as source:
                ready()
                classifier.fit(source, **options)
                if not isinstance(source, ArraySource):
                    classifier._training = None  # its rows are in a folder that will be gone
        if effects is not None:
            self.preprocessor_.effects_ = effects.chosen(classifier.config_.feature_set)
            self.preprocessor_.notes_ += effect_notes(self.preprocessor_.effects_)
        self.keep(classifier)

    def _check_parameters(self) -> None:
        """Raise for parameters with impossible values, those of the classifier inside among them."""
        check_value("target_encoding", self.target_encoding, _TARGET_ENCODINGS)
        check_names_of_columns("drop_features", self.drop_features)
        check_names_of_columns("categorical_features", self.categorical_features)
        classifier = self.estimator
        if classifier is None:
            return
        if not isinstance(classifier, SparseGPClassifier):
            raise TypeError(
                f"estimator={classifier!r:.80} is not a classifier of cavity; pass one, such as "
                "SEPClassifier(), or None"
            )
        classifier._check_parameters()
        if classifier.warm_start:
            raise ValueError(
                "warm_start=True is not for the estimator of TableClassifier, whose fit learns the "
                "columns anew; leave it out, and learn more rows by partial_fit"
            )

    def _new_preprocessor(self) -> TablePreprocessor:
        return TablePreprocessor(
            max_categories=self.max_categories,
            drop_features=tuple(self.drop_features),
            categorical_features=tuple(self.categorical_features),
        )

    def _new_classifier(self) -> SparseGPClassifier:
        return SEPClassifier(random_state=0) if self.estimator is None else clone(self.estimator)

    def _validation_options(
        self, validation: LabelledTable | None, effects: LearnedEffects | None
    ) -> dict[str, ArraySource]:
        """Validation rows as the argument that the classifier takes; they see what new rows see."""
        if validation is None:
            return {}
        table, target, weight = validation
        preprocessor = copy(self.preprocessor_)
        preprocessor.effects_ = [] if effects is None else effects.chosen(None)
        warn_of_new_columns(preprocessor, table, target, weight)
        labels = replace(self.labels_, target=target)
        rows = encoded_rows(table, preprocessor.reading(table), labels, weight)
        found = joined(list(rows))
        if not len(found.X):
            raise SourceError(
                f"X_val: no row of {table.name} has a target and a weight; pass rows that do, or leave "
                "X_val out"
            )
        return {"X_val": ArraySource(*found, classes=labels.values, is_checked=True)}

    def partial_fit(
        self,
        X: InputRows,
        y: InputLabels,
        classes: ArrayLike | None = None,
        sample_weight: InputWeights = None,
    ) -> TableClassifier:
        """Learn from one more chunk of rows, a data frame or array; earlier chunks stay learned.

        The first call on a model that is not fitted learns the columns from its chunk, which should
        have some thousand rows, and needs `classes` if the chunk does not show all of them. Later
        chunks are encoded with these columns: a category that the first chunk did not have is treated
        as in a prediction. The first chunk also decides which columns have value effects, and every
        chunk adds to what they are learned from; after a `fit` they stay as they were learned. y and
        `sample_weight` are names of columns, or arrays [n]. See `SEPClassifier.partial_fit`.
        """
        begun = time.perf_counter()
        self._check_parameters()
        with rollback_on_error(self):
            absorb_chunk(self, X, y, classes, sample_weight)
        self.note_costs(vars(self).get("fit_seconds_", 0.0) + time.perf_counter() - begun)
        return self

    def _learn_effects(
        self,
        classifier: SparseGPClassifier,
        summarise: Summariser,
        factors: Array | None,
        *,
        validates: bool,
    ) -> LearnedEffects | None:
        """The value effects of the columns, or None if there are none to use or to choose from.

        factors: [C], what the weights of the classes are multiplied by, if they are; validates: whether
        the user has validation rows of their own.
        """
        if self.target_encoding is False:
            return None
        labels, preprocessor = self.labels_, self.preprocessor_
        n_rows = int(labels.counts.sum())
        n_features = preprocessor.n_features_out_
        plan = classifier._plan(
            n_rows, n_features, labels.values, (COLUMNS, EFFECTS, PAIRS), validates=validates
        )
        if self.target_encoding == "auto" and not plan.chooses_features:
            return None
        held_out: IntArray = np.zeros(0, dtype=np.int64)
        if plan.config.validation_fraction:
            held_out = held_out_numbers(
                n_rows, n_features, plan.config.validation_fraction, plan.config.seed
            )
        return learn_effects(
            summarise,
            preprocessor.encoders_,
            n_rows,
            np.ones(len(labels.values)) if factors is None else factors,
            [str(value) for value in labels.values],
            held_out,
            self.target_encoding,
        )

    def keep(self, classifier: SparseGPClassifier) -> None:
        """Take a classifier that was fitted to the features of the table."""
        self.estimator_ = classifier
        self.classes_ = self.labels_.values

    @property
    def columns_(self) -> list[str]:
        """Names of the columns that are used."""
        return self.preprocessor_.columns_

    @property
    def feature_names_in_(self) -> AnyArray:
        """Names [n_features_in_] of the columns that are used."""
        return np.asarray(self.columns_, dtype=object)

    @property
    def n_features_in_(self) -> int:
        """Number of the columns that are used."""
        return len(self.preprocessor_.encoders_)

    @property
    def notes_(self) -> list[str]:
        """What became of other columns, and of rows that were left out."""
        return self.preprocessor_.notes_

    config_: TrainingConfig = _learned(
        "config_", "`TrainingConfig`, what every parameter meant in the fit."
    )
    race_: Race | None = _learned(
        "race_", "`Race` of the candidates for what the parameters left open, or None."
    )
    validation_log_loss_: float = _learned(
        "validation_log_loss_", "Mean log loss of held-out rows in nats; NaN if there were none."
    )
    validation_standard_error_: float = _learned(
        "validation_standard_error_", "Standard error of `validation_log_loss_`."
    )
    n_validation_rows_: int = _learned("n_validation_rows_", "Number of rows that were held out.")
    loo_log_proba_: Array = _learned(
        "loo_log_proba_",
        "Leave-one-out log probability [n] of the label of each row that has a target and a weight.",
    )
    loo_log_loss_: float = _learned("loo_log_loss_", "Mean leave-one-out log loss in nats.")
    log_marginal_likelihood_value_: float = _learned(
        "log_marginal_likelihood_value_", "Estimate of log p(y) at the end of the fit."
    )
    n_iter_: int = _learned("n_iter_", "Number of iterations.")
    history_: list[Iteration] = _learned("history_", "List of `Iteration`, the course of the fit.")

    def note_costs(self, seconds: float) -> None:
        """Store the time and memory of the fit, for reports."""
        self.fit_seconds_ = seconds
        self.peak_memory_bytes_ = peak_bytes()

    def get_feature_names_out(self, input_features: FeatureNames = None) -> AnyArray:
        """Names of the features that the classifier sees."""
        return self.preprocessor_.get_feature_names_out()

    def transform(self, X: InputRows) -> Array:
        """The features [n, d] of a table, as the classifier sees them."""
        return np.vstack([rows for rows, _ in self._chunks(X, None)])

    @property
    def _fitted(self) -> SparseGPClassifier:
        check_is_fitted(self, "estimator_")
        return self.estimator_

    def _chunks(self, X: InputRows, offset: InputOffset) -> Iterator[tuple[Array, None]]:
        check_is_fitted(self)
        if offset is not None:
            raise ValueError(
                "offset is not for TableClassifier, whose rows have none in the fit; leave it out"
            )
        table = as_table(X)
        check_width(self.preprocessor_, table)
        warn_of_new_columns(self.preprocessor_, table)
        return ((chunk.features, None) for chunk in self._encoded(table, []))

    def _encoded(
        self, table: Table, others: Sequence[str], weight: str | None = None
    ) -> Iterator[EncodedChunk]:
        """The rows of a table, with other columns of it; see `encoded_chunks`."""
        is_file = not isinstance(table, FrameTable)
        return encoded_chunks(self.preprocessor_, table, others, weight, warn_unseen=is_file)

    def score(self, X: InputRows, y: InputLabels = None, sample_weight: InputWeights = None) -> float:
        """The share of the rows whose label is predicted, each counted by its weight.

        X, y and sample_weight are what `fit` takes; y may be left out if the target of the fit is a
        column. Rows without a label are left out, and a label that the model does not know is wrong.
        """
        check_is_fitted(self)
        if is_dask(X) and not isinstance(y, (str, type(None))):
            return float(super().score(X, y, sample_weight))
        labelled = training_table(X, self.target_ if y is None else y, sample_weight)
        labelled.check_columns()
        table, target, weight = labelled
        check_width(self.preprocessor_, table)
        warn_of_new_columns(self.preprocessor_, table, target, weight)
        labels = replace(self.labels_, target=target)
        right = total = 0.0
        with self.compute_context() as threads:
            for chunk in self._encoded(table, [target], weight):
                codes = labels.codes(chunk.rows.column(target), unknown=-2)
                _, _, log_proba = self.moments_and_log_proba(chunk.features, threads, chunk.numbers)
                counts = np.ones(len(codes)) if chunk.weights is None else chunk.weights
                right += float(counts[log_proba.argmax(axis=1) == codes].sum())
                total += float(counts[codes != -1].sum())
        if not total:
            raise SourceError(f"{table.name}: no row has a label and a weight, so there is no score")
        return right / total

    def _relevance(self, model: Model) -> Relevance:
        groups = self.preprocessor_.features_of_columns()
        return Relevance(model, list(groups), list(groups.values()))

    def _predicted(self, method: Callable[..., R], X: InputRows, options: dict[str, object]) -> R:
        if not is_dask(X):
            return super()._predicted(method, X, options)
        from cavity.estimators.dask import predict_table  # Dask is an extra

        return cast(R, predict_table(self, method.__name__, X, **options))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

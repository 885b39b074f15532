"""A classifier for data frames and files with columns of any kind."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from cavity.data import ArraySource
from cavity.data.effect_learning import (
    COLUMNS,
    EFFECTS,
    PAIRS,
    LearnedEffects,
    effect_notes,
    learn_effects,
)
from cavity.data.encoded import training_rows
from cavity.data.labelled import labelled_rows
from cavity.data.labels import whole_labels
from cavity.data.preprocess import TablePreprocessor
from cavity.data.table import FrameTable, Table, as_arrow, open_table
from cavity.data.weights import check_total_weight, checked_class_factors
from cavity.engines.backend import held_out_numbers
from cavity.engines.threads import Threads, compute_context, thread_count
from cavity.errors import SourceError
from cavity.estimators.base import SparseGPClassifier
from cavity.estimators.facts import NotebookRepr
from cavity.estimators.sep import SEPClassifier
from cavity.estimators.state import rollback_on_error
from cavity.export.model_file import save
from cavity.inference.config import any_of, check_value, is_flag, one_of
from cavity.memory import peak_bytes
from cavity.text import listed
from cavity.typing import (
    AnyArray,
    Array,
    FeatureNames,
    InputLabels,
    InputRows,
    InputWeights,
    IntArray,
)

_LABELS, _WEIGHTS = "(target)", "(weight)"
_TARGET_ENCODINGS = any_of(is_flag, one_of("auto", "pairs")), '"auto", True, False or "pairs"'


class TableClassifier(NotebookRepr, ClassifierMixin, BaseEstimator):
    """A Gaussian process classifier of tables: numbers, strings, truth values, dates, missing cells.

    It learns a `TablePreprocessor` and one of cavity's classifiers, both in streaming passes, so that
    files may be larger than memory. `cavity.save` writes both into one file.

    Parameters
    ----------
    estimator : classifier or None
        A `SEPClassifier`, `SVIClassifier` or `GFITCClassifier`; None is `SEPClassifier()`.
    max_categories, drop_features, categorical_features
        As in `TablePreprocessor`.
    target_encoding : "auto", False, True or "pairs"
        Whether *effects* of values are features beside the columns: how much more probable each class
        is, on the log-odds scale, where a column has a certain value, learned from other rows and
        shrunken where rows are few. They help with codes, with strings of many levels, and with numbers
        that have special values. "auto" lets held-out rows decide, if there are 2,000 rows or more, for
        those columns whose values tell more than their size. True takes all columns whose values repeat,
        and "pairs" takes the best pairs of columns as well.
    cache_dir : path or None
        Where a temporary folder is made if the features of all rows take more than a quarter of the
        available memory; None leaves it to the system.

    Attributes
    ----------
    preprocessor_ : the fitted `TablePreprocessor`
    estimator_ : the fitted classifier
    target_, weight_ : str or None, the names of the target column and of that of the weights
    labels_ : `cavity.data.labels.Classes`, the classes and how often each occurred
    classes_ : array [C]
    columns_, feature_names_in_ : names of the columns that are used
    notes_ : list of str, what became of other columns
    fit_seconds_ : float
    peak_memory_bytes_ : int or None, most bytes that the process of the fit had used when it ended

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

    def fit(self, X: InputRows, y: InputLabels, sample_weight: InputWeights = None) -> TableClassifier:
        """Fit to a table: a data frame, or the path, pattern or URL of files that `open_table` reads.

        y is the name of the target column, `sample_weight` that of a column with the weights of the
        rows; for a data frame they may be arrays [n] instead. A weight of w counts a row w times. Rows
        without a target, or of weight 0, are left out.
        """
        begun = time.perf_counter()
        check_value("target_encoding", self.target_encoding, _TARGET_ENCODINGS)
        table, target = _with_column(X, y, "y", _LABELS)
        weight = None
        if sample_weight is not None:
            table, weight = _with_column(table, sample_weight, "sample_weight", _WEIGHTS)
        with rollback_on_error(self):  # columns and classifier must be of the same table
            self.learn_columns(table, target, weight)
            self.train(table)
        self.note_costs(time.perf_counter() - begun)
        return self

    def learn_columns(self, table: Table, target: str, weight: str | None = None) -> None:
        """Learn the columns and the classes; the first half of a fit."""
        self.preprocessor_ = TablePreprocessor(
            max_categories=self.max_categories,
            drop_features=tuple(self.drop_features),
            categorical_features=tuple(self.categorical_features),
        )
        scan = self.preprocessor_.learn(table, target, weight)
        assert scan is not None
        self.labels_ = scan.finish()
        if weight is not None:
            with np.errstate(over="ignore"):
                check_total_weight(float(self.labels_.totals.sum()), f"the weight {weight!r}")
        self.target_ = None if target == _LABELS else target
        self.weight_ = weight
        left_out = {target, *table.columns} - set(self.preprocessor_.columns_)
        self.preprocessor_.ignored_ = sorted(left_out)
        if self.labels_.missing:
            self.notes_.append(f"{self.labels_.missing:,} rows without a target are left out")
        if scan.weightless:
            self.notes_.append(f"{scan.weightless:,} rows of weight 0 are left out")

    def train(self, table: Table) -> None:
        """Train the classifier on the columns that were learned; the second half of a fit."""
        classifier = SEPClassifier() if self.estimator is None else clone(self.estimator)
        effects = self._learn_effects(table, classifier)
        with training_rows(
            table,
            self.preprocessor_,
            self.labels_,
            weight=self.weight_,
            effects=effects,
            folder=self.cache_dir,
        ) as source:
            classifier.fit(source)
            if not isinstance(source, ArraySource):
                classifier._training = None  # its rows are in a folder that will be gone
        if effects is not None:
            self.preprocessor_.effects_ = effects.chosen(classifier.config_.feature_set)
            self.preprocessor_.notes_ += effect_notes(self.preprocessor_.effects_)
        self.keep(classifier)

    def _learn_effects(self, table: Table, classifier: SparseGPClassifier) -> LearnedEffects | None:
        """The value effects of the columns, or None if there are none to use or to choose from."""
        if self.target_encoding is False:
            return None
        labels, preprocessor = self.labels_, self.preprocessor_
        n_rows = int(labels.counts.sum())
        n_features = preprocessor.n_features_out_
        plan = classifier._plan(n_rows, n_features, labels.values, (COLUMNS, EFFECTS, PAIRS))
        if self.target_encoding == "auto" and not plan.chooses_features:
            return None
        held_out: IntArray = np.zeros(0, dtype=np.int64)
        if plan.config.validation_fraction:
            held_out = held_out_numbers(
                n_rows, n_features, plan.config.validation_fraction, plan.config.seed
            )
        factors = checked_class_factors(classifier.class_weight, labels.values, labels.totals)
        types = preprocessor.text_types()
        return learn_effects(
            lambda columns: labelled_rows(table, columns, types, labels, self.weight_),
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

    def note_costs(self, seconds: float) -> None:
        """Store the time and memory of the fit, for reports."""
        self.fit_seconds_ = seconds
        self.peak_memory_bytes_ = peak_bytes()

    def get_feature_names_out(self, input_features: FeatureNames = None) -> AnyArray:
        """Names of the features that the classifier sees."""
        return self.preprocessor_.get_feature_names_out()

    def transform(self, X: InputRows) -> Array:
        """The features [n, d] of a data frame, as the classifier sees them."""
        check_is_fitted(self)
        table = as_arrow(X)
        more = self.preprocessor_.check_columns(table.schema.names, "the data frame")
        if not table.num_rows:
            raise SourceError("the data frame has no rows, so there is nothing to predict")
        if more:
            warnings.warn(
                f"the data frame has columns that the model does not know and ignores: {listed(more)}",
                stacklevel=3,
            )
        return self.preprocessor_.transform(table)

    def predict_proba(self, X: InputRows) -> Array:
        """Probabilities [n, C] of the classes of a data frame's rows, in the order of `classes_`."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: InputRows) -> Array:
        """Log probabilities [n, C] of the classes."""
        return self._at(X)[2]

    def predict(self, X: InputRows) -> Array:
        """The most probable class of each row [n]."""
        return np.asarray(self.classes_[self._at(X)[2].argmax(axis=1)])

    def decision_function(self, X: InputRows) -> Array:
        """The classifier's score of each row: [n] for two classes, [n, C] for more."""
        mean, variance, _ = self._at(X)
        return np.asarray(self.estimator_.model_.likelihood.decision_score(mean, variance))

    def latent_mean_and_variance(self, X: InputRows) -> tuple[Array, Array]:
        """Posterior mean and variance of the latent function: [n] for two classes, [n, C] for more."""
        mean, variance, _ = self._at(X)
        return (mean[0], variance[0]) if len(mean) == 1 else (mean.T, variance.T)

    def _at(self, X: InputRows) -> tuple[Array, Array, Array]:
        features = self.transform(X)
        with self.compute_context() as threads:
            return self.moments_and_log_proba(features, threads)

    def moments_and_log_proba(self, features: Array, threads: Threads) -> tuple[Array, Array, Array]:
        """Latent mean and variance [L, n] and log probabilities [n, C] at features [n, d], in one go."""
        model = self.estimator_.model_
        mean, variance = model.latent_moments(features, threads.map)
        return mean, variance, model.likelihood.predict_log_proba(mean, variance)

    def compute_context(self) -> AbstractContextManager[Threads]:
        """Threads for `moments_and_log_proba`, as many as the classifier's n_jobs says."""
        return compute_context(thread_count(self.estimator_.n_jobs))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model, columns and classifier, to one file that `cavity.load` reads."""
        save(self, path)


def _with_column(
    X: InputRows, values: InputLabels | InputWeights, what: str, name: str
) -> tuple[Table, str]:
    """The table with labels or weights as a column, and that column's name."""
    if isinstance(values, str):
        return open_table(X), values
    if isinstance(X, (str, os.PathLike)) or (isinstance(X, Table) and not isinstance(X, FrameTable)):
        place = X if isinstance(X, (str, os.PathLike)) else X.name
        role = "target" if what == "y" else "column of weights"
        raise SourceError(
            f"{what} is a {type(values).__name__}; for the table at {place}, it is the name of the "
            f"{role}"
        )
    table = X.table if isinstance(X, FrameTable) else as_arrow(X)
    array = np.asarray(whole_labels(values))
    if array.shape != (table.num_rows,):
        raise SourceError(
            f"{what} has shape {array.shape}, but the data frame has {table.num_rows} rows"
        )
    if name in table.schema.names:
        raise SourceError(f"the data frame has a column named {name!r}; rename it")
    column = as_arrow({name: array.tolist()}).column(0)
    return open_table(table.append_column(name, column)), name

"""Labels: which classes they have, and the code of each label, its position among the classes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from cavity.data.parts import import_arrow
from cavity.errors import SourceError
from cavity.text import listed, shown
from cavity.typing import AnyArray, AnyDtype, Array, InputLabels, IntArray

if TYPE_CHECKING:
    import pyarrow as pa

Label: TypeAlias = bool | int | str
"""A class value of a target column."""

MOST_CLASSES = 1_000
"""More different labels than this are refused, unless the classes were listed by the user."""
FEW_CLASSES = 20
"""Up to this many classes are accepted, however few rows there are."""
_POSITIVE_OF = {
    frozenset(pair): pair[1]
    for pair in (
        ("no", "yes"),
        ("n", "y"),
        ("false", "true"),
        ("f", "t"),
        ("0", "1"),
        ("-1", "1"),
        ("negative", "positive"),
        ("neg", "pos"),
        ("-", "+"),
    )
}
"""The positive one of two labels that are opposites, in lower case."""


def code_type(n_classes: int) -> AnyDtype:
    """The type of label codes: one byte a row, if that is enough.

    >>> code_type(128), code_type(129)
    (dtype('int8'), dtype('int32'))
    """
    return np.dtype(np.int8 if n_classes <= 128 else np.int32)


def n_latents(n_classes: int) -> int:
    """Number of latent functions of a model: one for two classes, else one for each class.

    A value has as many effects, and a score as many rankings.

    >>> n_latents(2), n_latents(3)
    (1, 3)
    """
    return 1 if n_classes == 2 else n_classes


def whole_labels(labels: InputLabels) -> InputLabels:
    r"""The labels; a list as an array of objects if an array of text would change some of them.

    NumPy's arrays of text drop NULs at the end, so that two classes could become one, and make words of
    numbers, so that NaN would be a class.

    >>> whole_labels(["a", "a\0"])
    array(['a', 'a\x00'], dtype=object)
    >>> whole_labels(["a", float("nan")])
    array(['a', nan], dtype=object)
    """
    if not isinstance(labels, (list, tuple)):
        return labels
    words = [isinstance(label, str) for label in labels]
    if any(words) and (not all(words) or any(label.endswith("\0") for label in labels)):
        return np.array(labels, dtype=object)
    return labels


def encode_labels(y: AnyArray, classes: AnyArray | None = None) -> tuple[AnyArray, IntArray]:
    """Class values [C], sorted, and the codes of labels y [n]; with `classes`, y has no others.

    >>> encode_labels(np.array(["b", "a", "b"]))
    (array(['a', 'b'], dtype='<U1'), array([1, 0, 1], dtype=int8))
    """
    if classes is None:
        classes, codes = np.unique(y, return_inverse=True)
    else:
        codes = np.searchsorted(classes, y)
    return classes, codes.astype(code_type(len(classes)))


def positive_class(classes: AnyArray, counts: AnyArray) -> int:
    """Code of the positive one of two classes [2], which have these numbers of training rows [2].

    It is the one that says so, as in yes and no, true and false, 1 and 0, positive and negative; of
    other labels the rarer one, and of equally many the second.

    >>> positive_class(np.array(["No", "Yes"]), np.array([10, 90]))
    1
    >>> positive_class(np.array([-1, 1]), np.array([10, 90]))
    1
    >>> positive_class(np.array(["late", "on time"]), np.array([10, 90]))
    0
    """
    if len(classes) != 2:
        raise ValueError(f"there are {len(classes)} classes; a positive one is defined for two")
    words = [_text(value).strip().lower() for value in classes.tolist()]
    word = _POSITIVE_OF.get(frozenset(words))
    return words.index(word) if word is not None else int(counts[1] <= counts[0])


def require_two_classes(classes: Sequence[object], name: str) -> None:
    """Raise if there is only one class; `name` is what the error calls the labels."""
    if len(classes) < 2:
        raise SourceError(
            f"{name} has one class ({classes[0]!r}) among the rows with any weight; a classifier needs "
            "at least two: check the target column, the filter before it, or the weights"
        )


def check_classes(classes: AnyArray, n_rows: int, *, listed_by_user: bool = False) -> AnyArray:
    """Return the classes [C] of n rows, or raise if there is one only, or too many to be classes."""
    require_two_classes(classes.tolist(), "y")
    too_many = len(classes) > MOST_CLASSES and not listed_by_user
    if too_many or (len(classes) > FEW_CLASSES and 2 * len(classes) > n_rows):
        raise SourceError(
            f"y has {len(classes):,} different values in {n_rows:,} rows, which looks like a quantity "
            f"or an identifier, not like classes (at most {MOST_CLASSES:,}); bin it, or use a regressor"
        )
    return classes


def require_one_kind(y: AnyArray, name: str = "y") -> None:
    """Raise if some of the labels y [n] are missing, or if they cannot be sorted.

    >>> require_one_kind(np.array(["b", None], dtype=object))
    Traceback (most recent call last):
    cavity.errors.SourceError: y has labels of the kinds NoneType and str; classes are all of one \
kind: drop the rows without a label, or convert the others, for instance with y.astype(str)
    """
    if y.dtype.kind == "c":
        raise SourceError(f"{name} has dtype {y.dtype}; classes are whole numbers, strings or booleans")
    if any_missing(y):
        raise SourceError(f"{name} has labels that are missing (NaN, NaT or NA); drop their rows")
    if y.dtype.kind != "O":
        return
    examples = {type(label): label for label in y.ravel().tolist()}
    try:
        sorted(examples.values())
    except TypeError as error:
        kinds = sorted(kind.__name__ for kind in examples)
        raise SourceError(
            f"{name} has labels of the kinds {' and '.join(kinds)}; classes are all of one kind: drop "
            "the rows without a label, or convert the others, for instance with y.astype(str)"
        ) from error


def any_missing(y: AnyArray) -> bool:
    """Whether one of the labels y [n] is NaN, NaT or the NA of pandas; None is a label of another kind.

    >>> any_missing(np.array(["a", np.nan], dtype=object)), any_missing(np.array(["a", "b"]))
    (True, False)
    """
    if y.dtype.kind in "Mm":
        return bool(np.isnat(y).any())
    if y.dtype.kind == "f":
        return bool(np.isnan(y).any())
    if y.dtype.kind != "O":
        return False
    return any(not isinstance(value, str) and _is_missing(value) for value in y.ravel().tolist())


def _is_missing(value: object) -> bool:
    """Whether a value is not equal to itself, as NaN and NaT, or nothing is known of it, as NA."""
    if type(value).__name__ == "NAType":  # of pandas, which need not be installed
        return True
    same = value == value
    return isinstance(same, (bool, np.bool_)) and not same


@dataclass(frozen=True)
class Classes:
    """The classes of a target column."""

    target: str
    """Name of the column."""
    values: AnyArray
    """[C], sorted."""
    counts: IntArray
    """[C]: number of training rows of each class."""
    totals: Array
    """[C]: total weight of these rows; their number, if they have no weights."""
    missing: int
    """Number of training rows without a label, which were left out."""

    @property
    def code_type(self) -> AnyDtype:
        """The type of the codes."""
        return code_type(len(self.values))

    def codes(self, array: pa.Array, unknown: int | None = None) -> IntArray:
        """Codes [t] of an Arrow array, −1 where the label is missing.

        A label that is no class may differ from one by blanks at its ends alone. unknown: the code of
        all other labels; None raises.
        """
        values, positions = _distinct(array)
        words = [_text(value) for value in self.values.tolist()]
        code_of = {word.strip(): code for code, word in enumerate(words)}
        code_of |= {word: code for code, word in enumerate(words)}
        lookup = np.full(len(values), -1)
        for i in np.unique(positions):  # a dictionary may list values that do not occur
            value = self._as_in_training(values[i])
            if value is None:
                continue
            code = code_of.get(_text(value), code_of.get(_text(value).strip(), unknown))
            if code is None:
                raise SourceError(
                    f"the target {self.target!r} has the value {value!r}, which is not among the "
                    f"classes that the model knows: {listed([str(known) for known in self.values])}"
                )
            lookup[i] = code
        return np.asarray(lookup[positions], dtype=self.code_type)

    def spelled(self, labels: AnyArray) -> AnyArray:
        """Labels [n] in the spelling of the classes; those that are no class stay as they are."""
        if labels.dtype.kind not in "OUT":
            return labels
        pa, _ = import_arrow()
        try:
            codes = self.codes(pa.array(labels.tolist(), from_pandas=True), unknown=-1)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return labels  # of several kinds
        found = labels.astype(object)
        found[codes >= 0] = self.values[codes[codes >= 0]]
        return np.asarray(whole_labels(found.tolist()))

    def _as_in_training(self, value: object) -> object:
        """A label as training read it: words of a text file as the numbers or truth values they are."""
        if not isinstance(value, str):
            return value
        word = value.strip()
        if self.values.dtype.kind == "b":
            return _truth(word) if _truth(word) is not None else word or None
        if self.values.dtype.kind in "iu":
            number = _number(word)
            return word or None if number is None else number
        return None if not word and "" not in self.values else value


class LabelScan:
    """Finds the classes of a target column that is read chunk by chunk."""

    def __init__(self, target: str, table: str | None = None, classes: ArrayLike | None = None) -> None:
        """table: what errors call the table; classes: all values that may occur, if they are known."""
        self.target = target
        self.table = table
        self.missing = 0
        self.weightless = 0
        """Number of rows that were left out because their weight is 0."""
        self._is_open = classes is None
        known = [] if classes is None else np.unique(np.asarray(classes)).tolist()
        self._code_of: dict[Label, int] = {value: code for code, value in enumerate(known)}
        self._counts = np.zeros(len(known), np.int64)
        self._totals: AnyArray = np.zeros(len(known))

    @property
    def is_empty(self) -> bool:
        """Whether no row has been counted yet, with or without a label."""
        return not self._counts.any() and not self.missing

    def add(self, array: pa.Array, weights: Array | None = None, place: object = None) -> IntArray:
        """Count the next labels, an Arrow array [t] of rows with weights [t].

        Returns codes [t] in the order in which the classes were found, −1 for a missing label; `sorted`
        turns them into positions among the sorted classes. place: what errors call these rows.
        """
        where = self._described_target(place)
        pa, _ = import_arrow()
        if pa.types.is_nested(array.type) or isinstance(array.type, pa.BaseExtensionType):
            raise SourceError(
                f"{where} is {array.type}; classes are whole numbers, strings or truth values"
            )
        values, positions = _distinct(array)
        lookup = np.full(len(values), -1)
        for i in np.unique(positions):  # a dictionary may list values that do not occur
            if values[i] is not None:
                lookup[i] = self._code(values[i], where)
        codes = lookup[positions]
        known = codes >= 0
        if not known.all():
            self.missing += int(np.count_nonzero(~known))
            weights = None if weights is None else weights[known]
        n = len(self._code_of)
        labelled = codes if known.all() else codes[known]
        self._counts = np.bincount(labelled, minlength=n) + _padded(self._counts, n)
        self._totals = np.bincount(labelled, weights, minlength=n) + _padded(self._totals, n)
        return np.asarray(codes, dtype=code_type(n))

    def finish(self) -> Classes:
        """The classes, sorted."""
        values = sorted(self._code_of)
        if not values:
            raise SourceError(f"{self._described_target()} has no values: every row lacks it")
        require_two_classes(values, self._described_target())
        found = np.asarray(whole_labels(values))
        if found.dtype.kind == "f" and all(isinstance(value, int) for value in values):
            found = np.array(values, dtype=np.uint64)  # beyond the range of int64
        order = [self._code_of[value] for value in values]
        return Classes(self.target, found, self._counts[order], self._totals[order], self.missing)

    def sorted(self, codes: IntArray) -> IntArray:
        """Codes [n] that `add` returned, as positions among the sorted classes."""
        order = [self._code_of[value] for value in sorted(self._code_of)]
        position = np.empty(len(order), dtype=code_type(len(order)))
        position[order] = np.arange(len(order))
        return np.asarray(position[codes])

    def _described_target(self, place: object = None) -> str:
        """The target, as errors call it."""
        place = self.table if place is None else place
        return f"the target {self.target!r}" if place is None else f"{place}: the target {self.target!r}"

    def _code(self, value: object, where: str) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, (bool, int, str)):
            words = "is a fraction" if isinstance(value, float) else f"is of type {type(value).__name__}"
            raise SourceError(
                f"{where} has the value {shown(value)}, which {words}; classes are whole numbers, "
                "strings or truth values: bin a continuous quantity into a few classes"
            )
        if value not in self._code_of:
            if not self._is_open:
                raise SourceError(
                    f"{where} has the value {value!r}, which is not in classes={list(self._code_of)}"
                )
            if len(self._code_of) == MOST_CLASSES:
                examples = listed([str(known) for known in list(self._code_of)[:3]])
                raise SourceError(
                    f"{where} has more than {MOST_CLASSES:,} different values (such as {examples}): it "
                    "looks like a quantity or a name, not like classes; bin it into a few classes, or "
                    "choose another column"
                )
            self._code_of[value] = len(self._code_of)
        return self._code_of[value]


class TableLabelScan(LabelScan):
    """Finds the classes of a table. Labels that differ by blanks at their ends alone are one class.

    The class is their commonest spelling, so that predictions equal the user's labels.

    is_typed: whether the table holds numbers and truth values as such; otherwise, labels that all are
    numbers or truth values are found in the end, from the different labels.
    """

    def __init__(self, target: str, table: str | None, is_typed: bool) -> None:
        super().__init__(target, table)
        self._is_typed = is_typed

    def add(self, array: pa.Array, weights: Array | None = None, place: object = None) -> IntArray:
        """Count the next labels [t]; returns the same code for all spellings of a label."""
        codes = super().add(array, weights, place)
        code_of: dict[Label, int] = {}
        first = [code_of.setdefault(_stripped(value), code) for value, code in self._code_of.items()]
        return np.asarray([*first, -1], dtype=codes.dtype)[codes]

    @property
    def spellings(self) -> tuple[Label, Label] | None:
        """Two labels that differ by blanks alone, if there are any."""
        found: dict[Label, Label] = {}
        for value in self._code_of:
            if found.setdefault(_stripped(value), value) != value:
                return found[_stripped(value)], value
        return None

    def _code(self, value: object, where: str) -> int:
        if isinstance(value, str) and not self._is_typed and not value.strip():
            return -1
        return super()._code(value, where)

    def finish(self) -> Classes:
        """The classes, sorted; words of a text file as the numbers or truth values that they are."""
        self._recode(self._meanings())
        return super().finish()

    def _meanings(self) -> Sequence[Label | float]:
        """The meanings of the labels that were found, in the order of their codes."""
        labels = list(self._code_of)
        words = [label.strip() for label in labels if isinstance(label, str)]
        if words and not self._is_typed:
            for read in (_number, _truth):
                values = [value for word in words if (value := read(word)) is not None]
                if len(values) == len(words):
                    return values
        commonest: dict[Label, Label] = {}
        for _, label in sorted(zip(self._totals, labels, strict=True), key=_commonest_first):
            commonest.setdefault(_stripped(label), label)
        return [commonest[_stripped(label)] for label in labels]

    def _recode(self, values: Sequence[Label | float]) -> None:
        """Take other values [c] for the labels with the codes 0 … c − 1; equal ones become one."""
        counts, totals = self._counts, self._totals
        self._code_of = {}
        into = [super(TableLabelScan, self)._code(value, self._described_target()) for value in values]
        n = len(self._code_of)
        self._counts = np.bincount(into, counts, minlength=n).astype(np.int64)
        self._totals = np.bincount(into, totals, minlength=n)


def _commonest_first(spelling: tuple[float, Label]) -> tuple[float, int]:
    """A key that sorts labels with their total weights: the commonest first, then the shortest."""
    total, label = spelling
    return -total, len(str(label))


def _stripped(label: Label) -> Label:
    """A label without blanks at its ends, if it is a word."""
    return label.strip() if isinstance(label, str) else label


def _number(word: str) -> int | float | None:
    """The number that a word is, whole if it can be; None if it is none, or beyond 64 bits.

    >>> _number("1.0"), _number("0.5"), _number("one")
    (1, 0.5, None)
    """
    if re.fullmatch(r"[+-]?[0-9]+", word):
        whole = int(word) if len(word) < 30 else 2**64
        return whole if -(2**63) <= whole < 2**64 else None
    if not re.fullmatch(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", word):
        return None
    number = float(word)
    if not number.is_integer():
        return number if np.isfinite(number) else None
    return int(number) if -(2.0**63) <= number < 2.0**64 else None


def _truth(word: str) -> bool | None:
    """The truth value that a word is, or None."""
    return {"true": True, "1": True, "false": False, "0": False}.get(word.lower())


def _padded(values: AnyArray, n: int) -> AnyArray:
    return np.concatenate([values, np.zeros(n - len(values), values.dtype)])


def _distinct(array: pa.Array) -> tuple[list[object], IntArray]:
    """The different values of an Arrow array [t], the last of them None, and their positions [t]."""
    pa, _ = import_arrow()
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.float64())
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    values = [None if v is None or v != v else v for v in encoded.dictionary.to_pylist()]  # NaN, too
    indices = encoded.indices.cast(pa.int32())  # a smaller type may have no room for one more
    positions: IntArray = indices.fill_null(len(values)).to_numpy()
    return [*values, None], positions


def _text(value: object) -> str:
    """A label as text, the same whether a whole number was read as an integer or a float."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)

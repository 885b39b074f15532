"""Sources of users: refused where they break the contract, and read ahead."""

import copy
import itertools
import pickle
import threading
import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from cavity import SEPClassifier
from cavity.data import ArraySource, check_source, open_source
from cavity.data.contract import GuardedSource
from cavity.errors import SourceError
from support import OwnSource, make, table, wait_until

X, LABELS = table(200)


def classifier(**options):
    options = {"n_inducing": 4, "batch_size": 50, "max_epochs": 1, "random_state": 0, **options}
    return make(SEPClassifier, n_jobs=1, **options)


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "cavity-read-ahead"]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert not threads()


class Named(OwnSource):
    """One that knows more than it must."""

    classes = np.array(["no", "yes"])
    feature_names = np.array(["a", "b"], dtype=object)


def test_it_keeps_the_contract_and_what_the_source_knows():
    source = open_source(Named(X, LABELS))
    check_source(source)
    assert source.classes.tolist() == ["no", "yes"]
    assert source.feature_names.tolist() == ["a", "b"]
    assert source.arrangement == "Named"
    assert source.class_totals is None
    assert open_source(source) is source


def test_it_can_be_copied():
    source = GuardedSource(ArraySource(X, LABELS))
    for again in (copy.deepcopy(source), pickle.loads(pickle.dumps(source))):
        assert_array_equal(next(iter(again.blocks(10))).load().X, X[:10])


def test_a_fit_is_the_same_as_to_arrays():
    own = classifier().fit(OwnSource(X, LABELS))
    assert_array_equal(own.predict_proba(X), classifier().fit(X, LABELS).predict_proba(X))


def changed(values, at, value):
    values = np.array(values)
    values[at] = value
    return values


class WrongWidth(OwnSource):
    """Blocks have a column more than n_features says."""

    def __init__(self, X, labels):
        super().__init__(X, labels)
        self.n_features += 1


class NoBlocks(Named):
    """Yields nothing."""

    def blocks(self, size):
        return iter(())


class FewBlocks(Named):
    """Loses rows."""

    def blocks(self, size):
        return super().blocks(size)[:1]


class FewBatches(OwnSource):
    """Loses rows on the way."""

    def batches(self, size, rng, skip=0):
        return itertools.islice(super().batches(size, rng, skip), 3)


class FewSamples(OwnSource):
    """Draws fewer rows than it is asked for."""

    def sample(self, size, rng):
        return super().sample(size - 1, rng)


class NoBatches(OwnSource):
    """Yields no minibatch."""

    def batches(self, size, rng, skip=0):
        return iter(())


BROKEN = {
    "no rows": (lambda: OwnSource(X[:0], LABELS[:0]), "n_rows is 0"),
    "nan": (lambda: OwnSource(changed(X, (150, 1), np.nan), LABELS), "NaN .* in column 1; impute"),
    "infinite": (lambda: OwnSource(changed(X, (150, 0), np.inf), LABELS), "in column 0"),
    "width": (lambda: WrongWidth(X, LABELS), r"X is \(\d+, 2\), not \(\d+, 3\)"),
    "label 7": (lambda: OwnSource(X, changed(LABELS, 9, 7)), r"codes \[0, 1, 7\]; codes are"),
    "label 2 of 2": (lambda: Named(X, changed(LABELS, 9, 2)), "labels has codes 0 … 2, not 0 … 1"),
    "label -1": (lambda: OwnSource(X, changed(LABELS, 9, -1)), "labels has codes -1 … 1"),
    "text": (lambda: OwnSource(X, np.where(LABELS, "yes", "no")), "not .* integers"),
    "no blocks": (lambda: NoBlocks(X, LABELS), "blocks has 0 rows, n_rows is 200"),
    "few blocks": (lambda: FewBlocks(np.tile(X, (20, 1)), np.tile(LABELS, 20)), "n_rows is 4000"),
    "few batches": (lambda: FewBatches(X, LABELS), "batches has 150 rows, n_rows is 200"),
    "few samples": (lambda: FewSamples(X, LABELS), r"FewSamples\.sample: X is \(199, 2\)"),
    "no batches": (lambda: NoBatches(X, LABELS), "no minibatch in epoch 0"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_the_contract_is_said_at_once(name):
    make, message = BROKEN[name]
    with pytest.raises(SourceError, match=message):
        classifier(max_epochs=2).fit(make())


class Slow(OwnSource):
    """Notes when each minibatch is read, and where."""

    def __init__(self, X, labels, broken=None):
        super().__init__(X, labels)
        self.read, self.broken = [], broken

    def batches(self, size, rng, skip=0):
        for number, batch in enumerate(super().batches(size, rng, skip)):
            if number == self.broken:
                raise OSError("disk on fire")
            self.read.append(threading.current_thread().name)
            yield batch


def test_minibatches_are_read_ahead_in_their_order():
    source = Slow(X, LABELS)
    batches = open_source(source).batches(20, np.random.default_rng(0))
    order = [next(batches).index]
    wait_until(lambda: len(source.read) >= 3)
    assert source.read == ["cavity-read-ahead"] * 3
    order += [batch.index for batch in batches]
    expected = [batch.index for batch in OwnSource(X, LABELS).batches(20, np.random.default_rng(0))]
    for ours, theirs in zip(order, expected, strict=True):
        assert_array_equal(ours, theirs)


def test_an_error_comes_through():
    with pytest.raises(OSError, match="disk on fire"):
        classifier().fit(Slow(X, LABELS, broken=2))


def test_a_consumer_that_stops_leaves_no_thread():
    batches = open_source(Slow(X, LABELS)).batches(20, np.random.default_rng(0))
    next(batches)
    assert threads()
    del batches
    assert not threads()


def test_a_fit_that_goes_on_inside_an_epoch_has_the_rest_of_its_rows():
    source = GuardedSource(OwnSource(X, LABELS))
    batches = source.batches(50, np.random.default_rng(0), skip=2)
    assert sum(len(batch.index) for batch in batches) == 100


class Tuples(OwnSource):
    """Rows as plain tuples."""

    def blocks(self, size):
        return [Plain(block) for block in super().blocks(size)]

    def sample(self, size, rng):
        return tuple(super().sample(size, rng))


class Plain:
    def __init__(self, block):
        self.index, self._block = block.index, block

    def load(self):
        return tuple(self._block.load())


def test_rows_may_be_plain_tuples():
    model = classifier(batch_size=None, max_epochs=None, tol=1.0)
    ours = model.fit(ArraySource(X, LABELS)).predict_proba(X)
    assert_array_equal(model.fit(Tuples(X, LABELS)).predict_proba(X), ours)


class OneArray(OwnSource):
    """Features without labels."""

    def sample(self, size, rng):
        return super().sample(size, rng).X


def test_rows_that_are_no_rows_are_named():
    with pytest.raises(SourceError, match=r"OneArray\.sample: the rows are a ndarray, not a RawRows"):
        classifier().fit(OneArray(X, LABELS))


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype(np.float64), "f8"])
def test_a_precision_may_be_written_in_any_way(dtype):
    source = OwnSource(X, LABELS)
    source.dtype = dtype
    assert open_source(source).dtype == np.dtype(dtype)


@pytest.mark.parametrize(
    ("name", "value"),
    [("total_weight", 0.0), ("total_weight", np.nan), ("total_weight", "many"), ("dtype", "number")],
)
def test_senseless_members_are_named(name, value):
    source = OwnSource(X, LABELS)
    setattr(source, name, value)
    with pytest.raises(SourceError, match=f"{name} is {value!r}"):
        open_source(source)


def test_rows_by_number_are_read_in_one_pass_and_come_in_the_order_asked_for():
    numbers = np.array([150, 3, 3, 199])
    for source in (open_source(OwnSource(X, LABELS)), ArraySource(X, LABELS)):
        rows = source.take(numbers)
        assert_array_equal(rows.X, X[numbers])
        assert_array_equal(rows.labels, LABELS[numbers])


def test_rows_that_are_known_to_be_right_are_not_checked_again():
    wrong = changed(X, (150, 1), np.nan)
    with pytest.raises(SourceError, match="NaN"):
        open_source(ArraySource(wrong, LABELS))
    source = ArraySource(wrong, LABELS, is_checked=True)
    assert open_source(source) is source


def test_a_source_may_leave_samples_to_the_base_class():
    """Only sizes, blocks and minibatches are its own business."""

    class Bare:
        def __init__(self):
            inner = ArraySource(X, LABELS)
            self.n_rows, self.n_features, self.dtype = inner.n_rows, inner.n_features, inner.dtype
            self.total_weight, self.blocks, self.batches = (
                inner.total_weight,
                inner.blocks,
                inner.batches,
            )

    check_source(Bare())
    model = SEPClassifier(n_inducing=8, max_epochs=5, random_state=0, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert model.fit(Bare()).score(X, LABELS) > 0.6

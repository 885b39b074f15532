"""A checkpoint goes on with its own data and parameters, however they are written, and no others."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.naive_bayes import GaussianNB

from cavity import CheckpointError, SEPClassifier
from cavity.data import ParquetSource
from cavity.engines.local import LocalEngine
from cavity.inference.checkpoint_file import plain
from support import PINNED, OwnSource, make, replace_sweep, table

X, LABELS = table(3_000)
UNSEEN = slice(1_000, None)
"""Rows that are not among the first ones."""
OWN_POINTS = {"inducing_points": X[:4], "scaling": None, "kernel": 1.0 * RBF(1.0)}


class PowerCutError(Exception):
    """What ends a run without any warning."""


def classifier(path, **options):
    quick = {"n_inducing": 4, "batch_size": 300, "max_epochs": 1, "random_state": 0}
    options = {**PINNED, **quick, **options}
    return make(SEPClassifier, checkpoint=path, checkpoint_interval=0.0, n_jobs=1, **options)


@pytest.fixture
def broken_off(tmp_path, monkeypatch):
    """Breaks a fit off after three steps; the path of its checkpoint."""

    def run(*rows, sample_weight=None, offset=None, **options):
        sweep, count = LocalEngine.run, 0

        def failing(*args, **kwargs):
            nonlocal count
            count += 1
            if count == 4:
                raise PowerCutError
            return sweep(*args, **kwargs)

        path = tmp_path / "fit.ckpt"
        with monkeypatch.context() as patch:
            replace_sweep(patch, failing)
            with pytest.raises(PowerCutError):
                classifier(path, **options).fit(*rows, sample_weight=sample_weight, offset=offset)
        return path

    return run


def test_other_offsets_are_noticed(broken_off):
    offset = np.random.default_rng(0).normal(size=len(X))
    path = broken_off(X, LABELS, offset=offset)
    with pytest.raises(CheckpointError, match="another fit: its offsets are not those passed now"):
        classifier(path).fit(X, LABELS, offset=offset[::-1])
    with pytest.raises(CheckpointError, match="another fit: its offsets are not those passed now"):
        classifier(path).fit(X, LABELS)
    classifier(path).fit(X, LABELS, offset=offset)


def test_another_mean_function_is_noticed(broken_off):
    path = broken_off(X, LABELS, mean_function=GaussianNB())
    for other in (None, "linear", GaussianNB(var_smoothing=0.1)):
        with pytest.raises(CheckpointError, match="mean_function is 'GaussianNB\\(\\)', and"):
            classifier(path, mean_function=other).fit(X, LABELS)
    resumed = classifier(path, mean_function=GaussianNB()).fit(X, LABELS)
    path.unlink(missing_ok=True)
    whole = classifier(path, mean_function=GaussianNB()).fit(X, LABELS)
    assert np.array_equal(resumed.predict_proba(X), whole.predict_proba(X))


def test_other_labels_after_the_first_rows_are_noticed(broken_off):
    path = broken_off(X, LABELS)
    flipped = LABELS.copy()
    flipped[UNSEEN] = 1 - flipped[UNSEEN]
    with pytest.raises(CheckpointError, match="another fit: its labels are not those passed now"):
        classifier(path).fit(X, flipped)


def test_one_other_label_is_noticed(broken_off):
    path = broken_off(X, LABELS, **OWN_POINTS)
    flipped = LABELS.copy()
    flipped[2_345] = 1 - flipped[2_345]
    with pytest.raises(CheckpointError, match="labels"):
        classifier(path, **OWN_POINTS).fit(X, flipped)


def test_other_rows_after_the_first_ones_are_noticed(broken_off):
    path = broken_off(X, LABELS, **OWN_POINTS)
    other = X.copy()
    other[UNSEEN] *= 3.0
    with pytest.raises(CheckpointError, match="another fit: its rows are not those passed now"):
        classifier(path, **OWN_POINTS).fit(other, LABELS)


def test_another_weight_of_one_row_is_noticed(broken_off):
    weight = np.ones(len(X))
    path = broken_off(X, LABELS, sample_weight=weight, **OWN_POINTS)
    weight[2_345] = 2.0
    with pytest.raises(CheckpointError, match="weights"):
        classifier(path, **OWN_POINTS).fit(X, LABELS, sample_weight=weight)


def kernel(bounds):
    return ConstantKernel(1.0) * RBF(1.0, bounds)


def test_other_bounds_of_the_kernel_are_noticed(broken_off):
    path = broken_off(X, LABELS, kernel=kernel((1e-3, 1e3)))
    with pytest.raises(CheckpointError, match=r"parameters differ: kernel is .*0\.9, 1\.1"):
        classifier(path, kernel=kernel((0.9, 1.1))).fit(X, LABELS)


def test_another_start_is_noticed_and_said_to_be_it(broken_off):
    path = broken_off(X, LABELS, warm_start=True)
    model = classifier(None, warm_start=True).fit(X, LABELS).set_params(checkpoint=path)
    with pytest.raises(CheckpointError, match=r"its start is another: .* an earlier fit by warm_start"):
        model.fit(X, LABELS)


SAME = {
    "max_epochs": 1.0,
    "random_state": np.int64(0),
    "n_inducing": np.int32(4),
    "kernel": ConstantKernel(1) * RBF(np.float64(1.0), [[1e-3, 1e3]]),
    "inducing_points": X[:4].tolist(),
    "scaling": None,
    "class_weight": {np.int64(0): 1, np.int64(1): np.float64(2.0)},
}
FIRST = {
    "kernel": kernel((1e-3, 1e3)),
    "inducing_points": X[:4],
    "scaling": None,
    "class_weight": {0: 1.0, 1: 2},
}


def test_the_same_values_of_other_types_are_the_same_fit(broken_off):
    path = broken_off(X, LABELS, **FIRST)
    resumed = classifier(path, **{**FIRST, **SAME}).fit(X, LABELS)
    assert not path.exists()
    whole = classifier(None, **FIRST).fit(X, LABELS)
    np.testing.assert_allclose(resumed.predict_proba(X), whole.predict_proba(X), rtol=0, atol=1e-12)


def test_values_that_mean_something_else_are_told_apart():
    assert plain(3) == plain(3.0) == plain(np.float32(3.0)) != plain(4)
    assert plain("auto") != plain(None) != plain(0)
    assert plain(X) == plain(X.copy()) != plain(X + 1e-9)
    assert plain({0: 1.0}) == plain({np.int64(0): 1}) != plain({1: 1.0})
    assert plain(RBF(1.0, "fixed")) != plain(RBF(1.0)) != plain(RBF(2.0))
    assert plain(RBF([1.0, 1.0], [(1, 2), (1, 2)])) == plain(RBF([1, 1], (1.0, 2.0)))


def parquet(folder, group_rows):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as pq

    columns = {"a": X[:, 0], "b": X[:, 1], "y": LABELS}
    pq.write_table(pyarrow.table(columns), folder / "rows.parquet", row_group_size=group_rows)
    return folder / "rows.parquet"


def test_rows_in_another_arrangement_are_noticed_for_minibatches_come_in_another_order(
    broken_off, tmp_path
):
    path = broken_off(parquet(tmp_path, 1_000), "y", **OWN_POINTS)
    rewritten = parquet(tmp_path, 700)
    with pytest.raises(CheckpointError, match=r"its rows differ: kind of source is '3 row groups"):
        classifier(path, **OWN_POINTS).fit(rewritten, "y")
    with pytest.raises(CheckpointError, match=r"kind of source is .*, and 'array' now"):
        classifier(path, **OWN_POINTS).fit(X, LABELS)
    classifier(path, **OWN_POINTS).fit(parquet(tmp_path, 1_000), "y")
    assert not path.exists()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_nothing_is_read_for_a_fit_that_has_no_checkpoint(monkeypatch, tmp_path):
    samples = []

    def sample(self, size, rng, draw=ParquetSource.sample):
        samples.append(size)
        return draw(self, size, rng)

    monkeypatch.setattr(ParquetSource, "sample", sample)
    rows = parquet(tmp_path, 1_000)
    classifier(None, **OWN_POINTS).fit(rows, "y")
    assert not samples
    classifier(tmp_path / "fit.ckpt", **OWN_POINTS).fit(rows, "y")
    assert samples == [1_000]


def test_a_source_of_the_users_own_is_known_by_a_sample_of_all_its_rows(broken_off):
    path = broken_off(OwnSource(X, LABELS), **OWN_POINTS)
    flipped = LABELS.copy()
    flipped[UNSEEN] = 1 - flipped[UNSEEN]
    with pytest.raises(CheckpointError, match="labels"):
        classifier(path, **OWN_POINTS).fit(OwnSource(X, flipped))


def test_what_a_source_calls_labels_need_not_be_codes(tmp_path):
    """The contract does not reserve the names."""
    source = OwnSource(X, LABELS)
    source.labels, source.weight = np.where(LABELS == 1, "yes", "no"), np.full(len(X), None)
    path = tmp_path / "fit.ckpt"
    classifier(path).fit(source)
    assert not path.exists()


def test_a_fingerprint_that_cannot_be_taken_is_known_before_the_work(tmp_path, monkeypatch):
    passes = []

    class Unreadable(OwnSource):
        def label_digests(self):
            raise OSError("gone")

    monkeypatch.setattr(LocalEngine, "run", lambda *_: passes.append(1))
    with pytest.raises(OSError, match="gone"):
        classifier(tmp_path / "fit.ckpt").fit(Unreadable(X, LABELS))
    assert not passes

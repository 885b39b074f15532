"""Fits from files and from one's own sources: the same rows in the same order give the same fit."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from cavity import GFITCClassifier, SEPClassifier, SourceError, SVIClassifier
from cavity.data import ArraySource, ParquetSource, RawRows
from cavity.data.source import LoadedBlock
from support import make, set_tile_rows, table

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

X, LABELS = table(500)
X_STAR, _ = table(50, seed=4)
NAMES = np.array(["no", "yes"])
ALL = slice(None)
quietly = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

BATCH = {"batch_size": None, "max_epochs": 15}
STOCHASTIC = {"batch_size": 50, "max_epochs": 4}
KINDS = {
    "sep": (SEPClassifier, BATCH),
    "sep, minibatches": (SEPClassifier, STOCHASTIC),
    "sep, validation": (SEPClassifier, {**BATCH, "validation_fraction": 0.1}),
    "svi": (SVIClassifier, BATCH),
    "svi, minibatches": (SVIClassifier, STOCHASTIC),
    "gfitc": (GFITCClassifier, {"max_iter": 5}),
}
every_kind = pytest.mark.parametrize("name", KINDS)
over_all_rows = pytest.mark.parametrize("name", [name for name in KINDS if "mini" not in name])


def classifier(name):
    kind, options = KINDS[name]
    return kind(n_inducing=8, random_state=0, n_jobs=1, **options)


def write_parquet(path, rows=ALL, **options):
    columns = {"height": X[rows, 0], "weight": X[rows, 1], "late": NAMES[LABELS[rows]]}
    pq.write_table(pa.table(columns), path, **options)


class Replay:
    """The rows of an array in the order in which another source would give them."""

    def __init__(self, order):
        self.order = order
        self.n_rows, self.n_features, self.total_weight = len(X), 2, float(len(X))
        self.dtype, self.classes = np.dtype(np.float64), NAMES

    def blocks(self, size):
        return (self._block(slice(i, min(i + size, len(X)))) for i in range(0, len(X), size))

    def batches(self, size, rng, skip=0):
        for block in self.order.batches(size, rng, skip):
            yield self._block(block.index)

    def sample(self, size, rng):
        return self._block(np.sort(rng.choice(len(X), size=min(size, len(X)), replace=False))).load()

    def _block(self, index):
        return LoadedBlock(index, RawRows(X[index], LABELS[index], None))


def predict_proba(model):
    names = getattr(model, "feature_names_in_", None)
    return model.predict_proba(X_STAR if names is None else pd.DataFrame(X_STAR, columns=names))


def assert_same_fit(one, other):
    assert_array_equal(one.classes_, other.classes_)
    assert_allclose(one.kernel_.theta, other.kernel_.theta, rtol=1e-7, atol=1e-9)
    assert_allclose(predict_proba(one), predict_proba(other), atol=1e-8)
    assert_allclose(one.loo_log_proba_, other.loo_log_proba_, atol=1e-7)


@quietly
class TestParquet:
    @over_all_rows
    @pytest.mark.parametrize("row_group_size", [37, 1000])
    def test_a_file_is_the_table_in_it(self, tmp_path, monkeypatch, name, row_group_size):
        set_tile_rows(monkeypatch, 64)
        write_parquet(tmp_path / "t.parquet", row_group_size=row_group_size)
        filed = classifier(name).fit(tmp_path / "t.parquet", "late")
        assert_same_fit(filed, classifier(name).fit(X, NAMES[LABELS]))
        assert_array_equal(filed.feature_names_in_, ["height", "weight"])
        assert filed.n_features_in_ == 2

    @over_all_rows
    def test_a_folder_is_its_files_one_after_the_other(self, tmp_path, name):
        for i in range(5):
            write_parquet(tmp_path / f"part-{i}.parquet", slice(100 * i, 100 * (i + 1)))
        assert_same_fit(
            classifier(name).fit(str(tmp_path), "late"), classifier(name).fit(X, NAMES[LABELS])
        )

    @every_kind
    def test_the_same_order_of_minibatches_gives_the_same_fit(self, tmp_path, name):
        write_parquet(tmp_path / "t.parquet", row_group_size=60)
        filed = classifier(name).fit(tmp_path / "t.parquet", "late")
        order = ParquetSource(tmp_path / "t.parquet", "late")
        assert_same_fit(filed, classifier(name).fit(Replay(order)))

    def test_a_column_of_weights_counts_rows_more_than_once(self, tmp_path):
        weight = np.random.default_rng(0).integers(0, 3, size=500)
        columns = {"a": X[:, 0], "b": X[:, 1], "y": LABELS, "w": weight}
        pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=90)
        options = {"inducing_points": X[:8], "optimizer": None, "tol": 1e-9, "n_jobs": 1}
        source = ParquetSource(tmp_path / "t.parquet", "y", weight="w")
        weighted = make(SEPClassifier, **options, scaling=None).fit(source)
        repeated = np.repeat(np.arange(500), weight)
        plain = make(SEPClassifier, **options, scaling=None).fit(X[repeated], LABELS[repeated])
        assert_allclose(
            weighted.log_marginal_likelihood_value_, plain.log_marginal_likelihood_value_, rtol=1e-8
        )
        assert_allclose(predict_proba(weighted), predict_proba(plain), atol=1e-7)

    @pytest.mark.parametrize("name", ["sep", "sep, minibatches", "gfitc"])
    def test_a_target_that_is_missing_or_constant_is_named(self, tmp_path, name):
        write_parquet(tmp_path / "t.parquet")
        with pytest.raises(SourceError, match="delayed"):
            classifier(name).fit(tmp_path / "t.parquet", "delayed")
        pq.write_table(pa.table({"a": X[:, 0], "y": ["on time"] * 500}), tmp_path / "t.parquet")
        with pytest.raises(ValueError, match="on time"):
            classifier(name).fit(tmp_path / "t.parquet", "y")


@quietly
class TestNpy:
    @every_kind
    def test_a_file_is_the_array_in_it(self, tmp_path, name):
        np.save(tmp_path / "X.npy", X)
        np.save(tmp_path / "y.npy", NAMES[LABELS])
        whole = classifier(name).fit(X, NAMES[LABELS])
        assert_same_fit(classifier(name).fit(tmp_path / "X.npy", tmp_path / "y.npy"), whole)
        assert_same_fit(classifier(name).fit(str(tmp_path / "X.npy"), NAMES[LABELS]), whole)
        mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
        assert_same_fit(classifier(name).fit(mapped, NAMES[LABELS]), whole)

    def test_a_row_that_is_not_finite_is_named(self, tmp_path):
        spoilt = X.copy()
        spoilt[321, 1] = np.nan
        np.save(tmp_path / "X.npy", spoilt)
        with pytest.raises(SourceError, match=r"X\.npy.*row 321, column 1"):
            classifier("sep, minibatches").fit(tmp_path / "X.npy", LABELS)


@quietly
class TestOnesOwn:
    @every_kind
    def test_a_source_that_replays_an_array_is_that_array(self, name):
        replayed = classifier(name).fit(Replay(ArraySource(X, LABELS)))
        assert_same_fit(replayed, classifier(name).fit(X, NAMES[LABELS]))

    def test_labels_beside_it_are_refused(self):
        with pytest.raises(SourceError, match="own labels"):
            classifier("sep").fit(Replay(ArraySource(X, LABELS)), LABELS)

    def test_three_classes(self):
        codes = np.digitize(X[:, 0], [-0.5, 0.5])
        model = classifier("sep").fit(ArraySource(X, codes, classes=["a", "b", "c"]))
        assert model.predict_proba(X).shape == (500, 3)

    def test_an_error_while_reading_is_the_users_to_see(self):
        class Broken(Replay):
            def batches(self, size, rng, skip=0):
                yield from list(super().batches(size, rng, skip))[:2]
                raise OSError("the cable was pulled")

        with pytest.raises(OSError, match="cable"):
            classifier("sep, minibatches").fit(Broken(ArraySource(X, LABELS)))

    def test_predictions_of_a_row_of_the_wrong_width_are_refused(self):
        model = classifier("sep, minibatches").fit(Replay(ArraySource(X, LABELS)))
        with pytest.raises(ValueError, match="features"):
            model.predict(np.ones((3, 5)))


@quietly
@pytest.mark.parametrize("name", ["sep, minibatches", "svi, minibatches"])
def test_sparse_rows_are_dense_rows(name):
    thin = np.where(np.abs(X) > 0.7, X, 0.0)
    dense, thinned = (
        classifier(name).fit(thin, LABELS),
        classifier(name).fit(sparse.csr_matrix(thin), LABELS),
    )
    assert_same_fit(thinned, dense)


@quietly
@every_kind
def test_threads_change_nothing(monkeypatch, name):
    set_tile_rows(monkeypatch, 16)
    one = classifier(name).fit(X, LABELS)
    for n_jobs in (2, 3):
        assert_same_fit(classifier(name).set_params(n_jobs=n_jobs).fit(X, LABELS), one)

"""What a path, or an object, means to `fit`."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from cavity import SEPClassifier
from cavity.data import ArraySource, ParquetSource, check_source, open_source
from cavity.data.arrays import mapping_of
from cavity.data.opening import class_values
from cavity.errors import SourceError
from support import no_more_rights_than_files_give

X = np.random.default_rng(0).normal(size=(30, 2))
Y = np.where(X[:, 0] > 0, "up", "down")
CODES = np.arange(30) % 2


@pytest.fixture
def npy(tmp_path):
    np.save(tmp_path / "X.npy", X)
    return tmp_path / "X.npy"


@pytest.mark.parametrize("arrays", [X, X.tolist(), None, 3.0, ArraySource])
def test_what_is_no_path_and_no_source_is_left_to_validation(arrays):
    assert open_source(arrays, Y) is None


def test_a_source_is_itself():
    source = ArraySource(X, np.arange(30) % 2)
    assert open_source(source) is source
    with pytest.raises(SourceError, match="leave y out"):
        open_source(source, Y)


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_an_npy_file_with_an_array_or_a_file_of_labels(npy, kind):
    np.save(npy.parent / "y.npy", Y)
    for y in (Y, Y.tolist(), kind(npy.parent / "y.npy")):
        source = open_source(kind(npy), y)
        assert source.classes.tolist() == ["down", "up"]
        assert isinstance(source.X, np.memmap)
        check_source(source)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "has no labels"),
        (Y[:-1], "30 rows"),
        (X[:, 0], "continuous"),
        (np.full(30, np.nan), "continuous or has NaN"),
        (np.zeros(30, int), "one class"),
        (np.where(CODES, 1.0, np.nan).astype(object), "labels that are missing"),
        (np.where(CODES, np.datetime64("2026-01-01"), np.datetime64("NaT")), "labels that are missing"),
        (CODES * 1j, "dtype complex128"),
        ("nowhere.npy", "no such file"),
    ],
)
def test_labels_that_do_not_fit_an_npy_file(npy, y, message):
    with pytest.raises(SourceError, match=message):
        open_source(npy, y)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(5), r"shape \(5,\)"),
        (np.zeros((0, 3)), r"shape \(0, 3\)"),
        (np.array([["a"]]), "dtype <U1"),
        (np.array([[object()]], dtype=object), "not an array"),
    ],
)
def test_npy_files_that_are_no_table(tmp_path, array, message):
    np.save(tmp_path / "X.npy", array, allow_pickle=True)
    with pytest.raises(SourceError, match=message):
        open_source(tmp_path / "X.npy", Y)


def test_a_file_that_is_no_npy_file(tmp_path):
    (tmp_path / "X.npy").write_bytes(b"")
    with pytest.raises(SourceError, match=r"X\.npy: not an array"):
        open_source(tmp_path / "X.npy", Y)


def test_values_of_an_npy_file_are_checked_when_they_are_read(tmp_path):
    bad = X.copy()
    bad[17, 1] = np.nan
    np.save(tmp_path / "X.npy", bad)
    source = open_source(tmp_path / "X.npy", Y)
    for rows in (source.blocks(10), source.batches(10, np.random.default_rng(0))):
        with pytest.raises(SourceError, match=r"X\.npy: row 17, column 1 is nan"):
            [block.load() for block in rows]


def test_parquet_files_and_folders(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for name in ("t.parquet", "no-suffix"):
        pq.write_table(pa.table({"a": X[:, 0], "y": Y}), tmp_path / name)
    for path in (tmp_path, str(tmp_path / "t.parquet"), tmp_path / "no-suffix"):
        source = open_source(path, "y")
        assert isinstance(source, ParquetSource)
        assert source.n_rows == 30
    for y in (None, Y):
        with pytest.raises(SourceError, match="y is the name of the target column"):
            open_source(tmp_path, y)


def test_paths_that_lead_nowhere(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SourceError, match="neither a Parquet file"):
        open_source(tmp_path / "t.csv", "b")
    with pytest.raises(SourceError, match="no such file or folder"):
        open_source(tmp_path / "t.parquet", "b")
    with pytest.raises(SourceError, match="no such file"):
        open_source(tmp_path / "t.npy", Y)


@pytest.mark.parametrize("locked", ["file", "folder"])
def test_an_npy_file_that_may_not_be_read(npy, locked):
    place = npy if locked == "file" else npy.parent
    place.chmod(0o000)
    try:
        with no_more_rights_than_files_give():
            for path, y in ((npy, Y), (str(npy), Y)):
                with pytest.raises(SourceError, match=r"may not be read.*change its permissions"):
                    open_source(path, y)
    finally:
        place.chmod(0o700)


@pytest.mark.parametrize("value", [2, "maybe"])
def test_a_constant_target_is_shown_as_it_is(npy, value):
    with pytest.raises(SourceError, match=rf"one class \({value!r}\)"):
        open_source(npy, [value] * 30)
    with pytest.raises(ValueError, match=rf"one class \({value!r}\)"):
        SEPClassifier().fit(X, [value] * 30)


def changed(values, at, value):
    values = np.array(values)
    values[at] = value
    return values


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((changed(X, (20, 1), np.nan), CODES), "NaN or infinite values in column 1; impute"),
        ((X.astype(object), CODES), "dtype object"),
        ((X, CODES[:-5]), r"labels has shape \(25,\), but there are 30 rows"),
        ((X, np.r_[CODES, CODES]), r"labels has shape \(60,\), but there are 30 rows"),
        ((X, CODES.astype(float)), "not 30 integers"),
        ((X, Y), "not 30 integers"),
        ((X, CODES, np.ones(29)), r"weight has shape \(29,\)"),
        ((X, CODES, -np.ones(30)), "not negative"),
    ],
)
def test_arrays_that_a_user_has_put_together_are_checked_before_the_work(arguments, message):
    with pytest.raises(SourceError, match=message):
        open_source(ArraySource(*arguments))


@pytest.mark.parametrize(
    ("classes", "message"),
    [(["b", "a"], "not sorted"), (["a"], "fewer than two"), (["a", "b"], r"codes 0 … 3, not 0 … 1")],
)
def test_classes_that_a_user_has_put_together(classes, message):
    with pytest.raises(SourceError, match=message):
        open_source(ArraySource(X, 3 * CODES, classes=classes))


def test_a_code_beyond_all_memory_is_no_class():
    with pytest.raises(SourceError, match=r"codes \[0, 1000000000000\]; codes are the positions"):
        class_values(ArraySource(X, 10**12 * CODES))


def test_wide_rows_are_not_all_made_dense_for_their_labels(monkeypatch):
    asked, blocks = [], ArraySource.blocks

    def noted(self, size):
        asked.append(size * self.n_features * 8)
        return blocks(self, size)

    monkeypatch.setattr(ArraySource, "blocks", noted)
    source = ArraySource(sparse.csr_matrix((600, 20_000)), np.arange(600) % 2)
    assert class_values(open_source(source)).tolist() == [0, 1]
    assert len(asked) == 2
    assert max(asked) < 100_000_000


@pytest.mark.parametrize("labels", [["a", None], ["a", np.nan], ["a", 1]])
def test_labels_of_several_kinds(npy, labels):
    y = np.array(labels, dtype=object)[CODES]
    for source in (npy, X):
        with pytest.raises(ValueError, match=r"labels of the kinds .* and .*|contains NaN|missing"):
            SEPClassifier().fit(source, y)


def test_truth_values_on_disk_stay_there(tmp_path):
    """To copy them, n×d bytes, would also end the reading ahead."""
    np.save(tmp_path / "bits.npy", X > 0.0)
    bits = np.load(tmp_path / "bits.npy", mmap_mode="r")
    model = SEPClassifier(n_inducing=2, random_state=0).fit(bits, Y)
    assert mapping_of(model._training.source.X)
    as_numbers = SEPClassifier(n_inducing=2, random_state=0).fit((X > 0.0).astype(float), Y)
    assert np.allclose(
        model.predict_proba(bits), as_numbers.predict_proba(bits.astype(float)), atol=1e-5
    )


def test_lists_are_arrays():
    model = SEPClassifier(n_inducing=2, random_state=0)
    listed = model.fit(ArraySource(X.tolist(), CODES.tolist())).predict_proba(X)
    assert np.array_equal(listed, model.fit(ArraySource(X, CODES)).predict_proba(X))


def test_names_of_an_earlier_fit_do_not_outlive_it(npy):
    model = SEPClassifier(n_inducing=2)
    model.fit(pd.DataFrame(X, columns=["a", "b"]), Y)
    assert not hasattr(model.fit(npy, Y), "feature_names_in_")


def test_rows_of_no_weight_are_among_the_scores_of_a_file_whatever_classes_weigh(npy):
    weight = np.ones(30)
    weight[3] = 0.0
    model = SEPClassifier(n_inducing=2, class_weight="balanced").fit(npy, Y, sample_weight=weight)
    assert np.flatnonzero(np.isnan(model.loo_log_proba_)).tolist() == [3]
    assert len(model.loo_log_proba_) == 30

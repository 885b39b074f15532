"""`scaling="whiten"`: features that go together are told apart."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import log_loss

from cavity import GFITCClassifier, SEPClassifier, SVIClassifier
from cavity.inference.start import WHITENING_ARRAYS
from support import make

QUICK = {"n_inducing": 15, "max_epochs": 40, "random_state": 0, "n_jobs": 1}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def journeys(n, seed):
    """Distances and the times that they take; the label hangs on the speed and on a third feature."""
    rng = np.random.default_rng(seed)
    distance, other = rng.normal(size=(2, n))
    hold_up = rng.normal(size=n)
    X = np.column_stack([300 + 90 * distance, 60 + 15 * (distance + 0.05 * hold_up), other])
    return X, (np.sin(2 * hold_up) + other + 0.3 * rng.normal(size=n) > 0).astype(int)


X, Y = journeys(400, 0)
X_STAR, Y_STAR = journeys(1000, 1)


@pytest.mark.parametrize("method", [SEPClassifier, SVIClassifier, GFITCClassifier])
def test_a_direction_of_little_variance_is_seen(method):
    nll = {
        scaling: log_loss(Y_STAR, make(method, scaling=scaling, **QUICK).fit(X, Y).predict_proba(X_STAR))
        for scaling in ("standard", "whiten")
    }
    assert nll["whiten"] < 0.9 * nll["standard"]


def test_units_and_linear_shifts_by_features_before_change_nothing():
    mixed = X @ np.array([[10.0, 0.3, -0.1], [0.0, 1.0, 0.1], [0.0, 0.0, 4.0]]) + [1e3, -5.0, 0.0]
    fits = [make(SEPClassifier, scaling="whiten", **QUICK).fit(rows, Y) for rows in (X, mixed)]
    assert_allclose(fits[0].kernel_.theta, fits[1].kernel_.theta, rtol=1e-5, atol=1e-5)
    assert_allclose(fits[0].loo_log_loss_, fits[1].loo_log_loss_, rtol=1e-5)


def test_inducing_points_are_in_the_units_of_the_inputs():
    fit = make(SEPClassifier, scaling="whiten", optimizer=None, inducing_points=X[:15], **QUICK).fit(
        X, Y
    )
    assert_allclose(fit.inducing_points_, X[:15], rtol=1e-9)


def test_files_streams_and_warm_starts_see_it_too(tmp_path):
    options = {"scaling": "whiten", **QUICK}
    fit = make(SEPClassifier, **options).fit(X, Y)
    columns = {f"x{j}": X[:, j] for j in range(3)} | {"y": Y}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet", row_group_size=150)
    from_file = make(SEPClassifier, **options).fit(str(tmp_path / "rows.parquet"), "y")
    assert_allclose(from_file.kernel_.theta, fit.kernel_.theta, rtol=1e-6)
    assert_allclose(from_file.inducing_points_, fit.inducing_points_, rtol=1e-6)
    again = make(SEPClassifier, **options, warm_start=True).fit(X, Y).fit(X, Y)
    assert (
        log_loss(Y_STAR, again.predict_proba(X_STAR))
        < log_loss(Y_STAR, fit.predict_proba(X_STAR)) + 0.02
    )
    stream = make(SEPClassifier, **options)
    for rows in np.array_split(np.arange(len(X)), 4):
        stream.partial_fit(X[rows], Y[rows], classes=[0, 1])
    assert stream.model_.scaling.whitening_matrix is not None


def test_more_features_than_memory_holds_pairs_of_are_refused(monkeypatch):
    monkeypatch.setattr("cavity.memory.available_bytes", lambda: 100)
    with pytest.raises(
        MemoryError, match=r'scaling="whiten" for 3 features needs 288 bytes.*"standard"'
    ):
        make(SEPClassifier, scaling="whiten", **QUICK).fit(X, Y)
    assert WHITENING_ARRAYS * 8 * 9 == 288

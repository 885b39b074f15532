"""How a fit of SEPClassifier goes: what it records, when it is interrupted, where it starts again."""

import linecache
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sep_models import KERNEL, LABELS, LABELS_STAR, X_STAR, X, at_fixed_kernel, model
from sklearn.exceptions import ConvergenceWarning

from cavity import TableClassifier
from cavity.inference.optimizers import Adam, SignRates
from support import EVIDENCE_ONLY, interrupt_at

quietly = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def fitted():
    return model(max_epochs=300, tol=1e-3).fit(X, LABELS)


class TestHistory:
    def test_a_record_of_every_iteration(self, fitted):
        history = fitted.history_
        assert len(history) == fitted.n_iter_
        assert [entry.iteration for entry in history] == list(range(1, fitted.n_iter_ + 1))
        seconds = [entry.seconds for entry in history]
        assert seconds == sorted(seconds)
        for name in ("objective", "gradient_norm", "leave_one_out", "seconds"):
            assert np.isfinite([getattr(entry, name) for entry in history]).all()
        assert all(entry.gradient_norm >= 0 for entry in history)

    def test_the_last_objective_is_about_the_evidence_of_the_fit(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fit = model(max_epochs=150, optimizer=Adam(0.01), **EVIDENCE_ONLY).fit(X, LABELS)
        assert_allclose(fit.history_[-1].objective, fit.log_marginal_likelihood_value_, rtol=0.05)

    def test_leave_one_out_is_a_log_probability_of_each_row(self, fitted):
        assert fitted.loo_log_proba_.shape == (100,)
        assert (fitted.loo_log_proba_ <= 0).all()
        assert fitted.loo_log_proba_.mean() > np.log(0.5)

    @pytest.mark.parametrize("optimizer", ["adam", None])
    def test_too_few_iterations_are_said_so(self, optimizer):
        with pytest.warns(ConvergenceWarning, match="max_epochs") as caught:
            fit = model(max_epochs=1, optimizer=optimizer).fit(X, LABELS)
        assert len(caught) == 1
        assert fit.n_iter_ == 1
        assert np.isfinite(fit.predict_proba(X_STAR)).all()

    @pytest.mark.parametrize("table", [False, True], ids=["classifier", "table"])
    def test_the_warning_points_at_the_users_line(self, table):
        fit, rows = model(max_epochs=1), X
        if table:
            fit, rows = TableClassifier(fit), pd.DataFrame(X, columns=["a", "b"])
        with pytest.warns(ConvergenceWarning) as caught:
            fit.fit(rows, LABELS)
        (warning,) = caught
        assert warning.filename == __file__
        assert linecache.getline(warning.filename, warning.lineno).strip() == "fit.fit(rows, LABELS)"

    @quietly
    def test_verbose_speaks_on_standard_error(self, capsys):
        model(max_epochs=3, verbose=2).fit(X, LABELS)
        out, err = capsys.readouterr()
        assert out == ""
        assert len(err.splitlines()) >= 3
        model(max_epochs=3, verbose=0).fit(X, LABELS)
        assert capsys.readouterr() == ("", "")

    @quietly
    def test_the_last_line_is_the_score_on_held_out_rows(self, capsys):
        fit = model(max_epochs=3, verbose=1, validation_fraction=0.3).fit(X, LABELS)
        score = f"{fit.validation_log_loss_:.4f} ± {fit.validation_standard_error_:.4f}"
        last = capsys.readouterr().err.splitlines()[-1]
        assert last == f"held-out NLL {score} ({fit.n_validation_rows_} rows)"


class TestInterruption:
    @pytest.mark.parametrize("optimizer", ["adam", SignRates(), None])
    def test_leaves_a_fitted_estimator_and_a_warning(self, monkeypatch, optimizer):
        interrupt_at(monkeypatch, 4)
        fit = model(kernel=KERNEL, optimizer=optimizer, tol=1e-9)
        with pytest.warns(ConvergenceWarning, match="interrupted"):
            survive(fit)
        assert 1 <= fit.n_iter_ <= 4
        assert len(fit.history_) == fit.n_iter_
        assert np.isfinite(fit.predict_proba(X_STAR)).all()
        assert fit.score(X_STAR, LABELS_STAR) > 0.7

    def test_while_q_is_brought_to_its_fixed_point_after_training(self, monkeypatch):
        interrupt_at(monkeypatch, 15 + 3)
        fit = model(kernel=KERNEL, max_epochs=15)
        with pytest.warns(ConvergenceWarning):
            survive(fit)
        assert fit.score(X_STAR, LABELS_STAR) > 0.7


def survive(fit):
    try:
        fit.fit(X, LABELS)
    except KeyboardInterrupt:
        pytest.fail("the interruption lost what had been learned")


@quietly
class TestWarmStart:
    def test_continues_where_the_last_fit_ended(self):
        options = {"optimizer": Adam(0.05), "warm_start": True, **EVIDENCE_ONLY}
        warm = model(kernel=KERNEL, max_epochs=40, **options).fit(X, LABELS)
        last, value = warm.history_[-1].objective, warm.log_marginal_likelihood_value_
        theta = warm.kernel_.theta.copy()
        warm.set_params(max_epochs=1).fit(X, LABELS)
        # One step of Adam's first length away, not back at the start.
        assert np.abs(warm.kernel_.theta - theta).max() < 0.06
        assert warm.history_[0].objective > last - 1.0
        assert warm.log_marginal_likelihood_value_ > value - 1.0

    def test_two_halves_are_no_worse_than_the_first(self):
        options = {"max_epochs": 30, "optimizer": Adam(0.02), **EVIDENCE_ONLY}
        first = model(kernel=KERNEL, **options).fit(X, LABELS)
        warm = model(kernel=KERNEL, warm_start=True, **options)
        warm.fit(X, LABELS).fit(X, LABELS)
        assert warm.log_marginal_likelihood_value_ > first.log_marginal_likelihood_value_

    def test_needs_fewer_sweeps_at_a_fixed_kernel(self):
        warm = at_fixed_kernel(warm_start=True).fit(X, LABELS)
        cold = warm.n_iter_
        before = warm.predict_proba(X_STAR)
        assert warm.fit(X, LABELS).n_iter_ < cold
        assert_allclose(warm.predict_proba(X_STAR), before, atol=1e-8)

    def test_goes_on_with_other_rows(self):
        warm = at_fixed_kernel(warm_start=True).fit(X, LABELS)
        warm.fit(X_STAR, LABELS_STAR)
        cold = at_fixed_kernel().fit(X_STAR, LABELS_STAR)
        assert_allclose(warm.predict_proba(X), cold.predict_proba(X), atol=1e-6)
        assert warm.loo_log_proba_.shape == (40,)

    def test_other_labels_for_the_same_rows_are_learned_anew(self):
        warm = at_fixed_kernel(warm_start=True).fit(X, LABELS).fit(X, 1 - LABELS)
        cold = at_fixed_kernel().fit(X, 1 - LABELS)
        assert_allclose(warm.predict_proba(X_STAR), cold.predict_proba(X_STAR), atol=1e-6)

    def test_without_it_the_past_is_forgotten(self):
        cold = model(max_epochs=10).fit(X_STAR, LABELS_STAR).fit(X, LABELS)
        assert_array_equal(
            cold.predict_proba(X_STAR), model(max_epochs=10).fit(X, LABELS).predict_proba(X_STAR)
        )

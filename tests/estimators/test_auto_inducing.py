"""n_inducing="auto": the fit of a number that was found, and a record of how."""

import copy

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import ConvergenceWarning

import cavity
from cavity import GFITCClassifier, SEPClassifier, SVIClassifier
from cavity.inference import config as configuration
from cavity.inference import inducing_search as growing
from cavity.inference.config import resolve
from cavity.inference.inducing_search import InducingSearch
from support import interrupt_at, make, table

X, LABELS = table(150)
X_STAR, _ = table(30, seed=9)
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def auto(kind=SEPClassifier, **options):
    settings = {"n_inducing": "auto", "max_epochs": 20, "random_state": 0, "n_jobs": 1, **options}
    return make(kind, **settings)


def noted(call, results):
    """The same call, that keeps what it returns in a list."""

    def calling(*positional, **named):
        results.append(call(*positional, **named))
        return results[-1]

    return calling


@pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier, GFITCClassifier])
def test_training_goes_on_from_the_rung_that_is_enough(kind):
    found = auto(kind).fit(X, LABELS)
    m = len(found.inducing_points_)
    assert m in {rung.m for rung in found.inducing_search_}
    # What is found is as good as what the same number of points is trained to from scratch.
    told = auto(kind, n_inducing=m, max_epochs=200).fit(X, LABELS)
    assert abs(found.loo_log_loss_ - told.loo_log_loss_) < 0.01
    assert not hasattr(told, "inducing_search_")


def test_little_is_left_to_do():
    """Training begins where the growth has ended, sites included."""
    found = auto(max_epochs=200).fit(X, LABELS)
    told = auto(max_epochs=200, n_inducing=len(found.inducing_points_)).fit(X, LABELS)
    assert len(found.history_) <= configuration.SEARCHED_STEPS
    first, last = found.history_[0], told.history_[-1]
    assert abs(first.objective - last.objective) < 0.03 * abs(last.objective)


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
def test_enough_steps_are_enough():
    """No warning if the steps that the growth leaves are taken; one if a budget did not allow them."""
    assert auto(max_epochs=200, tol=0.0).fit(X, LABELS).n_iter_ <= configuration.SEARCHED_STEPS
    with pytest.warns(ConvergenceWarning, match="20 iterations"):
        auto(max_epochs=20).fit(X, LABELS)


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
def test_a_larger_max_iter_allows_more_steps(monkeypatch):
    monkeypatch.setattr(configuration, "SEARCHED_STEPS", 3)
    assert auto(max_epochs=16, tol=0.0).fit(X, LABELS).n_iter_ == 6
    assert auto(max_epochs=32, tol=0.0).fit(X, LABELS).n_iter_ == 12


def test_the_hyperprior_stays_where_it_was():
    """The growth moves the kernel, not what the kernel is believed to be before the data."""
    one, other = auto(n_inducing=25, max_epochs=1).fit(X, LABELS), auto(max_epochs=1).fit(X, LABELS)
    n_theta = len(one.kernel_.theta)
    np.testing.assert_allclose(one._centre[:n_theta], other._centre[:n_theta])


def test_rows_that_are_held_out_are_not_grown_on():
    options = {"early_stopping": "validation", "validation_fraction": 0.3}
    found = auto(**options).fit(X, LABELS)
    m = len(found.inducing_points_)
    assert m in {rung.m for rung in found.inducing_search_}
    start = make(SEPClassifier, n_inducing=m, max_epochs=1, random_state=0, **options).fit(X, LABELS)
    theirs, ours = start.history_[0].objective, found.history_[0].objective
    assert ours < found.history_[-1].objective - 1.0  # it began at the beginning
    assert abs(theirs - ours) < 0.2 * abs(theirs)


def test_no_more_points_than_there_is_memory_for(monkeypatch):
    """Then a warning names the bytes and the way out."""
    monkeypatch.setattr(growing, "available_bytes", lambda: 2 * 8 * 8 * 3 * 50**2)
    with pytest.warns(
        UserWarning, match=r"than 50 .* 100 need about 1,920,000 bytes, more than 50% .* give n_inducing"
    ):
        assert growing._affordable([25, 50, 100, 200], 3) == [25, 50]
    with pytest.warns(UserWarning, match="than 25 "):
        assert growing._affordable([25, 50], 1_000) == [25]  # one must be tried
    monkeypatch.setattr(growing, "available_bytes", lambda: 2 * 8 * 8 * 25**2)
    with pytest.warns(UserWarning, match="n_inducing"):
        assert [rung.m for rung in auto().fit(X, LABELS).inducing_search_] == [25]


@pytest.mark.parametrize("available", [None, 10**8, 10**12])
def test_memory_that_is_enough_has_no_say(monkeypatch, available):
    monkeypatch.setattr(growing, "available_bytes", lambda: available)
    rungs = growing.candidate_numbers(5_000)
    assert rungs == list(growing.CANDIDATES)
    assert growing._affordable(rungs, 1) == rungs


def test_the_same_for_the_same_seed_whatever_the_threads():
    one, other = auto(n_jobs=1).fit(X, LABELS), auto(n_jobs=2).fit(X, LABELS)
    scores = [[(rung.m, rung.loo_score) for rung in fit.inducing_search_] for fit in (one, other)]
    assert scores[0] == scores[1]
    assert_array_equal(one.predict_proba(X_STAR), other.predict_proba(X_STAR))


def test_large_tables_are_judged_by_a_pilot(monkeypatch):
    monkeypatch.setattr(growing, "WHOLE_ROWS", 100)
    monkeypatch.setattr(growing, "PILOT_ROWS", 60)
    model = auto(batch_size=50, max_epochs=2).fit(X, LABELS)
    assert all(rung.m < 60 for rung in model.inducing_search_)


def test_points_cost_less_the_more_rows_there_are(monkeypatch):
    """The climb is told the price for the table's rows, and that a pilot is a part of them."""
    prices = []
    monkeypatch.setattr(
        growing,
        "InducingSearch",
        lambda **given: prices.append(given["required_gain"]) or InducingSearch(**given),
    )
    monkeypatch.setattr(growing, "FEW_ROWS", 75)
    auto(optimizer=None).fit(X[:60], LABELS[:60])
    auto(optimizer=None).fit(X, LABELS)
    monkeypatch.setattr(growing, "WHOLE_ROWS", 100)
    monkeypatch.setattr(growing, "PILOT_ROWS", 60)
    auto(optimizer=None).fit(X, LABELS)
    np.testing.assert_allclose(np.array(prices) / growing.REQUIRED_GAIN, [1.0, 0.5, 0.5 * 60 / 150])


def test_a_pilot_is_half_believed(monkeypatch):
    """Training begins half way to the pilot's kernel, with points among all rows."""
    monkeypatch.setattr(growing, "WHOLE_ROWS", 100)
    monkeypatch.setattr(growing, "PILOT_ROWS", 60)
    grown, starts = [], []
    monkeypatch.setattr(growing, "search_inducing_points", noted(growing.search_inducing_points, grown))
    monkeypatch.setattr(growing, "chosen_start", noted(growing.chosen_start, starts))
    model = auto(batch_size=50, max_epochs=1).fit(X, LABELS)
    (pilot,), (start,) = grown, starts
    theta = start.space.kernel.theta
    assert np.abs(pilot.kernel.theta - pilot.theta).max() > 0.1
    np.testing.assert_allclose(theta - pilot.theta, pilot.kernel.theta - theta)
    np.testing.assert_allclose(start.centre[: len(theta)], pilot.theta)
    assert start.posterior is None
    assert start.engine is None
    assert model.config_ == resolve(150, n_inducing=len(pilot.Z), batch_size=50, max_epochs=1)
    assert start.space.Z.shape == pilot.Z.shape
    assert not np.isin(start.space.Z[:, 0], pilot.Z[:, 0]).any()


def test_weights_count_in_the_growth():
    weight = np.where(np.arange(150) < 60, 2.0, 0.0)
    copies = np.repeat(np.arange(60), 2)
    weighted = auto(optimizer=None).fit(X, LABELS, sample_weight=weight)
    copied = auto(optimizer=None).fit(X[copies], LABELS[copies])
    assert [rung.m for rung in weighted.inducing_search_] == [rung.m for rung in copied.inducing_search_]
    scores = [[rung.loo_score for rung in fit.inducing_search_] for fit in (weighted, copied)]
    np.testing.assert_allclose(*scores, rtol=1e-8)


def test_fewer_rows_than_the_first_rung():
    model = auto().fit(X[:12], LABELS[:12])
    assert len(model.inducing_points_) == 12


def test_the_path_is_saved_with_the_model(tmp_path):
    model = auto().fit(X, LABELS)
    model.save(tmp_path / "model.cavity")
    assert cavity.load(tmp_path / "model.cavity").inducing_search_ == model.inducing_search_
    assert copy.deepcopy(model).inducing_search_ == model.inducing_search_


def test_given_points_are_taken():
    model = auto(inducing_points=X[:7]).fit(X, LABELS)
    assert len(model.inducing_points_) == 7
    assert not hasattr(model, "inducing_search_")


def test_a_stream_has_a_hundred():
    model = auto().partial_fit(X, LABELS)
    assert len(model.inducing_points_) == growing.DEFAULT_POINTS


def test_a_budget_in_seconds_holds():
    """With hardly any seconds, one number of points is tried and one step is taken."""
    model = auto(max_seconds=1e-9, max_epochs=10_000, tol=0.0).fit(X, LABELS)
    assert len(model.inducing_search_) == 1
    assert model.n_iter_ == 1


def test_a_sparse_or_unknown_word_is_refused():
    with pytest.raises(ValueError, match="n_inducing"):
        auto(n_inducing="many").fit(X, LABELS)


class TestInterruption:
    """While the points grow: a round has 15 steps and some sweeps."""

    @pytest.mark.parametrize("number", [25, 45, 60])
    @pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier, GFITCClassifier])
    def test_leaves_a_fitted_estimator_and_a_warning(self, monkeypatch, kind, number):
        interrupt_at(monkeypatch, number)
        fit = auto(kind)
        with pytest.warns(ConvergenceWarning, match="interrupted after 0 iterations"):
            survive(fit, X, LABELS)
        assert fit.n_iter_ == 0
        assert fit.history_ == []
        assert len(fit.inducing_points_) >= 25
        assert fit.score(X, LABELS) > 0.8
        assert np.isfinite(fit.loo_log_loss_)

    def test_of_a_pilot_too(self, monkeypatch):
        monkeypatch.setattr(growing, "WHOLE_ROWS", 100)
        monkeypatch.setattr(growing, "PILOT_ROWS", 80)
        interrupt_at(monkeypatch, 40)
        fit = auto()
        with pytest.warns(ConvergenceWarning, match="interrupted"):
            survive(fit, X, LABELS)
        assert fit.loo_log_proba_.shape == (150,)
        assert fit.score(X, LABELS) > 0.8

    def test_before_anything_is_learned_there_is_nothing_to_keep(self, monkeypatch):
        interrupt_at(monkeypatch, 3)
        fit = auto()
        with pytest.raises(KeyboardInterrupt):
            fit.fit(X, LABELS)
        assert not hasattr(fit, "model_")


def survive(fit, X, y):
    try:
        fit.fit(X, y)
    except KeyboardInterrupt:
        pytest.fail("the interruption lost what had been learned")


def test_the_path_of_an_earlier_fit_does_not_outlive_it():
    model = auto().fit(X, LABELS)
    assert model.inducing_search_
    assert not hasattr(model.set_params(n_inducing=5).fit(X, LABELS), "inducing_search_")

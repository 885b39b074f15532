"""The race: what it decides, that it can be repeated and resumed, and that held-out rows stay out."""

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF

import cavity
from cavity import CheckpointError, SEPClassifier, SVIClassifier
from cavity.data.sampling import hashed_rows
from cavity.engines.local import LocalEngine
from cavity.inference import candidates, decisions
from cavity.inference import race as race_module
from cavity.inference.candidates import SAFE, SHARP, Candidate, Entrants
from cavity.inference.race_records import RaceEntry, preferred
from support import PINNED, interrupt_at, make, replace_sweep

X, Y = make_moons(2_000, noise=0.3, random_state=0)
QUICK = {"max_epochs": 3, "random_state": 0}
ALL_FREE = frozenset(Candidate._fields)


@pytest.fixture(autouse=True)
def few_points(monkeypatch):
    monkeypatch.setattr(decisions, "DEFAULT_POINTS", 8)
    monkeypatch.setattr(candidates, "POINTS", 12)


def without_seconds(race):
    return [replace(entry, seconds=0.0) for entry in race.entries]


def test_it_is_the_same_with_any_number_of_threads():
    one, two = (SEPClassifier(**QUICK, n_jobs=n).fit(X, Y) for n in (1, 2))
    for a, b in zip(one.race_.entries, two.race_.entries, strict=True):
        assert a.candidate == b.candidate
        assert a.log_loss == pytest.approx(b.log_loss, rel=1e-9)
    assert one.config_ == two.config_
    assert sum(entry.chosen and entry.length > 1 for entry in one.race_.entries) == 1


def test_the_configuration_repeats_the_winner_without_a_race():
    model = SEPClassifier(**QUICK, n_jobs=1).fit(X, Y)
    again = SEPClassifier(config=model.config_, n_jobs=1).fit(X, Y)
    assert again.race_ is None
    assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.validation_log_loss_ == model.validation_log_loss_


def test_the_final_fit_begins_at_the_kernel_that_a_trial_has_learned(monkeypatch):
    began = {}

    def watched(problem, config, *rest, steps=race_module.train_steps):
        key = config.n_inducing, config.residual_scale, config.scaling, config.kernel_name
        began[key] = config.kernel_start, problem.space.kernel.theta, problem.hyperprior.centre
        return steps(problem, config, *rest)

    monkeypatch.setattr(race_module, "train_steps", watched)
    model = SEPClassifier(**{**QUICK, "max_epochs": 10}, n_jobs=1).fit(X, Y)
    assert {key[0]: value[0] is None for key, value in began.items()} == {8: True, 12: False, 24: False}
    for theta, start, centre in began.values():
        if theta is not None:
            assert_allclose(start, theta, atol=1e-12)
            assert np.ptp(centre[1:3]) == 0.0  # the hyper-prior is that of the default kernel
            assert np.ptp(theta[1:]) > 0.0
    assert len(model.config_.kernel_start) == 3
    assert json.loads(json.dumps(model.config_.as_dict()))["kernel_start"] == list(
        model.config_.kernel_start
    )


def test_a_race_without_time_asks_the_first_question_alone(monkeypatch):
    monkeypatch.setattr(race_module, "RACE_SHARE", 0.0)
    monkeypatch.setattr(race_module, "SHORTEST_TRIAL", 1e-9)  # a fast machine has time for two steps
    model = SEPClassifier(max_seconds=1.0, random_state=0, n_jobs=1).fit(X, Y)
    assert len(model.race_) == 3
    assert {entry.n_steps for entry in model.race_.entries} == {1}
    assert model.config_.n_inducing == 8


def test_a_trial_of_few_steps_is_not_doubled():
    """A step with twice as many points takes eight times as long."""
    fits = {n: SEPClassifier(**{**QUICK, "max_epochs": n}, n_jobs=1).fit(X, Y) for n in (3, 10)}
    for n, points in ((3, 12), (10, 24)):
        assert max(entry.n_inducing for entry in fits[n].race_.entries) >= points
    assert max(entry.n_inducing for entry in fits[3].race_.entries) == 12


def test_a_given_start_of_the_kernel_is_kept_by_the_race():
    given = {"scaling": "robust", "kernel_name": "rbf", "n_inducing": 5, "kernel_start": [0.5, 0.1, 0]}
    model = make(SEPClassifier, **given, **QUICK).fit(X, Y)
    assert model.race_ is not None
    assert model.config_.kernel_start == (0.5, 0.1, 0.0)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ([1.0, 2.0], "kernel_start has 2 numbers, and the kernel .* has 3 parameters to learn"),
        ([1.0, np.nan, 2.0], "kernel_start=.* is not possible; it must be finite numbers"),
        ("auto", "kernel_start='auto' is not possible"),
        (3.0, "kernel_start=3.0 is not possible"),
    ],
)
def test_impossible_starts_of_the_kernel_are_refused(start, words):
    with pytest.raises(ValueError, match=words):
        SEPClassifier(config={"kernel_start": start}, **QUICK).fit(X, Y)


def test_what_is_set_is_not_asked():
    given = {"scaling": "quantile", "kernel_name": "rbf", "n_inducing": 9}
    model = make(SEPClassifier, **given, **QUICK).fit(X, Y)
    assert {entry.residual_scale for entry in model.race_.entries} == {0.0, 1.0}
    for entry in model.race_.entries:
        assert (entry.scaling, entry.kernel_name, entry.n_inducing) == ("quantile", "rbf", 9)


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (Candidate(**SAFE), "safe, robust, matern32, m=100"),
        (Candidate(**SHARP, kernel_name=None), "sharp, robust, own kernel, m=100"),
        (Candidate(1.0, 0.0, None), "full residual, unscaled, matern32, m=100"),  # all of SVI
        (Candidate(0.5, 2.0), "κ=0.5, penalty 2, robust, matern32, m=100"),
    ],
)
def test_a_candidate_is_named_by_what_it_is(candidate, words):
    assert str(candidate) == words


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (SEPClassifier, {**PINNED, "n_inducing": 9}),
        (SEPClassifier, {"validation_fraction": None, "n_inducing": 9}),
        (SEPClassifier, {**SAFE, "kernel": RBF([1.0, 1.0]), "n_inducing": 9}),
        (SVIClassifier, {"kernel": RBF([1.0, 1.0]), "inducing_points": X[:9]}),
    ],
    ids=["all set", "nothing held out", "own kernel", "own kernel and points"],
)
def test_without_a_question_there_is_no_race(kind, options):
    assert make(kind, **options, **QUICK).fit(X, Y).race_ is None


@pytest.mark.parametrize("go_on", [SEPClassifier.fit, SEPClassifier.partial_fit])
def test_what_goes_on_from_a_fit_keeps_its_model(go_on):
    chosen = {"scaling": "standard", "kernel_name": "rbf", **SHARP}
    model = make(SEPClassifier, **chosen, n_inducing=9, warm_start=True, **QUICK).fit(X, Y)
    model.set_params(scaling="auto", n_inducing="auto", config=None)
    go_on(model, X, Y)
    assert {name: getattr(model.config_, name) for name in chosen} == chosen
    assert model.race_ is None


def test_few_rows_have_no_race():
    assert SEPClassifier(**QUICK, n_inducing=9).fit(X[:1_999], Y[:1_999]).race_ is None


def test_held_out_rows_are_in_no_minibatch(monkeypatch):
    held_out, seen = hashed_rows(2_000, 500, seed=0), set()

    def watched(self, row_pass, batch=None, *sampler, run=LocalEngine.run):
        sums = run(self, row_pass, batch, *sampler)
        if batch is not None:
            seen.update(*(np.r_[index].tolist() for index, _ in self._pending))
        return sums

    replace_sweep(monkeypatch, watched)
    model = SEPClassifier(**QUICK, n_jobs=1).fit(X, Y)
    assert model.n_validation_rows_ == 500
    assert len(seen) == 1_500
    assert not seen & set(held_out.tolist())


def test_a_race_that_was_killed_goes_on_where_it_was(tmp_path, monkeypatch):
    path = tmp_path / "fit.ckpt"
    whole = SEPClassifier(**QUICK, n_jobs=1).fit(X, Y)
    trial, trials = race_module._Runner._trial, []

    def killed(self, backend, candidate, *rest):
        if len(trials) == 4:
            raise SystemExit
        trials.append(candidate)
        return trial(self, backend, candidate, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(race_module._Runner, "_trial", killed)
        with pytest.raises(SystemExit):
            SEPClassifier(**QUICK, n_jobs=1, checkpoint=path).fit(X, Y)
    stored = json.loads((tmp_path / "fit.ckpt.race").read_text())
    assert len(stored["trials"]) == 4
    steps = race_module.train_steps
    run = []
    monkeypatch.setattr(
        race_module, "train_steps", lambda problem, *rest: (run.append(1), steps(problem, *rest))[1]
    )
    resumed = SEPClassifier(**QUICK, n_jobs=1, checkpoint=path).fit(X, Y)
    assert len(run) == len(whole.race_) - 4
    assert without_seconds(resumed.race_) == without_seconds(whole.race_)
    assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))
    assert list(tmp_path.iterdir()) == []


def stopping(monkeypatch, number):
    """Let the user stop the race in the trial of that number; gives the ends of those before it."""
    trial, ends = race_module._Runner._trial, {}

    def stopped(self, backend, prepared, *rest):
        if len(ends) == number - 1:
            raise KeyboardInterrupt
        done = trial(self, backend, prepared, *rest)
        ends[done.score.log_loss] = done.end
        return done

    monkeypatch.setattr(race_module._Runner, "_trial", stopped)
    return ends


@pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier])
def test_ctrl_c_keeps_what_the_best_trial_has_learned(monkeypatch, kind):
    ends = stopping(monkeypatch, 4)
    model = kind(max_epochs=60, random_state=0, n_jobs=1)
    with pytest.warns(ConvergenceWarning, match=r"interrupted after \d\d iterations"):
        model.fit(X, Y)
    best = model.race_[0]
    assert best.chosen
    assert best.log_loss == min(ends)
    assert model.n_iter_ == best.n_steps > 0
    assert_allclose(model.kernel_.theta, ends[best.log_loss].space.kernel.theta, rtol=1e-14)
    assert_array_equal(model.model_.Z, ends[best.log_loss].space.Z)
    assert model.validation_log_loss_ == pytest.approx(best.log_loss, abs=0.02)
    assert model.inverse_temperature_ != 1.0


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ctrl_c_in_the_first_trials_keeps_them_as_far_as_they_have_come(monkeypatch, n_jobs):
    interrupt_at(monkeypatch, 9)
    model = SEPClassifier(max_epochs=60, random_state=0, n_jobs=n_jobs)
    with pytest.warns(ConvergenceWarning, match=r"interrupted after \d+ iterations"):
        model.fit(X, Y)
    best = model.race_[0]
    assert 0 < model.n_iter_ == best.n_steps
    assert min(entry.n_steps for entry in model.race_.entries) < 10  # the one that was interrupted
    assert best.log_loss == min(entry.log_loss for entry in model.race_.entries)
    assert len(model.race_) <= n_jobs
    assert np.isfinite(model.predict_log_proba(X)).all()


def killed_in_training(monkeypatch, model):
    """A fit that ends after its race, when the training begins."""

    def raised(*_, **__):
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr("cavity.estimators.base.train", raised)
        with pytest.raises(SystemExit):
            model.fit(X, Y)


@pytest.mark.parametrize("decided", [True, False])
def test_with_another_budget_a_decision_stays_and_an_undecided_race_begins_anew(
    tmp_path, monkeypatch, decided
):
    path, run, steps = tmp_path / "fit.ckpt", [], race_module.train_steps
    model = SEPClassifier(**QUICK, n_jobs=1, checkpoint=path)
    killed_in_training(monkeypatch, model)
    place = tmp_path / "fit.ckpt.race"
    stored = json.loads(place.read_text())
    if not decided:
        stored["winner"] = stored["seconds"] = None
        place.write_text(json.dumps(stored))
    monkeypatch.setattr(
        race_module, "train_steps", lambda problem, *rest: (run.append(1), steps(problem, *rest))[1]
    )
    model.set_params(max_epochs=4).fit(X, Y)
    assert len(run) == (0 if decided else len(model.race_))
    assert model.config_.max_epochs == 4.0
    if decided:
        assert list(Candidate(*stored["winner"])) == [
            getattr(model.config_, name) for name in Candidate._fields
        ]
        assert len(model.race_) == len(stored["trials"])


def test_ctrl_c_in_a_race_that_was_resumed_fits_where_training_would_begin(tmp_path, monkeypatch):
    """The file of a race has scores, not states."""
    model = SEPClassifier(**QUICK, n_jobs=1, checkpoint=tmp_path / "fit.ckpt")
    for steps in (r"\d+", "0"):
        with monkeypatch.context() as patch:
            stopping(patch, 3)
            with pytest.warns(ConvergenceWarning, match=f"interrupted after {steps} iterations"):
                model.fit(X, Y)
    assert model.n_iter_ == 0
    assert np.isfinite(model.predict_log_proba(X)).all()


def test_a_checkpoint_in_no_folder_is_refused_before_the_race(tmp_path):
    path = tmp_path / "nowhere" / "fit.ckpt"
    with pytest.raises(CheckpointError, match="there is no folder"):
        SEPClassifier(**QUICK, n_jobs=1, checkpoint=path).fit(X, Y)


def test_the_trials_of_another_fit_are_refused(tmp_path):
    (tmp_path / "fit.ckpt.race").write_text(
        '{"fingerprint": {"table": {"number of rows": 7}}, "trials": {}}'
    )
    with pytest.raises(CheckpointError, match="checkpoint of another fit: its parameters differ"):
        SEPClassifier(**QUICK, checkpoint=tmp_path / "fit.ckpt").fit(X, Y)


@pytest.mark.parametrize("text", ["", "{}", '{"trials": 3}', "[1, 2"])
def test_a_damaged_file_of_trials_is_no_obstacle(tmp_path, text):
    (tmp_path / "fit.ckpt.race").write_text(text)
    path = tmp_path / "fit.ckpt"
    model = make(
        SEPClassifier, scaling="robust", kernel_name="rbf", n_inducing=5, **QUICK, checkpoint=path
    )
    assert model.fit(X, Y).race_ is not None


def test_the_table_is_saved_with_the_model(tmp_path):
    model = make(SEPClassifier, scaling="robust", kernel_name="rbf", n_inducing=5, **QUICK).fit(X, Y)
    model.save(tmp_path / "m.cavity")
    loaded = cavity.load(tmp_path / "m.cavity")
    assert loaded.race_ == model.race_
    assert str(loaded.race_).count("\n") == len(model.race_)
    assert repr(model.race_) == str(model.race_)
    assert model.race_._repr_html_().count("<tr>") == len(model.race_) + 1
    assert "sharp" in str(model.race_)
    assert len(model.race_.as_dicts()) == len(model.race_)


class TestPreferred:
    """Which entry wins, given the losses of 400 held-out rows."""

    counts = np.ones(400)
    noise = np.random.default_rng(0).permutation(np.repeat([-0.4, 0.4], 200))
    error = 0.4 / 20.0
    """Standard error of a difference of losses with this noise."""

    def winner(self, gains):
        """The winner among the safe candidate and others that are better by some standard errors."""
        tried = []
        for i, (candidate, gain) in enumerate({Candidate(): 0.0, **gains}.items()):
            loss = np.full(400, 0.7)
            if gain:
                loss += np.roll(self.noise, 7 * i) - gain * self.error
            entry = RaceEntry(*candidate, 1, loss.mean(), 0.05, 5, 1.0)
            tried.append((entry, loss))
        found = {preferred(order, self.counts).candidate for order in (tried, tried[::-1])}
        assert len(found) == 1  # the order of candidates does not matter
        return found.pop()

    @pytest.mark.parametrize("gain", [-1.0, 0.0, 0.9, 1.1])
    @pytest.mark.parametrize("changed", [SHARP, {"kernel_name": "rbf"}, {"kernel_name": "matern12"}])
    def test_the_default_stays_unless_another_is_better_by_a_standard_error(self, changed, gain):
        other = Candidate(**changed)
        assert self.winner({other: gain}) == (other if gain > 1.0 else Candidate())

    @pytest.mark.parametrize("changed", [{"scaling": "standard"}, {"n_inducing": 200}])
    def test_scaling_and_size_need_no_standard_error(self, changed):
        other = Candidate(**changed)
        assert self.winner({other: 0.1}) == other

    @pytest.mark.parametrize("gain", [0.0, 0.005, 0.01])
    def test_leaves_must_be_better_by_a_hundredth(self, gain):
        plain, local = Candidate(), Candidate(n_leaves=8, n_local=100)
        losses = {plain: 0.7, local: 0.7 - gain}
        tried = [
            (RaceEntry(*candidate, 1, loss, 0.05, 5, 1.0), np.full(400, loss))
            for candidate, loss in losses.items()
        ]
        assert preferred(tried, self.counts).candidate == (local if gain == 0.01 else plain)

    def test_nor_does_the_kernel_of_the_sharp_model(self):
        sharp, smooth = Candidate(**SHARP), Candidate(**SHARP, kernel_name="rbf")
        assert self.winner({sharp: 3.0, smooth: 3.1}) == smooth

    def test_the_best_of_the_safe_ones_is_taken(self):
        quantile = Candidate(scaling="quantile")
        assert self.winner({quantile: 0.5, Candidate(**SHARP): 0.8}) == quantile

    def test_rows_count_by_their_weights(self):
        weight = np.where(self.noise > 0.0, 3.0, 1.0)
        sharp = Candidate(**SHARP)
        tried = [
            (RaceEntry(*candidate, 1, float(np.average(loss, weights=weight)), 0.05, 5, 1.0), loss)
            for candidate, loss in ((Candidate(), np.full(400, 0.7)), (sharp, 0.7 - self.noise))
        ]
        assert preferred(tried, weight).candidate == sharp
        assert preferred(tried, self.counts).candidate == Candidate()


class TestQuestions:
    start = Candidate()

    def test_each_varies_one_thing(self):
        entrants = Entrants(self.start, ALL_FREE, 100_000)
        for question, field in (("scalings", "scaling"), ("kernels", "kernel_name")):
            found = getattr(entrants, question)(self.start)
            assert len(found) == 3
            for candidate in found:
                assert candidate._replace(**{field: None}) == self.start._replace(**{field: None})

    def test_nothing_free_leaves_one_candidate(self):
        entrants = Entrants(self.start, frozenset(), 100_000)
        for found in (
            entrants.models(),
            entrants.scalings(self.start),
            entrants.kernels(self.start),
            entrants.sizes(self.start),
        ):
            assert found == [self.start]

    def test_the_safe_model_takes_part_in_the_last_question(self):
        sharp = self.start._replace(**SHARP)
        sizes = Entrants(self.start, ALL_FREE, 100_000).sizes(sharp)
        assert [candidate.residual_scale for candidate in sizes] == [0.0, 1.0]

    def test_the_winner_gets_leaves_if_rows_are_enough(self):
        cases = ((10_000, []), (30_000, [2]), (500_000, [32]), (10**7, [512]), (10**9, [512]))
        for n_rows, numbers in cases:
            larger = Entrants(self.start, ALL_FREE, n_rows).larger(self.start)
            found = [candidate for candidate in larger if candidate.n_leaves is not None]
            assert [candidate.n_leaves for candidate in found] == numbers
            assert {(c.n_inducing, c.n_local) for c in found} <= {(20, 100)}

    def test_trials_of_what_has_grown_are_twice_as_long(self):
        entrants = Entrants(self.start, ALL_FREE, 100_000)
        few = self.start._replace(n_inducing=candidates.POINTS)
        sizes = (few, *entrants.larger(few))
        assert [c.n_leaves for c in sizes] == [None, None, 8]
        assert [entrants.length(c, is_last=True) for c in sizes] == [3, 6, 6]
        assert {entrants.length(c, is_last=False) for c in sizes} == {1}
        fixed = replace(entrants, free=ALL_FREE - {"n_inducing"})  # the user's own number has not grown
        assert fixed.length(self.start._replace(n_inducing=1_000), is_last=True) == 3

    def test_what_wins_grows(self):
        entrants = Entrants(self.start, ALL_FREE, 500)
        larger = entrants.larger(self.start)
        assert [(c.n_inducing, c.residual_scale) for c in larger] == [(200, 1.0)]
        assert entrants.larger(self.start._replace(n_inducing=251)) == []  # no more points than rows
        local = self.start._replace(n_inducing=20, n_leaves=4, n_local=30)
        assert [(c.n_leaves, c.n_local) for c in entrants.larger(local)] == [(16, 30), (4, 60)]
        assert entrants.larger(local._replace(n_leaves=16)) == []
        fixed = replace(entrants, free=frozenset({"residual_scale"}))
        assert fixed.larger(self.start) == []


def test_a_candidate_that_fails_loses(monkeypatch):
    def failing(problem, config, *rest):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(race_module, "train_steps", failing)
    model = make(SEPClassifier, scaling="robust", kernel_name="rbf", n_inducing=5, **QUICK).fit(X, Y)
    assert {entry.log_loss for entry in model.race_.entries} == {np.inf}
    assert model.config_.residual_scale == 1.0  # the safe one, where nothing is known


def test_scores_of_weighted_rows_count_copies():
    weight = 1.0 + (np.arange(2_000) % 2)
    model = make(SEPClassifier, **PINNED, n_inducing=5, **QUICK).fit(X, Y, weight)
    plain = make(SEPClassifier, **PINNED, n_inducing=5, **QUICK).fit(X, Y)
    assert model.validation_log_loss_ != plain.validation_log_loss_

"""Value effects in a classifier of tables: chosen on held-out rows, noted, saved, repeated."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import cavity
from cavity import SEPClassifier, TableClassifier
from cavity.data import ArraySource
from cavity.data.effect_counts import TableSummariser
from cavity.data.effect_learning import learn_effects
from cavity.data.encoded import encoded_source
from cavity.data.preprocess import TablePreprocessor
from cavity.data.sampling import hashed_rows
from cavity.data.table import open_table
from cavity.inference.candidates import Candidate, Entrants


def codes(n=2_100, seed=0, noise=1.0):
    """A code that decides the label, and a number that does a little."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"code": rng.integers(0, 60, n), "x": rng.normal(size=n)})
    score = 3.0 * np.sin(40.0 * frame["code"]) + frame["x"]
    frame["y"] = np.where(score + noise * rng.logistic(size=n) > 0, "yes", "no")
    return frame


def classifier(**options):
    fixed = {"residual_scale": 1.0, "trace_penalty": 1.0, "kernel_name": "matern32"}
    given = {"n_inducing": 20, "scaling": "robust", "max_epochs": 15, "n_jobs": 1, "random_state": 0}
    return SEPClassifier(config=fixed, **{**given, **options})


NEW = codes(1_000, seed=5)


def log_loss(model):
    return -model.predict_log_proba(NEW)[np.arange(len(NEW)), (NEW["y"] == "yes").astype(int)].mean()


@pytest.fixture(scope="module")
def chosen():
    return TableClassifier(classifier()).fit(codes(), "y")


def test_held_out_rows_choose_effects_where_they_help(chosen, tmp_path):
    assert chosen.estimator_.config_.feature_set == "effects"
    assert chosen.get_feature_names_out().tolist() == ["code", "x", "effect of code"]
    assert chosen.estimator_.feature_names_in_.tolist() == ["code", "x", "effect of code"]
    assert chosen.columns_ == ["code", "x"]
    assert chosen.notes_ == ["effects of the values of 'code' on the target are further features"]
    assert {entry.feature_set for entry in chosen.estimator_.race_.entries} == {"columns", "effects"}
    without = TableClassifier(classifier(), target_encoding=False).fit(codes(), "y")
    assert without.preprocessor_.effects_ == []
    assert log_loss(chosen) < log_loss(without) - 0.1
    chosen.save(tmp_path / "model.cavity")
    again = cavity.load(tmp_path / "model.cavity")
    assert_array_equal(again.predict_proba(NEW), chosen.predict_proba(NEW))
    assert again.notes_ == chosen.notes_


def test_the_configuration_repeats_the_fit_without_a_race(chosen):
    again = TableClassifier(SEPClassifier(config=chosen.estimator_.config_, n_jobs=1)).fit(codes(), "y")
    assert again.estimator_.race_ is None
    assert_allclose(again.predict_proba(NEW), chosen.predict_proba(NEW), atol=1e-9)


def test_smooth_numbers_and_noise_have_no_effects():
    data = codes()
    data["code"] = np.random.default_rng(1).integers(0, 60, len(data))
    model = TableClassifier(classifier(max_epochs=2)).fit(data, "y")
    assert model.preprocessor_.effects_ == []
    assert model.notes_ == []
    assert model.estimator_.n_features_in_ == 2


def test_few_rows_have_effects_only_if_asked_for():
    few = codes(400)
    small = SEPClassifier(n_inducing=10, optimizer=None, random_state=0, n_jobs=1)
    assert not TableClassifier(small).fit(few, "y").preprocessor_.effects_
    model = TableClassifier(small, target_encoding=True).fit(few, "y")
    assert model.get_feature_names_out().tolist() == ["code", "x", "effect of code"]
    assert model.transform(few).shape == (400, 3)


def test_three_classes_have_an_effect_each():
    few = codes(400)
    few["y"] = few["code"] % 3
    small = SEPClassifier(n_inducing=5, optimizer=None, random_state=0, n_jobs=1)
    model = TableClassifier(small, target_encoding=True).fit(few, "y")
    assert [n for n in model.get_feature_names_out() if "effect" in n] == [
        "effect of code on 0",
        "effect of code on 1",
        "effect of code on 2",
    ]


def test_values_of_target_encoding():
    with pytest.raises(ValueError, match="target_encoding='yes' is not possible"):
        TableClassifier(target_encoding="yes").fit(codes(50), "y")


def test_rows_beyond_memory_have_the_same_features(tmp_path):
    table, preprocessor = open_table(codes()), TablePreprocessor()
    classes = preprocessor.learn(table, "y").finish()
    held_out = hashed_rows(2_100, 500)
    effects = learn_effects(
        TableSummariser(table, preprocessor.typed, classes),
        preprocessor.encoders_,
        2_100,
        np.ones(2),
        ["no", "yes"],
        held_out,
    )
    for max_memory in (0.0, 1e9):
        rows = encoded_source(
            table, preprocessor, classes, effects=effects, max_memory=max_memory, folder=tmp_path
        )
        with rows as source:
            assert source.feature_sets == {"columns": 2, "effects": 3}
            assert_array_equal(source.reserved, held_out)
            found = np.vstack([block.load().X for block in source.blocks(700)])
        if not max_memory:
            expected = found
    assert_array_equal(found, expected)


def test_sets_of_features_in_a_race():
    free = frozenset({"feature_set", "residual_scale", "trace_penalty"})
    start = Candidate(feature_set="columns")
    entrants = Entrants(start, free, 1_000, ("columns", "effects", "pairs"))
    first = [(c.residual_scale, c.feature_set) for c in entrants.models()]
    assert first == [(1.0, "columns"), (0.0, "columns"), (1.0, "effects"), (0.0, "effects")]
    best = start._replace(feature_set="effects")
    assert [c.feature_set for c in entrants.further_features(best)] == ["effects", "pairs"]
    assert Entrants(start, frozenset(), 1_000, ("columns", "effects")).models() == [start]
    assert str(best).startswith("effects, safe")


def effects_of(model):
    return {effect.name: effect for effect in model.preprocessor_.effects_}


def test_a_stream_has_the_effects_of_a_fit():
    data = codes(3_000)
    stream = TableClassifier(
        SEPClassifier(n_inducing=15, random_state=0, n_jobs=1), target_encoding=True
    )
    for start in (0, 1_000, 2_000):
        stream.partial_fit(data[start : start + 1_000], "y")
    small = SEPClassifier(n_inducing=5, optimizer=None, validation_fraction=None, n_jobs=1)
    fitted = TableClassifier(small, target_encoding=True).fit(data, "y")
    assert stream.get_feature_names_out().tolist() == fitted.get_feature_names_out().tolist()
    assert stream.notes_ == fitted.notes_
    assert_allclose(effects_of(stream)["code"].table, effects_of(fitted)["code"].table, atol=1e-12)
    assert_allclose(stream.transform(NEW), fitted.transform(NEW), atol=1e-12)
    without = TableClassifier(
        SEPClassifier(n_inducing=15, random_state=0, n_jobs=1), target_encoding=False
    )
    for start in (0, 1_000, 2_000):
        without.partial_fit(data[start : start + 1_000], "y")
    assert log_loss(stream) < log_loss(without) - 0.1


def test_the_first_chunk_decides_about_effects():
    data, small = codes(4_000), SEPClassifier(n_inducing=5, random_state=0, n_jobs=1)
    few = TableClassifier(small).partial_fit(data[:1_000], "y").partial_fit(data[1_000:], "y")
    assert not few.preprocessor_.effects_
    enough = TableClassifier(small).partial_fit(data[:2_500], "y")
    assert list(effects_of(enough)) == ["code"]
    with pytest.raises(ValueError, match="target_encoding='yes' is not possible"):
        TableClassifier(small, target_encoding="yes").partial_fit(data, "y")


def test_effects_of_a_stream_go_on_after_saving_and_come_back_after_an_error(tmp_path):
    data = codes(1_500)
    stream = TableClassifier(
        SEPClassifier(n_inducing=5, random_state=0, n_jobs=1), target_encoding="pairs"
    ).partial_fit(data[:500], "y")
    stream.save(tmp_path / "m.cavity")
    again = cavity.load(tmp_path / "m.cavity").partial_fit(data[500:], "y")
    before = effects_of(stream)["code"].table
    with pytest.raises(ValueError, match="not among the classes"):
        stream.partial_fit(data[500:].assign(y="perhaps"), "y")
    assert effects_of(stream)["code"].table is before
    stream.partial_fit(data[500:], "y")
    assert_array_equal(effects_of(again)["code"].table, effects_of(stream)["code"].table)
    assert not np.array_equal(effects_of(again)["code"].table, before)


def test_effects_stay_after_a_fit():
    data = codes(1_500)
    small = SEPClassifier(n_inducing=5, optimizer=None, random_state=0, n_jobs=1)
    model = TableClassifier(small, target_encoding=True).fit(data[:500], "y")
    before = effects_of(model)["code"]
    model.partial_fit(data[500:], "y")
    assert effects_of(model)["code"] is before


def test_a_window_forgets_old_effects():
    data = codes(3_000)
    data["y"] = np.where(np.arange(3_000) < 2_000, "no", "yes")
    data.loc[::7, "y"] = "no"
    data.loc[3::7, "y"] = "yes"
    inside = SEPClassifier(n_inducing=5, random_state=0, n_jobs=1, window_size=1_000)
    stream = TableClassifier(inside, target_encoding=True)
    for start in (0, 1_000, 2_000):
        stream.partial_fit(data[start : start + 1_000], "y")
    counts = effects_of(stream)["code"].counts
    assert counts.sum() == pytest.approx(1_000.0)
    last = np.bincount(data["y"][2_000:] == "yes")
    assert_allclose(counts.sum(axis=(0, 1)), last)


def test_features_without_names_leave_no_names_of_an_earlier_fit():
    class TwoSets(ArraySource):
        """Rows with two sets of features, of which only the larger one has names."""

        def leading(self, n_features):
            source = super().leading(n_features)
            source.feature_names = None
            return source

    X = np.random.default_rng(0).normal(size=(100, 2))
    labels = (X[:, 0] > 0).astype(int)
    source = TwoSets(X, labels, feature_names=["a", "b"], is_checked=True)
    source.feature_sets = {"one": 1, "two": 2}
    model = SEPClassifier(n_inducing=5, optimizer=None, random_state=0, config={"feature_set": "two"})
    assert model.fit(source).feature_names_in_.tolist() == ["a", "b"]
    model.set_params(config={"feature_set": "one"}).fit(source)
    assert model.n_features_in_ == 1
    assert not hasattr(model, "feature_names_in_")

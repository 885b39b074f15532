"""Offsets of rows, and mean functions: cross-fitted scores of a classifier as the latent mean."""

import pickle
from dataclasses import replace

import numpy as np
import pandas
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

import cavity
from cavity import GFITCClassifier, SEPClassifier, SVIClassifier, TableClassifier
from cavity.data.arrays import ArraySource
from cavity.data.scaling import Scaling
from cavity.errors import ModelFileError, SourceError
from cavity.estimators.facts import fit_facts
from cavity.estimators.mean_function import fit_coefficient, fold_of, learn_mean_function
from cavity.gp.likelihoods import Logit, NoisyArgmax, Probit
from cavity.gp.mean_function import scores
from cavity.plot.canvas import proba_at
from support import OwnSource, table

KERNEL = ConstantKernel(1.0, "fixed") * RBF(1.0, "fixed")
X, LABELS = table(200)
OFFSET = np.random.default_rng(3).normal(size=len(X))
THREE = np.digitize(X[:, 0], [-0.5, 0.5])
OFFSETS = np.random.default_rng(4).normal(size=(len(X), 3))


def make(kind=SEPClassifier, kernel=KERNEL, **parameters):
    """A classifier that brings its posterior to convergence at a fixed kernel, which is quick."""
    return kind(
        kernel, n_inducing=10, optimizer=None, scaling=None, random_state=0, n_jobs=1, **parameters
    )


def source():
    return ArraySource(X, LABELS.astype(np.int8), classes=np.array([0, 1]))


# Offsets that a user brings


@pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier, GFITCClassifier])
def test_offsets_of_zero_are_none(kind):
    one, other = make(kind).fit(X, LABELS), make(kind).fit(X, LABELS, offset=np.zeros(len(X)))
    assert_array_equal(one.predict_proba(X), other.predict_proba(X, offset=np.zeros(len(X))))
    assert one.loo_log_loss_ == other.loo_log_loss_


@pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier])
def test_a_constant_offset_is_made_up_for_by_a_free_constant(kind):
    free = KERNEL + ConstantKernel(1e4, "fixed")
    one = make(kind, free, validation_fraction=None).fit(X, LABELS)
    other = make(kind, free, validation_fraction=None).fit(X, LABELS, offset=np.full(len(X), 1.5))
    expected = one.predict_proba(X)
    assert_allclose(other.predict_proba(X, offset=np.full(len(X), 1.5)), expected, atol=2e-3)
    assert np.abs(other.predict_proba(X, offset=np.zeros(len(X))) - expected).max() > 0.1


def test_all_predictions_have_the_offset():
    model = make().fit(X, LABELS, offset=OFFSET)
    c = model.inverse_temperature_
    zero, other = np.zeros(len(X)), np.random.default_rng(5).normal(size=len(X))
    mean, variance = model.latent_mean_and_variance(X, offset=zero)
    shifted, same = model.latent_mean_and_variance(X, offset=other)
    assert_allclose(shifted, mean + c * other, atol=1e-12)
    assert_allclose(same, variance)
    score = shifted / np.sqrt(1 + variance)
    assert_allclose(model.decision_function(X, offset=other), score)
    assert_array_equal(model.predict(X, offset=other), (score > 0).astype(int))
    assert_allclose(model.predict_proba(X, offset=other)[:, 1], norm.cdf(score))
    sure = model.predict_uncertainty(X, offset=np.full(len(X), 20.0))
    assert sure.total.max() < 1e-6
    draws = [model.sample_latent(X[:5], 3, 0, offset=o[:5]) for o in (zero, other)]
    assert_allclose(draws[1] - draws[0], np.repeat(c * other[:5, None], 3, axis=1), atol=1e-9)


def test_offsets_of_several_classes():
    model = make().fit(X, THREE, offset=OFFSETS)
    assert_allclose(
        model.predict_proba(X, offset=OFFSETS), model.predict_proba(X, offset=OFFSETS + 2.0), atol=1e-9
    )
    favoured = np.zeros((len(X), 3))
    favoured[:, 1] = 30.0
    assert_array_equal(model.predict(X, offset=favoured), np.ones(len(X)))


def test_rows_of_weight_zero_do_not_count_with_offsets():
    weight = (np.arange(len(X)) % 3 > 0).astype(float)
    kept = weight > 0
    one = make().fit(X, LABELS, weight, offset=OFFSET)
    other = make().fit(X[kept], LABELS[kept], offset=OFFSET[kept])
    assert_allclose(one.predict_proba(X, offset=OFFSET), other.predict_proba(X, offset=OFFSET))


def test_offsets_that_say_all_leave_nothing_to_learn():
    """Labels follow the offset alone: the process finds nothing, and the offset is used as it is."""
    rng = np.random.default_rng(0)
    inputs, offset = rng.normal(size=(3000, 2)), 2.0 * rng.normal(size=3000)
    labels = (offset + rng.normal(size=3000) > 0).astype(int)
    model = SEPClassifier(
        n_inducing=10,
        max_epochs=5,
        random_state=0,
        n_jobs=1,
        config={"kernel_name": "matern32"},
        scaling="standard",
    )
    model.fit(inputs[:2500], labels[:2500], offset=offset[:2500])
    p = model.predict_proba(inputs[2500:], offset=offset[2500:])
    assert_allclose(p[:, 1], norm.cdf(offset[2500:]), atol=0.15)
    assert model.validation_log_loss_ < 0.5


WRONG = {
    "one more": (np.zeros(len(X) + 1), "offset has shape"),
    "of three classes": (np.zeros((len(X), 3)), "offset has shape"),
    "not a number": (np.where(np.arange(len(X)) == 7, np.nan, 0.0), "offset of row 7 is not finite"),
    "words": (["a"] * len(X), "not an array of numbers"),
}


@pytest.mark.parametrize(("offset", "words"), WRONG.values(), ids=WRONG)
def test_wrong_offsets_are_refused(offset, words):
    with pytest.raises(ValueError, match=words):
        make().fit(X, LABELS, offset=offset)
    model = make().fit(X, LABELS, offset=OFFSET)
    with pytest.raises(ValueError, match=words):
        model.predict_proba(X, offset=offset)


def test_predictions_need_offsets_if_and_only_if_the_fit_had_them():
    model = make().fit(X, LABELS, offset=OFFSET)
    for method in ("predict", "predict_proba", "latent_mean_and_variance", "predict_uncertainty"):
        with pytest.raises(ValueError, match="fitted with an offset"):
            getattr(model, method)(X)
    assert model.ood_score(X).shape == (len(X),)
    plain = make().fit(X, LABELS)
    with pytest.raises(ValueError, match="had none"):
        plain.predict(X, offset=OFFSET)
    with pytest.raises(ValueError, match="partial_fit"):
        model.partial_fit(X, LABELS)


def test_offsets_are_for_arrays():
    with pytest.raises(SourceError, match="offsets are for rows in an array"):
        make().fit(OwnSource(X, LABELS), offset=OFFSET)


def test_offset_and_mean_function_are_one_too_many():
    with pytest.raises(ValueError, match="leave one of them out"):
        make(mean_function="linear").fit(X, LABELS, offset=OFFSET)


# Mean functions


@pytest.mark.parametrize("given", ["linear", GaussianNB(), LogisticRegression(), RidgeClassifier()])
@pytest.mark.parametrize("labels", [LABELS, THREE], ids=["two", "three"])
def test_a_score_does_not_see_its_own_label(given, labels):
    """Whatever the label of a row is, its own score is the same; those of other folds move."""
    classes = np.unique(labels)
    likelihood = Probit() if len(classes) == 2 else NoisyArgmax(len(classes))

    def learned(labels):
        rows = ArraySource(X, labels, classes=classes)
        return learn_mean_function(given, rows, classes, likelihood, scaling=Scaling.identity(2), seed=0)

    mean, values = learned(labels)
    row = 17
    changed = labels.copy()
    changed[row] = (labels[row] + 1) % len(classes)
    other_mean, other_values = learned(changed)
    assert mean.coefficient > 0.1
    score, other_score = values / mean.coefficient, other_values / other_mean.coefficient
    same_fold = fold_of(np.arange(len(X))) == fold_of(np.array([row]))[0]
    assert_allclose(score[same_fold], other_score[same_fold], atol=1e-12)
    assert (np.abs(score[~same_fold] - other_score[~same_fold]).max(axis=1) > 0).all()


def test_scores_are_those_of_classifiers_fitted_to_the_other_folds():
    template = GaussianNB()
    mean, values = learn_mean_function(
        template, source(), np.array([0, 1]), Probit(), scaling=Scaling.identity(2), seed=0
    )
    fold = fold_of(np.arange(len(X)))
    assert set(fold) == set(range(5))
    for k in range(5):
        fitted = clone(template).fit(X[fold != k], LABELS[fold != k])
        p = np.clip(fitted.predict_proba(X[fold == k])[:, 1], 1e-4, 1 - 1e-4)
        expected = mean.coefficient * np.log(p / (1 - p))
        assert_allclose(values[fold == k, 0], expected, atol=1e-9)
    every = clone(template).fit(X, LABELS)
    assert_array_equal(mean.classifier.predict_proba(X), every.predict_proba(X))


def test_labels_that_are_noise_get_a_coefficient_near_zero():
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(2000, 5)), rng.integers(2, size=2000)
    rows = ArraySource(inputs, labels, classes=np.array([0, 1]))
    deep = HistGradientBoostingClassifier(max_iter=20, random_state=0)
    _, values = learn_mean_function(
        deep, rows, rows.classes, Probit(), scaling=Scaling.identity(5), seed=0
    )
    assert np.sqrt(np.mean(values**2)) < 0.1


@pytest.mark.parametrize("likelihood", [Probit(), Logit(), NoisyArgmax(3)])
def test_the_coefficient_is_the_most_probable_one(likelihood):
    rng = np.random.default_rng(1)
    found = rng.normal(size=(500, likelihood.n_latents))
    labels = THREE[rng.integers(len(THREE), size=500)] if likelihood.n_latents > 1 else None
    noisy = 0.7 * found + rng.normal(size=found.shape)
    labels = noisy.argmax(axis=1) if labels is not None else (noisy[:, 0] > 0).astype(int)
    weight = rng.uniform(0.5, 2.0, size=500)

    def log_likelihood(a):
        terms = likelihood.log_predictive(labels, a * found.T, np.zeros_like(found.T))
        return weight @ terms - 0.5 * a**2 * np.mean(found**2) / 100

    a = fit_coefficient(likelihood, found, labels, weight)
    around = [log_likelihood(a + step) for step in (-1e-3, 0.0, 1e-3)]
    assert around[1] >= max(around)
    assert 0.4 < a < 1.5


def test_the_coefficient_of_scores_that_separate_the_classes_is_finite():
    labels = np.arange(100) % 2
    assert 0.0 < fit_coefficient(Probit(), np.where(labels, 1.0, -1.0)[:, None], labels) < 100
    assert fit_coefficient(Probit(), np.where(labels, -1.0, 1.0)[:, None], labels) == 0.0
    assert fit_coefficient(Probit(), np.zeros((100, 1)), labels) == 0.0


@pytest.mark.parametrize(
    "given", [LogisticRegression(), GaussianNB(), LinearSVC(), KNeighborsClassifier()]
)
def test_scores_of_classes_that_were_not_seen_are_the_smallest(given):
    seen = THREE > 0
    fitted = clone(given).fit(X[seen], THREE[seen])
    found = scores(fitted, X, np.arange(3))
    assert found.shape == (len(X), 3)
    assert_allclose(found.sum(axis=1), 0.0, atol=1e-9)
    assert (found[:, 0] <= found[:, 1:].min(axis=1) + 1e-12).all()


def steps(n, seed):
    """Labels that follow a chessboard of steps, which a smooth kernel finds hard."""
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(size=(n, 2))
    board = np.floor(inputs * 6).sum(axis=1) % 2
    return inputs, np.where(rng.uniform(size=n) < 0.05, 1 - board, board).astype(int)


def test_a_boosted_tree_helps_where_the_latent_function_has_steps():
    inputs, labels = steps(2000, 0)
    fresh, truth = steps(2000, 1)

    def log_loss(**parameters):
        model = make(kernel=1.0 * RBF(0.2), validation_fraction=None, **parameters).fit(inputs, labels)
        return -np.mean(model.predict_log_proba(fresh)[np.arange(len(fresh)), truth])

    trees = HistGradientBoostingClassifier(max_iter=150, learning_rate=0.2)
    assert log_loss(mean_function=trees) < 0.8 * log_loss()


def test_linear_is_logistic_regression_and_its_parts_are_learned():
    model = make(mean_function="linear").fit(X, LABELS)
    expected = LogisticRegression().fit(X, LABELS).decision_function(X)
    assert_allclose(model.mean_function_(X)[:, 0], expected, atol=1e-6)
    assert 0.3 < model.mean_coefficient_ < 1.0
    mean, _ = model.latent_mean_and_variance(X)
    process, _ = replace(model.model_, mean_function=None).latent_moments(X)
    added = model.inverse_temperature_ * model.mean_coefficient_ * expected
    assert_allclose(mean, process[0] + added, atol=1e-6)
    far = np.array([[1e3, 1e3]])
    assert model.predict_proba(far)[0, 1] > 0.99, "far away the mean function is all that is left"
    plain = make().fit(X, LABELS)
    assert plain.mean_function_ is None
    assert plain.mean_coefficient_ == 0.0


def test_leave_one_out_scores_and_held_out_scores_use_the_cross_fitted_scores():
    """Scores of the final classifier have seen the labels of its rows; they would look far better."""
    inputs, labels = steps(2200, 2)
    noise = np.random.default_rng(3).integers(2, size=len(labels))
    trees = HistGradientBoostingClassifier(max_iter=60, learning_rate=0.3)
    model = SEPClassifier(
        KERNEL, n_inducing=10, scaling="standard", mean_function=trees, random_state=0, n_jobs=1,
        max_epochs=3, config={"residual_scale": 1.0, "trace_penalty": 1.0},
    ).fit(inputs, noise)  # fmt: skip
    assert model.n_validation_rows_ == 500
    assert model.validation_log_loss_ > 0.68
    assert model.loo_log_loss_ > 0.68


def test_weights_go_to_the_classifier():
    weight = np.where(X[:, 0] > 0, 1.0, 0.1)
    rows = ArraySource(X, LABELS.astype(np.int8), weight, classes=np.array([0, 1]))
    mean, _ = learn_mean_function(
        GaussianNB(), rows, rows.classes, Probit(), scaling=Scaling.identity(2), seed=0
    )
    expected = GaussianNB().fit(X, LABELS, weight).predict_proba(X)
    assert_allclose(mean.classifier.predict_proba(X), expected)
    with pytest.raises(ValueError, match="no sample_weight in its fit"):
        make(mean_function=KNeighborsClassifier()).fit(X, LABELS, weight)


def test_a_fit_with_a_seed_is_the_same_again():
    trees = HistGradientBoostingClassifier(max_iter=10, early_stopping=True)
    one, other = (make(mean_function=trees).fit(X, LABELS).predict_proba(X) for _ in range(2))
    assert_array_equal(one, other)
    assert trees.random_state is None
    assert not hasattr(trees, "classes_")


def test_a_source_and_an_array_have_the_same_mean_function():
    one = make(mean_function="linear").fit(X, LABELS)
    other = make(mean_function="linear").fit(OwnSource(X, LABELS))
    assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-9)


def test_files_give_a_sample_to_the_classifier(monkeypatch):
    monkeypatch.setattr("cavity.estimators.mean_function.MOST_ROWS_FROM_FILES", 120)
    given = GaussianNB()
    mean, values = learn_mean_function(
        given, cavity.data.opening.open_source(OwnSource(X, LABELS)), np.array([0, 1]), Probit(),
        scaling=Scaling.identity(2), seed=0,
    )  # fmt: skip
    assert mean.classifier.class_count_.sum() == 120
    assert values.shape == (len(X), 1)


def test_tables_have_mean_functions():
    frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": np.where(X[:, 0] > 0, "u", "v")})
    model = TableClassifier(make(mean_function="linear")).fit(frame, LABELS)
    fitted = model.estimator_.model_
    mean, _ = model.latent_mean_and_variance(frame)
    features = model.transform(frame)
    process, _ = replace(fitted, mean_function=None).latent_moments(features)
    added = fitted.inverse_temperature * fitted.mean_function(features)
    assert_allclose(mean, (process + added)[0], atol=1e-9)
    assert np.abs(added).max() > 0.5


def test_files_of_tables_have_the_mean_functions_of_frames(tmp_path):
    frame = pandas.DataFrame({"a": X[:, 0], "kind": np.where(X[:, 1] > 0, "u", "v"), "y": LABELS})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    expected = TableClassifier(make(mean_function="linear")).fit(frame, "y").predict_proba(frame)
    for path in (tmp_path / "t.parquet", tmp_path / "t.csv"):
        model = TableClassifier(make(mean_function="linear")).fit(path, "y")
        assert_allclose(model.predict_proba(frame), expected, atol=1e-6)


# Files, copies, errors


@pytest.mark.parametrize("given", ["linear", GaussianNB(), LogisticRegression(n_jobs=None)])
@pytest.mark.parametrize("labels", [LABELS, THREE], ids=["two", "three"])
def test_saved_models_keep_their_mean_function(given, labels, tmp_path):
    model = make(mean_function=given).fit(X, labels)
    expected = model.predict_proba(X)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), expected)
    model.save(tmp_path / "model.cavity")
    again = cavity.load(tmp_path / "model.cavity")
    assert_array_equal(again.predict_proba(X), expected)
    assert again.mean_coefficient_ == model.mean_coefficient_


def test_saved_models_keep_that_they_need_offsets(tmp_path):
    make().fit(X, LABELS, offset=OFFSET).save(tmp_path / "model.cavity")
    with pytest.raises(ValueError, match="fitted with an offset"):
        cavity.load(tmp_path / "model.cavity").predict(X)


def test_trees_cannot_be_saved_but_pickled(tmp_path):
    trees = HistGradientBoostingClassifier(max_iter=5)
    model = make(mean_function=trees).fit(X, LABELS)
    with pytest.raises(ModelFileError, match=r"trees of scikit-learn.* pickle"):
        model.save(tmp_path / "model.cavity")
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("labels", [LABELS, THREE], ids=["two", "three"])
@pytest.mark.parametrize("scaling", ["standard", "robust", "quantile", "whiten"])
def test_a_linear_mean_function_is_in_the_onnx_graph(labels, scaling):
    runtime = pytest.importorskip("onnxruntime")
    model = make(mean_function="linear").set_params(scaling=scaling).fit(X, labels)
    graph = cavity.to_onnx(model, input_dtype="float64")
    session = runtime.InferenceSession(graph.SerializeToString())
    (p,) = session.run(["probabilities"], {"X": X})
    assert_allclose(p, model.predict_proba(X), atol=1e-6)


def test_what_onnx_cannot_express_is_said():
    pytest.importorskip("onnx")
    with pytest.raises(TypeError, match="GaussianNB has no ONNX form"):
        cavity.to_onnx(make(mean_function=GaussianNB()).fit(X, LABELS))
    with pytest.raises(TypeError, match="offset"):
        cavity.to_onnx(make().fit(X, LABELS, offset=OFFSET))


@pytest.mark.parametrize("given", ["cubic", 3, RBF(), GaussianNB, make])
def test_other_mean_functions_are_refused(given):
    with pytest.raises((ValueError, TypeError), match="mean_function"):
        make(mean_function=given).fit(X, LABELS)


def test_streams_have_no_mean_function():
    with pytest.raises(ValueError, match="partial_fit cannot learn with one"):
        make(mean_function="linear").partial_fit(X, LABELS)
    model = make(mean_function="linear").fit(X, LABELS)
    with pytest.raises(ValueError, match="partial_fit cannot learn with one"):
        model.set_params(mean_function=None).partial_fit(X, LABELS)


def test_a_class_that_is_too_rare_to_cross_fit_is_named():
    labels = np.zeros(len(X), int)
    labels[3] = 1
    with pytest.raises(ValueError, match=r"one of the classes \[0, 1\] only"):
        make(mean_function="linear").fit(X, labels)


def test_a_cluster_has_no_mean_function_and_no_offsets():
    pytest.importorskip("distributed")
    with pytest.raises(ValueError, match="use SEPClassifier"):
        cavity.DaskSEPClassifier(mean_function="linear").fit(X, LABELS)
    with pytest.raises(ValueError, match="offset is not for DaskSEPClassifier"):
        cavity.DaskSEPClassifier().fit(X, LABELS, offset=OFFSET)


def test_facts_and_progress_name_the_mean_function(capsys):
    model = make(mean_function="linear", verbose=1).fit(X, LABELS)
    words = f"{model.mean_coefficient_:.3g} × linear"
    assert fit_facts(model).as_words()["Mean function"] == words
    assert f"mean function: {words}" in capsys.readouterr().err
    assert "Mean function" not in fit_facts(make().fit(X, LABELS)).as_words()


def test_displays_draw_the_model_with_its_mean_function():
    model = make(mean_function="linear").fit(X, LABELS)
    assert_allclose(proba_at(model, X[:20]), model.predict_proba(X[:20]))
    offset = make().fit(X, LABELS, offset=OFFSET)
    with pytest.raises(ValueError, match="fitted with an offset"):
        proba_at(offset, X[:20])


def test_the_evidence_at_other_parameters_has_the_mean_function():
    kernel = ConstantKernel(1.0) * RBF(1.0)
    model = make(kernel=kernel, mean_function="linear").fit(X, LABELS)
    theta = model.kernel_.theta
    assert_allclose(
        model.log_marginal_likelihood(theta), model.log_marginal_likelihood_value_, atol=1e-4
    )

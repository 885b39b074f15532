"""The parameter `leaves` of the classifiers: local inducing points, from fit to file."""

import threading

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.gaussian_process.kernels import RBF
from sklearn.tree import DecisionTreeClassifier

import cavity
from cavity import SEPClassifier, SVIClassifier, TableClassifier
from cavity.errors import CheckpointError
from cavity.inference import candidates, decisions
from support import PINNED, OwnSource

PLAIN = {name: value for name, value in PINNED.items() if name != "scaling"}
SETTINGS = PLAIN | {"n_local": 16}


def stripes(n=3_000, seed=0):
    """Rows [n, 2] whose label changes nine times along the first column: much to learn everywhere."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(0, 20, size=n), rng.normal(size=n)])
    latent = 3 * np.sin(1.5 * X[:, 0] + 0.3 * X[:, 1]) + rng.normal(size=n)
    return X, (latent > 0).astype(int)


def classifier(leaves=6, **parameters):
    """A classifier that needs no race, with few points."""
    config = {**SETTINGS, **parameters.pop("config", {})}
    if leaves is None:
        del config["n_local"]
    given = {
        "n_inducing": 4,
        "batch_size": 200,
        "max_epochs": 10,
        "scaling": "standard",
        "random_state": 0,
        "n_jobs": 1,
    }
    return SEPClassifier(leaves=leaves, config=config, **{**given, **parameters})


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(*stripes())


def test_leaves_beat_as_many_points_a_row_for_all_rows(fitted):
    X, y = stripes(seed=1)
    plain = classifier(None, n_inducing=20).fit(*stripes())

    def log_loss(model):
        return -np.mean(model.predict_log_proba(X)[np.arange(len(y)), y])

    assert log_loss(fitted) < 0.9 * log_loss(plain)


def test_every_method_answers(fitted):
    X, _ = stripes(50, seed=2)
    assert len(fitted.model_.local.leaves) == 6
    mean, variance = fitted.latent_mean_and_variance(X)
    one_by_one = [fitted.latent_mean_and_variance(X[i : i + 1]) for i in range(5)]
    np.testing.assert_allclose(mean[:5], [m[0] for m, _ in one_by_one], rtol=1e-6)
    assert (variance > 0).all()
    uncertainty = fitted.predict_uncertainty(X)
    np.testing.assert_allclose(uncertainty.total, uncertainty.aleatoric + uncertainty.epistemic)
    assert fitted.ood_score(X).max() < fitted.ood_score([[100.0, -100.0]])[0]
    assert fitted.feature_importances_.sum() == pytest.approx(1.0)
    assert np.isfinite(fitted.loo_log_proba_).sum() >= 2_900
    draws = fitted.sample_latent(X, 4_000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.15)
    np.testing.assert_allclose(draws.var(axis=1), variance, rtol=0.2)
    assert "n_leaves" in fitted.config_.as_dict()


def test_evidence_at_the_fitted_parameters_is_that_of_the_fit_and_has_its_gradient(fitted):
    model = classifier(validation_fraction=None, config={"trace_penalty": 0.0}).fit(*stripes(400))
    theta = model.kernel_.theta
    value, slope = model.log_marginal_likelihood(theta, eval_gradient=True)
    assert value == pytest.approx(model.log_marginal_likelihood_value_, rel=1e-3)
    step = 1e-4
    move = np.eye(len(theta))[3] * step
    up, down = (model.log_marginal_likelihood(theta + sign * move) for sign in (1, -1))
    assert slope[3] == pytest.approx((up - down) / (2 * step), rel=1e-3, abs=1e-3)


def test_model_file_predicts_the_same(fitted, tmp_path):
    X, _ = stripes(200, seed=3)
    fitted.save(tmp_path / "model.cavity")
    again = cavity.load(tmp_path / "model.cavity")
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))


@pytest.mark.filterwarnings("ignore:.*before it converged")
def test_all_rows_at_once_is_the_same_model(fitted):
    X, y = stripes(1_000)
    whole = classifier(batch_size=None, max_epochs=40).fit(X, y)
    assert whole.n_iter_ <= 40
    assert whole.score(*stripes(seed=1)) > 0.85


def test_table_with_leaves():
    pd = pytest.importorskip("pandas")
    X, y = stripes(600)
    frame = pd.DataFrame({"along": X[:, 0], "kind": np.where(X[:, 1] > 0, "a", "b"), "late": y})
    model = TableClassifier(classifier(max_epochs=5)).fit(frame, "late")
    assert len(model.estimator_.model_.local.leaves) == 6
    assert model.relevance_[0].name == "along"
    assert np.isfinite(model.predict_proba(frame)).all()


def test_three_classes():
    X, y = stripes(800)
    y = np.where(X[:, 0] < 10, y, 2 * y)
    model = classifier(max_epochs=20).fit(X, y)
    assert model.predict_proba(X).shape == (800, 3)
    assert model.score(X, y) > 0.8


@pytest.mark.filterwarnings("ignore:.*before it converged")
@pytest.mark.parametrize("likelihood", ["probit", "logit"])
@pytest.mark.parametrize("batch_size", [200, None])
def test_variational_inference(likelihood, batch_size):
    X, y = stripes(800)
    weight = np.ones(len(y))
    weight[:50] = 0.0
    model = SVIClassifier(
        n_inducing=4,
        leaves=6,
        likelihood=likelihood,
        batch_size=batch_size,
        max_epochs=15,
        scaling="standard",
        random_state=0,
        n_jobs=1,
        config={"kernel_name": "matern32", "n_local": 16},
    ).fit(X, y, weight)
    assert len(model.model_.local.leaves) == 6
    assert model.score(*stripes(seed=1)) > 0.8
    assert np.isnan(model.loo_log_proba_[:50]).all()
    # The bound of the steps has the divergence of all leaves, also where a step has seen few of them.
    bounds = [entry.objective for entry in model.history_]
    assert bounds[-1] > bounds[0]


def test_variational_inference_with_three_classes():
    X, y = stripes(800)
    y = np.where(X[:, 0] < 10, y, 2 * y)
    config = {"kernel_name": "matern32", "n_local": 16}
    model = SVIClassifier(
        n_inducing=4, leaves=6, batch_size=200, max_epochs=20, scaling="standard", random_state=0,
        n_jobs=1, config=config,
    ).fit(X, y)  # fmt: skip
    assert model.score(X, y) > 0.8


def test_rows_of_no_weight_are_left_out_and_classes_may_weigh_more():
    X, y = stripes(400)
    weight = np.ones(len(y))
    weight[:50] = 0.0
    model = classifier(class_weight={0: 5.0}, max_epochs=10).fit(X, y, weight)
    assert np.isnan(model.loo_log_proba_[:50]).all()
    assert np.isfinite(model.loo_log_proba_[50:]).all()
    plain = classifier(max_epochs=10).fit(X, y, weight)
    assert model.predict_proba(X)[:, 0].mean() > plain.predict_proba(X)[:, 0].mean() + 0.05


@pytest.mark.parametrize(
    "router",
    [DecisionTreeClassifier(max_leaf_nodes=5, random_state=0), KMeans(4, random_state=0, n_init=1)],
)
def test_estimator_of_ones_own_says_which_leaf_a_row_is_in(router):
    X, y = stripes(800)
    router.fit(X, y)
    model = classifier(router, max_epochs=2).fit(X, y)
    n_values = len(np.unique(router.apply(X) if hasattr(router, "apply") else router.predict(X)))
    assert len(model.model_.local.leaves) == n_values + 1
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize("leaves", [200, "the labels"])
def test_held_out_labels_that_nothing_explains_stay_unexplained_with_many_leaves(leaves):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(3_000, 2)), rng.integers(0, 2, size=3_000)
    given = y if leaves == "the labels" else leaves
    model = classifier(given, max_epochs=3, random_state=1).fit(X, y)
    assert model.validation_log_loss_ > np.log(2) - 3 * model.validation_standard_error_


@pytest.mark.parametrize("kind", ["numbers", "names", "list", "one value"])
def test_a_tree_learns_leaf_numbers_of_ones_own(kind, tmp_path):
    X, y = stripes(800)
    place = np.digitize(X[:, 0], [4.0, 9.0, 15.0])
    numbers = {
        "numbers": 10 * place - 7,
        "names": np.array(["west", "east", "north", "south"])[place],
        "list": place.tolist(),
        "one value": np.zeros(800),
    }[kind]
    asked = classifier(numbers, max_epochs=2)
    model = clone(asked).fit(X, y)
    assert asked.get_params()["leaves"] is numbers
    values, codes = np.unique(numbers, return_inverse=True)
    routing = model.model_.local.leaves.routing
    assert routing.n_leaves == len(values)
    np.testing.assert_array_equal(routing(X), codes)
    model.save(tmp_path / "model.cavity")
    again = cavity.load(tmp_path / "model.cavity")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_leaf_numbers_belong_to_all_rows_that_were_passed(tmp_path):
    X, y = stripes(800)
    place = np.digitize(X[:, 0], [4.0, 9.0, 15.0])
    weight = np.ones(800)
    weight[::3] = 0.0
    wrong = np.where(weight > 0.0, place, 9)  # numbers of rows without weight say nothing
    expected = classifier(place, max_epochs=2).fit(X, y, weight)
    found = classifier(wrong, max_epochs=2).fit(X, y, weight)
    np.testing.assert_array_equal(found.predict_proba(X), expected.predict_proba(X))
    np.save(tmp_path / "X.npy", X)
    in_memory = classifier(place, max_epochs=2).fit(X, y)
    from_file = classifier(place, max_epochs=2).fit(tmp_path / "X.npy", y)
    np.testing.assert_array_equal(from_file.predict_proba(X), in_memory.predict_proba(X))
    own = classifier(place, max_epochs=2).fit(OwnSource(X, y))
    np.testing.assert_array_equal(own.model_.local.leaves.routing(X), place)


def table_of_stripes(n=800):
    """Rows [n, 2], labels of which some are missing, and a frame with both; weights, some of them 0."""
    X, y = stripes(n)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(late=np.where(y == 1, "yes", "no"), w=1.0)
    frame.loc[::5, "late"] = None
    frame.loc[::7, "w"] = 0.0
    return X, frame


def test_leaf_numbers_belong_to_all_rows_of_a_table(tmp_path):
    """Also to those without a target or a weight, which are left out."""
    X, frame = table_of_stripes()
    place = np.digitize(X[:, 0], [4.0, 9.0, 15.0])
    counts = frame["late"].notna() & (frame["w"] > 0.0)
    wrong = np.where(counts, place, 9)
    frame.to_csv(tmp_path / "t.csv", index=False)
    expected = TableClassifier(classifier(place[counts])).fit(frame[counts], "late", "w")
    asked = TableClassifier(classifier(wrong))
    found = asked.fit(frame, "late", "w")
    assert asked.estimator.leaves is wrong
    np.testing.assert_array_equal(found.predict_proba(frame), expected.predict_proba(frame))
    assert TableClassifier(classifier(wrong)).fit(tmp_path / "t.csv", "late", "w").config_.n_leaves == 4
    stream = TableClassifier(classifier(wrong)).partial_fit(frame, "late", sample_weight="w")
    assert stream.config_.n_leaves == 4
    with pytest.raises(ValueError, match=r"shape \(99,\), and the data frame has 800 rows"):
        TableClassifier(classifier(place[:99])).fit(frame, "late", "w")


@pytest.mark.parametrize("kind", ["tree", "numbers"])
def test_a_table_may_have_the_leaves_and_local_points_that_an_array_may_have(kind):
    X, frame = table_of_stripes()
    place = np.digitize(X[:, 0], [4.0, 9.0, 15.0])
    leaves = place if kind == "numbers" else DecisionTreeClassifier(max_leaf_nodes=4).fit(X, place)
    model = TableClassifier(classifier(leaves, max_epochs=2), target_encoding=True)
    model.fit(frame.drop(columns="w"), "late")
    assert model.config_.n_local == 16
    np.testing.assert_array_equal(
        len(np.unique(model.estimator_.model_.local.leaves.routing(X))), len(np.unique(place))
    )


def test_a_clone_has_the_same_fitted_estimator_of_leaves():
    X, y = stripes(100)
    tree = DecisionTreeClassifier(max_leaf_nodes=4).fit(X, y)
    assert clone(classifier(tree)).leaves is tree
    assert clone(TableClassifier(classifier(tree))).estimator.leaves is tree


def test_an_estimator_of_leaves_need_not_be_one_that_can_be_copied():
    class Locked(DecisionTreeClassifier):
        def __init__(self, lock=None):
            super().__init__(max_depth=2)
            self.lock = lock

    tree = Locked(threading.Lock()).fit(*stripes(100))
    with sklearn.config_context(enable_metadata_routing=True):
        asked = classifier(tree).set_fit_request(sample_weight=True)
        other = clone(asked)
    assert other.leaves is asked.leaves is tree
    assert other._metadata_request.fit.requests["sample_weight"] is True


def test_stream_learns_the_leaf_numbers_of_its_first_chunk():
    X, y = stripes(900)
    place = np.digitize(X[:, 0], [4.0, 9.0, 15.0])
    model = classifier(place[:600]).partial_fit(X[:600], y[:600], classes=[0, 1])
    model.partial_fit(X[600:], y[600:])
    assert (model.model_.local.leaves.routing(X[600:]) == place[600:]).mean() > 0.98


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        (np.zeros(99), r"leaves is an array of shape \(99,\), and X has 100 rows"),
        (np.r_[np.nan, np.zeros(99)], "none of them missing"),
        (np.array([None] + 99 * ["a"], dtype=object), "none of them missing"),
        (np.zeros((100, 2)), r"an array \[n\]"),
    ],
)
def test_leaf_numbers_that_cannot_be_are_refused(numbers, words):
    with pytest.raises(ValueError, match=words):
        classifier(numbers).fit(*stripes(100))


def test_too_many_different_leaf_numbers_are_refused():
    with pytest.raises(ValueError, match="10,001 different values on these rows"):
        classifier(np.arange(10_001)).fit(*stripes(10_001))


@pytest.mark.parametrize("before", [3, None])
def test_warm_start_with_leaf_numbers_keeps_the_leaves_of_the_earlier_fit(before):
    X, y = stripes(400)
    model = classifier(before, max_epochs=1, warm_start=True).fit(X, y)
    model.set_params(leaves=np.arange(400) % 2, config=SETTINGS)
    if before is None:
        with pytest.raises(ValueError, match="the fit to go on from has no leaves"):
            model.fit(X, y)
    else:
        assert len(model.fit(X, y).model_.local.leaves) == 3


def test_fit_that_was_killed_resumes(tmp_path):
    X, y = stripes(1_500)
    path = tmp_path / "run.ckpt"
    parameters = {"max_epochs": 3, "validation_fraction": None}
    whole = classifier(**parameters).fit(X, y)

    class Stop:
        def update(self, iteration, share):
            if iteration.iteration >= 4:
                raise OverflowError

    with cavity.inference.reporting(Stop()), pytest.raises(OverflowError):
        classifier(**parameters, checkpoint=path, config={"checkpoint_interval": 0.0}).fit(X, y)
    assert path.exists()
    resumed = classifier(**parameters, checkpoint=path, config={"checkpoint_interval": 0.0}).fit(X, y)
    np.testing.assert_allclose(resumed.predict_proba(X), whole.predict_proba(X), atol=1e-10)


@pytest.mark.parametrize(
    ("leaves", "others", "name"),
    [(6, 5, "n_leaves"), (np.arange(1_500) % 2, np.arange(1_500) // 750, "leaves")],
)
def test_checkpoint_of_other_leaves_is_refused(tmp_path, leaves, others, name):
    X, y = stripes(1_500)
    path = tmp_path / "run.ckpt"

    class Stop:
        def update(self, iteration, share):
            if iteration.iteration >= 4:
                raise OverflowError

    parameters = {"max_epochs": 3, "checkpoint": path, "config": {"checkpoint_interval": 0.0}}
    with cavity.inference.reporting(Stop()), pytest.raises(OverflowError):
        classifier(leaves, **parameters).fit(X, y)
    with pytest.raises(CheckpointError, match=name):
        classifier(others, **parameters).fit(X, y)


def test_race_decides_the_rest():
    X, y = stripes(2_500)
    model = SEPClassifier(leaves=4, max_epochs=1, random_state=0, n_jobs=1, config={"n_local": 8})
    model.fit(X, y)
    assert model.race_ is not None
    assert model.config_.n_leaves == 4
    assert model.config_.n_local == 8


def few_points(monkeypatch):
    """Let races of small sets ask what those of large ones do."""
    monkeypatch.setattr(decisions, "GAIN_WINDOW", 25)
    monkeypatch.setattr(decisions, "DEFAULT_POINTS", 5)
    monkeypatch.setattr(candidates, "POINTS", 10)
    monkeypatch.setattr(candidates, "POINTS_BESIDE_LEAVES", 5)


@pytest.mark.parametrize("given", [{"n_inducing": 5}, {"kernel": RBF(2 * [1.0])}, {"leaves": None}])
def test_leaves_are_no_question_where_points_or_kernel_are_given(given, monkeypatch):
    few_points(monkeypatch)
    settings = {"n_inducing": "auto", "max_epochs": 1, "random_state": 0, "n_jobs": 1, **given}
    model = SEPClassifier(**settings).fit(*stripes(2_000))
    assert {entry.n_leaves for entry in model.race_} == {None}


@pytest.mark.parametrize("helps", [True, False])
def test_held_out_rows_decide_whether_there_are_leaves(helps, monkeypatch):
    few_points(monkeypatch)
    X, y = stripes(2_000)
    if not helps:
        y = np.random.default_rng(5).permutation(y)
    model = classifier("auto", max_epochs=12, n_inducing="auto").fit(X, y)
    assert {entry.n_leaves for entry in model.race_} > {None}
    assert (model.config_.n_leaves is not None) == helps
    assert (model.model_.local is not None) == helps


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"leaves": 0}, "leaves=0 is not possible"),
        ({"leaves": "tree"}, "leaves='tree' is not possible"),
        ({"config": {"n_leaves": 3}}, "set leaves of SEPClassifier instead"),
        ({"leaves": 20_000}, "leaves=20000 is not possible; it must be a whole number from 1 to 10,000"),
        ({"leaves": None, "config": {"n_local": 3}}, "n_local=3 needs leaves; set leaves "),
        ({"leaves": 3, "config": {"exact_gradient": True}}, "^leaves=3 .*not go with exact_gradient"),
        ({"leaves": 3, "config": {"site_storage": "factors"}}, "does not go with site_storage"),
        ({"leaves": 3, "config": {"n_predicting": 300}}, "n_predicting=300 does not go with leaves=3"),
    ],
)
def test_what_does_not_go_with_leaves_is_refused(parameters, words):
    with pytest.raises(ValueError, match=words):
        SEPClassifier(random_state=0, **parameters).fit(*stripes(100))


def test_a_column_of_names_says_where_rows_are_and_is_saved(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = stripes(400)
    names = pandas.Series(np.where(X[:, 0] > 10, "east", "west"))
    model = classifier(names, max_epochs=1).fit(X, y)
    assert len(model.model_.local.leaves) == 2
    model.save(tmp_path / "m.cavity")
    loaded = cavity.load(tmp_path / "m.cavity")
    assert loaded.leaves.tolist() == names.tolist()
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_what_needs_other_rows_is_refused():
    X, y = stripes(200)
    with pytest.raises(ValueError, match='does not go with posterior_update="gradient"'):
        SVIClassifier(leaves=3, config={"posterior_update": "gradient"}).fit(X, y)
    plain = classifier(None, max_epochs=1, warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="the fit to go on from has no leaves"):
        plain.set_params(leaves=3).fit(X, y)
    local = classifier(3, max_epochs=1, warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="the fit to go on from has leaves"):
        local.set_params(leaves=None, config=PLAIN).fit(X, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_sparse_rows_and_files_give_what_an_array_gives(tmp_path):
    X, y = stripes(600)
    expected = classifier(max_epochs=1).fit(X, y).predict_proba(X[:20])
    np.save(tmp_path / "X.npy", X)
    for rows in (sparse.csr_matrix(X), tmp_path / "X.npy"):
        found = classifier(max_epochs=1).fit(rows, y).predict_proba(X[:20])
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("leaves", [6, "auto"])
def test_warm_start_goes_on_with_the_leaves_that_there_are(leaves):
    X, y = stripes()
    model = classifier(warm_start=True, max_epochs=4, validation_fraction=None).fit(X, y)
    before, routing = model.predict_proba(X), model.model_.local.leaves.routing
    model.set_params(leaves=leaves, max_epochs=0.2).fit(X, y)
    assert model.model_.local.leaves.routing is routing
    assert model.config_.n_leaves == 6
    assert np.abs(model.predict_proba(X) - before).mean() < 0.02


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("class_weight", [None, {0: 2.0}])
def test_rows_that_no_array_holds(class_weight):
    X, y = stripes(1_500)
    model = classifier(max_epochs=6, class_weight=class_weight).fit(OwnSource(X, y))
    assert len(model.model_.local.leaves) == 6
    assert model.score(*stripes(seed=1)) > 0.85
    in_memory = classifier(max_epochs=6, class_weight=class_weight).fit(X, y)
    test = stripes(500, seed=2)[0]
    difference = model.predict_proba(test) - in_memory.predict_proba(test)
    assert np.abs(difference).mean() < 0.05


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_offsets_and_mean_functions_are_added():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(600, 2))
    offset = 2.0 * X[:, 0]
    y = (offset + rng.normal(size=600) > 0.0).astype(int)
    short = {"max_epochs": 0.4}
    given = classifier(**short).fit(X, y, offset=offset)
    losses = [
        -np.log(proba[np.arange(600), y]).mean()
        for proba in (
            given.predict_proba(X, offset=offset),
            classifier(mean_function="linear", **short).fit(X, y).predict_proba(X),
            classifier(**short).fit(X, y).predict_proba(X),
        )
    ]
    assert max(losses[:2]) < losses[2]
    with pytest.raises(ValueError, match="offset"):
        given.predict_proba(X)

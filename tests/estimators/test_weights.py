"""A weight of w is w copies of the row, whatever is asked of the fit."""

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from sklearn.utils.class_weight import compute_sample_weight
from weighted_fits import LABELS, X_STAR, N, X, assert_same_fit, quick

from cavity import GFITCClassifier, SEPClassifier, SVIClassifier
from cavity.data.weights import class_factors
from cavity.gp.parameters import ParameterSpace
from cavity.gp.posterior import NaturalParameters, Posterior
from cavity.inference.optimizers import Adam
from cavity.inference.sweep import Sweep, SweepOptions
from cavity.inference.trainer import Trainer, make_problem
from support import evidence_differences, make_engine, make_prior, points

KINDS = [SEPClassifier, SVIClassifier, GFITCClassifier]
every_kind = pytest.mark.parametrize("kind", KINDS)
pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:X does not have valid feature names"),
]


@every_kind
@settings(max_examples=6, deadline=None)
@given(
    counts=st.lists(st.integers(0, 3), min_size=N, max_size=N),
    how=st.sampled_from(["kmeans", "random", "greedy"]),
)
def test_weights_are_copies(kind, counts, how):
    counts = np.array(counts)
    if len(np.unique(LABELS[counts > 0])) < 2:
        return
    copies = np.random.default_rng(0).permutation(np.repeat(np.arange(N), counts))
    # Each iteration of L-BFGS may enlarge differences by rounding tenfold.
    steps = 5 if kind is GFITCClassifier else 25
    model = quick(kind, inducing_points=how, max_epochs=steps)
    weighted = clone(model).fit(X, LABELS, sample_weight=counts)
    copied = clone(model).fit(X[copies], LABELS[copies])
    assert_same_fit(weighted, copied)
    assert_allclose(weighted.loo_log_proba_[copies], copied.loo_log_proba_, rtol=1e-4, atol=1e-6)
    assert_array_equal(np.isnan(weighted.loo_log_proba_), counts == 0)


@every_kind
def test_weights_are_copies_at_given_points_and_kernel(kind):
    counts = np.random.default_rng(1).integers(0, 4, N)
    copies = np.repeat(np.arange(N), counts)
    options = {"inducing_points": X[:5], "optimizer": None, "max_epochs": 300}
    weighted = quick(kind, **options).fit(X, LABELS, sample_weight=counts)
    copied = quick(kind, **options).fit(X[copies], LABELS[copies])
    assert_same_fit(weighted, copied, rtol=1e-9)


def test_weights_are_copies_for_gradients_of_the_bound():
    counts = np.random.default_rng(1).integers(0, 4, N)
    copies = np.repeat(np.arange(N), counts)
    model = quick(SVIClassifier, posterior_update="gradient")
    weighted, copied = clone(model), clone(model)
    weighted.fit(X, LABELS, sample_weight=counts)
    assert_same_fit(weighted, copied.fit(X[copies], LABELS[copies]))


@every_kind
def test_a_row_of_no_weight_is_absent_to_the_last_bit(kind):
    weight = np.random.default_rng(2).uniform(0.2, 2.0, N)
    weight[::3] = 0.0
    spoilt = np.where(weight[:, None] == 0.0, 1e6, X)
    present = weight > 0
    with_them = quick(kind).fit(spoilt, LABELS, sample_weight=weight)
    without = quick(kind).fit(X[present], LABELS[present], sample_weight=weight[present])
    assert_array_equal(with_them.predict_proba(X_STAR), without.predict_proba(X_STAR))
    assert_array_equal(with_them.loo_log_proba_[present], without.loo_log_proba_)


def test_absent_rows_do_not_change_the_order_of_minibatches():
    weight = np.where(np.arange(N) % 3, 1.0, 0.0)
    options = {"batch_size": 7, "max_epochs": 3}
    with_them = quick(**options).fit(X, LABELS, sample_weight=weight)
    without = quick(**options).fit(X[weight > 0], LABELS[weight > 0], sample_weight=weight[weight > 0])
    assert_array_equal(with_them.predict_proba(X_STAR), without.predict_proba(X_STAR))


@every_kind
def test_class_weight_is_sample_weight(kind):
    weight = np.where(LABELS == 1, 3.0, 0.5)
    by_class = quick(kind, class_weight={0: 0.5, 1: 3.0}).fit(X, LABELS)
    assert_same_fit(by_class, quick(kind).fit(X, LABELS, sample_weight=weight), rtol=1e-12)
    balanced = quick(kind, class_weight="balanced").fit(X, LABELS)
    weight = compute_sample_weight("balanced", LABELS)
    assert_same_fit(balanced, quick(kind).fit(X, LABELS, sample_weight=weight), rtol=1e-9)


def test_balanced_counts_weights():
    counts = np.random.default_rng(3).integers(0, 4, N)
    copies = np.repeat(np.arange(N), counts)
    # Variational: there, weights of less than one add up exactly. A leave-one-out score leaves out one
    # row at most, whatever its weight is, so that no such score calibrates here.
    options = {"class_weight": "balanced", "validation_fraction": None}
    weighted = quick(SVIClassifier, **options).fit(X, LABELS, sample_weight=counts)
    copied = quick(SVIClassifier, **options).fit(X[copies], LABELS[copies])
    assert_allclose(weighted.predict_proba(X_STAR), copied.predict_proba(X_STAR), rtol=1e-5)


def test_balanced_keeps_the_sum_and_evens_the_classes():
    totals = np.array([90.0, 9.0, 1.0])
    balanced = totals * class_factors("balanced", np.arange(3), totals)
    assert_allclose(balanced, 100.0 / 3.0)


@every_kind
def test_fractions_lie_between(kind):
    """A row of weight ½ pulls half-way; thousandths of rows leave the prior."""
    options = {"inducing_points": X[:8], "optimizer": None, "max_epochs": 500}
    score = [
        np.ptp(quick(kind, **options).fit(X, LABELS, sample_weight=np.full(N, w)).predict_proba(X_STAR))
        for w in (1e-3, 0.1, 0.5, 0.99, 1.0, 1.01, 2.0)
    ]
    assert (np.diff(score) > 0).all()
    assert score[0] < 0.05
    assert_allclose(score[3], score[5], rtol=0.02)  # no jump at one


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weight", [0.3, 0.05, "mixed"])
def test_the_evidence_of_fractions_has_the_gradient_that_training_follows(weight, classes):
    """Only if the moments match at the fixed point: a whole copy must be left out."""
    labels = LABELS if classes == 2 else np.digitize(X[:, 0], [-0.5, 0.5])
    weights = np.random.default_rng(3).uniform(0.01, 3.0, N) if weight == "mixed" else np.full(N, weight)
    model = quick(optimizer=None, max_epochs=500, tol=1e-8).fit(X, labels, sample_weight=weights)
    theta = model.kernel_.theta + 0.1
    _, slope = model.log_marginal_likelihood(theta, eval_gradient=True)
    assert_allclose(slope, evidence_differences(model, theta), rtol=1e-4, atol=1e-4)


def test_balanced_classes_are_no_reason_for_l_bfgs_to_stop():
    rare = quick(GFITCClassifier, class_weight="balanced", max_epochs=60).fit(X, X[:, 0] > 0.8)
    assert rare.n_iter_ > 15
    assert rare.history_[-1].gradient_norm < 1.0


@every_kind
def test_a_hair_of_a_row_is_left_out_as_such(kind):
    """What is hardly there cannot be missed: its label is as probable as to any new row."""
    weight = np.where(np.arange(N) == 0, 1e-9, 1.0)
    model = quick(kind).fit(X, LABELS, sample_weight=weight)
    expected = model.predict_log_proba(X[:1])[0, LABELS[0]]
    assert_allclose(model.loo_log_proba_[0], expected, rtol=1e-3)


def test_evidence_of_fractions_is_near_the_bound():
    """EP's evidence stays above the variational bound, and not far above it."""
    options = {"inducing_points": X[:8], "optimizer": None, "max_epochs": 500}
    for w in (0.3, 0.7, 1.0, 1.5):
        ep, vi = (
            quick(kind, **options).fit(X, LABELS, sample_weight=np.full(N, w)) for kind in KINDS[:2]
        )
        bound = vi.log_marginal_likelihood_value_
        assert -0.02 * abs(bound) < ep.log_marginal_likelihood_value_ - bound < 0.15 * abs(bound)


def test_minibatches_stand_for_all_rows_on_average():
    weight = np.random.default_rng(0).lognormal(size=N)
    engine = make_engine(X, LABELS, weight=weight)
    prior = make_prior(1.0 * RBF(1.0), points(4))
    nothing = Posterior.from_naturals(NaturalParameters.zeros(1, 4))
    whole = engine.run(Sweep(prior, nothing, engine.rule, SweepOptions()))
    size = 8
    parts = []
    for seed in range(3):
        for batch in engine.source.batches(size, np.random.default_rng(seed)):
            parts.append(_scaled_by_the_trainer(engine, prior, nothing, batch))
    assert_allclose(np.mean([part.precision for part in parts], axis=0), whole.precision, rtol=1e-10)
    assert_allclose(np.mean([part.Z for part in parts], axis=0), whole.Z, rtol=1e-8, atol=1e-12)


def _scaled_by_the_trainer(engine, prior, posterior, batch):
    problem = make_problem(engine, engine.rule, ParameterSpace(prior.kernel, prior.Z), None)
    trainer = Trainer(problem, Adam(0.1), SweepOptions())
    return trainer.evaluate(problem.space.start, posterior.naturals, 1.0, batch).sums


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (-np.ones(N), "row 0 is -1.0"),
        (np.where(np.arange(N) == 7, np.nan, 1.0), "row 7 is nan"),
        (np.where(np.arange(N) == 3, np.inf, 1.0), "row 3 is inf"),
        (np.ones(N - 1), r"shape \(39,\), but there are 40 rows"),
        (np.ones((N, 2)), r"shape \(40, 2\)"),
        (np.zeros(N), "every row is zero"),
        (["a"] * N, "not an array of numbers"),
        (np.full(N, 1e308), "is inf"),
        (np.full(N, 1e200), r"sum of sample_weight is 4e\+201; .* multiply the weights"),
        (np.full(N, 5e-324), r"sum of sample_weight is .*e-32.; .* multiply the weights"),
        (LABELS.astype(float), "one class .* with any weight"),
    ],
)
def test_bad_weights_are_refused_before_any_work(weight, words):
    with pytest.raises(ValueError, match=words):
        quick().fit(X, LABELS, sample_weight=weight)


@pytest.mark.parametrize(
    ("class_weight", "words"),
    [
        ({0: -1.0}, "class 0 is -1.0"),
        ({1: np.nan}, "class 1 is nan"),
        ({1: "heavy"}, "class 1 is 'heavy'"),
        ({7: 2.0}, "key 7, but the classes of y are"),
        ({0: 0.0}, "one class"),
        ({0: 0, 1: 0}, "leaves no row"),
        ({0: 1e308, 1: 1e308}, "sum of the weights after class_weight=.* is inf"),
        ("even", "class_weight"),
    ],
)
def test_bad_class_weights_are_refused(class_weight, words):
    with pytest.raises(ValueError, match=words):
        quick(class_weight=class_weight).fit(X, LABELS)


def test_a_class_weight_may_know_more_classes_than_occur():
    model = quick(class_weight={0: 1.0, 1: 2.0, 2: 5.0}).fit(X, LABELS)
    assert_array_equal(model.classes_, [0, 1])


class TestStreams:
    def test_weights_are_copies(self):
        counts = np.random.default_rng(5).integers(0, 4, N)
        copies = np.repeat(np.arange(N), counts)
        options = {"inducing_points": X[:5], "batch_size": 1_000}
        weighted = quick(**options).partial_fit(X, LABELS, [0, 1], sample_weight=counts)
        copied = quick(**options).partial_fit(X[copies], LABELS[copies], [0, 1])
        assert_same_fit(weighted, copied, rtol=1e-9)

    def test_a_fit_counts_its_weights_when_a_stream_goes_on(self):
        model = quick().fit(X, LABELS, sample_weight=np.full(N, 2.0))
        model.partial_fit(X, LABELS)
        assert model._stream.stream.seen == 3 * N

    def test_class_weight_by_dict(self):
        options = {"inducing_points": X[:5]}
        by_class = quick(class_weight={1: 4.0}, **options).partial_fit(X, LABELS)
        weight = np.where(LABELS == 1, 4.0, 1.0)
        by_row = quick(**options).partial_fit(X, LABELS, sample_weight=weight)
        assert_same_fit(by_class, by_row, rtol=1e-12)

    def test_balanced_cannot_be_known(self):
        with pytest.raises(ValueError, match="not supported by partial_fit"):
            quick(class_weight="balanced").partial_fit(X, LABELS)


@pytest.mark.parametrize("batch_size", [None, 10])
def test_as_good_as_all_rows_held_out_leaves_one(batch_size):
    model = quick(early_stopping="validation", validation_fraction=0.9999, batch_size=batch_size)
    model.fit(X, LABELS)
    assert np.isfinite(model.predict_log_proba(X)).all()


def test_rows_without_weight_can_not_judge(tmp_path):
    """In a file they are rows like others: only arrays leave them out at once."""
    weight = np.where(np.arange(N) < N - 3, 0.0, 1.0)
    pyarrow.parquet.write_table(
        pyarrow.table({"a": X[:, 0], "b": X[:, 1], "y": np.arange(N) % 2, "w": weight}),
        tmp_path / "t.parquet",
    )
    model = quick(early_stopping="validation", validation_fraction=0.01)
    with pytest.raises(ValueError, match=r"validation_fraction=0\.01 of 40 rows leaves no weight"):
        model.fit(tmp_path / "t.parquet", "y", sample_weight="w")


def test_score_takes_weights():
    model = quick().fit(X, LABELS)
    right = model.predict(X) == LABELS
    weight = np.where(right, 2.0, 1.0)
    expected = weight[right].sum() / weight.sum()
    assert_allclose(model.score(X, LABELS, sample_weight=weight), expected)


class TestManyClasses:
    Y = np.digitize(X[:, 0], [-0.5, 0.5])

    @pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier])
    def test_weights_are_copies(self, kind):
        counts = np.random.default_rng(7).integers(0, 4, N)
        copies = np.repeat(np.arange(N), counts)
        weighted = quick(kind).fit(X, self.Y, sample_weight=counts)
        assert_same_fit(weighted, quick(kind).fit(X[copies], self.Y[copies]), rtol=1e-4)

    def test_a_class_without_weight_does_not_exist(self):
        model = quick(class_weight={1: 0.0}).fit(X, self.Y)
        assert_array_equal(model.classes_, [0, 2])
        assert model.predict_proba(X_STAR).shape == (len(X_STAR), 2)

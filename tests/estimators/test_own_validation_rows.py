"""Validation rows of the user's own: they judge, and the model does not learn from them."""

import numpy as np
import pandas
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import make_moons
from sklearn.gaussian_process.kernels import RBF

from cavity import (
    CheckpointError,
    GFITCClassifier,
    SEPClassifier,
    SourceError,
    SVIClassifier,
    TableClassifier,
)
from cavity.data import ArraySource
from cavity.inference import candidates, decisions
from cavity.inference.trainer import Trainer
from support import PINNED, make

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
X, Y = make_moons(400, noise=0.3, random_state=0)
X_VAL, Y_VAL = make_moons(1_500, noise=0.3, random_state=1)
NAMES = np.array(["no", "yes"])


def model(kind=SEPClassifier, **options):
    return make(kind, **{"n_inducing": 8, "max_epochs": 20, "random_state": 0, "n_jobs": 1, **options})


def log_loss(fit, X, y, weight=None):
    proba = fit.predict_proba(X)[np.arange(len(y)), y]
    return -np.average(np.log(proba), weights=weight)


@pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier])
@pytest.mark.parametrize("batch_size", [None, 100])
def test_they_give_the_score_and_the_calibration(kind, batch_size):
    fit = model(kind, batch_size=batch_size).fit(X, Y, X_val=X_VAL, y_val=Y_VAL)
    plain = model(kind, batch_size=batch_size).fit(X, Y)
    assert fit.n_validation_rows_ == 1_500
    assert fit.loo_log_proba_.shape == (400,)
    assert (fit.inverse_temperature_, plain.inverse_temperature_) != (1.0, 1.0)
    # Each half of the rows was calibrated on the other half, so the score is close to that of all.
    assert fit.validation_log_loss_ == pytest.approx(log_loss(fit, X_VAL, Y_VAL), abs=0.02)
    assert fit.config_.validation_fraction == 0.0
    assert fit.config_.early_stopping == "validation"


def test_the_model_does_not_learn_from_them():
    """Without steps that depend on them, kernel and posterior are those of the training rows."""
    fixed = {"max_epochs": 5, "early_stopping": None}
    fit = model(**fixed).fit(X, Y, X_val=X_VAL, y_val=Y_VAL)
    other = model(**fixed).fit(X, Y, X_val=X_VAL, y_val=1 - Y_VAL)
    assert_array_equal(fit.kernel_.theta, other.kernel_.theta)
    assert_allclose(fit.model_.posterior.mean, other.model_.posterior.mean, rtol=1e-6)
    assert other.validation_log_loss_ > fit.validation_log_loss_ + 0.1
    assert fit._weight_seen == 400.0


def test_they_end_training(monkeypatch):
    steps = []
    step = Trainer.step
    monkeypatch.setattr(Trainer, "step", lambda *args: steps.append(1) or step(*args))
    long = {"batch_size": 200, "max_epochs": 200}
    fit = model(**long).fit(X, Y, X_val=X_VAL, y_val=Y_VAL)
    early = len(steps)
    assert early == fit.n_iter_
    model(**long, early_stopping=None).fit(X, Y, X_val=X_VAL, y_val=Y_VAL)
    assert len(steps) - early > early


def test_they_decide_the_race(monkeypatch):
    monkeypatch.setattr(decisions, "DEFAULT_POINTS", 6)
    monkeypatch.setattr(candidates, "POINTS", 8)
    rows, labels = make_moons(2_000, noise=0.3, random_state=2)
    fit = SEPClassifier(max_epochs=3, random_state=0, n_jobs=1)
    fit.fit(rows, labels, X_val=X_VAL, y_val=Y_VAL)
    assert len(fit.race_) > 3
    assert fit.n_validation_rows_ == 1_500
    again = SEPClassifier(config=fit.config_, random_state=0, n_jobs=1)
    again.fit(rows, labels, X_val=X_VAL, y_val=Y_VAL)
    assert again.race_ is None
    assert_array_equal(again.predict_proba(X), fit.predict_proba(X))


@pytest.mark.parametrize(
    "form", [np.asarray, sparse.csr_matrix, lambda X: pandas.DataFrame(X, columns=["a", "b"])]
)
def test_they_come_as_the_rows_do(form):
    fit = model(scaling="standard").fit(form(X), NAMES[Y], X_val=form(X_VAL), y_val=NAMES[Y_VAL])
    plain = model(scaling="standard").fit(X, Y, X_val=X_VAL, y_val=Y_VAL)
    assert fit.validation_log_loss_ == pytest.approx(plain.validation_log_loss_, rel=1e-9)


def test_they_go_with_a_source_and_one_of_them_may_have_one_class_only():
    source = ArraySource(X, Y)
    fit = model().fit(source, X_val=X_VAL[Y_VAL == 1], y_val=Y_VAL[Y_VAL == 1])
    assert fit.n_validation_rows_ == (Y_VAL == 1).sum()


def test_a_weight_counts_a_row_as_often():
    weight = np.random.default_rng(0).integers(0, 3, 1_500)
    fit = model(**PINNED).fit(X, Y, X_val=X_VAL, y_val=Y_VAL, sample_weight_val=weight)
    assert fit.n_validation_rows_ == (weight > 0).sum()
    assert fit.validation_log_loss_ == pytest.approx(log_loss(fit, X_VAL, Y_VAL, weight), abs=0.02)


def test_a_checkpoint_is_not_that_of_other_validation_rows(tmp_path, monkeypatch):
    path = tmp_path / "fit.ckpt"
    fit = model(batch_size=100, checkpoint=path, checkpoint_interval=0.0)
    steps = []
    step = Trainer.step

    def broken_off(*args):
        steps.append(1)
        if len(steps) > 20:
            raise MemoryError
        return step(*args)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", broken_off)
        with pytest.raises(MemoryError):
            fit.fit(X, Y, X_val=X_VAL, y_val=Y_VAL)
    with pytest.raises(CheckpointError, match="its validation rows are not those passed now"):
        fit.fit(X, Y, X_val=X_VAL[1:], y_val=Y_VAL[1:])
    with pytest.raises(CheckpointError, match="another fit"):
        fit.fit(X, Y)
    fit.fit(X, Y, X_val=X_VAL, y_val=Y_VAL)
    whole = model(batch_size=100).fit(X, Y, X_val=X_VAL, y_val=Y_VAL)
    assert_allclose(fit.predict_proba(X), whole.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"X_val": X_VAL}, "^X_val without y_val; pass both"),
        ({"y_val": Y_VAL}, "^y_val without X_val; pass both"),
        ({"sample_weight_val": np.ones(3)}, "^sample_weight_val without X_val and y_val; pass both"),
        ({"X_val": X_VAL[:, :1], "y_val": Y_VAL}, "X_val or y_val: X has 1 features"),
        ({"X_val": X_VAL[1:], "y_val": Y_VAL}, "X_val or y_val: .*inconsistent numbers of samples"),
        ({"X_val": np.full((2, 2), np.nan), "y_val": [0, 1]}, "X_val or y_val: X contains NaN"),
        ({"X_val": X_VAL, "y_val": Y_VAL + 1}, "y_val has the label 2, but the classes of y are"),
        (
            {"X_val": X_VAL, "y_val": Y_VAL, "sample_weight_val": np.ones(3)},
            "sample_weight_val has shape",
        ),
    ],
)
def test_what_is_wrong_is_said_in_words(given, words):
    with pytest.raises(ValueError, match=words):
        model().fit(X, Y, **given)


def test_files_are_refused_in_words():
    with pytest.raises(TypeError, match=r"X_val is 'rows.parquet'; validation rows are an array"):
        model().fit(X, Y, X_val="rows.parquet", y_val="late")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"validation_fraction": 0.2}, "validation_fraction=0.2 and X_val"),
        ({"optimizer": None, "kernel": RBF(1.0)}, "X_val cannot be used with this SEPClassifier"),
    ],
)
def test_settings_that_contradict_them(options, words):
    with pytest.raises(ValueError, match=words):
        model(**options).fit(X, Y, X_val=X_VAL, y_val=Y_VAL)


def test_a_classifier_without_steps_has_no_such_parameter():
    with pytest.raises(TypeError, match="X_val"):
        GFITCClassifier(n_inducing=5).fit(X, Y, X_val=X_VAL, y_val=Y_VAL)


def table(n, seed):
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame({"code": rng.integers(0, 60, n), "word": rng.choice(["a", "b", None], n)})
    score = 3.0 * np.sin(40.0 * frame["code"]) + (frame["word"] == "a") + rng.logistic(size=n)
    return frame.assign(y=np.where(score > 0, "yes", "no"), w=rng.integers(1, 3, n))


def test_tables_take_tables(tmp_path):
    train, judges = table(2_100, 0), table(1_200, 1)
    judges.loc[:99, "y"] = None
    options = {"scaling": "robust", "max_epochs": 15, "n_inducing": 20, "kernel_name": "matern32"}
    inside = model(**options, residual_scale=1.0, trace_penalty=1.0)
    fit = TableClassifier(inside).fit(train, "y", X_val=judges)
    assert fit.n_validation_rows_ == 1_100
    assert fit.loo_log_proba_.shape == (2_100,)
    assert fit.race_ is not None
    assert "effect of code" in fit.get_feature_names_out()
    known = judges[100:]
    loss = -np.log(fit.predict_proba(known)[np.arange(1_100), (known["y"] == "yes").astype(int)])
    assert fit.validation_log_loss_ == pytest.approx(loss.mean(), abs=0.02)
    judges.to_parquet(tmp_path / "judges.parquet")
    again = TableClassifier(inside).fit(train, "y", X_val=tmp_path / "judges.parquet", y_val="y")
    assert_array_equal(again.predict_proba(known), fit.predict_proba(known))
    labels = TableClassifier(inside).fit(train, "y", X_val=known.drop(columns="y"), y_val=known["y"])
    assert_array_equal(labels.predict_proba(known), fit.predict_proba(known))


def test_validation_rows_of_a_table_have_weights_and_no_part_in_learning():
    train, judges = table(400, 0), table(300, 1)
    inside = model(early_stopping=None, max_epochs=5)
    weighted = TableClassifier(inside).fit(train, "y", X_val=judges, sample_weight_val="w")
    copied = judges.loc[judges.index.repeat(judges["w"])]
    copies = TableClassifier(inside).fit(train, "y", X_val=copied)
    assert weighted.validation_log_loss_ == pytest.approx(copies.validation_log_loss_, rel=0.05)
    turned = judges.assign(y=np.where(judges["y"] == "yes", "no", "yes"))
    other = TableClassifier(inside).fit(train, "y", X_val=turned)
    assert_array_equal(other.kernel_.theta, copies.kernel_.theta)
    assert other.validation_log_loss_ > copies.validation_log_loss_


def test_validation_tables_that_cannot_be_used():
    train, judges = table(100, 0), table(50, 1)
    small = TableClassifier(model())
    with pytest.raises(ValueError, match="y_val without X_val"):
        small.fit(train, "y", y_val="y")
    with pytest.raises(ValueError, match="X_val without y_val"):
        small.fit(train.drop(columns="y"), train["y"], X_val=judges)
    with pytest.raises(SourceError, match="X_val: the data frame has no target column 'y'"):
        small.fit(train, "y", X_val=judges.drop(columns="y"))
    with pytest.raises(SourceError, match="lacks the column 'code'"):
        small.fit(train, "y", X_val=judges.drop(columns="code"))
    with pytest.raises(SourceError, match="'perhaps', which is not among the classes"):
        small.fit(train, "y", X_val=judges.assign(y="perhaps"))
    with pytest.raises(SourceError, match="X_val: no row of the data frame has a target"):
        small.fit(train, "y", X_val=judges.assign(y=None))
    with pytest.raises(TypeError, match="X_val cannot be used with GFITCClassifier"):
        TableClassifier(GFITCClassifier(n_inducing=5)).fit(train, "y", X_val=judges)

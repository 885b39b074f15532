"""What a fit says at its end: which bounds of the kernel keep it from a better fit."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    RationalQuadratic,
    WhiteKernel,
)

from cavity import GFITCClassifier, SEPClassifier, SVIClassifier
from cavity.estimators.endings import BoundWarning, parameters_at_bounds
from cavity.inference import candidates, decisions
from support import make, table

X, LABELS = table(60)
SURE = (X[:, 0] > 0).astype(int)
"""Labels without noise, which ask for a large amplitude."""


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        (ConstantKernel(30.0, (0.01, 30.0)), ["constant_value upper"]),
        (ConstantKernel(29.0, (0.01, 30.0)), []),
        (ConstantKernel(0.01, (0.01, 30.0)), []),
        (ConstantKernel(30.0, "fixed") * RBF(1.0), []),
        (ConstantKernel(2.0, (2.0, 2.0)), []),
        (RBF([1.0, 0.1], (0.1, 10.0)), ["length_scale lower"]),
        (RBF([1.0, 10.0], (0.1, 10.0)), []),
        (RationalQuadratic(0.1, 9.0, (0.1, 9.0), (0.1, 9.0)), ["length_scale lower"]),
        (WhiteKernel(9.0, (0.1, 9.0)) + DotProduct(9.0, (0.1, 9.0)), ["k1__noise_level", "k2__sigma_0"]),
        (RBF(1.0) + 1e5 * RBF(1e-5), ["k2__k1__constant_value", "k2__k2__length_scale"]),
    ],
)
def test_bounds_that_keep_a_kernel_from_a_better_fit(kernel, found):
    names = [f"{one.name} {one.side}" for one in parameters_at_bounds(kernel)]
    assert len(names) == len(found)
    assert all(name.startswith(start) for name, start in zip(names, found, strict=True))


@pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier, GFITCClassifier])
@pytest.mark.parametrize("seconds", [None, 100.0])
def test_a_fit_that_has_not_converged_names_parameters_that_it_has(kind, seconds):
    limit = "max_iter" if kind is GFITCClassifier else "max_epochs"
    options = {"n_inducing": 5, "random_state": 0, "n_jobs": 1, limit: 1, "max_seconds": seconds}
    with pytest.warns(ConvergenceWarning, match="before it converged") as caught:
        make(kind, **options).fit(X, LABELS)
    named = str(caught[0].message).partition("raise ")[2].split(" or ")
    assert limit in named
    assert set(named) <= set(kind().get_params())
    assert ("max_seconds" in named) == (seconds is not None)


@pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier, GFITCClassifier])
def test_a_fit_at_a_bound_says_so_once_with_a_way_out(kind):
    kernel = ConstantKernel(1.0, (0.1, 2.0)) * RBF([1.0, 1.0])
    options = {"n_inducing": 5, "random_state": 0, "n_jobs": 1}
    with pytest.warns(BoundWarning, match="k1__constant_value = 2, its upper bound") as caught:
        model = make(kind, kernel=kernel, **options).fit(X, SURE)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert issubclass(BoundWarning, ConvergenceWarning)
    words = str(caught[0].message)
    wider = eval(words[words.index("kernel=") + len("kernel=") :], {"model": model})
    np.testing.assert_allclose(np.exp(wider.bounds[0]), [0.1, 20.0])
    again = make(kind, kernel=wider, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BoundWarning)
        again.fit(X, SURE)
    assert np.exp(again.kernel_.theta[0]) > 2.1


def test_with_leaves_the_way_out_is_one_kernel_for_all_rows_and_for_leaves():
    kernel = ConstantKernel(1.0, (0.1, 1.05)) * RBF([1.0, 1.0])
    options = {"n_inducing": 5, "leaves": 2, "random_state": 0, "n_jobs": 1, "max_epochs": 20}
    with pytest.warns(BoundWarning, match="k2__k1__constant_value = 1.05, its upper bound") as caught:
        model = SEPClassifier(kernel, config={"n_local": 4}, **options).fit(X, SURE)
    words = str(caught[0].message)
    wider = eval(words[words.index("kernel=") + len("kernel=") :], {"model": model})
    np.testing.assert_allclose(np.exp(wider.bounds[0]), [0.1, 10.5])
    again = SEPClassifier(wider, config={"n_local": 4}, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        again.fit(X, SURE)
    assert np.exp(again.kernel_.k2.theta[0]) > 1.06


def test_a_fit_that_ended_early_at_a_bound_says_both_at_once():
    kernel = ConstantKernel(1.0, (0.99, 1.01)) * RBF([1.0, 1.0])
    model = SEPClassifier(kernel, n_inducing=5, max_epochs=5, random_state=0, n_jobs=1)
    with pytest.warns(BoundWarning, match=r"stopped after 5 iterations .* its upper bound") as caught:
        model.fit(X, SURE)
    assert len(caught) == 1


def test_a_kernel_that_is_not_learned_is_no_news():
    kernel = ConstantKernel(2.0, (0.1, 2.0)) * RBF(1.0)
    SEPClassifier(kernel, n_inducing=5, optimizer=None, random_state=0, n_jobs=1).fit(X, SURE)


def test_trials_of_a_race_say_nothing(monkeypatch):
    monkeypatch.setattr(decisions, "DEFAULT_POINTS", 5)
    monkeypatch.setattr(candidates, "POINTS", 6)
    rows = np.random.default_rng(0).normal(size=(2_000, 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = SEPClassifier(random_state=0, max_epochs=4, n_jobs=1).fit(rows, rows[:, 0] > 0)
    assert len(model.race_) > 3
    assert len(caught) <= 1

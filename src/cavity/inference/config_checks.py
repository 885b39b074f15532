"""Which values the settings of a training run may have, and which of them do not go together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import TypeAlias

import numpy as np

from cavity.data.routing import MOST_LEAVES
from cavity.gp.inducing import KERNEL_NAMES, POINT_STARTS
from cavity.inference.decisions import Decisions, Request
from cavity.inference.optimizers import Optimizer
from cavity.text import suggestion

Test: TypeAlias = Callable[[object], bool]
"""Whether a parameter may have a value."""

Condition: TypeAlias = tuple[Test, str]
"""A test that a value must pass, and the words that describe the values which do."""


def check_value(name: str, value: object, condition: Condition) -> None:
    """Raise for a value that does not meet its condition."""
    possible, words = condition
    if not possible(value):
        raise ValueError(f"{name}={value!r} is not possible; it must be {words}")


def one_of(*values: object) -> Test:
    """A test for some words, or None."""
    return lambda value: any(value is one or (isinstance(value, str) and value == one) for one in values)


def whole_from(least: int, most: float = math.inf) -> Test:
    """A test for whole numbers."""
    return lambda value: (
        isinstance(value, Integral) and not is_flag(value) and least <= int(value) <= most
    )


def number_in(least: float, most: float = math.inf, *, open_left: bool = False) -> Test:
    """A test for numbers in an interval, with its left end unless `open_left`."""

    def inside(value: object) -> bool:
        if not isinstance(value, Real) or is_flag(value):
            return False
        number = float(value)
        return (least < number if open_left else least <= number) and number <= most

    return inside


def any_of(*tests: Test) -> Test:
    """A test that passes what one of some tests passes."""
    return lambda value: any(test(value) for test in tests)


def is_flag(value: object) -> bool:
    """Whether a value is a truth value, of Python or of NumPy."""
    return isinstance(value, (bool, np.bool_))


def _are_numbers(values: object) -> bool:
    """Whether a value is a sequence of finite numbers."""
    if not isinstance(values, (Sequence, np.ndarray)) or isinstance(values, str) or not len(values):
        return False
    return all(number_in(-math.inf)(value) and math.isfinite(value) for value in values)


def _are_words(values: object) -> bool:
    """Whether a value is a sequence of words."""
    return isinstance(values, (tuple, list)) and all(isinstance(value, str) for value in values)


AUTO, NONE = one_of("auto"), one_of(None)
_FIELDS: dict[str, Condition] = {
    "n_rows": (whole_from(1), "a whole number from 1"),
    "n_classes": (whole_from(2), "a whole number from 2"),
    "method": (one_of("ep", "vi"), '"ep" or "vi"'),
    "likelihood": (one_of("probit", "logit"), '"probit" or "logit"'),
    "n_inducing": (any_of(whole_from(1), AUTO), 'a whole number from 1 or "auto"'),
    "feature_set": (
        lambda value: value is None or isinstance(value, str),
        "the name of a set of features, or None for all features",
    ),
    "feature_sets": (_are_words, "names of sets of features"),
    "n_predicting": (
        any_of(whole_from(1), AUTO, NONE),
        'a whole number from 1, "auto" or None',
    ),
    "n_leaves": (
        any_of(whole_from(1, MOST_LEAVES), NONE),
        f"a whole number from 1 to {MOST_LEAVES:,}, or None",
    ),
    "n_local": (any_of(whole_from(1), AUTO, NONE), 'a whole number from 1, "auto" or None'),
    "inducing_init": (one_of(*POINT_STARTS), '"kmeans", "random" or "greedy"'),
    "learn_inducing": (is_flag, "True or False"),
    "kernel_name": (
        one_of("auto", *KERNEL_NAMES, None),
        '"matern32", "matern12", "rbf", "auto", or None for a kernel of your own',
    ),
    "kernel_start": (
        any_of(NONE, _are_numbers),
        "finite numbers, one for each entry of the kernel's theta, or None",
    ),
    "scaling": (
        one_of("auto", "standard", "robust", "quantile", "whiten", None),
        '"auto", "standard", "robust", "quantile", "whiten" or None',
    ),
    "batch_size": (any_of(whole_from(1), AUTO, NONE), 'a whole number from 1, "auto" or None'),
    "optimizer": (
        lambda value: value in ("adam", "lbfgs", None) or isinstance(value, Optimizer),
        '"adam", an optimiser object such as cavity.inference.Adam(0.01), or None',
    ),
    "max_epochs": (any_of(number_in(0, open_left=True), NONE), "a positive number or None"),
    "max_seconds": (any_of(number_in(0, open_left=True), NONE), "a positive number or None"),
    "damping": (any_of(number_in(0, 1, open_left=True), AUTO), 'a number in (0, 1] or "auto"'),
    "tol": (number_in(0), "a number from 0"),
    "exact_gradient": (is_flag, "True or False"),
    "posterior_update": (one_of("natural", "gradient"), '"natural" or "gradient"'),
    "site_storage": (one_of("sites", "factors"), '"sites" or "factors"'),
    "residual_scale": (any_of(number_in(0, 1), AUTO), 'a number in [0, 1] or "auto"'),
    "trace_penalty": (any_of(number_in(0), AUTO), 'a number from 0 or "auto"'),
    "hyperprior_scale": (any_of(number_in(0, open_left=True), NONE), "a positive number or None"),
    "early_stopping": (one_of("auto", "loo", "validation", None), '"auto", "loo", "validation" or None'),
    "validation_fraction": (
        lambda value: any_of(AUTO, NONE)(value)
        or (number_in(0, 1, open_left=True)(value) and value != 1),
        'a number in (0, 1), "auto" or None',
    ),
    "own_validation": (is_flag, "True or False"),
    "checkpoint_interval": (number_in(0), "a number of seconds from 0"),
    "seed": (whole_from(0), "a whole number from 0"),
}
_OF_THE_ROWS = {"n_rows", "n_classes", "feature_sets", "own_validation"}
SETTABLE = frozenset(_FIELDS) - {*_OF_THE_ROWS, "method", "seed"}
"""Fields that `config=` of an estimator may set."""


def check_fields(given: Mapping[str, object]) -> None:
    """Raise for a field that does not exist or has a value that it cannot have.

    >>> check_fields({"damping": 2.0})
    Traceback (most recent call last):
    ValueError: damping=2.0 is not possible; it must be a number in (0, 1] or "auto"
    """
    for name, value in given.items():
        if name not in _FIELDS:
            raise ValueError(
                f"config has no field {name!r}{suggestion(name, sorted(SETTABLE))}; the fields are "
                f"{', '.join(sorted(SETTABLE))}"
            )
        check_value(name, value, _FIELDS[name])


def check_together(auto: Decisions) -> None:
    """Raise for settings that contradict each other or what follows from the others."""
    asked = auto.asked
    if asked.n_classes > 2 and asked.likelihood != "probit":
        raise ValueError(
            f"likelihood={asked.likelihood!r} is for two classes and y has {asked.n_classes}; use "
            'likelihood="probit", or sklearn.multiclass.OneVsRestClassifier around this estimator'
        )
    if asked.optimizer is None and auto.early_stopping is not None:
        raise ValueError(
            f"early_stopping={auto.early_stopping!r} does not go with optimizer=None, which takes no "
            "steps: the posterior is brought to convergence at the given kernel; leave early_stopping "
            "and validation_fraction out"
        )
    _check_method(asked)
    _check_leaves(asked)
    if auto.schedule == "lbfgs":
        _check_lbfgs(auto)
    _check_predicting(auto)


def _check_method(asked: Request) -> None:
    """Raise for settings that only the other method has."""
    if asked.method == "ep" and asked.posterior_update == "gradient":
        raise ValueError(
            'posterior_update="gradient" does not go with EP, whose posterior is made of sites; use '
            "SVIClassifier"
        )
    if asked.posterior_update == "gradient" and asked.damping != "auto":
        raise ValueError(
            f'damping={asked.damping!r} does not go with posterior_update="gradient", whose posterior '
            'is not made of sites; leave it out, or use posterior_update="natural"'
        )
    if asked.method == "vi":
        only_ep = {
            "site_storage": (asked.site_storage, "sites"),
            "exact_gradient": (asked.exact_gradient, False),
            "residual_scale": (asked.residual_scale, "auto"),
            "trace_penalty": (asked.trace_penalty, "auto"),
        }
        for name, (value, default) in only_ep.items():
            if value != default:
                raise ValueError(f"{name}={value!r} belongs to EP; leave it out, or use SEPClassifier")


def _check_leaves(asked: Request) -> None:
    """Raise for settings that do not go with local inducing points, or that need them."""
    if asked.n_leaves is None:
        if asked.n_local not in ("auto", None):
            raise ValueError(
                f"n_local={asked.n_local!r} needs leaves; set leaves (n_leaves), too, or leave it out"
            )
        return
    without = {
        'optimizer="lbfgs"': asked.optimizer == "lbfgs",
        'posterior_update="gradient"': asked.posterior_update == "gradient",
        'site_storage="factors"': asked.site_storage == "factors",
        "exact_gradient=True": asked.exact_gradient,
    }
    for setting, is_set in without.items():
        if is_set:
            raise ValueError(
                f"leaves={asked.n_leaves} (n_leaves) does not go with {setting}: local inducing points "
                "are learned in steps, from sites of two numbers a row; leave one of them out"
            )


def _check_lbfgs(auto: Decisions) -> None:
    """Raise for settings that a run of L-BFGS over all rows cannot follow."""
    asked = auto.asked
    followed = {
        "damping": (asked.damping, 1.0),
        "exact_gradient": (asked.exact_gradient, False),
        "residual_scale": (asked.residual_scale, 1.0),
        "trace_penalty": (asked.trace_penalty, 0.0),
    }
    unused = []
    if auto.early_stopping is not None:
        unused.append(f"early_stopping={auto.early_stopping!r}")
    if isinstance(asked.optimizer, Optimizer):
        unused.append(f"optimizer={asked.optimizer!r}")
    unused += [
        f"{name}={value!r}" for name, (value, only) in followed.items() if value not in ("auto", only)
    ]
    if unused:
        raise ValueError(
            f"{' and '.join(unused)} does not go with L-BFGS over all rows; leave it out, or use "
            'SEPClassifier, or posterior_update="natural" or minibatches with SVIClassifier'
        )


def _check_predicting(auto: Decisions) -> None:
    """Raise for settings that do not go with more inducing points for predictions."""
    number, n_leaves = auto.n_predicting, auto.asked.n_leaves
    if number is None:
        return
    if number < auto.n_inducing:
        raise ValueError(
            f"n_predicting={number} is less than n_inducing={auto.n_inducing}; predictions have at "
            "least the points that the kernel is learned with: leave it out, or choose fewer of these"
        )
    if n_leaves is not None:
        raise ValueError(
            f"n_predicting={number} does not go with leaves={n_leaves} (n_leaves); leave it out, and "
            "set n_local"
        )
    if auto.schedule != "steps" or not auto.sums_sites:
        raise ValueError(
            f"n_predicting={number} needs training by steps with a posterior that is the sum of sites; "
            "leave it out, and set n_inducing instead"
        )

"""Which values the settings of a training run may have, and which of them do not go together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import TypeAlias

import numpy as np

from cavity.data.routing import MOST_LEAVES
from cavity.gp.inducing import KERNEL_NAMES
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
    "n_predicting": (
        any_of(whole_from(1), AUTO, NONE),
        'a whole number from 1, "auto" or None',
    ),
    "n_leaves": (
        any_of(whole_from(1, MOST_LEAVES), NONE),
        f"a whole number from 1 to {MOST_LEAVES:,}, or None",
    ),
    "n_local": (any_of(whole_from(1), AUTO, NONE), 'a whole number from 1, "auto" or None'),
    "inducing_init": (one_of("kmeans", "random", "greedy"), '"kmeans", "random" or "greedy"'),
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
    "early_stopping": (one_of("auto", "loo", "validation", None), '"loo", "validation" or None'),
    "validation_fraction": (
        lambda value: any_of(AUTO, NONE)(value)
        or (number_in(0, 1, open_left=True)(value) and value != 1),
        'a number in (0, 1), "auto" or None',
    ),
    "checkpoint_interval": (number_in(0), "a number of seconds from 0"),
    "seed": (whole_from(0), "a whole number from 0"),
}
SETTABLE = frozenset(_FIELDS) - {"n_rows", "n_classes", "method", "seed"}
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


def check_together(
    method: str,
    optimizer: Optimizer | str | None,
    damping: float | str,
    posterior_update: str,
    site_storage: str,
    exact_gradient: bool,
    residual_scale: float | str,
    trace_penalty: float | str,
    early_stopping: str | None,
) -> None:
    """Raise for settings that contradict each other."""
    if optimizer is None and early_stopping is not None:
        raise ValueError(
            f"early_stopping={early_stopping!r} does not go with optimizer=None, which takes no steps: "
            "the posterior is brought to convergence at the given kernel; leave early_stopping and "
            "validation_fraction out"
        )
    if method == "ep" and posterior_update == "gradient":
        raise ValueError(
            'posterior_update="gradient" does not go with EP, whose posterior is made of sites; use '
            "SVIClassifier"
        )
    if posterior_update == "gradient" and damping != "auto":
        raise ValueError(
            f'damping={damping!r} does not go with posterior_update="gradient", whose posterior is not '
            'made of sites; leave it out, or use posterior_update="natural"'
        )
    if method == "vi":
        only_ep = {
            "site_storage": (site_storage, "sites"),
            "exact_gradient": (exact_gradient, False),
            "residual_scale": (residual_scale, "auto"),
            "trace_penalty": (trace_penalty, "auto"),
        }
        for name, (value, default) in only_ep.items():
            if value != default:
                raise ValueError(f"{name}={value!r} belongs to EP; leave it out, or use SEPClassifier")


def check_lbfgs(
    optimizer: Optimizer | str | None,
    early_stopping: str | None,
    fields: Mapping[str, tuple[float | str, float]],
) -> None:
    """Raise for settings that a run of L-BFGS over all rows cannot follow.

    fields: by name, each with its value and the only one that L-BFGS has.
    """
    unused = []
    if early_stopping is not None:
        unused.append(f"early_stopping={early_stopping!r}")
    if isinstance(optimizer, Optimizer):
        unused.append(f"optimizer={optimizer!r}")
    unused += [
        f"{name}={value!r}" for name, (value, only) in fields.items() if value not in ("auto", only)
    ]
    if unused:
        raise ValueError(
            f"{' and '.join(unused)} does not go with L-BFGS over all rows; leave it out, or use "
            'SEPClassifier, or posterior_update="natural" or minibatches with SVIClassifier'
        )

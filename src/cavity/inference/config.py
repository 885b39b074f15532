"""All settings of a training run: `TrainingConfig`, and `resolve`, which decides each "auto".

`resolve` is arithmetic on the number of rows, inducing points and classes. Nothing else in the library
decides what a default means; all other modules read the configuration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import TypeAlias

import numpy as np

from cavity.inference.optimizers import Adadelta, Adam, Optimizer
from cavity.text import suggestion
from cavity.typing import JsonObject

FULL_BATCH_ROWS = 10_000
"""Rows up to which batch_size="auto" means that every step uses all of them."""
BATCH_PER_POINT = 5
"""Rows of a minibatch for each inducing point, so that the m×m algebra of a step is worth its time."""
LEAST_BATCH = 1_000
"""Fewest rows of a minibatch; with few inducing points it may be smaller, see MOST_PER_POINT."""
BATCHES_PER_EPOCH = 1_000
"""With more rows than this many minibatches hold, the minibatches become larger."""
MOST_PER_POINT = 20
"""Most rows of a minibatch for each inducing point."""
MINIBATCH_STEPS = 3_000
"""Steps of minibatch training without max_epochs and max_seconds; two epochs at least."""
FULL_BATCH_STEPS = {"ep": 200, "vi": 250}
"""Steps of training on all rows without max_epochs."""
FULL_BATCH_RATE = 0.1
MINIBATCH_RATE = 0.02
STREAM_RATE = 0.05
SEARCHED_RATE = 0.03
"""Learning rate on all rows after the inducing-point search has trained on them."""
SEARCHED_STEPS = 75
SEARCHED_SHARE = 0.375
"""After that search, training on all rows ends after 75 steps, or after this share of max_epochs."""
LEAST_PROBABILITY = 0.1
"""Smallest probability with which importance subsampling keeps a row of a minibatch."""
SUBSAMPLED_BATCH = 128
"""Fewest rows of a minibatch that is subsampled."""
CALIBRATION_FRACTION = 0.05
"""Share of the rows that minibatches leave out for the calibration of the probabilities."""
CALIBRATION_ROWS = 25_000
"""With more rows than this, some are left out for the calibration."""
SUMMED_SITES_ROWS = 2
"""Rows of a minibatch, per inducing point and latent function, from which the gradient through K_mm
comes from the summed sites."""
GAIN_WINDOW = 100
"""The posterior averages over about this many rows for each inducing point."""
PATIENCE = 5
"""Scores without improvement after which early stopping ends training."""
WARM_UP = 10
"""First steps on all rows, which the test of convergence ignores."""
REBUILD_ROWS = 10_000
"""Rows up to which training on all rows rebuilds the posterior from the sites before each pass."""


@dataclass(frozen=True)
class TrainingConfig:
    """Every setting of a training run, resolved: nothing here is "auto".

    >>> config = resolve(n_rows=60_000, n_inducing=100)
    >>> config.batch_size, config.optimizer, config.calibration
    (1000, Adam(learning_rate=0.02, decay_first=0.9, decay_second=0.999, epsilon=1e-08), 'temperature')
    """

    method: str
    """"ep" or "vi"."""
    likelihood: str
    """"probit" or "logit"."""
    n_classes: int
    n_inducing: int
    """Number m of inducing points; fewer if there are fewer different rows."""
    inducing_init: str
    """How the inducing points are chosen among the rows: "kmeans", "random" or "greedy"."""
    learn_kernel: bool
    learn_inducing: bool
    scaling: str | None
    """How inputs are scaled: "standard", "robust", "quantile", "whiten" or not at all."""
    batch_size: int | None
    """Rows of a step; None means all rows."""
    optimizer: Optimizer | None
    """How kernel and inducing points move; None for L-BFGS, and when nothing is learned."""
    schedule: str
    """"steps" (the optimiser moves the parameters step by step), "lbfgs", or "converge" (they stay)."""
    max_epochs: float
    max_seconds: float
    """Infinite without a budget in seconds."""
    max_useful_steps: float
    """Steps after which training counts as converged."""
    full_rate_steps: float
    """A run with fewer minibatch steps than this takes longer steps; 0 turns that off."""
    warm_up: int
    cools: bool
    """Whether steps and gains shrink in the second half of the budget."""
    damping: float
    """Share of a site's refinement that is taken."""
    tol: float
    exact_gradient: bool
    """Whether the gradient includes the terms that vanish at EP's fixed point."""
    posterior_update: str
    """"natural" (the posterior is the sum of sites) or "gradient" (the optimiser moves its moments)."""
    site_storage: str
    """What is kept of a row: "sites" (two numbers) or "factors" (m + 2 numbers, as in the paper)."""
    rebuild_posterior: bool
    """Whether the posterior is rebuilt from the sites before each pass over all rows."""
    summed_site_gradient: bool
    """Whether the gradient through K_mm comes from the summed sites instead of the rows."""
    smallest_gain: float
    """Share of the posterior that a minibatch replaces, at least."""
    residual_scale: float
    """Scale of the residual variance in the likelihood during training: 1 is FITC, 0 is DTC."""
    trace_penalty: float
    """Weight of the penalty ½ Σ ν̃ s for the variance that the inducing points leave unexplained."""
    hyperprior_scale: float | None
    """Standard deviation of the log-normal prior on kernel parameters; None means a flat prior."""
    subsample: float
    """Smallest probability with which a row takes part in its minibatch; 1 turns subsampling off."""
    calibration: str | None
    """"temperature": one factor on the latent means, fitted to held-out or left-out labels."""
    calibration_fraction: float
    """Share of the rows that minibatches leave out for the calibration."""
    early_stopping: str | None
    """"validation" or "loo": the score that ends training when it stops rising."""
    validation_fraction: float
    checkpoint_interval: float
    """Seconds between two checkpoints."""
    seed: int

    @property
    def n_latents(self) -> int:
        """Number of latent functions: one for two classes, else one per class."""
        return 1 if self.n_classes == 2 else self.n_classes

    def as_dict(self) -> JsonObject:
        """The settings as plain values, ready for JSON."""
        plain = {**asdict(self), "optimizer": None if self.optimizer is None else repr(self.optimizer)}
        return {name: None if value == math.inf else value for name, value in plain.items()}

    def __str__(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in self.as_dict().items())


def resolve(
    n_rows: int,
    n_classes: int = 2,
    *,
    method: str = "ep",
    likelihood: str = "probit",
    n_inducing: int = 100,
    inducing_init: str = "kmeans",
    learn_inducing: bool = True,
    scaling: str | None = "standard",
    batch_size: int | str | None = "auto",
    optimizer: Optimizer | str | None = "adam",
    max_epochs: float | None = None,
    max_seconds: float | None = None,
    damping: float | str = "auto",
    tol: float = 1e-4,
    exact_gradient: bool = False,
    posterior_update: str = "natural",
    site_storage: str = "sites",
    residual_scale: float | str = "auto",
    trace_penalty: float | str = "auto",
    hyperprior_scale: float | None = 1.0,
    calibration: str | None = "auto",
    early_stopping: str | None = "auto",
    validation_fraction: float | None = None,
    checkpoint_interval: float = 60.0,
    seed: int = 0,
    searched: bool = False,
) -> TrainingConfig:
    """Decide what every "auto" means for a number of rows and classes.

    searched: whether the inducing-point search has trained on all rows before.

    >>> [resolve(n_rows).batch_size for n_rows in (10_000, 60_000, 1_000_000, 10**8)]
    [None, 1000, 1000, 2000]
    >>> [resolve(n_rows).calibration_fraction for n_rows in (25_000, 25_001)]
    [0.0, 0.05]
    """
    check_fields(dict(locals()))
    if early_stopping == "auto":
        early_stopping = None if validation_fraction is None else "validation"
    if n_classes > 2 and likelihood != "probit":
        raise ValueError(
            f"likelihood={likelihood!r} is for two classes and y has {n_classes}; use "
            'likelihood="probit", or sklearn.multiclass.OneVsRestClassifier around this estimator'
        )
    _check_together(
        method, optimizer, damping, posterior_update, site_storage, exact_gradient, residual_scale,
        trace_penalty, calibration, early_stopping,
    )  # fmt: skip
    # NumPy's numbers become plain ones, as JSON needs them.
    n_rows, n_classes, n_inducing, seed = map(int, (n_rows, n_classes, n_inducing, seed))
    learns, gradient_steps = optimizer is not None, posterior_update == "gradient"
    size = _batch_size(batch_size, n_rows, n_inducing)
    schedule = "steps" if learns else "converge"
    if optimizer == "lbfgs" or (gradient_steps and (size is None or not learns)):
        schedule = "lbfgs"
        followed: dict[str, tuple[float | str, float]] = {
            "damping": (damping, 1.0),
            "exact_gradient": (exact_gradient, False),
            "residual_scale": (residual_scale, 1.0),
            "trace_penalty": (trace_penalty, 0.0),
        }
        _check_lbfgs(optimizer, early_stopping, followed)
    if damping == "auto":
        lbfgs = schedule == "lbfgs"
        damping = 1.0 if lbfgs else _damping(method, n_classes, size, site_storage)
    if trace_penalty == "auto":
        penalised = size is None and method == "ep" and schedule != "lbfgs"
        trace_penalty = 1.0 if penalised else 0.0
    if schedule != "steps":
        size = None
    averages = site_storage == "sites" and not gradient_steps
    if calibration == "auto":
        paper = site_storage == "factors" and size is not None
        calibration = "temperature" if not paper and (size is not None or n_classes > 2) else None
    left_to_calibration = 0.0
    if calibration and averages and size is not None and size < n_rows and n_rows > CALIBRATION_ROWS:
        left_to_calibration = CALIBRATION_FRACTION
    if residual_scale == "auto":
        # Rows held out for early stopping would score a posterior that is not calibrated yet.
        sharp = method == "ep" and left_to_calibration and early_stopping != "validation"
        residual_scale = 0.0 if sharp else 1.0
    epochs, useful = _epochs(max_epochs, max_seconds, method, size, n_rows, searched)
    n_latents = 1 if n_classes == 2 else n_classes
    moves = _optimizer(optimizer, gradient_steps, size, searched) if schedule == "steps" else None
    default_rate = isinstance(optimizer, str) and isinstance(moves, Adam)
    return TrainingConfig(
        method=method,
        likelihood=likelihood,
        n_classes=n_classes,
        n_inducing=n_inducing,
        inducing_init=inducing_init,
        learn_kernel=learns,
        learn_inducing=learns and learn_inducing,
        scaling=scaling,
        batch_size=size,
        optimizer=moves,
        schedule=schedule,
        max_epochs=epochs,
        max_seconds=math.inf if max_seconds is None else float(max_seconds),
        max_useful_steps=useful,
        full_rate_steps=float(MINIBATCH_STEPS) if default_rate and size is not None else 0.0,
        warm_up=0 if searched else WARM_UP,
        cools=size is None or site_storage == "sites",
        damping=float(damping),
        tol=float(tol),
        exact_gradient=exact_gradient,
        posterior_update=posterior_update,
        site_storage="sites" if size is None else site_storage,
        rebuild_posterior=size is None
        and not gradient_steps
        and (exact_gradient or n_rows <= REBUILD_ROWS),
        summed_site_gradient=averages
        and not exact_gradient
        and size is not None
        and size >= SUMMED_SITES_ROWS * n_latents * n_inducing,
        smallest_gain=1.0 if size is None else min(1.0, size / (GAIN_WINDOW * n_inducing)),
        residual_scale=float(residual_scale),
        trace_penalty=float(trace_penalty),
        hyperprior_scale=None if hyperprior_scale is None else float(hyperprior_scale),
        subsample=LEAST_PROBABILITY if averages and size and size >= SUBSAMPLED_BATCH else 1.0,
        calibration=calibration,
        calibration_fraction=left_to_calibration,
        early_stopping=early_stopping,
        validation_fraction=0.1 if validation_fraction is None else float(validation_fraction),
        checkpoint_interval=float(checkpoint_interval),
        seed=seed,
    )


def _batch_size(batch_size: int | str | None, n_rows: int, m: int) -> int | None:
    if batch_size == "auto":
        if n_rows <= FULL_BATCH_ROWS:
            return None
        wanted = max(BATCH_PER_POINT * m, LEAST_BATCH, n_rows // BATCHES_PER_EPOCH)
        batch_size = min(wanted, MOST_PER_POINT * m)
    return None if batch_size is None else min(n_rows, int(batch_size))


def _damping(method: str, n_classes: int, batch_size: int | None, site_storage: str) -> float:
    whole = batch_size is None
    if method == "vi":
        # A whole natural-gradient step solves a concave problem at once. With several latent functions
        # each step assumes that the others do not move, and whole steps would overshoot twofold.
        return 0.5 if n_classes > 2 and whole else 1.0
    if whole:
        return 0.5
    return 1.0 if site_storage == "sites" else 0.99


def _epochs(
    max_epochs: float | None,
    max_seconds: float | None,
    method: str,
    batch_size: int | None,
    n_rows: int,
    searched: bool,
) -> tuple[float, float]:
    """Epochs at most, and the steps after which training counts as converged."""
    if batch_size is None:
        most = float(FULL_BATCH_STEPS[method] if max_epochs is None else max_epochs)
        if not searched:
            return most, math.inf
        useful = max(SEARCHED_STEPS, SEARCHED_SHARE * most)
        return min(most, useful), useful
    if max_epochs is not None:
        return float(max_epochs), math.inf
    if max_seconds is not None:
        return math.inf, math.inf
    return max(2.0, MINIBATCH_STEPS * batch_size / n_rows), math.inf


def _optimizer(
    optimizer: Optimizer | str | None, gradient_steps: bool, batch_size: int | None, searched: bool
) -> Optimizer | None:
    if not isinstance(optimizer, str):
        return optimizer
    if gradient_steps:
        return Adadelta()
    if batch_size is not None:
        return Adam(MINIBATCH_RATE)
    return Adam(SEARCHED_RATE if searched else FULL_BATCH_RATE)


def _check_together(
    method: str,
    optimizer: Optimizer | str | None,
    damping: float | str,
    posterior_update: str,
    site_storage: str,
    exact_gradient: bool,
    residual_scale: float | str,
    trace_penalty: float | str,
    calibration: str | None,
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
    if site_storage == "factors" and calibration == "temperature":
        raise ValueError(
            'calibration="temperature" with site_storage="factors": the paper\'s scheme has no '
            'calibration; use calibration=None, or site_storage="sites"'
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


def _check_lbfgs(
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


def whole_from(least: int) -> Test:
    """A test for whole numbers."""
    return lambda value: isinstance(value, Integral) and not is_flag(value) and int(value) >= least


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


AUTO, NONE = one_of("auto"), one_of(None)
_FIELDS: dict[str, Condition] = {
    "n_rows": (whole_from(1), "a whole number from 1"),
    "n_classes": (whole_from(2), "a whole number from 2"),
    "method": (one_of("ep", "vi"), '"ep" or "vi"'),
    "likelihood": (one_of("probit", "logit"), '"probit" or "logit"'),
    "n_inducing": (whole_from(1), "a whole number from 1"),
    "inducing_init": (one_of("kmeans", "random", "greedy"), '"kmeans", "random" or "greedy"'),
    "learn_inducing": (is_flag, "True or False"),
    "scaling": (
        one_of("standard", "robust", "quantile", "whiten", None),
        '"standard", "robust", "quantile", "whiten" or None',
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
    "calibration": (one_of("auto", "temperature", None), '"auto", "temperature" or None'),
    "early_stopping": (one_of("auto", "loo", "validation", None), '"loo", "validation" or None'),
    "validation_fraction": (
        lambda value: value is None or (number_in(0, 1, open_left=True)(value) and value != 1),
        "a number in (0, 1) or None",
    ),
    "checkpoint_interval": (number_in(0), "a number of seconds from 0"),
    "seed": (whole_from(0), "a whole number from 0"),
    "searched": (is_flag, "True or False"),
}
SETTABLE = frozenset(_FIELDS) - {"n_rows", "n_classes", "method", "seed", "searched"}
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

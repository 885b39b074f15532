"""All settings of a training run: `TrainingConfig`, and `resolve`, which decides each "auto".

`resolve` is arithmetic on the number of rows, inducing points and classes. Nothing else in the library
decides what a default means; all other modules read the configuration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from textwrap import fill

from cavity.engines.local import MOST_HELD_OUT
from cavity.inference.config_checks import check_fields, check_lbfgs, check_together
from cavity.inference.optimizers import Adadelta, Adam, Optimizer
from cavity.text import abbreviated
from cavity.typing import JsonObject

BATCH_PER_POINT = 5
"""Rows of a minibatch for each inducing point, so that the m×m algebra of a step is worth its time."""
LEAST_BATCH = 1_000
"""Fewest rows of a minibatch; with few inducing points it may be smaller, see MOST_PER_POINT. Up to
this many rows, a step uses all of them."""
BATCHES_PER_EPOCH = 1_000
"""With more rows than this many minibatches hold, the minibatches become larger."""
MOST_PER_POINT = 20
"""Most rows of a minibatch for each inducing point."""
MINIBATCH_STEPS = 3_000
"""Steps of minibatch training without max_epochs and max_seconds; two epochs at least."""
MOST_EPOCHS = 400
"""Epochs of minibatch training at most, without max_epochs and max_seconds."""
FULL_BATCH_STEPS = {"ep": 200, "vi": 250}
"""Steps of training on all rows without max_epochs."""
FULL_BATCH_RATE = 0.1
"""Learning rate of Adam on all rows. Minibatches are noisier, so theirs is smaller by the square root of
their share of the rows, but not below MINIBATCH_RATE."""
MINIBATCH_RATE = 0.02
STREAM_RATE = 0.05
LEAST_PROBABILITY = 0.1
"""Smallest probability with which importance subsampling keeps a row of a minibatch."""
SUBSAMPLED_BATCH = 128
"""Fewest rows of a minibatch that is subsampled."""
DEFAULT_POINTS = 100
"""Number of inducing points that n_inducing="auto" means without a race."""
POINTS_BESIDE_LEAVES = 20
"""Number of inducing points for all rows that n_inducing="auto" means with leaves, each of which has
DEFAULT_POINTS of its own."""
HELD_OUT_SHARE = 0.1
"""Share of the rows that validation_fraction="auto" holds out."""
LEAST_HELD_OUT = 500
"""Fewest rows that it holds out; MOST_HELD_OUT is the most that anything holds out."""
MOST_HELD_OUT_SHARE = 0.25
"""Largest share of the rows that it holds out."""
FEWEST_ROWS_TO_HOLD_OUT = 2_000
"""With fewer rows than this, it holds none out: they are needed for learning."""
SUMMED_SITES_ROWS = 2
"""Rows of a minibatch, per inducing point and latent function, from which the gradient through K_mm
comes from the summed sites."""
GAIN_WINDOW = 100
"""The posterior averages over about this many rows for each inducing point, or over one epoch."""
PATIENCE = 5
"""Scores without improvement after which early stopping ends training."""
WARM_UP = 10
"""First steps on all rows, which the test of convergence ignores."""
REBUILD_ROWS = 10_000
"""Rows up to which training on all rows rebuilds the posterior from the sites before each pass."""


@dataclass(frozen=True, repr=False)
class TrainingConfig:
    """Every setting of a training run, resolved: nothing here is "auto".

    >>> config = resolve(n_rows=60_000, n_inducing=100)
    >>> config.batch_size, config.scaling, config.kernel_name, config.validation_fraction
    (1000, 'robust', 'matern32', 0.1)
    """

    method: str
    """"ep" or "vi"."""
    likelihood: str
    """"probit" or "logit"."""
    n_classes: int
    n_inducing: int
    """Number m of inducing points; fewer if there are fewer different rows."""
    feature_set: str | None
    """Which features are used: those of a set of this name that the rows have; None means all."""
    n_predicting: int | None
    """Number of inducing points of the predictions, if that is larger: the kernel is learned with m, and
    then the posterior is computed with more of them."""
    n_leaves: int | None
    """Number of leaves of the input space with inducing points of their own; None means none."""
    n_local: int | None
    """Number of inducing points of each leaf, besides the n_inducing for all rows; fewer in leaves with
    fewer different rows."""
    inducing_init: str
    """How the inducing points are chosen among the rows: "kmeans", "random" or "greedy"."""
    learn_kernel: bool
    learn_inducing: bool
    kernel_name: str | None
    """Which kernel is learned: amplitude × ARD "matern32", "matern12" or "rbf"; None is the user's."""
    kernel_start: tuple[float, ...] | None
    """Kernel parameters where training begins: their logarithms for scaled inputs, as in `theta` of the
    kernel; None means the kernel's own."""
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
    early_stopping: str | None
    """"validation" or "loo": the score that ends training when it stops rising."""
    validation_fraction: float
    """Share of the rows that are held out: they score states and calibrate predictions."""
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

    def __repr__(self) -> str:
        words = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self))
        return fill(f"TrainingConfig({abbreviated(words)})", 79, subsequent_indent="    ")


def resolve(
    n_rows: int,
    n_classes: int = 2,
    *,
    method: str = "ep",
    likelihood: str = "probit",
    n_inducing: int | str = "auto",
    feature_set: str | None = None,
    n_predicting: int | str | None = "auto",
    n_leaves: int | None = None,
    n_local: int | str | None = "auto",
    inducing_init: str = "kmeans",
    learn_inducing: bool = True,
    kernel_name: str | None = "auto",
    kernel_start: Sequence[float] | None = None,
    scaling: str | None = "auto",
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
    early_stopping: str | None = "auto",
    validation_fraction: float | str | None = "auto",
    checkpoint_interval: float = 60.0,
    seed: int = 0,
) -> TrainingConfig:
    """Decide what every "auto" means for a number of rows and classes, without a look at the rows.

    A race between configurations (`cavity.inference.race`) gives the fields that it decides by name.

    >>> [resolve(n_rows).batch_size for n_rows in (1_000, 60_000, 1_000_000, 10**8)]
    [None, 1000, 1000, 2000]
    >>> [resolve(n_rows).validation_fraction for n_rows in (1_000, 2_000, 60_000, 1_000_000)]
    [0.0, 0.25, 0.1, 0.02]
    """
    check_fields(dict(locals()))
    if early_stopping == "auto":
        early_stopping = None if validation_fraction in ("auto", None) else "validation"
    if n_classes > 2 and likelihood != "probit":
        raise ValueError(
            f"likelihood={likelihood!r} is for two classes and y has {n_classes}; use "
            'likelihood="probit", or sklearn.multiclass.OneVsRestClassifier around this estimator'
        )
    check_together(
        method, optimizer, damping, posterior_update, site_storage, exact_gradient, residual_scale,
        trace_penalty, early_stopping,
    )  # fmt: skip
    # NumPy's numbers become plain ones, as JSON needs them.
    if n_inducing == "auto":
        n_inducing = DEFAULT_POINTS if n_leaves is None else POINTS_BESIDE_LEAVES
    n_rows, n_classes, n_inducing, seed = map(int, (n_rows, n_classes, n_inducing, seed))
    n_local = _local_points(n_leaves, n_local, optimizer, posterior_update, site_storage, exact_gradient)
    width = n_inducing + (n_local or 0)
    learns, gradient_steps = optimizer is not None, posterior_update == "gradient"
    size = _batch_size(batch_size, n_rows, width)
    schedule = "steps" if learns else "converge"
    if optimizer == "lbfgs" or (gradient_steps and (size is None or not learns)):
        schedule = "lbfgs"
        followed: dict[str, tuple[float | str, float]] = {
            "damping": (damping, 1.0),
            "exact_gradient": (exact_gradient, False),
            "residual_scale": (residual_scale, 1.0),
            "trace_penalty": (trace_penalty, 0.0),
        }
        check_lbfgs(optimizer, early_stopping, followed)
    n_predicting = _predicting(
        n_predicting, n_inducing, schedule, site_storage, gradient_steps, n_leaves
    )
    if damping == "auto":
        lbfgs = schedule == "lbfgs"
        damping = 1.0 if lbfgs else _damping(method, n_classes, size, site_storage)
    averages = site_storage == "sites" and not gradient_steps
    if trace_penalty == "auto":
        paper = site_storage == "factors" and size is not None
        trace_penalty = 1.0 if method == "ep" and schedule != "lbfgs" and not paper else 0.0
    if schedule != "steps":
        size = None
    if residual_scale == "auto":
        residual_scale = 1.0
    if kernel_name == "auto":
        kernel_name = "matern32"
    if scaling == "auto":
        # A kernel of the user's own must see the columns that its author had in mind.
        scaling = "standard" if kernel_name is None else "robust"
    if validation_fraction == "auto":
        scores = schedule == "steps" and site_storage == "sites" and early_stopping != "loo"
        validation_fraction = _held_out_share(n_rows, early_stopping) if scores else None
    epochs = _epochs(max_epochs, max_seconds, method, size, n_rows)
    n_latents = 1 if n_classes == 2 else n_classes
    moves = _optimizer(optimizer, gradient_steps, size, n_rows) if schedule == "steps" else None
    default_rate = isinstance(optimizer, str) and isinstance(moves, Adam)
    # The rows that one q stands for, and those of them that are in a minibatch together.
    rows_together = n_rows if n_leaves is None else max(1, n_rows // n_leaves)
    together = size
    if n_leaves is not None and size is not None:
        together = min(rows_of_a_leaf(size, width), rows_together)
    return TrainingConfig(
        method=method,
        likelihood=likelihood,
        n_classes=n_classes,
        n_inducing=n_inducing,
        feature_set=feature_set,
        n_predicting=n_predicting,
        n_leaves=None if n_leaves is None else int(n_leaves),
        n_local=n_local,
        inducing_init=inducing_init,
        learn_kernel=learns,
        learn_inducing=learns and learn_inducing,
        kernel_name=kernel_name,
        kernel_start=None if kernel_start is None else tuple(map(float, kernel_start)),
        scaling=scaling,
        batch_size=size,
        optimizer=moves,
        schedule=schedule,
        max_epochs=epochs,
        max_seconds=math.inf if max_seconds is None else float(max_seconds),
        full_rate_steps=float(MINIBATCH_STEPS) if default_rate and size is not None else 0.0,
        warm_up=WARM_UP,
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
        and together is not None
        and together >= SUMMED_SITES_ROWS * n_latents * width,
        smallest_gain=_smallest_gain(together, rows_together, width),
        residual_scale=float(residual_scale),
        trace_penalty=float(trace_penalty),
        hyperprior_scale=None if hyperprior_scale is None else float(hyperprior_scale),
        subsample=LEAST_PROBABILITY if averages and size and size >= SUBSAMPLED_BATCH else 1.0,
        early_stopping=early_stopping,
        validation_fraction=float(validation_fraction or 0.0),
        checkpoint_interval=float(checkpoint_interval),
        seed=seed,
    )


def _batch_size(batch_size: int | str | None, n_rows: int, m: int) -> int | None:
    if batch_size is None:
        return None
    if batch_size == "auto":
        wanted = max(BATCH_PER_POINT * m, LEAST_BATCH, n_rows // BATCHES_PER_EPOCH)
        size = min(wanted, MOST_PER_POINT * m)
        return None if n_rows <= max(LEAST_BATCH, size) else size
    return min(n_rows, int(batch_size))


def rows_of_a_leaf(size: int, width: int) -> int:
    """Rows of one leaf in a minibatch with leaves: enough for the algebra of the points that they meet.

    >>> [rows_of_a_leaf(1_000, width) for width in (50, 120, 200)]
    [250, 500, 1000]
    """
    return -(-size // max(1, round(size / (BATCH_PER_POINT * width))))


def leaves_with_enough_rows(n_rows: int, width: int) -> int:
    """How many leaves, a power of two, have so many rows that a posterior of them averages over no more.

    width: number of inducing points that a row meets.

    >>> [leaves_with_enough_rows(n_rows, 120) for n_rows in (10_000, 50_000, 500_000)]
    [1, 4, 32]
    """
    return int(2 ** max(0, round(math.log2(n_rows / (GAIN_WINDOW * width)))))


def _smallest_gain(size: int | None, n_rows: int, m: int) -> float:
    """The least share of q that a minibatch replaces, if it has `size` of the rows that q stands for."""
    if size is None:
        return 1.0
    window = min(n_rows, max(size, GAIN_WINDOW * m))
    return min(1.0, size / window)


def _local_points(
    n_leaves: int | None,
    n_local: int | str | None,
    optimizer: Optimizer | str | None,
    posterior_update: str,
    site_storage: str,
    exact_gradient: bool,
) -> int | None:
    """Number of inducing points of a leaf; None without leaves."""
    if n_leaves is None:
        if n_local not in ("auto", None):
            raise ValueError(f"n_local={n_local!r} needs leaves; set n_leaves, too, or leave it out")
        return None
    without = {
        'optimizer="lbfgs"': optimizer == "lbfgs",
        'posterior_update="gradient"': posterior_update == "gradient",
        'site_storage="factors"': site_storage == "factors",
        "exact_gradient=True": exact_gradient,
    }
    for setting, is_set in without.items():
        if is_set:
            raise ValueError(
                f"n_leaves={n_leaves} does not go with {setting}: local inducing points are learned in "
                "steps, from sites of two numbers a row; leave one of them out"
            )
    return DEFAULT_POINTS if n_local is None or n_local == "auto" else int(n_local)


def _predicting(
    n_predicting: int | str | None,
    m: int,
    schedule: str,
    site_storage: str,
    gradient_steps: bool,
    n_leaves: int | None,
) -> int | None:
    """Number of inducing points of the predictions; None means m."""
    if n_predicting is None or n_predicting == "auto" or int(n_predicting) == m:
        return None
    number = int(n_predicting)
    if number < m:
        raise ValueError(
            f"n_predicting={number} is less than n_inducing={m}; predictions have at least the points "
            "that the kernel is learned with: leave it out, or choose fewer of these"
        )
    if n_leaves is not None:
        raise ValueError(
            f"n_predicting={number} does not go with n_leaves={n_leaves}; leave it out, and set n_local"
        )
    if schedule != "steps" or site_storage == "factors" or gradient_steps:
        raise ValueError(
            f"n_predicting={number} needs training by steps with a posterior that is the sum of sites; "
            "leave it out, and set n_inducing instead"
        )
    return number


def _held_out_share(n_rows: int, early_stopping: str | None) -> float:
    if n_rows < FEWEST_ROWS_TO_HOLD_OUT and early_stopping != "validation":
        return 0.0
    wanted = min(max(HELD_OUT_SHARE * n_rows, LEAST_HELD_OUT), MOST_HELD_OUT)
    return min(wanted / n_rows, MOST_HELD_OUT_SHARE)


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
) -> float:
    """Epochs at most."""
    if max_epochs is not None:
        return float(max_epochs)
    if batch_size is None:
        return float(FULL_BATCH_STEPS[method])
    if max_seconds is not None:
        return math.inf
    return min(max(2.0, MINIBATCH_STEPS * batch_size / n_rows), MOST_EPOCHS)


def _optimizer(
    optimizer: Optimizer | str | None, gradient_steps: bool, batch_size: int | None, n_rows: int
) -> Optimizer | None:
    if not isinstance(optimizer, str):
        return optimizer
    if gradient_steps:
        return Adadelta()
    share = 1.0 if batch_size is None else batch_size / n_rows
    return Adam(max(MINIBATCH_RATE, FULL_BATCH_RATE * math.sqrt(share)))

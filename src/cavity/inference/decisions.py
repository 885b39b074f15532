"""What each "auto" of a training run means: `Decisions`, which follow from a `Request`.

They are arithmetic on the number of rows, inducing points and classes, without a look at the rows.
Nothing else in the library decides what a default means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cavity.data.labels import n_latents
from cavity.data.sampling import MOST_HELD_OUT
from cavity.inference.optimizers import Adadelta, Adam, Optimizer

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
"""Smallest learning rate of Adam on minibatches."""
STREAM_RATE = 0.05
"""Learning rate of Adam in a stream, whose rows are seen once."""
STREAM_DAMPING = 1.0
"""Damping of a stream: each row is new, so that there is no site to average with."""
LEAST_KEEP_PROBABILITY = 0.1
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
REBUILD_ROWS = 10_000
"""Rows up to which training on all rows rebuilds the posterior from the sites before each pass."""


@dataclass(frozen=True)
class Request:
    """What a training run is asked for: a value for each setting, or "auto".

    `TrainingConfig` describes the settings, and `resolve` has their defaults.
    """

    n_rows: int
    n_classes: int
    method: str
    likelihood: str
    n_inducing: int | str
    feature_set: str | None
    feature_sets: Sequence[str]
    n_predicting: int | str | None
    n_leaves: int | None
    n_local: int | str | None
    inducing_init: str
    learn_inducing: bool
    kernel_name: str | None
    kernel_start: Sequence[float] | None
    scaling: str | None
    batch_size: int | str | None
    optimizer: Optimizer | str | None
    max_epochs: float | None
    max_seconds: float | None
    damping: float | str
    tol: float
    exact_gradient: bool
    posterior_update: str
    site_storage: str
    residual_scale: float | str
    trace_penalty: float | str
    hyperprior_scale: float | None
    early_stopping: str | None
    validation_fraction: float | str | None
    own_validation: bool
    checkpoint_interval: float
    seed: int


class Decisions:
    """The settings that follow from a request: each property decides one, from others where it must."""

    def __init__(self, asked: Request) -> None:
        self.asked = asked

    # The model.

    @property
    def n_latents(self) -> int:
        """Number of latent functions: one for two classes, else one per class."""
        return n_latents(int(self.asked.n_classes))

    @property
    def n_inducing(self) -> int:
        """Number of inducing points for all rows."""
        if self.asked.n_inducing == "auto":
            return DEFAULT_POINTS if self.asked.n_leaves is None else POINTS_BESIDE_LEAVES
        return int(self.asked.n_inducing)

    @property
    def n_local(self) -> int | None:
        """Number of inducing points of each leaf; None without leaves."""
        return None if self.asked.n_leaves is None else points_of_a_leaf(self.asked.n_local)

    @property
    def width(self) -> int:
        """Number of global inducing points, plus those of the row's leaf if there are leaves."""
        return self.n_inducing + (self.n_local or 0)

    @property
    def n_predicting(self) -> int | None:
        """Number of inducing points of the predictions; None means that of the training."""
        number = self.asked.n_predicting
        if number is None or number == "auto" or int(number) == self.n_inducing:
            return None
        return int(number)

    @property
    def feature_set(self) -> str | None:
        """Which features are used: of several sets, the first and smallest."""
        return self.asked.feature_set or next(iter(self.asked.feature_sets), None)

    @property
    def kernel_name(self) -> str | None:
        """Which kernel is learned; None is the user's."""
        return "matern32" if self.asked.kernel_name == "auto" else self.asked.kernel_name

    @property
    def scaling(self) -> str | None:
        """How inputs are scaled. The user's own kernel sees the columns that its author had in mind."""
        if self.asked.scaling != "auto":
            return self.asked.scaling
        return "standard" if self.kernel_name is None else "robust"

    @property
    def residual_scale(self) -> float:
        """Scale of the residual variance in training."""
        return 1.0 if self.asked.residual_scale == "auto" else float(self.asked.residual_scale)

    @property
    def trace_penalty(self) -> float:
        """Weight of the penalty for unexplained variance: EP's, unless it reproduces the paper."""
        if self.asked.trace_penalty != "auto":
            return float(self.asked.trace_penalty)
        paper = self.asked.site_storage == "factors" and self.rows_of_steps is not None
        return 1.0 if self.asked.method == "ep" and self.schedule != "lbfgs" and not paper else 0.0

    # The steps.

    @property
    def learns(self) -> bool:
        """Whether kernel and inducing points move."""
        return self.asked.optimizer is not None

    @property
    def moves_by_gradient(self) -> bool:
        """Whether the optimiser moves the moments of the posterior, too."""
        return self.asked.posterior_update == "gradient"

    @property
    def rows_of_steps(self) -> int | None:
        """Rows of each step, should there be steps; None means all rows."""
        n_rows, size = self.asked.n_rows, self.asked.batch_size
        if size is None:
            return None
        if size != "auto":
            return int(min(n_rows, int(size)))
        wanted = max(BATCH_PER_POINT * self.width, LEAST_BATCH, n_rows // BATCHES_PER_EPOCH)
        wanted = min(wanted, MOST_PER_POINT * self.width)
        return None if n_rows <= max(LEAST_BATCH, wanted) else int(wanted)

    @property
    def schedule(self) -> str:
        """How the parameters move: in "steps", by "lbfgs" over all rows, or not at all ("converge")."""
        if self.asked.optimizer == "lbfgs":
            return "lbfgs"
        if self.moves_by_gradient and (self.rows_of_steps is None or not self.learns):
            return "lbfgs"
        return "steps" if self.learns else "converge"

    @property
    def batch_size(self) -> int | None:
        """Rows of a step; None means all rows."""
        return self.rows_of_steps if self.schedule == "steps" else None

    @property
    def optimizer(self) -> Optimizer | None:
        """What takes the steps; the learning rate of Adam depends on the share of the rows in a step."""
        if self.schedule != "steps":
            return None
        if self.asked.optimizer is None or isinstance(self.asked.optimizer, Optimizer):
            return self.asked.optimizer
        if self.moves_by_gradient:
            return Adadelta()
        share = 1.0 if self.batch_size is None else self.batch_size / self.asked.n_rows
        return Adam(max(MINIBATCH_RATE, FULL_BATCH_RATE * math.sqrt(share)))

    @property
    def full_rate_steps(self) -> float:
        """Number of minibatch steps below which a run takes longer ones; 0 for the user's own rate."""
        own = isinstance(self.asked.optimizer, Optimizer) or not isinstance(self.optimizer, Adam)
        return 0.0 if own or self.batch_size is None else float(MINIBATCH_STEPS)

    @property
    def max_epochs(self) -> float:
        """Epochs at most."""
        if self.asked.max_epochs is not None:
            return float(self.asked.max_epochs)
        if self.batch_size is None:
            return float(FULL_BATCH_STEPS[self.asked.method])
        if self.asked.max_seconds is not None:
            return math.inf
        return float(min(max(2.0, MINIBATCH_STEPS * self.batch_size / self.asked.n_rows), MOST_EPOCHS))

    # The sites and the posterior.

    @property
    def damping(self) -> float:
        """Share of a site's refinement that is taken."""
        if self.asked.damping != "auto":
            return float(self.asked.damping)
        if self.schedule == "lbfgs":
            return 1.0
        if self.asked.method == "vi":
            # A whole natural-gradient step solves a concave problem at once. With several latent
            # functions each step assumes that the others do not move, and whole steps overshoot twofold.
            return 0.5 if self.n_latents > 1 and self.rows_of_steps is None else 1.0
        if self.rows_of_steps is None:
            return 0.5
        return 1.0 if self.asked.site_storage == "sites" else 0.99

    @property
    def site_storage(self) -> str:
        """What is kept of a row: the paper's factors only in minibatches."""
        return "sites" if self.batch_size is None else self.asked.site_storage

    @property
    def sums_sites(self) -> bool:
        """Whether the posterior of minibatches is an average of summed sites."""
        return self.asked.site_storage == "sites" and not self.moves_by_gradient

    @property
    def cools(self) -> bool:
        """Whether steps and gains shrink in the second half of the budget."""
        return self.site_storage == "sites"

    @property
    def subsample(self) -> float:
        """Smallest probability with which a row takes part in its minibatch."""
        size = self.batch_size
        return LEAST_KEEP_PROBABILITY if self.sums_sites and size and size >= SUBSAMPLED_BATCH else 1.0

    @property
    def rebuild_posterior(self) -> bool:
        """Whether the posterior is rebuilt from the sites before each pass over all rows."""
        if self.batch_size is not None or self.moves_by_gradient:
            return False
        return bool(self.asked.exact_gradient or self.asked.n_rows <= REBUILD_ROWS)

    @property
    def rows_of_a_posterior(self) -> int:
        """Rows that one posterior stands for: those of a leaf, if there are leaves."""
        return max(1, int(self.asked.n_rows) // (self.asked.n_leaves or 1))

    @property
    def rows_of_a_leaf(self) -> int | None:
        """Rows of one leaf in a minibatch: enough for the algebra of the points that they meet."""
        size = self.batch_size
        if size is None or self.asked.n_leaves is None:
            return None
        return -(-size // max(1, round(size / (BATCH_PER_POINT * self.width))))

    @property
    def rows_together(self) -> int | None:
        """Rows of one posterior that are in a minibatch together; None without minibatches."""
        if self.rows_of_a_leaf is None:
            return self.batch_size
        return min(self.rows_of_a_leaf, self.rows_of_a_posterior)

    @property
    def smallest_gain(self) -> float:
        """Share of the posterior that a minibatch replaces, at least."""
        if self.rows_together is None:
            return 1.0
        window = max(self.rows_together, GAIN_WINDOW * self.width)
        return min(1.0, self.rows_together / min(self.rows_of_a_posterior, window))

    @property
    def summed_site_gradient(self) -> bool:
        """Whether the gradient through K_mm comes from the summed sites instead of the rows."""
        if self.rows_together is None or not self.sums_sites or self.asked.exact_gradient:
            return False
        return self.rows_together >= SUMMED_SITES_ROWS * self.n_latents * self.width

    # The held-out rows.

    @property
    def early_stopping(self) -> str | None:
        """The score that ends training; rows that are asked to be held out are there for that, and so
        are the user's own."""
        if self.asked.early_stopping != "auto":
            return self.asked.early_stopping
        if self.asked.own_validation:
            return "validation" if self.schedule == "steps" else None
        return None if self.asked.validation_fraction in ("auto", None) else "validation"

    @property
    def validation_fraction(self) -> float:
        """Share of the rows that are held out: none beside the user's own."""
        if self.asked.own_validation:
            return 0.0
        if self.asked.validation_fraction != "auto":
            return float(self.asked.validation_fraction or 0.0)
        scores = self.schedule == "steps" and self.asked.site_storage == "sites"
        if not scores or self.early_stopping == "loo":
            return 0.0
        n_rows = self.asked.n_rows
        if n_rows < FEWEST_ROWS_TO_HOLD_OUT and self.early_stopping != "validation":
            return 0.0
        wanted = min(max(HELD_OUT_SHARE * n_rows, LEAST_HELD_OUT), MOST_HELD_OUT)
        return float(min(wanted / n_rows, MOST_HELD_OUT_SHARE))

    @property
    def loo_calibration(self) -> bool:
        """Whether leave-one-out scores calibrate predictions: where rows are too few to hold any out.

        Without the penalty these scores are much too good, since the inducing points follow the rows.
        """
        if self.asked.validation_fraction != "auto" or self.asked.own_validation:
            return False
        if self.validation_fraction or self.asked.n_rows >= FEWEST_ROWS_TO_HOLD_OUT:
            return False
        if self.schedule != "steps" or self.moves_by_gradient or self.asked.site_storage != "sites":
            return False
        is_safe = self.residual_scale == 1.0 and self.trace_penalty == 1.0
        return self.asked.method == "vi" or is_safe


def points_of_a_leaf(n_local: int | str | None) -> int:
    """Number of inducing points of a leaf; the user's, if they have given one."""
    return DEFAULT_POINTS if n_local is None or n_local == "auto" else int(n_local)


def stream_optimizer(asked: Optimizer | str | None) -> Optimizer:
    """What takes the steps of a stream, whose rows are seen once: the user's own optimiser, or Adam."""
    return asked if isinstance(asked, Optimizer) else Adam(STREAM_RATE)


def stream_batch_size(asked: int | str | None, width: int) -> int:
    """Rows of a minibatch of a stream: those that were asked for, or enough for the m×m algebra.

    width: number of global inducing points, plus those of a leaf if there are leaves.

    >>> [stream_batch_size("auto", width) for width in (100, 400)], stream_batch_size(50, 100)
    ([1000, 2000], 50)
    """
    if asked is None or isinstance(asked, str):
        return max(BATCH_PER_POINT * width, LEAST_BATCH)
    return int(asked)


def leaves_with_enough_rows(n_rows: int, width: int) -> int:
    """How many leaves, a power of two, have so many rows that a posterior of them averages over no more.

    width: number of global inducing points, plus those of a leaf if there are leaves.

    >>> [leaves_with_enough_rows(n_rows, 120) for n_rows in (10_000, 50_000, 500_000)]
    [1, 4, 32]
    """
    return int(2 ** max(0, round(math.log2(n_rows / (GAIN_WINDOW * width)))))

"""All settings of a training run: `TrainingConfig`, and `resolve`, which makes it.

`resolve` decides each "auto" by arithmetic on the number of rows, inducing points and classes
(`cavity.inference.decisions`). All other modules read the configuration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from textwrap import fill
from typing import Any, TypeAlias

from cavity.data.labels import n_latents
from cavity.inference.config_checks import check_fields, check_together
from cavity.inference.decisions import Decisions, Request
from cavity.inference.optimizers import Optimizer
from cavity.text import abbreviated
from cavity.typing import JsonObject

ConfigFields: TypeAlias = dict[str, Any]
"""Fields of `TrainingConfig` by name."""


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
    rows_of_a_leaf: int | None
    """About how many rows of one leaf a minibatch has, if there are leaves."""
    optimizer: Optimizer | None
    """How kernel and inducing points move; None for L-BFGS, and when nothing is learned."""
    schedule: str
    """"steps" (the optimiser moves the parameters step by step), "lbfgs", or "converge" (they stay)."""
    max_epochs: float
    max_seconds: float
    """Infinite without a budget in seconds."""
    full_rate_steps: float
    """A run with fewer minibatch steps than this takes longer steps; 0 turns that off."""
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
    loo_calibration: bool
    """Whether leave-one-out scores calibrate predictions, if no rows are held out."""
    checkpoint_interval: float
    """Seconds between two checkpoints."""
    seed: int

    @property
    def n_latents(self) -> int:
        """Number of latent functions: one for two classes, else one per class."""
        return n_latents(self.n_classes)

    def as_dict(self) -> JsonObject:
        """The settings as plain values, ready for JSON."""
        plain = {**asdict(self), "optimizer": None if self.optimizer is None else repr(self.optimizer)}
        return {name: None if value == math.inf else value for name, value in plain.items()}

    def __str__(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in self.as_dict().items())

    def __repr__(self) -> str:
        words = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return fill(f"TrainingConfig({abbreviated(words)})", 79, subsequent_indent="    ")


def resolve(
    n_rows: int,
    n_classes: int = 2,
    *,
    method: str = "ep",
    likelihood: str = "probit",
    n_inducing: int | str = "auto",
    feature_set: str | None = None,
    feature_sets: Sequence[str] = (),
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
    own_validation: bool = False,
    checkpoint_interval: float = 60.0,
    seed: int = 0,
) -> TrainingConfig:
    """Decide what every "auto" means for a number of rows and classes, without a look at the rows.

    A race between configurations (`cavity.inference.race`) gives the fields that it decides by name.
    feature_sets: names of the sets of features that the rows have, smallest first; own_validation:
    whether the user has validation rows of their own.

    >>> [resolve(n_rows).batch_size for n_rows in (1_000, 60_000, 1_000_000, 10**8)]
    [None, 1000, 1000, 2000]
    >>> [resolve(n_rows).validation_fraction for n_rows in (1_000, 2_000, 60_000, 1_000_000)]
    [0.0, 0.25, 0.1, 0.02]
    """
    asked = Request(**locals())
    check_fields(vars(asked))
    auto = Decisions(asked)
    check_together(auto)
    # int, float and bool make NumPy's numbers plain ones, as JSON needs them.
    return TrainingConfig(
        method=method,
        likelihood=likelihood,
        n_classes=int(n_classes),
        n_inducing=auto.n_inducing,
        feature_set=auto.feature_set,
        n_predicting=auto.n_predicting,
        n_leaves=None if n_leaves is None else int(n_leaves),
        n_local=auto.n_local,
        inducing_init=inducing_init,
        learn_kernel=auto.learns,
        learn_inducing=auto.learns and learn_inducing,
        kernel_name=auto.kernel_name,
        kernel_start=None if kernel_start is None else tuple(map(float, kernel_start)),
        scaling=auto.scaling,
        batch_size=auto.batch_size,
        rows_of_a_leaf=auto.rows_of_a_leaf,
        optimizer=auto.optimizer,
        schedule=auto.schedule,
        max_epochs=auto.max_epochs,
        max_seconds=math.inf if max_seconds is None else float(max_seconds),
        full_rate_steps=auto.full_rate_steps,
        cools=auto.cools,
        damping=auto.damping,
        tol=float(tol),
        exact_gradient=exact_gradient,
        posterior_update=posterior_update,
        site_storage=auto.site_storage,
        rebuild_posterior=auto.rebuild_posterior,
        summed_site_gradient=auto.summed_site_gradient,
        smallest_gain=auto.smallest_gain,
        residual_scale=auto.residual_scale,
        trace_penalty=auto.trace_penalty,
        hyperprior_scale=None if hyperprior_scale is None else float(hyperprior_scale),
        subsample=auto.subsample,
        early_stopping=auto.early_stopping,
        validation_fraction=auto.validation_fraction,
        loo_calibration=auto.loo_calibration,
        checkpoint_interval=float(checkpoint_interval),
        seed=int(seed),
    )

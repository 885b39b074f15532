"""Where a fit begins: fresh, where the last fit ended, or where inducing points have grown."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cavity.engines.threads import Threads
from cavity.estimators.growing import STREAM_POINTS, grown_start, halfway_kernel
from cavity.estimators.validation import validated_inducing_points
from cavity.parameters import ParameterSpace
from cavity.posterior import Posterior
from cavity.problem import starting_point
from cavity.rules.protocol import Rule
from cavity.schedules.progress import Progress
from cavity.sources.protocol import Source
from cavity.standardize import Standardizer
from cavity.typing import Array


class Start(NamedTuple):
    """Parameters to begin with, and what is known of q there."""

    space: ParameterSpace
    centre: Array | None = None
    """Of the hyper-prior; None is the start itself."""
    posterior: Posterior | None = None
    """None is the prior."""
    earlier: Any = None
    """An engine whose rows have sites to go on with."""
    pretrained: bool = False
    """See `Problem.pretrained`."""
    interrupted: bool = False
    """See `Problem.interrupted`."""


def continued_start(estimator: Any, standardizer: Standardizer, rule: Rule) -> Start:
    """Where the estimator's last fit ended; q too, if it had as many latent functions."""
    before, now = estimator.inducing_points_.shape[1], standardizer.mean.shape[0]
    if before != now:
        raise ValueError(
            f"X has {now} features, but with warm_start=True this {type(estimator).__name__} goes on "
            f"from a fit with {before}; pass as many, or set warm_start=False to begin anew"
        )
    Z = standardizer.apply(estimator.inducing_points_, np.dtype(np.float64))
    space = _space(estimator, estimator.kernel_, Z)
    if estimator.model_.rule.n_latents != rule.n_latents:
        return Start(space, _centre(estimator, space))
    earlier = getattr(estimator, "_training", None)
    return Start(space, _centre(estimator, space), estimator.model_.posterior, earlier)


def _centre(estimator: Any, space: ParameterSpace) -> Array:
    """Of the hyper-prior: that of the last fit, as far as it had one for what is learned now.

    The inducing points, which come last, have none.
    """
    centre = space.start
    before = getattr(estimator, "_centre", centre)  # files of old have none of a stream
    if len(before) >= space.n_theta:
        centre[: space.n_theta] = before[: space.n_theta]
    return centre


def chosen_start(
    estimator: Any,
    source: Source,
    standardizer: Standardizer,
    rule: Rule,
    threads: Threads,
    rng: np.random.RandomState,
    progress: Progress | None,
    holds_out: bool,
) -> Start:
    """Inducing points chosen among the rows; without `progress` it is the beginning of a stream."""
    m, kernel, before, interrupted = estimator.n_inducing, estimator.kernel, None, False
    vars(estimator).pop("inducing_path_", None)  # of an earlier fit
    if m == "auto":
        m = STREAM_POINTS
        if estimator.inducing_points is None and progress is not None:
            grown = grown_start(estimator, source, standardizer, rule, threads, rng, progress)
            m, estimator.inducing_path_, interrupted = len(grown.Z), grown.path, grown.interrupted
            if not holds_out:  # the growth has seen rows that are to be held out
                before = grown.theta
                if grown.on_all_rows:
                    space = _space(estimator, grown.kernel, grown.Z)
                    centre = space.pack(before, grown.Z)
                    return Start(space, centre, None, grown.engine, True, interrupted)
                kernel = halfway_kernel(grown)
    kernel, Z = starting_point(
        source,
        standardizer,
        kernel=kernel,
        inducing_points=validated_inducing_points(estimator.inducing_points, source.n_features),
        n_inducing=min(m, source.n_rows),
        init_inducing=estimator.init_inducing,
        rng=rng,
    )
    space = _space(estimator, kernel, Z)
    return Start(space, None if before is None else space.pack(before, Z), interrupted=interrupted)


def _space(estimator: Any, kernel: Any, Z: Array) -> ParameterSpace:
    learns = estimator._learns
    return ParameterSpace(
        kernel, Z, learn_kernel=learns, learn_inducing=learns and estimator.learn_inducing
    )

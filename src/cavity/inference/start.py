"""Where training begins: kernel, inducing points, posterior, and the problem made of them.

`open_rows` and `prepare_trainer` are where your own training loop begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from sklearn.base import clone

from cavity.data.opening import open_labelled_rows
from cavity.data.routing import Routing, by_leaf, learn_tree
from cavity.data.sampling import HeldOut
from cavity.data.scaling import Scaling
from cavity.data.source import RowSource, Source
from cavity.engines.backend import Backend
from cavity.engines.local import LocalBackend
from cavity.engines.protocol import Engine
from cavity.engines.threads import compute_context, thread_count
from cavity.gp.inducing import (
    default_kernel,
    initial_inducing_points,
    median_distance,
    sample_size,
    starting_rows,
)
from cavity.gp.kernels import bind
from cavity.gp.leaves import Leaves
from cavity.gp.model import Model
from cavity.gp.parameters import ParameterSpace
from cavity.gp.posterior import Posterior
from cavity.inference.config import TrainingConfig
from cavity.inference.rule import Rule
from cavity.inference.train import make_rule, make_trainer
from cavity.inference.trainer import Problem, Trainer, make_problem
from cavity.memory import require_memory
from cavity.typing import FLOAT64, AnyArray, Array, InputLabels, InputRows, InputWeights

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel


@dataclass(frozen=True)
class Start:
    """Parameters to begin with, and what is known about the posterior there."""

    space: ParameterSpace
    centre: Array | None = None
    """Centre of the hyper-prior; None is the start itself."""
    posterior: Posterior | None = None
    """The posterior to begin with; None is the prior."""
    engine: Engine | None = None
    """An engine whose rows have sites to go on with."""
    leaves: Leaves | None = None
    """The leaves with inducing points of their own, if there are any."""

    def at(self, theta: Sequence[float] | None) -> Start:
        """The same start at other kernel parameters; None changes nothing.

        The hyper-prior stays where it was: the data move the start, not the prior.
        """
        if theta is None:
            return self
        kernel = self.space.kernel
        if self.leaves is not None and len(theta) == len(kernel.k1.theta) == len(kernel.k2.theta):
            theta = (*theta, *theta)  # those of a model without leaves: g and r both begin there
        if len(theta) != len(kernel.theta):
            raise ValueError(
                f"kernel_start has {len(theta)} numbers, and the kernel {kernel} has "
                f"{len(kernel.theta)} parameters to learn; pass one number for each, or "
                "kernel_start=None"
            )
        centre = self.space.start if self.centre is None else self.centre
        moved = kernel.clone_with_theta(np.array(theta, dtype=np.float64))
        return replace(self, space=replace(self.space, kernel=moved), centre=centre)


MakeStart: TypeAlias = Callable[[Scaling, TrainingConfig], Start]
"""Makes the start of a fit from a scaling of its inputs and a configuration."""


@dataclass(frozen=True)
class PreviousFit:
    """What a warm start takes over from an earlier fit."""

    kernel: Kernel
    inducing_points: Array
    """[m, d], in the units of the user."""
    model: Model
    centre: Array | None
    """Centre of the earlier fit's hyper-prior."""
    engine: Engine | None


_SAMPLE_PER_LOCAL_POINT = 5
"""Rows drawn for each inducing point of a leaf."""
_LEAF_COPIES = 5
"""Arrays [C, m + m_k, m + m_k] of every leaf that a fit holds at once, about."""
WHITENING_ARRAYS = 4
"""Arrays [d, d] that whitening holds, about."""


def learn_scaling(source: RowSource, config: TrainingConfig, backend: Backend) -> Scaling:
    """Learn centre and scale of the features; refuse to whiten more of them than memory allows."""
    if config.scaling == "whiten":
        d = source.n_features
        what = f'scaling="whiten" for {d:,} features'
        require_memory(WHITENING_ARRAYS * 8 * d**2, what, instead='scaling="standard"')
    return backend.learn_scaling(source, config.scaling)


def hold_out_rows(source: RowSource, config: TrainingConfig, backend: Backend) -> HeldOut | None:
    """The rows that take no part in training, if the configuration asks for them."""
    if not config.validation_fraction:
        return None
    return backend.hold_out(source, config.validation_fraction, config.seed)


def prepare(
    source: RowSource,
    config: TrainingConfig,
    backend: Backend,
    *,
    scaling: Scaling,
    start: Start,
    held_out: HeldOut | None = None,
    rule: Rule | None = None,
) -> Problem:
    """The problem of fitting a source from a start: engine, parameter space and hyper-prior.

    rule: a rule of your own; None makes the one that the configuration names.
    """
    m, rule = len(start.space.Z), make_rule(config) if rule is None else rule
    n_directions = m if config.site_storage == "factors" else 0
    if n_directions:
        require_memory(
            4 * source.n_rows * m,
            f'site_storage="factors" for {source.n_rows:,} rows and m={m}',
            instead='fewer inducing points, or site_storage="sites", which needs two numbers a row',
        )
    if start.leaves is not None:
        require_memory_for_leaves(m, start.leaves.sizes, rule.n_latents)
        source = backend.with_leaves(source, start.leaves.routing, config.rows_of_a_leaf)
    engine = backend.engine(source, scaling, rule.n_latents, held_out, n_directions)
    if held_out is not None:
        _require_weight_on_both_sides(engine, held_out, config.validation_fraction)
    adopted = engine.adopt(start.engine)
    # A posterior that is the sum of stored factors cannot begin with another one.
    posterior = None if n_directions and not adopted else start.posterior
    return make_problem(
        engine,
        rule,
        start.space,
        config.hyperprior_scale,
        centre=start.centre,
        posterior=posterior,
        leaves=start.leaves,
    )


def open_problem(
    source: RowSource,
    config: TrainingConfig,
    backend: Backend,
    make_start: MakeStart,
    held_out: HeldOut | None,
    *,
    scaling: Scaling | None = None,
    start: Start | None = None,
) -> Problem:
    """The problem of fitting a source as a configuration says.

    scaling, start: of the inputs, and where training begins, if they are known already.
    """
    scaling = scaling or learn_scaling(source, config, backend)
    start = start or make_start(scaling, config)
    return prepare(source, config, backend, scaling=scaling, start=start, held_out=held_out)


def require_memory_for_leaves(m: int, sizes: Sequence[int], n_latents: int) -> None:
    """Refuse more leaves and points than memory allows: leaves with so many points, besides m."""
    require_memory(
        _LEAF_COPIES * 8 * n_latents * sum((m + size) ** 2 for size in sizes),
        f"{len(sizes):,} leaves with {max(sizes)} inducing points each, besides {m} for all rows",
        instead="fewer leaves, or fewer points (n_local, n_inducing)",
    )


def _require_weight_on_both_sides(engine: Engine, held_out: HeldOut, fraction: float) -> None:
    """Raise if the held-out rows, or the others, have no weight."""
    judging = held_out.weight
    if judging <= 0.0 or engine.total_weight <= 0.0:
        raise ValueError(
            f"validation_fraction={fraction!r} of {engine.n_rows:,} rows leaves no weight to "
            f"{'judge' if judging <= 0.0 else 'learn'} by; pass another fraction, or rows without those "
            "of weight 0"
        )


def chosen_start(
    source: RowSource,
    scaling: Scaling,
    config: TrainingConfig,
    *,
    kernel: Kernel | None = None,
    inducing_points: Array | None = None,
    routing: Routing | None = None,
    held_out: HeldOut | None = None,
) -> Start:
    """Inducing points chosen among the rows, or the given ones [m, d] in the units of the user.

    routing: which leaf a row falls into, if there are leaves; None learns a tree. held_out: the rows
    whose labels that tree must not know.
    """
    own, Z = kernel_and_points(
        source,
        scaling,
        kernel=kernel,
        inducing_points=inducing_points,
        n_inducing=min(config.n_inducing, source.n_rows),
        inducing_init=config.inducing_init,
        kernel_name=config.kernel_name,
        rng=np.random.RandomState(config.seed),
    )
    leaves = None
    if config.n_leaves is not None:
        assert config.n_local is not None
        if routing is None:
            unknown = None if held_out is None else held_out.numbers
            routing = learn_tree(source, config.n_leaves, config.seed, unknown)
        local, leaves = _leaves_to_start(source, scaling, config, kernel, own, Z, routing)
        own = own + local
    start = Start(ParameterSpace(own, Z, config.learn_kernel, config.learn_inducing), leaves=leaves)
    return start.at(config.kernel_start)


def _leaves_to_start(
    source: RowSource,
    scaling: Scaling,
    config: TrainingConfig,
    kernel: Kernel | None,
    own: Kernel,
    Z: Array,
    routing: Routing,
) -> tuple[Kernel, Leaves]:
    """The kernel of r and the inducing points of every leaf, from a sample of the rows.

    own, Z: kernel and inducing points of g. A leaf without rows has some of the global points.
    """
    assert config.n_local is not None
    m, K = config.n_local, routing.n_leaves
    rng = np.random.RandomState(config.seed)
    size = min(sample_size(m * K, n_features=source.n_features), _SAMPLE_PER_LOCAL_POINT * m * K)
    rows = source.sample(size, np.random.default_rng(config.seed + 1))
    X = scaling.apply(rows.X, FLOAT64)
    members = dict(by_leaf(routing(rows.X)))
    if kernel is None:
        some = [members[leaf] for leaf in list(members)[:: max(1, len(members) // 16)]]
        distance = float(np.median([median_distance(X[part], rng) for part in some]))
        local = _named_kernel(config.kernel_name, source.n_features, distance)
    else:
        local = clone(kernel)
    points = []
    for leaf in range(K):
        if leaf not in members:
            points.append(Z[:m].copy())
            continue
        weight = None if rows.weight is None else rows.weight[members[leaf]]
        points.append(
            initial_inducing_points(X[members[leaf]], weight, m, config.inducing_init, local, rng)
        )
    return local, Leaves(routing, tuple(points))


def cached_starts(make_start: MakeStart) -> MakeStart:
    """The same starts, with the inducing points chosen once for configurations that share them."""
    known: dict[tuple[object, ...], Start] = {}

    def start(scaling: Scaling, config: TrainingConfig) -> Start:
        key = (
            config.scaling,
            config.feature_set,
            config.n_inducing,
            config.kernel_name,
            config.n_leaves,
            config.n_local,
        )
        if key not in known:
            known[key] = make_start(scaling, replace(config, kernel_start=None))
        return known[key].at(config.kernel_start)

    return start


def continued_start(previous: PreviousFit, scaling: Scaling, config: TrainingConfig) -> Start:
    """Where an earlier fit ended; with its posterior if it had as many latent functions."""
    Z = scaling.apply(previous.inducing_points, FLOAT64)
    space = ParameterSpace(previous.kernel, Z, config.learn_kernel, config.learn_inducing)
    # The hyper-prior keeps its centre for the kernel parameters, which come first in the vector.
    centre = space.start
    if previous.centre is not None and len(previous.centre) >= space.n_theta:
        centre[: space.n_theta] = previous.centre[: space.n_theta]
    model, leaves, posterior = previous.model, None, previous.model.posterior
    if model.local is not None:
        before = model.local.leaves
        points = [scaling.apply(model.scaling.invert(Z), FLOAT64) for Z in before.points]
        leaves = Leaves(before.routing, tuple(points))
        posterior = model.local.naturals.posterior()
    if model.likelihood.n_latents != config.n_latents:
        return Start(space, centre, leaves=leaves)
    return Start(space, centre, posterior, previous.engine, leaves)


def kernel_and_points(
    source: RowSource,
    scaling: Scaling,
    *,
    kernel: Kernel | None,
    inducing_points: Array | None,
    n_inducing: int,
    inducing_init: str,
    kernel_name: str | None,
    rng: np.random.RandomState,
) -> tuple[Kernel, Array]:
    """Kernel and standardised inducing points [m, d] to start from."""
    kernel = None if kernel is None else clone(kernel)
    if inducing_points is not None:
        Z = scaling.apply(inducing_points, FLOAT64)
        return kernel or _named_kernel(kernel_name, source.n_features, median_distance(Z, rng)), Z
    draw = np.random.default_rng(rng.randint(2**31))
    size = sample_size(n_inducing, inducing_init, source.n_features)
    raw, weight = starting_rows(source, size, draw)
    X = scaling.apply(raw, FLOAT64)
    if kernel is None:
        # Distances between rows, not between cluster centres: those shrink with the number of clusters.
        distance = median_distance(X, rng, weight)
        kernel = _named_kernel(kernel_name, source.n_features, distance)
    bind(kernel, X[:1])  # an unknown kernel fails here, before the work starts
    return kernel, initial_inducing_points(X, weight, n_inducing, inducing_init, kernel, rng)


def _named_kernel(name: str | None, n_features: int, lengthscale: float) -> Kernel:
    """The kernel of this name; the configuration has none if it is for a kernel of the user's own."""
    if name is None:
        raise ValueError(
            "kernel_name=None is for a kernel of your own, and there is none: pass kernel, or set "
            'kernel_name="auto"'
        )
    return default_kernel(n_features, lengthscale, name)


@dataclass(frozen=True)
class TrainingRows:
    """Rows with labels, open for training."""

    source: Source
    classes: AnyArray
    """[C]: the values behind the class codes."""
    backend: Backend

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.source.n_rows)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)


@contextmanager
def open_rows(
    X: InputRows,
    y: InputLabels = None,
    sample_weight: InputWeights = None,
    *,
    n_jobs: int | None = None,
) -> Iterator[TrainingRows]:
    """Open rows X [n, d] with labels y [n] and weights [n] for training; takes what `fit` takes.

    Inside this context `n_jobs` threads (None: all cores) run the passes, with one BLAS thread each.
    """
    rows = open_labelled_rows(X, y, sample_weight)
    with compute_context(thread_count(n_jobs)) as threads:
        yield TrainingRows(rows.source, rows.classes, LocalBackend(threads))


def prepare_trainer(
    rows: TrainingRows,
    config: TrainingConfig,
    *,
    kernel: Kernel | None = None,
    inducing_points: Array | None = None,
    routing: Routing | None = None,
) -> Trainer:
    """Learn the scaling, choose kernel and inducing points, and make the trainer for these rows.

    inducing_points: [m, d] in the units of X; None chooses them among the rows. With
    `validation_fraction` some rows are held out: `validation_score` scores them. routing: which
    leaf a row falls into, if the configuration has leaves (`cavity.data.routing`); None learns a tree.
    """
    source, backend = rows.source, rows.backend
    held_out = hold_out_rows(source, config, backend)
    make_start = partial(
        chosen_start,
        source,
        kernel=kernel,
        inducing_points=inducing_points,
        routing=routing,
        held_out=held_out,
    )
    return make_trainer(open_problem(source, config, backend, make_start, held_out), config)

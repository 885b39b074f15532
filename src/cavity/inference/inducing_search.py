"""Growing the inducing points until the leave-one-out score stops improving.

The ladder is geometric. On each rung the points of the last one stay, more rows join them, those of the
greatest conditional variance times site precision, and kernel and points follow in a few steps. The rows
keep their sites from rung to rung, so EP is soon back at its fixed point. Before the next rung is tried,
this one is trained until that gains nothing any more: else the gain of more steps would pass for one of
more points.

A score from the cavities leaves out a row's site, but not what the inducing points have learned of the
row when they moved; the fewer they are, the more that flatters. So each row is charged half of what
training charges it for the variance that the points leave unexplained, and the charged scores are
compared: about half of that variance is what other rows cannot explain either, however many points.

A gain counts if it exceeds its price by more than its standard error. The price of a rung rises with the
square of its points, as the time of a step does. A rung is only tried if its gain would be worth that on
a line with the last two gains, taken for no more than the last and no less than half of it.

Where `n_inducing="auto"` is decided: inducing points grow on the rows, or on a pilot of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from cavity.data.arrays import ArraySource
from cavity.data.scaling import Standardizer
from cavity.data.source import Source
from cavity.engines.local import LocalEngine
from cavity.engines.threads import Threads
from cavity.gp.inducing import conditional_variance, extended_greedily
from cavity.gp.parameters import ParameterSpace
from cavity.gp.tiles import Sites
from cavity.inference.config import TrainingConfig
from cavity.inference.converge import FixedPoint, converge
from cavity.inference.history import InducingCandidate, Progress
from cavity.inference.optimizers import Adam
from cavity.inference.rule import Rule
from cavity.inference.schedule import Budget
from cavity.inference.start import starting_point
from cavity.inference.sweep import SweepOptions
from cavity.inference.trainer import Batch, Problem, Trainer, make_problem
from cavity.memory import available_bytes
from cavity.typing import Array

LADDER = (25, 50, 100, 200, 400)
"""Numbers of inducing points that are tried."""
CHARGE = 0.5
"""Share of training's charge ½ν̃s that a row is charged here."""
_STEPS = 15
"""Steps of kernel and points in a round."""
_FIRST_ROUNDS = 8
_ROUNDS = 3
"""Rounds on the first rung and on the others, at most …"""
_ROUND_GAIN = 0.005
"""… as long as each gains so much, relatively."""
_RATE = 0.1
_EP_TOL = 1e-2
_MOST_SWEEPS = 5
_COST = 5.0
"""What a rung costs at most, in units of the one before: four times the products, and m×m algebra."""
_LEAST_SHARE = 0.5
"""What the next doubling may be expected to gain at least, in units of the last; at most as much."""
_OPTIONS = SweepOptions(damping=0.5, trace_penalty=1.0)


class Grown(NamedTuple):
    """Where a climb ended."""

    kernel: Any
    Z: Array
    """[m, d], standardised: as many points as are enough."""
    sites: Sites
    """Of the engine's rows."""
    path: list[InducingCandidate]
    """Every rung that was tried to its end."""
    interrupted: bool = False
    """Whether the user has stopped the climb."""


class _Trial(NamedTuple):
    """One number of points, as far as it is trained."""

    point: FixedPoint
    sites: Sites
    scores: Array
    """[n]: leave-one-out log probability of a row's label, less the row's charge."""
    charge: float
    """The mean of the charges."""


class Gain(NamedTuple):
    """How much better the rows of one trial are scored than those of another."""

    value: float
    """Relative to the score before."""
    error: float = 0.0
    """Standard error of `value`: the rows are a sample."""

    def is_worth(self, price: float) -> bool:
        """Whether it exceeds its price by more than chance.

        >>> Gain(0.02, 0.005).is_worth(0.01), Gain(0.02, 0.015).is_worth(0.01)
        (True, False)
        """
        return self.value - self.error >= price


@dataclass
class _Course:
    """How far a climb has come."""

    best: _Trial | None = None
    last: Gain = field(default_factory=lambda: Gain(0.0))
    """Of the last rung that was worth its price."""
    path: list[InducingCandidate] = field(default_factory=list)


@dataclass(frozen=True)
class Growth:
    """How far to climb."""

    price: float
    """Relative gain in charged leave-one-out NLL that the last rung of LADDER must be worth."""
    learn_kernel: bool = True
    learn_inducing: bool = True
    deviation: float | None = 1.0
    """Of the hyper-prior."""
    max_seconds: float = np.inf
    options: SweepOptions = field(default_factory=lambda: _OPTIONS)

    def run(
        self,
        engine: LocalEngine,
        rule: Rule,
        kernel: Any,
        X: Array,
        ladder: Sequence[int],
        clock: Progress,
    ) -> Grown:
        """Kernel and points of the rung that is enough, and the rungs that were tried.

        X [n, d] are the rows of the engine's source, standardised. The first rung is always tried, the
        second if there is time; another one only if it promises to be worth its price.
        """
        climb = _Climb(self, engine, rule, X, _weight(engine, len(X)), kernel.theta)
        course, interrupted = _Course(), False
        try:
            self._follow(course, climb, kernel, ladder, clock)
        except KeyboardInterrupt:
            if course.best is None:  # nothing has been learned
                raise
            interrupted = True
        assert course.best is not None
        prior = course.best.point.prior
        return Grown(prior.kernel, prior.Z, course.best.sites, course.path, interrupted)

    def _follow(
        self, course: _Course, climb: _Climb, kernel: Any, ladder: Sequence[int], clock: Progress
    ) -> None:
        """Climb as long as it pays; the course has whatever has been reached."""
        begun, engine, X = clock.seconds, climb.engine, climb.X
        Z: Array = np.zeros((0, X.shape[1]))
        for m, following in zip(ladder, [*ladder[1:], None], strict=True):
            started, best = clock.seconds, course.best
            precision = np.ones(len(X)) if best is None else engine.sites.precision.sum(axis=0)
            Z = extended_greedily(Z, X, precision, m, kernel)
            trial = climb.round(kernel, Z)
            gain = Gain(np.inf) if best is None else climb.gain(best, trial)
            taken = gain.is_worth(self.price_of(m))
            climbs = taken and len(Z) == m and self._promises(course.last, gain, following)
            if taken:
                course.best, course.last = trial, gain
            if climbs:
                left = self.max_seconds - (clock.seconds - begun)
                trial = climb.trained(trial, _FIRST_ROUNDS if best is None else _ROUNDS, clock, left)
                course.best = trial
            kernel, Z = trial.point.prior.kernel, trial.point.prior.Z
            rung = _rung(trial, clock.seconds - started)
            course.path.append(rung)
            clock.say(
                f"m = {len(Z)}: leave-one-out NLL {-rung.loo_score:.4f} + {trial.charge:.4f}, "
                f"{rung.seconds:.2f} s"
            )
            affordable = clock.seconds - begun + _COST * rung.seconds <= self.max_seconds
            if not (climbs and affordable):
                break

    def price_of(self, m: int) -> float:
        """The gain that m points must be worth.

        >>> growth = Growth(price=0.04)
        >>> growth.price_of(400), growth.price_of(200)
        (0.04, 0.01)
        """
        return self.price * (m / LADDER[-1]) ** 2

    def _promises(self, before: Gain, gain: Gain, following: int | None) -> bool:
        """Whether the following rung, if any, would be worth its price if gains went on as they did."""
        if following is None:
            return False
        on_a_line = 2.0 * gain.value - before.value
        expected = min(gain.value, max(_LEAST_SHARE * gain.value, on_a_line))
        return expected >= self.price_of(following)


@dataclass(frozen=True)
class _Climb:
    """What stays the same from rung to rung."""

    growth: Growth
    engine: LocalEngine
    rule: Rule
    X: Array
    weight: Array | None
    centre: Array
    """Kernel theta at which the hyper-prior is centred."""

    def round(self, kernel: Any, Z: Array) -> _Trial:
        """Some steps from a kernel and points, then EP at where they lead."""
        growth, engine = self.growth, self.engine
        space = ParameterSpace(kernel, Z, growth.learn_kernel, growth.learn_inducing)
        problem = make_problem(
            engine, self.rule, space, growth.deviation, centre=space.pack(self.centre, Z)
        )
        x = self._steps(problem) if growth.learn_kernel else space.start
        point = converge(engine, problem.prior(x), self.rule, tol=_EP_TOL, max_sweeps=_MOST_SWEEPS)
        if point.interrupted:
            raise KeyboardInterrupt
        return self._scored(point)

    def trained(self, trial: _Trial, n_rounds: int, clock: Progress, max_seconds: float) -> _Trial:
        """A trial after more rounds, as long as they gain anything."""
        begun = clock.seconds
        for _ in range(1, n_rounds if self.growth.learn_kernel else 1):
            if clock.seconds - begun > max_seconds:
                break
            after = self.round(trial.point.prior.kernel, trial.point.prior.Z)
            gain, trial = self.gain(trial, after), after
            if gain.value < _ROUND_GAIN:
                break
        return trial

    def _steps(self, problem: Problem) -> Array:
        trainer = Trainer(problem, Adam(_RATE), self.growth.options, rebuild=True)
        budget, state = Budget(max_epochs=_STEPS), trainer.init()
        for step in range(_STEPS):
            state, _ = trainer.step(state, Batch(rate=budget.rate(step / _STEPS)))
        return state.x

    def _scored(self, point: FixedPoint) -> _Trial:
        engine, prior = self.engine, point.prior
        residual = conditional_variance(prior.Z, self.X, prior.kernel)
        charges = CHARGE * 0.5 * engine.sites.precision.sum(axis=0) * residual
        sites = Sites(engine.sites.precision.copy(), engine.sites.shift.copy())
        return _Trial(point, sites, engine.log_predictive - charges, self._mean(charges))

    def gain(self, before: _Trial, after: _Trial) -> Gain:
        """Of the charged leave-one-out score, row by row."""
        gains = after.scores - before.scores
        gain, scale = self._mean(gains), max(abs(self._mean(before.scores)), 1e-12)
        weight = len(gains) if self.weight is None else float(self.weight.sum())
        error = np.sqrt(self._mean((gains - gain) ** 2) / weight)
        return Gain(gain / scale, float(error) / scale)

    def _mean(self, values: Array) -> float:
        return float(np.average(values, weights=self.weight))


def _weight(engine: LocalEngine, n_rows: int) -> Array | None:
    return next(iter(engine.source.blocks(n_rows))).load().weight


def _rung(trial: _Trial, seconds: float) -> InducingCandidate:
    return InducingCandidate(
        len(trial.point.prior.Z), trial.point.mean_log_predictive, seconds, trial.charge
    )


WHOLE_ROWS = 10_000
"""Rows up to which the growth sees them all, as training does …"""
PILOT_ROWS = 4_000
"""… and those that it sees of more, in both cases …"""
PILOT_VALUES = 5_000_000
"""… if they have no more values than this."""
PRICE = 0.06
"""Relative gain in leave-one-out NLL that 400 points must be worth …"""
FEW_ROWS = 2_000
"""… to so many rows, or fewer; of more, each has its share of the price."""
SEARCH_SHARE = 0.4
"""Share of max_seconds that the growth may take."""
MEMORY_SHARE = 0.5
"""Share of the memory there is that m×m arrays may take."""
DEFAULT_POINTS = 100
"""Inducing points where n_inducing="auto" cannot search: a stream shows its rows once."""
_SQUARES = 8
"""Arrays [m, m] that training holds for each latent function, about."""


class SearchedStart(NamedTuple):
    """Where training begins after the search for the number of inducing points."""

    kernel: Any
    Z: Array
    """[m, d], standardised."""
    theta: Array
    """Kernel parameters before the search: the centre of the hyper-prior."""
    candidates: list[InducingCandidate]
    on_all_rows: bool
    """Whether the search has seen all rows, not a sample."""
    engine: LocalEngine | None
    """Holds the rows' sites, if the search has seen all rows in their order."""
    interrupted: bool


def search_inducing_points(
    source: Source,
    standardizer: Standardizer,
    config: TrainingConfig,
    rule: Rule,
    threads: Threads,
    rng: np.random.RandomState,
    clock: Progress,
    kernel: Any = None,
) -> SearchedStart:
    """Find how many inducing points are enough for these rows, and a kernel that fits them."""
    kernel, _ = starting_point(
        source,
        standardizer,
        kernel=kernel,
        inducing_points=None,
        n_inducing=min(LADDER[0], source.n_rows),
        inducing_init="random",
        rng=rng,
    )
    pilot = _pilot(source, np.random.default_rng(rng.randint(2**31)))
    growth = Growth(
        price=price(source.n_rows, pilot.n_rows),
        learn_kernel=config.learn_kernel,
        learn_inducing=config.learn_inducing,
        deviation=config.hyperprior_scale,
        max_seconds=SEARCH_SHARE * config.max_seconds,
    )
    engine = LocalEngine(pilot, standardizer, rule.n_latents, threads)
    X = standardizer.apply(pilot.X, np.dtype(np.float64))
    rungs = ladder(pilot.n_rows)
    grown = growth.run(engine, rule, kernel, X, _affordable(rungs, rule.n_latents), clock)
    engine.sites = grown.sites
    seen = source.n_rows == pilot.n_rows
    adopted = isinstance(source, ArraySource) and seen and config.site_storage == "sites"
    return SearchedStart(
        grown.kernel,
        grown.Z,
        kernel.theta,
        grown.path,
        on_all_rows=seen,
        engine=engine if adopted else None,
        interrupted=grown.interrupted,
    )


def halfway_kernel(grown: SearchedStart) -> Any:
    """The kernel half way, in log scale, from that before the growth to the one that a pilot has led to.

    All rows show more detail than a pilot, in features too that do not seem to matter in it.
    """
    return grown.kernel.clone_with_theta(0.5 * (grown.theta + grown.kernel.theta))


def price(n_rows: int, n_seen: int) -> float:
    """What 400 points must be worth to `n_rows` rows of which a pilot has `n_seen`.

    The more rows there are, the more detail they show and the more points they can place; and of a gain
    a pilot shows a part.

    >>> [price(n_rows, n_rows) for n_rows in (500, 2_000, 10_000)], round(price(20_000, 4_000), 6)
    ([0.06, 0.06, 0.012], 0.0012)
    """
    return PRICE * min(1.0, FEW_ROWS / n_rows) * n_seen / n_rows


def ladder(n_rows: int) -> list[int]:
    """The numbers of points to try: fewer than rows.

    >>> ladder(60), ladder(10)
    ([25, 50], [10])
    """
    return [m for m in LADDER if m < n_rows] or [min(LADDER[0], n_rows)]


def _pilot(source: Source, rng: np.random.Generator) -> ArraySource:
    """Some rows of a source, in memory."""
    most = source.n_rows if source.n_rows <= WHOLE_ROWS else PILOT_ROWS
    size = max(LADDER[0], min(most, PILOT_VALUES // source.n_features))
    X, labels, weight = source.sample(size, rng)
    if weight is not None and not weight.all():
        X, labels, weight = X[weight > 0], labels[weight > 0], weight[weight > 0]
    return ArraySource(X, labels, weight)


def _affordable(rungs: list[int], n_latents: int) -> list[int]:
    """The rungs that there is memory for, at least the first; a warning if there are others."""
    available = available_bytes()
    needed = [8 * _SQUARES * n_latents * m**2 for m in rungs]
    if available is None or needed[-1] <= MEMORY_SHARE * available:
        return rungs
    count = max(1, sum(size <= MEMORY_SHARE * available for size in needed))
    if count < len(rungs):
        warnings.warn(
            f'n_inducing="auto" tries no more than {rungs[count - 1]} inducing points, because '
            f"{rungs[count]} need about {needed[count]:,} bytes, more than {MEMORY_SHARE:.0%} of the "
            f"{available:,} that are available; with more memory the same random_state may find more. "
            "Free some, or give n_inducing a number",
            UserWarning,
            stacklevel=2,
        )
    return rungs[:count]

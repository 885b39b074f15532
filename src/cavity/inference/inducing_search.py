"""The search for the number of inducing points (`n_inducing="auto"`).

The candidates are 25, 50, 100, 200 and 400 points. A candidate keeps the points of the one before and
adds the rows with the greatest conditional variance times site precision. Kernel and points then take
a few steps. The rows keep their sites, so EP is soon back at its fixed point. A candidate is trained
until more steps gain nothing before the next is tried: otherwise the gain of more steps would count as
one of more points.

Candidates are compared by their leave-one-out scores, which the cavities give. Such a score leaves out
a row's site, but not what the inducing points learned from the row when they moved, which favours few
points. So the score has a penalty: half of the trace penalty ½ν̃s of training. About half of the
variance that the points leave unexplained could not be explained by more points either.

A candidate is accepted if its gain exceeds the required gain by more than one standard error. The
required gain grows with the square of the number of points, as the time of a step does. The next
candidate is tried only if it promises enough: its expected gain lies on a line through the last two
gains, but is at most the last gain and at least half of it.

`choose_start` decides where training begins: after such a search, after an earlier fit, or at chosen
points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cavity.data.arrays import ArraySource
from cavity.data.scaling import Scaling
from cavity.data.source import RowSource
from cavity.engines.local import LocalEngine
from cavity.engines.threads import Threads
from cavity.errors import warn_user
from cavity.gp.inducing import conditional_variance, extended_greedily
from cavity.gp.parameters import ParameterSpace
from cavity.gp.tiles import Sites
from cavity.inference.config import TrainingConfig
from cavity.inference.converge import FixedPoint, converge
from cavity.inference.history import InducingCandidate, Progress
from cavity.inference.optimizers import Adam
from cavity.inference.rule import Rule
from cavity.inference.schedule import Budget
from cavity.inference.start import PreviousFit, Start, chosen_start, continued_start, starting_point
from cavity.inference.sweep import SweepOptions
from cavity.inference.train import make_rule
from cavity.inference.trainer import Batch, Problem, Trainer, make_problem
from cavity.memory import available_bytes
from cavity.typing import Array

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel

CANDIDATES = (25, 50, 100, 200, 400)
"""Numbers of inducing points that are tried."""
PENALTY_SHARE = 0.5
"""Share of training's trace penalty ½ν̃s that is subtracted from a row's score."""
WHOLE_ROWS = 10_000
"""Number of rows up to which the search uses all of them, as training does."""
PILOT_ROWS = 4_000
"""Number of rows in the sample that the search uses of larger data."""
PILOT_VALUES = 5_000_000
"""Most values (rows times features) that the search uses in either case."""
REQUIRED_GAIN = 0.06
"""Relative gain in leave-one-out NLL that 400 points must bring on FEW_ROWS rows or fewer."""
FEW_ROWS = 2_000
"""Number of rows above which the required gain falls, in inverse proportion to the rows."""
SEARCH_SHARE = 0.4
"""Share of max_seconds that the search may take."""
MEMORY_SHARE = 0.5
"""Share of the available memory that m×m arrays may take."""
DEFAULT_POINTS = 100
"""Number of inducing points where n_inducing="auto" cannot search: a stream shows its rows once."""

_STEPS = 15
"""Steps of kernel and points in one round of training."""
_FIRST_ROUNDS = 8
"""Most rounds of training for the first candidate."""
_ROUNDS = 3
"""Most rounds of training for each later candidate."""
_ROUND_GAIN = 0.005
"""Relative gain below which a round is the last."""
_RATE = 0.1
_EP_TOL = 1e-2
_MOST_SWEEPS = 5
_COST = 5.0
"""Bound on a candidate's time in units of the one before: four times the products, and m×m algebra."""
_LEAST_SHARE = 0.5
"""Least expected gain of the next candidate, as a share of the last gain."""
_OPTIONS = SweepOptions(damping=0.5, trace_penalty=1.0)
_SQUARES = 8
"""Number of arrays [m, m] that training holds for each latent function, about."""


class SearchResult(NamedTuple):
    """The accepted candidate, and all candidates that were tried."""

    kernel: Kernel
    Z: Array
    """[m, d]: the inducing points, standardised."""
    sites: Sites
    """Sites of the engine's rows."""
    candidates: list[InducingCandidate]
    interrupted: bool = False
    """Whether the user has stopped the search."""


class _Trial(NamedTuple):
    """A candidate, as far as it is trained."""

    point: FixedPoint
    sites: Sites
    scores: Array
    """[n]: leave-one-out log probability of each row's label, minus the row's penalty."""
    penalty: float
    """Mean penalty of a row."""


class Gain(NamedTuple):
    """How much better one trial scores the rows than another."""

    value: float
    """Relative to the score before."""
    error: float = 0.0
    """Standard error of `value`: the rows are a sample."""

    def exceeds(self, required: float) -> bool:
        """Whether the gain exceeds a required one by more than one standard error.

        >>> Gain(0.02, 0.005).exceeds(0.01), Gain(0.02, 0.015).exceeds(0.01)
        (True, False)
        """
        return self.value - self.error >= required


def relative_gain(before: Array, after: Array, weight: Array | None = None) -> Gain:
    """The gain in the mean of scores [n] of the same rows; a weight [n] counts copies of a row."""
    gains = after - before
    gain = float(np.average(gains, weights=weight))
    scale = max(abs(float(np.average(before, weights=weight))), 1e-12)
    total = len(gains) if weight is None else float(weight.sum())
    error = np.sqrt(float(np.average((gains - gain) ** 2, weights=weight)) / total)
    return Gain(gain / scale, float(error) / scale)


@dataclass
class _Found:
    """What a search has found so far."""

    best: _Trial | None = None
    last: Gain = field(default_factory=lambda: Gain(0.0))
    """Gain of the last candidate that was accepted."""
    candidates: list[InducingCandidate] = field(default_factory=list)


@dataclass(frozen=True)
class InducingSearch:
    """A search over numbers of inducing points."""

    required_gain: float
    """Relative gain in penalised leave-one-out NLL that the largest of CANDIDATES must bring."""
    learn_kernel: bool = True
    learn_inducing: bool = True
    hyperprior_scale: float | None = 1.0
    """Standard deviation of the hyper-prior; None means a flat one."""
    max_seconds: float = np.inf
    options: SweepOptions = field(default_factory=lambda: _OPTIONS)

    def run(
        self,
        engine: LocalEngine,
        rule: Rule,
        kernel: Kernel,
        X: Array,
        numbers: Sequence[int],
        progress: Progress,
    ) -> SearchResult:
        """Try numbers of inducing points in turn, until one more is not worth its time.

        X [n, d] are the rows of the engine's source, standardised. The first number is always tried, the
        second if there is time, and each later one only if its expected gain is large enough.
        """
        weight = next(iter(engine.source.blocks(len(X)))).load().weight
        trials = _Trials(self, engine, rule, X, weight, kernel.theta)
        found, interrupted = _Found(), False
        try:
            self._try_in_turn(found, trials, kernel, numbers, progress)
        except KeyboardInterrupt:
            if found.best is None:  # nothing has been learned
                raise
            interrupted = True
        assert found.best is not None
        prior = found.best.point.prior
        return SearchResult(prior.kernel, prior.Z, found.best.sites, found.candidates, interrupted)

    def _try_in_turn(
        self, found: _Found, trials: _Trials, kernel: Kernel, numbers: Sequence[int], progress: Progress
    ) -> None:
        """Try candidates as long as they gain enough; `found` is up to date at any interruption."""
        begun, engine, X = progress.seconds, trials.engine, trials.X
        Z: Array = np.zeros((0, X.shape[1]))
        for m, following in zip(numbers, [*numbers[1:], None], strict=True):
            started, best = progress.seconds, found.best
            precision = np.ones(len(X)) if best is None else engine.sites.precision.sum(axis=0)
            Z = extended_greedily(Z, X, precision, m, kernel)
            trial = trials.round(kernel, Z)
            gain = Gain(np.inf) if best is None else trials.gain(best, trial)
            accepted = gain.exceeds(self.gain_required_of(m))
            goes_on = accepted and len(Z) == m and self.is_promising(found.last, gain, following)
            if accepted:
                found.best, found.last = trial, gain
            if goes_on:
                left = self.max_seconds - (progress.seconds - begun)
                trial = trials.trained(trial, _FIRST_ROUNDS if best is None else _ROUNDS, progress, left)
                found.best = trial
            kernel, Z = trial.point.prior.kernel, trial.point.prior.Z
            seconds = progress.seconds - started
            score = trial.point.mean_log_predictive
            found.candidates.append(InducingCandidate(len(Z), score, seconds, trial.penalty))
            progress.say(
                f"m = {len(Z)}: leave-one-out NLL {-score:.4f} + {trial.penalty:.4f}, {seconds:.2f} s"
            )
            affordable = progress.seconds - begun + _COST * seconds <= self.max_seconds
            if not (goes_on and affordable):
                break

    def gain_required_of(self, m: int) -> float:
        """The gain that m points must bring.

        >>> search = InducingSearch(required_gain=0.04)
        >>> search.gain_required_of(400), search.gain_required_of(200)
        (0.04, 0.01)
        """
        return self.required_gain * (m / CANDIDATES[-1]) ** 2

    def is_promising(self, before: Gain, gain: Gain, following: int | None) -> bool:
        """Whether the following number of points, if any, can be expected to gain enough.

        before, gain: the gains of the last two candidates.
        """
        if following is None:
            return False
        on_a_line = 2.0 * gain.value - before.value
        expected = min(gain.value, max(_LEAST_SHARE * gain.value, on_a_line))
        return expected >= self.gain_required_of(following)


@dataclass(frozen=True)
class _Trials:
    """Trains and scores candidates on the rows of one engine."""

    search: InducingSearch
    engine: LocalEngine
    rule: Rule
    X: Array
    weight: Array | None
    centre: Array
    """Kernel theta on which the hyper-prior is centred."""

    def round(self, kernel: Kernel, Z: Array) -> _Trial:
        """A few steps from a kernel and points, then EP at the parameters that they lead to."""
        search, engine = self.search, self.engine
        space = ParameterSpace(kernel, Z, search.learn_kernel, search.learn_inducing)
        problem = make_problem(
            engine, self.rule, space, search.hyperprior_scale, centre=space.pack(self.centre, Z)
        )
        x = self._steps(problem) if search.learn_kernel else space.start
        point = converge(engine, problem.prior(x), self.rule, tol=_EP_TOL, max_sweeps=_MOST_SWEEPS)
        if point.interrupted:
            raise KeyboardInterrupt
        return self._scored(point)

    def trained(self, trial: _Trial, n_rounds: int, progress: Progress, max_seconds: float) -> _Trial:
        """A trial after more rounds, as long as each of them gains something."""
        begun = progress.seconds
        for _ in range(1, n_rounds if self.search.learn_kernel else 1):
            if progress.seconds - begun > max_seconds:
                break
            after = self.round(trial.point.prior.kernel, trial.point.prior.Z)
            gain, trial = self.gain(trial, after), after
            if gain.value < _ROUND_GAIN:
                break
        return trial

    def gain(self, before: _Trial, after: _Trial) -> Gain:
        """The gain in the penalised leave-one-out score, row by row."""
        return relative_gain(before.scores, after.scores, self.weight)

    def _steps(self, problem: Problem) -> Array:
        trainer = Trainer(problem, Adam(_RATE), self.search.options, rebuild=True)
        budget, state = Budget(max_epochs=_STEPS), trainer.init()
        for step in range(_STEPS):
            state, _ = trainer.step(state, Batch(rate=budget.rate(step / _STEPS)))
        return state.x

    def _scored(self, point: FixedPoint) -> _Trial:
        engine, prior = self.engine, point.prior
        residual = conditional_variance(prior.Z, self.X, prior.kernel)
        penalties = PENALTY_SHARE * 0.5 * engine.sites.precision.sum(axis=0) * residual
        sites = Sites(engine.sites.precision.copy(), engine.sites.shift.copy())
        mean = float(np.average(penalties, weights=self.weight))
        return _Trial(point, sites, engine.log_predictive - penalties, mean)


class SearchedStart(NamedTuple):
    """Where training begins after the search for the number of inducing points."""

    kernel: Kernel
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
    source: RowSource,
    scaling: Scaling,
    config: TrainingConfig,
    rule: Rule,
    threads: Threads,
    rng: np.random.RandomState,
    progress: Progress,
    kernel: Kernel | None = None,
) -> SearchedStart:
    """Find how many inducing points these rows need, and a kernel that fits them."""
    kernel, _ = starting_point(
        source,
        scaling,
        kernel=kernel,
        inducing_points=None,
        n_inducing=min(CANDIDATES[0], source.n_rows),
        inducing_init="random",
        rng=rng,
    )
    pilot = _pilot(source, np.random.default_rng(rng.randint(2**31)))
    search = InducingSearch(
        required_gain=required_gain(source.n_rows, pilot.n_rows),
        learn_kernel=config.learn_kernel,
        learn_inducing=config.learn_inducing,
        hyperprior_scale=config.hyperprior_scale,
        max_seconds=SEARCH_SHARE * config.max_seconds,
    )
    engine = LocalEngine(pilot, scaling, rule.n_latents, threads)
    X = scaling.apply(pilot.X, np.dtype(np.float64))
    numbers = _affordable(candidate_numbers(pilot.n_rows), rule.n_latents)
    result = search.run(engine, rule, kernel, X, numbers, progress)
    engine.sites = result.sites
    seen = source.n_rows == pilot.n_rows
    adopted = isinstance(source, ArraySource) and seen and config.site_storage == "sites"
    return SearchedStart(
        result.kernel,
        result.Z,
        kernel.theta,
        result.candidates,
        on_all_rows=seen,
        engine=engine if adopted else None,
        interrupted=result.interrupted,
    )


def halfway_kernel(start: SearchedStart) -> Kernel:
    """The kernel half way, in log scale, between the one before and the one after a search on a sample.

    All rows show more detail than a sample, also in features that do not seem to matter in it.
    """
    return start.kernel.clone_with_theta(0.5 * (start.theta + start.kernel.theta))


def required_gain(n_rows: int, n_seen: int) -> float:
    """The gain that 400 points must bring for `n_rows` rows of which the search uses `n_seen`.

    The more rows there are, the more detail they show and the more points they can place. A sample shows
    only a part of the gain.

    >>> [required_gain(n_rows, n_rows) for n_rows in (500, 2_000, 10_000)]
    [0.06, 0.06, 0.012]
    >>> round(required_gain(20_000, 4_000), 6)
    0.0012
    """
    return REQUIRED_GAIN * min(1.0, FEW_ROWS / n_rows) * n_seen / n_rows


def candidate_numbers(n_rows: int) -> list[int]:
    """The numbers of points to try: fewer than rows.

    >>> candidate_numbers(60), candidate_numbers(10)
    ([25, 50], [10])
    """
    return [m for m in CANDIDATES if m < n_rows] or [min(CANDIDATES[0], n_rows)]


def _pilot(source: RowSource, rng: np.random.Generator) -> ArraySource:
    """The rows that the search uses, in memory."""
    most = source.n_rows if source.n_rows <= WHOLE_ROWS else PILOT_ROWS
    size = max(CANDIDATES[0], min(most, PILOT_VALUES // source.n_features))
    X, labels, weight = source.sample(size, rng)
    if weight is not None and not weight.all():
        X, labels, weight = X[weight > 0], labels[weight > 0], weight[weight > 0]
    return ArraySource(X, labels, weight)


def _affordable(numbers: list[int], n_latents: int) -> list[int]:
    """The numbers of points that memory suffices for, at least the first; warns if some are left out."""
    available = available_bytes()
    needed = [8 * _SQUARES * n_latents * m**2 for m in numbers]
    if available is None or needed[-1] <= MEMORY_SHARE * available:
        return numbers
    count = max(1, sum(size <= MEMORY_SHARE * available for size in needed))
    if count < len(numbers):
        warn_user(
            f'n_inducing="auto" tries no more than {numbers[count - 1]} inducing points, because '
            f"{numbers[count]} need about {needed[count]:,} bytes, more than {MEMORY_SHARE:.0%} of the "
            f"{available:,} that are available; with more memory the same random_state may find more. "
            "Free some memory, or give n_inducing a number"
        )
    return numbers[:count]


class ChosenStart(NamedTuple):
    """Where training begins, and with which configuration."""

    start: Start
    config: TrainingConfig
    candidates: list[InducingCandidate] | None = None
    """The numbers of inducing points that were tried; None without a search."""
    interrupted: bool = False
    """Whether the user has stopped the search."""


def choose_start(
    source: RowSource,
    scaling: Scaling,
    config: TrainingConfig,
    rng: np.random.RandomState,
    *,
    kernel: Kernel | None = None,
    inducing_points: Array | None = None,
    previous: PreviousFit | None = None,
    resolve_found: Callable[[int, bool], TrainingConfig] | None = None,
    holds_out: bool = False,
    threads: Threads,
    progress: Progress,
) -> ChosenStart:
    """Where training begins: where an earlier fit or a search has ended, or at points that are chosen.

    resolve_found: None if there is no search for the number of inducing points. Otherwise
    ``resolve_found(m, goes_on)`` is the configuration after a search that has found m points, and
    `goes_on` says whether training goes on from these points or chooses m points anew.
    holds_out: whether some rows are held out of training.
    """
    if previous is not None:
        return ChosenStart(continued_start(previous, scaling, config), config)
    if resolve_found is None:
        start = chosen_start(
            source, scaling, config, rng, kernel=kernel, inducing_points=inducing_points
        )
        return ChosenStart(start, config)
    rule = make_rule(config, sites=True)
    found = search_inducing_points(source, scaling, config, rule, threads, rng, progress, kernel)
    # The search has seen all rows, also those that are held out. Then only its number of points is used.
    goes_on = found.on_all_rows and not holds_out
    config = resolve_found(len(found.Z), goes_on)
    if goes_on:
        space = ParameterSpace(found.kernel, found.Z, config.learn_kernel, config.learn_inducing)
        start = Start(space, space.pack(found.theta, found.Z), None, found.engine)
    elif holds_out:
        start = chosen_start(source, scaling, config, rng, kernel=kernel)
    else:
        kernel = halfway_kernel(found)
        start = chosen_start(source, scaling, config, rng, kernel=kernel, centre_theta=found.theta)
    return ChosenStart(start, config, found.candidates, found.interrupted)

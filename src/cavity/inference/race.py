"""A race between configurations on held-out rows: it decides what each "auto" means for these rows.

Some rows are held out once, the same ones for every configuration. Candidates are trained for a short
time and scored on these rows. One question is asked after the other, each about the best candidate so
far: which model (the safe one or the sharp one) on which set of features, which scaling of the inputs,
which kernel, and last how many inducing points. The last question gets longer trials, and the other
model takes part again, since short trials favour models that learn fast. Its trials begin at the kernel
parameters that earlier ones have learned with fewer points, where steps are cheap, and so does the
training of the winner.

The number of inducing points is doubled as long as that is better. Trials of the last question may take
the same seconds or, without a clock, the same work: a pass over n rows with m points is O(nm²).

The safe model is the paper's, with the trace penalty. The sharp one trains without the residual variance
and without the penalty: where inducing points can explain the data well, it is better.

A candidate's score depends on its configuration, the seed and the length of its trial alone. So with a
budget in epochs the result does not depend on the clock, on the number of threads or on the order of the
candidates.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Event
from typing import NamedTuple, TypeAlias

import numpy as np

from cavity.data.sampling import HeldOut
from cavity.data.scaling import Scaling
from cavity.data.source import RowSource, with_feature_set
from cavity.engines.local import LocalBackend
from cavity.errors import NumericalError
from cavity.files import written_atomically
from cavity.gp.leaves import LocalPrior
from cavity.inference.checkpoint import Checkpointer, of_another_fit
from cavity.inference.checkpoint_file import race_file
from cavity.inference.config import DEFAULT_POINTS, POINTS_BESIDE_LEAVES, TrainingConfig
from cavity.inference.converge import NOT_SCORED, HeldOutScore
from cavity.inference.fingerprint import Fingerprint
from cavity.inference.history import Iteration, Progress
from cavity.inference.predicting import WORTH
from cavity.inference.start import Start, StartingPoint, learn_scaling, prepare
from cavity.inference.train import train_steps, validation_score
from cavity.inference.trainer import Trainer, TrainingState

SCALINGS = ("robust", "standard", "quantile")
KERNELS = ("matern32", "rbf", "matern12")
POINTS = 200
"""Number of inducing points that the race begins to double."""
DOUBLINGS = 2
"""Doublings that the seconds of a race are planned for; more are tried if time is left."""
PILOT_POINTS = 100
"""Number of inducing points while other questions are decided."""
ROWS_OF_A_LEAF = (16_000, 4_000)
"""Numbers of rows of a leaf, about, that are tried."""
LAST_LENGTH = 3
"""Length of the trials of the last question, in units of the others."""
SHARE = 0.35
"""Share of max_seconds that the race takes."""
EPOCHS_SHARE = 1.0 / 15.0
"""Length of a trial in units of max_epochs, without max_seconds."""
DOUBLE_COST = 8
"""Cost of a step with twice as many inducing points."""
SHORTEST_TRIAL = 1e-3
"""Seconds of a trial if no time is left: it takes a single step."""
START_DIGITS = 3
"""Decimals of the kernel parameters, on log scale, at which later training begins."""


class Candidate(NamedTuple):
    """What a race decides about a configuration."""

    residual_scale: float = 1.0
    trace_penalty: float = 1.0
    scaling: str | None = "robust"
    kernel_name: str | None = "matern32"
    n_inducing: int = DEFAULT_POINTS
    feature_set: str | None = None
    n_leaves: int | None = None

    def __str__(self) -> str:
        named = {(1.0, 1.0): "safe", (0.0, 0.0): "sharp", (1.0, 0.0): "full residual"}
        model = named.get(self[:2], f"κ={self.residual_scale:g}, penalty {self.trace_penalty:g}")
        inputs, kernel = self.scaling or "unscaled", self.kernel_name or "own kernel"
        features = "" if self.feature_set is None else f"{self.feature_set}, "
        leaves = "" if self.n_leaves is None else f", {self.n_leaves} leaves"
        return f"{features}{model}, {inputs}, {kernel}, m={self.n_inducing}{leaves}"


SAFE, SHARP = (
    {"residual_scale": 1.0, "trace_penalty": 1.0},
    {"residual_scale": 0.0, "trace_penalty": 0.0},
)


@dataclass(frozen=True)
class RaceEntry:
    """A candidate of a race, with its score on the held-out rows."""

    residual_scale: float
    trace_penalty: float
    scaling: str | None
    kernel_name: str | None
    n_inducing: int
    feature_set: str | None
    n_leaves: int | None
    length: int
    """Length of the trial: 1, or more for the last question."""
    log_loss: float
    """Mean negative log probability of the held-out labels; infinite if training failed."""
    standard_error: float
    n_steps: int
    seconds: float
    chosen: bool = False

    @property
    def candidate(self) -> Candidate:
        """The candidate alone."""
        return Candidate(*(getattr(self, name) for name in Candidate._fields))

    def as_dict(self) -> dict[str, object]:
        """The entry as a plain dictionary, ready for JSON or a data frame."""
        return asdict(self)


@dataclass(frozen=True)
class Race:
    """The candidates of a race, best first within each length of trial, longest trials first."""

    entries: tuple[RaceEntry, ...]
    seconds: float
    """Seconds that the race took."""

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: int) -> RaceEntry:
        return self.entries[index]

    def as_dicts(self) -> list[dict[str, object]]:
        """The entries as plain dictionaries: `pandas.DataFrame(race.as_dicts())` is a table."""
        return [entry.as_dict() for entry in self.entries]

    def __str__(self) -> str:
        lines = ["   held-out NLL   trial  seconds  candidate"]
        for e in self.entries:
            mark = "→" if e.chosen else " "
            lines.append(
                f"{mark} {e.log_loss:.4f} ± {e.standard_error:.4f}  {e.length:5d}  {e.seconds:7.1f}  "
                f"{e.candidate}"
            )
        return "\n".join(lines)


class Decision(NamedTuple):
    """The outcome of a race."""

    config: TrainingConfig
    """The configuration of the whole fit; its seconds include those of the race."""
    race: Race
    stopped: Trial | None = None
    """The trial of the winner, if the user has stopped the race."""
    scaling: Scaling | None = None
    """The scaling of its inputs, if a trial has needed it."""


Configure: TypeAlias = Callable[[Candidate], TrainingConfig]
"""Makes the configuration of a whole fit with the fields of a candidate."""


@dataclass(frozen=True)
class Entrants:
    """Which candidates there are: where the race begins, and what it may change."""

    start: Candidate
    free: frozenset[str]
    """Fields that the user has left open: those of `Candidate`, "max_epochs" and "n_predicting"."""
    feature_sets: tuple[str, ...] = ()
    """Names of the sets of features to choose from, smallest first."""

    def varied(self, candidate: Candidate, **changes: object) -> Candidate:
        """A candidate with some fields changed, as far as they are free."""
        return candidate._replace(**{k: v for k, v in changes.items() if k in self.free})  # type: ignore[arg-type]

    def models(self) -> list[Candidate]:
        """The first question: features, the model, and a smooth kernel on plainly scaled inputs."""
        sharp = self.varied(self.start, **SHARP)
        smooth = self.varied(sharp, scaling="standard", kernel_name="rbf")
        more = [
            self.varied(model, feature_set=name)
            for name in self.feature_sets[1:2]
            for model in (self.start, sharp)
        ]
        return _distinct([self.start, sharp, smooth, *more])

    def further_features(self, best: Candidate) -> list[Candidate]:
        """The question after the scaling, if there are more than two sets of features."""
        return _distinct([best, *(self.varied(best, feature_set=s) for s in self.feature_sets[2:])])

    def scalings(self, best: Candidate) -> list[Candidate]:
        """The second question."""
        return _distinct([best, *(self.varied(best, scaling=scaling) for scaling in SCALINGS)])

    def kernels(self, best: Candidate) -> list[Candidate]:
        """The third question."""
        return _distinct([best, *(self.varied(best, kernel_name=name) for name in KERNELS)])

    def sizes(self, best: Candidate) -> list[Candidate]:
        """The last question: more inducing points, at first for the other model as well."""
        best = self.varied(best, n_inducing=POINTS)
        other = self.varied(best, **(SHARP if best.residual_scale else SAFE))
        return _distinct([best, other])

    def leaves(self, best: Candidate, n_rows: int) -> list[Candidate]:
        """The question after the last: local inducing points in many leaves, or in fewer."""
        if "n_leaves" not in self.free:
            return []
        numbers = {2 ** max(1, round(math.log2(n_rows / rows))) for rows in ROWS_OF_A_LEAF}
        few = self.varied(best, n_inducing=POINTS_BESIDE_LEAVES)
        return [self.varied(few, n_leaves=number) for number in sorted(numbers)]

    def doubled(self, candidate: Candidate) -> Candidate:
        """The candidate with twice as many inducing points, if their number is free."""
        return self.varied(candidate, n_inducing=2 * candidate.n_inducing)


def _distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    return list(dict.fromkeys(candidates))


class _StoppedError(Exception):
    """The user has stopped the race."""


@dataclass(frozen=True)
class _StopWhenAsked:
    """A reporter that ends a trial at its next record once the user has stopped the race."""

    asked: Event

    def update(self, iteration: Iteration, share: float | None) -> None:
        """Called after an iteration."""
        if self.asked.is_set():
            raise _StoppedError


class Prepared(NamedTuple):
    """Where the trial of a candidate begins."""

    config: TrainingConfig
    scaling: Scaling
    start: Start
    epochs: float
    """Epochs of the whole fit, by which the trial's are counted."""


class Trial(NamedTuple):
    """The result of training a candidate for a short time."""

    score: HeldOutScore
    n_steps: int
    seconds: float
    theta: tuple[float, ...] = ()
    """Kernel parameters that it has learned, on log scale; empty if it failed."""
    end: Start | None = None
    """Where it has ended; None if an earlier process has run it."""


@dataclass
class RaceLog:
    """Trials that are finished, in a file beside a checkpoint, from which a killed race resumes.

    With path None nothing is written.
    """

    path: Path | None
    fingerprint: Fingerprint
    trials: dict[str, list[float]]
    seconds: float | None = None
    """Seconds that the race has taken, once it is decided."""

    @classmethod
    def open(cls, checkpoint: Path | None, make_fingerprint: Callable[[], Fingerprint]) -> RaceLog:
        """The log of a fit with this checkpoint; that of another fit is an error."""
        if checkpoint is None:
            return cls(None, Fingerprint(), {})
        path, fingerprint = race_file(checkpoint), make_fingerprint()
        stored: object = None
        if path.exists():
            try:
                stored = json.loads(path.read_text("utf-8"))
            except (OSError, ValueError):
                stored = None
        trials, seconds = {}, None
        if isinstance(stored, dict) and "fingerprint" in stored:
            difference = fingerprint.difference(stored["fingerprint"])
            if difference is not None:
                raise of_another_fit(checkpoint, difference)
            found = stored.get("trials")
            if isinstance(found, dict):
                trials = {key: row for key, row in found.items() if _is_trial(row)}
            seconds = stored.get("seconds")
        return cls(path, fingerprint, trials, seconds if isinstance(seconds, float) else None)

    def get(self, key: str) -> Trial | None:
        """A trial that is finished."""
        row = self.trials.get(key)
        if row is None:
            return None
        return Trial(HeldOutScore(row[0], row[1], int(row[2])), int(row[3]), row[4], tuple(row[5:]))

    def put(self, key: str, trial: Trial) -> None:
        """Keep a trial."""
        self.trials[key] = [*map(float, trial.score), float(trial.n_steps), trial.seconds, *trial.theta]
        self._write()

    def decided(self, seconds: float) -> float:
        """Keep the seconds that the race has taken; those of the first time, if it was resumed."""
        if self.seconds is None:
            self.seconds = seconds
            self._write()
        return self.seconds

    def _write(self) -> None:
        if self.path is not None:
            document = {
                "fingerprint": self.fingerprint.as_json(),
                "trials": self.trials,
                "seconds": self.seconds,
            }
            with written_atomically(self.path) as file:
                file.write(json.dumps(document).encode())


def _is_trial(row: object) -> bool:
    return isinstance(row, list) and len(row) >= 5 and all(isinstance(v, float) for v in row)


@dataclass
class _Runner:
    """Runs trials, each candidate and length once."""

    source: RowSource
    held_out: HeldOut
    backend: LocalBackend
    configure: Configure
    make_start: StartingPoint
    entrants: Entrants
    log: RaceLog
    progress: Progress

    def __post_init__(self) -> None:
        self.entries: dict[tuple[Candidate, int], RaceEntry] = {}
        self.learned: dict[tuple[Candidate, int], tuple[float, ...]] = {}
        """Kernel parameters at the end of each trial."""
        self.asked = Event()
        self.scalings: dict[tuple[str | None, str | None], Scaling] = {}
        self.best: tuple[RaceEntry, Trial] | None = None
        self.n_side_by_side = self.backend.n_side_by_side(self.source)
        self.seconds = SHARE * self.configure(self.entrants.start).max_seconds
        """Seconds that the race may take."""

    def best_of(self, candidates: Sequence[Candidate], length: int, rounds_left: float) -> RaceEntry:
        """The best of some candidates after trials of a length.

        rounds_left: how long the race will still take with these trials, in trials of length 1 one after
        the other.
        """
        todo = [c for c in candidates if (c, length) not in self.entries]
        if len(candidates) > 1:
            try:
                prepared = [self._prepared(c, length) for c in todo]
                seconds = length * max(0.0, self.seconds - self.progress.seconds) / max(1.0, rounds_left)
                if length > 1:  # no trial is shorter than those that it is compared with
                    known = (self.entries.get((c, length)) for c in candidates)
                    seconds = max([seconds, *(entry.seconds for entry in known if entry is not None)])
                trials = self._trials(prepared, length, seconds)
                for candidate, trial in zip(todo, trials, strict=True):
                    self._enter(candidate, length, trial)
            except BaseException:
                self.asked.set()  # the other trials end, too
                raise
        elif todo:
            return _entry(todo[0], length, Trial(NOT_SCORED, 0, 0.0))
        return min((self.entries[c, length] for c in candidates), key=_rank)

    def _trials(
        self, prepared: Sequence[Prepared | Trial], length: int, seconds: float
    ) -> Iterable[Trial]:
        if len(prepared) == 1:
            return [self._trial(self.backend, prepared[0], length, seconds)]
        return self.backend.side_by_side(
            self.source, lambda backend, one: self._trial(backend, one, length, seconds), prepared
        )

    def has_time(self) -> bool:
        """Whether the race has not yet used up its seconds."""
        return self.progress.seconds < self.seconds

    def can_double(self, candidate: Candidate) -> bool:
        """Whether a trial with twice as many points has time for a step, as long as the last one took.

        Minibatches are then twice as large, and a row costs four times as much.
        """
        entry = self.entries.get((candidate, LAST_LENGTH))
        if entry is None:
            return False
        return entry.n_steps >= DOUBLE_COST and self.progress.seconds + entry.seconds <= self.seconds

    def _enter(self, candidate: Candidate, length: int, trial: Trial) -> None:
        entry = _entry(candidate, length, trial)
        self.entries[candidate, length] = entry
        if self.best is None or _by_length(entry) < _by_length(self.best[0]):
            self.best = entry, trial
        if trial.theta:
            self.learned[candidate, length] = trial.theta
        self.log.put(_key(candidate, length), trial)
        self.progress.stage(
            f"race: held-out NLL {entry.log_loss:.4f} ± {entry.standard_error:.4f} in "
            f"{entry.seconds:.1f} s: {candidate}"
        )

    def _prepared(self, candidate: Candidate, length: int) -> Prepared | Trial:
        """Where a trial begins; or the trial itself, if the log has it.

        Trials side by side must not choose their inducing points at the same time: k-means changes
        settings of the whole process while it runs.
        """
        known = self.log.get(_key(candidate, length))
        if known is not None:
            return known
        config = self.whole(candidate) if length > 1 else self.configure(candidate)
        key = config.scaling, config.feature_set
        if key not in self.scalings:
            source = with_feature_set(self.source, config.feature_set)
            self.scalings[key] = learn_scaling(source, config, self.backend)
        scaling = self.scalings[key]
        return Prepared(config, scaling, self.make_start(scaling, config), self.epochs(candidate))

    def whole(self, candidate: Candidate) -> TrainingConfig:
        """The configuration of the whole fit of a candidate."""
        config = replace(self.configure(candidate), kernel_start=self.kernel_start(candidate))
        if "max_epochs" in self.entrants.free:
            config = replace(config, max_epochs=self.epochs(candidate))
        return config

    def epochs(self, candidate: Candidate) -> float:
        """Epochs of a fit that is as much work as that of the candidate with the fewest points."""
        if "n_inducing" not in self.entrants.free or candidate.n_inducing <= POINTS:
            return self.configure(candidate).max_epochs
        fewer = self.configure(candidate._replace(n_inducing=POINTS)).max_epochs
        return fewer * (POINTS / candidate.n_inducing) ** 2

    def kernel_start(self, candidate: Candidate) -> tuple[float, ...] | None:
        """Where the training of a candidate begins: at kernel parameters that trials have learned.

        They are those of the same kernel on the same inputs; of the same model if there are any, and
        then of the longest and best trial.
        """
        given = self.configure(candidate).kernel_start
        if given is not None:
            return given
        alike = [
            (
                (one.n_leaves is None) != (candidate.n_leaves is None),
                one[:2] != candidate[:2],
                -length,
                _rank(self.entries[one, length]),
                theta,
            )
            for (one, length), theta in self.learned.items()
            if one[2:4] == candidate[2:4]
            and one.feature_set == candidate.feature_set
            and (one.n_leaves is None or candidate.n_leaves is not None)
        ]
        return min(alike)[-1] if alike else None

    def _trial(
        self, backend: LocalBackend, prepared: Prepared | Trial, length: int, seconds: float
    ) -> Trial:
        if isinstance(prepared, Trial):
            return prepared
        config, scaling, start, epochs = prepared
        config = replace(
            config,
            max_epochs=EPOCHS_SHARE * length * epochs,
            max_seconds=max(seconds, SHORTEST_TRIAL),
            early_stopping=None,
        )
        progress = Progress(reporter=_StopWhenAsked(self.asked))
        source = with_feature_set(self.source, config.feature_set)
        held_out = self.held_out.leading(source.n_features)
        problem = prepare(source, config, backend, scaling=scaling, start=start, held_out=held_out)
        nowhere = Checkpointer(None, math.inf, Fingerprint)
        try:
            trainer, trained = train_steps(problem, config, progress, nowhere)
            score = validation_score(trainer, trained.state)
        except (NumericalError, np.linalg.LinAlgError):
            return Trial(HeldOutScore(math.inf, 0.0, 0), 0, progress.seconds)
        if trained.interrupted:
            raise KeyboardInterrupt
        theta = trained.state.x[: trainer.problem.space.n_theta]
        # A start need not be exact, and a configuration is for reading, too.
        learned = tuple(round(float(value), START_DIGITS) for value in theta)
        return Trial(score, trained.n_steps, progress.seconds, learned, _end(trainer, trained.state))


def _end(trainer: Trainer, state: TrainingState) -> Start:
    """Where a trial has ended."""
    problem = trainer.problem
    kernel, Z = problem.space.unpack(state.x)
    prior = trainer.update.located(problem.prior(state.x), state.q)
    return Start(
        replace(problem.space, kernel=kernel, Z=Z),
        problem.hyperprior.centre,
        trainer.update.posterior(state.q, prior),
        leaves=prior.leaves if isinstance(prior, LocalPrior) else None,
    )


def _by_length(entry: RaceEntry) -> tuple[float, float]:
    """Longer trials first, and better entries first among those of a length."""
    return (-entry.length, entry.log_loss)


def _rank(entry: RaceEntry) -> tuple[object, ...]:
    """Better entries first; of equal ones the safer and smaller, whatever the order of candidates."""
    return (
        entry.log_loss,
        -entry.residual_scale,
        SCALINGS.index(entry.scaling) if entry.scaling in SCALINGS else -1,
        KERNELS.index(entry.kernel_name) if entry.kernel_name in KERNELS else -1,
        entry.n_inducing,
        entry.n_leaves or 0,
    )


def _key(candidate: Candidate, length: int) -> str:
    return json.dumps([*candidate, length])


def _entry(candidate: Candidate, length: int, trial: Trial) -> RaceEntry:
    return RaceEntry(
        *candidate,
        length,
        trial.score.log_loss,
        trial.score.standard_error,
        trial.n_steps,
        trial.seconds,
    )


def race(
    source: RowSource,
    held_out: HeldOut,
    backend: LocalBackend,
    entrants: Entrants,
    configure: Configure,
    make_start: StartingPoint,
    progress: Progress,
    log: RaceLog,
) -> Decision:
    """Find the best candidate for these rows.

    configure: the configuration of a whole fit with a candidate's fields, whose budget the race shares.
    """
    pilot = entrants.varied(entrants.start, n_inducing=PILOT_POINTS)
    entrants = replace(entrants, start=pilot)
    runner = _Runner(source, held_out, backend, configure, make_start, entrants, log, progress)
    best, stopped = pilot, None
    rounds = _rounds(entrants, runner.n_side_by_side, source.n_rows)
    questions = (
        lambda _: entrants.models(),
        entrants.scalings,
        entrants.further_features,  # scaled well, columns may not need them
        entrants.kernels,
    )
    try:
        for i, question in enumerate(questions):
            if i == 0 or runner.has_time():
                best = runner.best_of(question(best), 1, sum(rounds[i:])).candidate
        sizes, left = rounds[len(questions) :], rounds[len(questions) + 1 :]
        if runner.has_time():
            best = runner.best_of(entrants.sizes(best), LAST_LENGTH, sum(sizes)).candidate
        while best != (larger := entrants.doubled(best)) and larger.n_inducing <= source.n_rows:
            if not runner.can_double(best):
                break
            found = runner.best_of([best, larger], LAST_LENGTH, sum(left) or LAST_LENGTH).candidate
            if found == best:
                break
            best, left = larger, left[1:]
        leaves = entrants.leaves(best, source.n_rows)
        if leaves and runner.has_time():
            first = runner.best_of([best, *leaves], LAST_LENGTH, LAST_LENGTH * len(leaves))
            if first.log_loss < (1.0 - WORTH) * runner.entries[best, LAST_LENGTH].log_loss:
                best = first.candidate
    except KeyboardInterrupt:
        if runner.best is None:
            raise
        best, stopped = runner.best[0].candidate, runner.best[1]
    entries = [replace(e, chosen=e.candidate == best) for e in runner.entries.values()]
    entries.sort(key=lambda e: (*_by_length(e), str(e.candidate)))
    seconds = log.decided(progress.seconds) if stopped is None else progress.seconds
    config, race = runner.whole(best), Race(tuple(entries), seconds)
    return Decision(config, race, stopped, runner.scalings.get((config.scaling, config.feature_set)))


def _rounds(entrants: Entrants, n_side_by_side: int, n_rows: int) -> list[float]:
    """How long each question takes, in trials of length 1 one after the other."""
    start = entrants.start
    rounds = [
        (len(entrants.models()), 1),
        (len(entrants.scalings(start)) - 1, 1),
        (len(entrants.further_features(start)) - 1, 1),
        (len(entrants.kernels(start)) - 1, 1),
        (len(entrants.sizes(start)), LAST_LENGTH),
    ]
    if entrants.doubled(start) != start:
        rounds += [(1, LAST_LENGTH)] * DOUBLINGS
    rounds.append((len(entrants.leaves(start, n_rows)), LAST_LENGTH))
    return [math.ceil(n / n_side_by_side) * length for n, length in rounds]

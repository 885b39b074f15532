"""A race between configurations on held-out rows: it decides what each "auto" means for these rows.

Some rows are held out once, the same ones for every configuration. Candidates are trained for a short
time and scored on these rows. One question is asked after the other, each about the best candidate so
far: which model (the safe one or the sharp one) on which set of features, which scaling of the inputs,
which kernel, and last how many inducing points. The last question gets longer trials, and the other
model takes part again, since short trials favour models that learn fast.

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
from cavity.engines.backend import LocalBackend
from cavity.errors import NumericalError
from cavity.files import written_atomically
from cavity.inference.checkpoint import Checkpointer, of_another_fit
from cavity.inference.checkpoint_file import race_file
from cavity.inference.config import DEFAULT_POINTS, TrainingConfig
from cavity.inference.fingerprint import Fingerprint
from cavity.inference.held_out import NOT_SCORED, HeldOutScore
from cavity.inference.history import Iteration, Progress
from cavity.inference.start import Start, StartingPoint, learn_scaling, prepare
from cavity.inference.train import train_steps, validation_score

SCALINGS = ("robust", "standard", "quantile")
KERNELS = ("matern32", "rbf", "matern12")
POINTS = 200
"""Number of inducing points that the race begins to double."""
PILOT_POINTS = 100
"""Number of inducing points while other questions are decided."""
LAST_LENGTH = 3
"""Length of the trials of the last question, in units of the others."""
SHARE = 0.35
"""Share of max_seconds that the race takes."""
EPOCHS_SHARE = 1.0 / 15.0
"""Length of a trial in units of max_epochs, without max_seconds."""


class Candidate(NamedTuple):
    """What a race decides about a configuration."""

    residual_scale: float = 1.0
    trace_penalty: float = 1.0
    scaling: str | None = "robust"
    kernel_name: str | None = "matern32"
    n_inducing: int = DEFAULT_POINTS
    feature_set: str | None = None

    def __str__(self) -> str:
        features = "" if self.feature_set is None else f"{self.feature_set}, "
        model = {(1.0, 1.0): "safe", (0.0, 0.0): "sharp"}.get(self[:2], f"κ={self.residual_scale:g}")
        return f"{features}{model}, {self.scaling}, {self.kernel_name}, m={self.n_inducing}"


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

    candidate: Candidate
    race: Race
    interrupted: bool = False


Configure: TypeAlias = Callable[[Candidate], TrainingConfig]
"""Makes the configuration of a whole fit with the fields of a candidate."""


@dataclass(frozen=True)
class Entrants:
    """Which candidates there are: where the race begins, and what it may change."""

    start: Candidate
    free: frozenset[str]
    """Fields of `Candidate` that the user has left open."""
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
        """The last question: more inducing points, and the other model again."""
        best = self.varied(best, n_inducing=POINTS)
        other = self.varied(best, **(SHARP if best.residual_scale else SAFE))
        return _distinct([best, other, self.doubled(best)])

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


class Trial(NamedTuple):
    """The result of training a candidate for a short time."""

    score: HeldOutScore
    n_steps: int
    seconds: float


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
        return Trial(HeldOutScore(row[0], row[1], int(row[2])), int(row[3]), row[4])

    def put(self, key: str, trial: Trial) -> None:
        """Keep a trial."""
        self.trials[key] = [*map(float, trial.score), float(trial.n_steps), trial.seconds]
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
    return isinstance(row, list) and len(row) == 5 and all(isinstance(v, float) for v in row)


@dataclass
class _Runner:
    """Runs trials, each candidate and length once."""

    source: RowSource
    held_out: HeldOut
    backend: LocalBackend
    configure: Configure
    make_start: StartingPoint
    max_seconds: float
    """Seconds of a trial of length 1."""
    log: RaceLog
    progress: Progress

    def __post_init__(self) -> None:
        self.entries: dict[tuple[Candidate, int], RaceEntry] = {}
        self.asked = Event()
        self.scalings: dict[tuple[str | None, str | None], Scaling] = {}

    def best_of(self, candidates: Sequence[Candidate], length: int = 1) -> RaceEntry:
        """The best of some candidates after trials of a length."""
        todo = [c for c in candidates if (c, length) not in self.entries]
        if len(candidates) > 1:
            try:
                prepared = [self._prepared(c, length) for c in todo]
                trials = self.backend.side_by_side(
                    self.source, lambda backend, one: self._trial(backend, one, length), prepared
                )
                for candidate, trial in zip(todo, trials, strict=True):
                    self._enter(candidate, length, trial)
            except BaseException:
                self.asked.set()  # the other trials end, too
                raise
        elif todo:
            return _entry(todo[0], length, Trial(NOT_SCORED, 0, 0.0))
        return min((self.entries[c, length] for c in candidates), key=_rank)

    def _enter(self, candidate: Candidate, length: int, trial: Trial) -> None:
        entry = _entry(candidate, length, trial)
        self.entries[candidate, length] = entry
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
        config = self.configure(candidate)
        key = config.scaling, config.feature_set
        if key not in self.scalings:
            source = with_feature_set(self.source, config.feature_set)
            self.scalings[key] = learn_scaling(source, config, self.backend)
        scaling = self.scalings[key]
        return Prepared(config, scaling, self.make_start(scaling, config))

    def _trial(self, backend: LocalBackend, prepared: Prepared | Trial, length: int) -> Trial:
        if isinstance(prepared, Trial):
            return prepared
        config, scaling, start = prepared
        config = replace(
            config,
            max_epochs=EPOCHS_SHARE * length * config.max_epochs,
            max_seconds=length * self.max_seconds,
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
        return Trial(score, trained.n_steps, progress.seconds)


def _rank(entry: RaceEntry) -> tuple[object, ...]:
    """Better entries first; of equal ones the safer and smaller, whatever the order of candidates."""
    return (
        entry.log_loss,
        -entry.residual_scale,
        SCALINGS.index(entry.scaling) if entry.scaling in SCALINGS else -1,
        KERNELS.index(entry.kernel_name) if entry.kernel_name in KERNELS else -1,
        entry.n_inducing,
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
    budget = configure(entrants.start).max_seconds
    pilot = entrants.varied(entrants.start, n_inducing=PILOT_POINTS)
    entrants = replace(entrants, start=pilot)
    unit = SHARE * budget / _wall_units(entrants, backend.n_side_by_side(source))
    runner = _Runner(source, held_out, backend, configure, make_start, unit, log, progress)
    best, interrupted = pilot, False
    try:
        for question in (
            lambda _: entrants.models(),
            entrants.scalings,
            entrants.further_features,  # scaled well, columns may not need them
            entrants.kernels,
        ):
            best = runner.best_of(question(best)).candidate
        winner = runner.best_of(entrants.sizes(best), LAST_LENGTH)
        best = winner.candidate
    except KeyboardInterrupt:
        if not runner.entries:
            raise
        interrupted = True
        best = min(runner.entries.values(), key=lambda e: (-e.length, e.log_loss)).candidate
    entries = [replace(e, chosen=e.candidate == best) for e in runner.entries.values()]
    entries.sort(key=lambda e: (-e.length, e.log_loss, str(e.candidate)))
    seconds = progress.seconds if interrupted else log.decided(progress.seconds)
    return Decision(best, Race(tuple(entries), seconds), interrupted)


def _wall_units(entrants: Entrants, n_side_by_side: int) -> float:
    """How long the race takes, in trials of length 1 one after the other."""
    start = entrants.start
    rounds = [
        (len(entrants.models()), 1),
        (len(entrants.further_features(start)) - 1, 1),
        (len(entrants.scalings(start)) - 1, 1),
        (len(entrants.kernels(start)) - 1, 1),
        (len(entrants.sizes(start)), LAST_LENGTH),
    ]
    return max(1.0, sum(math.ceil(n / n_side_by_side) * length for n, length in rounds))

"""What a race knows: trials of candidates, their scores, and the log from which it resumes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cavity.files import written_atomically
from cavity.gp.calibration import LogLoss
from cavity.inference.candidates import KERNELS, SCALINGS, Candidate
from cavity.inference.checkpoint import of_another_fit
from cavity.inference.checkpoint_file import Fingerprint, race_file
from cavity.inference.config import TrainingConfig
from cavity.inference.converge import WORTH, HeldOutScore
from cavity.inference.start import Start
from cavity.text import html_table
from cavity.typing import Array


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
    n_local: int | None
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
        return Candidate.of(self)

    def as_dict(self) -> dict[str, object]:
        """The entry as a plain dictionary, ready for JSON or a data frame."""
        return asdict(self)


@dataclass(frozen=True, repr=False)
class Race:
    """The candidates of a race, those of the questions about sizes first, and the best first."""

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

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [
            [
                "→" if e.chosen else "",
                f"{e.log_loss:.4f} ± {e.standard_error:.4f}",
                str(e.length),
                f"{e.seconds:.1f}",
                str(e.candidate),
            ]
            for e in self.entries
        ]
        return html_table(["", "held-out NLL", "trial", "seconds", "candidate"], rows)


class Trial(NamedTuple):
    """The result of training a candidate for a short time."""

    score: HeldOutScore
    n_steps: int
    seconds: float
    theta: tuple[float, ...] = ()
    """Kernel parameters that it has learned, on log scale; empty if it failed."""
    losses: Array = np.zeros(0)
    """Losses of the held-out rows; none if it failed."""
    end: Start | None = None
    """Where it has ended; None if an earlier process has run it."""


def entry_of(candidate: Candidate, length: int, trial: Trial) -> RaceEntry:
    """The entry of a candidate after its trial."""
    return RaceEntry(
        *candidate,
        length,
        trial.score.log_loss,
        trial.score.standard_error,
        trial.n_steps,
        trial.seconds,
    )


def rank(entry: RaceEntry) -> tuple[object, ...]:
    """Better entries first; of equal ones the safer and smaller, whatever the order of candidates."""
    return (
        entry.log_loss,
        -entry.residual_scale,
        SCALINGS.index(entry.scaling) if entry.scaling in SCALINGS else -1,
        KERNELS.index(entry.kernel_name) if entry.kernel_name in KERNELS else -1,
        entry.n_inducing,
        entry.n_leaves or 0,
        entry.n_local or 0,
    )


def _caution(entry: RaceEntry) -> tuple[object, ...]:
    """More cautious entries first, and then better ones.

    The safe model comes first, and then what has no leaves. Of the safe model's kernels the default's
    comes first, whose roughness leaves more variance where inducing points are too few.
    """
    order = rank(entry)
    return (order[1], entry.n_leaves is not None, order[3] if entry.residual_scale else 0, *order)


def preferred(tried: Sequence[tuple[RaceEntry, Array]], counts: Array) -> RaceEntry:
    """The most cautious of the entries that are as good as the best one.

    An entry is as good if the best one's mean loss is not smaller by more than a standard error. The
    held-out rows are the same, so it is the error of the mean difference of their losses, which is
    far smaller than that of a score. Leaves must also be better by more than a hundredth, since all
    predictions pay for them.

    tried: entries with the losses of the held-out rows [n], none if training failed; counts: [n], what
    each row counts.
    """
    best, least = min(tried, key=lambda one: rank(one[0]))

    def is_worse(entry: RaceEntry, losses: Array) -> bool:
        if not len(losses) or not len(least):
            return entry.log_loss > best.log_loss
        excess = LogLoss.of(losses - least, counts)
        adds_leaves = entry.n_leaves is None and best.n_leaves is not None
        worth = WORTH * entry.log_loss if adds_leaves else 0.0
        return excess.mean > max(excess.standard_error, worth)

    return min((entry for entry, losses in tried if not is_worse(entry, losses)), key=_caution)


def trial_key(candidate: Candidate, length: int) -> str:
    """The name of a trial in the log."""
    return json.dumps([*candidate, length])


@dataclass
class RaceLog:
    """Trials that are finished, in a file beside a checkpoint, from which a killed race resumes.

    With path None nothing is written.
    """

    path: Path | None
    fingerprint: Fingerprint
    limits: list[float]
    """Epochs and seconds of the whole fit, by which the length of a trial is chosen."""
    trials: dict[str, dict[str, list[float]]]
    seconds: float | None = None
    """Seconds that the race has taken, once it is decided."""
    winner: Candidate | None = None
    """The best candidate, once the race is decided."""

    @classmethod
    def open(
        cls,
        checkpoint: Path | None,
        config: TrainingConfig,
        make_fingerprint: Callable[[], Fingerprint],
    ) -> RaceLog:
        """The log of a fit with this checkpoint; that of another fit is an error.

        If the fit has other limits now, a decision stays, and an undecided race begins anew.
        """
        limits = [config.max_epochs, config.max_seconds]
        if checkpoint is None:
            return cls(None, Fingerprint(), limits, {})
        path, fingerprint = race_file(checkpoint), make_fingerprint()
        stored: object = None
        if path.exists():
            try:
                stored = json.loads(path.read_text("utf-8"))
            except (OSError, ValueError):
                stored = None
        log = cls(path, fingerprint, limits, {})
        if isinstance(stored, dict) and "fingerprint" in stored:
            difference = fingerprint.difference(stored["fingerprint"])
            if difference is not None:
                raise of_another_fit(checkpoint, difference)
            seconds, winner = stored.get("seconds"), _as_candidate(stored.get("winner"))
            if isinstance(seconds, float) and winner is not None:
                log.seconds, log.winner = seconds, winner
            found = stored.get("trials")
            if isinstance(found, dict) and (log.winner is not None or stored.get("limits") == limits):
                log.trials = {key: row for key, row in found.items() if _is_trial(row) and _is_key(key)}
        return log

    def get(self, key: str) -> Trial | None:
        """A trial that is finished."""
        row = self.trials.get(key)
        if row is None:
            return None
        log_loss, error, n_rows, n_steps, seconds = row["result"]
        score = HeldOutScore(log_loss, error, int(n_rows))
        return Trial(score, int(n_steps), seconds, tuple(row["theta"]), np.array(row["losses"]))

    def put(self, key: str, trial: Trial) -> None:
        """Keep a trial."""
        self.trials[key] = {
            "result": [*map(float, trial.score), float(trial.n_steps), trial.seconds],
            "theta": list(trial.theta),
            "losses": trial.losses.tolist(),
        }
        self._write()

    def decided(self, winner: Candidate, seconds: float) -> float:
        """Keep the winner and the seconds that the race has taken; those of the first time count."""
        if self.seconds is None:
            self.seconds, self.winner = seconds, winner
            self._write()
        return self.seconds

    def _write(self) -> None:
        if self.path is not None:
            document = {
                "fingerprint": self.fingerprint.as_json(),
                "limits": self.limits,
                "trials": self.trials,
                "seconds": self.seconds,
                "winner": self.winner,
            }
            with written_atomically(self.path) as file:
                file.write(json.dumps(document).encode())


def _is_trial(row: object) -> bool:
    if not isinstance(row, dict) or row.keys() != {"result", "theta", "losses"}:
        return False
    numbers = all(
        isinstance(part, list) and all(isinstance(v, float) for v in part) for part in row.values()
    )
    return numbers and len(row["result"]) == 5 and len(row["losses"]) in (0, row["result"][2])


def _is_key(key: str) -> bool:
    """Whether a key is that of a trial: a candidate and a length."""
    try:
        *row, length = json.loads(key)
    except (TypeError, ValueError):
        return False
    return _as_candidate(row) is not None and isinstance(length, int)


def _as_candidate(row: object) -> Candidate | None:
    """The candidate that a log names; None if it names none."""
    if not isinstance(row, list) or len(row) != len(Candidate._fields):
        return None
    candidate = Candidate(*row)
    sizes = (candidate.n_inducing, candidate.n_leaves or 1, candidate.n_local or 1)
    whole = all(isinstance(size, int) and size > 0 for size in sizes)
    numbers = all(isinstance(value, float) for value in candidate[:2])
    names = (candidate.scaling, candidate.kernel_name, candidate.feature_set)
    return candidate if whole and numbers and all(isinstance(n, str | None) for n in names) else None

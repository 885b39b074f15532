"""By what a checkpoint knows its fit: what can be shown, and what is digested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Fingerprint:
    """What a run must have in common with a checkpoint to go on from it.

    >>> mine = Fingerprint({"tol": 0.1}, {"number of rows": 9}, {"labels": "77af", "start": "90b1"})
    >>> theirs = mine.as_json()
    >>> mine.difference(theirs)
    >>> mine.difference({**theirs, "contents": {"labels": "1234", "start": "5678"}})
    'its labels are not those passed now'
    >>> mine.difference({**theirs, "parameters": {"tol": 0.2}})
    'its parameters are others: tol is 0.2, and 0.1 now'
    """

    parameters: dict[str, Any] = field(default_factory=dict)
    """Numbers, strings, and lists and dictionaries of these, by name."""
    table: dict[str, Any] = field(default_factory=dict)
    """The same of the rows' number and kind."""
    contents: dict[str, str] = field(default_factory=dict)
    """Digests of what is too large to be shown."""

    def as_json(self) -> dict[str, Any]:
        """For a checkpoint."""
        return asdict(self)

    def difference(self, stored: Any) -> str | None:
        """In what the fit of a stored fingerprint was another one, or None."""
        theirs = stored if isinstance(stored, Mapping) else {}
        for what in ("parameters", "table"):
            mine, other = getattr(self, what), theirs.get(what) or {}
            changed = [
                f"{name} is {other.get(name)!r}, and {value!r} now"
                for name, value in mine.items()
                if other.get(name) != value
            ]
            if changed:
                name = "rows" if what == "table" else what
                return f"its {name} are others: {'; '.join(changed)}"
        return self._other_contents(theirs.get("contents") or {})

    def _other_contents(self, theirs: Mapping[str, str]) -> str | None:
        others = [name for name, mine in self.contents.items() if theirs.get(name) != mine]
        # The start follows from rows and labels: to say that it differs too would only confuse.
        causes = [name for name in others if name != "start"]
        if causes:
            return f"its {' and '.join(causes)} are not those passed now"
        if others:
            return (
                "its start (kernel, inducing points, standardisation) is another, although parameters, "
                "labels and the rows that were compared are the same: are other rows not, was it "
                "another version of cavity, NumPy or scikit-learn, or an estimator with warm_start that "
                "had been fitted?"
            )
        return None

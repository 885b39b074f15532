"""The progress of a run: a bar on a terminal, a line every half a minute elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

WIDTH = 24
EVERY = 30.0  # seconds between two lines without a terminal


class Bar:
    """Counts repetitions. Those found in the records are left out of the estimate of the time left."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._total = self._done = self._measured = 0
        self._begin = time.monotonic()
        self._last = -EVERY

    def expect(self, more: int) -> None:
        """Add this many repetitions to those that are to come."""
        self._total += more

    def starting(self, what: str) -> None:
        """A repetition begins."""
        self._show(what)

    def step(self, measured: bool) -> None:
        """A repetition is over: measured now, or skipped."""
        self._done += 1
        self._measured += measured

    def clear(self) -> None:
        """Make room for a line of output."""
        if self._stream.isatty():
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def line(self, what: str) -> str:
        """The bar as text.

        >>> bar = Bar()
        >>> bar.expect(4)
        >>> bar.step(measured=False)
        >>> bar.line("heart, SEP")
        '[######                  ] 1/4 heart, SEP'
        """
        filled = WIDTH * self._done // max(1, self._total)
        left = ""
        if self._measured and self._total > self._done:
            each = (time.monotonic() - self._begin) / self._measured
            left = f", about {_duration(each * (self._total - self._done))} left"
        bar = "#" * filled + " " * (WIDTH - filled)
        return f"[{bar}] {self._done}/{self._total}{left} {what}"

    def _show(self, what: str) -> None:
        if not self._total:
            return
        if self._stream.isatty():
            self._stream.write(f"\r\x1b[K{self.line(what)}")
            self._stream.flush()
        elif time.monotonic() - self._last >= EVERY:
            self._last = time.monotonic()
            print(self.line(what), file=self._stream, flush=True)


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"

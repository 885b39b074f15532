"""Ctrl-C in the middle of a fit."""

import os
import signal

from cavity.engines.local import LocalEngine


def interrupted_after(monkeypatch, number):
    """Ctrl-C, as a terminal sends it, in the sweep of that number."""
    count = 0
    sweep = LocalEngine.sweep

    def interrupted(*args, **kwargs):
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGINT)
        return sweep(*args, **kwargs)

    monkeypatch.setattr(LocalEngine, "sweep", interrupted)

"""The command `cavity`: fits, predicts, evaluates and reports on tables."""

from __future__ import annotations

import signal
import sys

_NEEDED = ("typer", "click", "rich", "shellingham", "typing_extensions")
"""Packages of the extra `cli`."""


def main() -> None:
    """Run the command line; the exit status is 0, 1 (failed), 2 (bad input) or 128 + a signal."""
    # Commands handle Ctrl-C. Before and after them it ends the process without a traceback.
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from cavity.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        sys.exit(f"cavity: the command line needs {error.name}: pip install 'cavity[cli]'")
    app(prog_name="cavity")

"""The command `cavity`: fits, predicts, evaluates and reports on tables."""

from __future__ import annotations

import sys

_NEEDED = ("typer", "click", "rich", "shellingham", "typing_extensions")
"""Packages of the extra `cli`."""


def main() -> None:
    """Run the command line; the exit status is 0, 1 (failed), 2 (bad usage or input) or 130 (Ctrl-C)."""
    try:
        from cavity.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        sys.exit(f"cavity: the command line needs {error.name}: pip install 'cavity[cli]'")
    except KeyboardInterrupt:
        sys.exit(130)
    app(prog_name="cavity")

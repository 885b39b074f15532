"""Around every command: one sentence instead of a traceback, and an exit status that means something."""

from __future__ import annotations

import functools
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import typer

from cavity.cli import settings
from cavity.memory import keep_freed_memory

FAILED, BAD_INPUT, INTERRUPTED, TERMINATED, BROKEN_PIPE = 1, 2, 130, 143, 141

Command = TypeVar("Command", bound=Callable[..., Any])


class CommandError(Exception):
    """What the user asked for cannot be done; the message says why, and what to do instead."""


class InterruptedFitError(Exception):
    """Ctrl-C ended a fit; the message says what is left of it."""


def say(words: str) -> None:
    """A line for the user, on standard error."""
    print(f"cavity: {words}", file=sys.stderr, flush=True)


def guarded(command: Command) -> Command:
    """A command that ends in a sentence and an exit status, whatever happens."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        with _warnings_in_a_line(), _terminated_cleanly():
            keep_freed_memory()
            try:
                command(*args, **kwargs)
                sys.stdout.flush()
            except BaseException as error:
                raise typer.Exit(_ended(error)) from error
            finally:
                settings.debug = settings.quiet = False  # they hold for one run

    return run  # type: ignore[return-value]


def _ended(error: BaseException) -> int:
    """Say what went wrong; returns the exit status."""
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAILED
    if isinstance(error, BrokenPipeError):
        # Whoever read our output has gone, as `head` does; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    if isinstance(error, (KeyboardInterrupt, InterruptedFitError)):
        say(str(error) or "interrupted; nothing was written")
        return INTERRUPTED
    if settings.debug:
        import traceback

        traceback.print_exception(error)
    say(_sentence(error))
    return BAD_INPUT if _is_bad_input(error) else FAILED


def _is_bad_input(error: BaseException) -> bool:
    from cavity.errors import CheckpointError, ModelFileError

    return isinstance(error, (CommandError, ValueError, TypeError, CheckpointError, ModelFileError))


def _sentence(error: BaseException) -> str:
    from cavity.errors import CheckpointError, ModelFileError, NumericalError, SourceError

    words = " ".join(str(error).split())
    ours = (CommandError, SourceError, ModelFileError, CheckpointError, NumericalError, ImportError)
    if isinstance(error, ours) or (isinstance(error, ValueError) and words):
        return words
    if isinstance(error, MemoryError):
        return f"there is not enough memory{': ' + words if words else ''}; try fewer inducing points"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    more = "" if settings.debug else " (cavity --debug shows where)"
    return f"something went wrong: {type(error).__name__}: {words}{more}"


@contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    def show(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
        if not issubclass(category, (DeprecationWarning, FutureWarning, ResourceWarning)):
            say(f"warning: {' '.join(str(message).split())}")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield


@contextmanager
def _terminated_cleanly() -> Iterator[None]:
    """A polite kill ends the command as an error would: temporary files are removed."""

    def terminate(*_: Any) -> None:
        raise SystemExit(TERMINATED)

    try:
        before = signal.signal(signal.SIGTERM, terminate)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

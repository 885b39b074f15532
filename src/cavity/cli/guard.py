"""Error messages, warnings and the exit status of the commands."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from inspect import Parameter, Signature, signature
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any, TextIO, get_type_hints

import typer

from cavity.memory import keep_freed_memory
from cavity.text import printable, printable_lines

if TYPE_CHECKING:
    from cavity.typing import JsonObject

FAILED, BAD_INPUT, BROKEN_PIPE = 1, 2, 141
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
_NUMBERS = [number for number in signal.Signals if number.name in _SIGNALS]
"""Signals that end a command: Ctrl-C, `kill`, and a terminal that closes."""


_SHARED = "Shared by all commands"
"""Title of their group in the help."""


@dataclass(frozen=True)
class Settings:
    """Options that all commands share; they may stand before the command's name or after it."""

    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", rich_help_panel=_SHARED, help="Show no progress.")
    ] = False
    json: Annotated[
        bool, typer.Option("--json", rich_help_panel=_SHARED, help="Print one JSON document.")
    ] = False
    debug: Annotated[
        bool, typer.Option("--debug", rich_help_panel=_SHARED, help="Show the traceback of an error.")
    ] = False

    @property
    def force(self) -> bool:
        """Whether an output file that exists is replaced; most commands write none."""
        return False

    def together(self, other: Settings | None) -> Settings:
        """These settings, with those that stood before the command's name."""
        given = {f.name: True for f in fields(self) if other is not None and vars(other).get(f.name)}
        return replace(self, **given)


@dataclass(frozen=True)
class OutputSettings(Settings):
    """The shared options of commands that write a file."""

    force: Annotated[
        bool,
        typer.Option(
            "--force", "-f", rich_help_panel=_SHARED, help="Replace an output file that exists."
        ),
    ] = False


class CommandError(Exception):
    """A request that cannot be fulfilled; the message says why and what to do instead."""


class SignalledError(BaseException):
    """A signal that ends the command at once; the message says what has been written.

    It is no `KeyboardInterrupt`, after which a fit would return what it has learned so far.
    """

    def __init__(
        self, number: int, words: str | None = None, document: JsonObject | None = None
    ) -> None:
        """document: results so far, which are printed with `--json`."""
        super().__init__(words or "nothing was written")
        self.number, self.words, self.document = number, words, document or {}


@dataclass
class FirstSignal:
    """The first signal during a block of `ending_early`, if there was one."""

    number: int | None = None
    is_only_noted: bool = False
    """Whether a signal no longer ends the block, because the rest of it must be done in any case."""


def say(words: str) -> None:
    """Print a line for the user on standard error; on a terminal, it is broken between words."""
    line = f"cavity: {printable(words)}"
    if sys.stderr.isatty():
        width = max(40, shutil.get_terminal_size().columns)
        line = fill(line, width, subsequent_indent="  ", break_on_hyphens=False)
    print(line, file=sys.stderr, flush=True)


def show(text: str, file: TextIO | None = None) -> None:
    """Print the result of a command, lines of text, on standard output or in another place."""
    print(printable_lines(text), file=file, flush=True)


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a command that is a data class by options, one for each field."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Any]] = {
        name: kind for name, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)
    }
    parameters: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        name, kind = parameter.name, Parameter.KEYWORD_ONLY
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name], kind=kind))
            continue
        types = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            default = Parameter.empty if field.default is MISSING else field.default
            one = Parameter(field.name, kind, default=default, annotation=types[field.name])
            parameters.append(one)

    @functools.wraps(command)
    def run(**options: object) -> None:
        for name, group in groups.items():
            options[name] = group(**{field.name: options.pop(field.name) for field in fields(group)})
        command(**options)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command end with an exit status and, after an error, with one sentence.

    A parameter that is a data class stands for the options that are its fields.
    """

    @functools.wraps(command)
    def run(context: typer.Context, settings: Settings, **options: object) -> None:
        settings = settings.together(context.obj)
        with _warnings_in_a_line(), _signals_raised():
            keep_freed_memory()
            try:
                command(settings=settings, **options)
                sys.stdout.flush()
            except BaseException as error:
                raise typer.Exit(_exit_status(error, settings)) from error

    of_context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    own = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in signature(command).parameters.values()]
    run.__signature__ = Signature([of_context, *own])  # type: ignore[attr-defined]
    run.__annotations__ = {**get_type_hints(command, include_extras=True), "context": typer.Context}
    return expanded(run)


def _exit_status(error: BaseException, settings: Settings) -> int:
    """Print what went wrong and return the exit status."""
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAILED
    if isinstance(error, BrokenPipeError):
        # The reader of our output, such as `head`, has ended. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    if isinstance(error, SignalledError):
        words = f"{'interrupted' if error.number == signal.SIGINT else 'terminated'}; {error}"
        # The status is that which a shell reports for a process that the signal has ended.
        return failed(words, 128 + error.number, settings.json, error.document)
    if settings.debug:
        import traceback

        show("".join(traceback.format_exception(error)), sys.stderr)
    return failed(_sentence(error), BAD_INPUT if _is_bad_input(error) else FAILED, settings.json)


def failed(words: str, status: int, json: bool, document: JsonObject | None = None) -> int:
    """Say why a command fails and return its exit status; if `json`, also print both as JSON.

    document: results so far, which are printed along with the error.
    """
    if json:
        from cavity.cli.io import print_json

        print_json({**(document or {}), "error": words, "status": status})
        sys.stdout.flush()
    say(words)
    return status


def _is_bad_input(error: BaseException) -> bool:
    from cavity.errors import CheckpointError, ModelFileError

    if isinstance(error, CheckpointError):  # or else it could not be written
        return not isinstance(error.__cause__, OSError)
    return isinstance(error, (CommandError, ValueError, TypeError, ModelFileError))


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
    return f"unexpected {type(error).__name__}: {words} (--debug shows the traceback)"


@contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Print each warning as one line, without those that only developers need."""

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        if category.__name__ == "ConvergenceWarning":  # by name: scikit-learn may not be loaded
            if "was interrupted" in str(message):
                return  # the command says so itself
            message = "training ended before it converged; a larger --budget may do better"
        elif category.__name__ == "BoundWarning":
            message = f"{str(message).partition('. ')[0]}; from Python, a kernel can have wider bounds"
        if not issubclass(category, (DeprecationWarning, FutureWarning, ResourceWarning)):
            say(f"warning: {' '.join(str(message).split())}")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield


@contextmanager
def _signals_raised() -> Iterator[None]:
    """Let Ctrl-C, `kill` and a terminal that closes end the block by `SignalledError`.

    Temporary files are then removed. Signals that this process was started to ignore stay ignored.
    """

    before = {number: signal.getsignal(number) for number in _NUMBERS}
    handled = [number for number in _NUMBERS if before[number] != signal.SIG_IGN]
    try:
        for number in handled:
            signal.signal(number, _raise_signal)
    except ValueError:  # not in the main thread
        handled = []
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])


def _raise_signal(number: int, _: object) -> None:
    raise SignalledError(number)


@contextmanager
def ending_early() -> Iterator[FirstSignal]:
    """Context in which the first signal ends a fit like Ctrl-C: it keeps what it has learned.

    Inside, the signal is a `KeyboardInterrupt`. If that leaves the block, nothing had been learned. The
    second signal ends the command at once.
    """
    first = FirstSignal()
    handled = [number for number in _NUMBERS if signal.getsignal(number) is _raise_signal]

    def stop(number: int, _: object) -> None:
        first.number = number
        for each in handled:
            signal.signal(each, _raise_signal)
        if not first.is_only_noted:
            raise KeyboardInterrupt

    for number in handled:
        signal.signal(number, stop)
    try:
        yield first
    except KeyboardInterrupt:
        if first.number is None:
            raise
        raise SignalledError(first.number) from None
    finally:
        first.is_only_noted = True
        for number in handled:
            signal.signal(number, _raise_signal)

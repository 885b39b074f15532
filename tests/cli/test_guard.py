"""What all commands share: groups of options, words on a terminal."""

import inspect
import io
import os
import sys
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from cavity.cli.app import app
from cavity.cli.guard import Settings, expanded, say


@dataclass(frozen=True)
class Colours:
    """A group of options."""

    ink: Annotated[str, typer.Option(help="Colour of the letters.")] = "black"
    paper: Annotated[str | None, typer.Option(help="Colour of the paper.")] = None


def test_a_data_class_stands_for_the_options_that_are_its_fields():
    seen = []

    @expanded
    def write(text: str, colours: Colours, times: int = 1) -> None:
        seen.append((text, colours, times))

    assert list(inspect.signature(write).parameters) == ["text", "ink", "paper", "times"]
    little = typer.Typer()
    little.command()(write)
    result = CliRunner().invoke(little, ["hello", "--paper", "white"])
    assert result.exit_code == 0, result.output
    assert seen == [("hello", Colours("black", "white"), 1)]


def test_settings_before_and_after_a_command_add_up():
    assert Settings(quiet=True).together(Settings(json=True)) == Settings(quiet=True, json=True)
    assert Settings(debug=True).together(None) == Settings(debug=True)


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


def test_on_a_terminal_words_stay_whole(monkeypatch):
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((60, 24)))
    monkeypatch.setattr(sys, "stderr", Terminal())
    say("one sentence of many words " * 5)
    lines = sys.stderr.getvalue().splitlines()
    assert len(lines) == 3
    assert max(len(line) for line in lines) <= 60
    assert " ".join(sys.stderr.getvalue().split()) == "cavity: " + " ".join(
        ("one sentence of many words " * 5).split()
    )


@pytest.mark.parametrize("command", [info.callback.__name__ for info in app.registered_commands])
def test_help_fits_eighty_columns(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert max(len(line) for line in result.output.splitlines()) <= 80

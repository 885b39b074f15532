"""The sessions of docs/command-line.md run, and print what the page says, but for the numbers."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cavity.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"


def blocks(language):
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def sessions():
    """Commands, and what they print."""
    for block in blocks("console"):
        for part in block.split("$ cavity ")[1:]:
            command, _, output = part.partition("\n")
            yield shlex.split(command), output


def skeleton(text):
    """Text without its numbers and without spaces that only line up."""
    lines = [re.sub(r"\s+", " ", re.sub(r"[\d,.]*\d", "#", line)).strip() for line in text.splitlines()]
    return [line for line in lines if line]


@pytest.mark.filterwarnings("default")
def test_the_sessions_print_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(blocks("python")[0], {})
    commands = list(sessions())
    assert len(commands) >= 7
    for command, expected in commands:
        result = CliRunner().invoke(app, command)
        said = result.stdout + result.stderr
        wanted = skeleton(expected)
        if wanted and wanted[-1] == "{...":
            said = said[:1] + "..."
        assert skeleton(said) == wanted, command
        assert result.exit_code == (2 if "delaid" in command else 0)

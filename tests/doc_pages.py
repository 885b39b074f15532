"""The pages of the documentation, and a reader that executes their code blocks in order."""

import argparse
import json
import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import yaml
from typer.testing import CliRunner

from cavity.cli.app import app
from commands_elsewhere import CHECKS
from doc_blocks import blocks, run_python

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
        *(page for page in ROOT.glob("docs/**/*.md") if "_build" not in page.parts),
    ]
)
NUMBERED = {"command-line.md"}
"""Pages whose numbers are compared with what the commands print."""
LOOKS_LIKE_SHELL = re.compile(r"^(\$|cavity|make|pip|python|export) [\w-]", re.MULTILINE)


class Reader:
    """Executes the blocks of a page; a block that fails raises an error."""

    def __init__(self, page, compares=True):
        self.compares = compares
        self.page, self.names, self.status = page, {"__name__": "__main__"}, 0
        self.service = None
        self.printed = []
        """Text of every console block, with what its commands have printed now."""

    def read(self):
        """Execute the blocks of the page, in the current folder."""
        try:
            for block in blocks(self.page):
                self.execute(block)
        finally:
            if self.service is not None:
                self.service.terminate()
                self.service.communicate()

    def execute(self, block):
        """Run a block, or check it if it cannot be run here."""
        if block.language == "python":
            run_python(self.page, block, self.names)
        elif block.language == "console":
            self._console(block)
        elif block.language == "sh":
            for line in block.text.splitlines():
                self._shell(line)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "yaml":
            yaml.safe_load(block.text)
        elif block.language == "text":
            assert not LOOKS_LIKE_SHELL.search(block.text), f"{self.page}: commands belong into ```sh"
        elif block.language not in ("{eval-rst}", "{toctree}"):  # Sphinx executes these
            raise AssertionError(f"{self.page.name}:{block.line}: {block.language!r} is never run")

    def _console(self, block):
        """Run the commands after `$` and compare what they print.

        On the pages of `NUMBERED`, numbers are compared too, except for those of time.
        """
        first, *rest = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
        assert first == "", f"{self.page.name}:{block.line}: does not begin with a command"
        statuses = []
        for part in rest:
            command, _, expected = part.partition("\n")
            printed = self._said(command)
            self.printed.append((f"$ {part}", f"$ {command}\n{printed}"))
            statuses.append(None if command == "echo $?" else self.status)
            if not self.compares:
                continue
            if self.page.name in NUMBERED and not expected.rstrip().endswith("..."):
                compare_numbers(command, printed, expected)
            said, wanted = skeleton(printed), skeleton(expected)
            if wanted and wanted[-1].endswith("..."):  # and so on
                start = wanted.pop().removesuffix("...")
                assert said[len(wanted)].startswith(start), command
                said = said[: len(wanted)]
            assert said == wanted, command
        for status, following in zip(statuses, [*rest[1:], ""], strict=True):
            assert not status or following.startswith("echo $?"), f"{block.text} has status {status}"

    def _shell(self, line):
        """Run a command that must succeed, or check one that a test cannot run."""
        words = shlex.split(line, comments=True)
        if words and words[0] in CHECKS:
            CHECKS[words[0]](words[1:])
        elif words:
            said = self._said(line)
            assert self.status == 0, said

    def _said(self, line):
        """What a command prints; the command is `cavity` or `echo $?`."""
        if line == "echo $?":
            return f"{self.status}\n"
        program, *arguments = shlex.split(line, comments=True)
        if program == "curl":
            return self._answer(arguments)
        if arguments[-1:] == ["&"]:
            return self._started(arguments[:-1])
        assert program == "cavity", f"{self.page.name}: {line!r} is neither executed nor checked"
        result = CliRunner().invoke(app, arguments, prog_name="cavity")
        self.status = result.exit_code
        return result.stdout + result.stderr

    def _started(self, arguments):
        """What `cavity serve` says when it starts; it takes a free port instead of 8000."""
        assert arguments[0] == "serve", f"{self.page.name}: only a service runs in the background"
        command = [sys.executable, "-m", "cavity", *arguments, "--port", "0"]
        self.service = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        said = self.service.stderr.readline()
        self.port, self.status = int(re.search(r":(\d+) ", said)[1]), 0
        return said

    def _answer(self, arguments):
        """What the service answers to `curl`, whose port is that of the service."""
        parser = argparse.ArgumentParser()
        parser.add_argument("address")
        parser.add_argument("-d", "--data-binary", dest="data")
        parser.add_argument("-H", dest="headers", action="append", default=[])
        asked = parser.parse_args(arguments)
        path = re.fullmatch(r"localhost:8000(/.*)", asked.address)[1]
        data = asked.data
        if data is not None:
            data = Path(data[1:]).read_bytes() if data.startswith("@") else data.encode()
        request = urllib.request.Request(f"http://localhost:{self.port}{path}", data)
        for header in asked.headers:
            request.add_header(*re.split(": *", header, maxsplit=1))
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()


def compare_numbers(command, printed, expected):
    """Raise if a number on the page is not what the command prints, up to the rounding of machines."""
    pairs = zip(numbers(printed), numbers(expected), strict=True)
    wrong = [pair for pair in pairs if abs(pair[0] - pair[1]) > 0.02 + 0.05 * abs(pair[1])]
    assert not wrong, f"{command} prints {wrong[0][0]}, and the page has {wrong[0][1]}"


def numbers(text):
    """The numbers of a text, without those of time and speed.

    >>> numbers("2,500 rows, 0.8 s; NLL 0.4928 ± 0.0230")
    [2500.0, 0.4928, 0.023]
    """
    lines = [line for line in text.splitlines() if "second" not in line and "written with" not in line]
    found = re.findall(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?)(?! s\b)(?![\d.]*\w)", "\n".join(lines))
    return [float(word.rstrip(",").replace(",", "")) for word in found]


def rewrite(page):
    """Write what the commands print now into the console blocks of a page."""
    reader = Reader(page, compares=False)
    reader.read()
    text = page.read_text("utf-8")
    for before, now in reader.printed:
        if not before.rstrip().endswith("..."):
            text = text.replace(before, f"{now.rstrip()}\n", 1)
    page.write_text(text, "utf-8")


def skeleton(text):
    """Text with numbers replaced by # and runs of spaces by one."""
    lines = [re.sub(r"\s+", " ", re.sub(r"[\d,.]*\d", "#", line)).strip() for line in text.splitlines()]
    return [line for line in lines if line]


if __name__ == "__main__":  # python tests/doc_pages.py docs/command-line.md, in an empty folder
    rewrite(Path(sys.argv[1]))

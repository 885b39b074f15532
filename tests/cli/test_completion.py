"""What shells complete: commands, options, values, and file names where one is wanted."""

import os
import shutil
import subprocess
import sys

import pytest

CAVITY = [sys.executable, "-m", "cavity"]
COMMANDS, FILES, VALUES = "cavity pre", "cavity fit fl", "cavity fit --method s"


def asked(**words):
    environment = {**os.environ, **words}
    return subprocess.run(CAVITY, capture_output=True, text=True, timeout=60, env=environment)


def test_bash_completes_commands_and_leaves_files_to_itself():
    words = {"_CAVITY_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
    assert asked(**words, COMP_WORDS=COMMANDS).stdout.split() == ["predict"]
    assert asked(**{**words, "COMP_CWORD": "2"}, COMP_WORDS=FILES).stdout.split() == []
    assert "complete -o default -F" in asked(_CAVITY_COMPLETE="source_bash").stdout


def test_zsh_completes_commands_and_is_asked_for_files():
    words = {"_CAVITY_COMPLETE": "complete_zsh"}
    assert '"predict"' in asked(**words, _TYPER_COMPLETE_ARGS=COMMANDS).stdout
    assert asked(**words, _TYPER_COMPLETE_ARGS=FILES).stdout.strip() == "_files"


@pytest.mark.parametrize(
    ("line", "answer"), [(COMMANDS, ["predict"]), (VALUES, ["sep", "svi"]), (FILES, [])]
)
def test_fish_is_told_whether_there_is_more_than_files(line, answer):
    """Files are ruled out only together with a condition, which fails where they are wanted."""
    (script,) = asked(_CAVITY_COMPLETE="source_fish").stdout.strip().splitlines()
    assert script.startswith("complete --command cavity --no-files ")
    _, _, condition = script.partition("--condition ")
    assert "_TYPER_COMPLETE_FISH_ACTION=is-args" in condition
    words = {"_CAVITY_COMPLETE": "complete_fish", "_TYPER_COMPLETE_ARGS": line}
    assert asked(**words, _TYPER_COMPLETE_FISH_ACTION="is-args").returncode == (not answer)
    said = asked(**words, _TYPER_COMPLETE_FISH_ACTION="get-args").stdout.strip().splitlines()
    assert [item.partition("\t")[0] for item in said] == answer


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish on this machine")
def test_in_fish(tmp_path):
    (tmp_path / "flights.csv").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "flights.parquet").touch()
    command = tmp_path / "bin" / "cavity"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m cavity "$@"\n')
    command.chmod(0o755)
    (tmp_path / "cavity.fish").write_text(asked(_CAVITY_COMPLETE="source_fish").stdout)
    lines = {
        COMMANDS: ["predict"],
        VALUES: ["sep", "svi"],
        FILES: ["flights.csv"],
        "cavity predict flights.cavity data/": ["data/flights.parquet"],
        "cavity fit flights.csv --target late -o fl": ["flights.csv"],
    }
    for line, wanted in lines.items():
        path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"source cavity.fish; complete -C '{line}'"],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "XDG_DATA_HOME": str(tmp_path / "home")},
        )
        assert [item.partition("\t")[0] for item in done.stdout.splitlines()] == wanted, line

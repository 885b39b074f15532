"""The command in a process of its own, with pipes and terminals."""

import os
import pty
import re
import subprocess
import sys

import pytest

from flights_table import flights

CAVITY = [sys.executable, "-m", "cavity"]
# The bar is drawn at every change instead of ten times a second.
EVERY_ITERATION = """
from cavity.cli import main
from cavity.cli.progress import Bar
show = Bar._show
def shown(bar, *args, **options):
    show(bar, *args, **options)
    bar._bar.refresh()
Bar._show = shown
main()
"""

MAIN = "from cavity.cli import main; main()"
# Files of more than 2 KB cannot be written.
SMALL_FILES = """
import resource
from cavity.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (2_048, 2_048))
main()
"""


def run(*args, **options):
    return subprocess.run(
        [*CAVITY, *map(str, args)], capture_output=True, text=True, timeout=120, **options
    )


@pytest.fixture(scope="module")
def folder(start_command, tmp_path_factory):
    place = tmp_path_factory.mktemp("process")
    flights(300).to_csv(place / "flights.csv", index=False)
    args = ["--target", "delayed", "--inducing", "6", "--budget", "20i", "-o", "m.cavity"]
    fit = start_command(MAIN, ["fit", "flights.csv", *args], place)
    out, said = fit.communicate()
    assert fit.returncode == 0, said
    assert out == ""
    return place


def test_help_needs_none_of_the_heavy_packages():
    code = (
        "import sys; sys.argv = ['cavity', '--help']\n"
        "from cavity.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'pandas', 'pyarrow', 'matplotlib', 'dask'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    for command in ("fit", "predict", "evaluate", "report", "inspect", "demo"):
        assert command in done.stdout


def test_without_typer_the_extra_is_named():
    code = "import sys; sys.modules['typer'] = None\nfrom cavity.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "cavity: the command line needs typer: pip install 'cavity[cli]'\n"


def test_predictions_go_through_pipes(start_command, folder):
    process = start_command(MAIN, ["predict", "m.cavity", "flights.csv"], folder)
    out, _ = process.communicate()
    assert process.returncode == 0
    assert len(out.splitlines()) == 301
    piped = f"{' '.join(CAVITY)} predict m.cavity flights.csv | head -n 2"
    done = subprocess.run(piped, shell=True, capture_output=True, text=True, cwd=folder)
    assert len(done.stdout.splitlines()) == 2
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_bad_input_is_a_sentence_and_a_status(folder):
    done = run("fit", "flights.csv", "--target", "delaid", "-o", "x.cavity", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    words = "cavity: flights.csv has no target column 'delaid'; did you mean 'delayed'?"
    assert done.stderr.splitlines()[-1] == words
    assert not (folder / "x.cavity").exists()


@pytest.mark.parametrize(
    "command",
    [
        "predict m.cavity flights.csv -o full.csv",
        "predict m.cavity flights.csv -o full.parquet",
        "report m.cavity flights.csv -o full.html",
        "fit flights.csv --target delayed --inducing 6 --budget 5i -o full.cavity",
    ],
)
def test_a_full_disk_is_a_failure_that_leaves_nothing(start_command, folder, command):
    output = command.split()[-1]
    process = start_command(SMALL_FILES, ["-q", *command.split()], folder)
    out, said = process.communicate()
    assert (process.returncode, out) == (1, "")
    assert said.splitlines()[-1] == f"cavity: {output}: File too large"
    assert not [path.name for path in folder.iterdir() if "full" in path.name]


def test_a_terminal_sees_the_bar(folder):
    """What a pseudo-terminal is sent: a bar that moves, and everything that it should tell."""
    flights(3_000).to_csv(folder / "big.csv", index=False)
    options = ("--budget", "3 epochs", "--inducing", "10")
    fit = ["fit", "big.csv", "--target", "delayed", "-o", "big.cavity", *options]
    command = [sys.executable, "-c", EVERY_ITERATION, *fit]
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=follower, stdin=follower, cwd=folder, env=environment
    )
    os.close(follower)
    seen = b""
    try:
        while block := os.read(leader, 65_536):
            seen += block
    except OSError:  # the other side has closed
        pass
    os.close(leader)
    assert process.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode())
    for words in ("epoch", "objective", "leave-one-out NLL", "rows/s", "exact sweep"):
        assert words in text, words
    assert len(set(re.findall(r"(\d+)%", text))) > 3
    assert "━" in text

"""Makes `support` and `reference` importable from every test; keeps clocks and cores out of the way."""

import os
import signal

import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

from forked_commands import command_server

# No doctests in these, and two modules of one name cannot both be imported for them.
collect_ignore_glob = ["conftest.py", "*/conftest.py"]

# On a server that tests a change, the random examples are the same every time: the change is to blame.
settings.register_profile("cavity", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("cavity")

# A shell lets its background jobs ignore Ctrl-C, and processes that they start inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """On problems as small as these, more threads only get in each other's way."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session")
def start_command():
    """Starts `python -c` from code, arguments and folder, in a process that need not import anything."""
    with command_server() as start:
        yield start

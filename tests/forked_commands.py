"""Commands in processes of their own that need not import anything.

They are forked from a process that has done so: an import takes two seconds, and what a test asks of a
command a fraction of one.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

LOADED = ["cavity.cli.app", "cavity.cli.fit", "cavity.cli.predict", "cavity.report"]
LOADED += ["cavity.export.checks", "pandas", "pyarrow.csv", "pyarrow.pandas_compat", "skops.io"]
"""What is imported before any command is forked."""
SERVER = f"import sys; sys.path.append({str(Path(__file__).parent)!r}); import forked_commands as it; "


class Command:
    """A process that runs some code, with pipes to all three of its streams; it leads a session."""

    def __init__(self, server, code, arguments, folder):
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        order = {"code": code, "arguments": arguments, "folder": str(folder)}
        socket.send_fds(server, [json.dumps(order).encode()], theirs)
        for number in theirs:
            os.close(number)
        self.stdin = os.fdopen(pipes[0][1], "w")
        self.stdout, self.stderr = (os.fdopen(ours, "r") for ours, _ in pipes[1:])
        self._answers = server.makefile("r")
        self.pid = int(self._answers.readline())
        self.returncode = None

    def communicate(self, words=""):
        """Send words, and wait for the end; returns what the streams said that was not read before."""
        with suppress(BrokenPipeError), self.stdin:
            self.stdin.write(words)
        with self.stdout, self.stderr, self._answers:
            with ThreadPoolExecutor(1) as other:
                out = other.submit(self.stdout.read)
                said = self.stderr.read()
            self.returncode = int(self._answers.readline())
        return out.result(), said

    def end(self):
        """Kill it if it still runs: a test that failed has left it."""
        if self.returncode is None:
            for kill in (os.killpg, os.kill):  # it may not lead its session yet
                with suppress(ProcessLookupError):
                    kill(self.pid, signal.SIGKILL)
            self.communicate()


@contextmanager
def command_server():
    """A function that starts a `Command` from its code, arguments and folder; one at a time."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        code = f"{SERVER}it.serve({theirs.fileno()})"
        with subprocess.Popen([sys.executable, "-c", code], pass_fds=[theirs.fileno()]):
            theirs.close()
            begun = []

            def start(*order):
                for command in begun:
                    command.end()
                begun[:] = [Command(ours, *order)]
                return begun[0]

            yield start
            for command in begun:
                command.end()
            ours.close()  # this ends the server


def serve(number):
    """Fork a process for each order that comes through the socket; answer its id, and how it ended."""
    for name in LOADED:
        import_module(name)
    connection = socket.socket(fileno=number)
    while True:
        order, streams, _, _ = socket.recv_fds(connection, 1_000_000, 3)
        if not order:
            return
        child = os.fork()
        if child == 0:
            connection.close()
            _run(streams, **json.loads(order))
            return
        for stream in streams:
            os.close(stream)
        connection.sendall(f"{child}\n".encode())
        _, status = os.waitpid(child, 0)
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _run(streams, code, arguments, folder):
    """What `python -c code arguments` does, in this process."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    sys.argv = ["-c", *arguments]
    exec(code, {"__name__": "__main__"})

"""The command `cavity serve`."""

from __future__ import annotations

import ipaddress
import socket

import typer

from cavity.cli.guard import CommandError, Settings, SignalledError, say
from cavity.cli.io import loaded_model, print_json

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Names by which a service on this machine is addressed."""
_LAST_SECONDS = 5
"""How long requests may take to end when the service is asked to end."""


def run_serve(model_path: str, host: str, port: int, jobs: int | None, settings: Settings) -> None:
    """Serve a model over HTTP until a signal ends it."""
    try:
        import uvicorn

        from cavity.cli.service import create_app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("uvicorn", "starlette", "anyio"):
            raise
        raise CommandError(f"cavity serve needs {error.name}: pip install 'cavity[serve]'") from error
    model = loaded_model(model_path, jobs)
    local = is_loopback(host)
    app = create_app(model, hosts=_LOOPBACK if local else None)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=_LAST_SECONDS,
    )
    with listening(host, port) as listener:
        port = listener.getsockname()[1]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        if not local:
            say(f"warning: everybody who can reach {host} can use this service; it has no passwords")
        if settings.json:
            print_json({"model": model_path, "url": url})
        say(f"serving {model_path} at {url} (Ctrl-C ends it)")
        try:
            uvicorn.Server(config).run(sockets=[listener])
        except SignalledError as error:
            # This is how a service ends, so that --json has nothing more to tell.
            say("the service has ended")
            raise typer.Exit(128 + error.number) from None


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine reach a host.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens at a host and port; port 0 is one that is free."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2_048)
    except OSError as error:
        raise CommandError(
            f"--host {host} --port {port}: cannot listen there ({error.strerror}); choose another port, "
            "0 for any that is free, or another host"
        ) from error

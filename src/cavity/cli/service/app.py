"""The web application: routes, limits, errors in words, and counts for monitoring."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files

from anyio import CapacityLimiter, current_time, move_on_after, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cavity.cli.guard import say
from cavity.cli.service.rows import (
    RequestError,
    answer,
    model_schema,
    openapi,
    rows_of_csv,
    rows_of_json,
)
from cavity.engines.threads import thread_count
from cavity.errors import SourceError
from cavity.estimators.table import TableClassifier

_PATHS = ("/", "/predict", "/schema", "/openapi.json", "/docs", "/health", "/metrics")
_JSON_TYPES = ("", "application/json", "application/x-www-form-urlencoded")  # the last is curl's -d
_DRAIN_SECONDS = 30.0
"""How long the rest of a body that is too large is read, so that its sender sees the answer."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@dataclass(frozen=True)
class Limits:
    """How large a request may be."""

    bytes: int = 10_000_000
    rows: int = 10_000


class _Answer(JSONResponse):
    """JSON in ASCII: names in a request may hold characters that UTF-8 cannot encode."""

    def render(self, content: object) -> bytes:
        """The bytes of the document."""
        return json.dumps(content, allow_nan=False, default=str).encode("ascii")


def create_app(
    model: TableClassifier, limits: Limits | None = None, hosts: Sequence[str] | None = None
) -> Starlette:
    """The ASGI application that serves a fitted table classifier.

    hosts: names by which requests may address the service; None allows all. A service on loopback that
    checks them cannot be read by web pages of strangers in a browser on the same machine.

    >>> import pandas
    >>> from cavity import SEPClassifier, TableClassifier
    >>> frame = pandas.DataFrame({"hour": [6, 7, 8, 18, 19, 20] * 5})
    >>> frame["late"] = frame["hour"] > 12
    >>> model = TableClassifier(SEPClassifier(n_inducing=5, random_state=0)).fit(frame, "late")
    >>> sorted(route.path for route in create_app(model).routes)[:4]
    ['/', '/docs', '/health', '/metrics']
    """
    service = _Service(model, limits or Limits(), hosts)
    return Starlette(
        routes=[
            Route("/", partial(_page, "page.html")),
            Route("/docs", partial(_page, "docs.html")),
            Route("/predict", service.predict, methods=["POST"]),
            Route("/schema", service.schema),
            Route("/openapi.json", service.openapi),
            Route("/health", service.health),
            Route("/metrics", service.metrics),
        ],
        middleware=[Middleware(_Guard, service=service)],
        exception_handlers={HTTPException: _http_error, RequestError: _refusal},
    )


def _refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return _Answer({"error": str(error)}, error.status)


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path, method = request.url.path, request.method
    words = {
        404: f"there is no {path}; there are {', '.join(_PATHS)}",
        405: f"{path} does not answer {method}; it answers {(error.headers or {}).get('Allow')}",
    }.get(error.status_code, str(error.detail))
    return _Answer({"error": words}, error.status_code, headers=error.headers)


async def _page(name: str, _: Request) -> Response:
    text = files("cavity.cli.service").joinpath(name).read_text(encoding="utf-8")
    return HTMLResponse(text)


class _Service:
    """A model, and what has been asked of it."""

    def __init__(self, model: TableClassifier, limits: Limits, hosts: Sequence[str] | None) -> None:
        self.model, self.limits, self.hosts = model, limits, hosts
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: dict[str, float] = {}
        self.rows = 0
        # A prediction keeps its thread busy: with more threads than cores all would be late.
        self._threads = CapacityLimiter(thread_count(model.estimator_.n_jobs))
        self._schema = {**model_schema(model), "limits": {"bytes": limits.bytes, "rows": limits.rows}}
        self._openapi = openapi(model, limits.bytes, limits.rows)

    async def predict(self, request: Request) -> Response:
        """Predict the rows of the body."""
        level = _level(request.query_params.get("level", "0.9"))
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in (*_JSON_TYPES, "text/csv"):
            raise RequestError(
                415, f"a body of type {kind!r} cannot be read; send application/json or text/csv"
            )
        body = await self._body(request)
        read = rows_of_csv if kind == "text/csv" else rows_of_json
        found, n_rows = await to_thread.run_sync(
            self._answer, read, body, level, limiter=self._threads, abandon_on_cancel=True
        )
        self.rows += n_rows
        return found

    def _answer(self, read: Callable[..., object], body: bytes, level: float) -> tuple[Response, int]:
        """The answer, as it is sent, and its number of rows."""
        try:
            rows = read(body, self.model, self.limits.rows)
        except SourceError as error:
            raise RequestError(422, str(error)) from None
        found = answer(self.model, rows, level)
        return _Answer(found), len(found["predictions"])

    async def _body(self, request: Request) -> bytes:
        """The bytes of the body, unless they are too many."""
        most, size = self.limits.bytes, 0
        parts: list[bytes] = []
        stated = request.headers.get("content-length", "")
        large = stated.isdigit() and int(stated) > most
        if large and "expect" in request.headers:
            raise _too_large(most)  # its sender waits for leave to send the rest
        with move_on_after(_DRAIN_SECONDS if large else None) as scope:
            async for part in request.stream():
                size += len(part)
                if not large and size > most:
                    large, parts = True, []
                    scope.deadline = current_time() + _DRAIN_SECONDS
                if not large:
                    parts.append(part)
        if large:
            raise _too_large(most)
        return b"".join(parts)

    async def schema(self, _: Request) -> Response:
        """Columns and classes."""
        return _Answer(self._schema)

    async def openapi(self, _: Request) -> Response:
        """The description for programs."""
        return _Answer(self._openapi)

    async def health(self, _: Request) -> Response:
        """That the service answers."""
        return _Answer({"status": "ok"})

    async def metrics(self, _: Request) -> Response:
        """Counts in the text format of Prometheus."""
        lines = [
            "# HELP cavity_requests_total Requests that were answered, by path and HTTP status.",
            "# TYPE cavity_requests_total counter",
        ]
        for (path, status), count in sorted(self.requests.items()):
            lines.append(f'cavity_requests_total{{path="{path}",status="{status}"}} {count}')
        errors = sum(count for (_, status), count in self.requests.items() if status >= 400)
        lines += [
            "# HELP cavity_errors_total Requests with a status of 400 or more.",
            "# TYPE cavity_errors_total counter",
            f"cavity_errors_total {errors}",
            "# HELP cavity_rows_total Rows that were predicted.",
            "# TYPE cavity_rows_total counter",
            f"cavity_rows_total {self.rows}",
            "# HELP cavity_request_seconds Time from a request to its answer, by path.",
            "# TYPE cavity_request_seconds summary",
        ]
        for path, seconds in sorted(self.seconds.items()):
            count = sum(n for (other, _), n in self.requests.items() if other == path)
            lines.append(f'cavity_request_seconds_sum{{path="{path}"}} {seconds:.6f}')
            lines.append(f'cavity_request_seconds_count{{path="{path}"}} {count}')
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


def _level(text: str) -> float:
    try:
        level = float(text)
    except ValueError:
        level = float("nan")
    if not 0.0 < level < 1.0:
        raise RequestError(422, f"level={text} is not between 0 and 1; send a number such as 0.9")
    return level


def _too_large(most: int) -> RequestError:
    return RequestError(413, f"the body has more than {most:,} bytes; send fewer rows in one request")


class _Guard:
    """Middleware: checks the host, adds headers, counts, and turns any failure into words."""

    def __init__(self, app: ASGIApp, service: _Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                extra = [(k.lower().encode(), v.encode()) for k, v in _HEADERS.items()]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        try:
            await self._answered(scope)(scope, receive, watched)
        except ClientDisconnect:
            status = 499  # as nginx counts clients that did not wait
        except Exception as error:
            say(f"{scope['path']}: unexpected {type(error).__name__}: {error}")
            if status:
                raise
            words = f"the service failed ({type(error).__name__}); its log says why"
            await _Answer({"error": words}, 500)(scope, receive, watched)
        path = scope["path"] if scope["path"] in _PATHS else "other"
        self.service.requests[path, status] += 1
        before = self.service.seconds.get(path, 0.0)
        self.service.seconds[path] = before + time.perf_counter() - begun

    def _answered(self, scope: Scope) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
        """The application, or an error if the request addresses another host."""
        hosts = self.service.hosts
        host = Request(scope).headers.get("host", "").rpartition("@")[2].lower()
        name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
        if hosts is None or name in hosts:
            return self.app
        words = f"this service is not {name!r}; address it as {' or '.join(hosts)}"
        return _Answer({"error": words}, 421)

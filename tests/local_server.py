"""A web server on this machine that can misbehave as real ones do."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Site:
    """What is served, how, and what was asked for."""

    def __init__(self):
        self.files = {}
        self.ranges = True
        self.cut_after = None  # bytes of a body after which the connection breaks …
        self.cuts = 0  # … so many times
        self.requests = []
        self.url = ""


@contextmanager
def serving():
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked = self.headers.get("Range")
            site.requests.append((self.path, asked))
            body = site.files.get(self.path)
            if body is None:
                self.send_error(404, "Not Found")
                return
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and site.ranges else 0
            if start and start >= len(body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            part = body[start:]
            if site.cut_after is not None and site.cuts > 0:
                site.cuts -= 1
                part = part[: site.cut_after]
            self.wfile.write(part)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

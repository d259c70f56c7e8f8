"""A small HTTP server whose files misbehave as a test asks."""

import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Served:
    """A file of the server."""

    content: bytes = b""
    dies_after: int | None = None
    """bytes of the content after which the connection breaks"""
    stalls: float = 0.0
    """seconds between the header and the content"""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    """further ones, such as Content-Type"""


class Server(ThreadingHTTPServer):
    """Serves `files` by name and lists the names it was asked for in `requests`."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, Served] = {}
        self.requests: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        name = self.path.removeprefix("/")
        self.server.requests.append(name)
        self.close_connection = True
        if name not in self.server.files:
            return self.send_error(404)
        file = self.server.files[name]
        self.send_response(file.status)
        self.send_header("Content-Length", str(len(file.content)))
        self.send_header("Connection", "close")
        for header, value in file.headers.items():
            self.send_header(header, value)
        self.end_headers()
        time.sleep(file.stalls)
        with suppress(OSError):  # the client has gone
            self.wfile.write(file.content[: file.dies_after])

    def log_message(self, *args):
        pass


@contextmanager
def serving():
    """Run a server in a thread."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()

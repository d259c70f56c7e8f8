"""A small HTTP server whose files misbehave as a test asks."""

import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Served:
    """A file of the server."""

    content: bytes
    dies: list[int] = field(default_factory=list)
    """after how many bytes the connection breaks, request by request; then it holds"""
    ranges: bool = True
    block: int = 1
    """a part begins at a multiple of it, as that of some caches does"""
    stalls: float = 0.0
    """seconds between the header and the content"""
    chunked: bool = False
    """the length is not told"""
    headers: dict[str, str] = field(default_factory=dict)
    """such as ETag"""


class Server(ThreadingHTTPServer):
    """Serves `files`, by name; what it was asked is in `requests`."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, Served] = {}
        self.requests: list[tuple[str, str | None]] = []
        """name and Range of each"""
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        name = self.path.removeprefix("/")
        asked = self.headers.get("Range")
        self.server.requests.append((name, asked))
        self.close_connection = True
        if name not in self.server.files:
            return self.send_error(404)
        file = self.server.files[name]
        start, size = 0, len(file.content)
        version = self.headers.get("If-Range")
        if asked and file.ranges and version in (None, *file.headers.values()):
            start = int(asked.removeprefix("bytes=").removesuffix("-")) // file.block * file.block
        if start >= size > 0:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{size}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        if not file.chunked:
            self.send_header("Content-Length", str(size - start))
        self.send_header("Connection", "close")
        for header, value in file.headers.items():
            self.send_header(header, value)
        self.end_headers()
        time.sleep(file.stalls)
        end = file.dies.pop(0) if file.dies else size
        with suppress(OSError):  # who asked has gone
            self.wfile.write(file.content[start : start + end])

    def log_message(self, *args):
        pass


@contextmanager
def serving():
    """A server that runs in a thread."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()

"""A Chromium for tests: the system's, without a network."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
ABSENT = "no Chromium: install the system's package, as apt-get install chromium"
LOCAL = ("file:", "data:", "blob:", "about:", "http://127.0.0.1:", "ws://127.0.0.1:")


@contextmanager
def chromium() -> Iterator:
    """Skips the test, with the remedy, where there is none."""
    from playwright.sync_api import sync_playwright

    if not CHROMIUM:
        pytest.skip(ABSENT)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            # A container has no user namespaces; nothing but our own pages is opened.
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        try:
            yield browser
        finally:
            browser.close()


def watch(page) -> list[str]:
    """What goes wrong on a page from now on; whatever is not local is refused, and told."""
    wrong = []

    def only_local(route) -> None:
        if route.request.url.startswith(LOCAL):
            route.continue_()
        else:
            wrong.append(f"asks the network for {route.request.url}")
            route.abort()

    def error(message) -> None:
        if message.type == "error":
            wrong.append(f"console: {message.text}")

    page.route("**/*", only_local)
    page.on("requestfailed", lambda request: wrong.append(f"cannot load {request.url}"))
    page.on("pageerror", lambda raised: wrong.append(f"script: {raised}"))
    page.on("console", error)
    return wrong

"""Chromium without a screen, driven by chromedriver's own protocol.

Source: W3C WebDriver.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

TIMEOUT_S = 60.0
_STEP_S = 0.05
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_STARTED = re.compile(rb"started successfully on port (\d+)\.")
KEYS = {"tab": "\ue004", "enter": "\ue007", "escape": "\ue00c", "shift": "\ue008"}
SCREENSHOTS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "screenshots")


class BrowserError(Exception):
    """The driver refuses a command; ``code`` says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Browser:
    """One window."""

    def __init__(self, port: int) -> None:
        self._driver = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S * 2)
        self._session = ""

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Send a command to the driver."""
        data = json.dumps({} if body is None else body) if method == "POST" else None
        self._driver.request(method, f"/session{self._session}{path}", data)
        response = self._driver.getresponse()
        value = json.loads(response.read())["value"]
        if response.status != 200:
            raise BrowserError(value["error"], value["message"])
        return value

    def begin(self, profile: str) -> None:
        """Open the window; a new machine takes its time."""
        arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-extensions",
            "--disable-background-networking",
            "--no-first-run",
            "--force-prefers-reduced-motion",
            f"--user-data-dir={profile}",
        ]
        wanted = {
            "acceptInsecureCerts": True,
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        found = self.call("POST", "", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/{found['sessionId']}"

    def end(self) -> None:
        if self._session:
            self.call("DELETE", "")
            self._session = ""
        self._driver.close()

    # What is done.

    def go(self, url: str) -> None:
        self.call("POST", "/url", {"url": url})

    def resize(self, width: int, height: int) -> None:
        """Give the page this size, also one that a window cannot have."""
        params = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.devtools("Emulation.setDeviceMetricsOverride", params)

    def devtools(self, command: str, params: object) -> Any:
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def script(self, text: str, *args: object) -> Any:
        """Run the body of a function in the page; returns what it returns."""
        return self.call("POST", "/execute/sync", {"script": text, "args": list(args)})

    def click(self, css: str) -> None:
        """Click what a person could click, once it is there and nothing covers it."""

        def clicked() -> bool:
            try:
                self.call("POST", f"/element/{self.element(css)}/click")
            except BrowserError as err:
                # Rows are made again while the page is looked at.
                if err.code in (
                    "no such element",
                    "stale element reference",
                    "element click intercepted",
                    "element not interactable",
                ):
                    return False
                raise
            return True

        self.wait(clicked, f"a click on {css}")

    def type(self, css: str, text: str) -> None:
        """Write into a field, in place of what stands there."""
        self.wait_for(css)
        element = self.element(css)
        self.call("POST", f"/element/{element}/clear")
        self.call("POST", f"/element/{element}/value", {"text": text})

    def press(self, *keys: str) -> None:
        """Press keys one after another, wherever the focus is; "shift+tab" is one."""
        actions: list[dict[str, str]] = []
        for key in keys:
            parts = [KEYS.get(part, part) for part in (key.split("+") if len(key) > 1 else [key])]
            actions += [{"type": "keyDown", "value": part} for part in parts]
            actions += [{"type": "keyUp", "value": part} for part in reversed(parts)]
        source = {"type": "key", "id": "keyboard", "actions": actions}
        self.call("POST", "/actions", {"actions": [source]})

    def screenshot(self, name: str) -> None:
        os.makedirs(SCREENSHOTS, exist_ok=True)
        with open(os.path.join(SCREENSHOTS, f"{name}.png"), "wb") as file:
            file.write(base64.b64decode(self.call("GET", "/screenshot")))

    # What is seen.

    def element(self, css: str) -> str:
        found = self.call("POST", "/element", {"using": "css selector", "value": css})
        return str(found[_ELEMENT])

    def text(self, css: str = "body") -> str:
        """Return the text that can be seen in the first of these; "" if there is none."""
        return str(self.script("return document.querySelector(arguments[0])?.innerText ?? ''", css))

    def texts(self, css: str) -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.innerText)"
        found: list[str] = self.script(script, css)
        return found

    def count(self, css: str) -> int:
        return int(self.script("return document.querySelectorAll(arguments[0]).length", css))

    def focused(self) -> str:
        """Return what the focus is on: its id, or its words."""
        script = "const e = document.activeElement; return e.id || e.ariaLabel || e.innerText"
        return str(self.script(script))

    def log(self) -> list[str]:
        """Return what the browser complained of since the last time."""
        entries = self.call("POST", "/se/log", {"type": "browser"})
        return [f"{entry['level']}: {entry['message']}" for entry in entries]

    def _state(self) -> str:
        """Return what can be known of a page that does not become what it should."""
        answers = self.script(
            "return performance.getEntriesByType('resource')"
            ".map((each) => `${each.name} ${each.responseStatus}`)"
        )
        return "\n".join([self.text(), "-- answered:", *answers, "-- log:", *self.log()])

    # Waiting.

    def wait(self, condition: Callable[[], Any], what: str) -> None:
        end = time.monotonic() + TIMEOUT_S
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"not within {TIMEOUT_S:g} s: {what}; {self._state()}")
            time.sleep(_STEP_S)

    def wait_for(self, css: str) -> None:
        self.wait(lambda: self.count(css) > 0, css)

    def wait_text(self, css: str, text: str) -> None:
        self.wait(lambda: text in self.text(css), f"{text!r} in {css}")


def _port_of(driver: subprocess.Popen[bytes]) -> int:
    """Return the port that the driver says it listens on."""
    assert driver.stdout is not None
    said, end = b"", time.monotonic() + TIMEOUT_S
    while (found := _STARTED.search(said)) is None:
        ready, _, _ = select.select([driver.stdout], [], [], max(0, end - time.monotonic()))
        more = os.read(driver.stdout.fileno(), 4096) if ready else b""
        assert more, f"chromedriver does not start: {said.decode()}"
        said += more
    return int(found.group(1))


def require_browser() -> str:
    """Return the path of chromedriver; skips where there is none and none is demanded."""
    driver = shutil.which("chromedriver")
    if driver is None or shutil.which("chromium") is None:
        assert not os.environ.get("GANETI_TEST_REQUIRE_BROWSER"), "chromium is missing"
        pytest.skip("chromium and chromium-driver are not installed")
    return driver


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Run a browser; nothing of it is left afterwards."""
    program = require_browser()
    # Chromium does not wait for all of its helpers; they may still write when it has ended.
    with tempfile.TemporaryDirectory(prefix="gnt-browser-", ignore_cleanup_errors=True) as profile:
        driver = subprocess.Popen(
            [program, "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "HOME": profile, "TMPDIR": profile},
        )
        try:
            browser = Browser(_port_of(driver))
            browser.begin(os.path.join(profile, "profile"))
            try:
                yield browser
            finally:
                browser.end()
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            if driver.stdout is not None:
                driver.stdout.close()

"""A headless Chromium for tests, spoken to through its DevTools pipe: JSON texts that end with a zero byte.

No driver and no package is needed, and no port is opened: the browser reads commands from its file descriptor 3 and
answers on 4. https://chromedevtools.github.io/devtools-protocol/ describes the commands.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PROGRAMS = (
    "chromium-headless-shell",
    "chrome-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
SECONDS = 60.0  # for one answer: a loaded machine starts a browser slowly


class BrowserError(Exception):
    """The browser refused a command, or did not answer."""


def find_browser() -> str | None:
    """The first of the known programs that is installed; $RML_BROWSER goes before them."""
    named = os.environ.get("RML_BROWSER")
    return named or next((found for name in PROGRAMS if (found := shutil.which(name))), None)


def start(program: str, profile: str, commands: int, answers: int) -> int:
    """Starts the browser with the pipes' ends as its file descriptors 3 and 4; returns its process id."""
    options = [
        "--headless",
        "--remote-debugging-pipe",
        "--no-sandbox",  # containers run as root
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={profile}",
    ]
    # ends that are 3 or 4 themselves would be overwritten before they are copied: move both out of the way
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (commands, answers)]
    nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    copies = [(os.POSIX_SPAWN_DUP2, end, number) for number, end in enumerate(ends, 3)]
    try:
        return os.posix_spawn(program, [program, *options], os.environ, file_actions=[*nowhere, *copies])
    finally:
        for end in ends:
            os.close(end)


class Browser:
    """One page in a browser of its own. `problems` collects console errors, uncaught exceptions and failed requests."""

    def __init__(self, program: str) -> None:
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._number, self._rest = 0, b""
        self._loaded = False
        self._session: str | None = None
        self._profile = tempfile.TemporaryDirectory(prefix="rml-browser-")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        self._process = start(program, self._profile.name, to_browser, from_browser)
        os.close(to_browser)
        os.close(from_browser)

    def __enter__(self) -> Self:
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the browser: it ends by itself when its pipe does, and is killed if it does not."""
        os.close(self._write)
        os.close(self._read)
        end = time.monotonic() + 10
        while os.waitpid(self._process, os.WNOHANG)[0] == 0:
            if time.monotonic() > end:
                os.kill(self._process, signal.SIGKILL)
            time.sleep(0.02)
        shutil.rmtree(self._profile.name, ignore_errors=True)  # children may still write into it
        self._profile.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, page: Path, width: int, height: int, dark: bool = False) -> None:
        """Shows a file in a window of this size (CSS pixels), as a phone does where it is narrow."""
        self.problems, self.requests, self._loaded = [], [], False
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not self._loaded:
            self._next()

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise BrowserError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def tap(self, x: float, y: float) -> None:
        """A click at a place of the window."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """Writes a PNG of the page, below the window's edge too."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def _next(self) -> dict[str, Any]:
        """The browser's next message; events are noted."""
        end = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(end - time.monotonic(), 0.0))
            part = os.read(self._read, 1 << 16) if ready else b""
            if not part:
                raise BrowserError("the browser ended" if ready else f"no answer in {SECONDS:.0f} s")
            self._rest += part
        text, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, about: dict[str, Any]) -> None:
        """What an event means to a test."""
        if event == "Page.loadEventFired":
            self._loaded = True
        elif event == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif event == "Network.loadingFailed":
            self.problems.append(f"request failed: {about['errorText']}")
        elif event == "Runtime.exceptionThrown":
            self.problems.append(str(about["exceptionDetails"].get("text", about)))
        elif event == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.problems.append(f"console.{about['type']}: {about['args']}")
        elif event == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.problems.append(about["entry"]["text"])

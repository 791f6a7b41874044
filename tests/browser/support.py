"""Real commands, a real browser, and what a page must not do while it is watched."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import random
import re
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec
from urllib.parse import quote, urlsplit

import aiohttp
import pytest
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Frame,
    Locator,
    Page,
    Request,
    async_playwright,
    expect,
)

import trunkline
from tests.support import run_async

__all__ = [
    "ARTEFACTS",
    "CHROMIUM",
    "ROOT",
    "SECONDS",
    "TRY",
    "WIDE",
    "Api",
    "Surfer",
    "Window",
    "address",
    "asking_about",
    "environment",
    "journey",
    "kept",
    "needs_chromium",
    "reserved_port",
    "running",
    "server_entry",
    "showing",
    "surfing",
    "until",
    "write_config",
    "write_script",
]

ROOT = Path(__file__).parents[2]
#: Screenshots are kept here, and what there was when a journey failed.
ARTEFACTS = ROOT / "build" / "browser"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
WIDE = (1440, 900)
#: The environment variable that the second try of a journey sets, for the names of what it keeps.
TRY = "BROWSER_TRY"
#: Seconds for something that is immediate on a machine with nothing else to do; a busy one may be far slower.
SECONDS = 120.0
_ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)/#token=([\w-]+)")
_STOPPED = ("csp", "net::ERR_BLOCKED_BY_CSP")
#: Sent with the pages of servers, for browsers that know it; Chromium does not yet.
_UNKNOWN_DIRECTIVE = "Unrecognized Content-Security-Policy directive 'webrtc'"
_LINE = 64 * 1024  # Bytes of one line of a command.
_ENDING = 60.0  # Seconds for a command to end by itself; one that hangs is killed.
_KEEPING = 30.0  # Seconds for the picture of a page that failed: the browser itself may hang.
_STOPPING = 60.0  # Seconds until the browser has told why a request was stopped.

#: Reports what a policy stopped, in every frame.
_WATCH = """
addEventListener("securitypolicyviolation", (event) => globalThis.__violation?.(JSON.stringify(
  {directive: event.effectiveDirective, blocked: event.blockedURI, sample: event.sample, at: location.href})), true);
"""
#: Resolves once something with a text has been in the document.
_GLIMPSE = """([selector, text]) => {
  const found = () => [...document.querySelectorAll(selector)].some((node) => node.textContent.includes(text));
  const promise = new Promise((resolve) => {
    const observer = new MutationObserver(() => found() && (observer.disconnect(), resolve()));
    observer.observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
  });
  return { promise };
}"""

expect.set_options(timeout=SECONDS * 1000)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not here: apt-get install chromium")

P = ParamSpec("P")


def journey(
    seconds: float = 600.0,
) -> Callable[[Callable[P, Coroutine[Any, Any, None]]], Callable[P, None]]:
    """Run an ``async def`` test that takes longer than most, bounded all the same."""

    def decorate(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
        @functools.wraps(test)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            run_async(test(*args, **kwargs), seconds=seconds)

        marked: Callable[P, None] = pytest.mark.timeout(seconds + 2 * _ENDING)(run)
        return marked

    return decorate


async def until(holds: Callable[[], object], what: str) -> None:
    """Wait for something that the browser reports in its own time."""
    try:
        async with asyncio.timeout(SECONDS):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    except TimeoutError as error:
        raise AssertionError(f"it never happened: {what}") from error


def kept(ending: str) -> Path:
    """Return the file for something that shows why the running test failed; its name is in the output of pytest."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition("::")[2].partition(" ")[0]
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    file = ARTEFACTS / f"failed-{os.environ.get(TRY, '')}{re.sub(r'[^A-Za-z0-9_]+', '-', test).strip('-')}-{ending}"
    sys.stdout.write(f"kept {file}\n")
    return file


# --- commands --------------------------------------------------------------------------------------------------------


class Api:
    """The API of a console, for what no page shows."""

    def __init__(self, origin: str, token: str) -> None:
        self.origin = origin
        self.token = token

    @property
    def url(self) -> str:
        """The address that the command printed."""
        return f"{self.origin}/#token={self.token}"

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request; the response must be a success."""
        headers = {"Authorization": f"Bearer {self.token}"}
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS)) as http,
            http.request(method, f"{self.origin}/api{path}", json=body, headers=headers) as response,
        ):
            assert response.status < 300, await response.text()
            return await response.json()

    async def until(self, path: str, holds: Callable[[Any], object]) -> Any:
        """Ask again until an answer has a property."""
        found: Any = None
        try:
            async with asyncio.timeout(SECONDS):
                # Another process cannot set an event of ours.
                while not holds(found := await self.request("GET", path)):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
        except TimeoutError as error:
            raise AssertionError(f"{path} never got there: {str(found)[:2000]}") from error
        return found

    async def ready(self, *names: str) -> None:
        """Wait until these servers are ready; without names, all of them."""

        def all_ready(state: Any) -> bool:
            states = {server["name"]: server["state"] for server in state["servers"]}
            return bool(states) and all(states.get(name) == "ready" for name in names or states)

        await self.until("/state", all_ready)

    async def call(self, id: str, arguments: Mapping[str, Any] | None = None, kind: str = "tool") -> dict[str, Any]:
        """Make a call, and wait until it ended."""
        started = await self.request("POST", "/calls", {"kind": kind, "id": id, "arguments": dict(arguments or {})})
        path = f"/calls/{quote(started['call']['id'], safe='')}"
        found = await self.until(path, lambda found: found["call"]["state"] != "running")
        view: dict[str, Any] = found["call"]
        return view


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return the environment of a command whose files are in a folder of their own."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("TRUNKLINE_") and not name.endswith("_API_KEY")
    }
    path = os.pathsep.join((str(Path(trunkline.__file__).parents[1]), str(ROOT)))
    return {**kept, "PYTHONPATH": path, "TRUNKLINE_HOME": str(home), **more}


@asynccontextmanager
async def running(
    *arguments: str, home: Path, cwd: Path | None = None, **env: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a command, and end it with the context; its stderr is the file ``stderr`` in its home folder.

    If the test fails, the stderr is kept and printed.
    """
    os.makedirs(home, exist_ok=True)
    with (home / "stderr").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "trunkline", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            cwd=cwd,
            env=environment(home, **env),
            limit=_LINE,
        )
    try:
        yield process
    except BaseException:
        said = (home / "stderr").read_bytes().decode(errors="replace")
        kept(f"{arguments[0]}.stderr.txt").write_text(said)
        sys.stdout.write(f"{said[-2000:]}\n")
        raise
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
            try:
                async with asyncio.timeout(_ENDING):
                    await process.wait()
            except TimeoutError:
                process.kill()
        await process.communicate()


@asynccontextmanager
async def showing(*arguments: str, home: Path, cwd: Path | None = None, **env: str) -> AsyncIterator[Api]:
    """Run a command that shows a console, and wait for the line with its address."""
    async with running(*arguments, home=home, cwd=cwd, **env) as process:
        yield await address(process, home)


async def address(process: asyncio.subprocess.Process, home: Path) -> Api:
    """Read the address that a command prints."""
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS):
        line = (await process.stdout.readline()).decode()
    found = _ADDRESS.search(line)
    assert found is not None, f"{line!r}, and on stderr: {(home / 'stderr').read_text()[-2000:]}"
    return Api(found.group(1), found.group(2))


def reserved_port() -> int:
    """Return a free port that the system never assigns by itself, so that a command can listen there twice."""
    numbers = list(range(20_000, 30_000))  # Below the ephemeral ports of Linux, which start at 32768.
    random.shuffle(numbers)
    for number in numbers:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", number))
            return number
    raise AssertionError("no port is free")


def server_entry(module: str, *arguments: str) -> dict[str, Any]:
    """Return the entry of a server that is a module."""
    return {"command": sys.executable, "args": ["-m", module, *arguments]}


def write_config(folder: Path, **servers: Mapping[str, Any]) -> str:
    """Write a configuration; return its path."""
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return str(file)


def write_script(folder: Path, *turns: Mapping[str, Any]) -> str:
    """Write the script of a model; return the name of the model."""
    file = folder / "script.json"
    file.write_text(json.dumps({"turn": list(turns)}))
    return f"scripted:{file}"


# --- the browser -----------------------------------------------------------------------------------------------------


class Window:
    """A tab that is watched: what it loaded, what was stopped, and what failed."""

    def __init__(self, page: Page, context: BrowserContext) -> None:
        self.page = page
        self.context = context
        #: Reports of the content security policy, of all frames.
        self.violations: list[dict[str, str]] = []
        #: Dialogs, tabs, downloads, and errors of scripts and of the page's own console.
        self.dialogs: list[str] = []
        self.tabs: list[Page] = []
        self.errors: list[str] = []
        #: Everything in the page's console.
        self.lines: list[str] = []
        self.navigations: list[str] = []
        self.requests: list[Request] = []
        page.on("dialog", self._dialog)
        page.on("pageerror", self._failed)
        page.on("console", self._said)
        page.on("framenavigated", self._navigated)
        context.on("page", self._opened)
        context.on("request", lambda request: self.requests.append(request))

    async def _dialog(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        await dialog.dismiss()

    def _failed(self, error: Exception) -> None:
        self.errors.append(str(error))
        self.lines.append(f"uncaught: {error}")

    def _said(self, message: ConsoleMessage) -> None:
        self.lines.append(f"{message.type}: {message.text}")
        if message.type == "error":
            self.errors.append(message.text)

    def _opened(self, other: Page) -> None:
        if other is not self.page:
            self.tabs.append(other)

    def _navigated(self, frame: Frame) -> None:
        if frame == self.page.main_frame:
            self.navigations.append(frame.url)

    # --- finding -----------------------------------------------------------------------------------------------------

    def find(self, selector: str) -> Locator:
        """Return what a selector finds."""
        return self.page.locator(selector)

    def action(self, name: str) -> Locator:
        """Return a button by what it does."""
        return self.page.locator(f'[data-action="{name}"]').first

    def field(self, pointer: str) -> Locator:
        """Return the input of a member of a form."""
        return self.page.locator(f'[data-field="{pointer}"]').first

    def item(self, id: str) -> Locator:
        """Return a row of a list."""
        return self.page.locator(f"[data-item={json.dumps(id)}]").first

    async def view(self, name: str) -> None:
        """Go to a view by the navigation, and wait for it."""
        if await self.page.locator('.menu[aria-label="Menu"]').is_visible():
            await self.page.locator('.menu[aria-label="Menu"]').click()
        await self.page.locator(f'nav a[href="/{name}"]').first.click()
        await self.shown(f'[data-view="{name}"]')

    async def shown(self, selector: str, text: str | None = None) -> Locator:
        """Wait until something is there; with ``text``, something that has it."""
        found = self.page.locator(selector).filter(has_text=text).first if text else self.page.locator(selector).first
        await found.wait_for()
        return found

    async def pick(self, name: str) -> None:
        """Find an item with the search on top, and open it; lists have only the rows in sight in the document."""
        await self.find("#search").fill(name)
        await (await self.shown(f"[data-hit$={json.dumps('/' + name)}]")).click()
        await self.shown(".head h1", name)

    async def approve(self, action: str = "allow", *, within: str = "[data-inbox]") -> None:
        """Answer the first card that waits, once it accepts answers, and wait until it is answered.

        From then on the card is found by its id: when one is answered, the next one takes its place.
        """
        name = await (await self.shown(f"{within}:not([data-outcome])")).get_attribute("data-inbox")
        card = self.page.locator(f'[data-inbox="{name}"]:not([data-outcome])')
        await card.locator(f'[data-action="{action}"]:not([disabled])').first.click()
        await expect(card).to_have_count(0)

    @asynccontextmanager
    async def glimpse(self, selector: str, text: str) -> AsyncIterator[None]:
        """Wait at the end of the block until something has appeared in it; toasts go by themselves."""
        seen = await self.page.evaluate_handle(_GLIMPSE, [selector, text])
        yield
        async with asyncio.timeout(SECONDS):
            await seen.evaluate("(seen) => seen.promise")

    async def shot(self, name: str) -> None:
        """Keep a picture of what is to be seen."""
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=ARTEFACTS / f"{name}.png", animations="disabled")

    # --- watching ----------------------------------------------------------------------------------------------------

    def foreign(self, *origins: str) -> list[str]:
        """Return the requests that went elsewhere than to these origins."""
        local = ("data", "blob", "about")
        # What a policy stopped was never sent.
        seen = [request.url for request in self.requests if request.failure not in _STOPPED]
        return [url for url in seen if urlsplit(url).scheme not in local and _origin(url) not in origins]

    async def check(self, *origins: str, violations: int | None = 0, errors: Sequence[str] = ()) -> None:
        """Check that nothing happened that a person did not want; ``errors`` are patterns of expected ones."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOPPING):
                # That a policy stopped a request is reported after the request.
                while self.foreign(*origins):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        patterns = (*errors, _UNKNOWN_DIRECTIVE)
        unexpected = [text for text in self.errors if not any(re.search(pattern, text) for pattern in patterns)]
        assert unexpected == []
        assert self.dialogs == []
        assert self.tabs == []
        foreign = self.foreign(*origins)
        assert not foreign, foreign
        assert violations is None or len(self.violations) == violations, self.violations
        paths = {_origin(url) for url in self.navigations if not url.startswith("about:")}
        assert paths <= set(origins)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


class Surfer:
    """A browser with as many separate profiles as are needed."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.windows: list[Window] = []

    async def open(
        self, url: str | None, *, size: tuple[int, int] = WIDE, dark: bool = False, bypass_csp: bool = False
    ) -> Window:
        """Open a tab of a profile of its own."""
        context = await self._browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            bypass_csp=bypass_csp,
            reduced_motion="reduce",
        )
        context.set_default_timeout(SECONDS * 1000)
        page = await context.new_page()
        window = Window(page, context)
        self.windows.append(window)

        def report(source: Any, text: str) -> None:
            window.violations.append(json.loads(text))

        await context.expose_binding("__violation", report)
        await context.add_init_script(_WATCH)
        if url is not None:
            await page.goto(url)
            await page.locator("main").first.wait_for()
        return window

    async def keep(self) -> None:
        """Keep what the tabs show and what their consoles say."""
        for number, window in enumerate(self.windows):
            kept(f"{number}.console.txt").write_text("\n".join((window.page.url, *window.lines, "")))
            await window.page.screenshot(path=kept(f"{number}.png"))


@asynccontextmanager
async def surfing() -> AsyncIterator[Surfer]:
    """Start the browser of this machine; if the test fails, keep what there was to be seen."""
    assert CHROMIUM is not None
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS), timeout=SECONDS * 1000)
        surfer = Surfer(browser)
        try:
            yield surfer
        except BaseException:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_KEEPING):
                    await surfer.keep()
            raise
        finally:
            await browser.close()


@asynccontextmanager
async def asking_about(tool: str, folder: Path) -> AsyncIterator[tuple[Api, Surfer, Path]]:
    """Show a console of the files in a folder, where a rule wants one tool asked about; yield that folder, too."""
    work = folder / "work"
    work.mkdir()
    policy = folder / "policy.toml"
    policy.write_text(f'[[rule]]\neffect = "ask"\nserver = "filesystem"\ntool = "{tool}"\n')
    config = write_config(folder, filesystem=server_entry("trunkline_servers.filesystem", str(work)))
    arguments = ("console", "-c", config, "--policy", str(policy), "--no-open")
    async with showing(*arguments, home=folder / "home") as api, surfing() as surfer:
        yield api, surfer, work

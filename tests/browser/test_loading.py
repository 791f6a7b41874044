"""What the browser loads: little for the first view, the rest when it is needed."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from playwright.async_api import Request

from tests.browser.support import Window, journey, needs_chromium, server_entry, showing, surfing, until, write_config
from tests.console.test_static_size import MOST_FIRST_BYTES, first_view

pytestmark = needs_chromium


def files(window: Window) -> list[Request]:
    """Return the requests for files that a tab has made so far."""
    return [request for request in window.requests if not urlsplit(request.url).path.startswith("/api/")]


async def loaded(window: Window) -> dict[str, int]:
    """Return the files that a tab has loaded, with their sizes."""
    found: dict[str, int] = {}
    for request in files(window):
        response = await request.response()
        assert response is not None
        found[urlsplit(request.url).path.removeprefix("/static/")] = len(await response.body())
    return found


@journey()
async def test_the_first_view_loads_what_was_counted_and_a_tool_loads_its_form(tmp_path: Path) -> None:
    config = write_config(tmp_path, time=server_entry("trunkline_servers.time"))
    async with showing("console", "-c", config, "--no-open", home=tmp_path / "home") as api, surfing() as surfer:
        window = await surfer.open(api.url)
        item = await window.shown('[data-item="time/get_current_time"]')
        await until(lambda: len(files(window)) >= len(first_view()), "the first view is loaded")
        first = await loaded(window)
        assert {path.strip("/") or "index.html" for path in first} == set(first_view())
        assert sum(first.values()) < MOST_FIRST_BYTES
        await item.click()
        await window.field("/timezone").wait_for()
        assert {"js/schema_form.js", "js/views/calls.js", "js/result.js"} <= set(await loaded(window))
        await window.view("servers")
        await window.shown("[data-view=servers] .server")
        # Not before its rules are there.
        assert "views.css" in await loaded(window)
        await window.check(api.origin)

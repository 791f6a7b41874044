"""The page of the weather example (MCP Apps): it is shown, and its call is asked about."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import FrameLocator, expect

from tests.browser.support import Window, journey, needs_chromium, server_entry, showing, surfing, write_config

pytestmark = needs_chromium


def _panel(window: Window) -> FrameLocator:
    return window.page.frame_locator("[data-app-frame]").frame_locator("iframe")


@journey()
async def test_the_page_of_a_tool_is_shown_and_its_call_is_asked(tmp_path: Path) -> None:
    config = write_config(tmp_path, weather=server_entry("examples.weather_app.server"))
    async with (
        showing("console", "-c", config, "--no-open", home=tmp_path / "home") as api,
        surfing() as surfer,
    ):
        window = await surfer.open(api.url)
        await window.pick("show_weather")
        await window.field("/city").fill("Oslo")
        await window.action("run").click()
        await window.shown('[data-call][data-state="done"]')
        await window.find('[data-tab="app"]').click()
        panel = _panel(window)
        await expect(panel.locator("h1")).to_have_text("Weather in Oslo")
        await expect(panel.locator("#days tr")).to_have_count(3)
        await panel.locator("#refresh").click()
        card = await window.shown("[data-app] [data-inbox]")
        await expect(card).to_contain_text("refresh_weather")
        await window.shot("app-asked")
        await window.approve("allow")
        await expect(panel.locator("#refresh")).to_be_enabled()
        await expect(panel.locator("#status")).to_contain_text("As of")
        # Denied: the page is told, without a reason that it could work around.
        await panel.locator("#refresh").click()
        await window.approve("deny")
        await expect(panel.locator("#status")).to_contain_text("did not allow it")
        state = await api.request("GET", "/state")
        assert [call["state"] for call in state["calls"] if call["by"] == "app"] == ["denied", "done"]
        await window.check(api.origin, state["apps"]["origin"])


@journey()
async def test_the_page_follows_the_colours_of_the_console(tmp_path: Path) -> None:
    config = write_config(tmp_path, weather=server_entry("examples.weather_app.server"))
    async with (
        showing("console", "-c", config, "--no-open", home=tmp_path / "home") as api,
        surfing() as surfer,
    ):
        window = await surfer.open(api.url, dark=True)
        await window.view("apps")
        await window.find('[data-item="weather/show_weather"] [data-action="open"]').click()
        root = _panel(window).locator("html")
        await expect(root).to_have_css("color-scheme", "dark")
        for _ in range(3):
            theme = await window.find("html").get_attribute("data-theme") or ""
            if theme == "light":
                break
            await window.action("theme").click()
            await expect(window.find("html")).not_to_have_attribute("data-theme", theme)
        await expect(root).to_have_css("color-scheme", "light")
        await window.check(api.origin, (await api.request("GET", "/state"))["apps"]["origin"])

"""MCP Apps in a host: pages are read where they are shown, and a model never learns of the tools of pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.extensions.apps.weather import HTML, PANEL, marking, weather
from tests.host.chat.support import calls, talking
from tests.host.gateway.support import UPSTREAMS, allow, revisions_of
from tests.support import run_async
from trunkline import Client, ConfigError, Host, Server
from trunkline.errors import InvalidParams, PolicyDenied
from trunkline.host.chat.events import ChatOptions

RESOURCES = '[[rule]]\neffect = "allow"\nserver = "w"\nkind = "resource"\n'


def opened(folder: Path, server: Server | None = None, **options: Any) -> Host:
    given = {"folder": folder, "policy": allow("w", more=RESOURCES), "audit": False, **options}
    return Host.open({"w": server or weather()}, **given)


@UPSTREAMS
async def test_a_host_that_shows_pages_knows_them_and_reads_them(upstream: str, tmp_path: Path) -> None:
    async with opened(tmp_path, weather(revisions=revisions_of(upstream)), apps=True) as host:
        tools = {id: (item.visibility, item.app_uri, item.for_model) for id, item in host.catalog.tools.items()}
        [page] = host.catalog.resources.values()
        found = [await host.read_app(name) for name in ("w/show", "w/refresh", f"w/{PANEL}", PANEL)]
        result = await host.call_tool("w/refresh", {"city": "Oslo"})
    assert tools == {
        "w/show": (("model", "app"), PANEL, True),
        "w/refresh": (("app",), PANEL, False),
    }
    assert page.is_page
    assert {each.html for each in found} == {HTML}
    assert {each.uri for each in found} == {PANEL}
    assert "connect-src 'self' https://api.example.com;" in found[0].content_security_policy
    assert "cloudy" in str(result.content)


@UPSTREAMS
async def test_a_host_declares_pages_only_where_they_are_shown(upstream: str, tmp_path: Path) -> None:
    async with opened(tmp_path, weather(revisions=revisions_of(upstream))) as host:
        assert {id: item.app_uri for id, item in host.catalog.tools.items()} == {"w/show": None}
        with pytest.raises(ConfigError, match="open it with apps=True"):
            await host.read_app("w/show")


async def test_a_tool_without_a_page_and_an_unknown_page_are_named(tmp_path: Path) -> None:
    server = weather()
    server.add_tool(lambda: "x", name="plain")
    async with opened(tmp_path, server, apps=True) as host:
        with pytest.raises(InvalidParams, match="The tool w/plain has no page"):
            await host.read_app("w/plain")
        with pytest.raises(InvalidParams, match="No server has a resource 'ui://other/one'"):
            await host.read_app("ui://other/one")


@pytest.mark.parametrize("share", ["auto", "shared"])
async def test_a_caller_of_the_gateway_that_shows_no_pages_gets_none_from_a_host_that_does(
    share: str, tmp_path: Path
) -> None:
    server = weather(revisions=revisions_of("2025-11-25"))
    async with opened(tmp_path, server, apps=True, settings={"share": share}) as host:
        assert len(host.catalog.tools) == 2
        async with Client(host.gateway(), revision="2025-11-25") as client:
            assert [(tool.name, tool.meta) for tool in await client.list_tools()] == [("w__show", None)]
            await client.call_tool("w__show", {"city": "Oslo"})
            assert sum(len(session.connections) for session in host._open.core.sessions) == 0


async def test_a_call_of_a_model_to_a_tool_of_a_page_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, apps=True, caller="model") as host:
        assert "clear" in str((await host.call_tool("w/show", {"city": "Oslo"})).content)
        with pytest.raises(PolicyDenied, match="w/refresh cannot be called by 'model'"):
            await host.call_tool("w/refresh", {"city": "Oslo"})


async def test_a_call_of_a_page_to_a_tool_of_models_is_refused(tmp_path: Path) -> None:
    server = weather()
    server.add_tool(lambda: "x", name="secret", visibility=["model"])
    async with opened(tmp_path, server, apps=True, caller="app") as host:
        assert "cloudy" in str((await host.call_tool("w/refresh", {"city": "Oslo"})).content)
        assert "clear" in str((await host.call_tool("w/show", {"city": "Oslo"})).content)
        with pytest.raises(PolicyDenied, match="w/secret cannot be called by 'app'"):
            await host.call_tool("w/secret")


def loose() -> Server:
    """A server that lists its tools to everyone, with pages and without."""
    metas: dict[str, dict[str, Any]] = {
        "refresh": {"ui": {"visibility": ["app"]}},
        "hidden": {"ui": {"visibility": []}},
    }
    server = Server("loose", middleware=[marking(metas)])
    server.add_tool(lambda: "x", name="show", description="Show the weather.", meta={"ui": {"resourceUri": PANEL}})
    server.add_tool(lambda: "x", name="refresh", description="Refresh it.")
    server.add_tool(lambda: "x", name="hidden", description="Nobody's.")
    return server


@pytest.mark.parametrize("search", ["off", "on"])
def test_a_model_is_never_offered_a_tool_of_a_page(tmp_path: Path, search: Any) -> None:
    async def main() -> tuple[list[str], str, str]:
        script = [calls("w__refresh"), calls(("search_tools", {"query": "refresh"})), "ok"]
        async with talking(tmp_path, {"w": loose()}, script, options=ChatOptions(search=search)) as talk:
            await talk.settled()
            await talk.say()
            tools = talk.model.requests[0].tools
            said = "\n".join(str(request.messages) for request in talk.model.requests)
            return [tool.name for tool in tools], str(tools), said

    names, described, said = run_async(main())
    assert "w__refresh" not in names
    assert "refresh" not in described
    assert "Refresh it" not in said
    assert "There is no tool" in said


def test_a_tool_that_becomes_one_of_a_page_is_not_called_any_more(tmp_path: Path) -> None:
    called: list[str] = []
    server = Server("w")

    def show() -> str:
        called.append("show")
        return "x"

    server.add_tool(show)

    async def main() -> str:
        async with talking(tmp_path, {"w": server}, [calls("w__show"), "ok"], pins=False, apps=True) as talk:
            await talk.settled()
            item = talk.host.catalog.tools["w/show"]
            server.remove_tool("show")
            server.add_tool(show, meta={"ui": {"visibility": ["app"]}})
            async for event in talk.host.events():
                if type(event).__name__ == "CatalogChanged":
                    break
            assert talk.host.catalog.tools["w/show"].for_model is not item.for_model
            await talk.say()
            return talk.last_request

    assert "There is no tool" in run_async(main())
    assert called == []

"""MCP Apps through the gateway: pages reach callers that show them, under the gateway's URIs, and no other callers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from tests.extensions.apps.weather import HTML, PANEL, marking, weather
from tests.host.gateway.support import (
    CELLS,
    NEW,
    OLD,
    PAIRS,
    allow,
    fronted,
    on_stage,
    revisions_of,
    server,
)
from trunkline import Context, Server
from trunkline.errors import InvalidParams
from trunkline.extensions import APPS
from trunkline.host.gateway.sessions import GatewayOptions
from trunkline.protocol.apps import APP_MIME_TYPE

OUTER = "ui://w/weather/panel"
OPEN = '[[rule]]\neffect = "allow"\nserver = "{}"\nkind = "resource"\n'


def readable(*servers: str) -> Any:
    return allow(*servers, more="".join(map(OPEN.format, servers)))


def strict(revision: str) -> Server:
    """A server that says nothing of pages to clients that do not show them."""
    return weather(revisions=revisions_of(revision))


def loose(revision: str) -> Server:
    """A server that names its pages to everyone, in the deprecated form too, and does not declare the extension."""
    made = server("loose", revision, middleware=[marking({"refresh": {"ui": {"visibility": ["app"]}}})])
    made.add_tool(
        lambda: "x", name="show", meta={"ui": {"resourceUri": PANEL}, "ui/resourceUri": PANEL, "team": "maps"}
    )
    made.add_tool(lambda: "x", name="refresh")
    contents = t.ResourceContents(uri=PANEL, mime_type=APP_MIME_TYPE, text=HTML, meta={"ui": {"prefersBorder": True}})
    made.add_resource(PANEL, lambda: t.ReadResourceResult(contents=[contents]), name="panel")
    return made


BOTH = pytest.mark.parametrize("make", [strict, loose])


@BOTH
@PAIRS
async def test_a_caller_that_shows_pages_gets_them_under_the_uris_of_the_gateway(
    channel: str, upstream: str, make: Any, tmp_path: Path
) -> None:
    async with fronted({"w": make(upstream)}, tmp_path, channel, policy=readable("w"), apps=True) as client:
        assert client.server_capabilities["extensions"][APPS] == {}
        tools = {tool.name: tool.meta or {} for tool in await client.list_tools()}
        assert tools["w__show"]["ui"]["resourceUri"] == OUTER
        assert tools["w__show"].get("ui/resourceUri", OUTER) == OUTER
        assert tools["w__refresh"]["ui"]["visibility"] == ["app"]
        assert [each.uri for each in await client.list_resources()] == [OUTER]
        page = await client.read_app("w__show")
        assert (page.uri, page.html, page.declared.prefers_border) == (OUTER, HTML, True)
        arguments = {"city": "Oslo"} if make is strict else {}
        assert not (await client.call_tool("w__refresh", arguments)).is_error


@BOTH
@PAIRS
async def test_another_caller_gets_ordinary_tools_and_nothing_of_the_extension(
    channel: str, upstream: str, make: Any, tmp_path: Path
) -> None:
    async with (
        on_stage({"w": make(upstream)}, tmp_path, policy=readable("w")) as stage,
        stage.client(channel, apps=True) as able,
        stage.client(channel) as client,
    ):
        assert len(await able.list_tools()) == 2
        assert [(tool.name, tool.meta) for tool in await client.list_tools()] in (
            [("w__show", None)],
            [("w__show", {"team": "maps"})],
        )
        assert await client.list_resources() == []
        assert (await client.read_resource(OUTER))[0].meta is None
        with pytest.raises(InvalidParams, match="Unknown tool: w__refresh"):
            await client.call_tool("w__refresh", {"city": "Oslo"})
        with pytest.raises(InvalidParams, match="Unknown tool: refresh"):
            await client.call_tool("refresh", {"city": "Oslo"})


def telling(revision: str, *, pages: bool = True) -> Server:
    """A server that returns which extensions its client declared."""
    made = server("telling", revision)

    @made.tool
    async def declared(ctx: Context) -> bool:
        return ctx.client.supports(f"extensions/{APPS}")

    if pages:
        made.add_app("ui://t/page", "<p>", tools=["declared"])
    return made


@CELLS
async def test_the_extension_is_declared_to_a_server_only_for_callers_that_declared_it(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    async with (
        on_stage({"t": telling(upstream)}, tmp_path) as stage,
        stage.client(channel, apps=True) as able,
        stage.client(channel) as other,
    ):
        assert (await able.call_tool("t__declared")).data is True
        assert (await other.call_tool("t__declared")).data is False
        assert (await able.call_tool("t__declared")).data is True


async def test_a_server_without_pages_needs_no_connection_of_its_own_for_them(tmp_path: Path) -> None:
    async with (
        on_stage({"t": telling(OLD, pages=False)}, tmp_path) as stage,
        stage.client(OLD, apps=True) as client,
    ):
        assert APPS not in client.server_capabilities.get("extensions", {})
        assert [tool.name for tool in await client.list_tools()] == ["t__declared"]
        assert (await client.call_tool("t__declared")).data is False
        assert sum(len(session.connections) for session in stage.gateway.core.sessions) == 0


async def test_a_server_that_hides_even_the_extension_is_found_with_a_connection_that_exists_anyway(
    tmp_path: Path,
) -> None:
    made = server("quiet", OLD, visible=lambda caller, tool: caller.supports(f"extensions/{APPS}"))
    made.add_tool(lambda: "x", name="show", meta={"ui": {"resourceUri": PANEL}})
    async with fronted({"q": made}, tmp_path, NEW, apps=True, elicitation=lambda _: "x") as client:
        assert [tool.meta for tool in await client.list_tools()] == [{"ui": {"resourceUri": "ui://q/weather/panel"}}]


async def test_the_extension_is_advertised_by_the_profile_that_has_a_server_with_pages(tmp_path: Path) -> None:
    servers = {"w": strict(NEW), "t": telling(NEW, pages=False)}
    for profile, declared in (("w", True), ("t", False)):
        options = GatewayOptions(profile=profile, servers=frozenset({profile}))
        async with fronted(servers, tmp_path / profile, gateway=options) as client:
            assert (APPS in client.server_capabilities.get("extensions", {})) is declared


async def test_a_page_calls_the_tools_of_its_server_by_their_own_names(tmp_path: Path) -> None:
    async with fronted({"w": strict(NEW), "t": telling(NEW, pages=False)}, tmp_path, OLD, apps=True) as client:
        assert "cloudy" in str((await client.call_tool("refresh", {"city": "Oslo"})).content)
        with pytest.raises(InvalidParams, match="Unknown tool: declared"):
            await client.call_tool("declared")


async def test_a_name_that_two_servers_with_pages_have_is_nobodys(tmp_path: Path) -> None:
    async with fronted({"w": strict(NEW), "v": strict(NEW)}, tmp_path, NEW, apps=True) as client:
        with pytest.raises(InvalidParams, match="Unknown tool: refresh"):
            await client.call_tool("refresh", {"city": "Oslo"})


DENY = '[[rule]]\nname = "no refresh"\neffect = "deny"\nserver = "w"\ntool = "refresh"\n'


async def test_the_policy_holds_for_what_a_page_calls(tmp_path: Path) -> None:
    async with fronted({"w": strict(NEW)}, tmp_path, OLD, policy=allow("w", more=DENY), apps=True) as client:
        assert [tool.name for tool in await client.list_tools()] == ["w__show"]
        with pytest.raises(InvalidParams, match="Unknown tool"):
            await client.call_tool("refresh", {"city": "Oslo"})


@pytest.mark.parametrize("approval", ["ask", "client"])
async def test_tools_of_pages_are_never_found_by_a_search(approval: Any, tmp_path: Path) -> None:
    options = GatewayOptions(search="on", approval=approval)
    async with (
        on_stage({"w": strict(OLD)}, tmp_path, gateway=options) as stage,
        stage.client(apps=True) as client,
        stage.client() as other,
    ):
        names = [tool.name for tool in await client.list_tools()]
        described = str(await client.list_tools())
        found = await client.call_tool("search_tools", {"query": "fetch the weather again, refresh"})
        assert names == ["search_tools", "call_tool", "w__refresh"]
        assert [each["name"] for each in (found.structured_content or {})["tools"]] == ["w__show"]
        assert "refresh" not in described.split("w__refresh")[0]
        refused = await client.call_tool(
            "call_tool", {"name": "w__refresh", "arguments": {"city": "Oslo"}}, raise_on_error=False
        )
        assert "Unknown tool" in str(refused.content)
        assert "cloudy" in str((await client.call_tool("w__refresh", {"city": "Oslo"})).content)
        assert [tool.name for tool in await other.list_tools()] == ["search_tools", "call_tool"]


async def test_found_tools_are_listed_with_their_pages_to_callers_that_show_them(tmp_path: Path) -> None:
    options = GatewayOptions(search="on", approval="client")
    async with on_stage({"w": strict(NEW)}, tmp_path, gateway=options) as stage:
        for apps, meta in ((True, {"ui": {"resourceUri": OUTER}}), (False, None)):
            async with stage.client(OLD, apps=apps) as client:
                await client.list_tools()
                await client.call_tool("search_tools", {"query": "show the weather"})
                assert {tool.name: tool.meta for tool in await client.list_tools()}["w__show"] == meta


async def test_the_uri_of_a_page_in_the_meta_of_a_result_is_rewritten(tmp_path: Path) -> None:
    made = server("r", NEW)

    @made.tool
    def show() -> t.CallToolResult:
        return t.CallToolResult(content=[], meta={"ui": {"resourceUri": PANEL}, "ui/resourceUri": PANEL, "kept": 1})

    async with fronted({"w": made}, tmp_path, apps=True) as client:
        meta = (await client.call_tool("w__show")).meta or {}
    assert (meta["ui"], meta["ui/resourceUri"], meta["kept"]) == ({"resourceUri": OUTER}, OUTER, 1)


async def test_what_another_kind_of_client_learns_adds_a_page_and_nothing_else(tmp_path: Path) -> None:
    """The page of a tool is learned from a list for one caller; the definition stays the one that all were shown."""
    made = server("maps", NEW)

    @made.tool(meta={"team": "maps"})
    def show() -> str:
        """Show the weather."""
        return "x"

    made.add_app("ui://w/page", "<p>", tools=["show"])
    async with on_stage({"w": made}, tmp_path) as stage, stage.client(apps=True) as client:
        [listed] = await client.list_tools()
        item = stage.host.catalog.tools["w/show"]
    assert listed.meta == {"team": "maps", "ui": {"resourceUri": "ui://w/w/page"}}
    assert (item.app_uri, item.visibility, item.description) == ("ui://w/page", ("model", "app"), "Show the weather.")

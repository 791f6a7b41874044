"""Pages of a server: registered, linked to tools, listed and read in every revision."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.apps.weather import ALL_REVISIONS, HTML, PANEL, weather
from tests.server.talk import ERAS, STATELESS, reach
from trunkline import Client, ConfigError, File, RequestFailed, Server
from trunkline.errors import InvalidParams
from trunkline.extensions import APPS, AppCsp
from trunkline.protocol.apps import APP_MIME_TYPE

DECLARED = {"csp": {"connectDomains": ["https://api.example.com"]}, "prefersBorder": True}
SHOWS_PAGES = {"extensions": {APPS: {"mimeTypes": [APP_MIME_TYPE]}}}


async def ui_of_tools(server: Server, **options: Any) -> dict[str, Any]:
    async with Client(server, apps=True, **options) as client:
        return {tool.name: (tool.meta or {}).get("ui") for tool in await client.list_tools()}


# --- clients that show pages, and others -----------------------------------------------------------------------------


@ALL_REVISIONS
async def test_a_client_that_shows_pages_sees_them_in_every_revision(revision: str) -> None:
    async with Client(weather(), revision=revision, apps=True) as client:
        tools = {tool.name: tool.meta for tool in await client.list_tools()}
        [page] = await client.list_resources()
        [contents] = await client.read_resource(PANEL)
        again = await client.call_tool("refresh", {"city": "Oslo"})
    assert tools == {
        "show": {"ui": {"resourceUri": PANEL}},
        "refresh": {"ui": {"resourceUri": PANEL, "visibility": ["app"]}},
    }
    assert (page.uri, page.name, page.mime_type, page.meta) == (PANEL, "panel", APP_MIME_TYPE, {"ui": DECLARED})
    assert page.description == "The weather as a picture."
    assert (contents.text, contents.mime_type, contents.meta) == (HTML, APP_MIME_TYPE, {"ui": DECLARED})
    assert "cloudy" in str(again)


@ALL_REVISIONS
async def test_a_tool_whose_meta_hides_it_from_models_is_hidden_like_one_with_visibility(revision: str) -> None:
    server = weather()
    server.add_tool(lambda: "x", name="save", meta={"ui": {"resourceUri": PANEL, "visibility": ["app"]}})
    async with Client(server, revision=revision, apps=True) as client:
        assert {"save"} < {tool.name for tool in await client.list_tools()}
        assert (await client.call_tool("save")).text == "x"
    async with Client(server, revision=revision) as client:
        assert [tool.name for tool in await client.list_tools()] == ["show"]
        with pytest.raises(InvalidParams, match="Unknown tool: save"):
            await client.call_tool("save")


@ALL_REVISIONS
async def test_another_client_gets_ordinary_tools_and_nothing_of_the_extension(revision: str) -> None:
    async with Client(weather(), revision=revision) as client:
        tools = await client.list_tools()
        resources = await client.list_resources()
        [contents] = await client.read_resource(PANEL)
        shown = await client.call_tool("show", {"city": "Oslo"})
        with pytest.raises(InvalidParams, match="Unknown tool: refresh"):
            await client.call_tool("refresh", {"city": "Oslo"})
    assert [(tool.name, tool.meta) for tool in tools] == [("show", None)]
    assert resources == []
    assert (contents.text, contents.meta) == (HTML, None)
    assert "clear" in str(shown.content)


@ERAS
@pytest.mark.parametrize("settings", [{}, {"mimeTypes": ["text/html"]}, {"mimeTypes": APP_MIME_TYPE}])
async def test_the_extension_counts_only_with_the_media_type(revision: str, settings: dict[str, Any]) -> None:
    async with Client(weather(), revision=revision, extensions={APPS: settings}) as client:
        assert [tool.name for tool in await client.list_tools()] == ["show"]


@ALL_REVISIONS
async def test_a_server_declares_the_extension_as_soon_as_it_has_a_page(revision: str) -> None:
    server = Server("s")
    async with Client(server, revision=revision) as client:
        before = client.server_capabilities.get("extensions")
    server.add_app("ui://a/b", "<p>")
    async with Client(server, revision=revision) as client:
        assert (before, client.server_capabilities["extensions"]) == (None, {APPS: {}})


async def test_stateless_clients_are_told_apart_by_each_request() -> None:
    async with reach(weather(), STATELESS, SHOWS_PAGES) as peer:
        with_pages = [tool["name"] for tool in (await peer.result("tools/list"))["tools"]]
        peer.capabilities = {}
        without = (await peer.result("tools/list"))["tools"]
    assert (with_pages, [tool["name"] for tool in without]) == (["show", "refresh"], ["show"])
    assert "_meta" not in without[0]


async def test_a_list_that_differs_by_client_is_private() -> None:
    async with reach(weather(), STATELESS, SHOWS_PAGES) as peer:
        assert (await peer.result("tools/list"))["cacheScope"] == "private"


async def test_other_members_of_meta_stay_for_every_client() -> None:
    server = weather()
    server.add_tool(lambda: "x", name="more", app=PANEL, meta={"team": "maps", "ui": {"theme": "dark"}})
    async with Client(server) as client:
        plain = {tool.name: tool.meta for tool in await client.list_tools()}["more"]
    assert plain == {"team": "maps"}
    assert (await ui_of_tools(server))["more"] == {"theme": "dark", "resourceUri": PANEL}


async def test_pages_are_in_the_pages_of_a_long_list() -> None:
    server = weather(list_page_size=1)
    assert list(await ui_of_tools(server)) == ["show", "refresh"]
    async with Client(server) as client:
        assert [tool.name for tool in await client.list_tools()] == ["show"]


async def test_a_visibility_filter_of_the_server_still_applies() -> None:
    server = weather(visible=lambda caller, definition: definition.name != "refresh")
    assert list(await ui_of_tools(server)) == ["show"]


# --- what a page may be ----------------------------------------------------------------------------------------------


async def read(server: Server, uri: str = "ui://a/b") -> str | None:
    async with Client(server, apps=True) as client:
        return (await client.read_resource(uri))[0].text


async def test_a_page_is_html_a_file_or_a_function_that_returns_either(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("<p>from a file</p>", encoding="utf-8")
    server = Server("s")
    server.add_app("ui://a/text", "<p>text</p>")
    server.add_app("ui://a/path", file)
    server.add_app("ui://a/file", File(file))

    @server.app("ui://a/bytes")
    async def from_bytes() -> bytes:
        return b"<p>bytes</p>"

    @server.app("ui://a/returned")
    async def returned() -> Path:
        return file

    @server.app("ui://a/returned-file")
    def returned_file() -> File:
        return File(file)

    names = ("text", "path", "file", "bytes", "returned", "returned-file")
    found = [await read(server, f"ui://a/{name}") for name in names]
    assert found == ["<p>text</p>", *["<p>from a file</p>"] * 2, "<p>bytes</p>", *["<p>from a file</p>"] * 2]
    async with Client(server, apps=True) as client:
        assert {page.name for page in await client.list_resources()} >= {"a/text", "from_bytes"}


async def test_a_file_is_read_again_each_time(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("<p>1</p>", encoding="utf-8")
    server = Server("s")
    server.add_app("ui://a/b", file)
    before = await read(server)
    file.write_text("<p>2</p>", encoding="utf-8")
    assert (before, await read(server)) == ("<p>1</p>", "<p>2</p>")


async def test_a_function_that_returns_no_html_fails_when_it_is_read() -> None:
    server = Server("s")
    server.add_app("ui://a/b", lambda: {"not": "html"})
    with pytest.raises(RequestFailed):
        await read(server)


async def test_a_page_may_be_cached_as_its_options_say() -> None:
    server = Server("s")
    server.add_app("ui://a/b", "<p>", ttl_ms=60_000, cache_scope="public")
    async with reach(server, STATELESS, SHOWS_PAGES) as peer:
        result = await peer.result("resources/read", {"uri": "ui://a/b"})
    assert (result["ttlMs"], result["cacheScope"]) == (60_000, "public")


async def test_a_page_without_a_declaration_has_no_meta() -> None:
    server = Server("s")
    server.add_app("ui://a/b", "<p>", meta={"team": "maps"}, title="A page")
    async with Client(server, apps=True) as client:
        [page] = await client.list_resources()
        [contents] = await client.read_resource("ui://a/b")
    assert (page.meta, page.title, contents.meta) == ({"team": "maps"}, "A page", None)


# --- links -----------------------------------------------------------------------------------------------------------


async def test_tools_are_linked_by_function_and_by_name_before_and_after() -> None:
    server = Server("s")

    @server.tool
    def before() -> str:
        return "x"

    def later() -> str:
        return "x"

    @server.app("ui://a/b", tools=[before, later, "by_name"])
    def page() -> str:
        return "<p>"

    server.tool(later)
    server.add_tool(lambda: "x", name="by_name", visibility=["model"])
    server.add_tool(lambda: "x", name="other")
    uri = {"resourceUri": "ui://a/b"}
    assert await ui_of_tools(server) == {
        "before": uri,
        "later": uri,
        "by_name": {**uri, "visibility": ["model"]},
        "other": None,
    }


async def test_a_tool_of_pages_need_not_have_one_of_its_own() -> None:
    server = Server("s")
    server.add_app("ui://a/b", "<p>", domain="panel.example.com")
    server.add_tool(lambda: "x", name="save", visibility=["app"])
    assert await ui_of_tools(server) == {"save": {"visibility": ["app"]}}
    async with Client(server, apps=True) as client:
        assert (await client.read_app("ui://a/b")).declared.domain == "panel.example.com"


async def test_the_same_link_from_both_sides_is_one_link() -> None:
    server = Server("s")
    server.add_tool(lambda: "x", name="show", app="ui://a/b")
    server.add_app("ui://a/b", "<p>", tools=["show"])
    assert await ui_of_tools(server) == {"show": {"resourceUri": "ui://a/b"}}


def test_a_tool_has_one_page() -> None:
    server = Server("s")
    server.add_tool(lambda: "x", name="show", app="ui://a/b")
    with pytest.raises(ValueError, match="tool 'show' already has the page ui://a/b"):
        server.add_app("ui://a/c", "<p>", tools=["show"])
    server.add_app("ui://a/c", "<p>")
    assert list(server.registry.resources) == ["ui://a/c"]


async def test_clients_are_notified_of_a_page_and_of_the_tools_that_it_links() -> None:
    server = Server("s")
    server.add_tool(lambda: "x", name="show")
    async with Client(server, apps=True) as client:
        async with client.listen(tools=True) as changes, asyncio.timeout(120):
            assert (await client.list_tools())[0].meta is None
            server.add_resource("x://y", "z")
            server.add_app("ui://a/b", "<p>", tools=["show"])
            await anext(changes)
        assert (await client.list_tools())[0].meta == {"ui": {"resourceUri": "ui://a/b"}}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.add_tool(lambda: "x", name="show", app="ui://a/b"), r"'ui://a/b', which does not exist; register"),
        (
            lambda s: (s.add_tool(lambda: "x", name="show", app="ui://a/pane"), s.add_app("ui://a/panel", "<p>")),
            r"which does not exist; did you mean 'ui://a/panel'",
        ),
        (
            lambda s: s.add_app("ui://a/b", "<p>", tools=["show"]),
            "names the tool 'show', which does not exist; register",
        ),
        (
            lambda s: (s.add_tool(lambda: "x", name="show"), s.add_app("ui://a/b", "<p>", tools=["shwo"])),
            "names the tool 'shwo', which does not exist; did you mean 'show'",
        ),
        (lambda s: s.add_app("ui://a/b", "<p>", tools=[print]), "names the tool 'print', which does not exist"),
        (lambda s: s.add_tool(lambda: "x", name="show", visibility=["app"]), "but the server has no page"),
    ],
)
async def test_a_missing_page_or_tool_fails_before_the_first_connection(build: Any, message: str) -> None:
    server = Server("s")
    build(server)
    with pytest.raises(ConfigError, match=message):
        async with Client(server):
            pass


async def test_a_page_that_is_removed_later_does_not_end_the_service() -> None:
    server = weather()
    async with Client(server):
        server.remove_resource(PANEL)
    async with Client(server) as client:
        assert [tool.name for tool in await client.list_tools()] == ["show"]


def test_a_missing_page_is_one_sentence_when_a_server_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server("s")
    server.add_tool(lambda: "x", name="show", app="ui://a/b")
    with pytest.raises(SystemExit):
        server.run("http")
    assert capsys.readouterr().err.startswith("error: tool 'show' has the page 'ui://a/b', which does not exist")


async def test_a_resource_of_the_scheme_counts_as_a_page() -> None:
    server = Server("s")
    server.add_resource("ui://a/b", "<p>", mime_type=APP_MIME_TYPE)
    server.add_tool(lambda: "x", name="show", app="ui://a/b")
    assert await ui_of_tools(server) == {"show": {"resourceUri": "ui://a/b"}}


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("https://a/b", "pages have the scheme ui: use 'ui://a/b'"),
        ("weather/panel", "use 'ui://weather/panel'"),
        ("ui://", "pages have the scheme ui"),
        ("ui://a/{city}", "the URI of a page has no variables"),
        ("ui://a/b c", "percent-encode"),
        ("ui://a/ä", "percent-encode"),
    ],
)
def test_a_page_has_a_uri_of_its_own_scheme(uri: str, message: str) -> None:
    server = Server("s")
    with pytest.raises(ValueError, match=message):
        server.add_app(uri, "<p>")
    with pytest.raises(ValueError, match=message):
        server.add_tool(lambda: "x", name="show", app=uri)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"visibility": "app"}, TypeError, r'visibility= must be a list, such as \["app"\]'),
        ({"visibility": ["robot"]}, ValueError, "has the unknown value 'robot'; use"),
        ({"visibility": []}, ValueError, "is empty, so the tool could not be called"),
        ({"app": True}, TypeError, "app= must be the URI of a page"),
    ],
)
def test_a_wrong_link_fails_at_registration(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Server("s").add_tool(lambda: "x", name="show", **options)


@pytest.mark.parametrize("page", [7, None, Path("/there/is/none.html")])
def test_a_page_that_is_none_fails_at_registration(page: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="page 'ui://a/b'"):
        Server("s").add_app("ui://a/b", page)


def test_a_decorator_needs_the_uri() -> None:
    with pytest.raises(TypeError, match="a page needs its URI"):
        Server("s").app(lambda: "<p>")  # type: ignore[arg-type]


def test_a_uri_is_registered_once() -> None:
    server = Server("s")
    server.add_app("ui://a/b", "<p>", tools=["show"])
    with pytest.raises(ValueError, match="exists already"):
        server.add_app("ui://a/b", "<p>", tools=["hide"])
    server.add_tool(lambda: "x", name="show")
    server._check_apps()


# --- mounted servers -------------------------------------------------------------------------------------------------


@ERAS
async def test_a_mounted_server_brings_its_pages_under_its_namespace(revision: str) -> None:
    parent = Server("parent")
    parent.mount(weather(), "w")
    moved = "ui://w/weather/panel"
    async with Client(parent, revision=revision, apps=True) as client:
        tools = {tool.name: tool.meta for tool in await client.list_tools()}
        [page] = await client.list_resources()
        [contents] = await client.read_resource(moved)
        await client.call_tool("w_refresh", {"city": "Oslo"})
    assert tools["w_show"] == {"ui": {"resourceUri": moved}}
    assert tools["w_refresh"] == {"ui": {"resourceUri": moved, "visibility": ["app"]}}
    assert (page.uri, page.meta) == (moved, {"ui": DECLARED})
    assert (contents.uri, contents.meta, contents.text) == (moved, {"ui": DECLARED}, HTML)
    async with Client(parent, revision=revision) as client:
        assert [(tool.name, tool.meta) for tool in await client.list_tools()] == [("w_show", None)]
        with pytest.raises(InvalidParams, match="Unknown tool"):
            await client.call_tool("w_refresh", {"city": "Oslo"})


async def test_the_links_of_a_mounted_server_are_checked_too() -> None:
    child, parent = Server("child"), Server("parent")
    child.add_tool(lambda: "x", name="show", app="ui://a/b")
    parent.mount(child, "c")
    with pytest.raises(ConfigError, match="'ui://a/b', which does not exist"):
        async with Client(parent):
            pass


def test_a_policy_is_given_as_an_object_or_as_a_mapping_of_either_names() -> None:
    server = Server("s")
    given: list[Any] = [
        AppCsp(connect=("https://a.example",)),
        {"connect": ["https://a.example"]},
        {"connectDomains": ["https://a.example"]},
    ]
    for number, csp in enumerate(given):
        server.add_app(f"ui://a/{number}", "<p>", csp=csp, permissions={"clipboardWrite": {}})
    metas = [each.listed().meta for each in server.registry.resources.values()]
    assert metas == [
        {"ui": {"csp": {"connectDomains": ["https://a.example"]}, "permissions": {"clipboardWrite": {}}}}
    ] * len(given)

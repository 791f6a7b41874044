"""Reading a page: by tool, by name and by URI, and what is refused."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

import trunkline.types as t
from tests.extensions.apps.weather import ALL_REVISIONS, HTML, PANEL, weather
from trunkline import Client, Server
from trunkline.errors import InvalidParams, LocalProtocolError, RemoteProtocolError
from trunkline.extensions import AppCsp, AppDeclaration, AppPage
from trunkline.extensions.apps.reading import page_of
from trunkline.protocol.apps import APP_MIME_TYPE

DECLARED = AppDeclaration(csp=AppCsp(connect=("https://api.example.com",)), prefers_border=True)


@ALL_REVISIONS
async def test_a_page_is_read_by_tool_by_name_and_by_uri(revision: str) -> None:
    async with Client(weather(), revision=revision, apps=True) as client:
        tool = next(each for each in await client.list_tools() if each.name == "show")
        found = [await client.read_app(each) for each in (tool, "refresh", PANEL)]
    assert found == [AppPage(uri=PANEL, html=HTML, declared=DECLARED)] * 3
    assert "connect-src 'self' https://api.example.com;" in found[0].content_security_policy
    assert found[0].frame_permissions == ""


async def test_a_client_that_does_not_show_pages_reads_none() -> None:
    async with Client(weather()) as client:
        with pytest.raises(LocalProtocolError, match="pass apps=True"):
            await client.read_app(PANEL)


async def test_a_tool_without_a_page_and_an_unknown_tool_are_named() -> None:
    server = weather()
    server.add_tool(lambda: "x", name="plain")
    async with Client(server, apps=True) as client:
        with pytest.raises(InvalidParams, match="The tool 'plain' has no page"):
            await client.read_app("plain")
        with pytest.raises(InvalidParams, match="The server has no tool 'other'"):
            await client.read_app("other")


def served(contents: Any, meta: dict[str, Any] | None = None) -> Server:
    """A server that sends these contents as its page, whatever they are, and lists it with this ``_meta``."""
    server = Server("s")
    server.add_resource("ui://a/b", lambda: t.ReadResourceResult(contents=[contents]), meta=meta, name="page")
    return server


def page(**changes: Any) -> t.ResourceContents:
    members: dict[str, Any] = {"uri": "ui://a/b", "mime_type": APP_MIME_TYPE, "text": HTML}
    return t.ResourceContents(**{**members, **changes})


async def read(server: Server) -> AppPage:
    async with Client(server, apps=True) as client:
        return await client.read_app("ui://a/b")


async def test_html_in_base64_is_decoded() -> None:
    assert (await read(served(page(text=None, blob=b64encode(HTML.encode()).decode())))).html == HTML


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (
            page(mime_type="text/html"),
            "is not a page: expected text/html;profile=mcp-app, but the server sent text/html",
        ),
        (page(mime_type=None), "is not a page"),
        (page(text=None, blob="<not base64>"), "is not HTML in UTF-8"),
        (page(text=None, blob=b64encode(b"\xff\xfe").decode()), "is not HTML in UTF-8"),
        (
            page(meta={"ui": {"csp": {"connectDomains": ["https://a.example; script-src *"]}}}),
            "declaration of the page",
        ),
        (page(meta={"ui": {"csp": {"resourceDomains": ["*"]}}}), "declaration of the page"),
        (page(meta={"ui": {"csp": 7}}), "declaration of the page"),
    ],
)
async def test_what_is_no_page_is_refused(contents: t.ResourceContents, message: str) -> None:
    with pytest.raises(RemoteProtocolError, match=message):
        await read(served(contents))


@pytest.mark.parametrize("contents", [page(text="ä" * 51), page(text=None, blob=b64encode(b"a" * 102).decode())])
def test_a_page_that_is_too_large_is_refused(contents: t.ResourceContents) -> None:
    with pytest.raises(RemoteProtocolError, match="has 102 bytes; the limit is 100"):
        page_of("ui://a/b", [contents], most=100)


def test_nothing_is_no_page() -> None:
    with pytest.raises(RemoteProtocolError, match="the server sent nothing"):
        page_of("ui://a/b", [])


async def test_the_list_says_what_the_contents_do_not() -> None:
    listed = {"ui": {"csp": {"connectDomains": ["https://list.example"]}}}
    assert (await read(served(page(), listed))).declared.csp == AppCsp(connect=("https://list.example",))


async def test_what_the_contents_say_wins_as_a_whole() -> None:
    listed = {"ui": {"csp": {"connectDomains": ["https://list.example"]}}}
    found = await read(served(page(meta={"ui": {"prefersBorder": True}}), listed))
    assert found.declared == AppDeclaration(prefers_border=True)


async def test_a_page_that_is_not_listed_gets_the_restrictive_policy() -> None:
    server = Server("s")
    server.add_resource("ui://{+path}", lambda path: t.ReadResourceResult(contents=[page()]), name="pages")
    found = await read(server)
    assert found.declared == AppDeclaration()
    assert "connect-src 'none'" in found.content_security_policy


async def test_a_list_that_fails_is_no_reason_to_fail() -> None:
    server = served(page())

    async def no_lists(request: Any, call_next: Any) -> Any:
        if request.method == "resources/list":
            raise InvalidParams("not today")
        return await call_next(request)

    server.add_middleware(no_lists)
    assert (await read(server)).declared == AppDeclaration()


async def test_the_deprecated_link_of_a_tool_is_followed() -> None:
    server = served(page())
    server.add_tool(lambda: "x", name="old", meta={"ui/resourceUri": "ui://a/b"})
    async with Client(server, apps=True) as client:
        assert (await client.read_app("old")).html == HTML


async def test_apps_are_declared_beside_other_extensions() -> None:
    async with Client(weather(), apps=True, extensions={"com.example/polls": {}}) as client:
        assert [tool.name for tool in await client.list_tools()] == ["show", "refresh"]

"""Compressing a file and keeping it for the caller."""

from __future__ import annotations

import asyncio
import base64
import gzip
from typing import Any

import pytest

from servers.tests.everything.support import HANDSHAKE, STATELESS, call, connected
from tests.net.origins import answer, origin, redirect
from trunkline import Client, RequestFailed, Server, ToolError
from trunkline.net import Fetcher
from trunkline_servers.everything import make_server

HELLO = "data:text/plain;base64," + base64.b64encode(b"hello").decode()
TOOL = "gzip-file-as-resource"


def unpacked(blob: str | None) -> bytes:
    return gzip.decompress(base64.b64decode(blob or ""))


def local(**options: Any) -> Server:
    return make_server(fetcher=Fetcher(allow_loopback=True), numbered=0, **options)


@pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
async def test_a_link_is_given_that_leads_to_the_compressed_file(revision: str) -> None:
    async with connected(revision) as client:
        (link,) = (await call(client, TOOL, name="a.gz", data=HELLO)).content
        blob = (await client.read_resource(link.uri))[0].blob
    assert (link.name, link.mime_type) == ("a.gz", "application/gzip")
    assert unpacked(blob) == b"hello"


async def test_the_compressed_file_itself_is_given_if_that_was_asked_for() -> None:
    async with connected(STATELESS) as client:
        assert (
            unpacked((await call(client, TOOL, data="data:,a%20b", outputType="resource")).content[0].resource.blob)
            == b"a b"
        )


async def test_a_session_finds_its_file_under_the_official_uri_and_in_the_list() -> None:
    async with connected(HANDSHAKE) as client:
        (link,) = (await call(client, TOOL, name="a b.gz", data=HELLO)).content
        uri, listed = link.uri, [each.uri for each in await client.list_resources()]
    assert uri == "demo://resource/session/a%20b.gz"
    assert uri in listed


async def test_without_a_session_the_uri_cannot_be_guessed_and_is_not_listed() -> None:
    async with connected(STATELESS) as client:
        (one,) = (await call(client, TOOL, name="a.gz", data=HELLO)).content
        (two,) = (await call(client, TOOL, name="a.gz", data=HELLO)).content
        one, two, listed = one.uri, two.uri, [each.uri for each in await client.list_resources()]
    assert one != two
    assert len(one.split("/")[4]) == 32
    assert not {one, two} & set(listed)


async def test_two_sessions_have_their_own_files_of_one_name() -> None:
    server = make_server(numbered=0)
    async with connected(HANDSHAKE, server) as one, connected(HANDSHAKE, server) as other:
        await call(one, TOOL, name="a.gz", data="data:,one")
        await call(other, TOOL, name="a.gz", data="data:,other")
        uri = "demo://resource/session/a.gz"
        assert [unpacked((await client.read_resource(uri))[0].blob) for client in (one, other)] == [b"one", b"other"]


@pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
async def test_the_file_of_a_session_is_invisible_to_other_sessions(revision: str) -> None:
    server = make_server(numbered=0)
    async with connected(HANDSHAKE, server) as one, connected(revision, server) as other:
        (link,) = (await call(one, TOOL, name="a.gz", data=HELLO)).content
        listed = [each.uri for each in await other.list_resources()]
        with pytest.raises(RequestFailed, match="not found"):
            await other.read_resource(link.uri)
        assert [uri for uri in listed if "session" in uri] == []


async def test_a_file_ends_with_its_session() -> None:
    server = make_server(numbered=0)
    async with connected(HANDSHAKE, server) as other:
        async with connected(HANDSHAKE, server) as one:
            await call(one, TOOL, name="a.gz", data=HELLO)
        await call(other, TOOL, name="b.gz", data=HELLO)
        assert [uri for uri in server.registry.resources if "session" in uri] == ["demo://resource/session/b.gz"]


async def test_the_oldest_file_goes_when_there_are_too_many() -> None:
    server = make_server(numbered=0)

    async def make(client: Client, number: int) -> str:
        (link,) = (await call(client, TOOL, name=f"{number}.gz", data=HELLO)).content
        return str(link.uri)

    async with connected(HANDSHAKE, server) as client:
        uris = [await make(client, number) for number in range(66)]
        listed = {each.uri for each in await client.list_resources()} & set(uris)
        assert (len(listed), uris[0] in listed) == (64, False)


# --- fetching --------------------------------------------------------------------------------------------------------


async def test_a_file_is_fetched_and_compressed() -> None:
    async with origin({"/a": answer(b"from afar")}) as web, connected(HANDSHAKE, local()) as client:
        (found,) = (await call(client, TOOL, data=f"{web.url}/a", outputType="resource")).content
        assert unpacked(found.resource.blob) == b"from afar"


REFUSED = [
    pytest.param("file:///etc/passwd", {}, "https URL or a data URI", id="a-file"),
    pytest.param("not a url", {}, "https URL or a data URI", id="no-url"),
    pytest.param("https://[", {}, "is not a URL", id="half-a-url"),
    pytest.param("data:text/plain", {}, "no comma", id="data-without-comma"),
    pytest.param("data:;base64,%%%", {}, "base64", id="data-not-base64"),
    pytest.param("data:," + "x" * 11, {"max_fetch_bytes": 10}, "more than 10 bytes", id="data-too-long"),
    pytest.param("data:," + "%41" * 60, {"max_fetch_bytes": 10}, "more than 10 bytes", id="data-much-too-long"),
    pytest.param("https://evil.example/x", {"allowed_domains": ["good.example"]}, "allowed domains", id="domain"),
    pytest.param("https://notgood.example/", {"allowed_domains": ["good.example"]}, "allowed domains", id="suffix"),
]


@pytest.mark.parametrize(("data", "options", "why"), REFUSED)
async def test_a_file_that_may_not_be_compressed_is_refused_with_the_reason(
    data: str, options: dict[str, Any], why: str
) -> None:
    async with connected(STATELESS, make_server(numbered=0, **options)) as client:
        with pytest.raises(ToolError, match=why):
            await call(client, TOOL, data=data)


@pytest.mark.parametrize("name", ["", ".", "..", "a\nb", "a\0b", "x" * 129])
async def test_an_invalid_name_is_refused(name: str) -> None:
    async with connected(HANDSHAKE) as client:
        with pytest.raises(ToolError, match="name must be"):
            await call(client, TOOL, name=name, data=HELLO)


async def test_a_name_cannot_leave_its_folder() -> None:
    async with connected(HANDSHAKE) as client:
        assert (
            str((await call(client, TOOL, name="../../x", data=HELLO)).content[0].uri)
            == "demo://resource/session/..%2F..%2Fx"
        )


async def test_a_redirect_may_not_leave_the_allowed_domains() -> None:
    server = local(allowed_domains=["127.0.0.1"])
    async with origin({"/a": redirect("http://localhost:1/")}) as web, connected(HANDSHAKE, server) as client:
        with pytest.raises(ToolError, match="another origin"):
            await call(client, TOOL, data=f"{web.url}/a")


async def test_an_answer_that_is_an_error_is_not_compressed() -> None:
    async with origin() as web, connected(HANDSHAKE, local()) as client:
        with pytest.raises(ToolError, match="status 404"):
            await call(client, TOOL, data=f"{web.url}/none")


@pytest.mark.parametrize("url", ["https://127.0.0.1/", "https://169.254.169.254/latest/", "http://example.com/"])
async def test_nothing_is_fetched_from_where_only_the_server_can_reach(url: str) -> None:
    async with connected(STATELESS) as client:
        with pytest.raises(ToolError, match="Will not fetch"):
            await call(client, TOOL, data=url)


async def _endless(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2000)
    await writer.drain()
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("options", "why"),
    [({"max_fetch_bytes": 1000}, "the limit is 1000 bytes"), ({"fetch_seconds": 0.05}, "took too long")],
    ids=["bytes", "seconds"],
)
async def test_an_answer_without_end_is_given_up_at_the_limit(options: dict[str, Any], why: str) -> None:
    async with origin({"/a": _endless}) as web, connected(HANDSHAKE, local(**options)) as client:
        with pytest.raises(ToolError, match=why):
            await call(client, TOOL, data=f"{web.url}/a")


async def test_a_handle_that_was_guessed_opens_nothing() -> None:
    async with connected(STATELESS) as client:
        await call(client, TOOL, name="a.gz", data="data:,x")
        with pytest.raises(RequestFailed, match="gone"):
            await client.read_resource(f"demo://resource/kept/{'0' * 32}/a.gz")

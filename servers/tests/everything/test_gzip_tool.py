"""Compressing a file and keeping it for the caller."""

from __future__ import annotations

import base64
import gzip
from typing import Any

import pytest

from servers.tests.everything.support import ERAS, HANDSHAKE, STATELESS, call, connected
from tests.net.origins import answer, origin, redirect
from tests.support import run_async
from trunkline import Client, RequestFailed, Server, ToolError
from trunkline.net import Fetcher
from trunkline_servers.everything import make_server

HELLO = "data:text/plain;base64," + base64.b64encode(b"hello").decode()
TOOL = "gzip-file-as-resource"


def unpacked(blob: str | None) -> bytes:
    return gzip.decompress(base64.b64decode(blob or ""))


def local(**options: Any) -> Server:
    return make_server(fetcher=Fetcher(allow_loopback=True), numbered=0, **options)


@pytest.mark.parametrize("revision", ERAS)
def test_a_link_is_given_that_leads_to_the_compressed_file(revision: str) -> None:
    async def main() -> tuple[Any, str | None]:
        async with connected(revision) as client:
            (link,) = (await call(client, TOOL, name="a.gz", data=HELLO)).content
            return link, (await client.read_resource(link.uri))[0].blob

    link, blob = run_async(main())
    assert (link.name, link.mime_type) == ("a.gz", "application/gzip")
    assert unpacked(blob) == b"hello"


@pytest.mark.parametrize("revision", ERAS)
def test_the_compressed_file_itself_is_given_if_that_was_asked_for(revision: str) -> None:
    async def main() -> Any:
        async with connected(revision) as client:
            return (await call(client, TOOL, data="data:,a%20b", outputType="resource")).content[0]

    assert unpacked(run_async(main()).resource.blob) == b"a b"


def test_a_session_finds_its_file_under_the_official_uri_and_in_the_list() -> None:
    async def main() -> tuple[str, list[str]]:
        async with connected(HANDSHAKE) as client:
            (link,) = (await call(client, TOOL, name="a b.gz", data=HELLO)).content
            return link.uri, [each.uri for each in await client.list_resources()]

    uri, listed = run_async(main())
    assert uri == "demo://resource/session/a%20b.gz"
    assert uri in listed


def test_without_a_session_the_uri_cannot_be_guessed_and_is_not_listed() -> None:
    async def main() -> tuple[str, str, list[str]]:
        async with connected(STATELESS) as client:
            (one,) = (await call(client, TOOL, name="a.gz", data=HELLO)).content
            (two,) = (await call(client, TOOL, name="a.gz", data=HELLO)).content
            return one.uri, two.uri, [each.uri for each in await client.list_resources()]

    one, two, listed = run_async(main())
    assert one != two
    assert len(one.split("/")[4]) == 32
    assert not {one, two} & set(listed)


def test_two_sessions_have_their_own_files_of_one_name() -> None:
    server = make_server(numbered=0)

    async def main() -> list[bytes]:
        async with connected(HANDSHAKE, server) as one, connected(HANDSHAKE, server) as other:
            await call(one, TOOL, name="a.gz", data="data:,one")
            await call(other, TOOL, name="a.gz", data="data:,other")
            uri = "demo://resource/session/a.gz"
            return [unpacked((await client.read_resource(uri))[0].blob) for client in (one, other)]

    assert run_async(main()) == [b"one", b"other"]


@pytest.mark.parametrize("revision", ERAS)
def test_the_file_of_a_session_is_invisible_to_other_sessions(revision: str) -> None:
    server = make_server(numbered=0)

    async def main() -> list[str]:
        async with connected(HANDSHAKE, server) as one, connected(revision, server) as other:
            (link,) = (await call(one, TOOL, name="a.gz", data=HELLO)).content
            listed = [each.uri for each in await other.list_resources()]
            with pytest.raises(RequestFailed, match="not found"):
                await other.read_resource(link.uri)
            return [uri for uri in listed if "session" in uri]

    assert run_async(main()) == []


def test_a_file_ends_with_its_session() -> None:
    server = make_server(numbered=0)

    async def main() -> list[str]:
        async with connected(HANDSHAKE, server) as other:
            async with connected(HANDSHAKE, server) as one:
                await call(one, TOOL, name="a.gz", data=HELLO)
            await call(other, TOOL, name="b.gz", data=HELLO)
            return [uri for uri in server.registry.resources if "session" in uri]

    assert run_async(main()) == ["demo://resource/session/b.gz"]


def test_the_oldest_file_goes_when_there_are_too_many() -> None:
    server = make_server(numbered=0)

    async def make(client: Client, number: int) -> str:
        (link,) = (await call(client, TOOL, name=f"{number}.gz", data=HELLO)).content
        return str(link.uri)

    async def main() -> tuple[int, bool]:
        async with connected(HANDSHAKE, server) as client:
            uris = [await make(client, number) for number in range(66)]
            listed = {each.uri for each in await client.list_resources()} & set(uris)
            return len(listed), uris[0] in listed

    assert run_async(main()) == (64, False)


# --- fetching --------------------------------------------------------------------------------------------------------


def test_a_file_is_fetched_and_compressed() -> None:
    async def main() -> bytes:
        async with origin({"/a": answer(b"from afar")}) as web, connected(HANDSHAKE, local()) as client:
            (found,) = (await call(client, TOOL, data=f"{web.url}/a", outputType="resource")).content
            return unpacked(found.resource.blob)

    assert run_async(main()) == b"from afar"


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
def test_a_file_that_may_not_be_compressed_is_refused_with_the_reason(
    data: str, options: dict[str, Any], why: str
) -> None:
    async def main() -> None:
        async with connected(STATELESS, make_server(numbered=0, **options)) as client:
            await call(client, TOOL, data=data)

    with pytest.raises(ToolError, match=why):
        run_async(main())


@pytest.mark.parametrize("name", ["", ".", "..", "a\nb", "a\0b", "x" * 129])
def test_an_invalid_name_is_refused(name: str) -> None:
    async def main() -> None:
        async with connected(HANDSHAKE) as client:
            await call(client, TOOL, name=name, data=HELLO)

    with pytest.raises(ToolError, match="name must be"):
        run_async(main())


def test_a_name_cannot_leave_its_folder() -> None:
    async def main() -> str:
        async with connected(HANDSHAKE) as client:
            return str((await call(client, TOOL, name="../../x", data=HELLO)).content[0].uri)

    assert run_async(main()) == "demo://resource/session/..%2F..%2Fx"


def test_a_redirect_may_not_leave_the_allowed_domains() -> None:
    async def main() -> None:
        server = local(allowed_domains=["127.0.0.1"])
        async with origin({"/a": redirect("http://localhost:1/")}) as web, connected(HANDSHAKE, server) as client:
            await call(client, TOOL, data=f"{web.url}/a")

    with pytest.raises(ToolError, match="another origin"):
        run_async(main())


def test_an_answer_that_is_an_error_is_not_compressed() -> None:
    async def main() -> None:
        async with origin() as web, connected(HANDSHAKE, local()) as client:
            await call(client, TOOL, data=f"{web.url}/none")

    with pytest.raises(ToolError, match="status 404"):
        run_async(main())

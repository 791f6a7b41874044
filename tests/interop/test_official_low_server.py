"""A server on the lower layer of the official SDK: what the friendly face leaves out, in both eras."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import trunkline.types as t
from tests.interop.peers import NEWEST, NEWEST_HANDSHAKE, SharedClient, program, shared
from trunkline import Client
from trunkline.client.changes import Change

LOW = program("official_low.py")


@pytest.fixture(scope="module")
def handshake() -> Iterator[SharedClient]:
    """A server process whose client speaks the newest handshake revision."""
    with shared(LOW, revision=NEWEST_HANDSHAKE) as client:
        yield client


@pytest.fixture(scope="module")
def stateless() -> Iterator[SharedClient]:
    """A server process whose client speaks the stateless revision."""
    with shared(LOW, revision=NEWEST) as client:
        yield client


@pytest.fixture(params=["handshake", "stateless"])
def server(request: pytest.FixtureRequest) -> SharedClient:
    """Each of the two."""
    client: SharedClient = request.getfixturevalue(request.param)
    return client


def test_all_pages_are_read(server: SharedClient) -> None:
    tools = server.run(lambda client: client.list_tools())
    assert [tool.name for tool in tools] == ["change", "loud", "end", "raw"]


def test_every_kind_of_content_arrives(server: SharedClient) -> None:
    result = server.run(lambda client: client.call_tool("raw"))
    text, audio, resource, link = result.content
    assert text == t.TextContent(text="one", annotations=t.Annotations(priority=0.5, audience=["user"]))
    assert audio == t.AudioContent(data="AAAA", mime_type="audio/wav")
    assert isinstance(resource, t.EmbeddedResource)
    assert resource.resource.text == "inside"
    assert isinstance(link, t.ResourceLink)
    assert link.uri == "note://fixed"


def test_structure_and_meta_arrive(server: SharedClient) -> None:
    result = server.run(lambda client: client.call_tool("raw"))
    assert result.meta is not None
    assert (result.data, result.meta["example.com/mark"]) == ({"ok": True}, 7)


def test_changes_are_told_to_a_listener(server: SharedClient) -> None:
    async def work(client: Client) -> set[Change]:
        async with client.listen(tools=True, uris=["note://fixed"]) as changes:
            await client.call_tool("change")
            return {await anext(changes) for _ in range(2)}

    assert server.run(work) == {Change("tools"), Change("resource", "note://fixed")}


def test_a_session_that_unsubscribed_hears_of_lists_only(handshake: SharedClient) -> None:
    async def work(client: Client) -> None:
        await client.subscribe("note://fixed")
        await client.unsubscribe("note://fixed")
        await client.call_tool("change")

    handshake.heard.clear()
    handshake.run(work)
    assert [method for method, _ in handshake.heard] == ["notifications/tools/list_changed"]


def test_a_subscription_that_the_server_ends_is_over(stateless: SharedClient) -> None:
    async def work(client: Client) -> list[Change]:
        async with client.listen(tools=True) as changes:
            await client.call_tool("end")
            return [change async for change in changes]

    assert stateless.run(work) == []


def test_log_messages_are_heard(server: SharedClient) -> None:
    async def work(client: Client) -> None:
        await client.set_logging_level("info")
        await client.call_tool("loud")

    server.heard.clear()
    server.run(work)
    message = {"level": "error", "data": {"count": 1}, "logger": "low"}
    assert server.heard == [("notifications/message", message)]

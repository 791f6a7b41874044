"""A server on the lower layer of the official SDK: what the friendly face leaves out, in both eras."""

from __future__ import annotations

import pytest

import trunkline.types as t
from tests.interop.peers import BOTH_ERAS, NEWEST, NEWEST_HANDSHAKE, program
from tests.support import run_async
from trunkline import Client
from trunkline.client.listening import Change

LOW = program("official_low.py")
EACH_ERA = pytest.mark.parametrize("revision", BOTH_ERAS)


@EACH_ERA
def test_all_pages_are_read(revision: str) -> None:
    async def main() -> list[str]:
        async with Client(LOW, revision=revision) as client:
            return [tool.name for tool in await client.list_tools()]

    assert run_async(main(), seconds=20) == ["change", "loud", "end", "raw"]


@EACH_ERA
def test_every_kind_of_content_arrives(revision: str) -> None:
    async def main() -> tuple[list[t.ContentBlock], object, dict[str, object]]:
        async with Client(LOW, revision=revision) as client:
            result = await client.call_tool("raw")
            return result.content, result.data, result.meta or {}

    (text, audio, resource, link), data, meta = run_async(main(), seconds=20)
    assert text == t.TextContent(text="one", annotations=t.Annotations(priority=0.5, audience=["user"]))
    assert audio == t.AudioContent(data="AAAA", mime_type="audio/wav")
    assert isinstance(resource, t.EmbeddedResource)
    assert resource.resource.text == "inside"
    assert isinstance(link, t.ResourceLink)
    assert link.uri == "note://fixed"
    assert (data, meta["example.com/mark"]) == ({"ok": True}, 7)


@EACH_ERA
def test_changes_are_told_to_a_listener(revision: str) -> None:
    async def main() -> set[Change]:
        async with (
            Client(LOW, revision=revision) as client,
            client.listen(tools=True, uris=["note://fixed"]) as changes,
        ):
            await client.call_tool("change")
            return {await anext(changes) for _ in range(2)}

    assert run_async(main(), seconds=20) == {Change("tools"), Change("resource", "note://fixed")}


def test_a_session_that_unsubscribed_hears_of_lists_only() -> None:
    heard: list[str] = []

    async def main() -> None:
        async with Client(
            LOW, revision=NEWEST_HANDSHAKE, on_notification=lambda method, params: heard.append(method)
        ) as client:
            await client.subscribe("note://fixed")
            await client.unsubscribe("note://fixed")
            await client.call_tool("change")

    run_async(main(), seconds=20)
    assert heard == ["notifications/tools/list_changed"]


def test_a_subscription_that_the_server_ends_is_over() -> None:
    async def main() -> list[Change]:
        async with Client(LOW, revision=NEWEST) as client, client.listen(tools=True) as changes:
            await client.call_tool("end")
            return [change async for change in changes]

    assert run_async(main(), seconds=20) == []


@EACH_ERA
def test_log_messages_are_heard(revision: str) -> None:
    heard: list[t.LoggingMessageNotificationParams] = []

    async def main() -> None:
        async with Client(LOW, revision=revision, logging=heard.append) as client:
            await client.set_logging_level("info")
            await client.call_tool("loud")

    run_async(main(), seconds=20)
    assert [(each.level, each.data, each.logger) for each in heard] == [("error", {"count": 1}, "low")]

"""Callers without read access: a subscription reveals nothing about the folders, and adds no watch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.transports.http.serving_support import HANDSHAKE, Call, SessionClient, modern, request
from trunkline import Server, StaticTokens
from trunkline_servers.filesystem import make_server, subscriptions

TOKENS = StaticTokens({"reader": {"subject": "reader", "scopes": "read"}, "none": "none"})


def served(folder: Path) -> Server:
    server = make_server([folder])
    server.settings.auth = TOKENS
    server.require_scopes(read="read", write="write")
    return server


async def subscribe(server: Server, uri: str, who: str) -> Call:
    client = await SessionClient.open(server.asgi(), HANDSHAKE, token=who)
    return await client.post(request("resources/subscribe", {"uri": uri})).whole()


@pytest.mark.parametrize("path", ["in/there/x", "in/missing/x", "out"])
async def test_a_caller_without_read_access_gets_the_same_error_for_every_path(path: str, tmp_path: Path) -> None:
    (tmp_path / "in" / "there").mkdir(parents=True)

    answer = await subscribe(served(tmp_path / "in"), f"file://{tmp_path}/{path}", "none")

    assert answer.error == (403, 403)
    assert str(tmp_path) not in str(answer.json)


async def test_a_caller_with_read_access_gets_the_reason_for_a_path(tmp_path: Path) -> None:
    answer = await subscribe(served(tmp_path), f"file://{tmp_path}/missing/x", "reader")

    assert "cannot be watched" in answer.json["error"]["message"]


@pytest.mark.parametrize(("who", "number"), [("none", 0), ("reader", 1)])
async def test_a_stream_watches_only_what_its_reader_may_read(
    who: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added: list[str] = []
    add = subscriptions.FileWatcher.add

    async def counted(self: Any, uri: str, *given: Any) -> None:
        added.append(uri)
        await add(self, uri, *given)

    monkeypatch.setattr(subscriptions.FileWatcher, "add", counted)
    wanted = {"notifications": {"resourceSubscriptions": [f"file://{tmp_path}/x"]}}
    call = modern(served(tmp_path).asgi(), request("subscriptions/listen", wanted), authorization=f"Bearer {who}")
    told = await call.message()
    call.hang_up()
    await call.ended()

    assert len(told["params"]["notifications"].get("resourceSubscriptions", [])) == number
    assert len(added) == number

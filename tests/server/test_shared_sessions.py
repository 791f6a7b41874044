"""Changes that a session of several workers missed."""

from __future__ import annotations

import pytest

from tests.transports.http.serving_support import SessionClient, modern, request, tool
from tests.transports.http.shared.workers import at, fleet, settled
from trunkline.transports.http.server.sessions import worker as shared_worker


async def test_a_session_that_missed_more_than_is_kept_is_told_that_anything_may_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_worker, "MAX_ANNOUNCEMENTS", 2)
    async with fleet() as (one, other):
        await modern(one.app, tool("grow")).whole()
        client = await SessionClient.open(one.app)
        await client.post(request("resources/subscribe", {"uri": "note://one"})).whole()
        for number in range(5):
            await client.post(tool("grow", id=10 + number)).whole()
        await settled(one, other)
        listening = await at(client, other).listening()
        heard = {(await listening.message())["method"] for _ in range(3)}
        assert heard == {
            "notifications/tools/list_changed",
            "notifications/resources/list_changed",
            "notifications/resources/updated",
        }
        listening.hang_up()
        await listening.ended()
        assert (await modern(other.app, tool("add")).whole()).status == 200

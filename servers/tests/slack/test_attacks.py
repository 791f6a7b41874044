"""The list of channels applies to every tool, and only ids get into a request."""

from __future__ import annotations

from typing import Any

import pytest

from servers.tests.slack.support import SECRET, staged

SECRET_TIME = "1767603600.000200"
TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("slack_post_message", {"text": "hello"}),
    ("slack_reply_to_thread", {"thread_ts": SECRET_TIME, "text": "hello"}),
    ("slack_add_reaction", {"timestamp": SECRET_TIME, "reaction": "eyes"}),
    ("slack_get_channel_history", {}),
    ("slack_get_thread_replies", {"thread_ts": SECRET_TIME}),
]


async def test_a_channel_outside_the_list_cannot_be_touched_by_any_tool() -> None:
    channels = ["C0SECRET", "general", "#general", "c0general", "C0GENERAL,C0SECRET", "U0BEN", " "]
    async with staged(channel_ids=["C0GENERAL", " C0REVIEWS "]) as stage:
        said = [
            await stage.refused(tool, channel_id=channel, **arguments)
            for tool, arguments in TOOLS
            for channel in channels
        ]
        assert stage.double.seen == []
    assert [each for each in said if "limited to the channels C0GENERAL, C0REVIEWS" not in each] == []


async def test_only_the_channels_of_the_list_are_listed() -> None:
    async with staged(channel_ids=["C0REVIEWS", "C0OLD", "C0NONE"]) as stage:
        listed = await stage.call("slack_list_channels", cursor="1")
    assert [each["id"] for each in listed["channels"]] == ["C0REVIEWS"]


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("slack_post_message", {"channel_id": "#general", "text": "x"}),
    ("slack_get_channel_history", {"channel_id": "C0GENERAL&limit=999"}),
    ("slack_get_thread_replies", {"channel_id": "C0GENERAL", "thread_ts": "0 or 1"}),
    ("slack_get_thread_replies", {"channel_id": "C0GENERAL", "thread_ts": "1." + 6 * "\u0660"}),
    ("slack_add_reaction", {"channel_id": "C0GENERAL", "timestamp": "1767603600.000100", "reaction": "a b"}),
    ("slack_get_user_profile", {"user_id": "../../admin"}),
    ("slack_list_channels", {"limit": 0}),
    ("slack_get_users", {"cursor": "x" * 1_001}),
]


async def test_an_invalid_argument_is_refused_before_anything_is_sent() -> None:
    async with staged() as stage:
        assert all([await stage.refused(tool, **arguments) for tool, arguments in WRONG])
        assert stage.double.seen == []


async def test_a_token_that_a_refusal_of_slack_repeats_is_not_passed_on() -> None:
    async with staged() as stage:
        stage.double.refuse_once("users.list", 200, {"ok": False, "error": f"bad\n\x1b[31m {SECRET}"})
        assert await stage.refused("slack_get_users") == "Slack refused: bad [31m [token]"


@pytest.mark.parametrize("odd", [{"ok": True}, {"ok": True, "channel": None}, {"ok": True, "channel": []}], ids=repr)
async def test_an_invalid_channel_is_left_out(odd: dict[str, Any]) -> None:
    async with staged(channel_ids=["C0GENERAL", "C0REVIEWS"]) as stage:
        stage.double.refuse_once("conversations.info", 200, odd)
        listed = await stage.call("slack_list_channels")
    assert [each["id"] for each in listed["channels"]] == ["C0REVIEWS"]

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


@pytest.mark.parametrize(
    "channel", ["C0SECRET", "general", "#general", "c0general", "C0GENERAL,C0SECRET", "U0BEN", " "]
)
@pytest.mark.parametrize(("tool", "arguments"), TOOLS, ids=[tool for tool, _ in TOOLS])
async def test_a_channel_outside_the_list_cannot_be_touched_by_any_tool(
    tool: str, arguments: dict[str, Any], channel: str
) -> None:
    async with staged(channel_ids=["C0GENERAL", " C0REVIEWS "]) as stage:
        said = await stage.refused(tool, channel_id=channel, **arguments)
        assert stage.double.seen == []
    assert "limited to the channels C0GENERAL, C0REVIEWS" in said


async def test_only_the_channels_of_the_list_are_listed() -> None:
    async with staged(channel_ids=["C0REVIEWS", "C0OLD", "C0NONE"]) as stage:
        listed = await stage.call("slack_list_channels", cursor="1")
    assert [each["id"] for each in listed["channels"]] == ["C0REVIEWS"]


WRONG = [
    pytest.param("slack_post_message", {"channel_id": "#general", "text": "x"}, id="channel-by-name"),
    pytest.param("slack_get_channel_history", {"channel_id": "C0GENERAL&limit=999"}, id="channel-with-a-parameter"),
    pytest.param("slack_get_thread_replies", {"channel_id": "C0GENERAL", "thread_ts": "0 or 1"}, id="time"),
    pytest.param(
        "slack_get_thread_replies",
        {"channel_id": "C0GENERAL", "thread_ts": "1." + 6 * "\u0660"},
        id="time-in-other-digits",
    ),
    pytest.param(
        "slack_add_reaction",
        {"channel_id": "C0GENERAL", "timestamp": "1767603600.000100", "reaction": "a b"},
        id="emoji",
    ),
    pytest.param("slack_get_user_profile", {"user_id": "../../admin"}, id="user-as-a-path"),
    pytest.param("slack_list_channels", {"limit": 0}, id="limit-zero"),
    pytest.param("slack_get_users", {"cursor": "x" * 1_001}, id="long-cursor"),
]


@pytest.mark.parametrize(("tool", "arguments"), WRONG)
async def test_an_invalid_argument_is_refused_before_anything_is_sent(tool: str, arguments: dict[str, Any]) -> None:
    async with staged() as stage:
        await stage.refused(tool, **arguments)
        assert stage.double.seen == []


async def test_a_token_that_slack_repeats_is_not_passed_on() -> None:
    async with staged() as stage:
        stage.double.refuse_once("users.list", 500, {"message": f"token {SECRET} failed"})
        assert await stage.refused("slack_get_users") == "Slack answered 500: token [token] failed"


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


async def test_an_answer_that_is_too_large_is_not_read_to_its_end() -> None:
    async with staged() as stage:
        stage.double.refuse_once("users.list", 200, {"ok": True, "members": ["x" * (5 * 1024 * 1024)]})
        assert "larger than 4194304 bytes" in await stage.refused("slack_get_users")

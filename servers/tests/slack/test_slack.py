"""The Slack server: every tool against the double, as a program, and over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from examples.code_review.slack_double import SlackDouble
from servers.tests.commands import started
from servers.tests.over_http import texts
from servers.tests.slack.support import SECRET, staged
from trunkline import Client, ConfigError
from trunkline_servers.slack import make_server

MORNING = "1767603600.000100"
POST = {"channel_id": "C0REVIEWS", "text": "Reviewed acme/project#42"}


async def test_the_tools_are_the_archived_ones_with_hints() -> None:
    async with staged() as stage:
        tools = {tool.name: tool.annotations for tool in await stage.client.list_tools()}
    writes = {name for name, hints in tools.items() if hints is not None and hints.read_only_hint is False}
    assert writes == {"slack_post_message", "slack_reply_to_thread", "slack_add_reaction"}
    assert set(tools) - writes == {
        "slack_list_channels",
        "slack_get_channel_history",
        "slack_get_thread_replies",
        "slack_get_users",
        "slack_get_user_profile",
    }


async def test_the_public_channels_are_listed_page_by_page() -> None:
    async with staged() as stage:
        first = await stage.call("slack_list_channels", limit=1)
        more = first["response_metadata"]["next_cursor"]
        second = await stage.call("slack_list_channels", limit=500, cursor=more)
        sent = stage.double.seen[-1].arguments
    assert [each["name"] for each in first["channels"] + second["channels"]] == ["general", "code-reviews"]
    assert (sent["limit"], sent["team_id"], sent["types"]) == ("200", "T0ACME", "public_channel")


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
async def test_a_message_is_posted_without_previews_of_links(revision: str) -> None:
    async with staged(client={"revision": revision}) as stage:
        posted = await stage.call("slack_post_message", **POST)
        sent = stage.double.seen[-1]
        assert [each["text"] for each in stage.double.posted] == [POST["text"]]
    assert posted["ok"] is True
    assert (sent.arguments["unfurl_links"], sent.arguments["unfurl_media"]) == (False, False)
    assert sent.authorization == f"Bearer {SECRET}"


async def test_previews_of_links_can_be_turned_on() -> None:
    async with staged(unfurl=True) as stage:
        await stage.call("slack_post_message", **POST)
        assert stage.double.seen[-1].arguments["unfurl_links"] is True


@pytest.mark.parametrize("written", [MORNING, "1767603600000100", "p1767603600000100"], ids=["ts", "digits", "link"])
async def test_a_reply_goes_into_the_thread_however_its_time_is_written(written: str) -> None:
    async with staged() as stage:
        await stage.call("slack_reply_to_thread", channel_id="C0GENERAL", thread_ts=written, text="Morning!")
        thread = await stage.call("slack_get_thread_replies", channel_id="C0GENERAL", thread_ts=written)
        assert stage.double.seen[0].arguments["unfurl_links"] is False
    assert [each["text"] for each in thread["messages"]] == ["Good morning", "Morning!"]


async def test_a_reaction_is_added_with_or_without_colons() -> None:
    async with staged() as stage:
        where = {"channel_id": "C0GENERAL", "timestamp": MORNING}
        await stage.call("slack_add_reaction", **where, reaction=":wave:")
        assert "already_reacted" in await stage.refused("slack_add_reaction", **where, reaction="wave")


async def test_the_newest_messages_are_read() -> None:
    async with staged() as stage:
        read = await stage.call("slack_get_channel_history", channel_id="C0GENERAL")
        assert stage.double.seen[-1].arguments["limit"] == "10"
    assert [each["text"] for each in read["messages"]] == ["Good morning"]


async def test_people_are_listed_and_shown() -> None:
    async with staged() as stage:
        await stage.call("slack_get_users", limit=500)
        assert stage.double.seen[-1].arguments["limit"] == "200"
        listed = await stage.call("slack_get_users", limit=2)
        shown = await stage.call("slack_get_user_profile", user_id="U0ANN")
    assert [each["id"] for each in listed["members"]] == ["U0ANN", "U0BEN"]
    assert shown["profile"]["real_name"] == "Ann Author"


REFUSALS = [
    pytest.param(
        "slack_post_message", {**POST, "channel_id": "C0NONE"}, "channel_not_found (give the id", id="channel"
    ),
    pytest.param("slack_post_message", {**POST, "channel_id": "C0OLD"}, "is archived", id="archived"),
    pytest.param("slack_get_user_profile", {"user_id": "U0NOBODY"}, "user_not_found", id="user"),
    pytest.param("slack_post_message", {**POST, "text": ""}, "text", id="no-text"),
    pytest.param("slack_post_message", {**POST, "text": "x" * 40_001}, "text", id="long-text"),
]


@pytest.mark.parametrize(("tool", "arguments", "said"), REFUSALS)
async def test_an_error_of_slack_says_what_to_do(tool: str, arguments: dict[str, Any], said: str) -> None:
    async with staged() as stage:
        assert said in await stage.refused(tool, **arguments)
        assert stage.double.posted == []


async def test_a_wrong_token_says_which_variable_holds_it_and_not_what() -> None:
    async with staged(token="xoxb-wrong") as stage:
        said = await stage.refused("slack_get_users")
    assert said == "Slack refused: invalid_auth (the token in SLACK_BOT_TOKEN is wrong)"


async def test_a_long_answer_is_truncated_with_a_note() -> None:
    async with staged() as stage:
        messages = [{"text": "x" * 39_000, "ts": str(number)} for number in range(20)]
        stage.double.refuse_once("conversations.history", 200, {"ok": True, "messages": messages})
        result = await stage.client.call_tool("slack_get_channel_history", {"channel_id": "C0GENERAL", "limit": 20})
    text, note = texts(result)
    assert len(text) < 400_000
    assert note == "Note: only 10 of 20 messages are shown; ask for fewer at a time."


async def test_everything_comes_from_the_environment() -> None:
    async with SlackDouble(token=SECRET).running() as url:
        env = {"SLACK_BOT_TOKEN": SECRET, "SLACK_CHANNEL_IDS": "C0REVIEWS", "SLACK_API_URL": url}
        async with Client(started("slack", env=env).server) as client:
            listed = await client.call_tool("slack_list_channels", {})
    assert '"name":"code-reviews"' in texts(listed)[0]


@pytest.mark.parametrize(
    ("token", "tool", "arguments"), [(None, "slack_get_users", {}), ("  ", "slack_post_message", POST)]
)
async def test_without_a_token_the_tools_are_there_and_say_what_to_set(
    token: str | None, tool: str, arguments: dict[str, Any]
) -> None:
    async with staged(token=token) as stage:
        said = await stage.refused(tool, **arguments)
    assert said == (
        "Slack requires the token of a bot: start the server with SLACK_BOT_TOKEN (the bot token of your app, "
        "xoxb-...) in its environment"
    )
    assert stage.double.seen == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        pytest.param({"token": "xoxb-a b"}, "is not a valid token", id="bad-token"),
        pytest.param({"token": SECRET, "channel_ids": ["#general"]}, "is not a channel id", id="channel-by-name"),
        pytest.param({"token": SECRET, "api_url": "http://slack.example.com"}, "https://", id="in-the-open"),
    ],
)
def test_an_invalid_setting_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        make_server(**settings)
    assert SECRET not in str(refused.value)

"""Logging, pages, progress and cache hints: what goes along with requests."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interaction.rows import ALL, ANYWHERE, EVERYWHERE, HANDSHAKE, SINCE_2025_03, STATELESS, behaviour
from tests.interaction.servers.paged import NAMES
from tests.interaction.wire import META, Peer, Wire, make
from trunkline import Server

LOG = "notifications/message"
PROGRESS = "notifications/progress"
LISTS = {
    "tools/list": ("tools", "name", [*NAMES]),
    "prompts/list": ("prompts", "name", [*NAMES]),
    "resources/list": ("resources", "uri", [f"note://{name}" for name in NAMES]),
    "resources/templates/list": ("resourceTemplates", "uriTemplate", [f"note://{name}/{{x}}" for name in NAMES]),
}
CACHEABLE: list[tuple[str, dict[str, Any]]] = [
    ("tools/list", {}),
    ("prompts/list", {}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "note://a"}),
]


def levels(peer: Peer) -> list[str]:
    """Return the levels of all received log messages."""
    return [params["level"] for params in peer.notices(LOG)]


# --- logging ---------------------------------------------------------------------------------------------------------


@behaviour("logging.level", "2025-11-25 server/utilities/logging#setting-log-level", HANDSHAKE, ANYWHERE)
async def test_only_messages_of_the_wanted_severity_are_sent(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        assert await peer.result("logging/setLevel", {"level": "warning"}) == {}
        await peer.call("logs")
        assert levels(peer) == ["warning", "error"]


@behaviour("logging.level-changes", "2025-11-25 server/utilities/logging#message-flow", HANDSHAKE)
async def test_the_level_can_be_changed_at_any_time(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        await peer.result("logging/setLevel", {"level": "emergency"})
        await peer.call("logs")
        await peer.result("logging/setLevel", {"level": "debug"})
        await peer.call("logs")
        assert levels(peer) == ["debug", "info", "warning", "error"]


@behaviour("logging.level-invalid", "2025-11-25 server/utilities/logging#error-handling", HANDSHAKE)
@pytest.mark.parametrize("level", ["loud", "WARNING", 3, None])
async def test_an_unknown_level_is_invalid(wire: Wire, level: Any) -> None:
    async with wire.open("slow") as peer:
        assert (await peer.error("logging/setLevel", {"level": level}))["code"] == -32602


@behaviour("logging.level-own", "2025-11-25 server/utilities/logging#setting-log-level", HANDSHAKE)
async def test_the_level_belongs_to_the_client_that_set_it(wire: Wire) -> None:
    server = make("slow")
    async with wire.open(server) as one, wire.open(server) as other:
        await one.result("logging/setLevel", {"level": "error"})
        await other.result("logging/setLevel", {"level": "debug"})
        await one.call("logs")
        assert (levels(one), levels(other)) == (["error"], [])


@behaviour("logging.request-level", "2026-07-28 server/utilities/logging#per-request-log-level", STATELESS, ANYWHERE)
async def test_a_request_has_a_log_level(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        await peer.call("logs", meta={f"{META}logLevel": "warning"})
        assert levels(peer) == ["warning", "error"]


@behaviour("logging.request-level-absent", "2026-07-28 server/utilities/logging#per-request-log-level", STATELESS)
async def test_a_request_that_does_not_want_messages_gets_none(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        await peer.call("logs", meta={f"{META}logLevel": "debug"})
        await peer.call("logs")
        assert len(levels(peer)) == 4


@behaviour("logging.request-level-invalid", "2026-07-28 server/utilities/logging#error-handling", STATELESS)
async def test_an_unknown_level_in_a_request_is_invalid(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        params = {"name": "logs", "arguments": {}}
        assert (await peer.error("tools/call", params, meta={f"{META}logLevel": "loud"}))["code"] == -32602


@behaviour("logging.message", "2025-11-25 server/utilities/logging#log-message-notifications", transports=ANYWHERE)
async def test_a_message_has_a_level_a_logger_and_any_data(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        await peer.call("logs", meta={f"{META}logLevel": "error"})
        await peer.call("log_data", meta={f"{META}logLevel": "error"})
        assert {"level": "error", "logger": "acme", "data": "a error"} in peer.notices(LOG)
        assert peer.notices(LOG)[-1] == {"level": "critical", "data": {"disk": "full", "percent": 100}}


@behaviour("logging.before-result", "2026-07-28 server/utilities/logging#per-request-log-level", transports=EVERYWHERE)
async def test_messages_come_before_the_result_they_belong_to(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        await peer.call("logs", meta={f"{META}logLevel": "info"})
        assert levels(peer) == ["info", "warning", "error"]


@behaviour("logging.after-result", "2026-07-28 server/utilities/logging#per-request-log-level", transports=ANYWHERE)
async def test_nothing_is_logged_for_a_request_that_is_over(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        await peer.call("linger", meta={f"{META}logLevel": "debug"})
        await peer.settle()
        assert levels(peer) == []


@behaviour("logging.everywhere", "2025-11-25 server/utilities/logging#log-message-notifications")
async def test_a_resource_can_log_too(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        await peer.result("resources/read", {"uri": "log://there"}, meta={f"{META}logLevel": "debug"})
        assert levels(peer) == ["warning"]


# --- pages -----------------------------------------------------------------------------------------------------------


@behaviour("pagination.pages", "2025-11-25 server/utilities/pagination#pagination-flow")
@pytest.mark.parametrize("method", LISTS)
async def test_the_pages_of_a_list_hold_each_item_once_and_the_last_has_no_cursor(wire: Wire, method: str) -> None:
    member, key, expected = LISTS[method]
    async with wire.open("paged") as peer:
        first = await peer.result(method)
        second = await peer.result(method, {"cursor": first["nextCursor"]})
        third = await peer.result(method, {"cursor": second["nextCursor"]})
        assert [item[key] for page in (first, second, third) for item in page[member]] == expected
        assert "nextCursor" not in third


@behaviour("pagination.cursor-invalid", "2025-11-25 server/utilities/pagination#error-handling")
async def test_a_cursor_that_was_never_given_is_invalid(wire: Wire) -> None:
    async with wire.open("paged") as peer:
        cursors = ("nope", "", "AAAA", "ď", "dG9vbHMAeg")
        assert [(await peer.error("tools/list", {"cursor": each}))["code"] for each in cursors] == [-32602] * 5


@behaviour("pagination.cursor-foreign", "2025-11-25 server/utilities/pagination#error-handling")
async def test_a_cursor_of_another_list_is_invalid(wire: Wire) -> None:
    async with wire.open("paged") as peer:
        cursor = (await peer.result("tools/list"))["nextCursor"]
        assert (await peer.error("prompts/list", {"cursor": cursor}))["code"] == -32602


@behaviour("pagination.cursor-stable", "2025-11-25 server/utilities/pagination#implementation-guidelines")
async def test_a_cursor_gives_the_same_page_again(wire: Wire) -> None:
    async with wire.open("paged") as peer:
        cursor = (await peer.result("tools/list"))["nextCursor"]
        assert await peer.result("tools/list", {"cursor": cursor}) == await peer.result(
            "tools/list", {"cursor": cursor}
        )


@behaviour("pagination.cursor-dead", "2026-07-28 server/utilities/caching#interaction-with-pagination")
async def test_a_cursor_of_a_removed_item_is_invalid_and_the_list_can_be_restarted(wire: Wire) -> None:
    server = make("paged")
    async with wire.open(server) as peer:
        cursor = (await peer.result("tools/list"))["nextCursor"]
        server.remove_tool("b")
        assert (await peer.error("tools/list", {"cursor": cursor}))["code"] == -32602
        assert [tool["name"] for tool in (await peer.result("tools/list"))["tools"]] == ["a", "c"]


@behaviour("pagination.one-page", "2025-11-25 server/utilities/pagination#response-format")
async def test_a_short_list_has_no_cursor(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert "nextCursor" not in await peer.result("tools/list")


# --- progress --------------------------------------------------------------------------------------------------------


@behaviour("progress.reported", "2025-11-25 basic/utilities/progress#progress-flow", transports=ANYWHERE)
@pytest.mark.parametrize("token", ["abc", 7, 0, ""])
async def test_progress_is_reported_under_the_token_of_the_request(wire: Wire, token: Any) -> None:
    async with wire.open("slow") as peer:
        await peer.call("count", {"to": 2}, meta={"progressToken": token})
        reports = [(each["progressToken"], each["progress"], each["total"]) for each in peer.notices(PROGRESS)]
        assert reports == [(token, 1, 2), (token, 2, 2)]


@behaviour("progress.message", "2025-03-26 basic/utilities/progress#progress-flow", SINCE_2025_03)
async def test_progress_has_a_message(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        await peer.call("count", {"to": 1}, meta={"progressToken": 1})
        assert peer.notices(PROGRESS)[0]["message"] == "step 1"


@behaviour("progress.message-absent", "2025-03-26 changelog#other-schema-changes", ALL[:1])
async def test_progress_has_no_message_where_the_revision_has_none(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        await peer.call("count", {"to": 1}, meta={"progressToken": 1})
        assert set(peer.notices(PROGRESS)[0]) == {"progressToken", "progress", "total"}


@behaviour("progress.unwanted", "2025-11-25 basic/utilities/progress#behavior-requirements")
async def test_no_progress_is_reported_without_a_token(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        await peer.call("count", {"to": 3})
        await peer.settle()
        assert peer.notices(PROGRESS) == []


@behaviour("progress.increases", "2025-11-25 basic/utilities/progress#progress-flow")
async def test_progress_that_does_not_increase_is_not_sent(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        await peer.call("waver", meta={"progressToken": 1})
        assert [each["progress"] for each in peer.notices(PROGRESS)] == [1.5, 2.5]


@behaviour("progress.increases-thread", "2025-11-25 basic/utilities/progress#progress-flow")
async def test_progress_from_a_thread_that_does_not_increase_is_not_sent(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        await peer.call("waver_in_thread", meta={"progressToken": 1})
        assert [each["progress"] for each in peer.notices(PROGRESS)] == [1.5, 2.5]


@behaviour("progress.before-result", "2025-11-25 basic/utilities/progress#implementation-notes", transports=EVERYWHERE)
async def test_all_progress_comes_before_the_result(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        await peer.call("count", {"to": 200}, meta={"progressToken": 1})
        assert (len(peer.notices(PROGRESS)), "result" in peer.heard[-1]) == (200, True)


@behaviour("progress.after-result", "2025-11-25 basic/utilities/progress#implementation-notes", transports=ANYWHERE)
async def test_no_progress_follows_the_result(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        await peer.call("linger", meta={"progressToken": 1})
        await peer.settle()
        assert peer.notices(PROGRESS) == []


@behaviour("progress.apart", "2025-11-25 basic/utilities/progress#behavior-requirements", transports=ANYWHERE)
async def test_two_calls_report_under_their_own_tokens(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        first = await peer.send("tools/call", {"name": "count", "arguments": {"to": 2}}, meta={"progressToken": "a"})
        second = await peer.send("tools/call", {"name": "count", "arguments": {"to": 1}}, meta={"progressToken": "b"})
        await peer.answers(first, second)
        assert sorted(each["progressToken"] for each in peer.notices(PROGRESS)) == ["a", "a", "b"]


@behaviour("progress.pieces", "2025-11-25 basic/utilities/progress#progress-flow", SINCE_2025_03)
async def test_a_tool_that_answers_in_pieces_reports_each_of_them(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        result = await peer.call("words", meta={"progressToken": 1})
        assert [each["message"] for each in peer.notices(PROGRESS)] == ["one ", "two ", "three"]
        assert result["content"][0]["text"] == "one two three"


@behaviour("progress.token-invalid", "2025-11-25 basic/utilities/progress#progress-flow")
@pytest.mark.parametrize("token", [1.5, True, {}, []])
async def test_a_token_is_a_text_or_an_integer(wire: Wire, token: Any) -> None:
    async with wire.open("slow") as peer:
        params = {"name": "count", "arguments": {"to": 1}}
        assert (await peer.error("tools/call", params, meta={"progressToken": token}))["code"] == -32602


# --- cache hints -----------------------------------------------------------------------------------------------------


@behaviour("caching.hints", "2026-07-28 server/utilities/caching#cacheable-results", STATELESS)
@pytest.mark.parametrize(("method", "params"), [*CACHEABLE, ("server/discover", {})])
async def test_results_that_may_be_kept_say_for_how_long_and_for_whom(
    wire: Wire, method: str, params: dict[str, Any]
) -> None:
    async with wire.open("paged") as peer:
        result = await peer.result(method, params)
        assert (result["ttlMs"] >= 0, result["cacheScope"] in ("public", "private")) == (True, True)


@behaviour("caching.hints-absent", "2026-07-28 changelog#minor-changes", HANDSHAKE)
async def test_results_have_no_cache_hints_in_older_revisions(wire: Wire) -> None:
    async with wire.open("paged") as peer:
        results = {method: await peer.result(method, params) for method, params in CACHEABLE}
        assert [method for method, result in results.items() if {"ttlMs", "cacheScope"} & set(result)] == []


@behaviour("caching.ttl", "2026-07-28 server/utilities/caching#time-to-live-ttl-field", STATELESS)
async def test_the_time_is_the_one_that_was_set(wire: Wire) -> None:
    async with wire.open("paged") as peer:
        assert (await peer.result("tools/list"))["ttlMs"] == 5000


@behaviour("caching.scope-pages", "2026-07-28 server/utilities/caching#interaction-with-pagination", STATELESS)
async def test_all_pages_of_a_list_are_for_the_same_readers(wire: Wire) -> None:
    async with wire.open("paged") as peer:
        first = await peer.result("tools/list")
        second = await peer.result("tools/list", {"cursor": first["nextCursor"]})
        assert first["cacheScope"] == second["cacheScope"]


@behaviour("caching.scope-private", "2026-07-28 server/utilities/caching#choosing-a-cache-scope", STATELESS)
async def test_a_list_that_differs_by_caller_is_private(wire: Wire) -> None:
    server = Server("picky", version="1", visible=lambda caller, item: True)
    server.add_tool(lambda: "x", name="x")
    async with wire.open(server) as peer:
        assert (await peer.result("tools/list"))["cacheScope"] == "private"

"""Calls of several rounds: questions inside results, and the state that travels with the client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.interaction.rows import ANYWHERE, EVERYWHERE, STATELESS, behaviour
from tests.interaction.wire import Peer, Wire, make
from trunkline import Context, Limits, Server

FORMS: dict[str, Any] = {"elicitation": {}}


async def first_round(peer: Peer, tool: str = "order", **arguments: Any) -> Any:
    """Call a tool that asks, and give its questions."""
    result = await peer.call(tool, arguments)
    assert result["resultType"] == "input_required", result
    return result


def retry(asked: Any, said: Any, tool: str = "order", **arguments: Any) -> dict[str, Any]:
    """Return the params of the next round, with the same answer to every request."""
    return {
        "name": tool,
        "arguments": arguments,
        "inputResponses": dict.fromkeys(asked["inputRequests"], said),
        "requestState": asked["requestState"],
    }


def accepted(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


def asking_server(**options: Any) -> Server:
    """Return a server with one tool that elicits a word."""
    server = Server("rounds", version="1", **options)

    @server.tool
    async def order(ctx: Context) -> str:
        return str((await ctx.elicit("Which?", str)).data)

    return server


def leaving_server() -> Server:
    """Return a server whose tools are interrupted for requests in different ways."""
    server = Server("leaving", version="1")
    seen: list[str] = []

    @server.tool
    async def grouped(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ctx.elicit(message, str)) for message in ("Left?", "Right?")]
        return " ".join(str(task.result().data) for task in tasks)

    @server.tool
    async def tidy(ctx: Context) -> str:
        seen.append("opened")
        try:
            return str((await ctx.elicit("Go on?", str)).data)
        finally:
            seen.append("closed")

    @server.tool
    async def swallows(ctx: Context) -> str:
        try:
            return str((await ctx.elicit("Go on?", str)).data)
        except asyncio.CancelledError:
            return "swallowed"

    @server.tool
    async def gathers(ctx: Context) -> str:
        return str(await asyncio.gather(ctx.elicit("Go on?", str), return_exceptions=True))

    @server.tool
    async def history() -> str:
        return " ".join(seen)

    return server


@behaviour("rounds.asked", "2026-07-28 basic/patterns/mrtr#inputrequiredresult", STATELESS, EVERYWHERE)
async def test_a_question_travels_inside_a_result_with_a_key_and_a_state(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        asked = await first_round(peer)
        (question,) = asked["inputRequests"].values()
        assert (question["method"], question["params"]["message"]) == ("elicitation/create", "What would you like?")
        assert isinstance(asked["requestState"], str)


@behaviour("rounds.no-requests", "2026-07-28 basic/patterns/index", STATELESS, ANYWHERE)
async def test_a_server_sends_no_requests_of_its_own(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        await peer.converse_tool("order", {"elicitation/create": accepted(dish="soup")})
        assert [message for message in peer.heard if "method" in message and "id" in message] == []


@behaviour("rounds.answered", "2026-07-28 basic/patterns/mrtr#basic-workflow", STATELESS)
async def test_the_retry_with_the_answers_gets_the_result(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        result = await peer.result("tools/call", retry(await first_round(peer), accepted(dish="soup")))
        assert (result["resultType"], result["content"][0]["text"][:6]) == ("complete", "accept")


@behaviour("rounds.together", "2026-07-28 basic/patterns/mrtr#inputrequests", STATELESS)
async def test_questions_asked_at_once_leave_in_one_round(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        assert len((await first_round(peer, "at_once"))["inputRequests"]) == 2


@behaviour("rounds.groups", "2026-07-28 basic/patterns/mrtr#inputrequests", STATELESS)
async def test_questions_of_a_task_group_leave_in_one_round(wire: Wire) -> None:
    async with wire.open(leaving_server(), capabilities=FORMS) as peer:
        asked = await first_round(peer, "grouped")
        result = await peer.result("tools/call", retry(asked, accepted(value="x"), "grouped"))
        assert (len(asked["inputRequests"]), result["content"][0]["text"]) == (2, "x x")


@behaviour("rounds.left", "2026-07-28 basic/patterns/mrtr#basic-workflow", STATELESS)
async def test_a_handler_that_is_left_for_a_question_cleans_up(wire: Wire) -> None:
    async with wire.open(leaving_server(), capabilities=FORMS) as peer:
        await first_round(peer, "tidy")
        assert (await peer.call("history"))["content"][0]["text"] == "opened closed"


@behaviour("rounds.swallowed", "2026-07-28 basic/patterns/mrtr#basic-workflow", STATELESS)
@pytest.mark.parametrize("tool", ["swallows", "gathers"])
async def test_a_handler_that_does_not_want_to_be_left_asks_nevertheless(wire: Wire, tool: str) -> None:
    async with wire.open(leaving_server(), capabilities=FORMS) as peer:
        assert len((await first_round(peer, tool))["inputRequests"]) == 1


@behaviour("rounds.partial", "2026-07-28 basic/patterns/mrtr#error-handling", STATELESS)
async def test_a_question_that_was_not_answered_is_asked_again(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        asked = await first_round(peer, "at_once")
        params = retry(asked, accepted(value="x"), "at_once")
        missing = params["inputResponses"].popitem()[0]
        again = await peer.result("tools/call", params)
        assert (again["resultType"], list(again["inputRequests"])) == ("input_required", [missing])
        result = await peer.result("tools/call", retry(again, accepted(value="y"), "at_once"))
        assert sorted(result["content"][0]["text"].split()) == ["x", "y"]


@behaviour("rounds.unanswered", "2026-07-28 basic/patterns/mrtr#error-handling", STATELESS)
async def test_a_retry_without_any_answer_is_asked_again(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        asked = await first_round(peer)
        params = {"name": "order", "arguments": {}, "requestState": asked["requestState"]}
        again = await peer.result("tools/call", params)
        assert (again["resultType"], set(again["inputRequests"])) == ("input_required", set(asked["inputRequests"]))


@behaviour("rounds.unexpected", "2026-07-28 basic/patterns/mrtr#error-handling", STATELESS)
async def test_an_unexpected_response_is_ignored(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        params = retry(await first_round(peer), accepted(dish="soup"))
        params["inputResponses"]["made-up"] = {"roots": []}
        assert (await peer.result("tools/call", params))["resultType"] == "complete"


@behaviour("rounds.responses-invalid", "2026-07-28 basic/patterns/mrtr#error-handling", STATELESS)
@pytest.mark.parametrize("responses", [7, [], "x"])
async def test_answers_that_are_not_an_object_are_invalid(wire: Wire, responses: Any) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        params = {**retry(await first_round(peer), None), "inputResponses": responses}
        assert (await peer.error("tools/call", params))["code"] == -32602


@behaviour(
    "rounds.answers-without-state", "2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow", STATELESS
)
async def test_answers_without_their_state_are_not_believed(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        params = retry(await first_round(peer), accepted(dish="soup"))
        del params["requestState"]
        assert (await peer.result("tools/call", params))["resultType"] == "input_required"


@behaviour("rounds.state-tampered", "2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow", STATELESS)
@pytest.mark.parametrize(
    "change", [lambda s: s[:-2] + "AA", lambda s: "x" + s, lambda s: "", lambda s: s * 2, lambda s: "é"]
)
async def test_a_state_that_was_changed_is_rejected(wire: Wire, change: Any) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        params = retry(await first_round(peer), accepted(dish="soup"))
        params["requestState"] = change(params["requestState"])
        assert (await peer.error("tools/call", params))["code"] == -32602


@behaviour(
    "rounds.state-other-arguments", "2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow", STATELESS
)
async def test_a_state_is_rejected_with_other_arguments(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        asked = await first_round(peer, "keyed", subject="cats")
        params = retry(asked, accepted(value="yes"), "keyed", subject="dogs")
        assert (await peer.error("tools/call", params))["code"] == -32602


@behaviour("rounds.state-other-tool", "2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow", STATELESS)
async def test_a_state_is_rejected_by_another_tool(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        params = retry(await first_round(peer), accepted(value=1), "count")
        assert (await peer.error("tools/call", params))["code"] == -32602


@behaviour("rounds.state-other-method", "2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow", STATELESS)
async def test_a_state_is_rejected_by_another_method(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        asked = await first_round(peer)
        params = {"name": "letter", "requestState": asked["requestState"], "inputResponses": {}}
        assert (await peer.error("prompts/get", params))["code"] == -32602


@behaviour("rounds.state-other-server", "2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow", STATELESS)
async def test_a_state_is_rejected_by_another_server(wire: Wire) -> None:
    async with (
        wire.open(asking_server(), capabilities=FORMS) as one,
        wire.open(asking_server(), capabilities=FORMS) as two,
    ):
        params = retry(await first_round(one), accepted(value="x"))
        assert (await two.error("tools/call", params))["code"] == -32602


@behaviour("rounds.state-expired", "2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow", STATELESS)
async def test_a_state_that_is_too_old_is_rejected(wire: Wire) -> None:
    async with wire.open(asking_server(limits=Limits(state_seconds=-1.0)), capabilities=FORMS) as peer:
        params = retry(await first_round(peer), accepted(value="x"))
        assert (await peer.error("tools/call", params))["code"] == -32602


@behaviour("rounds.state-one-sentence", "2026-07-28 basic/patterns/mrtr#security-considerations", STATELESS)
async def test_every_refused_state_is_rejected_with_the_same_sentence(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        params = retry(await first_round(peer), accepted(dish="soup"))
        wrong = {**params, "requestState": "x" + params["requestState"]}
        elsewhere = retry(await first_round(peer), accepted(value=1), "count")
        messages = [(await peer.error("tools/call", each))["message"] for each in (wrong, elsewhere)]
        assert messages[0] == messages[1]


@behaviour("rounds.state-opaque", "2026-07-28 basic/patterns/mrtr#security-considerations", STATELESS)
async def test_a_state_does_not_show_what_it_holds(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        asked = await first_round(peer, "twice")
        again = await peer.result("tools/call", retry(asked, accepted(value="hunter2"), "twice"))
        assert "hunter2" not in again["requestState"]


@behaviour("rounds.connection-free", "2026-07-28 basic/index#statelessness", STATELESS, ANYWHERE)
async def test_a_call_goes_on_over_another_connection(wire: Wire) -> None:
    server = make("asking")
    async with wire.open(server, capabilities=FORMS) as one, wire.open(server, capabilities=FORMS) as two:
        params = retry(await first_round(one), accepted(dish="soup"))
        assert (await two.result("tools/call", params))["resultType"] == "complete"


@behaviour("rounds.capability-again", "2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow", STATELESS)
async def test_each_round_declares_what_the_client_can(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        asked = await first_round(peer, "twice")
        peer.capabilities = {}
        params = retry(asked, accepted(value="x"), "twice")
        assert (await peer.error("tools/call", params))["code"] == -32021


@behaviour("rounds.other-question", "2026-07-28 basic/patterns/mrtr#security-considerations", STATELESS)
async def test_an_answer_is_given_only_to_the_question_that_was_asked(wire: Wire) -> None:
    prices = iter([10, 99, 99])
    server = Server("shop", version="1")

    @server.tool
    async def order(ctx: Context) -> str:
        price = next(prices)
        answer = await ctx.elicit(f"Pay {price}?", bool, key="pay")
        return f"paid {price}" if answer.data else "kept"

    async with wire.open(server, capabilities=FORMS) as peer:
        asked = await first_round(peer)
        again = await peer.result("tools/call", retry(asked, accepted(value=True)))
        assert again["inputRequests"]["pay"]["params"]["message"] == "Pay 99?"


@behaviour("rounds.limit", "2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow", STATELESS)
async def test_a_question_that_is_never_settled_ends(wire: Wire) -> None:
    async with wire.open(asking_server(limits=Limits(rounds=2)), capabilities=FORMS) as peer:
        talk = await peer.converse_tool("order", {"elicitation/create": accepted(value=7)})
        assert ("error" in talk.answer, len(talk.questions)) == (True, 2)


@behaviour("rounds.single-use", "2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow", STATELESS)
async def test_a_state_that_may_be_used_once_is_rejected_the_second_time(wire: Wire) -> None:
    server = Server("once", version="1")

    @server.tool(single_use=True)
    async def order(ctx: Context) -> str:
        return str((await ctx.elicit("Which?", str)).data)

    async with wire.open(server, capabilities=FORMS) as peer:
        params = retry(await first_round(peer), accepted(value="x"))
        assert (await peer.result("tools/call", params))["resultType"] == "complete"
        assert (await peer.error("tools/call", params))["code"] == -32602


@behaviour("rounds.told-once", "2026-07-28 basic/patterns/progress#behavior-requirements", STATELESS, ANYWHERE)
async def test_progress_of_an_earlier_round_is_not_sent_again(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        asked = await peer.call("told", meta={"progressToken": "a"})
        params = retry(asked, accepted(value=True), "told")
        await peer.result("tools/call", params, meta={"progressToken": "b"})
        told = [(each["progressToken"], each["progress"]) for each in peer.notices("notifications/progress")]
        assert told == [("a", 1), ("b", 2)]


@behaviour("rounds.shared-keys", "2026-07-28 basic/index#statelessness", STATELESS)
async def test_servers_with_the_same_keys_take_each_others_states(wire: Wire) -> None:
    keys = ["0" * 64]
    one, two = asking_server(state_keys=keys), asking_server(state_keys=keys)
    async with wire.open(one, capabilities=FORMS) as first, wire.open(two, capabilities=FORMS) as second:
        params = retry(await first_round(first), accepted(value="x"))
        assert (await second.result("tools/call", params))["content"][0]["text"] == "x"

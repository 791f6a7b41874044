"""Scopes for a whole server: what reads needs one, what may change something another, whenever it came to be there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.auth.resource_support import verifier
from tests.server.talk import call as call_in_memory
from tests.transports.http.serving_support import (
    HANDSHAKE,
    STATELESS,
    Call,
    SessionClient,
    ask,
    modern,
    notification,
    request,
    tool,
)
from trunkline import Server, StaticTokens

TOKENS = StaticTokens(
    {
        "both": {"subject": "both", "scopes": "read write"},
        "reader": {"subject": "reader", "scopes": "read"},
        "writer": {"subject": "writer", "scopes": "write"},
        "none": "none",
    }
)
ERAS = pytest.mark.parametrize("era", [STATELESS, HANDSHAKE])
READS, WRITES = {"readOnlyHint": True}, {"readOnlyHint": False}


def fill(server: Server) -> Server:
    """Offer one thing of each kind; what each gives is its own name."""
    server.add_tool(lambda: "look", name="look", annotations=READS)
    server.add_tool(lambda: "change", name="change", annotations=WRITES)
    server.add_tool(lambda: "unsaid", name="unsaid")
    server.add_prompt(lambda about="": "draft", name="draft")
    server.add_resource("note://one", "one", name="one")
    server.add_resource("log://{day}", lambda day: day, name="log")
    server.completion("log://{day}", "day")(lambda value: [value])
    server.method("acme/reindex")(lambda: {"done": True})
    return server


def scoped(*, auth: Any = TOKENS, **scopes: str) -> Server:
    server = fill(Server("shelf", auth=auth))
    server.require_scopes(**scopes)
    return server


async def send(server: Server, message: dict[str, Any], who: str, era: str = STATELESS) -> Call:
    if era == STATELESS:
        return await modern(server.asgi(), message, authorization=f"Bearer {who}").whole()
    client = await SessionClient.open(server.asgi(), era, token=who)
    return await client.post(message).whole()


async def tools(server: Server, who: str, era: str = STATELESS) -> list[str]:
    listed = await send(server, request("tools/list"), who, era)
    return [each["name"] for each in listed.json["result"]["tools"]]


# --- lists -----------------------------------------------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize(
    ("scopes", "who", "seen"),
    [
        pytest.param({"write": "write"}, "none", ["look"], id="write alone leaves reading to all"),
        pytest.param({"write": "write"}, "writer", ["look", "change", "unsaid"], id="write alone, had"),
        pytest.param({"read": "read", "write": "write"}, "none", [], id="both, neither had"),
        pytest.param({"read": "read", "write": "write"}, "reader", ["look"], id="both, read had"),
        pytest.param({"read": "read", "write": "write"}, "writer", ["change", "unsaid"], id="both, write had"),
        pytest.param({"read": "read", "write": "write"}, "both", ["look", "change", "unsaid"], id="both had"),
        pytest.param({"read": "read"}, "none", [], id="read alone is for all"),
        pytest.param({"read": "read"}, "writer", [], id="read alone, another had"),
        pytest.param({"read": "read"}, "reader", ["look", "change", "unsaid"], id="read alone, had"),
    ],
)
async def test_tools_are_listed_for_callers_with_their_scopes(
    scopes: dict[str, str], who: str, seen: list[str], era: str
) -> None:
    assert await tools(scoped(**scopes), who, era) == seen


@pytest.mark.parametrize(
    ("method", "member"),
    [
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ],
)
@pytest.mark.parametrize(("who", "number"), [("writer", 0), ("reader", 1)])
async def test_prompts_and_resources_are_listed_for_callers_with_read_scopes(
    method: str, member: str, who: str, number: int
) -> None:
    listed = await send(scoped(read="read", write="write"), request(method), who)

    assert len(listed.json["result"][member]) == number


# --- uses ------------------------------------------------------------------------------------------------------------

USES = {
    "change": (tool("change"), "write"),
    "unsaid": (tool("unsaid"), "write"),
    "own method": (request("acme/reindex"), "write"),
    "look": (tool("look"), "read"),
    "prompt": (request("prompts/get", {"name": "draft"}), "read"),
    "resource": (request("resources/read", {"uri": "note://one"}), "read"),
    "template": (request("resources/read", {"uri": "log://monday"}), "read"),
    "completion": (
        request(
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": "log://{day}"}, "argument": {"name": "day", "value": "m"}},
        ),
        "read",
    ),
    "completion of a prompt": (
        request(
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "draft"}, "argument": {"name": "about", "value": "m"}},
        ),
        "read",
    ),
}


@ERAS
@pytest.mark.parametrize("use", USES)
async def test_a_call_without_a_scope_is_rejected_with_the_scope(use: str, era: str) -> None:
    message, scope = USES[use]
    answer = await send(scoped(read="read", write="write"), message, "none", era)

    assert answer.error == (403, 403)
    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
    assert f'scope="{scope}"' in answer.headers["www-authenticate"]


@ERAS
@pytest.mark.parametrize("use", USES)
async def test_a_call_with_the_scopes_is_served(use: str, era: str) -> None:
    answer = await send(scoped(read="read", write="write"), USES[use][0], "both", era)

    assert (answer.status, "result" in answer.json) == (200, True)


async def test_definitions_registered_later_need_the_scopes_too() -> None:
    server = scoped(write="write")
    server.add_tool(lambda: "late", name="late")
    server.method("acme/late")(lambda: {"done": True})

    assert await tools(server, "none") == ["look"]
    assert (await send(server, tool("late"), "none")).error == (403, 403)
    assert (await send(server, request("acme/late"), "none")).error == (403, 403)


@pytest.mark.parametrize(
    ("who", "method", "heard"),
    [
        ("none", "acme/touched", []),
        ("reader", "acme/touched", []),
        ("writer", "acme/touched", ["acme/touched"]),
        ("none", "notifications/roots/list_changed", ["notifications/roots/list_changed"]),
    ],
)
async def test_a_custom_notification_needs_the_write_scope(who: str, method: str, heard: list[str]) -> None:
    told: list[str] = []
    server = scoped(read="read", write="write")
    server.notification(method)(lambda params: told.append(method))

    await send(server, notification(method), who, HANDSHAKE)

    assert told == heard


async def test_a_subscription_has_no_updates_of_unreadable_resources() -> None:
    server = scoped(read="read", write="write")
    uris = ["note://one", "log://monday"]
    params = {"notifications": {"resourceSubscriptions": uris, "resourcesListChanged": True}}
    call = modern(server.asgi(), request("subscriptions/listen", params), authorization="Bearer writer")
    opened = await call.message()
    for uri in uris:
        server.changed(uri)
    server.add_resource("note://two", "two", name="two")
    told = await call.message()
    call.hang_up()
    await call.ended()

    assert opened["params"]["notifications"].get("resourceSubscriptions", []) == []
    assert told["method"] == "notifications/resources/list_changed"


async def test_a_session_cannot_subscribe_to_unreadable_resources() -> None:
    answer = await send(
        scoped(read="read", write="write"),
        request("resources/subscribe", {"uri": "log://monday"}),
        "writer",
        HANDSHAKE,
    )

    assert answer.error == (403, 403)


@pytest.mark.parametrize("hints", [{"destructiveHint": False}, {"title": "Harmless"}, {"idempotentHint": True}])
async def test_only_a_tool_with_the_read_only_hint_needs_just_the_read_scope(hints: dict[str, Any]) -> None:
    server = Server("s", auth=TOKENS)
    server.add_tool(lambda: "x", name="x", annotations=hints)
    server.require_scopes(write="write")

    assert (await send(server, tool("x"), "none")).error == (403, 403)


async def test_a_replaced_tool_needs_its_own_scopes() -> None:
    server = Server("s", auth=TOKENS, on_duplicate="replace")
    server.add_tool(lambda: "x", name="x", annotations=READS)
    server.require_scopes(write="write")
    server.add_tool(lambda: "x", name="x", annotations=WRITES)

    assert (await send(server, tool("x"), "none")).error == (403, 403)


async def test_the_scopes_of_a_definition_are_required_in_addition() -> None:
    server = Server("s", auth=TOKENS)
    server.add_tool(lambda: "x", name="x", scopes=["read"])
    server.require_scopes(write="write")

    assert (await send(server, tool("x"), "writer")).json["error"]["data"] == {"scopes": ["read", "write"]}
    assert (await send(server, tool("x"), "both")).status == 200


async def test_a_policy_applies_to_mounted_definitions_only_here() -> None:
    inner = fill(Server("inner", auth=TOKENS))
    outer = Server("outer", auth=TOKENS)
    outer.mount(inner, "in")
    outer.require_scopes(write="write")
    inner.add_tool(lambda: "late", name="late")

    assert await tools(outer, "none") == ["in_look"]
    assert (await send(outer, tool("in_late"), "none")).error == (403, 403)
    assert await tools(inner, "none") == ["look", "change", "unsaid", "late"]


async def test_a_policy_applies_where_its_server_is_mounted() -> None:
    outer = Server("outer", auth=TOKENS)
    outer.mount(scoped(write="write"), "in")

    assert await tools(outer, "none") == ["in_look"]


async def test_policies_are_cumulative() -> None:
    server = scoped(write="write")
    server.require_scopes(read="read")

    assert await tools(server, "writer") == []
    assert await tools(server, "both") == ["look", "change", "unsaid"]


async def test_the_metadata_names_the_scopes() -> None:
    app = scoped(read="read", write="write", auth=verifier()).asgi()
    told = await ask(app, "GET", "/.well-known/oauth-protected-resource/mcp").whole()

    assert sorted(told.json["scopes_supported"]) == ["read", "write"]


def test_an_in_memory_caller_needs_no_scopes() -> None:
    assert call_in_memory(scoped(write="write", auth=None), "change")["content"][0]["text"] == "change"


async def test_without_auth_no_http_caller_has_scopes() -> None:
    answer = await modern(scoped(write="write", auth=None).asgi(), tool("change")).whole()

    assert answer.error == (403, 403)


@pytest.mark.parametrize("scopes", [{}, {"write": ""}, {"read": " "}, {"write": 'a"b'}])
def test_require_scopes_without_valid_scopes_is_rejected(scopes: dict[str, str]) -> None:
    with pytest.raises(TypeError, match=r"require_scopes needs|is not a scope"):
        Server("s").require_scopes(**scopes)

"""Lists: pages, cursors, who sees what."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.talk import ERAS, HANDSHAKE, STATELESS, reach
from trunkline import Server
from trunkline.protocol.limits import Limits


def making(count: int = 5, **options: Any) -> Server:
    server = Server("s", **options)
    for n in range(count):
        server.add_tool(lambda: "x", name=f"t{n}", tags=["odd"] if n % 2 else [])
        server.add_prompt(lambda: "x", name=f"p{n}")
        server.add_resource(f"x://{n}", "x")
        server.add_resource(f"x://{n}/{{a}}", lambda a: a)
    return server


def visible(caller: Any, definition: Any) -> bool:
    return "odd" not in definition.options.tags or caller.supports("sampling")


@pytest.mark.parametrize(("count", "more"), [(3, False), (4, True)])
async def test_a_cursor_is_sent_only_if_there_are_more_pages(count: int, more: bool) -> None:
    async with reach(making(count, limits=Limits(page_size=3)), STATELESS) as peer:
        assert ("nextCursor" in await peer.result("tools/list")) is more


@ERAS
async def test_a_list_is_new_after_a_change(revision: str) -> None:
    server = making(1)
    async with reach(server, revision) as peer:
        before = await peer.result("tools/list")
        same = await peer.result("tools/list")
        server.add_tool(lambda: "x", name="new")
        after = await peer.result("tools/list")
    assert (before == same, [tool["name"] for tool in after["tools"]]) == (True, ["t0", "new"])


async def test_the_number_of_cached_pages_is_bounded() -> None:
    server = making(list_page_size=1)
    async with reach(server, STATELESS) as peer, reach(server, HANDSHAKE) as other:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("trunkline.server.listing._MAX_PAGES", 1)
            first = await peer.result("tools/list")
            await other.result("tools/list")
            assert await peer.result("tools/list") == first


# --- who sees what ---------------------------------------------------------------------------------------------------


@ERAS
async def test_a_hidden_definition_is_rejected_as_unknown(revision: str) -> None:
    async with reach(making(visible=visible), revision) as peer:
        hidden = await peer.error("tools/call", {"name": "t1"})
        absent = await peer.error("tools/call", {"name": "t9"})
    assert (hidden["code"], hidden["message"]) == (absent["code"], absent["message"].replace("t9", "t1"))


@ERAS
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/get", {"name": "p"}),
        ("resources/read", {"uri": "x://fixed"}),
        ("resources/read", {"uri": "x://of/a"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}}),
        (
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": "x://of/{a}"}, "argument": {"name": "a", "value": ""}},
        ),
    ],
    ids=["prompt", "resource", "template", "completion-of-a-prompt", "completion-of-a-template"],
)
async def test_a_hidden_definition_cannot_be_used(revision: str, method: str, params: dict[str, Any]) -> None:
    server = Server("s", visible=lambda caller, definition: False)
    server.add_prompt(lambda a="1": a, name="p")
    server.add_resource("x://fixed", "text")
    server.add_resource("x://of/{a}", lambda a: a)
    server.completion("p", "a")(lambda value: ["secret"])
    async with reach(server, revision) as peer:
        assert (await peer.error(method, params))["code"] in (-32602, -32002)


async def test_an_unfiltered_list_is_publicly_cacheable() -> None:
    async with reach(making(cache_ttl_ms=5000), STATELESS) as peer:
        page = await peer.result("tools/list")
    assert (page["cacheScope"], page["ttlMs"]) == ("public", 5000)

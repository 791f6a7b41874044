"""A server may answer a call with an error that requires a page to be opened first (-32042), of revision 2025-11-25.

Clients of that revision get the error and act on it themselves; for others the gateway asks, and repeats the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import trunkline.types as t
from tests.host.gateway.support import (
    NEW,
    OLD,
    PAIRS,
    UPSTREAMS,
    allow,
    audit_entries,
    fronted,
    on_stage,
    server,
)
from trunkline import Context, Server
from trunkline.errors import UrlElicitationRequired

DENY = '[[rule]]\neffect = "deny"\nkind = "elicitation"\n'


def _page(number: int) -> dict[str, Any]:
    page = t.ElicitRequestParams(
        message=f"Sign in {number}", mode="url", url=f"https://x.example/{number}", elicitation_id=f"e{number}"
    )
    plain: dict[str, Any] = msgspec.to_builtins(page)
    return plain


class Shop:
    """A server that requires pages before it does anything, and counts what it did."""

    def __init__(self, revision: str, *, times: int = 1, pages: Sequence[Any] | None = None) -> None:
        self.calls = 0
        self.times = times
        self.pages = [_page(1)] if pages is None else list(pages)
        self.server: Server = server("shop", revision)
        self.server.add_tool(self.buy)
        self.server.add_tool(self.order)

    async def buy(self) -> str:
        """Buy, once the pages were opened."""
        self.calls += 1
        if self.calls <= self.times:
            raise UrlElicitationRequired("Sign in first", data={"elicitations": self.pages, "more": 1})
        return "bought"

    async def order(self, ctx: Context) -> str:
        """Ask what to buy, then buy it."""
        what = (await ctx.elicit("What?", str)).data
        return f"{await self.buy()} {what}"


class User:
    """A user who fills in forms, and opens pages unless told otherwise."""

    def __init__(self, page: str = "accept") -> None:
        self.saw: list[str] = []
        self.page: Any = page

    def __call__(self, question: t.ElicitRequestParams) -> t.ElicitResult:
        self.saw.append(question.message)
        if question.mode == "url":
            return t.ElicitResult(action=self.page)
        return t.ElicitResult(action="accept", content={"value": "tea"})


@UPSTREAMS
async def test_a_stateless_client_is_asked_and_the_call_is_repeated(upstream: str, tmp_path: Path) -> None:
    shop, user, trail = Shop(upstream), User(), tmp_path / "audit.jsonl"
    async with fronted(
        {"s": shop.server}, tmp_path, NEW, audit=trail, elicitation=user, elicitation_urls=True
    ) as client:
        assert (await client.call_tool("s__buy")).text == "bought"
    assert (user.saw, shop.calls) == (["[s] Sign in 1"], 2)
    assert ("elicitation/create", "ask") in _judged(trail)


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_page_that_was_not_opened_ends_the_call(action: str, tmp_path: Path) -> None:
    # The server would go on at the second call, so a call that is repeated before the answer was read would be made.
    shop, user = Shop(OLD), User(action)
    async with fronted({"s": shop.server}, tmp_path, NEW, elicitation=user, elicitation_urls=True) as client:
        with pytest.raises(UrlElicitationRequired, match="Sign in first"):
            await client.call_tool("s__buy")
    assert (user.saw, shop.calls) == (["[s] Sign in 1"], 1)


@UPSTREAMS
async def test_a_page_may_be_required_after_a_question(upstream: str, tmp_path: Path) -> None:
    shop, user = Shop(upstream), User()
    async with (
        on_stage({"s": shop.server}, tmp_path) as stage,
        stage.client(NEW, elicitation=user, elicitation_urls=True) as client,
    ):
        assert (await client.call_tool("s__order")).text == "bought tea"
        assert stage.parked == 0
    assert (user.saw, shop.calls) == (["[s] What?", "[s] Sign in 1"], 2)


async def test_a_page_that_is_required_again_is_an_error(tmp_path: Path) -> None:
    shop, user = Shop(OLD, times=5), User()
    async with fronted({"s": shop.server}, tmp_path, NEW, elicitation=user, elicitation_urls=True) as client:
        with pytest.raises(UrlElicitationRequired, match="Sign in first"):
            await client.call_tool("s__buy")
    assert (user.saw, shop.calls) == (["[s] Sign in 1"], 2)


async def test_a_program_is_asked_and_the_call_is_repeated(tmp_path: Path) -> None:
    shop, user = Shop(NEW), User()
    async with on_stage({"s": shop.server}, tmp_path, elicitation=user, elicitation_urls=True) as stage:
        assert (await stage.host.call_tool("s/buy")).text == "bought"
    # A program is told the server beside the question, so the text has no label.
    assert (user.saw, shop.calls) == (["Sign in 1"], 2)


async def test_a_client_that_knows_the_error_gets_it_with_the_servers_name(tmp_path: Path) -> None:
    shop, user, trail = Shop(OLD), User(), tmp_path / "audit.jsonl"
    async with fronted(
        {"s": shop.server}, tmp_path, OLD, audit=trail, elicitation=user, elicitation_urls=True
    ) as client:
        with pytest.raises(UrlElicitationRequired, match="Sign in first") as raised:
            await client.call_tool("s__buy")
    assert raised.value.data == {"elicitations": [{**_page(1), "message": "[s] Sign in 1"}], "more": 1}
    assert (user.saw, shop.calls) == ([], 1)
    assert _judged(trail) == {("elicitation/create", "ask")}


@PAIRS
async def test_a_client_that_opens_no_pages_gets_the_error(channel: str, upstream: str, tmp_path: Path) -> None:
    shop, user = Shop(upstream), User()
    async with fronted({"s": shop.server}, tmp_path, channel, elicitation=user) as client:
        with pytest.raises(UrlElicitationRequired, match="Sign in first"):
            await client.call_tool("s__buy")
    assert (user.saw, shop.calls) == ([], 1)


@PAIRS
@pytest.mark.parametrize("urls", [True, False], ids=["opens pages", "opens no pages"])
async def test_a_page_that_the_policy_denies_reaches_no_client(
    channel: str, upstream: str, urls: bool, tmp_path: Path
) -> None:
    shop, user, trail = Shop(upstream), User(), tmp_path / "audit.jsonl"
    async with fronted(
        {"s": shop.server},
        tmp_path,
        channel,
        policy=allow("s", more=DENY),
        audit=trail,
        elicitation=user,
        elicitation_urls=urls,
    ) as client:
        refused = await client.call_tool("s__buy", raise_on_error=False)
    assert (refused.is_error, refused.text) == (True, "s requires opening a page, which the policy does not allow.")
    assert (user.saw, shop.calls) == ([], 1)
    assert _judged(trail) == {("elicitation/create", "deny")}


UNUSABLE: list[Any] = [
    [5],
    [{"mode": "url", "message": "Sign in"}],
    [{"mode": "form", "message": "Sign in", "url": "https://x.example/1"}],
    "https://x.example/1",
]


@PAIRS
async def test_only_so_many_pages_and_only_pages_that_were_reviewed_reach_the_client(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    shop, left = Shop(upstream, times=9), []
    async with fronted({"s": shop.server}, tmp_path, channel) as client:
        for shop.pages in (*UNUSABLE, [_page(number) for number in range(20)]):
            with pytest.raises(UrlElicitationRequired, match="Sign in first") as raised:
                await client.call_tool("s__buy")
            assert raised.value.data is not None
            assert raised.value.data["more"] == 1
            left.append(len(raised.value.data["elicitations"]))
    assert left == [0] * len(UNUSABLE) + [8]


def _judged(trail: Path) -> set[tuple[str, str]]:
    """Return the questions in the audit trail, and what the policy decided."""
    return {(entry["name"], entry["effect"]) for entry in audit_entries(trail) if entry["stage"] == "note"}

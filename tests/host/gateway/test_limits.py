"""How much one caller may do, and that no gateway passes a request on to itself."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

import trunkline.types as t
from tests.host.gateway.support import CELLS, FRONTS, NEW, OLD, allow, on_stage, over_http, server, until
from trunkline import RequestFailed, Server
from trunkline.auth.static_tokens import StaticTokens
from trunkline.errors import InvalidRequest, TooManyRequests
from trunkline.host.gateway.sessions import GatewayOptions
from trunkline.host.host import Host
from trunkline.host.upstreams.routing.channels import VIA


class Slow:
    """A server that works until it is let go."""

    def __init__(self, revision: str = NEW) -> None:
        self.go_on = asyncio.Event()
        self.began = 0
        self.server: Server = server("slow", revision)
        self.server.add_tool(self.wait)
        self.server.add_tool(self.hi)

    async def wait(self) -> str:
        """Wait."""
        self.began += 1
        await self.go_on.wait()
        return "done"

    async def hi(self) -> str:
        """Answer at once."""
        return "hi"


@CELLS
async def test_calls_beyond_those_of_a_minute_are_refused_with_the_time_to_wait(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    options = GatewayOptions(per_minute=3)
    async with (
        on_stage({"s": Slow(upstream).server}, tmp_path, gateway=options) as stage,
        stage.client(channel) as client,
    ):
        await asyncio.gather(*(client.call_tool("s__hi") for _ in range(3)))
        with pytest.raises(TooManyRequests, match="the limit is 3 a minute for each caller; try again in") as refused:
            await client.call_tool("s__hi")
        assert len(await client.list_tools()) == 2
    assert refused.value.code == 429
    assert 1 <= (refused.value.retry_after or 0) <= 20
    assert refused.value.data["limit"] == "perMinute"
    assert refused.value.data["allowed"] == 3


@CELLS
async def test_calls_beyond_those_at_once_are_refused(channel: str, upstream: str, tmp_path: Path) -> None:
    slow = Slow(upstream)
    options = GatewayOptions(concurrent=2)
    async with (
        on_stage({"s": slow.server}, tmp_path, gateway=options) as stage,
        stage.client(channel) as client,
    ):
        calls = [asyncio.create_task(client.call_tool("s__wait")) for _ in range(2)]
        await until(lambda: slow.began == 2)
        with pytest.raises(TooManyRequests, match="at once: the limit is 2 for each caller") as refused:
            await client.call_tool("s__hi")
        assert refused.value.data == {"limit": "concurrent", "allowed": 2, "retryAfter": 1}
        slow.go_on.set()
        await asyncio.gather(*calls)
        assert (await client.call_tool("s__hi")).data == "hi"


@pytest.mark.parametrize(("one", "two"), [(OLD, OLD), (NEW, NEW), (OLD, NEW)])
async def test_a_principal_has_one_budget_for_all_its_sessions(one: str, two: str, tmp_path: Path) -> None:
    auth = StaticTokens({"a" * 20: "ada", "b" * 20: "bea"})
    async with (
        Host.open({"s": Slow().server}, folder=tmp_path, policy=allow("s"), audit=False) as host,
        over_http(host, auth=auth, per_minute=2) as web,
        web.client(one, token="a" * 20) as first,
        web.client(two, token="a" * 20) as second,
        web.client(two, token="b" * 20) as other,
    ):
        await first.call_tool("s__hi")
        await second.call_tool("s__hi")
        with pytest.raises(TooManyRequests, match="Too many calls"):
            await first.call_tool("s__hi")
        assert (await other.call_tool("s__hi")).data == "hi"


# --- loops -----------------------------------------------------------------------------------------------------------


@FRONTS
@pytest.mark.parametrize("era", ["stateless", "handshake"])
async def test_a_host_does_not_offer_its_own_gateway_as_a_server(channel: str, era: str, tmp_path: Path) -> None:
    made = Slow().server
    async with (
        Host.open({"s": made}, folder=tmp_path, policy=allow("s", "loop"), audit=False) as host,
        over_http(host) as web,
        web.client(channel) as client,
    ):
        entry = {"url": web.url, "headers": {"Authorization": f"Bearer {web.token}"}, "era": era}
        await host.add_server("loop", entry)
        await until(lambda: host._open.core.upstream("loop").offering)
        made.add_tool(_late)
        await until(lambda: len(host.catalog.tools) == 3)
        assert [tool.name for tool in await client.list_tools()] == ["s__hi", "s__late", "s__wait"]
        assert (await client.call_tool("s__hi")).data == "hi"


async def late() -> str:
    """Come late."""
    return "late"


_late = late


@FRONTS
async def test_two_hosts_that_serve_each_other_do_not_grow(channel: str, tmp_path: Path) -> None:
    policy = allow("s", "one", "two")
    async with (
        Host.open({"s": Slow().server}, folder=tmp_path / "1", policy=policy, audit=False) as first,
        Host.open({"s": Slow().server}, folder=tmp_path / "2", policy=policy, audit=False) as second,
        over_http(first, no_auth=True) as one,
        over_http(second, no_auth=True) as two,
        one.client(channel) as client,
    ):
        await first.add_server("two", {"url": two.url})
        await until(lambda: len(first.catalog.tools) == 4)
        await second.add_server("one", {"url": one.url})
        await until(lambda: second._open.core.upstream("one").offering)
        assert len(second.catalog.tools) == 2
        result = await client.call_tool(next(name for name in await _names(client) if name.startswith("two")))
    assert result.data == "hi"


async def _names(client: object) -> list[str]:
    tools: list[t.Tool] = await client.list_tools()  # type: ignore[attr-defined]
    return [tool.name for tool in tools]


@FRONTS
@pytest.mark.parametrize("hops", [8, 9, 1000])
async def test_a_request_that_came_through_too_many_gateways_is_refused(
    channel: str, hops: int, tmp_path: Path
) -> None:
    async with on_stage({"s": Slow().server}, tmp_path) as stage, stage.client(channel) as client:
        with pytest.raises(InvalidRequest, match="gateway"):
            await client.call_tool("s__hi", meta={VIA: [f"g{number}" for number in range(hops)]})


@CELLS
async def test_a_request_that_came_through_this_gateway_is_refused(channel: str, upstream: str, tmp_path: Path) -> None:
    slow = Slow(upstream)
    async with on_stage({"s": slow.server}, tmp_path) as stage, stage.client(channel) as client:
        with pytest.raises(InvalidRequest, match="already came through this gateway"):
            await client.call_tool("s__hi", meta={VIA: ["other", stage.gateway.core.id]})
        assert (await client.call_tool("s__hi", meta={VIA: ["other"]})).data == "hi"


@FRONTS
@pytest.mark.parametrize("via", ["text", 7, {"a": 1}, None, []], ids=str)
async def test_nonsense_in_place_of_gateways_counts_for_nothing(channel: str, via: object, tmp_path: Path) -> None:
    async with on_stage({"s": Slow().server}, tmp_path) as stage, stage.client(channel) as client:
        assert (await client.call_tool("s__hi", meta={VIA: via})).data == "hi"


@CELLS
async def test_a_gateway_may_stand_behind_another(channel: str, upstream: str, tmp_path: Path) -> None:
    made = server("deep", upstream)

    made.add_tool(late)
    async with (
        on_stage({"inner": made}, tmp_path / "1") as inner,
        on_stage({"outer": inner.gateway}, tmp_path / "2", policy=allow("outer")) as outer,
        outer.client(channel) as client,
    ):
        assert (await client.call_tool((await _names(client))[0])).data == "late"
        assert outer.gateway.core.id != inner.gateway.core.id


@pytest.mark.parametrize("asked", [True, False], ids=["on a lane", "on the shared connection"])
@FRONTS
async def test_an_answer_over_the_limit_fails_in_front_with_the_reason(
    channel: str, asked: bool, tmp_path: Path
) -> None:
    program = {
        "command": sys.executable,
        "args": ["-S", "-m", "tests.host.servers.long_answers"],
        "env": {"PYTHONPATH": str(Path(__file__).parents[3])},
        "messageBytes": 6000,
    }
    options = {"elicitation": lambda _: "x"} if asked else {}
    async with on_stage({"s": program}, tmp_path) as stage, stage.client(channel, **options) as client:
        with pytest.raises(RequestFailed, match="is longer than 6000 bytes, the limit message_bytes: raise it") as told:
            await client.call_tool("s__text", {"length": 10_000, "id": "last"})
        assert "messageBytes in a host's entry" in told.value.message
        assert (await client.call_tool("s__text", {"length": 10})).content == [t.TextContent(text="x" * 10)]

"""How much one caller may do, and that no gateway passes a request on to itself."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

import trunkline.types as t
from tests.host.gateway.support import (
    CELLS,
    FRONTS,
    NEW,
    OLD,
    PAIRS,
    allow,
    fronted,
    on_stage,
    over_http,
    served,
    server,
    until,
)
from trunkline import RequestFailed, Server
from trunkline.auth.static_tokens import StaticTokens
from trunkline.errors import InvalidRequest, TooManyRequests
from trunkline.host.gateway.sessions import GatewayOptions
from trunkline.host.host import Host
from trunkline.host.secrets.registry import SecretRegistry
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


@PAIRS
async def test_calls_beyond_those_of_a_minute_are_refused_with_the_time_to_wait(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    options = GatewayOptions(per_minute=3)
    async with fronted({"s": Slow(upstream).server}, tmp_path, channel, gateway=options) as client:
        await asyncio.gather(*(client.call_tool("s__hi") for _ in range(3)))
        with pytest.raises(TooManyRequests, match="the limit is 3 a minute for each caller; try again in") as refused:
            await client.call_tool("s__hi")
        assert len(await client.list_tools()) == 2
    assert refused.value.code == 429
    assert 1 <= (refused.value.retry_after or 0) <= 20
    assert refused.value.data["limit"] == "perMinute"
    assert refused.value.data["allowed"] == 3


@PAIRS
async def test_calls_beyond_those_at_once_are_refused(channel: str, upstream: str, tmp_path: Path) -> None:
    slow = Slow(upstream)
    options = GatewayOptions(concurrent=2)
    async with fronted({"s": slow.server}, tmp_path, channel, gateway=options) as client:
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
        served({"s": Slow().server}, tmp_path, auth=auth, per_minute=2) as web,
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


@pytest.mark.parametrize("era", ["stateless", "handshake"])
async def test_a_host_does_not_offer_its_own_gateway_as_a_server(era: str, tmp_path: Path) -> None:
    made = Slow().server
    async with (
        # The list that the host reads of itself waits for the server that is starting: itself.
        Host.open({"s": made}, folder=tmp_path, policy=allow("s", "loop"), audit=False, list_seconds=0.1) as host,
        over_http(host) as web,
        web.client(OLD) as client,
    ):
        entry = {"url": web.url, "headers": {"Authorization": f"Bearer {web.token}"}, "era": era}
        await host.add_server("loop", entry)
        await until(lambda: host._open.core.upstream("loop").offering)
        made.add_tool(late)
        await until(lambda: len(host.catalog.tools) == 3)
        assert [tool.name for tool in await client.list_tools()] == ["s__hi", "s__late", "s__wait"]
        assert (await client.call_tool("s__hi")).data == "hi"


async def late() -> str:
    """Come late."""
    return "late"


async def _names(client: object) -> list[str]:
    tools: list[t.Tool] = await client.list_tools()  # type: ignore[attr-defined]
    return [tool.name for tool in tools]


@FRONTS
async def test_a_request_that_came_through_too_many_gateways_is_refused(channel: str, tmp_path: Path) -> None:
    gateways = [f"g{number}" for number in range(8)]
    async with fronted({"s": Slow().server}, tmp_path, channel) as client:
        assert (await client.call_tool("s__hi", meta={VIA: gateways[1:]})).data == "hi"
        with pytest.raises(InvalidRequest, match="gateway"):
            await client.call_tool("s__hi", meta={VIA: gateways})


@PAIRS
async def test_a_request_that_came_through_this_gateway_is_refused(channel: str, upstream: str, tmp_path: Path) -> None:
    slow = Slow(upstream)
    async with on_stage({"s": slow.server}, tmp_path) as stage, stage.client(channel) as client:
        with pytest.raises(InvalidRequest, match="already came through this gateway"):
            await client.call_tool("s__hi", meta={VIA: ["other", stage.gateway.core.id]})
        assert (await client.call_tool("s__hi", meta={VIA: ["other"]})).data == "hi"


async def test_nonsense_in_place_of_gateways_counts_for_nothing(tmp_path: Path) -> None:
    nonsense: list[object] = ["text", 7, {"a": 1}, None, []]
    async with fronted({"s": Slow().server}, tmp_path) as client:
        assert [(await client.call_tool("s__hi", meta={VIA: via})).data for via in nonsense] == ["hi"] * 5


@PAIRS
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


@pytest.mark.parametrize(("channel", "asked"), [(OLD, True), (NEW, False)], ids=["own connection", "shared connection"])
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
    async with fronted({"s": program}, tmp_path, channel, **options) as client:
        with pytest.raises(RequestFailed, match="is longer than 6000 bytes, the limit message_bytes: raise it") as told:
            await client.call_tool("s__text", {"length": 10_000, "id": "last"})
        assert "messageBytes in a host's entry" in told.value.message
        assert (await client.call_tool("s__text", {"length": 10})).content == [t.TextContent(text="x" * 10)]


# --- large results ---------------------------------------------------------------------------------------------------

#: Numbers as another JSON library would not write them.
LARGE = b'{"rows":[' + b",".join([b"1.50"] * 100_000) + b"]}"


def _large(revision: str) -> Server:
    made = server("large", revision)

    @made.tool
    async def rows(*, failing: bool = False, last: str = "") -> t.CallToolResult:
        large = msgspec.Raw(LARGE[:-2] + f',"{last}"]}}'.encode() if last else LARGE)
        return t.CallToolResult(
            content=[t.TextContent(text=f"rows {last}")], structured_content=large, is_error=failing or None
        )

    return made


@CELLS
async def test_a_large_structured_result_passes_the_gateway_undecoded(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    async with fronted({"l": _large(upstream)}, tmp_path, channel, hosted={"secret_registry": _secrets()}) as client:
        for failing in (b"false", b"true"):
            arguments = msgspec.Raw(b'{"failing":%s}' % failing)
            params = t.CallToolRequestParams(name="l__rows", arguments=arguments)
            assert LARGE in bytes((await client.forward("tools/call", params))[1])
        result = await client.call_tool("l__rows")
        assert result.structured_content == {"rows": [1.5] * 100_000}


@pytest.mark.parametrize("written", ["hunter2/abcd", "hunter2\\/abcd", "\\u0068unter2/abcd"])
async def test_secrets_in_a_large_error_are_hidden_however_they_are_written(written: str, tmp_path: Path) -> None:
    async with fronted({"l": _large(NEW)}, tmp_path, hosted={"secret_registry": _secrets()}) as client:
        result = await client.call_tool("l__rows", {"failing": True, "last": written}, raise_on_error=False)
    assert result.structured_content == {"rows": [*[1.5] * 100_000, "***"]}


def _secrets() -> SecretRegistry:
    registry = SecretRegistry()
    registry.add(["hunter2/abcd"])
    return registry


async def test_a_program_that_uses_the_host_gets_a_large_structured_result_decoded(tmp_path: Path) -> None:
    async with on_stage({"l": _large(OLD)}, tmp_path) as stage:
        result = await stage.host.call_tool("l/rows")
        failed = await stage.host.call_tool("l/rows", {"failing": True}, raise_on_error=False)
    assert (result.structured_content, failed.structured_content) == ({"rows": [1.5] * 100_000},) * 2

"""Tenants: whoever uses the gateway beside others never sees a byte of theirs, whatever happens at once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import trunkline.types as t
from tests.attacks.stage import PATHS
from tests.host.gateway.support import NEW, OLD, Web, over_http
from tests.support import run_async
from trunkline import Client, Context, Server
from trunkline.auth.static_tokens import StaticTokens
from trunkline.errors import ToolError
from trunkline.host.authorization.policy.loader import parse_policy
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.config.model import ServerEntry, ServerSettings, Source
from trunkline.host.host import Host

TENANTS = ("ada", "bea", "cyd", "dot")
OPERATIONS = ("echo", "ask", "progress", "log", "remember", "recall", "read", "complete", "tools", "fail")


def _shared() -> Server:
    """Make one server that all tenants talk to at once; it lets others go first whenever it can."""
    server = Server("shared")

    @server.tool
    async def echo(text: str, turns: int) -> str:
        await _wait(turns)
        return text

    @server.tool
    async def ask(text: str, turns: int, ctx: Context) -> str:
        await _wait(turns)
        answer = await ctx.elicit(f"asked for {text}", str)
        await _wait(turns)
        return f"{text} {answer.data}"

    @server.tool
    async def progress(text: str, turns: int, ctx: Context) -> str:
        for done in range(3):
            await ctx.report_progress(done, 3, f"{done} of {text}")
            await _wait(turns)
        return text

    @server.tool
    async def log(text: str, turns: int, ctx: Context) -> str:
        await ctx.log("info", f"working on {text}")
        await _wait(turns)
        return text

    @server.tool
    async def fail(text: str, turns: int) -> str:
        await _wait(turns)
        raise ToolError(text)

    for tenant in TENANTS:
        server.tool(_only, name=f"only_{tenant}", description=f"For {tenant}.")

    @server.resource("memo://{text}")
    async def memo(text: str) -> str:
        await _wait(len(text) % 3)
        return f"memo of {text}"

    @server.prompt
    def greet(name: str) -> str:
        return f"hi {name}"

    @server.completion("greet", "name")
    async def names(value: str) -> list[str]:
        await _wait(len(value) % 3)
        return [f"{value}-1", f"{value}-2"]

    return server


async def _only() -> str:
    return "only"


async def _wait(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


def _memory() -> ServerEntry:
    """Give a server that keeps what it is told for itself; each tenant has one of its own."""
    return ServerEntry(
        name="own",
        source=Source("given"),
        command=(sys.executable, "-S", "-m", "tests.attacks.servers.memory"),
        env={"PYTHONPATH": PATHS},
        settings=ServerSettings(era="handshake", per_user=True, trusted=True),
    )


def _policy() -> Policy:
    rules = [f'[[rule]]\neffect = "allow"\nserver = "{server}"\ntool = "*"\n' for server in ("shared", "own")]
    rules += [
        f'[[rule]]\neffect = "deny"\nserver = "shared"\ntool = "only_{tenant}"\nprincipal = "{other}"\n'
        for tenant in TENANTS
        for other in TENANTS
        if other != tenant
    ]
    return parse_policy("".join(rules), file="policy.toml")


class Tenant:
    """One user of the gateway, and all that they ever heard."""

    def __init__(self, name: str) -> None:
        """Take the name, which is in everything they say."""
        self.name = name
        self.heard: list[str] = []
        self.wrong: list[str] = []
        self.client: Any = None

    def connect(self, web: Web) -> Client:
        """Make their client; every second one speaks the other era."""
        revision = OLD if TENANTS.index(self.name) % 2 else NEW
        return web.client(
            revision,
            token=f"{self.name}-" * 8,
            elicitation=self._answer,
            logging=lambda message: self.heard.append(str(message.data)),
            log_level="debug",
        )

    def _answer(self, question: t.ElicitRequestParams) -> Any:
        self.heard.append(question.message)
        return f"answer-of-{self.name}"

    async def do(self, operation: str, number: int, turns: int) -> None:
        """Do something, and note what came of it and whether it is what it should be."""
        text = f"{self.name}-{number}"
        said = await getattr(self, f"do_{operation}")(text, turns)
        self.heard.append(said)
        if text not in said and operation not in ("recall", "tools"):
            self.wrong.append(f"{operation}: {said}")

    async def _call(self, tool: str, **arguments: Any) -> str:
        result = await self.client.call_tool(tool, arguments, on_progress=self._progress, raise_on_error=False)
        return str(result.text)

    def _progress(self, done: float, total: float | None, message: str | None) -> None:
        self.heard.append(str(message))

    async def do_echo(self, text: str, turns: int) -> str:
        return await self._call("shared__echo", text=text, turns=turns)

    async def do_ask(self, text: str, turns: int) -> str:
        return await self._call("shared__ask", text=text, turns=turns)

    async def do_progress(self, text: str, turns: int) -> str:
        return await self._call("shared__progress", text=text, turns=turns)

    async def do_log(self, text: str, turns: int) -> str:
        return await self._call("shared__log", text=text, turns=turns)

    async def do_fail(self, text: str, turns: int) -> str:
        return await self._call("shared__fail", text=text, turns=turns)

    async def do_remember(self, text: str, turns: int) -> str:
        return await self._call("own__remember", text=text)

    async def do_recall(self, text: str, turns: int) -> str:
        return await self._call("own__recall")

    async def do_read(self, text: str, turns: int) -> str:
        (contents,) = await self.client.read_resource(f"memo://shared/{text}")
        return str(contents.text)

    async def do_complete(self, text: str, turns: int) -> str:
        found = await self.client.complete(t.PromptReference(name="shared__greet"), {"name": "name", "value": text})
        return " ".join(found.values)

    async def do_tools(self, text: str, turns: int) -> str:
        return " ".join(tool.name for tool in await self.client.list_tools())

    @property
    def leaks(self) -> list[str]:
        """What they heard of others."""
        others = [name for name in TENANTS if name != self.name]
        return [text for text in self.heard if any(other in text for other in others)]


async def _served(folder: Path, steps: Sequence[tuple[int, str, int]]) -> list[Tenant]:
    """Have all tenants do all of it at once; give them with what they heard."""
    shared = ServerEntry(name="shared", source=Source("given"), target=_shared(), settings=ServerSettings(trusted=True))
    tenants = [Tenant(name) for name in TENANTS]
    users = StaticTokens({f"{name}-" * 8: name for name in TENANTS})
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(
            Host.open({"shared": shared, "own": _memory()}, folder=folder, policy=_policy(), audit=False)
        )
        web = await stack.enter_async_context(over_http(host, auth=users))
        for tenant in tenants:
            tenant.client = await stack.enter_async_context(tenant.connect(web))
        await asyncio.gather(
            *(tenants[who].do(operation, number, turns) for number, (who, operation, turns) in enumerate(steps))
        )
    return tenants


# Each example opens a gateway and four clients, so one that fails is shown as it is and not made smaller.
@settings(max_examples=4, deadline=None, phases=[Phase.generate])
@given(
    st.lists(
        st.tuples(st.integers(0, len(TENANTS) - 1), st.sampled_from(OPERATIONS), st.integers(0, 5)),
        min_size=12,
        max_size=40,
    )
)
def test_no_tenant_ever_sees_a_byte_of_another(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str, int]]
) -> None:
    tenants = run_async(_served(tmp_path_factory.mktemp("tenants"), steps))
    assert {tenant.name: tenant.leaks for tenant in tenants} == {name: [] for name in TENANTS}
    assert {tenant.name: tenant.wrong for tenant in tenants} == {name: [] for name in TENANTS}

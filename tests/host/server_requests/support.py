"""Servers that ask, of both eras, and a host whose calls are answered at a desk."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import trunkline.types as t
from tests.host.gateway.support import NEW, OLD, allow, server
from trunkline import Context, Server
from trunkline.errors import RequestFailed
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.config.model import ServerEntry, ServerSettings, Source
from trunkline.host.host import Host
from trunkline.host.requester import Requester
from trunkline.host.server_requests.handlers import ServerRequestHandler
from trunkline.host.session import HostSession
from trunkline.host.upstreams.routing.channels import LocalChannel

__all__ = ["ERAS", "Clock", "asked_for", "call", "eliciting", "entry", "new_session", "opened", "sampling"]

ERAS = pytest.mark.parametrize("era", [OLD, NEW], ids=["handshake", "stateless"])


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        """Start at some time."""
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def entry(name: str = "notes", *, scope: Any = "given", sampling: Any = None, **settings: Any) -> ServerEntry:
    """Make an entry of a server."""
    return ServerEntry(
        name=name,
        source=Source(scope),
        command=("notes-server",),
        settings=ServerSettings(sampling=sampling, **settings),
    )


def new_session() -> HostSession:
    """Make a session that nothing was done in."""
    return HostSession(now=lambda: 0.0)


def asked_for(text: str = "Sum it up", **more: Any) -> t.CreateMessageRequestParams:
    """Make a sampling request of one text, with members by their wire names."""
    whole = {"messages": [{"role": "user", "content": {"type": "text", "text": text}}], "maxTokens": 100, **more}
    return msgspec.convert(whole, t.CreateMessageRequestParams)


def sampling(era: str, *, on_failure: Callable[[RequestFailed], object] = lambda failure: None) -> Server:
    """Make a server whose tool asks a model, and whose other tool only answers."""
    made = server("notes", era)

    @made.tool
    async def note() -> str:
        return "the milk is sour"

    @made.tool
    async def summarize(text: str, context: str = "none", *, ctx: Context) -> str:
        wanted: Any = context
        try:
            return (await ctx.sample(text, max_tokens=50, include_context=wanted)).text
        except RequestFailed as failure:
            on_failure(failure)
            raise

    return made


def eliciting(era: str, schema: dict[str, Any], message: str = "Which city?") -> Server:
    """Make a server whose tool asks by a form of this schema, and whose other tool by a page."""
    made = server("forms", era)

    @made.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit(message, schema)
        return f"{answer.action} {answer.data}"

    @made.tool
    async def visit(url: str, ctx: Context) -> str:
        return (await ctx.elicit_url("Log in there", url)).action

    return made


@asynccontextmanager
async def opened(
    servers: Mapping[str, object], folder: Path, *, policy: Policy | None = None, **options: Any
) -> AsyncIterator[Host]:
    """Open a host of these servers, whose tools are allowed."""
    policy = allow(*servers) if policy is None else policy
    async with Host.open(servers, **{"folder": folder / "state", "policy": policy, "audit": False, **options}) as host:
        yield host


async def call(
    host: Host,
    request_handler: ServerRequestHandler,
    name: str,
    *,
    session: HostSession | None = None,
    **arguments: Any,
) -> str:
    """Call a tool on behalf of a program whose desk answers; give the text of the result."""
    item = host.catalog.find_tool(name)
    assert item is not None
    own = session or host.session()
    requester = Requester(session=own, channel=LocalChannel(request_handler, own), policy=host.policy)
    result = await host._open.core.call_tool(item, arguments, requester)
    return "\n".join(block.text for block in result.content if isinstance(block, t.TextContent))

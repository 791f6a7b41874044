"""A gateway on a stage: servers of both eras behind it, clients of both eras in front, and short ways to talk."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

import msgspec
import pytest
from msgspec.structs import replace

import trunkline.types as t
from trunkline import Client, Server
from trunkline.host.authorization.policy.loader import parse_policy
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.gateway.gateway import Gateway
from trunkline.host.gateway.sessions import GatewayOptions
from trunkline.host.host import Host
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, REVISION_NAMES, find_revision

__all__ = [
    "CELLS",
    "FRONTS",
    "NEW",
    "OLD",
    "PAIRS",
    "UPSTREAMS",
    "Stage",
    "Web",
    "again",
    "allow",
    "asked",
    "audit_entries",
    "fronted",
    "gone",
    "on_stage",
    "over_http",
    "quiet",
    "revisions_of",
    "served",
    "server",
    "until",
]

OLD = NEWEST_HANDSHAKE.name
NEW = NEWEST.name
FRONTS = pytest.mark.parametrize("channel", [OLD, NEW], ids=["handshake-front", "stateless-front"])
UPSTREAMS = pytest.mark.parametrize("upstream", [OLD, NEW], ids=["handshake-server", "stateless-server"])
#: The two pairs of eras that differ: each era once in front and once behind.
PAIRS = pytest.mark.parametrize(
    ("channel", "upstream"), [(OLD, NEW), (NEW, OLD)], ids=["handshake-front", "stateless-front"]
)

P = ParamSpec("P")
R = TypeVar("R")


def CELLS(test: Callable[P, R]) -> Callable[P, R]:
    """Run a test in all four pairs of eras."""
    return FRONTS(UPSTREAMS(test))


def revisions_of(name: str) -> list[str]:
    """Give the revisions of the era that a revision belongs to, all of which a server of that era speaks."""
    era = find_revision(name)
    assert era is not None
    return [
        each
        for each in REVISION_NAMES
        if (found := find_revision(each)) is not None and found.handshake == era.handshake
    ]


def allow(*servers: str, more: str = "") -> Policy:
    """Make a policy that allows every tool of these servers, with further rules."""
    rule = '[[rule]]\neffect = "allow"\nserver = "{}"\ntool = "*"\n'
    rules = [rule.format(server) + more for server in servers for more in ("", "tainted = true\n")]
    return parse_policy("\n".join([*rules, more]), file="policy.toml")


class Stage(NamedTuple):
    """A host and its gateway."""

    host: Host
    gateway: Gateway

    def client(self, revision: str = NEW, **options: Any) -> Client:
        """Make a client in front of the gateway."""
        return Client(self.gateway, revision=revision, **options)

    @property
    def parked(self) -> int:
        """Count the calls that wait for their clients."""
        return len(self.gateway.core.parking)


@asynccontextmanager
async def on_stage(
    servers: Mapping[str, object],
    folder: Path,
    *,
    policy: Policy | None = None,
    gateway: GatewayOptions | None = None,
    **options: Any,
) -> AsyncIterator[Stage]:
    """Open a host of these servers, all of whose tools are allowed unless a policy says otherwise, and a gateway."""
    policy = allow(*servers) if policy is None else policy
    async with Host.open(servers, **{"folder": folder, "policy": policy, "audit": False, **options}) as host:
        served = Gateway(host._open.core, host.policy, gateway or GatewayOptions(), limits=options.get("limits"))
        try:
            yield Stage(host, served)
        finally:
            await served.aclose()


#: The options of a host, as opposed to those of the client in front of its gateway.
_HOST_OPTIONS = frozenset(
    {"audit", "consent_seconds", "gateway", "hosted", "limits", "list_seconds", "pins", "policy", "settings", "wait"}
)


@asynccontextmanager
async def fronted(
    servers: Mapping[str, object], folder: Path, revision: str = NEW, **options: Any
) -> AsyncIterator[Client]:
    """Open a client in front of the gateway of a host; ``hosted`` has the host's options that clients have as well."""
    host_options = {name: options.pop(name) for name in _HOST_OPTIONS & options.keys()}
    host_options |= host_options.pop("hosted", {})
    async with on_stage(servers, folder, **host_options) as stage, stage.client(revision, **options) as client:
        yield client


def audit_entries(trail: Path) -> list[dict[str, Any]]:
    """Read the entries of an audit trail."""
    return [json.loads(line) for line in trail.read_text(encoding="utf-8").splitlines()]


class Web(NamedTuple):
    """A gateway that listens: its host, its URL, the token it wants, and what stops it."""

    host: Host
    url: str
    token: str | None
    stopping: asyncio.Event

    def client(self, revision: str = NEW, *, path: str = "", token: str | None = None, **options: Any) -> Client:
        """Make a client that speaks HTTP to the gateway, to a profile's path if one is given."""
        shown = token or self.token
        headers = {} if shown is None else {"Authorization": f"Bearer {shown}"}
        return Client(f"{self.url}{path}", revision=revision, headers=headers, **options)


@asynccontextmanager
async def over_http(host: Host, **options: Any) -> AsyncIterator[Web]:
    """Serve a host over HTTP on a free port, in this loop."""
    stopping = asyncio.Event()
    told: asyncio.Future[tuple[str, str | None]] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        host.serve(
            http="127.0.0.1:0",
            started=lambda url, token: told.set_result((url, token)),
            stopping=stopping,
            **options,
        )
    )
    either: list[asyncio.Future[Any]] = [serving, told]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()
    url, token = told.result()
    try:
        yield Web(host, url, token, stopping)
    finally:
        stopping.set()
        await serving


@asynccontextmanager
async def served(servers: Mapping[str, object], folder: Path, **options: Any) -> AsyncIterator[Web]:
    """Open a host of these servers, all of whose tools are allowed, and serve it over HTTP with the other options."""
    policy = options.pop("policy", None) or allow(*servers)
    host_options: dict[str, Any] = {"folder": folder, "policy": policy, "audit": False}
    host_options |= {name: options.pop(name) for name in ("audit", "extensions", "limits") if name in options}
    async with (
        Host.open(servers, **host_options) as host,
        over_http(host, **options) as web,
    ):
        yield web


async def until(true: Callable[[], object]) -> None:
    """Wait until something holds; the test's own bound ends a wait for what never will."""
    while not true():  # noqa: ASYNC110 - what is waited for has no event of its own
        await asyncio.sleep(0.002)


def gone(pid: int) -> bool:
    """Tell whether a process is no more."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def quiet() -> None:
    """Give what should not happen the time in which it would."""
    await asyncio.sleep(0.15)


async def asked(client: Client, name: str, **arguments: Any) -> tuple[t.CallToolRequestParams, t.InputRequiredResult]:
    """Call a tool for one round, as a stateless client that is expected to be asked something."""
    params = t.CallToolRequestParams(name=name, arguments=msgspec.Raw(msgspec.json.encode(arguments)))
    result, _ = await client.forward("tools/call", params)
    assert isinstance(result, t.InputRequiredResult), result
    return params, result


def again(params: t.CallToolRequestParams, result: t.InputRequiredResult, answer: Any) -> t.CallToolRequestParams:
    """Make the params that take a call up again, with one answer to all that was asked."""
    raw = msgspec.Raw(msgspec.json.encode({"action": "accept", "content": {"value": answer}}))
    return replace(
        params, input_responses=dict.fromkeys(result.input_requests or {}, raw), request_state=result.request_state
    )


def server(name: str, revision: str, **options: Any) -> Server:
    """Make a server that speaks only the era of a revision."""
    return Server(name, revisions=revisions_of(revision), **options)

"""One server at a time: the official client, ours, and the official one through the gateway over stdio and HTTP."""

from __future__ import annotations

import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from tests.fleet.gateway import Home, over_stdio, running
from tests.fleet.install import FLEET
from tests.fleet.servers import Call, PublicServer, fill_in, lay_out
from tests.fleet.sides import Target, look_officially, look_ourselves
from tests.fleet.snapshots import Snapshot, differences, named_as_directly
from trunkline.host.upstreams.catalog.names import outer_uri

__all__ = ["SIDES", "ServerRow", "look_at", "target_of"]

#: How a server is looked at, beside the official client that is connected to it directly.
SIDES = ("direct", "stdio", "http")
# A server that starts slowly on a busy machine is not what these rows are about; the restarts are.
_WHOLE = ("--search", "off", "--wait", "90")
_MOST = 5


class ServerRow(Struct, kw_only=True):
    """What was found out about one server."""

    name: str
    package: str
    revision: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    calls: int = 0
    #: For each side the differences from the official client; none means equal.
    sides: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0
    #: Why it is left out: it could not be installed, or does not work with the official client either.
    skipped: str = ""
    #: What the official client saw.
    direct: Snapshot | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing differed."""
        return not any(self.sides.values())


def target_of(server: PublicServer, work: Path) -> Target:
    """Return how a server is started that works in a folder."""
    env = {"HOME": str(work / "home"), "DO_NOT_TRACK": "1", **fill_in(server.env, server, work)}
    return Target(command=fill_in(server.command, server, work), env=env, cwd=str(work))


def _in_one_order(target: Target) -> Target:
    """Return a server that lists the members of its sets in one order at every start.

    Some Python servers write a set into a description or a default value, in an order that Python draws at each start:
    two direct connections differ already. The servers behind one gateway are started without this.
    """
    return replace(target, env={"PYTHONHASHSEED": "1", **target.env})


async def look_at(server: PublicServer, mark: str, tell: Callable[[str], None]) -> ServerRow:
    """Look at a server from all sides, and tell each difference as it is found."""
    row = ServerRow(name=server.name, package=server.package, calls=len(server.calls))
    started = time.monotonic()
    work = FLEET / "work" / server.name
    calls = tuple(replace(call, **_filled(call, server, work)) for call in server.calls)
    target = _in_one_order(target_of(server, work))
    lay_out(work)
    try:
        row.direct = await look_officially(target, calls)
    except Exception as error:  # noqa: BLE001 - a client may fail in any way, and the next row is still looked at
        row.skipped = f"not even the official client can use it: {_reason(error)}"
        return row
    row.revision, row.counts = row.direct.revision, row.direct.counts()
    for side, look in _ways(server.name, target, calls, mark).items():
        lay_out(work)
        row.sides[side] = await _compared(row.direct, look, server.name, calls)
        for line in row.sides[side]:
            tell(f"  MISS {server.name}, {side}: {line}")
    row.seconds = time.monotonic() - started
    return row


def _ways(
    name: str, target: Target, calls: tuple[Call, ...], mark: str
) -> dict[str, Callable[[], Awaitable[Snapshot]]]:
    folder = FLEET / "homes" / name
    shutil.rmtree(folder, ignore_errors=True)
    home = Home(folder, {name: target}, mark)

    def named(call: Call) -> str:
        return outer_uri(name, call.name) if call.kind == "resource" else f"{name}__{call.name}"

    async def stdio() -> Snapshot:
        return await look_officially(over_stdio(home, *_WHOLE), calls, mode="legacy", named=named)

    async def http() -> Snapshot:
        with running(home, *_WHOLE) as gateway:
            return await look_officially(gateway.target, calls, named=named)

    return {"direct": lambda: look_ourselves(target, calls), "stdio": stdio, "http": http}


async def _compared(
    wanted: Snapshot, look: Callable[[], Awaitable[Snapshot]], server: str, calls: tuple[Call, ...]
) -> list[str]:
    try:
        seen = await look()
    except Exception as error:  # noqa: BLE001 - a client may fail in any way, and the next row is still looked at
        return [f"it cannot be used: {_reason(error)}"]
    found = differences(wanted, named_as_directly(seen, server, wanted), calls)
    return found if len(found) <= _MOST else [*found[:_MOST], f"and {len(found) - _MOST} more"]


def _filled(call: Call, server: PublicServer, work: Path) -> dict[str, Any]:
    return {"name": fill_in(call.name, server, work), "arguments": fill_in(call.arguments, server, work)}


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:300]

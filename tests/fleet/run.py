"""One run of the fleet, part after part."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import Struct

from tests.faults.measures import marked, named
from tests.fleet.clients import AT_ONCE, CLIENTS, REFERENCE, ThirdPartyClient, try_clients
from tests.fleet.install import install, missing
from tests.fleet.looks import ServerRow, look_at
from tests.fleet.packages import ENVIRONMENTS
from tests.fleet.report import Result
from tests.fleet.servers import SERVERS, PublicServer
from tests.fleet.together import many_at_once, put_together, what_is_left

__all__ = ["PARTS", "Plan", "run"]

#: The parts of a run, in their order.
PARTS = ("servers", "clients", "together", "many", "left")


class Plan(Struct, frozen=True, kw_only=True):
    """What a run does."""

    seed: int = 1
    parts: tuple[str, ...] = PARTS
    #: Names of servers and clients; empty for all of them.
    only: tuple[str, ...] = ()
    restarts: int = 10
    at_once: int = 60
    installs: bool = True

    def servers(self) -> list[PublicServer]:
        """Return the servers that were chosen."""
        return [server for server in SERVERS if not self.only or server.name in self.only]

    def clients(self) -> list[ThirdPartyClient]:
        """Return the clients that were chosen."""
        return [client for client in CLIENTS if not self.only or client.name in self.only]


def run(plan: Plan, tell: Callable[[str], None]) -> Result:
    """Run what was planned; tell how it goes, and each miss as it happens."""
    clients = plan.clients() if "clients" in plan.parts else []
    absent = _install(plan, clients, tell)
    result = Result(seed=plan.seed)
    started = time.monotonic()
    mark = f"fleet-{time.time_ns()}"
    if "servers" in plan.parts:
        with ThreadPoolExecutor(AT_ONCE) as threads:
            result.servers = list(threads.map(lambda server: _looked_at(server, absent, mark, tell), plan.servers()))
    unusable = {row.name for row in result.servers if row.skipped}
    usable = [server for server in plan.servers() if server.environment not in absent and server.name not in unusable]
    if clients and ENVIRONMENTS[_reference().environment].name not in absent:
        tell(f"{len(clients)} clients, directly and through the default gateway")
        result.clients = try_clients(clients, absent, mark=mark, tell=tell)
    if usable:
        asyncio.run(_together(plan, usable, result, mark, tell))
    result.at_end = [named(pid) for pid in marked(mark)]
    for line in result.at_end:
        tell(f"  MISS a process is left at the end: {line}")
    result.seconds = time.monotonic() - started
    return result


def _reference() -> PublicServer:
    return next(server for server in SERVERS if server.name == REFERENCE)


def _install(plan: Plan, clients: Sequence[ThirdPartyClient], tell: Callable[[str], None]) -> dict[str, str]:
    """Install what is needed; return what is missing all the same, with the reason."""
    servers = plan.servers() if set(plan.parts) - {"clients"} else []
    names = [server.environment for server in servers] + [client.environment for client in clients]
    if clients:
        names.append(_reference().environment)
    needed = [ENVIRONMENTS[name] for name in dict.fromkeys(names) if name]
    if plan.installs:
        return install(needed, tell)
    return {environment.name: "it is not installed" for environment in needed if missing(environment)}


def _looked_at(server: PublicServer, absent: dict[str, str], mark: str, tell: Callable[[str], None]) -> ServerRow:
    if server.environment in absent:
        tell(f"{server.name}: skipped, {absent[server.environment]}")
        return ServerRow(name=server.name, package=server.package, skipped=absent[server.environment])
    row = asyncio.run(look_at(server, mark, tell))
    if row.skipped:
        tell(f"{server.name}: skipped, {row.skipped}")
    else:
        counts = "/".join(str(count) for count in row.counts.values())
        verdict = "equal" if row.passed else "DIFFERS"
        tell(f"{server.name}: {verdict}, {counts} offered, {row.calls} calls, {row.seconds:.0f} s")
    return row


async def _together(
    plan: Plan, usable: list[PublicServer], result: Result, mark: str, tell: Callable[[str], None]
) -> None:
    if "together" in plan.parts:
        tell(f"{len(usable)} servers behind one gateway, and {plan.restarts} restarts")
        options: dict[str, Any] = {"seed": plan.seed, "restarts": plan.restarts}
        result.together = await put_together(result.servers, usable, mark=f"{mark}-together", tell=tell, **options)
    if "many" in plan.parts and any(server.small for server in usable):
        tell(f"{plan.at_once} servers at once")
        ready, again = await many_at_once(usable, plan.at_once, seed=plan.seed, mark=f"{mark}-many", tell=tell)
        result.at_once = (plan.at_once, ready, again)
    if "left" in plan.parts and any(server.small for server in usable):
        tell("what is left of clients that went away, for at most two minutes")
        result.left = await what_is_left(usable, mark=f"{mark}-left", tell=tell)

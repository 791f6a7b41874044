"""The first start of configured servers: progress while they start, and catalogs for the first list of a client.

A gateway lists at once what it has cached from an earlier run. Commands that add servers therefore start them once,
list them, and stop them again; nothing else is done with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from trunkline.cli.ui.output import counted, current_secrets, one_line, print_notice
from trunkline.cli.ui.terminal import Screen, is_interactive

if TYPE_CHECKING:
    from trunkline.cli.host_session import ResolvedInputs
    from trunkline.host.assembly import HostOptions
    from trunkline.host.host import Host
    from trunkline.host.upstreams.catalog.search import CatalogExposure

__all__ = [
    "FirstStartReport",
    "first_start_printed",
    "host_of_listed",
    "listed_exposure",
    "start_progress",
    "waiting_line",
]

#: Seconds for all servers; some download their packages first.
_START_SECONDS = 120.0
_MANY = 4  # Fewer servers are there before anyone asks.


def start_progress(host: Host) -> str:
    """Return how many servers of a host are ready, while it is being opened."""
    progress = host.start_progress()
    return f"starting the servers: {progress.done} of {progress.servers} done, {counted(progress.tools, 'tool')}"


def waiting_line(host: Host, seconds: float) -> str:
    """Return which servers of a host have not answered yet, and how long they are waited for; empty if all have."""
    names = [one_line(name) for name in host.start_progress().waiting]
    if not names:
        return ""
    rest = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
    return f"trunkline: no answer yet from {', '.join(names[:_MANY])}{rest}; waiting up to {seconds:g} s (--timeout)"


class FirstStartReport:
    """Prints how far the servers are that start here for the first time, of which nothing is cached yet."""

    def __init__(self, host: Host) -> None:
        """Print how many there are; a few are not worth a report."""
        self._host = host
        unlisted = host.start_progress().unlisted
        self._count = self._left = unlisted if unlisted >= _MANY else 0
        if self._count:
            print_notice(
                f"first start of {self._count} servers: their tools are listed as they come, and at once from the "
                "next start on"
            )

    def update(self) -> None:
        """Print the progress after each quarter, and the end."""
        progress = self._host.start_progress()
        left = progress.unlisted
        if left < self._left and (left == 0 or self._left - left >= self._count / 4):
            self._left = left
            tools = counted(progress.tools, "tool")
            print_notice(f"first start: {self._count - left} of {self._count} servers done, {tools}")


@contextmanager
def first_start_printed(host: Host) -> Iterator[None]:
    """Print the progress of a first start while the context is active."""
    events, report = host.events(), FirstStartReport(host)

    async def follow() -> None:
        async with events:
            async for _ in events:
                report.update()

    task = asyncio.get_running_loop().create_task(follow())
    try:
        yield
    finally:
        task.cancel()


@asynccontextmanager
async def host_of_listed(
    files: Sequence[str],
    resolved: ResolvedInputs,
    seconds: float,
    *,
    names: Collection[str] | None = None,
    starts: bool = True,
) -> AsyncIterator[Host]:
    """Open a host whose approved servers are started and listed; without ``starts``, with what is cached of them."""
    from trunkline.host.host import Host

    options: HostOptions = {
        **resolved.options(),
        "only": names,
        # The servers are only looked at, so there is nothing to audit.
        "audit": False,
        "wait": "all" if starts else "kept",
        "wait_seconds": seconds,
        "lazy": not starts,
        "settings": {"start": "eager", "required": False} if starts else {},
        "secret_registry": current_secrets(),
    }
    host = Host.open(*files, **options)
    with Screen(verbose=False).working(lambda: start_progress(host)):
        await host.__aenter__()
    try:
        yield host
    finally:
        await host.aclose()


def listed_exposure(
    files: Sequence[str], names: Collection[str] | None = None, *, starts: bool | None
) -> CatalogExposure:
    """Start servers once, so that their catalogs are cached, and return how a gateway would show their tools.

    With ``starts`` None, they are started only in a terminal.
    """
    from trunkline.cli.host_session import load_cli_configuration, resolve_inputs

    starts = is_interactive() if starts is None else starts
    resolved = resolve_inputs(load_cli_configuration(files), names, no_input=not starts)
    return asyncio.run(_listed_exposure(files, resolved, names, starts))


async def _listed_exposure(
    files: Sequence[str], resolved: ResolvedInputs, names: Collection[str] | None, starts: bool
) -> CatalogExposure:
    from trunkline.cli.host_session import status_error
    from trunkline.host.gateway.sessions import GatewayOptions
    from trunkline.host.upstreams.catalog.search import choose_exposure

    async with host_of_listed(files, resolved, _START_SECONDS, names=names, starts=starts) as host:
        if starts:
            statuses = [status for status in host.status() if status.state != "disabled"]
            errors = [error for status in statuses if (error := status_error(status, _START_SECONDS)) is not None]
            for error in errors:
                print_notice(one_line(str(error)))
            ready, tools = len(statuses) - len(errors), sum(status.tools for status in statuses)
            print_notice(
                f"started once: {ready} of {len(statuses)} servers, {counted(tools, 'tool')} for the first list"
            )
        options = GatewayOptions()
        return choose_exposure(
            (item for item in host.catalog.tools.values() if item.for_model),
            window_tokens=options.window_tokens,
            share=options.share,
        )

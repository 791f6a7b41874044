"""The everything server: the surface of the official server, and additions.

Visibility is decided per request: a tool that sends requests to the client is visible to clients with that capability,
and a session's files are visible to that session.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from trunkline import Server, __version__
from trunkline.server import Caller, CallNext, Clock, ServerRequest
from trunkline.types import SubscribeRequestParams, UnsubscribeRequestParams
from trunkline_servers.everything.basic_tools import add_basic_tools, add_content_tools
from trunkline_servers.everything.catalog import (
    INSTRUCTIONS,
    add_extra_prompts,
    add_extra_resources,
    add_prompts,
    add_resources,
    sample_icon,
)
from trunkline_servers.everything.client_request_tools import (
    CAPABILITY_TAG,
    add_client_request_tools,
    add_extra_client_request_tools,
)
from trunkline_servers.everything.gzip_tool import SESSION_URI_PREFIX, FetchLimits, add_gzip_tool, can_see_file
from trunkline_servers.everything.notification_tools import (
    EXPERIMENTAL,
    ChooseLevel,
    add_extra_notification_tools,
    add_timer_tools,
)
from trunkline_servers.everything.state import ServerState
from trunkline_servers.everything.task_tools import add_task_tools

if TYPE_CHECKING:
    from trunkline.net import Fetcher

__all__ = ["make_server"]

_MOST_FILES = 64
_MOST_FILE_BYTES = 64 * 1024 * 1024
_CACHE_MS = 5_000


def make_server(
    *,
    show_environment: bool = False,
    extras: bool = True,
    interval: float = 5.0,
    stage: float = 1.0,
    max_fetch_bytes: int = 10 * 1024 * 1024,
    fetch_seconds: float = 30.0,
    allowed_domains: Sequence[str] = (),
    fetcher: Fetcher | None = None,
    numbered: int = 100,
    page_size: int = 50,
    clock: Clock | None = None,
    choose: ChooseLevel = random.choice,
) -> Server:
    """Make the server.

    Args:
        show_environment: also show the values of variables that look secret.
        extras: also offer what the official server lacks.
        interval: seconds between two messages of a timer.
        stage: seconds that a stage of the simulated research takes.
        max_fetch_bytes: largest file that is fetched for compression.
        fetch_seconds: time limit for fetching.
        allowed_domains: domains to fetch from, with subdomains; any public host if empty.
        fetcher: the fetcher to use; by default one limited to the public Internet.
        numbered: how many numbered resources there are, enough for several pages.
        page_size: items per page of a list.
        clock: the clock of timers and waits.
        choose: picks the level of a simulated log message.
    """
    # Everything that may be fetched can be stored, even if compression does not shrink it.
    room = max(_MOST_FILE_BYTES, 2 * max_fetch_bytes)
    state = ServerState(interval=interval, files=_MOST_FILES, file_bytes=room)
    server = _make_empty_server(
        state, clock=clock, page_size=page_size, experimental={EXPERIMENTAL: {}} if extras else None
    )
    add_basic_tools(server, show_environment=show_environment)
    fetching = FetchLimits(max_bytes=max_fetch_bytes, seconds=fetch_seconds, domains=allowed_domains, fetcher=fetcher)
    add_gzip_tool(server, fetching)
    add_timer_tools(server, choose)
    add_client_request_tools(server)
    add_task_tools(server, stage=stage)
    add_resources(server)
    add_prompts(server)
    if extras:
        add_content_tools(server)
        add_extra_client_request_tools(server)
        add_extra_notification_tools(server)
        add_extra_resources(server, numbered=numbered)
        add_extra_prompts(server)
    return server


def _make_empty_server(
    state: ServerState, *, clock: Clock | None, page_size: int, experimental: dict[str, Any] | None
) -> Server:
    def visible(caller: Caller, definition: Any) -> bool:
        tags: frozenset[str] = definition.options.tags
        if "session" in tags:
            return can_see_file(state, caller, definition.uri)
        if "stateless" in tags:
            return caller.session is None
        return all(caller.supports(tag.removeprefix(CAPABILITY_TAG)) for tag in tags)

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[ServerState]:
        try:
            yield state
        finally:
            state.clear()
            for uri in [uri for uri in server.registry.resources if uri.startswith(SESSION_URI_PREFIX)]:
                server.remove_resource(uri)

    return Server(
        "mcp-servers/everything",
        INSTRUCTIONS,
        version=__version__,
        title="Everything",
        description="Shows every feature of the protocol, for trying and testing clients.",
        icons=[sample_icon()],
        experimental=experimental,
        lifespan=lifespan,
        middleware=[log_subscriptions],
        visible=visible,
        cache_ttl_ms=_CACHE_MS,
        list_page_size=page_size,
        clock=clock,
        sse_path="/sse",
        message_path="/message",
    )


async def log_subscriptions(request: ServerRequest, call_next: CallNext) -> Any:
    """Middleware that sends the caller a log message when it subscribes or unsubscribes."""
    result = await call_next(request)
    if isinstance(request.params, SubscribeRequestParams | UnsubscribeRequestParams):
        await request.context.info(f"{request.method}: {request.params.uri}")
    return result

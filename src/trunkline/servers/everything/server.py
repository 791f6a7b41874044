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
from trunkline.servers.everything.asking import NEEDS, add_asking, add_more_asking
from trunkline.servers.everything.basics import add_basics
from trunkline.servers.everything.changing import CHANGES, Choose, add_changing, add_toggles
from trunkline.servers.everything.compressing import SESSION, Fetching, add_compressing, sees_file
from trunkline.servers.everything.content import add_content
from trunkline.servers.everything.documents import INSTRUCTIONS
from trunkline.servers.everything.media import icon
from trunkline.servers.everything.prompts import add_more_prompts, add_prompts
from trunkline.servers.everything.resources import add_more_resources, add_resources
from trunkline.servers.everything.state import State
from trunkline.types import SubscribeRequestParams, UnsubscribeRequestParams

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
    max_fetch_bytes: int = 10 * 1024 * 1024,
    fetch_seconds: float = 30.0,
    allowed_domains: Sequence[str] = (),
    fetcher: Fetcher | None = None,
    numbered: int = 100,
    page_size: int = 50,
    clock: Clock | None = None,
    choose: Choose = random.choice,
) -> Server:
    """Make the server.

    Args:
        show_environment: also show the values of variables that look secret.
        extras: also offer what the official server lacks.
        interval: seconds between two messages of a timer.
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
    state = State(interval=interval, files=_MOST_FILES, file_bytes=room)
    server = _bare(state, clock=clock, page_size=page_size, experimental={CHANGES: {}} if extras else None)
    add_basics(server, show_environment=show_environment)
    fetching = Fetching(max_bytes=max_fetch_bytes, seconds=fetch_seconds, domains=allowed_domains, fetcher=fetcher)
    add_compressing(server, fetching)
    add_toggles(server, choose)
    add_asking(server)
    add_resources(server)
    add_prompts(server)
    if extras:
        add_content(server)
        add_more_asking(server)
        add_changing(server)
        add_more_resources(server, numbered=numbered)
        add_more_prompts(server)
    return server


def _bare(state: State, *, clock: Clock | None, page_size: int, experimental: dict[str, Any] | None) -> Server:
    def visible(caller: Caller, definition: Any) -> bool:
        tags: frozenset[str] = definition.options.tags
        if "session" in tags:
            return sees_file(state, caller, definition.uri)
        if "stateless" in tags:
            return caller.session is None
        return all(caller.supports(tag.removeprefix(NEEDS)) for tag in tags)

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[State]:
        try:
            yield state
        finally:
            state.clear()
            for uri in [uri for uri in server.registry.resources if uri.startswith(SESSION)]:
                server.remove_resource(uri)

    return Server(
        "mcp-servers/everything",
        INSTRUCTIONS,
        version=__version__,
        title="Everything",
        description="Shows every feature of the protocol, for trying and testing clients.",
        icons=[icon()],
        experimental=experimental,
        lifespan=lifespan,
        middleware=[tell_of_subscribing],
        visible=visible,
        cache_ttl_ms=_CACHE_MS,
        list_page_size=page_size,
        clock=clock,
        sse_path="/sse",
        message_path="/message",
    )


async def tell_of_subscribing(request: ServerRequest, call_next: CallNext) -> Any:
    """Middleware that sends the caller a log message when it subscribes or unsubscribes."""
    result = await call_next(request)
    if isinstance(request.params, SubscribeRequestParams | UnsubscribeRequestParams):
        await request.context.info(f"{request.method}: {request.params.uri}")
    return result

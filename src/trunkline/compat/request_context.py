"""FastMCP's context of one request, and the variable that holds it.

The variable looks the request up that is being served; what a program sets in it comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any

from trunkline.compat.context import CURRENT_REQUEST, current_context

__all__ = [
    "FastMCPRequestContext",
    "Meta",
    "RequestContextVariable",
    "bind_request_context",
    "fastmcp_request_ctx",
    "reset_transport",
    "served_transport",
    "set_transport",
]


@dataclass
class FastMCPRequestContext:
    """What is known about the request that is being served."""

    session: Any
    request_id: str | None
    meta: dict[str, Any] | None
    request: Any
    protocol_version: str
    close_sse_stream: Any
    lifespan_context: Any
    _srctx: Any = None


class Meta(dict[str, Any]):
    """``_meta`` of a request: a dictionary whose members are attributes too, as before FastMCP 4."""

    def __getattr__(self, name: str) -> Any:
        """Return a member, or None."""
        if name.startswith("__"):
            raise AttributeError(name)
        return self.get("progressToken" if name == "progress_token" else name)


class RequestContextVariable:
    """A context variable whose value is that of the request being served, unless one was set."""

    name = "fastmcp_request_ctx"

    def __init__(self) -> None:
        """Start without a value."""
        self._set: ContextVar[Any] = ContextVar("trunkline.compat.request_context", default=None)

    def get(self, default: Any = None) -> Any:
        """Return the context of the request, or the default outside of one."""
        given = self._set.get()
        if given is not None:
            return given
        context = current_context()
        if context is None or context._exchange is None:
            return default
        meta = getattr(context.request_context, "meta", None)
        return FastMCPRequestContext(
            session=context.session,
            request_id=context.request_id,
            meta=meta if isinstance(meta, dict) else None,
            request=CURRENT_REQUEST.get(),
            protocol_version=str(context.client.revision),
            close_sse_stream=None,
            lifespan_context=context.request_context.lifespan_context,
            _srctx=context.request_context,
        )

    def set(self, value: Any) -> Token[Any]:
        """Set a context."""
        return self._set.set(value)

    def reset(self, token: Token[Any]) -> None:
        """Undo a setting."""
        self._set.reset(token)


fastmcp_request_ctx = RequestContextVariable()


#: The transport that a program says it serves.
_TRANSPORT: ContextVar[str | None] = ContextVar("trunkline.compat.transport", default=None)


def set_transport(transport: str) -> Token[str | None]:
    """Set the name of the transport that is served."""
    return _TRANSPORT.set(transport)


def reset_transport(token: Token[str | None]) -> None:
    """Undo ``set_transport``."""
    _TRANSPORT.reset(token)


def served_transport() -> str | None:
    """Return the transport that a program says it serves, or None."""
    return _TRANSPORT.get()


@contextmanager
def bind_request_context(given: Any) -> Iterator[FastMCPRequestContext]:
    """Make the record of a request the current one."""
    params = getattr(given, "params", None)
    meta = params.get("_meta") if isinstance(params, dict) else getattr(given, "meta", None)
    made = FastMCPRequestContext(
        session=given.session,
        request_id=None if given.request_id is None else str(given.request_id),
        meta=meta if isinstance(meta, dict) else None,
        request=getattr(given, "request", None) or CURRENT_REQUEST.get(),
        protocol_version=str(given.protocol_version),
        close_sse_stream=getattr(given, "close_sse_stream", None),
        lifespan_context=given.lifespan_context,
        _srctx=given,
    )
    token = fastmcp_request_ctx.set(made)
    try:
        yield made
    finally:
        fastmcp_request_ctx.reset(token)

"""The context of a request under the names of both frameworks, around ours.

``current_context`` is the one being served, for functions that look it up instead of taking it as a parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar
from uuid import uuid4
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from trunkline.server.client_requests import (
    AcceptedElicitation,
    CancelledElicitation,
    DeclinedElicitation,
    ElicitationResult,
)
from trunkline_compat.session import ServerSession, answered
from trunkline_compat.types import model_class, to_model
from trunkline_compat.versions import STATE

__all__ = [
    "CURRENT_REQUEST",
    "AcceptedElicitation",
    "CancelledElicitation",
    "Context",
    "DeclinedElicitation",
    "ElicitationResult",
    "FastContext",
    "OfficialContext",
    "RequestContext",
    "current_context",
    "serve_in",
]

_CURRENT: ContextVar[Context | None] = ContextVar("trunkline_compat.context", default=None)
#: The HTTP request that brought the call, as Starlette has it.
CURRENT_REQUEST: ContextVar[Any] = ContextVar("trunkline_compat.request", default=None)
#: Under this key our context keeps FastMCP's state of a request.
_STATE = "trunkline_compat.state"


def current_context() -> Any:
    """Return the context of the request being served, or None."""
    return _CURRENT.get()


@contextmanager
def serve_in(context: Context) -> Iterator[Context]:
    """Make a context the current one."""
    token = _CURRENT.set(context)
    try:
        yield context
    finally:
        _CURRENT.reset(token)


@dataclass
class RequestContext:
    """The record behind a context: the request's id, its ``_meta``, the session and the value of the lifespan."""

    request_id: Any = None
    meta: Any = None
    session: Any = None
    lifespan_context: Any = None
    experimental: Any = None
    request: Any = None
    protocol_version: str | None = None
    method: str | None = None
    params: Any = None

    @classmethod
    def __class_getitem__(cls, _: object) -> type[RequestContext]:
        """Ignore type parameters."""
        return cls


class Context:
    """What the contexts of both frameworks have in common."""

    _connection_ids: ClassVar[WeakKeyDictionary[Any, str]] = WeakKeyDictionary()

    def __init__(self, server: Any = None, own: Any = None, **_: Any) -> None:
        """Wrap the context of a request; without one, only what needs no request works."""
        self._server = server
        self._own = own

    @classmethod
    def __class_getitem__(cls, _: object) -> Any:
        """Ignore type parameters."""
        return cls

    @property
    def own(self) -> Any:
        """Our context.

        Raises:
            ValueError: there is no request.
        """
        if self._own is None:
            raise ValueError("no request is being served: the context has no caller")
        return self._own

    @property
    def fastmcp(self) -> Any:
        """The server."""
        return self._server

    mcp_server = fastmcp

    @property
    def session(self) -> ServerSession:
        """The way back to the caller."""
        return ServerSession(self.own)

    @property
    def request_context(self) -> Any:
        """The record behind this context."""
        own = self.own
        token = own.meta.get("progressToken")
        named = {name: value for name, value in own.meta.items() if name.isidentifier() and name != "progressToken"}
        return RequestContext(
            request_id=own.exchange.id,
            meta=SimpleNamespace(progressToken=token, progress_token=token, **named) if own.meta else None,
            session=self.session,
            lifespan_context=self.lifespan_context,
            request=CURRENT_REQUEST.get(),
            protocol_version=own.client.revision,
        )

    @property
    def lifespan_context(self) -> Any:
        """The value that the server's lifespan yielded; an empty dictionary if there is none."""
        value = self.own.lifespan_context
        return {} if value is None else value

    @property
    def request_id(self) -> str:
        """The id of the request."""
        return str(self.own.request_id)

    @property
    def client_id(self) -> str | None:
        """The authenticated client, or the one that the request names."""
        client: str | None = self.own.client_id or self.own.meta.get("client_id")
        return client

    @property
    def session_id(self) -> str:
        """The id of the session, or one of the connection."""
        session: str | None = self.own.session_id
        return session or self._connection_ids.setdefault(self.own.connection, uuid4().hex)

    @property
    def headers(self) -> Any:
        """The headers of the HTTP request, or None."""
        return getattr(CURRENT_REQUEST.get(), "headers", None)

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the caller, if it asked for it; without a request nothing happens."""
        if self._own is not None:
            await self._own.report_progress(progress, total, message)

    async def _send_log(self, level: str, message: Any, logger_name: str | None, extra: Mapping[str, Any]) -> None:
        if self._own is not None:
            data = {"msg": message, "extra": dict(extra)} if extra else message
            await self.session.send_log_message(level, data, logger_name)

    async def elicit_url(self, message: str, url: str, elicitation_id: str | None = None) -> Any:
        """Ask the user to open a page."""
        return await answered(self.own.elicit_url(message, url, elicitation_id=elicitation_id))

    async def list_roots(self) -> Any:
        """Ask the client for its roots."""
        return to_model(await answered(self.own.list_roots()))

    async def send_notification(self, notification: Any) -> None:
        """Send the caller a notification."""
        await self.session.send_notification(notification)

    async def read_resource(self, uri: Any) -> Any:
        """Read a resource of this server."""
        return await self._server.read_resource(str(uri))

    async def notify_tools_changed(self) -> None:
        """Notify clients that the list of tools changed."""
        await self.session.send_tool_list_changed()

    async def notify_prompts_changed(self) -> None:
        """Notify clients that the list of prompts changed."""
        await self.session.send_prompt_list_changed()

    async def notify_resources_changed(self) -> None:
        """Notify clients that the list of resources changed."""
        await self.session.send_resource_list_changed()

    async def notify_resource_updated(self, uri: Any) -> None:
        """Notify subscribers that a resource changed."""
        await self.session.send_resource_updated(uri)


class OfficialContext(Context):
    """The context of the official SDK: ``log(level, message)``."""

    async def log(self, level: Any, message: Any = None, *, logger_name: str | None = None, **extra: Any) -> None:
        """Send a log message."""
        message = extra.pop("data", message)
        await self._send_log(level, message, logger_name, extra.pop("extra", None) or extra)

    async def debug(self, message: Any = None, **options: Any) -> None:
        """Log at level debug."""
        await self.log("debug", message, **options)

    async def info(self, message: Any = None, **options: Any) -> None:
        """Log at level info."""
        await self.log("info", message, **options)

    async def warning(self, message: Any = None, **options: Any) -> None:
        """Log at level warning."""
        await self.log("warning", message, **options)

    async def error(self, message: Any = None, **options: Any) -> None:
        """Log at level error."""
        await self.log("error", message, **options)

    async def elicit(self, message: str, schema: Any, **_: Any) -> Any:
        """Ask the user to fill in the form of a pydantic model."""
        answer = await answered(self.own.elicit(message, schema.model_json_schema()))
        if answer.action != "accept":
            return answer
        return AcceptedElicitation(schema.model_validate(answer.data))


class FastContext(Context):
    """The context of FastMCP: ``log(message, level)``, and state that lasts as long as the session."""

    _states: ClassVar[WeakKeyDictionary[Any, dict[str, Any]]] = WeakKeyDictionary()

    async def log(
        self, message: Any, level: Any = None, logger_name: str | None = None, extra: Mapping[str, Any] | None = None
    ) -> None:
        """Send a log message."""
        await self._send_log(level or "info", message, logger_name, extra or {})

    async def debug(self, message: Any, logger_name: str | None = None, extra: Any = None) -> None:
        """Log at level debug."""
        await self.log(message, "debug", logger_name, extra)

    async def info(self, message: Any, logger_name: str | None = None, extra: Any = None) -> None:
        """Log at level info."""
        await self.log(message, "info", logger_name, extra)

    async def warning(self, message: Any, logger_name: str | None = None, extra: Any = None) -> None:
        """Log at level warning."""
        await self.log(message, "warning", logger_name, extra)

    async def error(self, message: Any, logger_name: str | None = None, extra: Any = None) -> None:
        """Log at level error."""
        await self.log(message, "error", logger_name, extra)

    @property
    def transport(self) -> str | None:
        """How the request arrived: ``stdio``, ``sse`` or ``streamable-http``."""
        return {"http": "streamable-http", "memory": None}.get(self.own.transport, self.own.transport)

    # --- state -------------------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        """Return the state of the session, or of the connection where there is no session."""
        return self._states.setdefault(self.own.session or self.own.connection, {})

    @property
    def _request_state(self) -> dict[str, Any]:
        """The state of this request; a published server reads it by this name."""
        state: dict[str, Any] | None = self.own.get_state(_STATE)
        if state is None:
            self.own.set_state(_STATE, state := {})
        return state

    def _make_state_key(self, key: str) -> str:
        return key

    def set_state(self, key: str, value: Any, *, serializable: bool = True) -> Any:
        """Store a value for the session, awaited since FastMCP 3; before, or if not serializable, for the request."""
        is_for_session = serializable and STATE.fastmcp_major >= 3
        (self._state() if is_for_session else self._request_state)[key] = value
        return _Ready(None)

    def get_state(self, key: str, default: Any = None) -> Any:
        """Return a stored value; awaited since FastMCP 3."""
        value = {**self._state(), **self._request_state}.get(key, default)
        return _Ready(value) if STATE.fastmcp_major >= 3 else value

    def delete_state(self, key: str) -> Any:
        """Forget a value."""
        self._request_state.pop(key, None)
        self._state().pop(key, None)
        return _Ready(None)

    # --- requests to the caller --------------------------------------------------------------------------------------

    async def elicit(self, message: str, response_type: Any = None, **_: Any) -> Any:
        """Ask the user for a value of a type: a model, a number, a choice of texts, or nothing but a yes."""
        if isinstance(response_type, type) and issubclass(response_type, BaseModel):
            return await OfficialContext.elicit(self, message, response_type)  # type: ignore[arg-type]
        return await answered(self.own.elicit(message, response_type))

    async def sample(
        self,
        messages: Any,
        system_prompt: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        model_preferences: Any = None,
        **_: Any,
    ) -> Any:
        """Ask the client's model: the content of its answer, since FastMCP 3 with the text beside it."""
        given = [messages] if isinstance(messages, str) or hasattr(messages, "role") else messages
        answer = await self.session.create_message(
            given,
            max_tokens=max_tokens or 512,
            system_prompt=system_prompt,
            temperature=temperature,
            model_preferences=model_preferences,
        )
        blocks = answer.content if isinstance(answer.content, list) else [answer.content]
        if STATE.fastmcp_major < 3:
            return blocks[0]
        text = "".join(block.text for block in blocks if block.type == "text")
        return SimpleNamespace(text=text, result=text, content=answer.content, history=[])

    # --- using the server --------------------------------------------------------------------------------------------

    async def list_tools(self) -> Any:
        """List the tools of this server."""
        return await self._server.list_tools()

    async def list_resources(self) -> Any:
        """List the resources of this server."""
        return await self._server.list_resources()

    async def list_prompts(self) -> Any:
        """List the prompts of this server."""
        return await self._server.list_prompts()

    async def get_prompt(self, name: str, arguments: Any = None) -> Any:
        """Render a prompt of this server."""
        result = await self._server.render_prompt(name, arguments)
        return model_class("GetPromptResult").model_validate(result.to_mcp_prompt_result().model_dump(by_alias=True))


class _Ready:
    """A value that may be awaited, and need not be."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __await__(self) -> Any:
        return self._value
        yield  # pragma: no cover - makes this a generator, which an awaitable needs

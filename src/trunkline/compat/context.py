"""The context of a request under the names of FastMCP and the official SDK, and the session it speaks of.

The two disagree in a few places, so each has a class of its own. ``current_context`` is the one being served, for the
functions that look it up instead of taking it as a parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel

import trunkline.types as t
from trunkline.compat.features.client_wishes import includes, is_wanted
from trunkline.compat.types import model_class, to_model, to_plain, to_struct
from trunkline.compat.versions import STATE
from trunkline.server.context import Context
from trunkline.server.server import Server

__all__ = [
    "CURRENT_CONTEXT",
    "CURRENT_REQUEST",
    "FastContext",
    "OfficialContext",
    "RequestContext",
    "ServerSession",
    "current_context",
    "serving",
    "serving_context",
]

CURRENT_CONTEXT: ContextVar[Any] = ContextVar("trunkline.compat.context", default=None)
#: The HTTP request that brought the call, as Starlette has it.
CURRENT_REQUEST: ContextVar[Any] = ContextVar("trunkline.compat.request", default=None)


def current_context() -> Any:
    """Return the context of the request being served, or None."""
    return CURRENT_CONTEXT.get()


@contextmanager
def serving(context: Any) -> Iterator[Any]:
    """Make a context the current one."""
    token = CURRENT_CONTEXT.set(context)
    try:
        yield context
    finally:
        CURRENT_CONTEXT.reset(token)


def serving_context(server: Any, exchange: Any) -> Any:
    """Return the context of a component that belongs to no server: that of the server it is served by."""
    current = current_context()
    return FastContext(server if current is None else current.server, exchange)


class ServerSession:
    """The way back to the caller of one request."""

    def __init__(self, context: Any) -> None:
        """Speak to the caller of this context."""
        self._context = context

    @classmethod
    def __class_getitem__(cls, _: object) -> type[ServerSession]:
        """Ignore type parameters."""
        return cls

    @property
    def _connection(self) -> Any:
        from trunkline.server.dispatch import root_server

        server: Any = root_server(self._context._exchange)
        return server.connection_scope(self._context._exchange.connection.holder)

    @property
    def client_params(self) -> Any:
        """What the client said in its handshake."""
        client = self._context.client
        info = client.info or t.Implementation(name="unknown")
        return model_class("InitializeRequestParams")(
            protocol_version=client.revision, capabilities=dict(client.capabilities), client_info=to_model(info)
        )

    @property
    def client_capabilities(self) -> Any:
        """What the client declared."""
        return model_class("ClientCapabilities").model_validate(dict(self._context.client.capabilities))

    @property
    def protocol_version(self) -> str:
        """The revision of the request."""
        return str(self._context.client.revision)

    def check_client_capability(self, capability: Any) -> bool:
        """Return True if the client declared all that a capability record has."""
        return includes(self._context.client.capabilities, to_plain(capability))

    async def send_log_message(
        self, level: Any, data: Any, logger: str | None = None, related_request_id: Any = None
    ) -> None:
        """Send a log message; without a level of the client's choice, of any level."""
        caller = self._context._exchange.admitted.caller
        params = t.LoggingMessageNotificationParams(level=level, logger=logger, data=to_plain(data))
        if is_wanted(caller, level):
            self._context._notify("notifications/message", params)

    async def send_progress_notification(
        self,
        progress_token: Any,
        progress: float,
        total: float | None = None,
        message: str | None = None,
        related_request_id: Any = None,
    ) -> None:
        """Report progress under a token."""
        params = t.ProgressNotificationParams(
            progress_token=progress_token, progress=progress, total=total, message=message
        )
        self._context._notify("notifications/progress", params)

    async def send_resource_updated(self, uri: Any) -> None:
        """Notify subscribers that a resource changed."""
        self._context.server.changed(str(uri))

    async def send_resource_list_changed(self) -> None:
        """Notify clients that the list of resources changed."""
        self._context.server.changed("resources")

    async def send_tool_list_changed(self) -> None:
        """Notify clients that the list of tools changed."""
        self._context.server.changed("tools")

    async def send_prompt_list_changed(self) -> None:
        """Notify clients that the list of prompts changed."""
        self._context.server.changed("prompts")

    async def send_notification(self, notification: Any, related_request_id: Any = None) -> None:
        """Send a notification."""
        plain = to_plain(getattr(notification, "root", notification))
        self._context._notify(plain["method"], plain.get("params"))

    async def create_message(self, messages: Any, *, max_tokens: int, **options: Any) -> Any:
        """Ask the client's model."""
        options.pop("related_request_id", None)
        if options.get("model_preferences") is not None:
            options["model_preferences"] = to_struct(options["model_preferences"], t.ModelPreferences)
        if options.get("tools") is not None:
            options["tools"] = [to_struct(tool, t.Tool) for tool in options["tools"]]
        if options.get("tool_choice") is not None:
            options["tool_choice"] = to_struct(options["tool_choice"], t.ToolChoice)
        given = [to_struct(message, t.SamplingMessage) for message in messages]
        answer = await Context.sample(self._context, given, max_tokens=max_tokens, **options)
        return to_model(answer.result)

    async def elicit(
        self,
        message: str,
        requestedSchema: Mapping[str, Any] | None = None,
        related_request_id: Any = None,
        *,
        requested_schema: Mapping[str, Any] | None = None,
    ) -> Any:
        """Ask the user to fill in a form described by a JSON Schema."""
        schema = requestedSchema or requested_schema or {"type": "object", "properties": {}}
        answer = await Context.elicit(self._context, message, dict(schema))
        return model_class("ElicitResult")(action=answer.action, content=answer.data)

    elicit_form = elicit

    async def elicit_url(self, message: str, url: str, elicitation_id: str, related_request_id: Any = None) -> Any:
        """Ask the user to open a page."""
        answer = await Context.elicit_url(self._context, message, url, elicitation_id=elicitation_id)
        return model_class("ElicitResult")(action=answer.action)

    async def list_roots(self) -> Any:
        """Ask the client for its roots."""
        return model_class("ListRootsResult")(roots=to_model(await Context.list_roots(self._context)))

    async def send_elicit_complete(self, elicitation_id: str, related_request_id: Any = None) -> None:
        """Notify the client that the user is done with a page."""
        params = t.ElicitationCompleteNotificationParams(elicitation_id=elicitation_id)
        self._context._notify("notifications/elicitation/complete", params)

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the caller, if it asked for it."""
        await Context.report_progress(self._context, progress, total, message)

    async def send_ping(self) -> Any:
        """Return at once: a request in flight shows that the client is there."""
        return model_class("EmptyResult")()


@dataclass
class RequestContext:
    """The record behind a context: the request's id, its ``_meta``, the session and what the lifespan gave."""

    request_id: Any = None
    meta: Any = None
    session: Any = None
    lifespan_context: Any = None
    experimental: Any = None
    request: Any = None
    close_sse_stream: Any = None
    close_standalone_sse_stream: Any = None
    protocol_version: Any = None
    method: str | None = None
    params: Any = None

    @classmethod
    def __class_getitem__(cls, _: object) -> type[RequestContext]:
        """Ignore type parameters."""
        return cls


class _ForeignContext(Context):
    """What both frameworks' contexts have and ours has not."""

    def __init__(self, server: Any = None, exchange: Any = None, **given: Any) -> None:
        """Look at one exchange of one server; without one only what needs no request works."""
        serving: Any = server or given.get("fastmcp") or given.get("mcp_server")
        super().__init__(serving, exchange)
        self._given = given

    @classmethod
    def __class_getitem__(cls, _: object) -> Any:
        """Ignore type parameters."""
        return cls

    @property
    def session(self) -> Any:
        """The way back to the caller."""
        given = self._given.get("session") or getattr(self._given.get("request_context"), "session", None)
        if given is None and self._exchange is None:
            raise RuntimeError("session is not available because there is no request")
        return given or ServerSession(self)

    @property
    def request_context(self) -> Any:
        """The record behind this context."""
        if self._given.get("request_context") is not None:
            return self._given["request_context"]
        if self._exchange is None:
            if isinstance(self, FastContext):
                from trunkline.compat.request_context import fastmcp_request_ctx

                return fastmcp_request_ctx.get()
            raise ValueError("Context is not available outside of a request")
        meta = self.meta
        token = meta.get("progressToken")
        return RequestContext(
            request_id=self._exchange.id,
            meta=self._meta_record(meta, token) if meta else None,
            session=self.session,
            lifespan_context=self.lifespan_context,
            request=CURRENT_REQUEST.get(),
            protocol_version=self.client.revision,
            method=self._exchange.method,
            params=None,
        )

    def _meta_record(self, meta: Mapping[str, Any], token: Any) -> Any:
        return SimpleNamespace(progressToken=token, progress_token=token, **_extra(meta))

    @property
    def lifespan_context(self) -> Any:
        """What the server's lifespan gave; an empty dictionary if there is none."""
        value = self._server.lifespan_value
        return {} if value is None else value

    @property
    def request_id(self) -> str:
        """The id of the request."""
        given = self._given.get("request_context")
        return str(given.request_id) if given is not None else super().request_id

    @property
    def headers(self) -> Any:
        """The headers of the HTTP request, or None."""
        given = self._given.get("request_context")
        request = CURRENT_REQUEST.get() if given is None else getattr(given, "request", None)
        return getattr(request, "headers", None)

    @property
    def protocol_version(self) -> str:
        """The revision of the request."""
        return self.client.revision

    @property
    def client_capabilities(self) -> Any:
        """What the client declared."""
        return ServerSession(self).client_capabilities

    @property
    def mcp_server(self) -> Server:
        """The server."""
        if self._server is None:
            raise ValueError("Context is not available outside of a request")
        return self._server

    @property
    def input_responses(self) -> Any:
        """The caller's answers to what the handler returned as ``InputRequiredResult``, or None."""
        from trunkline.compat.input_required import read_responses

        return read_responses(self._exchange)

    @property
    def request_state(self) -> str | None:
        """The text that the handler gave to ``InputRequiredResult`` in the last round, or None."""
        from trunkline.compat.input_required import read_state

        return read_state(self._server, self._exchange)

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress; without a request nothing happens."""
        if self._exchange is not None:
            await super().report_progress(progress, total, message)
            return
        context = self._given.get("request_context")
        if not STATE.camel_case and hasattr(getattr(context, "session", None), "report_progress"):
            await context.session.report_progress(progress, total, message)
            return
        meta = getattr(context, "meta", None)
        token = meta.get("progress_token") if isinstance(meta, dict) else getattr(meta, "progressToken", None)
        if context is not None and token is not None:
            await context.session.send_progress_notification(
                progress_token=token, progress=progress, total=total, message=message
            )

    async def close_sse_stream(self) -> None:
        """End the response that is open; the client comes back for the rest."""
        await self.close_stream()

    close_standalone_sse_stream = close_sse_stream

    async def notify_tools_changed(self) -> None:
        """Notify clients that the list of tools changed."""
        await self._announce("tools")

    async def notify_prompts_changed(self) -> None:
        """Notify clients that the list of prompts changed."""
        await self._announce("prompts")

    async def notify_resources_changed(self) -> None:
        """Notify clients that the list of resources changed."""
        await self._announce("resources")

    async def notify_resource_updated(self, uri: Any) -> None:
        """Notify subscribers that a resource changed."""
        await self._announce(str(uri))

    async def _announce(self, what: str) -> None:
        """Notify clients, and the bus that the server was given."""
        server: Any = self.mcp_server
        bus = getattr(server, "subscription_bus", None)
        if bus is not None:
            from trunkline.compat.subscriptions import event_of

            await bus.publish(event_of(what))
        server.changed(what)

    async def send_notification(self, notification: Any) -> None:
        """Send the caller a notification."""
        await ServerSession(self).send_notification(notification)

    async def _tell(self, level: Any, message: Any, logger_name: str | None, extra: Any) -> None:
        data = {"msg": message, "extra": dict(extra)} if extra else message
        if self._exchange is not None:
            await self.session.send_log_message(
                level=level, data=data, logger=logger_name, related_request_id=str(self._exchange.id)
            )
            await self._exchange.connection.drain()
        elif self._given.get("request_context") is not None:
            await self._given["request_context"].session.send_log_message(
                level=level, data=data, logger=logger_name, related_request_id=self.request_id
            )


def _extra(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in meta.items() if name.isidentifier() and name != "progressToken"}


class OfficialContext(_ForeignContext):
    """The context as the official SDK has it: ``log(level, message)``."""

    @property
    def fastmcp(self) -> Server:
        """The server."""
        return self._server

    async def log(self, level: Any, message: Any = None, *, logger_name: str | None = None, **extra: Any) -> None:
        """Send a log message."""
        message = extra.pop("data", message)
        await self._tell(level, message, logger_name, extra.pop("extra", None) or extra)

    async def debug(self, message: Any = None, **options: Any) -> None:  # type: ignore[override]
        """Log at level debug."""
        await self.log("debug", message, **options)

    async def info(self, message: Any = None, **options: Any) -> None:  # type: ignore[override]
        """Log at level info."""
        await self.log("info", message, **options)

    async def warning(self, message: Any = None, **options: Any) -> None:  # type: ignore[override]
        """Log at level warning."""
        await self.log("warning", message, **options)

    async def error(self, message: Any = None, **options: Any) -> None:  # type: ignore[override]
        """Log at level error."""
        await self.log("error", message, **options)

    async def read_resource(self, uri: Any) -> Any:
        """Read a resource of this server.

        Raises:
            RuntimeError: the resource asks for input, which only the server's ``read_resource`` hands on.
        """
        from trunkline.compat.input_required import with_input

        # The answers belong to the questions of the caller's handler: the resource may ask under the same names.
        with with_input(None, None):
            found = await self._server.read_resource(str(uri))  # type: ignore[attr-defined]
        if isinstance(found, model_class("InputRequiredResult")):
            raise RuntimeError(
                "Resource returned InputRequiredResult; ctx.read_resource() only returns content — "
                "use MCPServer.read_resource(uri, context) to receive and forward it."
            )
        return found

    async def elicit(self, message: str, schema: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """Ask the user to fill in the form of a pydantic model."""
        schema = options.pop("response_type", schema)
        if isinstance(schema, type) and issubclass(schema, BaseModel):
            from trunkline.compat.elicitation import elicit_form

            return await elicit_form(self, message, schema)
        return await super().elicit(message, schema, **options)


class FastContext(_ForeignContext):
    """The context as FastMCP has it: ``log(message, level)``, and state that lasts as long as the session."""

    def _meta_record(self, meta: Mapping[str, Any], token: Any) -> Any:
        from trunkline.compat.request_context import Meta

        return Meta(meta)

    async def __aenter__(self) -> FastContext:
        """Make this context the current one."""
        self._tokens = [*getattr(self, "_tokens", ()), CURRENT_CONTEXT.set(self)]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Make the context before this one the current one again."""
        CURRENT_CONTEXT.reset(self._tokens.pop())

    async def log(  # type: ignore[override]
        self, message: Any, level: Any = None, logger_name: str | None = None, extra: Any = None
    ) -> None:
        """Send a log message."""
        await self._tell(level or "info", message, logger_name, extra)

    async def debug(self, message: Any, logger_name: str | None = None, extra: Any = None) -> None:  # type: ignore[override]
        """Log at level debug."""
        await self.log(message, "debug", logger_name, extra)

    async def info(self, message: Any, logger_name: str | None = None, extra: Any = None) -> None:  # type: ignore[override]
        """Log at level info."""
        await self.log(message, "info", logger_name, extra)

    async def warning(self, message: Any, logger_name: str | None = None, extra: Any = None) -> None:  # type: ignore[override]
        """Log at level warning."""
        await self.log(message, "warning", logger_name, extra)

    async def error(self, message: Any, logger_name: str | None = None, extra: Any = None) -> None:  # type: ignore[override]
        """Log at level error."""
        await self.log(message, "error", logger_name, extra)

    async def enable_components(self, **criteria: Any) -> None:
        """Switch on what matches, for this session."""
        self._switch(True, criteria)

    async def disable_components(self, **criteria: Any) -> None:
        """Switch off what matches, for this session."""
        self._switch(False, criteria)

    async def reset_visibility(self) -> None:
        """Show this session what everybody is shown."""
        from trunkline.compat.features.state import session_scope

        server: Any = self._server
        server.forget_session_rules(session_scope(self._exchange))

    async def _get_visibility_rules(self) -> list[dict[str, Any]]:
        """Return what was switched on and off for this session, as data."""
        from trunkline.compat.features.state import session_scope

        server: Any = self._server
        return server.session_rule_data(session_scope(self._exchange))  # type: ignore[no-any-return]

    def _switch(self, on: bool, criteria: Mapping[str, Any]) -> None:
        from trunkline.compat.composition import matcher
        from trunkline.compat.features.state import rule_of, session_scope

        scope = session_scope(self._exchange)
        if scope is None:
            raise RuntimeError(
                "an unauthenticated request of a stateless revision has no client identity: nothing can be kept for it"
            )
        server: Any = self._server
        server.add_session_rule(scope, on, matcher(dict(criteria)), rule_of(on, criteria))

    @property
    def session_id(self) -> str:
        """The id of the session, or one of the connection."""
        from trunkline.compat.features.state import connection_id, given_session_id

        if self._exchange is None:
            found = given_session_id()
            if found is None:
                raise RuntimeError("session_id is not available because there is no request")
            return found
        return super().session_id or connection_id(self._exchange.connection)

    async def list_resources(self) -> Any:
        """List the resources of this server."""
        return await self._server.list_resources()  # type: ignore[attr-defined]

    async def list_prompts(self) -> Any:
        """List the prompts of this server."""
        return await self._server.list_prompts()  # type: ignore[attr-defined]

    async def list_tools(self) -> Any:
        """List the tools of this server."""
        return await self._server.list_tools()  # type: ignore[attr-defined]

    async def get_prompt(self, name: str, arguments: Any = None) -> Any:
        """Render a prompt of this server."""
        result = await self._server.render_prompt(name, arguments)  # type: ignore[attr-defined]
        return result.to_mcp_prompt_result()

    async def read_resource(self, uri: Any) -> Any:
        """Read a resource of this server."""
        return await self._server.read_resource(str(uri))  # type: ignore[attr-defined]

    def set_state(self, key: str, value: Any, *, serializable: bool = True) -> Any:
        """Keep a value for the session, or an object for this request only; awaited since FastMCP 3."""
        from trunkline.compat.features.state import Ready, set_context_state

        set_context_state(self, key, value, serializable=serializable)
        return Ready(None)

    def get_state(self, key: str, default: Any = None) -> Any:
        """Return a value kept before; awaited since FastMCP 3."""
        from trunkline.compat.features.state import Ready, context_state

        value = context_state(self, key, default)
        return Ready(value) if _async_state() else value

    def delete_state(self, key: str) -> Any:
        """Forget a value."""
        from trunkline.compat.features.state import Ready, delete_context_state

        delete_context_state(self, key)
        return Ready(None)

    @property
    def origin_request_id(self) -> Any:
        """The id of the request that the caller sent."""
        return None if self._exchange is None else self._exchange.id

    @property
    def transport(self) -> Any:
        """How the request arrived: ``stdio``, ``sse`` or ``streamable-http``."""
        from trunkline.compat.request_context import served_transport

        if served_transport() is not None or self._exchange is None:
            return served_transport()
        found = super().transport
        return {"http": "streamable-http", "memory": None}.get(found, found)


def _async_state() -> bool:
    return int((STATE.version("fastmcp") or "4").partition(".")[0]) >= 3

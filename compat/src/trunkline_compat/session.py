"""The official SDK's ``ServerSession``: the way back to the caller of one request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

import trunkline.types as t
from trunkline.errors import RequestFailed
from trunkline_compat.errors import McpError
from trunkline_compat.types import model_class, to_model, to_plain, to_struct

__all__ = ["ServerSession", "answered"]


class ServerSession:
    """Sends requests and notifications to the caller of a request."""

    def __init__(self, own: Any) -> None:
        """Initialize with our context of the request."""
        self._own = own

    @classmethod
    def __class_getitem__(cls, _: object) -> type[ServerSession]:
        """Ignore type parameters."""
        return cls

    # Two of these are the same session if their connection is: programs keep them in sets and dictionaries.
    def __eq__(self, other: object) -> bool:
        """Return whether both speak to the same session."""
        return isinstance(other, ServerSession) and self._key == other._key

    def __hash__(self) -> int:
        """Return the hash of the session."""
        return hash(self._key)

    @property
    def _key(self) -> Any:
        return id(self._own.session or self._own.connection)

    @property
    def client_params(self) -> Any:
        """What the client said in its handshake."""
        client = self._own.client
        info = client.info or t.Implementation(name="unknown")
        return model_class("InitializeRequestParams")(
            protocol_version=client.revision, capabilities=dict(client.capabilities), client_info=to_model(info)
        )

    def check_client_capability(self, capability: Any) -> bool:
        """Return whether the client declared all that a capability record has."""
        return _includes(self._own.client.capabilities, to_plain(capability))

    # --- notifications -----------------------------------------------------------------------------------------------

    async def send_log_message(
        self, level: Any, data: Any, logger: str | None = None, related_request_id: Any = None
    ) -> None:
        """Send a log message, if the client wants its level."""
        await self._own.log(level, to_plain(data), logger_name=logger)

    async def send_progress_notification(
        self,
        progress_token: Any,
        progress: float,
        total: float | None = None,
        message: str | None = None,
        related_request_id: Any = None,
    ) -> None:
        """Report progress under a token."""
        sent = {"progressToken": progress_token, "progress": progress, "total": total, "message": message}
        known = {name: value for name, value in sent.items() if value is not None}
        await self._own.notify("notifications/progress", known)

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the caller, if it asked for it."""
        await self._own.report_progress(progress, total, message)

    async def send_notification(self, notification: Any, related_request_id: Any = None) -> None:
        """Send a notification."""
        plain = to_plain(getattr(notification, "root", notification))
        await self._own.notify(plain["method"], plain.get("params"))

    async def send_resource_updated(self, uri: Any) -> None:
        """Notify subscribers that a resource changed."""
        await self._announce(str(uri))

    async def send_resource_list_changed(self) -> None:
        """Notify clients that the list of resources changed."""
        await self._announce("resources")

    async def send_tool_list_changed(self) -> None:
        """Notify clients that the list of tools changed."""
        await self._announce("tools")

    async def send_prompt_list_changed(self) -> None:
        """Notify clients that the list of prompts changed."""
        await self._announce("prompts")

    async def _announce(self, what: str) -> None:
        self._own.root_server.changed(what)
        # What a handler awaits is sent before its answer.
        await asyncio.sleep(0)

    async def send_elicit_complete(self, elicitation_id: str, related_request_id: Any = None) -> None:
        """Notify the client that the user is done with a page."""
        params = t.ElicitationCompleteNotificationParams(elicitation_id=elicitation_id)
        await self._own.notify("notifications/elicitation/complete", params)

    # --- requests ----------------------------------------------------------------------------------------------------

    async def create_message(
        self,
        messages: Sequence[Any],
        *,
        max_tokens: int,
        model_preferences: Any = None,
        tools: Any = None,
        tool_choice: Any = None,
        related_request_id: Any = None,
        **options: Any,
    ) -> Any:
        """Ask the client's model."""
        preferences = model_preferences
        if not isinstance(preferences, str | list | None):
            preferences = to_struct(preferences, t.ModelPreferences)
        request = self._own.sample(
            [each if isinstance(each, str) else to_struct(each, t.SamplingMessage) for each in messages],
            max_tokens=max_tokens,
            model_preferences=preferences,
            tools=None if tools is None else [to_struct(tool, t.Tool) for tool in tools],
            tool_choice=None if tool_choice is None else to_struct(tool_choice, t.ToolChoice),
            **options,
        )
        return to_model((await answered(request)).result)

    async def elicit(
        self,
        message: str,
        requestedSchema: Mapping[str, Any] | None = None,
        related_request_id: Any = None,
        **more: Any,
    ) -> Any:
        """Ask the user to fill in a form described by a JSON Schema."""
        schema = requestedSchema or more.get("requested_schema") or {"type": "object", "properties": {}}
        answer = await answered(self._own.elicit(message, dict(schema)))
        return model_class("ElicitResult")(action=answer.action, content=answer.data)

    elicit_form = elicit

    async def elicit_url(self, message: str, url: str, elicitation_id: str, related_request_id: Any = None) -> Any:
        """Ask the user to open a page."""
        answer = await answered(self._own.elicit_url(message, url, elicitation_id=elicitation_id))
        return model_class("ElicitResult")(action=answer.action)

    async def list_roots(self) -> Any:
        """Ask the client for its roots."""
        return model_class("ListRootsResult")(roots=to_model(await answered(self._own.list_roots())))

    async def send_ping(self) -> Any:
        """Return at once: a request in flight shows that the client is there."""
        return model_class("EmptyResult")()


async def answered(request: Awaitable[Any]) -> Any:
    """Await the client's answer to a request; its refusal is raised as ``McpError``."""
    try:
        return await request
    except RequestFailed as error:
        raise McpError.of(error) from error


def _includes(declared: Any, wanted: Any) -> bool:
    if not isinstance(wanted, Mapping):
        return True
    return isinstance(declared, Mapping) and all(
        name in declared and _includes(declared[name], inner) for name, inner in wanted.items()
    )

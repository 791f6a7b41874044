"""What requests to a server are dispatched with: handlers, middleware and the declared capabilities.

It is computed when the definition changes, so that a request computes nothing. A table belongs to one definition; a
connection looks its requests up there, and changes to another table when its server is reloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Raw

import trunkline.types as t
from trunkline.protocol.caller import Caller, supports
from trunkline.protocol.extensions import APPS, SKILLS, TASKS, extensions_in
from trunkline.protocol.fields import hidden_fields
from trunkline.protocol.methods import METHODS, Method, capability_needed
from trunkline.protocol.request_validation import ServerProfile, make_server_profile
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, Revision
from trunkline.server.listing import Listing

if TYPE_CHECKING:
    from trunkline.server.dispatch import Middleware
    from trunkline.server.handler_functions import HandlerFunction
    from trunkline.server.handlers import MethodHandler
    from trunkline.server.scopes import ScopePolicy
    from trunkline.server.server import Server
    from trunkline.server.skill_options import SkillService
    from trunkline.server.task_options import TaskSettings
    from trunkline.server.tools import ToolDefinition

__all__ = ["DispatchTable"]


class DispatchTable:
    """The handlers of a server's methods, and what is known of them before a request arrives."""

    listing: Listing
    profile: ServerProfile
    #: The server's name and version, encoded once and added to every result.
    stamp: Raw

    def __init__(self, server: Server) -> None:
        """Create the table of a server that offers nothing yet; the server fills it."""
        self.server = server
        self.handlers: dict[str, MethodHandler] = {}
        self.custom_methods: dict[str, tuple[Method, HandlerFunction]] = {}
        self.notification_handlers: dict[str, Callable[..., Any]] = {}
        self.middleware: tuple[Middleware, ...] = ()
        self.fallback_completion: HandlerFunction | None = None
        #: Serves skills; None until the first is registered.
        self.skills: SkillService | None = None
        #: How calls run as tasks; None until the first tool with ``task=`` is registered.
        self.task_settings: TaskSettings | None = None
        #: The job tools for clients without tasks.
        self.job_tools: Mapping[str, ToolDefinition] = {}
        #: The methods that need a capability which the server declares in no revision now.
        self.undeclared: frozenset[str] = frozenset()
        #: Whether definitions may be hidden from a caller: by a filter of the server or a mounted one, by scopes, or
        #: because the caller shows no pages.
        self.has_hidden: bool = False
        #: Whether handlers are called directly: there is no middleware, and no lifespan to enter first, here or in a
        #: mounted server. Mounting refreshes every parent, so that a call need not look at what is mounted.
        self.calls_directly: bool = True

    def refresh(self) -> None:
        """Called when capabilities, filters, middleware or mounts have changed."""
        server = self.server
        servers = server._all()
        self.undeclared = frozenset(self._undeclared_methods())
        filters = any(each.table.listing.has_filter for each in servers)
        self.has_hidden = filters or server.registry.needs_scopes or server.registry.has_apps
        self.listing.has_hidden = self.has_hidden
        self.calls_directly = not self.middleware and all(each._lifespan is None for each in servers)

    def methods_changed(self, policies: tuple[ScopePolicy, ...]) -> None:
        """Called when custom methods, or the scopes that they need, have changed."""
        rows = {name: row for name, (row, _) in self.custom_methods.items()}
        self.profile = make_server_profile(rows, self.server.settings.revisions)
        if not self.custom_methods:
            return
        from trunkline.server.handlers import make_custom_handler
        from trunkline.server.scopes import write_scopes

        scopes = write_scopes(policies)
        for name, (row, function) in self.custom_methods.items():
            self.handlers[name] = make_custom_handler(function, scopes, row.extension)

    def capabilities(self, revision: Revision, caller: Caller | None = None) -> dict[str, Any]:
        """Return the capabilities; a kind of definition is declared if there is one, or if it was announced.

        With a caller, they include those that depend on the caller.
        """
        registry, settings = self.server.registry, self.server.settings
        announced = settings.announced
        declared: dict[str, Any] = {"logging": {}}
        if registry.tools or "tools" in announced:
            declared["tools"] = {"listChanged": True}
        if registry.prompts or "prompts" in announced:
            declared["prompts"] = {"listChanged": True}
        if registry.resources or registry.templates or "resources" in announced or self.skills is not None:
            # A server that reads resources with a handler of its own knows them by that handler alone.
            subscribes = "resources/read" not in settings.answered or "resources/subscribe" in settings.answered
            declared["resources"] = {**({"subscribe": True} if subscribes else {}), "listChanged": True}
        if registry.completions or self.fallback_completion is not None or "completions" in announced:
            declared["completions"] = {}
        if settings.experimental:
            declared["experimental"] = dict(settings.experimental)
        extensions = settings.extensions or {}
        if self.task_settings is not None:
            from trunkline.server.task_options import tasks_capability

            declared["tasks"] = tasks_capability(caller)
            extensions = {TASKS: {}, **extensions}
        if self.skills is not None:
            extensions = {SKILLS: {"directoryRead": True}, **extensions}
        if registry.has_apps:
            extensions = {APPS: {}, **extensions}
        if extensions and (present := extensions_in(revision, extensions, settings.extension_objects)):
            declared["extensions"] = present
        absent = hidden_fields(t.ServerCapabilities, revision)
        return {name: value for name, value in declared.items() if name not in absent}

    def _undeclared_methods(self) -> Iterator[str]:
        """Yield the methods that need a capability which the server declares in no revision."""
        declared = {revision: self.capabilities(revision) for revision in (NEWEST, NEWEST_HANDSHAKE)}
        for row in METHODS:
            if row.to_server is None or row.name in self.custom_methods:
                continue
            paths = {
                revision: capability_needed(row, revision) for revision in declared if row.to_server.covers(revision)
            }
            if paths and not any(path is None or supports(declared[each], path) for each, path in paths.items()):
                yield row.name

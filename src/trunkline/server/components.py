"""Registration: the decorators and methods that fill a server's registry and announce every change.

A decorator works with and without parentheses and returns the function unchanged. Registering a name twice is an error
unless the server's ``on_duplicate`` option allows it.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

import trunkline.types as t
from trunkline.protocol.methods import METHODS, Method
from trunkline.protocol.revisions import ALL_REVISIONS
from trunkline.server.dispatch_table import DispatchTable
from trunkline.server.handler_functions import HandlerFunction
from trunkline.server.options import (
    PromptKeywords,
    ResourceKeywords,
    ToolKeywords,
    prompt_options,
    resource_options,
    tool_options,
)
from trunkline.server.registry import EMPTY, Definition, Key, RegistrySnapshot
from trunkline.server.runtime import ProcessState
from trunkline.server.subscriptions import ChangeNotice
from trunkline.server.tools import ToolDefinition

# Prompts, resources, completions and mounts are imported when the first is registered: most servers only have tools.
if TYPE_CHECKING:
    from trunkline.server.app_options import AppKeywords, PageSource
    from trunkline.server.registry import Mount
    from trunkline.server.resources import ResourceDefinition
    from trunkline.server.results import ResourceValue
    from trunkline.server.runtime import ServerRuntime
    from trunkline.server.scopes import ScopePolicy
    from trunkline.server.skill_options import SkillDefinition, SkillService

__all__ = ["ComponentRegistry", "OnDuplicate"]

log = logging.getLogger("trunkline")

F = TypeVar("F", bound=Callable[..., Any])
OnDuplicate = Literal["error", "warn", "replace", "ignore"]

# 2025-11-25, server/tools: names SHOULD be 1 to 128 of these characters.
_PORTABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")
# A template may begin with a variable.
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|\{")
_TABLES = ("tools", "prompts", "resources", "templates", "completions", "skills")
#: The list that shows each table of the registry.
_TABLE_LISTS = (("tools", "tools"), ("prompts", "prompts"), ("resources", "resources"), ("templates", "resources"))


class ComponentRegistry:
    """The tools, prompts, resources and completions of a server, its own and mounted ones."""

    def __init__(self, *, on_duplicate: OnDuplicate = "error") -> None:
        """Create an empty registry."""
        self._own: RegistrySnapshot = EMPTY
        self._mounts: tuple[Mount, ...] = ()
        self._parents: list[ComponentRegistry] = []
        self._on_duplicate = on_duplicate
        self._scope_policies: tuple[ScopePolicy, ...] = ()
        # Sync handlers may register from their worker threads.
        self._lock = threading.RLock()
        #: Everything offered now, including mounted servers.
        self.registry: RegistrySnapshot = EMPTY
        #: What requests are dispatched with.
        self.table: DispatchTable = DispatchTable(self)  # type: ignore[arg-type]
        self._process: ProcessState = ProcessState()
        #: The tools that pages name, functions or names, each with the URI of the page.
        self._app_links: tuple[tuple[Callable[..., Any] | str, str], ...] = ()
        self._apps_checked = False

    # --- tools -------------------------------------------------------------------------------------------------------

    @overload
    def tool(self, function: F, /, **options: Unpack[ToolKeywords]) -> F: ...
    @overload
    def tool(self, name: str | None = None, /, **options: Unpack[ToolKeywords]) -> Callable[[F], F]: ...
    def tool(self, name_or_function: str | F | None = None, /, **options: Unpack[ToolKeywords]) -> F | Callable[[F], F]:
        """Register a function as a tool; options as in ``ToolOptions``, also under the names of other frameworks."""
        return self._decorate(name_or_function, options, self._add_tool)

    def add_tool(self, function: Callable[..., object], **options: Unpack[ToolKeywords]) -> None:
        """Register a function as a tool; clients are notified."""
        self._add_tool(function, options)

    def _add_tool(self, function: Callable[..., object], options: Mapping[str, object]) -> None:
        definition = ToolDefinition(function, tool_options(options), owner=self)  # type: ignore[arg-type]
        if not _PORTABLE_NAME.match(definition.name):
            log.warning(
                "some clients reject the tool name %r; use 1 to 128 of the characters A-Z a-z 0-9 _ . -",
                definition.name,
            )
        if self._app_links:
            definition = self._linked(definition)
        self._put("tools", definition.name, definition)

    def remove_tool(self, name: str) -> None:
        """Remove a tool; clients are notified."""
        self._remove("tools", name)

    # --- prompts -----------------------------------------------------------------------------------------------------

    @overload
    def prompt(self, function: F, /, **options: Unpack[PromptKeywords]) -> F: ...
    @overload
    def prompt(self, name: str | None = None, /, **options: Unpack[PromptKeywords]) -> Callable[[F], F]: ...
    def prompt(
        self, name_or_function: str | F | None = None, /, **options: Unpack[PromptKeywords]
    ) -> F | Callable[[F], F]:
        """Register a function as a prompt; options as in ``PromptOptions``."""
        return self._decorate(name_or_function, options, self._add_prompt)

    def add_prompt(self, function: Callable[..., object], **options: Unpack[PromptKeywords]) -> None:
        """Register a function as a prompt; clients are notified."""
        self._add_prompt(function, options)

    def _add_prompt(self, function: Callable[..., object], options: Mapping[str, object]) -> None:
        from trunkline.server.prompts import PromptDefinition

        definition = PromptDefinition(function, prompt_options(options), owner=self)  # type: ignore[arg-type]
        self._put("prompts", definition.name, definition)

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt; clients are notified."""
        self._remove("prompts", name)

    # --- resources ---------------------------------------------------------------------------------------------------

    def resource(self, uri: str, /, **options: Unpack[ResourceKeywords]) -> Callable[[F], F]:
        """Register a function as a resource, or as a template if the URI has variables.

        Options as in ``ResourceOptions``.
        """
        if callable(uri):
            raise TypeError('a resource needs its URI: @server.resource("scheme://path")')

        def register(function: F) -> F:
            self.add_resource(uri, function, **options)
            return function

        return register

    def add_resource(
        self, uri: str, value: Callable[..., object] | ResourceValue, **options: Unpack[ResourceKeywords]
    ) -> None:
        """Register a function, or a fixed text or bytes, as a resource; clients are notified."""
        function = value if callable(value) else lambda: value
        if not callable(value) and "name" not in options:
            options["name"] = uri
        from trunkline.server.resources import ResourceDefinition, TemplateDefinition

        given = resource_options(options)
        if not _HAS_SCHEME.match(uri):
            log.warning("some clients reject the resource %r; begin its URI with a scheme, such as notes://", uri)
        if "{" in uri:
            self._put("templates", uri, TemplateDefinition(uri, function, given, owner=self))  # type: ignore[arg-type]
        else:
            self._put("resources", uri, ResourceDefinition(uri, function, given, owner=self))  # type: ignore[arg-type]

    def remove_resource(self, uri: str) -> None:
        """Remove a resource or a template; clients are notified."""
        self._remove("templates" if "{" in uri else "resources", uri)

    # --- skills ------------------------------------------------------------------------------------------------------

    def add_skills(self, folder: str | os.PathLike[str], prefix: str | None = None) -> None:
        """Serve the skills of a folder, and watch it for changes; ``prefix`` is prepended to the path of each skill.

        Raises:
            ConfigError: there is no such folder.
            ValueError: a resource with the URI of a skill exists already.
        """
        self._use_skills().add_folder(folder, prefix)

    def skill(
        self, path: str, /, *, description: str | None = None, frontmatter: Mapping[str, Any] | None = None
    ) -> Callable[[F], F]:
        """Register a skill with generated text: the decorated function returns the text below the frontmatter.

        The last segment of the path is the skill's name. The default description is the function's docstring;
        ``frontmatter`` has further fields. Such a skill has no digests, so hosts may decline to load it.
        """
        if callable(path):
            raise TypeError('a skill needs its path: @server.skill("reports/daily", description="...")')

        def register(function: F) -> F:
            self._use_skills().add_function(path, function, description, frontmatter or {})
            return function

        return register

    def _use_skills(self) -> SkillService:
        """Return the skill service, created on first use."""
        if self.table.skills is None:
            from trunkline.server.skill_options import load_skills

            self.table.skills = load_skills(self)  # type: ignore[arg-type]
            self._refresh_all()
        return self.table.skills

    def _replace_skills(self, removed: Collection[str], added: Mapping[str, SkillDefinition]) -> None:
        """Register changed skills; clients are notified.

        Raises:
            ValueError: the URI of a skill is taken by another resource, here or where this server is mounted.
        """
        with self._lock:
            self._change(self._own.replacing_skills(removed, added))

    # --- apps --------------------------------------------------------------------------------------------------------

    def app(self, uri: str, /, **options: Unpack[AppKeywords]) -> Callable[[F], F]:
        """Register a function that returns the HTML of a page, as text or as the path of a file.

        Hosts that show pages (MCP Apps) show it with the results of its tools; options as in ``AppKeywords``.
        """
        if callable(uri):
            raise TypeError('a page needs its URI: @server.app("ui://weather/panel")')

        def register(function: F) -> F:
            self.add_app(uri, function, **options)
            return function

        return register

    def add_app(self, uri: str, page: Callable[..., object] | PageSource, **options: Unpack[AppKeywords]) -> None:
        """Register a page: its HTML, the path of a file, or a function that returns either; clients are notified."""
        from trunkline.extensions.apps.pages import add_page

        add_page(self, uri, page, options)  # type: ignore[arg-type]

    def _put_page(self, uri: str, definition: ResourceDefinition, tools: Sequence[Callable[..., Any] | str]) -> None:
        """Add a page and link its tools: the registered ones now, the others when they are registered."""
        with self._lock:
            links, self._app_links = self._app_links, (*self._app_links, *((tool, uri) for tool in tools))
            try:
                changed = {
                    name: linked for name, tool in self._own.tools.items() if (linked := self._linked(tool)) is not tool
                }
                self._put("resources", uri, definition)
            except ValueError:
                self._app_links = links
                raise
            if changed:
                self._change(self._own.replacing_tools(changed))
                self._notify_change(("tools", None))

    def _linked(self, tool: ToolDefinition) -> ToolDefinition:
        """Return a tool linked to the page that names it; the same tool if none does."""
        for named, uri in self._app_links:
            if named == tool.name or named == tool.function.function:
                from trunkline.server.app_options import ToolApp

                app = (tool.app or ToolApp()).linked_to(uri, tool.name)
                tool = tool if app == tool.app else tool.with_app(app)
        return tool

    def _check_apps(self) -> None:
        """Check, before the first connection, that the pages named by tools and the tools named by pages exist.

        Raises:
            ConfigError: one does not exist. Checked only now, since they may be registered in any order.
        """
        if self._apps_checked or not (self.registry.has_apps or self._app_links):
            return
        from trunkline.extensions.apps.pages import check_links

        check_links(self._own, self._app_links)
        for mount in self._mounts:
            mount.server._check_apps()
        self._apps_checked = True

    # --- completion and custom methods -------------------------------------------------------------------------------

    @overload
    def completion(self, function: F, /) -> F: ...
    @overload
    def completion(self, ref: str | None = None, argument: str | None = None, /) -> Callable[[F], F]: ...
    def completion(self, ref: str | F | None = None, argument: str | None = None, /) -> Any:
        """Register a completion for an argument: ``@server.completion("city://{name}", "name")``.

        Without arguments, the function completes everything else; it is called with ``(ref, argument, context)``.
        """
        if ref is None or callable(ref):
            return self._set_fallback_completion(ref) if ref is not None else self._set_fallback_completion
        if argument is None:
            raise TypeError(
                'a completion needs a prompt or template and its argument: @server.completion("ref", "name")'
            )

        def register(function: F) -> F:
            from trunkline.server.prompts import CompletionDefinition

            definition = CompletionDefinition(ref, argument, function, owner=self)  # type: ignore[arg-type]
            self._put("completions", (ref, argument), definition)
            return function

        return register

    def _set_fallback_completion(self, function: F) -> F:
        self.table.fallback_completion = HandlerFunction(function, owner=self, what="the fallback completion")  # type: ignore[arg-type]
        self._refresh()
        return function

    def method(self, name: str, /) -> Callable[[F], F]:
        """Register a custom method, such as ``acme/reindex``; the function's parameters are the members of params."""

        def register(function: F) -> F:
            if name in self.table.custom_methods or any(row.name == name for row in METHODS):
                raise ValueError(f"method {name!r} exists already; choose another name")
            row = Method(
                name=name, kind="request", to_server=ALL_REVISIONS, params=t.RequestParams, result=dict[str, Any]
            )
            self.table.custom_methods[name] = (row, HandlerFunction(function, owner=self, what=f"method {name!r}"))  # type: ignore[arg-type]
            self._methods_changed()
            return function

        return register

    def notification(self, name: str, /) -> Callable[[F], F]:
        """Register a handler for a notification, such as ``notifications/roots/list_changed`` or a custom one."""

        def register(function: F) -> F:
            self.table.notification_handlers[name] = function
            return function

        return register

    # --- scopes ------------------------------------------------------------------------------------------------------

    def require_scopes(self, *, read: str | Sequence[str] = (), write: str | Sequence[str] = ()) -> None:
        """Require scopes for everything offered now and later, in addition to those that a definition requires itself.

        ``write`` applies to every tool that is not marked as read-only (``readOnlyHint``), and to custom methods and
        notifications; ``read`` applies to everything else, and to all of it if ``write`` is not given.
        """
        from trunkline.server.scopes import make_scope_policy

        policy = make_scope_policy(read, write)
        with self._lock:
            self._scope_policies = (*self._scope_policies, policy)
            self._replace(self._flat(self._own, self._mounts))
            self._methods_changed()

    # --- composition -------------------------------------------------------------------------------------------------

    def mount(self, other: Self | str, namespace: Self | str | None = None, *, prefix: str | None = None) -> None:
        """Offer another server's tools, prompts and resources under a namespace; later changes are followed.

        Raises:
            ValueError: two definitions would have the same name.
        """
        if isinstance(other, str):
            other, namespace = namespace, other  # type: ignore[assignment]
        if not isinstance(other, ComponentRegistry):
            raise TypeError(f"mount takes a Server, not a {type(other).__name__}")
        space = prefix if namespace is None else namespace
        from trunkline.server.registry import Mount

        mounts = (*self._mounts, Mount(other, space))  # type: ignore[arg-type]
        with self._lock:
            if other is self or other._has(self):
                raise ValueError("a server cannot be mounted in itself")
            self._replace(self._flat(self._own, mounts))
            self._mounts = mounts
            if self not in other._parents:
                other._parents.append(self)
            self._refresh_all()

    def _has(self, other: ComponentRegistry) -> bool:
        return any(mount.server is other or mount.server._has(other) for mount in self._mounts)

    # --- change ------------------------------------------------------------------------------------------------------

    def changed(self, what: Literal["tools", "prompts", "resources"] | str) -> None:
        """Notify clients that a list, or the resource with this URI, has changed."""
        notice = (what, None) if what in ("tools", "prompts", "resources") else ("resource", what)
        self._notify_change(notice)
        for parent in self._parents:
            for name in parent._names_of(self, what):
                parent.changed(name)

    def _notify_change(self, notice: ChangeNotice) -> None:
        """Notify the clients of every runtime, whatever its event loop; may be called from any thread."""
        logs: set[object] = set()
        for runtime in self._served_by():
            runtime.hub.notify_change(notice, logs)

    def _served_by(self) -> list[ServerRuntime]:
        """Return the runtimes that serve this definition now."""
        return [runtime for runtime in self._known_runtimes() if runtime.definition is self]

    def _known_runtimes(self) -> list[ServerRuntime]:
        """Return the runtimes of this process that serve this definition, or served it until it was replaced."""
        if not self._process.runtimes:
            return []
        with self._lock:
            runtimes = list(self._process.runtimes)
        # Those of the process that this one was forked from have clients that are not ours.
        process = os.getpid()
        return [runtime for runtime in runtimes if runtime.process == process]

    def _names_of(self, child: ComponentRegistry, what: str) -> list[str]:
        """Return the names that a change of a mounted server has here; it may be mounted more than once."""
        if what in ("tools", "prompts", "resources"):
            return [what]
        from trunkline.server.registry import namespaced_uri

        return [namespaced_uri(mount.namespace, what) for mount in self._mounts if mount.server is child]

    def _put(self, kind: str, key: Key, definition: Definition) -> None:
        with self._lock:
            own = self._own
            if key in getattr(own, kind) and self._on_duplicate != "error":
                if self._on_duplicate == "warn":
                    log.warning("%s %r is registered again; the new one is used", kind[:-1], key)
                if self._on_duplicate == "ignore":
                    return
                own = own.removing(kind, key)
            self._change(own.adding(kind, key, definition))

    def _remove(self, kind: str, key: Key) -> None:
        with self._lock:
            self._change(self._own.removing(kind, key))

    def _change(self, own: RegistrySnapshot) -> None:
        self._replace(self._flat(own, self._mounts))
        self._own = own

    def _replace(self, registry: RegistrySnapshot) -> None:
        """Replace the registry, here and wherever this server is mounted, and notify clients of the changes."""
        before, self.registry = self.registry, registry
        try:
            for parent in self._parents:
                parent._child_changed()
        except ValueError:
            # A parent has that name already: undo the change here and in the parents that accepted it.
            self.registry = before
            for parent in self._parents:
                parent._child_changed()
            raise
        if (
            before.needs_scopes != registry.needs_scopes
            or before.has_tasks != registry.has_tasks
            or before.has_apps != registry.has_apps
            or any(bool(getattr(before, table)) != bool(getattr(registry, table)) for table in _TABLES)
        ):
            self._refresh()
        for kind in dict.fromkeys(
            listed for table, listed in _TABLE_LISTS if _differ(getattr(before, table), getattr(registry, table))
        ):
            self._notify_change((kind, None))

    def _flat(self, own: RegistrySnapshot, mounts: tuple[Mount, ...]) -> RegistrySnapshot:
        flat = own
        if mounts:
            from trunkline.server.registry import flatten

            flat = flatten(own, mounts, self.registry.counter + 1)
        if self._scope_policies:
            from trunkline.server.scopes import apply_scope_policies

            flat = apply_scope_policies(flat, self._scope_policies)
        return flat.adding_all("tools", self._task_tools()) if flat.has_tasks else flat

    def _task_tools(self) -> Mapping[str, Definition]:
        """Return the job tools for clients without tasks; not those of mounted servers."""
        return {}

    def _child_changed(self) -> None:
        with self._lock:
            self._replace(self._flat(self._own, self._mounts))

    def _methods_changed(self) -> None:
        """Called when custom methods or their scopes have changed."""

    def _refresh(self) -> None:
        """Called when capabilities, filters, middleware or mounts may have changed."""

    def _refresh_all(self) -> None:
        self._refresh()
        for parent in self._parents:
            parent._refresh_all()

    def _decorate(
        self,
        given: str | F | None,
        options: Mapping[str, object],
        add: Callable[[Callable[..., object], Mapping[str, object]], None],
    ) -> F | Callable[[F], F]:
        if "name_or_fn" in options:
            # The name FastMCP has for the first argument: as a keyword it would do nothing until the result is called.
            options = dict(options)
            given = options.pop("name_or_fn")  # type: ignore[assignment]
        if callable(given):
            add(given, options)
            return given
        if given is not None:
            options = {"name": given, **options}

        def register(function: F) -> F:
            add(function, options)
            return function

        return register


def _differ(before: Mapping[Key, Definition], after: Mapping[Key, Definition]) -> bool:
    """Return whether two tables differ; mounted definitions are copied at every change, but keep their functions."""
    if before is after or len(before) != len(after):
        return before is not after
    return any(key not in after or after[key].function is not each.function for key, each in before.items())

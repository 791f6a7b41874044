"""How a FastMCP server is composed: mounted servers, providers, transforms, middleware, and what is switched off."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from trunkline.compat.components import Component, from_definition
from trunkline.compat.context import current_context
from trunkline.compat.features.extension_host import ExtensionHost
from trunkline.compat.features.state import session_scope
from trunkline.compat.servers import ForeignServer, shelf_of
from trunkline.compat.transforms.base import Visibility, is_enabled, mark, visibility
from trunkline.server.registry import Mount

__all__ = ["ComposedServer", "matcher"]

log = logging.getLogger("fastmcp")


class ComposedServer(ExtensionHost, ForeignServer):
    """A server whose components come from itself and from others, and change on their way out."""

    #: Whether requests are served by the pipeline of objects.
    _piped = False
    local_provider: Any
    foreign_middleware: list[Any]
    _transforms: list[Any]
    _providers: list[Any]
    _provider_lifespans: list[Any]

    # --- composition -------------------------------------------------------------------------------------------------

    def mount(self, server: Any, namespace: Any = None, as_proxy: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """Offer another server's things as one's own, under a namespace.

        Raises:
            ValueError: the server is this one.
        """
        prefix = options.pop("prefix", None)
        names = options.pop("tool_names", None)
        if isinstance(server, str):
            server, namespace = namespace, server
        if not isinstance(server, ForeignServer):
            raise TypeError(f"mount takes a FastMCP server, not a {type(server).__name__}")
        if self.masks_errors and not server.masks_errors:
            log.warning(
                "server %r masks the details of errors and %r, mounted in it, does not: they reach clients",
                self.name,
                server.name,
            )
        from trunkline.compat.providers.mounted import FastMCPProvider

        provider: Any = FastMCPProvider(server)
        if names:
            from trunkline.compat.transformed_tools import ToolTransformConfig
            from trunkline.compat.transforms.base import ToolTransform

            renamed = {old: ToolTransformConfig(name=new) for old, new in names.items()}
            provider = provider.wrap_transform(ToolTransform(renamed))
        self.add_provider(provider, namespace=(namespace if namespace is not None else prefix) or "")

    async def import_server(self, server: Any, prefix: str | None = None, **options: Any) -> None:
        """Offer another server's things as one's own; they stay live."""
        if isinstance(server, str):
            server, prefix = prefix, server
        self.mount(server, prefix)

    def add_provider(self, provider: Any, *, namespace: str = "") -> None:
        """Offer what a provider has, under a namespace if one is given."""
        if isinstance(provider, ForeignServer):
            self.mount(provider, namespace or None)
            return
        self._adopt(provider)
        self._join(provider, namespace)
        if namespace:
            from trunkline.compat.transforms.base import Namespace

            provider = provider.wrap_transform(Namespace(namespace))
        self._providers.append(provider)
        self.use_pipeline()

    def _join(self, provider: Any, namespace: str) -> None:
        """Enter the lifespans of a provider, or of the server behind it, with this server's, and pass on changes."""
        inner = provider
        while hasattr(inner, "provider"):
            inner = inner.provider
        server = getattr(inner, "server", None)
        if not isinstance(server, ForeignServer):
            from trunkline.server.server import _make_lifespan

            self._provider_lifespans.append(_make_lifespan(provider.lifespan))
            return
        if server is self or server._has(self):
            raise ValueError("Cannot mount a server onto itself")
        with self._lock:
            self._mounts = (*self._mounts, Mount(server, namespace or None))
            if self not in server._parents:
                server._parents.append(self)
            self._refresh_all()

    def _flat(self, own: Any, mounts: Any) -> Any:
        """Return what the server itself offers: the pipeline asks mounted servers when it lists."""
        return super()._flat(own, ())

    def _acquire_lifespans(self, holder: object) -> list[Any]:
        if holder in self._held and self._lifespan is None:
            self._freeze()
        held = super()._acquire_lifespans(holder)
        if holder in self._held and self._extension_lifespan not in held:
            self._extension_lifespan.acquire()
            held.append(self._extension_lifespan)
        for server in self._all() if holder in self._held else ():
            for lifespan in getattr(server, "_provider_lifespans", ()):
                if lifespan not in held:
                    lifespan.acquire()
                    held.append(lifespan)
        return held

    def _refresh(self) -> None:
        super()._refresh()
        self.calls_directly = self.calls_directly and not getattr(self, "_provider_lifespans", ())

    def add_transform(self, transform: Any) -> None:
        """Change what is offered on its way out."""
        self._transforms.append(transform)
        self.use_pipeline()

    def add_middleware(self, middleware: Any) -> None:
        """Put a middleware object, or a function of ours, around every request."""
        if not hasattr(middleware, "on_message"):
            super().add_middleware(middleware)
            return
        self.foreign_middleware.append(middleware)
        self.use_pipeline()

    def notification_received(self, event: Any, origin: Any, session: Any) -> None:
        """Handle a notification, inside the middleware."""
        if not self.foreign_middleware:
            super().notification_received(event, origin, session)
            return
        from trunkline.compat.middleware.messages import handle_notification

        handle_notification(self, event, partial(super().notification_received, event, origin, session))

    def use_pipeline(self) -> None:
        """Serve by the pipeline of objects."""
        if not getattr(self, "_ready", False) or self._piped:
            return
        from trunkline.compat.pipeline import use_pipeline

        self._piped = True
        use_pipeline(self)

    def _kept(self, kind: str, stored: str, extras: Any) -> None:
        if extras.get("enabled") is False:
            component = self.object_of(kind, stored, getattr(self._own, kind)[stored])
            self.local_provider.add_transform(Visibility(False, keys={component.key}))
        if "version" in extras or "auth" in extras:
            self.use_pipeline()

    # --- switching on and off ----------------------------------------------------------------------------------------

    def enable(self, *, only: bool = False, **criteria: Any) -> Any:
        """Switch on what matches; with ``only=True`` nothing else."""
        if only:
            self._switch(Visibility(False, match_all=True, components=criteria.get("components")))
        self._switch(visibility(True, criteria))
        return self

    def disable(self, **criteria: Any) -> Any:
        """Switch off what matches."""
        self._switch(visibility(False, criteria))
        return self

    def _switch(self, rule: Visibility) -> None:
        self.add_transform(rule)
        self._refresh()
        for kind in ("tools", "prompts", "resources"):
            self.changed(kind)

    def _tags_filter(self, include: Any, exclude: Any) -> None:
        if include:
            self.enable(only=True, tags=set(include))
        if exclude:
            self.disable(tags=set(exclude))

    def _is_shown(self, caller: Any, definition: Any) -> bool:
        kind = shelf_of(definition)
        key = getattr(definition, "uri", None) or definition.name
        component = self.object_of(kind, key, definition)
        for rule in (*self.local_provider.transforms, *self._transforms):
            if isinstance(rule, Visibility):
                component = rule._mark_component(component)
        return is_enabled(self.marked_for_session(component, getattr(caller, "session", None)))

    def marked_for_session(self, component: Any, session: Any = None) -> Any:
        """Return a component as it is switched for one session: that given, or the one being served."""
        if not self._session_rules:
            return component
        if session is None:
            context = current_context()
            exchange = None if context is None else context._exchange
            session = session_scope(exchange)
        for on, matches in self._rules_for(session):
            if matches(component):
                component = mark(component, on)
        return component


def matcher(criteria: dict[str, Any]) -> Callable[[Any], bool]:
    """Return a function that says whether a definition, or the object that stands for one, is meant."""
    rule = visibility(True, criteria)

    def matches(item: Any) -> bool:
        return rule._matches(item if isinstance(item, Component) else from_definition(item))

    return matches

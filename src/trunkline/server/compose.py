"""Composition: another server's offer as part of one's own, live and flat.

A mounted server is flattened into the parent's registry under a namespace, and again whenever either changes, so a call
costs the same at any depth. What is mounted keeps its owner: its context, its lifespan and its middleware.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from trunkline.server.registry import Definition, Key, Registry

if TYPE_CHECKING:
    from trunkline.server.resources import ResourceDefinition, TemplateDefinition
    from trunkline.server.server import Server

__all__ = ["Mount", "flatten", "namespaced", "namespaced_uri"]


class Mount(Struct, frozen=True):
    """A server inside another, under a namespace."""

    server: Any
    namespace: str | None


def flatten(own: Registry, mounts: tuple[Mount, ...], counter: int) -> Registry:
    """Put everything into one registry.

    Raises:
        ValueError: two things would have one name.
    """
    shelves: dict[str, dict[Any, Any]] = {
        "tools": dict(own.tools),
        "prompts": dict(own.prompts),
        "resources": dict(own.resources),
        "templates": dict(own.templates),
        "completions": dict(own.completions),
    }
    for mount in mounts:
        _add(shelves, mount)
    guarded = own.guarded or any(mount.server.registry.guarded for mount in mounts)
    return Registry(counter, **shelves, guarded=guarded)


def _add(shelves: dict[str, dict[Any, Any]], mount: Mount) -> None:
    child: Registry = mount.server.registry
    space = mount.namespace
    for name, tool in child.tools.items():
        _put(shelves, "tools", namespaced(space, name), _moved(tool, mount.server, name=namespaced(space, name)))
    for name, prompt in child.prompts.items():
        _put(shelves, "prompts", namespaced(space, name), _moved(prompt, mount.server, name=namespaced(space, name)))
    for uri, resource in child.resources.items():
        _put(shelves, "resources", namespaced_uri(space, uri), _readable(resource, mount))
    for uri, template in child.templates.items():
        _put(shelves, "templates", namespaced_uri(space, uri), _readable(template, mount))
    for (ref, argument), completion in child.completions.items():
        moved = namespaced_uri(space, ref) if "://" in ref else namespaced(space, ref)
        _put(shelves, "completions", (moved, argument), _moved(completion, mount.server, ref=moved))


def _put(shelves: dict[str, dict[Any, Any]], kind: str, key: Key, definition: Definition) -> None:
    if key in shelves[kind]:
        raise ValueError(f"mounting would give two {kind} the name {key!r}; choose another namespace")
    shelves[kind][key] = definition


def _moved(definition: Definition, child: Server, **changes: str) -> Any:
    """Copy a definition under a new name; its owner's middleware stays around it."""
    moved = copy.copy(definition)
    moved.owners = (child, *definition.owners)
    moved.source = definition
    for name, value in changes.items():
        setattr(moved, name, value)
    if hasattr(moved, "_listed"):
        moved._listed = None
    return moved


def _readable(definition: ResourceDefinition | TemplateDefinition, mount: Mount) -> Any:
    uri = namespaced_uri(mount.namespace, definition.uri)
    moved = _moved(definition, mount.server, uri=uri)
    return moved.under(uri) if mount.namespace else moved


def namespaced(space: str | None, name: str) -> str:
    """Put a name under a namespace."""
    return f"{space}_{name}" if space else name


def namespaced_uri(space: str | None, uri: str) -> str:
    """Put a URI under a namespace: it becomes the first segment after the scheme."""
    if not space:
        return uri
    scheme, separator, rest = uri.partition("://")
    return f"{scheme}://{space}/{rest}" if separator else f"{space}/{uri}"

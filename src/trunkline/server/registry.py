"""Everything a server offers, as one immutable snapshot that is replaced as a whole on every change, and the.

Flattening of mounted servers into it. A call looks names up in the snapshot it finds, and encoded lists are cached
under the snapshot's counter. A mounted server is flattened again whenever it or its parent changes, so a call costs
the same at any depth; what is mounted keeps its own context, lifespan and middleware.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

__all__ = [
    "EMPTY",
    "Definition",
    "Key",
    "Kind",
    "Listed",
    "Mount",
    "RegistrySnapshot",
    "flatten",
    "namespaced",
    "namespaced_uri",
]

if TYPE_CHECKING:
    from trunkline.server.prompts import CompletionDefinition, PromptDefinition
    from trunkline.server.resources import ResourceDefinition, TemplateDefinition
    from trunkline.server.tools import ToolDefinition


Kind = str
#: What a definition is found by: its name or URI, or for a completion the reference and the argument.
Key: TypeAlias = str | tuple[str, str]
#: Something that is listed: a visibility filter decides about it.
Listed: TypeAlias = "ToolDefinition | PromptDefinition | ResourceDefinition | TemplateDefinition"
#: Something that is registered.
Definition: TypeAlias = "Listed | CompletionDefinition"
_EMPTY_TABLE: Mapping[Any, Any] = MappingProxyType({})


class RegistrySnapshot(Struct, frozen=True):
    """The tools, prompts, resources and completions of a server at one moment."""

    counter: int = 0
    tools: Mapping[str, ToolDefinition] = _EMPTY_TABLE
    prompts: Mapping[str, PromptDefinition] = _EMPTY_TABLE
    resources: Mapping[str, ResourceDefinition] = _EMPTY_TABLE
    templates: Mapping[str, TemplateDefinition] = _EMPTY_TABLE
    completions: Mapping[tuple[str, str], CompletionDefinition] = _EMPTY_TABLE
    #: Whether something may need scopes; once so, it stays so.
    guarded: bool = False

    def adding(self, kind: Kind, key: Key, definition: Definition) -> RegistrySnapshot:
        """Give a registry with one more entry.

        Raises:
            ValueError: the name is taken.
        """
        shelf: Mapping[Any, Any] = getattr(self, kind)
        if key in shelf:
            raise ValueError(f"{kind[:-1]} {key!r} exists already; remove it first or choose another name")
        added = self._with(kind, {**shelf, key: definition})
        return replace(added, guarded=True) if getattr(definition, "scopes", ()) and not self.guarded else added

    def removing(self, kind: Kind, key: Key) -> RegistrySnapshot:
        """Give a registry without one entry.

        Raises:
            KeyError: there is none of that name.
        """
        shelf: Mapping[Any, Any] = getattr(self, kind)
        if key not in shelf:
            raise KeyError(f"no {kind[:-1]} is called {key!r}")
        return self._with(kind, {name: each for name, each in shelf.items() if name != key})

    def _with(self, kind: Kind, shelf: Mapping[Key, Definition]) -> RegistrySnapshot:
        return replace(self, counter=self.counter + 1, **{kind: shelf})


EMPTY = RegistrySnapshot()


if TYPE_CHECKING:
    from trunkline.server.resources import ResourceDefinition, TemplateDefinition
    from trunkline.server.server import Server


class Mount(Struct, frozen=True):
    """A server inside another, under a namespace."""

    server: Any
    namespace: str | None


def flatten(own: RegistrySnapshot, mounts: tuple[Mount, ...], counter: int) -> RegistrySnapshot:
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
    return RegistrySnapshot(counter, **shelves, guarded=guarded)


def _add(shelves: dict[str, dict[Any, Any]], mount: Mount) -> None:
    child: RegistrySnapshot = mount.server.registry
    space = mount.namespace
    for name, tool in child.tools.items():
        _put(shelves, "tools", namespaced(space, name), _renamed_copy(tool, mount.server, name=namespaced(space, name)))
    for name, prompt in child.prompts.items():
        _put(
            shelves,
            "prompts",
            namespaced(space, name),
            _renamed_copy(prompt, mount.server, name=namespaced(space, name)),
        )
    for uri, resource in child.resources.items():
        _put(shelves, "resources", namespaced_uri(space, uri), _mounted_resource(resource, mount))
    for uri, template in child.templates.items():
        _put(shelves, "templates", namespaced_uri(space, uri), _mounted_resource(template, mount))
    for (ref, argument), completion in child.completions.items():
        moved = namespaced_uri(space, ref) if "://" in ref else namespaced(space, ref)
        _put(shelves, "completions", (moved, argument), _renamed_copy(completion, mount.server, ref=moved))


def _put(shelves: dict[str, dict[Any, Any]], kind: str, key: Key, definition: Definition) -> None:
    if key in shelves[kind]:
        raise ValueError(f"mounting would give two {kind} the name {key!r}; choose another namespace")
    shelves[kind][key] = definition


def _renamed_copy(definition: Definition, child: Server, **changes: str) -> Any:
    """Copy a definition under a new name; its owner's middleware stays around it."""
    moved = copy.copy(definition)
    moved.mounted_by = (child, *definition.mounted_by)
    moved.source = definition
    for name, value in changes.items():
        setattr(moved, name, value)
    if hasattr(moved, "_listed"):
        moved._listed = None
    return moved


def _mounted_resource(definition: ResourceDefinition | TemplateDefinition, mount: Mount) -> Any:
    uri = namespaced_uri(mount.namespace, definition.uri)
    moved = _renamed_copy(definition, mount.server, uri=uri)
    return moved.with_uri(uri) if mount.namespace else moved


def namespaced(space: str | None, name: str) -> str:
    """Put a name under a namespace."""
    return f"{space}_{name}" if space else name


def namespaced_uri(space: str | None, uri: str) -> str:
    """Put a URI under a namespace: it becomes the first segment after the scheme."""
    if not space:
        return uri
    scheme, separator, rest = uri.partition("://")
    return f"{scheme}://{space}/{rest}" if separator else f"{space}/{uri}"

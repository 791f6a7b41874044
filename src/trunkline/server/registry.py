"""The registry of a server: one immutable snapshot of its definitions, replaced as a whole on every change.

A call looks names up in the current snapshot, and encoded lists are cached under the snapshot's counter. Mounted
servers are flattened into the snapshot again whenever they or their parent change, so a call costs the same at any
depth; mounted definitions keep their own context, lifespan and middleware.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
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
    from trunkline.server.server import Server
    from trunkline.server.skill_options import SkillDefinition
    from trunkline.server.tools import ToolDefinition


Kind = str
#: The key of a definition: its name or URI, or for a completion the reference and the argument.
Key: TypeAlias = str | tuple[str, str]
#: A definition that is listed, and that a visibility filter may hide.
Listed: TypeAlias = "ToolDefinition | PromptDefinition | ResourceDefinition | TemplateDefinition"
#: A registered definition.
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
    #: The resources that are skills; the same objects as in ``resources``.
    skills: Mapping[str, SkillDefinition] = _EMPTY_TABLE
    #: Whether any definition may need scopes; once True it stays True.
    needs_scopes: bool = False
    #: Whether any tool may run as a task; once True it stays True.
    has_tasks: bool = False
    #: Whether there may be pages, or tools with one; once True it stays True.
    has_apps: bool = False

    def adding(self, kind: Kind, key: Key, definition: Definition) -> RegistrySnapshot:
        """Return a snapshot with one more definition.

        Raises:
            ValueError: the name is taken.
        """
        table: Mapping[Any, Any] = getattr(self, kind)
        if key in table:
            raise ValueError(f"{kind[:-1]} {key!r} exists already; remove it first or choose another name")
        added = self._with(kind, {**table, key: definition})
        if getattr(definition, "task", None) is not None:
            added = replace(added, has_tasks=True)
        if getattr(definition, "app", None) is not None or getattr(definition, "page", None) is not None:
            added = replace(added, has_apps=True)
        return replace(added, needs_scopes=True) if getattr(definition, "scopes", ()) else added

    def replacing_tools(self, changed: Mapping[str, ToolDefinition]) -> RegistrySnapshot:
        """Return a snapshot in which these tools replace those of the same names."""
        tools = {**self.tools, **changed}
        return replace(self, counter=self.counter + 1, tools=tools, has_apps=True)

    def adding_all(self, kind: Kind, definitions: Mapping[str, Definition]) -> RegistrySnapshot:
        """Return a snapshot with additional definitions of the server itself.

        Raises:
            ValueError: a name is taken.
        """
        table: Mapping[Any, Any] = getattr(self, kind)
        for key in definitions:
            if key in table:
                raise ValueError(f"{kind[:-1]} {key!r} is reserved by the server; choose another name")
        return replace(self, **{kind: {**table, **definitions}}) if definitions else self

    def removing(self, kind: Kind, key: Key) -> RegistrySnapshot:
        """Return a snapshot without one definition.

        Raises:
            KeyError: there is no definition of that name.
        """
        table: Mapping[Any, Any] = getattr(self, kind)
        if key not in table:
            raise KeyError(f"there is no {kind[:-1]} {key!r}")
        left = self._with(kind, {name: each for name, each in table.items() if name != key})
        if kind == "resources" and key in self.skills:
            left = replace(left, skills={uri: each for uri, each in self.skills.items() if uri != key})
        return left

    def replacing_skills(self, removed: Collection[str], added: Mapping[str, SkillDefinition]) -> RegistrySnapshot:
        """Return a snapshot in which skills are removed and added; a replaced skill keeps its position.

        Raises:
            ValueError: the URI of a skill is taken by another resource.
        """
        taken = next((uri for uri in added if uri in self.resources and uri not in self.skills), None)
        if taken is not None:
            raise ValueError(f"resource {taken!r} exists already; remove it first, or use a prefix for the skills")
        resources = {uri: added.get(uri, each) for uri, each in self.resources.items() if uri not in removed}
        skills = {uri: added.get(uri, each) for uri, each in self.skills.items() if uri not in removed}
        return replace(self, counter=self.counter + 1, resources={**resources, **added}, skills={**skills, **added})

    def _with(self, kind: Kind, table: Mapping[Key, Definition]) -> RegistrySnapshot:
        return replace(self, counter=self.counter + 1, **{kind: table})


EMPTY = RegistrySnapshot()


class Mount(Struct, frozen=True):
    """A server mounted in another, under a namespace."""

    server: Any
    namespace: str | None


def flatten(own: RegistrySnapshot, mounts: tuple[Mount, ...], counter: int) -> RegistrySnapshot:
    """Return one snapshot of a server's own definitions and those of its mounts.

    Raises:
        ValueError: two definitions would have the same name.
    """
    tables: dict[str, dict[Any, Any]] = {
        "tools": dict(own.tools),
        "prompts": dict(own.prompts),
        "resources": dict(own.resources),
        "templates": dict(own.templates),
        "completions": dict(own.completions),
        "skills": dict(own.skills),
    }
    for mount in mounts:
        _add(tables, mount)
    needs_scopes = own.needs_scopes or any(mount.server.registry.needs_scopes for mount in mounts)
    has_tasks = own.has_tasks or any(mount.server.registry.has_tasks for mount in mounts)
    has_apps = own.has_apps or any(mount.server.registry.has_apps for mount in mounts)
    return RegistrySnapshot(counter, **tables, needs_scopes=needs_scopes, has_tasks=has_tasks, has_apps=has_apps)


def _add(tables: dict[str, dict[Any, Any]], mount: Mount) -> None:
    child: RegistrySnapshot = mount.server.registry
    space = mount.namespace
    for name, tool in child.tools.items():
        if tool.mountable:
            _put(tables, "tools", namespaced(space, name), _mounted_tool(tool, mount))
    for name, prompt in child.prompts.items():
        _put(
            tables,
            "prompts",
            namespaced(space, name),
            _renamed_copy(prompt, mount.server, name=namespaced(space, name)),
        )
    for uri, resource in child.resources.items():
        moved = _mounted_resource(resource, mount)
        _put(tables, "resources", moved.uri, moved)
        if uri in child.skills:
            tables["skills"][moved.uri] = moved
    for uri, template in child.templates.items():
        _put(tables, "templates", namespaced_uri(space, uri), _mounted_resource(template, mount))
    for (ref, argument), completion in child.completions.items():
        name = namespaced_uri(space, ref) if "://" in ref else namespaced(space, ref)
        _put(tables, "completions", (name, argument), _renamed_copy(completion, mount.server, ref=name))


def _put(tables: dict[str, dict[Any, Any]], kind: str, key: Key, definition: Definition) -> None:
    if key in tables[kind]:
        raise ValueError(f"mounting would give two {kind} the name {key!r}; choose another namespace")
    tables[kind][key] = definition


def _renamed_copy(definition: Definition, child: Server, **changes: str) -> Any:
    """Copy a definition under a new name; it still runs inside its own server's middleware."""
    moved = copy.copy(definition)
    moved.mounted_by = (child, *definition.mounted_by)
    moved.source = definition
    for name, value in changes.items():
        setattr(moved, name, value)
    if hasattr(moved, "_listed"):
        moved._listed = None
    return moved


def _mounted_tool(tool: ToolDefinition, mount: Mount) -> Any:
    moved = _renamed_copy(tool, mount.server, name=namespaced(mount.namespace, tool.name))
    app = getattr(tool, "app", None)
    if app is not None and app.uri is not None:
        moved.app = replace(app, uri=namespaced_uri(mount.namespace, app.uri))
    return moved


def _mounted_resource(definition: ResourceDefinition | TemplateDefinition, mount: Mount) -> Any:
    uri = namespaced_uri(mount.namespace, definition.uri)
    moved = _renamed_copy(definition, mount.server, uri=uri)
    return moved.with_uri(uri) if mount.namespace else moved


def namespaced(space: str | None, name: str) -> str:
    """Return a name under a namespace."""
    return f"{space}_{name}" if space else name


def namespaced_uri(space: str | None, uri: str) -> str:
    """Return a URI under a namespace, which becomes the first segment after the scheme."""
    if not space:
        return uri
    scheme, separator, rest = uri.partition("://")
    return f"{scheme}://{space}/{rest}" if separator else f"{space}/{uri}"

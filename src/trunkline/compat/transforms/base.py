"""FastMCP's transforms: what changes tools, prompts and resources between a provider and a client."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from trunkline.compat.component_versions import VersionSpec
from trunkline.server.registry import namespaced, namespaced_uri

__all__ = [
    "GetPromptNext",
    "GetResourceNext",
    "GetResourceTemplateNext",
    "GetToolNext",
    "Namespace",
    "ToolTransform",
    "Transform",
    "VersionFilter",
    "Visibility",
    "is_enabled",
    "mark",
    "visibility",
]


# Names of types that code uses in annotations.
GetToolNext = GetResourceNext = GetResourceTemplateNext = GetPromptNext = Any


class Transform:
    """Changes nothing; subclasses override the lists and the lookups they change."""

    def __repr__(self) -> str:
        """Show the class."""
        return f"{type(self).__name__}()"

    async def list_tools(self, tools: Sequence[Any]) -> Sequence[Any]:
        """Change the list of tools."""
        return tools

    async def get_tool(self, name: str, call_next: Any, *, version: VersionSpec | None = None) -> Any:
        """Change the lookup of a tool."""
        return await call_next(name, version=version)

    async def list_resources(self, resources: Sequence[Any]) -> Sequence[Any]:
        """Change the list of resources."""
        return resources

    async def get_resource(self, uri: str, call_next: Any, *, version: VersionSpec | None = None) -> Any:
        """Change the lookup of a resource."""
        return await call_next(uri, version=version)

    async def list_resource_templates(self, templates: Sequence[Any]) -> Sequence[Any]:
        """Change the list of templates."""
        return templates

    async def get_resource_template(self, uri: str, call_next: Any, *, version: VersionSpec | None = None) -> Any:
        """Change the lookup of a template."""
        return await call_next(uri, version=version)

    async def list_prompts(self, prompts: Sequence[Any]) -> Sequence[Any]:
        """Change the list of prompts."""
        return prompts

    async def get_prompt(self, name: str, call_next: Any, *, version: VersionSpec | None = None) -> Any:
        """Change the lookup of a prompt."""
        return await call_next(name, version=version)


class Namespace(Transform):
    """Puts names and URIs under a namespace."""

    def __init__(self, prefix: str) -> None:
        """Initialize with the namespace."""
        self._prefix = prefix

    def __repr__(self) -> str:
        """Show the namespace."""
        return f"Namespace({self._prefix!r})"

    def _inner(self, name: str) -> str | None:
        start = f"{self._prefix}_"
        return name[len(start) :] if name.startswith(start) else None

    def _inner_uri(self, uri: str) -> str | None:
        scheme, separator, rest = uri.partition("://")
        start = f"{self._prefix}/"
        return f"{scheme}{separator}{rest[len(start) :]}" if rest.startswith(start) else None

    async def list_tools(self, tools: Sequence[Any]) -> Sequence[Any]:
        """Rename the tools."""
        return [each.model_copy(update={"name": namespaced(self._prefix, each.name)}) for each in tools]

    async def get_tool(self, name: str, call_next: Any, *, version: VersionSpec | None = None) -> Any:
        """Look up under the inner name."""
        return await self._found("name", name, self._inner(name), call_next, version)

    async def list_prompts(self, prompts: Sequence[Any]) -> Sequence[Any]:
        """Rename the prompts."""
        return [each.model_copy(update={"name": namespaced(self._prefix, each.name)}) for each in prompts]

    async def get_prompt(self, name: str, call_next: Any, *, version: VersionSpec | None = None) -> Any:
        """Look up under the inner name."""
        return await self._found("name", name, self._inner(name), call_next, version)

    async def list_resources(self, resources: Sequence[Any]) -> Sequence[Any]:
        """Move the resources."""
        return [each.model_copy(update={"uri": namespaced_uri(self._prefix, str(each.uri))}) for each in resources]

    async def get_resource(self, uri: str, call_next: Any, *, version: VersionSpec | None = None) -> Any:
        """Look up under the inner URI."""
        return await self._found("uri", uri, self._inner_uri(uri), call_next, version)

    async def list_resource_templates(self, templates: Sequence[Any]) -> Sequence[Any]:
        """Move the templates."""
        return [
            each.model_copy(update={"uri_template": namespaced_uri(self._prefix, each.uri_template)})
            for each in templates
        ]

    async def get_resource_template(self, uri: str, call_next: Any, *, version: VersionSpec | None = None) -> Any:
        """Look up under the inner URI."""
        inner = self._inner_uri(uri)
        found = None if inner is None else await call_next(inner, version=version)
        if found is None:
            return None
        return found.model_copy(update={"uri_template": namespaced_uri(self._prefix, found.uri_template)})

    @staticmethod
    async def _found(member: str, outer: str, inner: str | None, call_next: Any, version: VersionSpec | None) -> Any:
        found = None if inner is None else await call_next(inner, version=version)
        return None if found is None else found.model_copy(update={member: outer})


# --- visibility ------------------------------------------------------------------------------------------------------


def mark(component: Any, enabled: bool) -> Any:
    """Return a copy that is marked as switched on or off; the mark is never sent."""
    meta = dict(component.meta or {})
    own = dict(meta.get("fastmcp") or {})
    own["_internal"] = {**(own.get("_internal") or {}), "visibility": enabled}
    return component.model_copy(update={"meta": {**meta, "fastmcp": own}})


def is_enabled(component: Any) -> bool:
    """Return whether a component is switched on: the last mark counts."""
    own = (component.meta or {}).get("fastmcp")
    marks = own.get("_internal") if isinstance(own, Mapping) else None
    found = marks.get("visibility") if isinstance(marks, Mapping) else None
    return bool(component.enabled) if found is None else bool(found)


class Visibility(Transform):
    """Marks what matches as switched on or off; the server leaves out what is off in the end.

    All criteria that are given must match; without any, nothing does.
    """

    def __init__(
        self,
        enabled: bool,
        *,
        names: Any = None,
        keys: Any = None,
        version: VersionSpec | None = None,
        tags: Any = None,
        components: Any = None,
        match_all: bool = False,
    ) -> None:
        """Initialize with the criteria."""
        self._enabled = enabled
        self.names = None if names is None else set(names)
        self.keys = None if keys is None else {str(key) for key in keys}
        self.version = version
        self.tags = None if tags is None else set(tags)
        self.components = None if components is None else set(components)
        self.match_all = match_all
        wrong = sorted(key for key in self.keys or () if "@" not in key)
        if wrong:
            warnings.warn(
                f"these keys match nothing because they are missing the '@' version delimiter: {', '.join(wrong)}",
                UserWarning,
                stacklevel=2,
            )

    def __repr__(self) -> str:
        """Show what is switched, and how."""
        shown = ["enable" if self._enabled else "disable"]
        if self.match_all:
            shown.append("match_all=True")
        for name in ("names", "keys", "version", "tags", "components"):
            value = getattr(self, name)
            if value is not None:
                shown.append(f"{name}={value!r}")
        return f"Visibility({', '.join(shown)})"

    def _matches(self, component: Any) -> bool:
        if self.match_all:
            return self.components is None or component.KEY_PREFIX in self.components
        if self.components is not None and component.KEY_PREFIX not in self.components:
            return False
        checks = []
        if self.keys is not None:
            checks.append(component.key in self.keys)
        if self.names is not None:
            checks.append(component.name in self.names or component.identifier in self.names)
        if self.version is not None:
            checks.append(self.version.matches(component.version, match_none=False))
        if self.tags is not None:
            checks.append(bool(self.tags & component.tags))
        return bool(checks) and all(checks)

    def _mark_component(self, component: Any) -> Any:
        return mark(component, self._enabled) if self._matches(component) else component

    async def _marked(self, components: Sequence[Any]) -> Sequence[Any]:
        return [self._mark_component(each) for each in components]

    async def _one(self, key: str, call_next: Any, *, version: VersionSpec | None = None) -> Any:
        found = await call_next(key, version=version)
        return None if found is None else self._mark_component(found)

    list_tools = list_resources = list_resource_templates = list_prompts = _marked  # type: ignore[assignment]
    get_tool = get_resource = get_resource_template = get_prompt = _one  # type: ignore[assignment]


def visibility(enabled: bool, criteria: dict[str, Any]) -> Visibility:
    """Return the transform for the criteria of a caller; without any, everything is meant."""
    given = {name: value for name, value in criteria.items() if value is not None}
    alone = not (given.keys() - {"components"})
    return Visibility(enabled, match_all=alone, **given)


class VersionFilter(Transform):
    """Leaves out versions outside of a range."""

    def __init__(
        self, *, version_gte: str | None = None, version_lt: str | None = None, include_unversioned: bool = True
    ) -> None:
        """Initialize with the range.

        Raises:
            ValueError: there is no bound.
        """
        if version_gte is None and version_lt is None:
            raise ValueError("At least one of version_gte or version_lt must be given")
        self.version_gte, self.version_lt = version_gte, version_lt
        self.include_unversioned = include_unversioned
        self._spec = VersionSpec(gte=version_gte, lt=version_lt)

    def __repr__(self) -> str:
        """Show the range."""
        shown = [
            f"{name}={getattr(self, name)!r}"
            for name in ("version_gte", "version_lt")
            if getattr(self, name) is not None
        ]
        if not self.include_unversioned:
            shown.append("include_unversioned=False")
        return f"VersionFilter({', '.join(shown)})"

    def _is_meant(self, component: Any) -> bool:
        return self._spec.matches(component.version, match_none=self.include_unversioned)

    async def _kept(self, components: Sequence[Any]) -> Sequence[Any]:
        return [each for each in components if self._is_meant(each)]

    async def _one(self, key: str, call_next: Any, *, version: VersionSpec | None = None) -> Any:
        found = await call_next(key, version=self._spec.intersect(version))
        return found if found is not None and self._is_meant(found) else None

    list_tools = list_resources = list_resource_templates = list_prompts = _kept  # type: ignore[assignment]
    get_tool = get_resource = get_resource_template = get_prompt = _one  # type: ignore[assignment]


# --- tools -----------------------------------------------------------------------------------------------------------


class ToolTransform(Transform):
    """Renames and changes tools by their name."""

    def __init__(self, transforms: Mapping[str, Any]) -> None:
        """Initialize with the transformation of each tool.

        Raises:
            ValueError: two tools would have one name.
        """
        self._transforms = dict(transforms)
        self._names: dict[str, str] = {}
        for name, how in self._transforms.items():
            new = str(getattr(how, "name", None) or name)
            if new in self._names:
                raise ValueError(
                    f"ToolTransform has duplicate target name {new!r}: {self._names[new]!r} and {name!r} are given it"
                )
            self._names[new] = name

    def __repr__(self) -> str:
        """Show the names."""
        return f"ToolTransform({', '.join(self._transforms)})"

    async def list_tools(self, tools: Sequence[Any]) -> Sequence[Any]:
        """Change the tools that are named."""
        return [self._transforms[each.name].apply(each) if each.name in self._transforms else each for each in tools]

    async def get_tool(self, name: str, call_next: Any, *, version: VersionSpec | None = None) -> Any:
        """Look up a tool under its new name."""
        inner = self._names.get(name)
        if inner is None:
            return None if name in self._transforms else await call_next(name, version=version)
        found = await call_next(inner, version=version)
        return None if found is None else self._transforms[inner].apply(found)

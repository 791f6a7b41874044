"""FastMCP's providers: sources of tools, prompts and resources beside what a server registers.

A provider lists and finds components; its transforms change them on the way out. What is switched off is only marked
here and left out by the server, so that a server may switch it on again.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from trunkline.compat.component_versions import VersionSpec, newest, version_sort_key
from trunkline.compat.transforms.base import Namespace, Visibility, visibility

__all__ = ["AggregateProvider", "Provider", "WrappedProvider", "supports_tasks"]

log = logging.getLogger("fastmcp")


def _step(find: Any, inner: Any) -> Any:
    async def step(name: str, version: VersionSpec | None = None) -> Any:
        return await find(name, inner, version=version)

    return step


class Provider:
    """Offers nothing; subclasses override ``_list_tools`` and its kin."""

    def __init__(self) -> None:
        """Start without transforms."""
        self._transforms: list[Any] = []

    def __repr__(self) -> str:
        """Show the class."""
        return f"{type(self).__name__}()"

    @property
    def transforms(self) -> list[Any]:
        """The transforms of this provider, first applied first."""
        return list(self._transforms)

    def add_transform(self, transform: Any) -> None:
        """Change what this provider offers."""
        self._transforms.append(transform)

    def wrap_transform(self, transform: Any) -> Provider:
        """Return a provider that offers the same changed; this one stays as it is."""
        return WrappedProvider(self, transform)

    def enable(self, *, only: bool = False, **criteria: Any) -> Any:
        """Switch on what matches; with ``only=True`` nothing else."""
        if only:
            self.add_transform(Visibility(False, match_all=True, components=criteria.get("components")))
        self.add_transform(visibility(True, criteria))
        return self

    def disable(self, **criteria: Any) -> Any:
        """Switch off what matches."""
        self.add_transform(visibility(False, criteria))
        return self

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Entered while a server with this provider runs."""
        yield

    def required_extensions(self) -> Sequence[Any]:
        """Return the extensions that a server with this provider needs."""
        return ()

    # --- what subclasses override ------------------------------------------------------------------------------------

    async def _list_tools(self) -> Sequence[Any]:
        return []

    async def _list_resources(self) -> Sequence[Any]:
        return []

    async def _list_resource_templates(self) -> Sequence[Any]:
        return []

    async def _list_prompts(self) -> Sequence[Any]:
        return []

    async def _get_tool(self, name: str, version: VersionSpec | None = None) -> Any:
        return newest([each for each in await self._list_tools() if each.name == name], version)

    async def _get_resource(self, uri: str, version: VersionSpec | None = None) -> Any:
        return newest([each for each in await self._list_resources() if str(each.uri) == uri], version)

    async def _get_resource_template(self, uri: str, version: VersionSpec | None = None) -> Any:
        return matching_template(await self._list_resource_templates(), uri, version)

    async def _get_prompt(self, name: str, version: VersionSpec | None = None) -> Any:
        return newest([each for each in await self._list_prompts() if each.name == name], version)

    # --- with the transforms -----------------------------------------------------------------------------------------

    async def _listed(self, kind: str) -> Sequence[Any]:
        items: Sequence[Any] = await getattr(self, f"_list_{kind}")()
        for transform in self.transforms:
            items = await getattr(transform, f"list_{kind}")(items)
        return items

    async def _found(self, kind: str, key: str, version: VersionSpec | None) -> Any:
        inner = getattr(self, f"_get_{kind}")

        async def own(name: str, version: VersionSpec | None = None) -> Any:
            return await inner(name, version)

        chain: Any = own
        for transform in self.transforms:
            chain = _step(getattr(transform, f"get_{kind}"), chain)
        return await chain(key, version=version)

    async def list_tools(self) -> Sequence[Any]:
        """List the tools, marked where they are switched off."""
        return await self._listed("tools")

    async def list_resources(self) -> Sequence[Any]:
        """List the resources."""
        return await self._listed("resources")

    async def list_resource_templates(self) -> Sequence[Any]:
        """List the templates."""
        return await self._listed("resource_templates")

    async def list_prompts(self) -> Sequence[Any]:
        """List the prompts."""
        return await self._listed("prompts")

    async def get_tool(self, name: str, version: VersionSpec | None = None) -> Any:
        """Return a tool, or None."""
        return await self._found("tool", name, version)

    async def get_resource(self, uri: str, version: VersionSpec | None = None) -> Any:
        """Return a resource, or None."""
        return await self._found("resource", uri, version)

    async def get_resource_template(self, uri: str, version: VersionSpec | None = None) -> Any:
        """Return the template of a URI, or None."""
        return await self._found("resource_template", uri, version)

    async def get_prompt(self, name: str, version: VersionSpec | None = None) -> Any:
        """Return a prompt, or None."""
        return await self._found("prompt", name, version)

    async def get_tasks(self) -> Sequence[Any]:
        """Return the components that may run as tasks."""
        lists = [
            await self.list_tools(),
            await self.list_resources(),
            await self.list_resource_templates(),
            await self.list_prompts(),
        ]
        return [each for listed in lists for each in listed if supports_tasks(each)]


def supports_tasks(component: Any) -> bool:
    """Return whether a component may run as a task."""
    config = component.task_config
    return config is not None and config.supports_tasks()


def matching_template(templates: Sequence[Any], uri: str, version: VersionSpec | None = None) -> Any:
    """Return the newest template with this URI template, or else that matches a URI; None if there is none."""
    exact = newest([each for each in templates if each.uri_template == uri], version)
    return exact or newest([each for each in templates if each.matches(uri) is not None], version)


class WrappedProvider(Provider):
    """Another provider with one more transform."""

    def __init__(self, provider: Any, transform: Any) -> None:
        """Initialize with the provider, which stays as it is."""
        super().__init__()
        self.provider = provider
        self.add_transform(transform)

    @property
    def _inner(self) -> Any:
        return self.provider

    def __repr__(self) -> str:
        """Show both."""
        return f"{type(self).__name__}({self.provider!r}, {self._transforms})"

    async def _list_tools(self) -> Sequence[Any]:
        found: Sequence[Any] = await self.provider.list_tools()
        return found

    async def _list_resources(self) -> Sequence[Any]:
        found: Sequence[Any] = await self.provider.list_resources()
        return found

    async def _list_resource_templates(self) -> Sequence[Any]:
        found: Sequence[Any] = await self.provider.list_resource_templates()
        return found

    async def _list_prompts(self) -> Sequence[Any]:
        found: Sequence[Any] = await self.provider.list_prompts()
        return found

    async def _get_tool(self, name: str, version: VersionSpec | None = None) -> Any:
        return await self.provider.get_tool(name, version)

    async def _get_resource(self, uri: str, version: VersionSpec | None = None) -> Any:
        return await self.provider.get_resource(uri, version)

    async def _get_resource_template(self, uri: str, version: VersionSpec | None = None) -> Any:
        return await self.provider.get_resource_template(uri, version)

    async def _get_prompt(self, name: str, version: VersionSpec | None = None) -> Any:
        return await self.provider.get_prompt(name, version)

    def required_extensions(self) -> Sequence[Any]:
        """Return those of the inner provider."""
        found: Sequence[Any] = self.provider.required_extensions()
        return found

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Enter the inner provider's."""
        async with self.provider.lifespan():
            yield


class AggregateProvider(Provider):
    """Several providers as one: the lists one after another, the newest version of what more than one has."""

    def __init__(self, providers: Sequence[Any] | None = None, *, provider_error_strategy: str = "warn") -> None:
        """Initialize with the providers; one that fails is left out, or raises with ``"raise"``."""
        super().__init__()
        self.providers: list[Any] = [_as_provider(each) for each in providers or ()]
        #: The running servers that this provider belongs to.
        self._extension_scopes: list[Any] = []
        self.provider_error_strategy = provider_error_strategy

    def __repr__(self) -> str:
        """Show the providers."""
        return f"{type(self).__name__}(providers={self.providers})"

    def add_provider(self, provider: Any, *, namespace: str = "") -> None:
        """Add a provider, under a namespace if one is given.

        Raises:
            RuntimeError: it needs an extension that a running server has not.
        """
        from trunkline.compat.features.extension_host import check_scopes

        provider = _as_provider(provider)
        check_scopes(self, provider.required_extensions())
        self.providers.append(provider.wrap_transform(Namespace(namespace)) if namespace else provider)
        for scope in self._extension_scopes:
            scope.cover(provider)

    def required_extensions(self) -> Sequence[Any]:
        """Return those of all providers."""
        return [each for provider in self.providers for each in provider.required_extensions()]

    async def _every(self, verb: str) -> Sequence[Any]:
        return await list_from(self.providers, verb, self.provider_error_strategy)

    async def _any(self, verb: str, key: str, version: VersionSpec | None) -> Any:
        return await find_in(self.providers, verb, key, version, self.provider_error_strategy)

    async def _list_tools(self) -> Sequence[Any]:
        return await self._every("list_tools")

    async def _list_resources(self) -> Sequence[Any]:
        return await self._every("list_resources")

    async def _list_resource_templates(self) -> Sequence[Any]:
        return await self._every("list_resource_templates")

    async def _list_prompts(self) -> Sequence[Any]:
        return await self._every("list_prompts")

    async def _get_tool(self, name: str, version: VersionSpec | None = None) -> Any:
        return await self._any("get_tool", name, version)

    async def _get_resource(self, uri: str, version: VersionSpec | None = None) -> Any:
        return await self._any("get_resource", uri, version)

    async def _get_resource_template(self, uri: str, version: VersionSpec | None = None) -> Any:
        return await self._any("get_resource_template", uri, version)

    async def _get_prompt(self, name: str, version: VersionSpec | None = None) -> Any:
        return await self._any("get_prompt", name, version)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Enter those of all providers."""
        from trunkline.compat.features.extension_host import open_scope

        async with AsyncExitStack() as stack:
            scope = open_scope(self)
            if scope is not None:
                stack.callback(scope.close)
            for provider in list(self.providers):
                await stack.enter_async_context(provider.lifespan())
            yield


def _as_provider(given: Any) -> Any:
    """Return a provider: a server is one of what it offers."""
    from trunkline.server.server import Server

    if not isinstance(given, Server):
        return given
    from trunkline.compat.providers.mounted import FastMCPProvider

    return FastMCPProvider(given)


async def list_from(providers: Sequence[Any], verb: str, on_error: str = "warn") -> list[Any]:
    """Return what all providers list, one after another."""
    found: list[Any] = []
    for provider in providers:
        try:
            found += await getattr(provider, verb)()
        except Exception as error:
            if on_error == "raise":
                raise
            log.warning("Error during %s from provider %s: %s", verb, provider, error)
    return found


async def find_in(
    providers: Sequence[Any], verb: str, key: str, version: VersionSpec | None, on_error: str = "warn"
) -> Any:
    """Return the newest version that a provider has; of equal ones, the first provider's."""
    best: Any = None
    for provider in providers:
        try:
            found = await getattr(provider, verb)(key, version)
        except Exception as error:
            if on_error == "raise" or _is_denial(error):
                raise
            log.debug("Error during %s from provider %s: %s", verb, provider, error)
            continue
        if found is not None and (best is None or version_sort_key(found) > version_sort_key(best)):
            best = found
    return best


def _is_denial(error: Exception) -> bool:
    from trunkline.compat.exceptions import AuthorizationError

    return isinstance(error, AuthorizationError)

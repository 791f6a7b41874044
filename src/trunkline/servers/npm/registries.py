"""The registries of one server: which one a package comes from, and how long their connections stay open.

Registries set by the user are kept as long as the server runs. Those named by a project are closed with the call, so
that no project can keep many of them open.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from trunkline.errors import ConfigError, ToolError
from trunkline.servers.npm.registry import Registry
from trunkline.servers.npm.settings import Layers, Place, Settings

__all__ = ["Chosen", "Registries"]


class Chosen:
    """The registries of one call."""

    def __init__(self, settings: Settings, folder: Path | None, kept: dict[Place, Registry]) -> None:
        """Initialize with the settings, and the folder of the project if there is one."""
        self._settings = settings
        self._folder = folder
        self._kept = kept
        self._own: dict[Place, Registry] = {}
        self._layers: Layers | None = None

    def of(self, package: str | None = None) -> Registry:
        """Return the registry of a package, or the default one without a package.

        Raises:
            ToolError: the configured registry cannot be used.
        """
        if self._layers is None:
            self._layers = self._settings.read(self._folder)
        place = self._layers.place(package)
        shelf = self._own if place.foreign else self._kept
        if place not in shelf:
            try:
                shelf[place] = Registry(place.url, token=place.token)
            except ConfigError as error:
                raise ToolError(str(error)) from error
        return shelf[place]

    async def aclose(self) -> None:
        """Close the registries named by a project."""
        for registry in self._own.values():
            await registry.aclose()


class Registries:
    """The registries of one server."""

    def __init__(self, settings: Settings) -> None:
        """Start without connections."""
        self._settings = settings
        self._kept: dict[Place, Registry] = {}

    @asynccontextmanager
    async def chosen(self, folder: Path | None = None) -> AsyncIterator[Chosen]:
        """Provide the registries for one call, for the project in a folder if there is one."""
        chosen = Chosen(self._settings, folder, self._kept)
        try:
            yield chosen
        finally:
            await chosen.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        # A call that is still running may add one.
        for registry in list(self._kept.values()):
            await registry.aclose()

"""The registries of one server: which of them a package is asked of, and how long their connections stay open.

Those that the user set are kept as long as the server runs. Those that a project named are closed with the call, so
that no project can have many of them kept.
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
    """The registries as one call sees them."""

    def __init__(self, settings: Settings, folder: Path | None, kept: dict[Place, Registry]) -> None:
        """Look at the settings of the user and, if there is a folder, of the project in it."""
        self._settings = settings
        self._folder = folder
        self._kept = kept
        self._own: dict[Place, Registry] = {}
        self._layers: Layers | None = None

    def of(self, package: str | None = None) -> Registry:
        """Give the registry of a package, or the one that is asked for what has no package.

        Raises:
            ToolError: what is set cannot be used.
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
        """Close those that a project named."""
        for registry in self._own.values():
            await registry.aclose()


class Registries:
    """The registries of one server."""

    def __init__(self, settings: Settings) -> None:
        """Start with none open."""
        self._settings = settings
        self._kept: dict[Place, Registry] = {}

    @asynccontextmanager
    async def chosen(self, folder: Path | None = None) -> AsyncIterator[Chosen]:
        """Have the registries for one call, about the project in a folder if there is one."""
        chosen = Chosen(self._settings, folder, self._kept)
        try:
            yield chosen
        finally:
            await chosen.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        # A call that still runs may add one meanwhile.
        for registry in list(self._kept.values()):
            await registry.aclose()

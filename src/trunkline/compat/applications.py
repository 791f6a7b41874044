"""The application class of FastMCP's servers, and a mounted application."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.routing import Mount

__all__ = ["StarletteWithLifespan", "WholeMount"]


class StarletteWithLifespan(Starlette):
    """An application whose lifespan another one can run, which it must if it mounts this one."""

    @property
    def lifespan(self) -> Any:
        """The lifespan."""
        return self.router.lifespan_context


class WholeMount(Mount):
    """A mounted application that also serves its path without a slash at the end, instead of a redirect to one.

    Clients of the oldest transport are told that path, and not all of them follow redirects of a POST.
    """

    def matches(self, scope: Any) -> Any:
        """Return whether a request is meant, and what is added to its scope."""
        if scope["type"] == "http" and scope["path"] == f"{scope.get('root_path', '')}{self.path}":
            scope = {**scope, "path": f"{scope['path']}/"}
        return super().matches(scope)

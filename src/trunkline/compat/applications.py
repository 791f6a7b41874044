"""The application class of FastMCP's servers."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette

__all__ = ["StarletteWithLifespan"]


class StarletteWithLifespan(Starlette):
    """An application whose lifespan another one can run, which it must if it mounts this one."""

    @property
    def lifespan(self) -> Any:
        """The lifespan."""
        return self.router.lifespan_context

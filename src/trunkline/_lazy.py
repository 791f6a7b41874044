"""Public names that are loaded on first access (PEP 562): the machinery that the public packages share.

A package imports its public names under ``TYPE_CHECKING``, which is what type checkers and editors read, and passes the
same names to ``lazy_exports``, by the module that defines them. This module itself imports nothing before a name is
used, because every program that uses Trunkline loads it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = ["lazy_exports"]


def lazy_exports(
    package: str, names: Mapping[str, tuple[str, ...]], *present: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: The ``__name__`` of the package.
        names: By module: the public names it defines.
        present: The names that the package has already.
    """

    def load(name: str) -> Any:
        """Load a public name on first access."""
        for module, defined in names.items():
            if name in defined:
                import sys
                from importlib import import_module

                value = getattr(import_module(module), name)
                setattr(sys.modules[package], name, value)
                return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def public_names() -> list[str]:
        """List the public names."""
        return sorted({*present, *(name for defined in names.values() for name in defined)})

    return load, public_names

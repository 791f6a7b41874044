"""Puts modules of this package in the place of ``mcp``, ``mcp_types`` and ``fastmcp``, in this process only.

A finder at the front of ``sys.meta_path`` answers for these names; nothing on disk changes. Each module is thin: it
looks a name up in the table of ``surface`` and imports the adapter that has it. A name that is not in the table is an
``ImportError`` that says what to use instead.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from trunkline_compat.surface import absent_reason, find_name, is_module, names_of
from trunkline_compat.versions import PACKAGES, STATE

__all__ = ["CompatFinder", "install", "uninstall"]


class _Module(ModuleType):
    """A module whose names are looked up when they are first used."""

    def __getattr__(self, name: str) -> Any:
        module = self.__name__
        if name == "__version__":
            return STATE.version(PACKAGES.get(module, module))
        if name.startswith("__"):
            raise AttributeError(name)
        home = find_name(module, name)
        if home is not None:
            value = getattr(importlib.import_module(f"trunkline_compat.{home[0]}"), home[1])
            self.__dict__[name] = value
            return value
        if is_module(f"{module}.{name}"):
            return importlib.import_module(f"{module}.{name}")
        raise AttributeError(absent_reason(f"{module}.{name}"))

    def __setattr__(self, name: str, value: Any) -> None:
        # ``fastmcp.tools.tool`` is a module and, in the package, a decorator: importing one must not hide the other.
        if not (isinstance(value, _Module) and find_name(self.__name__, name)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted(names_of(self.__name__))


class _CompatLoader(Loader):
    """Creates the module for a foreign name."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Create the module."""
        module = _Module(spec.name, f"{spec.name}, adapted to Trunkline.")
        module.__file__ = __file__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Set the names that ``import *`` imports."""
        module.__all__ = dir(module)  # type: ignore[attr-defined]


class CompatFinder(MetaPathFinder):
    """Answers for the replaced packages, and refuses what they have and we lack."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Return a spec for a replaced module.

        Raises:
            ModuleNotFoundError: the package is replaced, and this module of it is not there.
        """
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        if not is_module(fullname):
            # Without a name: with one, `from package import name` would replace the message by one of its own.
            raise ModuleNotFoundError(absent_reason(fullname))
        spec = ModuleSpec(fullname, _CompatLoader(), origin="trunkline_compat", is_package=True)
        # Where such a package would be: code that asks for the folder of a package gets one, and nothing is in it.
        spec.submodule_search_locations = [os.path.join(os.path.dirname(__file__), *fullname.split("."))]
        return spec

    @staticmethod
    def find_distributions(context: Any = None) -> Sequence[metadata.Distribution]:
        """Return the distributions that the replaced packages belong to, where they are not installed."""
        name: str = getattr(context, "name", None) or ""
        version = STATE.version(name.lower().replace("_", "-")) if name and STATE.installed else None
        return () if version is None else (_NamedDistribution(name, version),)


class _NamedDistribution(metadata.Distribution):
    """A distribution that is only a name and a version."""

    def __init__(self, name: str, version: str) -> None:
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

    def read_text(self, filename: str) -> str | None:
        """Return the metadata; there is nothing else."""
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        """Return the path as it is: there are no files."""
        return path


def install(*, mcp: str | None = None, fastmcp: str | None = None) -> None:
    """Resolve ``import mcp`` and ``import fastmcp`` to Trunkline in this process.

    Raises:
        ImportError: a real package is imported already: two families of types in one process would not know each
            other.
    """
    if STATE.installed:
        return
    for name in PACKAGES:
        if name in sys.modules:
            raise ImportError(
                f"{name} is imported already; call trunkline_compat.install() before the first import of it", name=name
            )
    STATE.choose({"mcp": mcp, "mcp-types": mcp, "fastmcp": fastmcp})
    sys.meta_path.insert(0, CompatFinder())
    STATE.installed = True


def uninstall() -> None:
    """Resolve the import names to what is on disk again, for the tests."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, CompatFinder)]
    for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
        del sys.modules[name]
    STATE.installed = STATE.started = False

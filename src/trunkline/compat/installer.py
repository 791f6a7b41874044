"""Puts our modules in the place of ``mcp``, ``mcp_types`` and ``fastmcp``, in this process only.

A finder at the front of ``sys.meta_path`` answers for these names; nothing on disk changes. Each module is thin: it
looks a name up in the table and imports the module of ours that has it. A name that is not in the table is an
``ImportError`` with the name. The real packages must not have been imported before: two families of types in one
process would not know each other.
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

from trunkline.compat.names import ALL_TYPES, MODULES, find_name, is_module
from trunkline.compat.versions import PACKAGES, STATE

__all__ = ["CompatFinder", "install", "uninstall"]


class _Module(ModuleType):
    """A module whose names are looked up when they are first used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__version__",):
            raise AttributeError(name)
        module = self.__name__
        if name == "__version__":
            return STATE.version(PACKAGES.get(module, module))
        found = find_name(module, name)
        if found is None and is_module(f"{module}.{name}"):
            return importlib.import_module(f"{module}.{name}")
        if found is None:
            raise AttributeError(f"trunkline.compat has no {module}.{name}; see docs/migrating.md for what it has")
        home, ours = found
        return getattr(importlib.import_module(f"trunkline.compat.{home}"), ours)

    def __setattr__(self, name: str, value: Any) -> None:
        found = None if name.startswith("__") else find_name(self.__name__, name)
        if found is None:
            super().__setattr__(name, value)
        # ``fastmcp.tools.tool`` is a module and, in the package, a decorator: importing one must not hide the other.
        elif not isinstance(value, _Module):
            # A program that replaces a name of a module means the code behind it, so ours is replaced.
            home = importlib.import_module(f"trunkline.compat.{found[0]}")
            STATE.replaced.setdefault(found, getattr(home, found[1]))
            setattr(home, found[1], value)

    def __delattr__(self, name: str) -> None:
        found = None if name in self.__dict__ else find_name(self.__name__, name)
        if found is None:
            super().__delattr__(name)
        elif found in STATE.replaced:
            # What a program put in the place of a name is gone; what was there before is there again.
            setattr(importlib.import_module(f"trunkline.compat.{found[0]}"), found[1], STATE.replaced.pop(found))
        else:
            raise AttributeError(name)

    def __dir__(self) -> list[str]:
        names: set[str] = set()
        for line in MODULES.get(self.__name__, ()):
            if line == ALL_TYPES:
                from trunkline.compat.types import known_names

                names.update(known_names())
            else:
                names.update(each.partition("=")[0] for each in line.partition(": ")[2].split())
        return sorted(names)


class _CompatLoader(Loader):
    """Makes a module of ours for a foreign name."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make the module."""
        module = _Module(spec.name, f"{spec.name} as trunkline.compat has it.")
        module.__file__ = __file__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Set the names that ``import *`` imports."""
        if not any(line == ALL_TYPES for line in MODULES.get(module.__name__, ())):
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
            raise ModuleNotFoundError(
                f"No module named {fullname!r} under trunkline.compat; see docs/migrating.md for what it has",
                name=fullname,
            )
        spec = ModuleSpec(fullname, _CompatLoader(), origin="trunkline.compat", is_package=True)
        # Where such a package would be; code that asks for the folder of a package gets one, and nothing is in it.
        spec.submodule_search_locations = [os.path.join(os.path.dirname(__file__), *fullname.split("."))]
        return spec

    @staticmethod
    def find_distributions(context: Any = None) -> Sequence[metadata.Distribution]:
        """Return the distributions that the replaced packages belong to, where they are not installed."""
        name = getattr(context, "name", None)
        if name is None:
            return ()
        wanted = name.lower().replace("_", "-")
        version = STATE.version(wanted) if STATE.installed else None
        return () if version is None else (_CompatDistribution(wanted, version),)


class _CompatDistribution(metadata.Distribution):
    """A distribution that is only a name and a version."""

    def __init__(self, name: str, version: str) -> None:
        self._name, self._version = name, version

    def read_text(self, filename: str) -> str | None:
        """Return the metadata; there is nothing else."""
        if filename != "METADATA":
            return None
        return f"Metadata-Version: 2.1\nName: {self._name}\nVersion: {self._version}\n"

    def locate_file(self, path: Any) -> Any:
        """Return the path as it is: there are no files."""
        return path


def install(*, mcp: str | None = None, fastmcp: str | None = None) -> None:
    """Resolve ``import mcp`` and ``import fastmcp`` to Trunkline in this process.

    ``mcp`` and ``fastmcp`` are the versions that the process is told; by default those that are installed.

    Raises:
        ImportError: a real package is imported already.
    """
    if STATE.installed:
        return
    real = sorted(name for name in PACKAGES if name in sys.modules)
    if real:
        raise ImportError(
            f"{', '.join(real)} was imported before trunkline.compat.install(); call it first, or run the server with: "
            "trunkline run --compat"
        )
    STATE.choose({"mcp": mcp, "fastmcp": fastmcp, "mcp-types": mcp})
    sys.meta_path.insert(0, CompatFinder())
    STATE.installed = True


def uninstall() -> None:
    """Undo ``install``: for tests; modules that were imported meanwhile are forgotten."""
    sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, CompatFinder)]
    for name in [each for each in sys.modules if each.partition(".")[0] in PACKAGES]:
        del sys.modules[name]
    STATE.installed = False

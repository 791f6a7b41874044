"""Which names of the frameworks published servers import: ``python -m compat.tests.imports FILE``.

Reads the sources of every server in ``.compat/servers`` (its own package, not its dependencies) and writes a table: the
name, how many servers import it, in how many only inside ``try`` or for the type checker, and which.
"""

from __future__ import annotations

import argparse
import ast
import csv
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from compat.tests.catalog import SERVERS, WITH_US_ONLY
from compat.tests.environments import COMPAT

__all__ = ["PACKAGES", "Use", "format_table", "main", "uses_of"]

#: The packages that compat stands in for.
PACKAGES = ("fastmcp", "mcp", "mcp_types")


class Use(NamedTuple):
    """A name of a framework that a module uses."""

    name: str
    #: ``import`` for an import statement, ``attribute`` for an attribute of what was imported.
    kind: str
    #: Whether the program runs without it: an import inside ``try``, or one for the type checker.
    is_guarded: bool


def uses_of(source: str) -> Iterator[Use]:
    """Yield the names of the frameworks that a module imports, and the attributes it uses of them."""
    tree = ast.parse(source)
    guarded = _guarded_nodes(tree)
    path_by_alias: dict[str, str] = {}
    for node in ast.walk(tree):
        for path, alias in _imported(node):
            yield Use(path, "import", id(node) in guarded)
            path_by_alias[alias] = path
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            attribute = _attribute_path(node, path_by_alias)
            if attribute is not None:
                yield Use(attribute, "attribute", False)


def _guarded_nodes(tree: ast.AST) -> set[int]:
    guarded: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            for statement in node.body:
                guarded.update(id(inner) for inner in ast.walk(statement))
    return guarded


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the dotted path of each imported name, and the name it is bound to."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if _is_foreign(alias.name):
                # ``import mcp.types`` binds ``mcp``; attributes of it are written out in full.
                yield alias.name, alias.asname or alias.name.partition(".")[0]
    elif isinstance(node, ast.ImportFrom) and not node.level and node.module and _is_foreign(node.module):
        for alias in node.names:
            yield f"{node.module}.{alias.name}", alias.asname or alias.name


def _is_foreign(module: str) -> bool:
    return module.partition(".")[0] in PACKAGES


def _attribute_path(node: ast.Attribute, path_by_alias: Mapping[str, str]) -> str | None:
    """Return the path of an attribute of something imported: ``mcp.types.Tool`` for ``types.Tool``."""
    names = [node.attr]
    value = node.value
    while isinstance(value, ast.Attribute):
        names.append(value.attr)
        value = value.value
    if not isinstance(value, ast.Name) or value.id not in path_by_alias:
        return None
    path = path_by_alias[value.id]
    root = path.partition(".")[0] if value.id == path.partition(".")[0] else path
    return ".".join([root, *reversed(names)])


def _distributions(requirements: Sequence[str]) -> list[str]:
    """Return the distributions whose code is the server's: not the framework, and not what it is built on."""
    names = [requirement.partition("==")[0] for requirement in requirements]
    return [name for name in names if name.replace("-", "_") not in (*PACKAGES, "pydantic")]


def _package_files(environment: Path, distributions: Iterable[str]) -> Iterator[Path]:
    """Yield the modules of distributions in an environment, their tests left out."""
    wanted = {name.replace("-", "_").replace(".", "_").lower() for name in distributions}
    for site_packages in environment.glob("lib/python*/site-packages"):
        for info in site_packages.glob("*.dist-info"):
            name = info.name.removesuffix(".dist-info").rpartition("-")[0]
            if name.replace("-", "_").replace(".", "_").lower() not in wanted:
                continue
            with (info / "RECORD").open(encoding="utf-8", newline="") as record:
                for path, *_ in csv.reader(record):
                    if path.endswith(".py") and "tests/" not in path and not path.startswith(".."):
                        yield site_packages / path


def collect(environments: Iterable[tuple[str, Path, Sequence[str]]]) -> dict[tuple[str, str], dict[str, bool]]:
    """Return for each kind and name the servers that use it, and whether each uses it only guarded.

    An environment is the name of a server, its folder, and the distributions that are the server's.
    """
    servers_by_use: dict[tuple[str, str], dict[str, bool]] = {}
    for server, environment, distributions in environments:
        for path in _package_files(environment, distributions):
            try:
                uses = list(uses_of(path.read_text(encoding="utf-8", errors="replace")))
            except SyntaxError as error:
                sys.stderr.write(f"{path} cannot be read: {error}\n")
                continue
            for use in uses:
                servers = servers_by_use.setdefault((use.kind, use.name), {})
                servers[server] = servers.get(server, True) and use.is_guarded
    return servers_by_use


def format_table(servers_by_use: Mapping[tuple[str, str], Mapping[str, bool]]) -> str:
    """Return the table: the most used names first, imports before attributes."""
    lines = []
    for kind, title in (("import", "imported names"), ("attribute", "attributes of imported names")):
        rows = sorted(
            ((name, servers) for (use_kind, name), servers in servers_by_use.items() if use_kind == kind),
            key=lambda row: (-len(row[1]), row[0]),
        )
        lines.append(f"# {title}: {len(rows)}; servers, of these guarded, name, the servers")
        lines += [
            f"{len(servers):4} {sum(servers.values()):4}  {name:70} {', '.join(sorted(servers))}"
            for name, servers in rows
        ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table; return 1 if no server is installed."""
    parser = argparse.ArgumentParser(prog="python -m compat.tests.imports", description=__doc__)
    parser.add_argument("file", type=Path, help="where the table is written")
    options = parser.parse_args(arguments)
    folder = COMPAT / "servers"
    known = {server.name: server for server in (*SERVERS, *WITH_US_ONLY)}
    installed = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.exists() else []
    if not installed:
        sys.stderr.write("no server is installed: run `make compat-servers` first\n")
        return 1
    table = collect(
        (name, folder / name, _distributions(known[name].requirements if name in known else (name,)))
        for name in installed
    )
    missing = sorted(known.keys() - set(installed))
    head = f"# {len(installed)} servers" + (f"; not installed: {', '.join(missing)}" if missing else "")
    options.file.write_text(f"{head}\n{format_table(table)}", encoding="utf-8")
    imported = sum(kind == "import" for kind, _ in table)
    sys.stdout.write(f"{len(installed)} servers import {imported} names; the table is in {options.file}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

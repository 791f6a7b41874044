"""What a developer runs every few minutes: ``make test FAST=1``.

Lint of the changed files, types by mypy's daemon, and the tests that are nearest to the change: first those that import
a changed module, then those of the modules that import it, and so on, until the time is up. What was left out is said.

The change is what differs from ``BASE`` (a git revision, default: the last commit), with the files that git does not
know yet.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 70.0
FILES = 120
"""At most so many test files: collecting takes time too."""
_END = "FAST_TESTS_END"
_SOURCES = ("src", "servers/src", "compat/src")
_TESTS = ("tests", "servers/tests", "compat/tests")
_ALONE = ("tests/interop/", "tests/browser/")
"""Tests with targets of their own."""


def main() -> int:
    """Run the checks; return the exit code."""
    started = time.time()
    changed = changed_files(os.environ.get("BASE") or "HEAD")
    python = [path for path in changed if path.endswith(".py") and (ROOT / path).exists()]
    print(f"{len(changed)} changed files, {len(python)} of them Python", flush=True)  # noqa: T201
    if python and (_run("ruff", "check", "--quiet", *python) or _run("ruff", "format", "--check", "--quiet", *python)):
        return 1
    if python and _run("dmypy", "run", "--timeout", "3600", "--", "--no-error-summary"):
        return 1
    files = nearest_tests(changed)
    if not files:
        print("No test is near the change.")  # noqa: T201
        return 0
    if files[FILES:]:
        print(f"{len(files[FILES:])} test files further away are not run, from {files[FILES]} on")  # noqa: T201
    # The daemon takes longer when it starts; the tests get their share all the same.
    environment = {**os.environ, _END: str(max(started + SECONDS, time.time() + 30))}
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(1 + (os.cpu_count() or 1)), "--dist", "load"]
    return subprocess.run(
        [*command, "-m", "not slow", "-p", "tests.fast", *files[:FILES]], cwd=ROOT, env=environment
    ).returncode


def changed_files(base: str) -> list[str]:
    """Return the files that differ from a revision, and those that git does not know yet."""
    names: set[str] = set()
    for command in (["diff", "--name-only", base], ["ls-files", "--others", "--exclude-standard"]):
        names.update(
            subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
        )
    return sorted(names)


def nearest_tests(changed: list[str]) -> list[str]:
    """Return the test files that depend on a changed file, the nearest first."""
    files = dict(_modules())
    trees = {module: ast.parse((ROOT / path).read_bytes()) for module, path in files.items()}
    packages = {module for module, path in files.items() if path.endswith("__init__.py")}
    homes = {
        (package, alias.name): node.module
        for package in packages
        for node in ast.walk(trees[package])
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }
    importers = defaultdict(set)
    for module in files.keys() - packages:  # a package's list of names would make everything depend on everything
        for name in _imports(trees[module], homes):
            importers[name].add(module)
    distance = {module: 0 for module, path in files.items() if path in changed}
    queue = list(distance)
    for module in queue:  # grows while it is read: breadth first
        for importer in importers[module] - distance.keys():
            distance[importer] = distance[module] + 1
            queue.append(importer)
    tests = [files[module] for module in sorted(distance, key=lambda module: (distance[module], module))]
    return [path for path in tests if Path(path).name.startswith("test_") and not path.startswith(_ALONE)]


def _modules() -> Iterator[tuple[str, str]]:
    """Yield dotted name and path of every module."""
    for folder in (*_SOURCES, *_TESTS):
        top = ROOT / folder if folder in _SOURCES else ROOT
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(top).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path.relative_to(ROOT).as_posix()


def _imports(tree: ast.Module, homes: Mapping[tuple[str, str], str]) -> Iterator[str]:
    """Yield what a module imports, inside functions too; a name that a package exports stands for its home."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                home: str | None = node.module
                while home is not None:
                    yield home
                    yield f"{home}.{alias.name}"
                    home = homes.get((home, alias.name))


def _run(program: str, *arguments: str) -> int:
    print(f"== {program} {arguments[0]}", flush=True)  # noqa: T201
    return subprocess.run([str(Path(sys.executable).with_name(program)), *arguments], cwd=ROOT).returncode


# --- a pytest plug-in: keep the order, stop when the time is up ------------------------------------------------------


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Restore the order of the files: the nearest first."""
    order = {(ROOT / argument).resolve(): index for index, argument in enumerate(config.args)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what would start after the end."""
    if time.time() > float(os.environ[_END]):
        pytest.skip("the time is up")


if __name__ == "__main__":
    sys.exit(main())

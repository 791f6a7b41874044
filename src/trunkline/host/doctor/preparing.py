"""Checks what can be known before a server is started or contacted: entry, variables, approval, secrets, program.

It reads the loaded configuration and looks for files; it runs nothing. Secrets are looked up only after the server is
known to be approved.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from trunkline.errors import ConfigError, LinkError
from trunkline.host.config.records import Input, Provenance
from trunkline.host.doctor.checks import Sheet
from trunkline.host.entries import Scope, ServerEntry
from trunkline.host.sandbox.machine import Capabilities
from trunkline.host.secrecy.filling import Read, fill
from trunkline.host.trust.book import TrustBook
from trunkline.host.trust.commands import basename
from trunkline.host.trust.warnings import warnings_for
from trunkline.transports.launch import find_program, server_environment

__all__ = ["check_approval", "check_entry", "check_program", "check_sandboxes", "fill_secrets"]

_INSTALL: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("npx", "npm", "node"), "install Node.js, which includes it"),
        **dict.fromkeys(("uvx", "uv"), "install uv, which includes it"),
        **dict.fromkeys(("docker", "podman"), "install it, or start the server another way"),
        **dict.fromkeys(("bunx", "bun"), "install Bun, which includes it"),
        "python": "on many systems it is called python3; or use the full path of the Python in your environment",
    }
)
_TRUSTED: Mapping[Scope, str] = MappingProxyType(
    {
        "project": "you approved it",
        "user": "it is in your own configuration",
        "given": "you gave it on the command line",
        "managed": "your administrator configured it",
    }
)
_FETCHING = frozenset({"npx", "bunx", "pnpx", "uvx", "pipx"})


def check_entry(sheet: Sheet, entry: ServerEntry, written: Provenance) -> bool:
    """Check the configuration entry of a server; return False if going on makes no sense."""
    _check_variables(sheet, written)
    if entry.problem is not None:
        sheet.fail("config", entry.problem, fix=_fix_of(written))
        return False
    if entry.disabled:
        sheet.skip("config", f"disabled in {entry.source}; enable it to check it")
        return False
    if not sheet.failed:
        sheet.ok("config", f"read from {entry.source}" if entry.source.file else "given on the command line")
    return not sheet.failed


def _fix_of(written: Provenance) -> str | None:
    return next((problem.fix for problem in written.problems if problem.fix), None)


def _check_variables(sheet: Sheet, written: Provenance) -> None:
    found = {each.name: each for value in written.values for each in value.variables}
    unset = [each.name for each in found.values() if each.kind == "variable" and each.state == "unset"]
    asked = [each.name for each in found.values() if each.kind == "input" and each.state == "unanswered"]
    if unset:
        sheet.fail("variables", f"not set: {', '.join(unset)}", fix=f"run: export {unset[0]}=...")
    if asked:
        variable = Input(id=asked[0]).variable
        sheet.fail("variables", f"no value: {', '.join(asked)}", fix=f"run this in a terminal, or set {variable}")
    elif found and not unset:
        sheet.ok("variables", f"all set: {', '.join(found)}")


async def check_approval(sheet: Sheet, entry: ServerEntry, book: TrustBook) -> bool:
    """Check the approval of a server; return True if it may run."""
    allowed, reason = await book.check(entry)
    if allowed:
        sheet.ok("trust", _TRUSTED[entry.source.scope])
    else:
        why, _, command = (reason or "it is not approved").partition("; run: ")
        sheet.fail("trust", f"not started or contacted: {why}", fix=f"run: {command}" if command else None)
    return allowed


async def fill_secrets(sheet: Sheet, entry: ServerEntry, read: Read) -> ServerEntry | None:
    """Return the entry with its secrets filled in; None if one is missing."""
    if not entry.sealed:
        return entry
    try:
        filled = await fill(entry, read)
    except ConfigError as error:
        sheet.fail("secrets", str(error), fix="run: trunkline secret set NAME")
        return None
    sheet.ok("secrets", "all found")
    return filled


def check_program(sheet: Sheet, entry: ServerEntry, *, seconds: float, home: Path | None = None) -> bool:
    """Check the program of a server; return True if it can be started."""
    words = entry.command or ("",)
    name = basename(words[0])
    if entry.cwd is not None and not os.path.isdir(entry.cwd):
        sheet.fail("folder", f"there is no directory {entry.cwd}", fix="create it, or correct cwd")
        return False
    try:
        path = find_program(words[0], server_environment(entry.env), cwd=entry.cwd)
    except LinkError as error:
        sheet.fail("command", str(error), fix=_INSTALL.get(name, "use its full path, or install it"))
        return False
    sheet.ok("command", path)
    package = _package(words[1:]) if name in _FETCHING else None
    if package is not None and not (name == "npx" and _is_there(package, home or Path.home())):
        sheet.warn(
            "package",
            f"{package} may have to be downloaded on first start, within the start timeout of {seconds:g} s",
            fix='run the command once manually, or increase "startTimeout" in its entry',
        )
    # A command given on the command line needs no warnings about its contents.
    for warning in warnings_for(entry) if entry.source.file else ():
        sheet.warn("warnings", f"it {warning}", fix="make sure that this is intended")
    return True


def _package(words: tuple[str, ...]) -> str | None:
    return next((word for word in words if not word.startswith("-")), None)


def _is_there(package: str, home: Path) -> bool:
    """Return True if npx has the package in its cache."""
    name = package if "@" not in package[1:] else package[: package.rindex("@")]
    return any((home / ".npm" / "_npx").glob(f"*/node_modules/{name}/package.json")) if _is_plain(name) else False


def _is_plain(name: str) -> bool:
    return not set(name) & set("*?[]") and ".." not in name


def check_sandboxes(sheet: Sheet, able: Capabilities) -> None:
    """Record which sandboxes this machine supports."""
    if able.kinds:
        sheet.ok("sandbox", f"available: {', '.join(able.kinds)}")
    else:
        reasons = "; ".join(able.findings())
        sheet.warn("sandbox", f"not available: {reasons}", fix="servers run with all your permissions")

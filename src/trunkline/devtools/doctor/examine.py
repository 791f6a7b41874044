"""Examines one server.

Runs the checks in order (entry, variables, approval, secrets, program, network, login, connection, definitions) and
stops where going on makes no sense. Approvals, logins and secrets are passed in by the caller. A server that is not
approved is neither started nor contacted, and its secrets are not looked up.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from trunkline.devtools.doctor.checks import Check, CheckRecorder, Diagnosis, lint, token_cost
from trunkline.devtools.doctor.connection import check_connection
from trunkline.errors import AuthError, ConfigError, LinkError
from trunkline.host.config.model import InputVariable, Provenance, Scope, ServerEntry
from trunkline.host.integrity.fingerprints import program_name
from trunkline.host.integrity.trust import TrustStore, warnings_for
from trunkline.host.sandbox.backends import Capabilities
from trunkline.host.secrets.resolve import ReadSecret, resolve_secrets
from trunkline.host.upstreams.supervision.clients import StoredLogins, make_client, start_timeout
from trunkline.transports.process import find_program, server_environment

if TYPE_CHECKING:
    from trunkline.host.sandbox.launch import LaunchPlan

__all__ = [
    "DoctorEnvironment",
    "check_approval",
    "check_entry",
    "check_program",
    "check_sandboxes",
    "examine",
    "examine_machine",
    "fill_secrets",
]

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


def check_entry(recorder: CheckRecorder, entry: ServerEntry, written: Provenance) -> bool:
    """Check the configuration entry of a server; return False if going on makes no sense."""
    _check_variables(recorder, written)
    if entry.problem is not None:
        fix = _fix_of(written)
        recorder.fail("config", entry.problem.removesuffix(f"; {fix}"), fix=fix)
        return False
    if entry.disabled:
        recorder.skip("config", f"disabled in {entry.source}; enable it to check it")
        return False
    if not recorder.failed:
        recorder.ok("config", f"read from {entry.source}" if entry.source.file else "given on the command line")
    return not recorder.failed


def _fix_of(written: Provenance) -> str | None:
    return next((problem.fix for problem in written.problems if problem.fix), None)


def _check_variables(recorder: CheckRecorder, written: Provenance) -> None:
    found = {each.name: each for value in written.values for each in value.variables}
    unset = [each.name for each in found.values() if each.kind == "variable" and each.state == "unset"]
    asked = [each.name for each in found.values() if each.kind == "input" and each.state == "unanswered"]
    if unset:
        recorder.fail("variables", f"not set: {', '.join(unset)}", fix=f"run: export {unset[0]}=...")
    if asked:
        variable = InputVariable(id=asked[0]).variable
        recorder.fail("variables", f"no value: {', '.join(asked)}", fix=f"run this in a terminal, or set {variable}")
    elif found and not unset:
        recorder.ok("variables", f"all set: {', '.join(found)}")


async def check_approval(recorder: CheckRecorder, entry: ServerEntry, trust_store: TrustStore) -> bool:
    """Check the approval of a server; return True if it may run."""
    allowed, reason = await trust_store.check(entry)
    if allowed:
        recorder.ok("trust", _TRUSTED[entry.source.scope])
    else:
        why, _, command = (reason or "it is not approved").partition("; run: ")
        recorder.fail("trust", f"not started or contacted: {why}", fix=f"run: {command}" if command else None)
    return allowed


async def fill_secrets(recorder: CheckRecorder, entry: ServerEntry, read: ReadSecret) -> ServerEntry | None:
    """Return the entry with its secrets filled in; None if one is missing."""
    if not entry.sealed:
        return entry
    try:
        filled = await resolve_secrets(entry, read)
    except ConfigError as error:
        recorder.fail("secrets", str(error), fix="run: trunkline secret set NAME")
        return None
    recorder.ok("secrets", "all found")
    return filled


def check_program(recorder: CheckRecorder, entry: ServerEntry, *, seconds: float, home: Path | None = None) -> bool:
    """Check the program of a server; return True if it can be started."""
    words = entry.command or ("",)
    name = program_name(words[0])
    if entry.cwd is not None and not os.path.isdir(entry.cwd):
        recorder.fail("folder", f"there is no directory {entry.cwd}", fix="create it, or correct cwd")
        return False
    try:
        path = find_program(words[0], server_environment(entry.env), cwd=entry.cwd)
    except LinkError as error:
        recorder.fail("command", str(error), fix=_INSTALL.get(name, "use its full path, or install it"))
        return False
    recorder.ok("command", path)
    package = _package(words[1:]) if name in _FETCHING else None
    if package is not None and not (name == "npx" and _is_cached(package, home or Path.home())):
        recorder.warn(
            "package",
            f"{package} may have to be downloaded on first start, within the start timeout of {seconds:g} s",
            fix='run the command once manually, or increase "startTimeout" in its entry',
        )
    # A command given on the command line needs no warnings about its contents.
    for warning in warnings_for(entry) if entry.source.file else ():
        recorder.warn("warnings", f"it {warning}", fix="make sure that this is intended")
    return True


def _package(words: tuple[str, ...]) -> str | None:
    return next((word for word in words if not word.startswith("-")), None)


def _is_cached(package: str, home: Path) -> bool:
    """Return True if npx has the package in its cache."""
    name = package if "@" not in package[1:] else package[: package.rindex("@")]
    return any((home / ".npm" / "_npx").glob(f"*/node_modules/{name}/package.json")) if _is_plain(name) else False


def _is_plain(name: str) -> bool:
    return not set(name) & set("*?[]") and ".." not in name


def check_sandboxes(recorder: CheckRecorder, capabilities: Capabilities) -> None:
    """Record which sandboxes this machine supports."""
    if capabilities.kinds:
        recorder.ok("sandbox", f"available: {', '.join(capabilities.kinds)}")
    else:
        reasons = "; ".join(capabilities.findings())
        recorder.warn("sandbox", f"not available: {reasons}", fix="servers run with all your permissions")


_STEP_SECONDS = 10.0  # Each step is one request that a sound server answers in milliseconds.
_LIST_SECONDS = 30.0  # A list may have many pages.
_NOTHING = Provenance()


class DoctorEnvironment(Struct, frozen=True, kw_only=True):
    """What the checks may use."""

    trust_store: TrustStore
    logins: StoredLogins
    #: Looks up a secret of the user.
    secret: ReadSecret
    #: Seconds for each step; None for the defaults.
    seconds: float | None = None
    ca_file: str | None = None
    #: Additional options for the client.
    options: Mapping[str, Any] = {}


async def examine(entry: ServerEntry, environment: DoctorEnvironment, *, written: Provenance = _NOTHING) -> Diagnosis:
    """Run all checks on a server."""
    recorder = CheckRecorder(entry.redact)
    tokens = await _run_checks(recorder, _timed(entry, environment), environment, written)
    return Diagnosis(
        name=entry.name,
        # A broken entry may have no command; a valid one without command and URL is a server object in this process.
        target=entry.shown if entry.problem is None or entry.command or entry.url else "(no command or URL)",
        source=str(entry.source) if entry.source.file else None,
        checks=recorder.checks,
        tokens=tokens,
    )


async def examine_machine() -> tuple[Check, ...]:
    """Run the checks on this machine, which concern all servers."""
    from trunkline.host.sandbox.backends import detect_capabilities

    recorder = CheckRecorder()
    check_sandboxes(recorder, await asyncio.to_thread(detect_capabilities))
    return recorder.checks


def _timed(entry: ServerEntry, environment: DoctorEnvironment) -> ServerEntry:
    if environment.seconds is None:
        return entry
    settings = replace(entry.settings, start_timeout=environment.seconds, timeout=environment.seconds)
    return replace(entry, settings=settings)


async def _run_checks(
    recorder: CheckRecorder, entry: ServerEntry, environment: DoctorEnvironment, written: Provenance
) -> int | None:
    if not check_entry(recorder, entry, written) or not await check_approval(recorder, entry, environment.trust_store):
        recorder.skip("handshake", "not tried: the server was not started")
        return None
    filled = await fill_secrets(recorder, entry, environment.secret)
    if filled is None:
        recorder.skip("handshake", "not tried: the server was not started")
        return None
    recorder.hide = filled.redact
    if filled.command is not None and not check_program(recorder, filled, seconds=start_timeout(filled)):
        recorder.skip("handshake", "not tried: the server cannot be started")
        return None
    if filled.url is not None and not await _check_remote(recorder, filled, environment):
        recorder.skip("handshake", "not tried: the server cannot be reached or used")
        return None
    return await _check_connection(recorder, filled, environment)


async def _check_remote(recorder: CheckRecorder, entry: ServerEntry, environment: DoctorEnvironment) -> bool:
    from trunkline.devtools.doctor.remote import check_login, check_network

    assert entry.url is not None
    seconds = _STEP_SECONDS if environment.seconds is None else environment.seconds
    answer = await check_network(
        recorder,
        entry.url,
        headers=entry.headers,
        ca_file=environment.ca_file,
        sse=entry.type == "sse",
        seconds=seconds,
    )
    if answer is None:
        return False
    return await check_login(recorder, entry, answer, logins=environment.logins, ca_file=environment.ca_file)


async def _check_connection(recorder: CheckRecorder, entry: ServerEntry, environment: DoctorEnvironment) -> int | None:
    options, login = dict(environment.options), ""
    try:
        auth = None
        if entry.url is not None:
            from trunkline.devtools.doctor.remote import login_command

            login = login_command(entry)
            auth = await environment.logins.find(entry)
            options |= {"ca_file": environment.ca_file}
        client = make_client(entry, options, auth=auth, on_launch=lambda launch: _record_sandbox(recorder, launch))
    except ConfigError as error:
        recorder.fail("config", str(error))
        return None
    except AuthError as error:
        recorder.fail("login", str(error), fix=f"run: {login}")
        return None
    seconds = _LIST_SECONDS if environment.seconds is None else environment.seconds
    offering = await check_connection(recorder, client, process=entry.command is not None, seconds=seconds, login=login)
    if offering is None:
        return None
    lint(recorder, offering)
    return token_cost(offering)


def _record_sandbox(recorder: CheckRecorder, launch: LaunchPlan) -> None:
    """Record the result of sandboxing the server, and what it can reach."""
    if launch.remark is not None:
        recorder.warn("sandbox", "; ".join(filter(None, (launch.remark, launch.reach))))
    else:
        recorder.ok("sandbox", f"runs in the sandbox that its entry asks for ({launch.made}): {launch.reach}")

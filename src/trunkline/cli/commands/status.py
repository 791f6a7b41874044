"""``trunkline status``: shows the state of each configured server, and the reason.

Without ``--check`` nothing is started: the status comes from the configuration, the approvals, and the catalog of each
server's last run. With it, approved servers are started, examined and stopped; others never are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.exit_codes import Exit
from trunkline.cli.options import config_option, json_option, timeout_option, with_json_errors

if TYPE_CHECKING:
    from trunkline.cli.host_session import ResolvedInputs
    from trunkline.host.config.model import ConfigProblem, Configuration, ServerEntry
    from trunkline.host.events import DefinitionInspected, ServerState
    from trunkline.host.upstreams.catalog.catalog import Catalog
    from trunkline.host.upstreams.catalog.items import Offering
    from trunkline.host.upstreams.supervision.upstream import ServerStatus

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline status
  trunkline status -c mcp.json --check
  trunkline status -c mcp.json --json

Without -c, servers are read from mcp.json, .mcp.json, .vscode/mcp.json or .cursor/mcp.json in the current directory,
then from your own mcp.json. Only items that can be used are counted.

Exit codes: 2 if a server is misconfigured; with --check also 4 if a server does not run, 3 if one needs a login, 5 if
one failed to return a list.
"""
_WIDTH = 80  # The usual width of a terminal.
_CHECK_SECONDS = 30.0  # Servers started through npx or uvx may download their package first.
_HEADINGS = ("NAME", "STATE", "REVISION", "TOOLS", "PROMPTS", "RESOURCES")
#: The style of each state; of all others, a warning.
_STYLES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("ready",), "ok"),
        **dict.fromkeys(("broken", "misconfigured", "stopped"), "fail"),
        **dict.fromkeys(("disabled", "not started"), "dim"),
    }
)
#: The exit code by the states found; the first match counts.
_EXITS: Mapping[Exit, frozenset[str]] = MappingProxyType(
    {
        Exit.CONFIG: frozenset({"misconfigured"}),
        Exit.UNREACHABLE: frozenset({"starting", "waiting", "broken", "stopped"}),
        Exit.AUTH: frozenset({"needs login"}),
        Exit.FAILED: frozenset({"partial"}),
    }
)


@click.command(epilog=_EPILOG)
@config_option
@click.option("--check", is_flag=True, help="Start the approved servers and check them.")
@click.option("--gateway", "file", metavar="FILE", help="Gateway file whose approval modes are shown.")
@timeout_option("With --check: seconds to wait for the servers. Default: 30.")
@json_option
def command(*, config: tuple[str, ...], check: bool, file: str | None, timeout: float | None, as_json: bool) -> int:
    """Show the status of the configured servers.

    For each server: its state and the reason, its protocol era, how many items it offers, and where it is configured.
    Below the servers: the approval mode that trunkline serve would use; with --gateway, that of the file and of each
    of its profiles.
    """
    from trunkline.cli.gateway_options import (
        approval_status_line,
        approval_summary,
        default_serve_approval,
        profile_approvals,
        profile_status_lines,
    )
    from trunkline.cli.ui.output import print_json, print_notice, print_painted
    from trunkline.protocol.printable import printable

    if timeout is not None and not check:
        raise click.UsageError("--timeout needs --check.")
    statuses, problems, changes = with_json_errors(lambda: _look(config, _seconds(timeout) if check else None), as_json)
    mode = with_json_errors(lambda: default_serve_approval(file), as_json)
    profiles = with_json_errors(lambda: profile_approvals(file, mode), as_json)
    if as_json:
        hidden = [each for each in changes if each.what == "hidden"]
        changed = [each for each in changes if each.what != "hidden"]
        approval = {"mode": mode, "meaning": approval_summary(mode), "profiles": profiles}
        print_json(
            {"servers": statuses, "problems": problems, "changed": changed, "hidden": hidden, "approval": approval}
        )
    elif statuses:
        print_painted("\n".join(_lines(statuses, changes)))
        print_painted(printable("\n".join([approval_status_line(mode), *profile_status_lines(profiles)])))
    for problem in problems if not as_json else ():
        print_notice(str(problem))
    for closed in changes if not as_json else ():
        if closed.what == "closed":
            print_notice(closed.reason)
    if not statuses and not problems and not as_json:
        print_notice("no servers configured; give a file with -c, or create an mcp.json here")
    if any(problem.severity == "error" for problem in problems):
        return Exit.CONFIG
    found = {status.state for status in statuses}
    return next((code for code, states in _EXITS.items() if found & states), Exit.OK)


def _seconds(timeout: float | None) -> float:
    return _CHECK_SECONDS if timeout is None else timeout


def _look(
    files: Sequence[str], seconds: float | None
) -> tuple[list[ServerStatus], list[ConfigProblem], list[DefinitionInspected]]:
    """Return statuses, configuration problems and changed definitions; with ``seconds`` None, nothing is started.

    Raises:
        ConfigError: a file given with ``--config`` cannot be used.
    """
    from trunkline.cli.host_session import load_cli_configuration, resolve_inputs

    configuration = load_cli_configuration(files)
    if seconds is not None:
        return asyncio.run(_checked(files, resolve_inputs(configuration), seconds))
    statuses, hidden = asyncio.run(_resting(configuration))
    hidden_keys = {(each.server, each.kind, each.name) for each in hidden}
    stored = _stored_changes(configuration.entries.values())
    changes = [each for each in stored if (each.server, each.kind, each.name) not in hidden_keys]
    return statuses, list(configuration.problems), [*changes, *hidden]


async def _checked(
    files: Sequence[str], resolved: ResolvedInputs, seconds: float
) -> tuple[list[ServerStatus], list[ConfigProblem], list[DefinitionInspected]]:
    from trunkline.cli.first_start import host_of_listed

    async with host_of_listed(files, resolved, seconds) as host:
        changes = [each for each in host.inspected() if each.what in ("changed", "hidden")]
        return host.status(), list(host.configuration.problems), changes


async def _resting(configuration: Configuration) -> tuple[list[ServerStatus], list[DefinitionInspected]]:
    """Return the status of servers without starting them, and which of their cached definitions the scan hides.

    Raises:
        ConfigError: the policy cannot be read.
    """
    from trunkline.host.assembly import in_project_folder, policy_of, trust_file
    from trunkline.host.authorization.authorizer import usable_counts, with_usable_counts
    from trunkline.host.integrity.trust import TrustStore
    from trunkline.host.state_files import state_folder
    from trunkline.host.upstreams.catalog.catalog import CatalogCache, build_catalog

    folder = state_folder()
    trust_store, cache = TrustStore(trust_file(folder)), CatalogCache(folder / "catalogs")
    entries = [in_project_folder(entry) for entry in configuration.entries.values()]
    found = [await _stored_status(entry, trust_store, cache) for entry in entries]
    offerings = {status.name: offering for status, offering in found if offering is not None}
    catalog = build_catalog(offerings, {entry.name: entry.settings for entry in entries}, counter=0)
    catalog, hidden = _reviewed(catalog, {entry.name: entry for entry in entries})
    counts = usable_counts(catalog, policy_of({}, configuration))
    return [with_usable_counts(status, counts.get(status.name, {})) for status, _ in found], hidden


def _reviewed(catalog: Catalog, entries: Mapping[str, ServerEntry]) -> tuple[Catalog, list[DefinitionInspected]]:
    """Return a catalog without what a host would hide, and the definitions the scan hides; nothing is written."""
    from trunkline.errors import ConfigError
    from trunkline.host.integrity.pins.inspector import Inspector
    from trunkline.host.integrity.pins.store import PinStore
    from trunkline.host.state_files import state_folder

    pin_store = PinStore(state_folder() / "pins.json")
    try:
        pin_store.servers()
    except ConfigError:
        # It is reported with the changes, which are read from the same file.
        return catalog, []
    inspector = Inspector(pin_store, entry_of=entries.get)
    return inspector(catalog), [each for each in inspector.lasting if each.what == "hidden"]


async def _stored_status(entry: ServerEntry, trust_store: Any, cache: Any) -> tuple[ServerStatus, Offering | None]:
    """Return the status of a server that is not started, and its cached offering if it may be used."""
    from msgspec.structs import replace

    from trunkline.host.upstreams.supervision.upstream import ServerStatus

    state: ServerState = "known"
    reason, offering = entry.problem, None
    if entry.disabled or entry.problem is not None:
        state = "disabled" if entry.disabled else "misconfigured"
    else:
        allowed, reason = await trust_store.check(entry)
        state = "known" if allowed else "unapproved"
        offering = cache.get(entry) if allowed else None
        offering = None if offering is None else replace(offering, recalled=True)
        if allowed:
            reason = (
                "it has not been run yet, so its tools are not known"
                if offering is None
                else "counts are from its last run"
            )
    status = ServerStatus(
        name=entry.name,
        state=state,
        reason=reason,
        era=None if offering is None else offering.revision or None,
        pid=None,
        url=None if entry.url is None else entry.shown,
        tools=0 if offering is None else len(offering.tools),
        prompts=0 if offering is None else len(offering.prompts),
        resources=0 if offering is None else len(offering.resources) + len(offering.templates),
        last_error=None,
        restarts=0,
        since=time.time(),
        source=str(entry.source),
        command=entry.shown,
    )
    return status, offering


def _stored_changes(entries: Iterable[ServerEntry]) -> Iterator[DefinitionInspected]:
    """Yield the changes found when the servers were last listed, or why the pins cannot be read."""
    from trunkline.errors import ConfigError
    from trunkline.host.assembly import in_project_folder
    from trunkline.host.events import DefinitionInspected
    from trunkline.host.integrity.pins.store import PinStore, endpoint_identity
    from trunkline.host.integrity.pins.views import describe_change
    from trunkline.host.state_files import state_folder

    try:
        records = {(record.name, record.key): record for record in PinStore(state_folder() / "pins.json").servers()}
    except ConfigError as error:
        yield DefinitionInspected("", "pins", "", "closed", str(error))
        return
    for entry in map(in_project_folder, entries):
        held = entry.problem is None and not entry.disabled and entry.settings.pins != "off"
        record = records.get((entry.name, endpoint_identity(entry)[0])) if held else None
        for pin in [] if record is None else record.pins:
            if pin.drift is not None and pin.gone_since is None:
                hidden = pin.drift.blocked or pin.kind == "instructions" or entry.settings.pins == "strict"
                told = describe_change(entry.name, pin, hidden=hidden)
                yield DefinitionInspected(entry.name, pin.kind, pin.name, "changed", told)


# --- for people ------------------------------------------------------------------------------------------------------


def _lines(statuses: Sequence[ServerStatus], changes: Sequence[DefinitionInspected]) -> Iterator[str]:
    from trunkline.cli.ui.output import change_lines, one_line, paint, table

    rows = [(status.name, _state(status), status.era or "-", *_counts(status)) for status in statuses]
    heading, *lines = table(_HEADINGS, rows).splitlines()
    yield paint(heading, "heading")
    at = heading.index(_HEADINGS[1])
    for status, line in zip(statuses, lines, strict=True):
        state = _state(status)
        yield line[:at] + paint(state, _STYLES.get(state, "warn")) + line[at + len(state) :]
        for detail in (*_details(status), *change_lines(each for each in changes if each.server == status.name)):
            yield from _wrapped(one_line(detail))


def _state(status: ServerStatus) -> str:
    return "not started" if status.state == "known" else status.state


def _counts(status: ServerStatus) -> tuple[str, ...]:
    if status.era is None:
        return "-", "-", "-"
    return str(status.tools), str(status.prompts), str(status.resources)


def _details(status: ServerStatus) -> Iterator[str]:
    if status.state != "misconfigured":
        yield status.command if status.pid is None else f"{status.command} (pid {status.pid})"
    yield f"from {status.source}"
    if status.reason:
        yield status.reason
    if status.last_error and status.last_error not in (status.reason or ""):
        yield f"last error: {status.last_error}"
    if status.unusable:
        yield f"{status.unusable} more cannot be used here: filtered, left out or denied by the policy"
    if status.restarts:
        yield f"restarts: {status.restarts}"
    if status.dedicated:
        yield f"dedicated connections: {status.dedicated}"


def _wrapped(text: str) -> list[str]:
    """Wrap a text at spaces to fit most terminals; longer words stay whole, so that they can be copied."""
    import textwrap

    from trunkline.cli.ui.output import terminal_width

    return textwrap.wrap(
        text,
        min(_WIDTH, terminal_width()),
        initial_indent="    ",
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
    )

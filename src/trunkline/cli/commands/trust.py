"""``trunkline trust``: approves the servers of a project's file, revokes approvals, and lists them.

What is shown before a question came with the project and is not trusted: it is shown in full, each value on a line of
its own, and nothing in it can move the cursor or pass for output of this program.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import click

from trunkline.cli.exit_codes import CommandError, Exit
from trunkline.cli.options import json_option, with_json_errors
from trunkline.errors import ConfigError

if TYPE_CHECKING:
    from trunkline.cli.ui.terminal import Screen
    from trunkline.host.config.model import ServerEntry
    from trunkline.host.integrity.fingerprints import Fingerprint
    from trunkline.host.integrity.trust import Approval, TrustStatus, TrustStore

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline trust list
  trunkline trust approve weather
  trunkline trust approve --all --config ../other/.mcp.json
  trunkline trust revoke weather

A server in a project's file runs only after you have approved it. It needs approval again when its command, arguments,
environment, directory, URL or program change. Your own configuration, and files given to other commands with --config,
need no approval.
"""
_ABSENT = "no terminal to confirm in, so nothing was approved; run this in a terminal, or add --yes"
# This many spaces could push what follows to a line of its own.
_GAPS = re.compile(r" {4,}")
#: The exit code by the resulting state of a server; any other state means that approval was denied.
_EXITS: Mapping[str, Exit] = MappingProxyType({"approved": Exit.OK, "misconfigured": Exit.CONFIG})
_config_option = click.option(
    "-c", "--config", metavar="FILE", help="The project's file. Default: the one in the current directory."
)


@click.group("trust", epilog=_EPILOG)
def command() -> None:
    """Approve the servers of a project, revoke approvals, and list them."""


@command.command("list")
@_config_option
@json_option
def list_them(*, config: str | None, as_json: bool) -> int:
    """List approvals, and the servers of this project that wait for approval. No server is started."""
    from trunkline.cli.ui.output import print_json, print_notice, print_table

    rows = with_json_errors(lambda: _rows(config), as_json)
    if as_json:
        print_json({"servers": [row._asdict() for row in rows]})
    elif rows:
        cells = [(row.name, row.state, _day(row.at), row.folder, row.command) for row in rows]
        print_table(("NAME", "STATE", "APPROVED", "FOLDER", "COMMAND"), [[*map(_visible_line, each)] for each in cells])
    else:
        print_notice("nothing is approved, and there is no project file with servers in this directory")
    return Exit.OK


@command.command()
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--all", "everything", is_flag=True, help="Approve all servers of the project's file.")
@_config_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def approve(names: tuple[str, ...], *, everything: bool, config: str | None, yes: bool, as_json: bool) -> int:
    """Show what the servers of a project's file would run, and approve them."""
    from trunkline.cli.ui.output import print_json
    from trunkline.cli.ui.terminal import is_interactive

    if bool(names) is everything:
        raise click.UsageError("Give the names of servers, or --all.")
    wanted = with_json_errors(lambda: _wanted(names, _project(config, ask=is_interactive())), as_json)
    if not yes and not is_interactive():
        if as_json:
            print_json({"error": {"message": _ABSENT}})
        raise CommandError(_ABSENT, Exit.DENIED)
    states = with_json_errors(lambda: asyncio.run(_approve(wanted, yes=yes)), as_json)
    if as_json:
        print_json({"servers": [{"name": name, "state": state} for name, state in states.items()]})
    return max((_EXITS.get(state, Exit.DENIED) for state in states.values()), default=Exit.OK)


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--folder", metavar="DIR", help="Only in this project. Default: all projects with a server of that name.")
@json_option
def revoke(names: tuple[str, ...], *, folder: str | None, as_json: bool) -> int:
    """Revoke approvals. Running servers are not stopped."""
    from trunkline.cli.ui.output import one_line, print_json, print_notice, print_text

    trust_store = _trust_store()
    done = with_json_errors(lambda: {name: trust_store.revoke(name, folder) for name in names}, as_json)
    if as_json:
        print_json({"revoked": [name for name, found in done.items() if found]})
    for name, found in done.items():
        if not found:
            print_notice(f"{one_line(name)} is not approved")
        elif not as_json:
            print_text(f"revoked {one_line(name)}")
    return Exit.OK


# --- the project -----------------------------------------------------------------------------------------------------


def _trust_store() -> TrustStore:
    from trunkline.host.assembly import trust_file
    from trunkline.host.integrity.trust import TrustStore
    from trunkline.host.state_files import state_folder

    return TrustStore(trust_file(state_folder()))


def _project(config: str | None, *, ask: bool) -> Mapping[str, ServerEntry]:
    """Load the given project's file, or that of this directory, and return its servers.

    Raises:
        ConfigError: it cannot be read.
    """
    from trunkline.cli.host_session import prompt_for_input
    from trunkline.host.assembly import in_project_folder
    from trunkline.host.config.loading import find_config_files, load_configuration

    file = find_config_files(Path.cwd()).project if config is None else Path(config)
    # Here, a file given with --config is what is to be approved; giving it does not approve its servers.
    loaded = load_configuration(project=file, environ=os.environ, inputs=prompt_for_input if ask else None)
    for problem in loaded.problems:
        if problem.severity == "error":
            raise ConfigError(str(problem))
    return {name: in_project_folder(entry) for name, entry in loaded.entries.items()}


def _wanted(names: Sequence[str], entries: Mapping[str, ServerEntry]) -> list[ServerEntry]:
    """Return the servers to approve.

    Raises:
        ConfigError: there is no such server, or its entry has a problem.
    """
    from trunkline.cli.host_session import name_hint

    if not entries:
        raise ConfigError("There is no project file with servers in this directory; give one with --config.")
    for name in names:
        if name not in entries:
            raise ConfigError(f"The project file has no server {name}; {name_hint(name, entries)}")
        if (problem := entries[name].problem) is not None:
            raise ConfigError(problem)
    return [entries[name] for name in dict.fromkeys(names or entries)]


# --- the question ----------------------------------------------------------------------------------------------------


async def _approve(wanted: Sequence[ServerEntry], *, yes: bool) -> dict[str, str]:
    """Ask about the servers one by one; return the resulting state of each."""
    from trunkline.cli.ui.terminal import Screen
    from trunkline.host.integrity.fingerprints import take_fingerprint

    trust_store, screen, states = _trust_store(), Screen(verbose=False), dict[str, str]()
    for entry in wanted:
        if entry.problem is not None:
            screen.line(f"{_visible_line(entry.name)} cannot run: {_visible_line(entry.problem)}")
            states[entry.name] = "misconfigured"
            continue
        seen = await take_fingerprint(entry)
        status = trust_store.status(entry, seen)
        states[entry.name] = status.state
        if status.may_run:
            screen.line(f"{_visible_line(entry.name)} needs no approval: {_visible_line(status.reason)}")
            continue
        if status.obstacle is not None:
            raise ConfigError(status.obstacle)
        screen.line(_description(entry, seen, status))
        if yes or await _ask(screen, entry.name):
            trust_store.approve(entry, seen)
            states[entry.name] = "approved"
            screen.line(f"approved {_visible_line(entry.name)}")
    return states


async def _ask(screen: Screen, name: str) -> bool:
    """Ask a yes/no question; input typed before the question was shown is discarded."""
    from trunkline.cli.ui.terminal import EndOfInput, Terminal, discard_typeahead

    discard_typeahead()
    words = {"yes": "yes", "no": "no"}
    try:
        return await Terminal(screen).choose(f"Approve {_visible_line(name)}? [y/N] ", words, default="no") == "yes"
    except EndOfInput:
        return False


def _description(entry: ServerEntry, seen: Fingerprint, status: TrustStatus) -> str:
    """Describe in full what would run."""
    from trunkline.host.integrity.trust import approval_rows

    rows = approval_rows(entry, seen, status)
    head = f"{_visible_line(entry.name)}, in {_visible_line(str(entry.source))}: {_HEADS[status.state]}"
    return "\n".join([head, *(f"  {label:<9} {_visible_line(text)}" for label, text in rows)])


_HEADS: Mapping[str, str] = MappingProxyType(
    {"new": "not approved yet", "changed": "changed since it was approved", "revoked": "its approval was revoked"}
)


def _visible_line(text: str) -> str:
    """Return a text in full on one line, with everything that could be mistaken for something else written out."""
    from trunkline.protocol.printable import printable

    for sign, shown in (("\r", "\\r"), ("\n", "\\n"), ("\t", "\\t")):
        text = text.replace(sign, shown)
    return _GAPS.sub(lambda found: f"[{len(found.group())} spaces]", printable(text))


# --- the list --------------------------------------------------------------------------------------------------------


class _Row(NamedTuple):
    """A row of the list."""

    name: str
    state: str
    folder: str
    file: str
    command: str
    at: float | None
    digest: str
    reason: str | None


def _rows(config: str | None) -> list[_Row]:
    """Combine the stored approvals with the servers of the project's file."""
    from trunkline.cli.ui.output import print_notice
    from trunkline.host.integrity.fingerprints import fingerprint

    trust_store = _trust_store()
    kept = {(approval.name, approval.folder): _kept_row(approval) for approval in trust_store.approvals()}
    try:
        entries = _project(config, ask=False)
    except ConfigError as error:
        if config is not None:
            raise
        print_notice(str(error))
        entries = {}
    for entry in entries.values():
        if entry.problem is None:
            seen = fingerprint(entry)
            row = _row(entry, seen, trust_store.status(entry, seen))
            before = kept.get((row.name, row.folder))
            kept[row.name, row.folder] = row._replace(at=None if before is None else before.at)
    return [row for _, row in sorted(kept.items())]


def _kept_row(approval: Approval) -> _Row:
    state = "approved" if approval.revoked_at is None else "revoked"
    return _Row(
        approval.name, state, approval.folder, approval.file, approval.shown, approval.at, approval.digest, None
    )


def _row(entry: ServerEntry, seen: Fingerprint, status: TrustStatus) -> _Row:
    from trunkline.host.integrity.trust import project_folder, shown_command

    folder = project_folder(entry.source.file or "")
    file = str(entry.source.file)
    return _Row(entry.name, status.state, folder, file, shown_command(entry), None, seen.digest, status.reason)


def _day(at: float | None) -> str:
    import time

    return "" if at is None else time.strftime("%Y-%m-%d", time.localtime(at))

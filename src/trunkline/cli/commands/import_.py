"""``trunkline import``: copies the servers of other applications into the user's own configuration.

The changes are shown with secrets masked and confirmed in one question, because a server in the user's own file is
allowed to start. The same question offers to allow read-only tools without a prompt, and to remove the originals from
the applications' files, which are not changed otherwise. Every file that is written gets a backup beside it.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from trunkline.cli.exit_codes import CommandError, Exit
from trunkline.cli.options import json_option, with_json_errors

if TYPE_CHECKING:
    from trunkline.devtools.client_configs.files import AppDocument
    from trunkline.devtools.client_configs.import_plan import Conflict, ImportStep

    #: An application's file, its text without the imported servers, and the names of those.
    Removal: TypeAlias = tuple[AppDocument, str, tuple[str, ...]]

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline import
  trunkline import claude-desktop --dry-run
  trunkline import cursor --only github --yes
  trunkline import --yes --allow-reading
  trunkline import cursor --yes --remove-originals
  trunkline import ./.vscode/mcp.json --to mcp.json --conflict rename

APP is claude-desktop, claude-code, cursor, vscode, gemini-cli, codex, goose, windsurf or zed; without APP or FILE, the
files of all of them are searched. A server from a project's file runs in that project's directory. Permissions granted
in an application are not imported, and entries that start this gateway are skipped.

--allow-reading allows the tools that each server marks as read-only when it is first listed. All other tools, and those
added or changed later, need approval; trunkline grants list shows what is allowed. Trunkline prompts in call, ask and
chat, and in a gateway in approval mode ask; in mode client, the client connected to the gateway prompts.

--remove-originals does not change files that a project shares. To restore the originals, run: trunkline install --undo
--into APP
"""
_WHERE = (
    "(Trunkline prompts in call, ask and chat, and in a gateway in approval mode ask; in mode client the client does.)"
)
_ABSENT = "no terminal to confirm in, so nothing was written; run this in a terminal, or add --yes"


@click.command("import", epilog=_EPILOG)
@click.argument("source", required=False, metavar="[APP|FILE]")
@click.option("--to", "into", metavar="FILE", help="Configuration file to write. Default: your own mcp.json.")
@click.option("--only", multiple=True, metavar="NAME", help="Import only this server; repeatable.")
@click.option(
    "--conflict",
    type=click.Choice(["skip", "rename", "replace"]),
    default="skip",
    help="What to do if the name is taken. Default: skip.",
)
@click.option("--allow-reading", is_flag=True, help="Allow tools marked read-only without a prompt.")
@click.option("--ask-all", is_flag=True, help="Allow no tool in advance.")
@click.option("--remove-originals", is_flag=True, help="Remove the imported servers from the application's file.")
@click.option(
    "--start/--no-start",
    default=None,
    help="Start the imported servers once, so that a client's first list is complete. Default: in a terminal.",
)
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def command(
    source: str | None,
    *,
    into: str | None,
    only: tuple[str, ...],
    conflict: Conflict,
    allow_reading: bool,
    ask_all: bool,
    remove_originals: bool,
    start: bool | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Import servers from Claude Desktop, Claude Code, Cursor or VS Code."""
    from trunkline.devtools.client_configs.entries import masked_diff
    from trunkline.devtools.client_configs.import_plan import apply_import, plan_import

    if allow_reading and ask_all:
        raise click.UsageError("--allow-reading and --ask-all exclude each other.")
    sources = with_json_errors(lambda: _sources(source), as_json)
    target = with_json_errors(lambda: _target(into), as_json)
    steps = plan_import(sources, target, conflict=conflict, only=only)
    missing = sorted(set(only) - {step.name for step in steps})
    if missing:
        raise CommandError(f"there is no server {missing[0]!r} to import", Exit.CONFIG)
    text = with_json_errors(lambda: apply_import(steps, target), as_json)
    removals = with_json_errors(lambda: _removals(steps, sources, target, wanted=remove_originals), as_json)
    diff = masked_diff(target.text, text, str(target.file.path))
    cuts = [masked_diff(each.text, after, str(each.file.path)) for each, after, _ in removals]
    asked_for = ImportChoices(reading=allow_reading, removing=remove_originals)
    if not as_json:
        _show(sources, steps, "\n".join([diff, *(cuts if remove_originals else ())]).strip("\n"))
    work = bool(diff) or (any(step.is_imported for step in steps) and asked_for != ImportChoices())
    actions: ImportChoices | None = None
    if work and not dry_run:
        # For servers that are here already, the question was answered when they were imported.
        reading = allow_reading if allow_reading or ask_all or not diff else None
        actions = (
            asked_for if yes else _asked(target, steps, removals, reading=reading, actions=asked_for, as_json=as_json)
        )
    done = ImportOutcome()
    if actions is not None:
        done = with_json_errors(lambda: _carry_out(actions, target, text, steps, removals, write=bool(diff)), as_json)
    _tell(target, sources, steps, diff=diff, done=done, as_json=as_json)
    if removals and not (as_json or dry_run or done.removed):
        _tell_of_originals(removals, source)
    if done.backup is not None and not as_json:
        _start_once(target, [step.target for step in steps if step.writes], start)
    return Exit.OK


def _start_once(target: AppDocument, names: Sequence[str], start: bool | None) -> None:
    """Start the new servers once, so that what they offer is cached for the first list of a client."""
    from trunkline.cli.ui.terminal import is_interactive

    if names and (is_interactive() if start is None else start):
        from trunkline.cli.first_start import listed_exposure

        listed_exposure((str(target.file.path),), names, starts=True)


class ImportChoices(NamedTuple):
    """What to do besides adding the servers."""

    #: Allow read-only tools without a prompt.
    reading: bool = False
    #: Remove the originals from the applications' files.
    removing: bool = False


class ImportOutcome(NamedTuple):
    """What was done."""

    backup: str | None = None
    #: The servers whose read-only tools are allowed.
    reading: tuple[str, ...] = ()
    #: The files from which originals were removed, with the backup of each.
    removed: tuple[tuple[AppDocument, str], ...] = ()


# --- reading ---------------------------------------------------------------------------------------------------------


def _sources(source: str | None) -> list[AppDocument]:
    """Read the files of the applications that exist.

    Raises:
        CommandError: there is no such file, or the given one cannot be read.
    """
    from trunkline.cli.ui.output import print_notice
    from trunkline.devtools.client_configs.files import APPS, current_machine, files_of, read_app_file
    from trunkline.errors import ConfigError

    if source is not None and source not in APPS:
        return [_named(source)]
    found: list[AppDocument] = []
    for app in APPS if source is None else (source,):
        for file in files_of(app, current_machine()):
            try:
                document = read_app_file(file)
            except ConfigError as error:
                if source is not None:
                    raise
                # The other files may still be usable.
                print_notice(str(error))
                continue
            if document.content is not None and (document.servers or source is not None):
                found.append(document)
    if not found:
        where = "of any known application" if source is None else f"of {APPS[source]}"
        raise CommandError(f"no configuration file {where} found; give the path of the file", Exit.CONFIG)
    return found


def _named(path: str) -> AppDocument:
    """Read a file given by its path; its format is recognized by its content."""
    from trunkline.devtools.client_configs.files import APPS, AppFile, read_app_file
    from trunkline.host.integrity.trust import project_folder

    real = Path(path).absolute()
    if not real.exists():
        known_apps = ", ".join(APPS)
        raise CommandError(f"{path} is neither an application nor a file; applications: {known_apps}", Exit.CONFIG)
    is_project = real.parent.name in (".vscode", ".cursor") or real.name == ".mcp.json"
    folder = Path(project_folder(str(real))) if is_project else None
    known = {".cursor": "cursor", ".vscode": "vscode"}.get(real.parent.name)
    for key, usual in (("mcpServers", "claude-code"), ("servers", "vscode")):
        document = read_app_file(AppFile(app=known or usual, scope="user", path=real, key_path=(key,), folder=folder))
        if document.servers:
            return document
    raise CommandError(f'{path}: no servers found under "mcpServers" or "servers"', Exit.CONFIG)


def _target(into: str | None) -> AppDocument:
    from trunkline.devtools.client_configs.files import read_own_file
    from trunkline.host.state_files import config_folder

    return read_own_file(config_folder() / "mcp.json" if into is None else Path(into).absolute())


def _removals(
    steps: Sequence[ImportStep], sources: Sequence[AppDocument], target: AppDocument, *, wanted: bool
) -> list[Removal]:
    """Return the applications' files without the imported servers; empty if they cannot be changed safely.

    Raises:
        ConfigError: removal was requested (``wanted``), and a file cannot be changed safely.
    """
    from trunkline.devtools.client_configs.import_plan import remove_originals
    from trunkline.errors import ConfigError

    try:
        return remove_originals(steps, sources, target)
    except ConfigError:
        if wanted:
            raise
        return []


def _carry_out(
    actions: ImportChoices,
    target: AppDocument,
    text: str,
    steps: Sequence[ImportStep],
    removals: Sequence[Removal],
    *,
    write: bool,
) -> ImportOutcome:
    """Add the servers, allow read-only tools, and remove the originals, in this order, so that no server is lost."""
    from trunkline.devtools.client_configs.files import write_with_backup

    backup = None
    if write:
        backup = str(write_with_backup(target.file.path, target.encoded(text), before=target.content).path)
    reading = _allow_reading(target, steps) if actions.reading else ()
    removed = [
        (document, str(write_with_backup(document.file.path, document.encoded(after), before=document.content).path))
        for document, after, _ in (removals if actions.removing else ())
    ]
    return ImportOutcome(backup, reading, tuple(removed))


def _allow_reading(target: AppDocument, steps: Sequence[ImportStep]) -> tuple[str, ...]:
    """Allow the read-only tools of the imported servers; return the names of those servers."""
    import time

    from trunkline.cli.host_session import load_cli_configuration
    from trunkline.host.authorization.deferred_grants import read_only_grants
    from trunkline.host.authorization.grants import GrantStore, is_same_grant
    from trunkline.host.integrity.pins.store import PinStore
    from trunkline.host.state_files import state_folder

    names = {step.target for step in steps if step.is_imported}
    entries = load_cli_configuration((str(target.file.path),)).entries
    wanted = [entry for name, entry in entries.items() if name in names and entry.problem is None]
    grant_store = GrantStore(state_folder() / "grants.json")
    grants = read_only_grants(wanted, PinStore(state_folder() / "pins.json").servers(), now=time.time())
    for grant in grants:
        if not any(is_same_grant(kept, grant) for kept in grant_store.all()):
            grant_store.add(grant)
    return tuple(grant.server for grant in grants)


# --- asking and printing ---------------------------------------------------------------------------------------------


def _asked(
    target: AppDocument,
    steps: Sequence[ImportStep],
    removals: Sequence[Removal],
    *,
    reading: bool | None,
    actions: ImportChoices,
    as_json: bool,
) -> ImportChoices:
    """Ask for confirmation in one question; ``reading`` is None if the command line leaves that open.

    Raises:
        CommandError: the answer is no, or there is no terminal.
    """
    from trunkline.cli.ui.terminal import EndOfInput, Screen, Terminal, is_interactive

    if as_json or not is_interactive():
        raise CommandError(_ABSENT, Exit.DENIED)
    choices = _choices(removals, reading=reading, actions=actions)
    keys = "/".join(choice.key for choice in choices)
    terminal = Terminal(Screen(verbose=False))
    terminal.show(
        "\n".join([_heading(target, steps), *(f"  [{each.key}] {each.text}" for each in choices), "  [n] no"])
    )
    if reading is None:
        terminal.show(_WHERE)
    words = {**{each.key: each.key for each in choices}, "n": "no", "yes": "y", "no": "no"}
    try:
        chosen = asyncio.run(terminal.choose(f"Your answer [{keys}/N] ", words, default="no"))
    except EndOfInput:
        chosen = "no"
    if chosen == "no":
        raise CommandError("nothing was written", Exit.DENIED)
    return next(each.actions for each in choices if each.key == chosen)


class _Choice(NamedTuple):
    key: str
    text: str
    actions: ImportChoices


def _choices(removals: Sequence[Removal], *, reading: bool | None, actions: ImportChoices) -> list[_Choice]:
    """Return the affirmative choices; what the command line already answers is not asked."""
    from trunkline.cli.ui.output import counted, one_line

    first = "yes" if reading is not None else "yes; allow tools marked read-only, ask before all others"
    usual = ImportChoices(reading=reading is not False, removing=actions.removing)
    choices = [_Choice("y", first, usual)]
    if reading is None:
        choices.append(_Choice("a", "yes, but ask before every tool", usual._replace(reading=False)))
    if removals and not actions.removing:
        count = sum(len(names) for _, _, names in removals)
        where = ", ".join(dict.fromkeys(one_line(document.file.title) for document, _, _ in removals))
        text = f"like y, and remove the {counted(count, 'original')} from {where} (a backup is kept)"
        choices.append(_Choice("m", text, usual._replace(removing=True)))
    return choices


def _heading(target: AppDocument, steps: Sequence[ImportStep]) -> str:
    from trunkline.cli.ui.output import counted, one_line

    count, path = sum(step.writes for step in steps), one_line(str(target.file.path))
    return f"Write {counted(count, 'server')} to {path}?" if count else f"The servers are already in {path}. Continue?"


def _show(sources: Sequence[AppDocument], steps: Sequence[ImportStep], diff: str) -> None:
    from trunkline.cli.ui.output import print_notice, print_text, table

    for document in sources:
        print_notice(f"{document.file.title}: {document.file.path}")
    if steps:
        rows = [(step.target, step.action, step.file.title, _remark(step)) for step in steps]
        print_text(table(("NAME", "", "FROM", "REMARK"), rows))
    if diff:
        print_text(f"\n{diff}")


def _remark(step: ImportStep) -> str:
    from trunkline.devtools.client_configs.import_plan import step_remarks

    return "; ".join(step_remarks(step))


def _tell(
    target: AppDocument,
    sources: Sequence[AppDocument],
    steps: Sequence[ImportStep],
    *,
    diff: str,
    done: ImportOutcome,
    as_json: bool,
) -> None:
    from trunkline.cli.gateway_options import approval_summary, default_serve_approval
    from trunkline.cli.ui.output import print_json, print_notice

    if as_json:
        rows: list[dict[str, Any]] = [
            {
                "name": step.name,
                "target": step.target,
                "action": step.action,
                "app": step.file.app,
                "file": str(step.file.path),
                "remark": _remark(step),
            }
            for step in steps
        ]
        print_json(
            {
                "file": str(target.file.path),
                "sources": [str(document.file.path) for document in sources],
                "servers": rows,
                "backup": done.backup,
                "diff": diff,
                "reading": list(done.reading),
                "removed": [{"file": str(document.file.path), "backup": backup} for document, backup in done.removed],
            }
        )
        return
    if done.backup is not None:
        before = "" if target.content is None else f"; backup: {done.backup}"
        print_notice(f"written to {target.file.path}{before}")
        print_notice(f"a gateway over stdio (trunkline serve) has {approval_summary(default_serve_approval())}")
    elif not diff and done == ImportOutcome():
        print_notice("nothing to import")
    if done.reading:
        whose = ", ".join(done.reading)
        print_notice(f"allowed without a prompt: the read-only tools of {whose} (see trunkline grants list)")
    gateways = {step.file.app for step in steps if step.own}
    for document, backup in done.removed:
        print_notice(f"originals removed from {document.file.path}; backup: {backup}")
        if document.file.app not in gateways:
            print_notice(f"to use the servers there again, run: trunkline install --gateway --into {document.file.app}")


def _tell_of_originals(removals: Sequence[Removal], source: str | None) -> None:
    """Print that the originals are still in the applications' files, and how to remove them."""
    from trunkline.cli.ui.output import print_notice

    where = ", ".join(str(document.file.path) for document, _, _ in removals)
    word = "" if source is None else f" {shlex.quote(source)}"
    print_notice(f"the originals stay in {where}; to remove them, run: trunkline import{word} --remove-originals")

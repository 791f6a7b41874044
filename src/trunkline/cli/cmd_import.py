"""``trunkline import``: takes over the servers that other applications have, into a configuration of ours.

What would be added is shown, with secrets covered, and asked for in one question: once a server stands in your own file
it may start. The same question offers to allow what only reads, and to take the originals out of the others' files,
which are only read unless you say so. A backup of each file that is written lies beside it.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from trunkline.cli.exits import Exit, Failure
from trunkline.cli.options import json_option, told

if TYPE_CHECKING:
    from trunkline.host.apps.documents import AppDocument
    from trunkline.host.apps.importing import Conflict, Step

    #: A file of an application, its text without the servers that are here now, and their names.
    Left: TypeAlias = tuple[AppDocument, str, tuple[str, ...]]

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

APP is claude-desktop, claude-code, cursor or vscode; without one and without a file, all of their files are looked
for. A server of a project's file runs in that project's folder. What an application allows without asking is not taken
over. An entry that starts this gateway is skipped.

--allow-reading allows the tools that say that they only read, as each server first lists them. What is added or changed
later is asked about, and so is everything else; trunkline grants list shows what is allowed. Trunkline asks in call,
ask and chat, and in a gateway in approval mode ask; in mode client the client in front asks. --remove-originals leaves
files alone that a project shares; trunkline install --undo --into APP puts the originals back.
"""
_WHERE = (
    "(Trunkline asks in call, ask and chat, and in a gateway in approval mode ask; in mode client the client asks.)"
)
_ABSENT = "nobody is here to be asked, so nothing is written; run this in a terminal, or give --yes"


@click.command("import", epilog=_EPILOG)
@click.argument("source", required=False, metavar="[APP|FILE]")
@click.option("--to", "into", metavar="FILE", help="The configuration to write; else your own mcp.json.")
@click.option("--only", multiple=True, metavar="NAME", help="Take this server; may be repeated. Else all are taken.")
@click.option(
    "--conflict",
    type=click.Choice(["skip", "rename", "replace"]),
    default="skip",
    help="What to do with a server whose name is taken by another; skip unless said.",
)
@click.option("--allow-reading", is_flag=True, help="Do not ask for tools that say that they only read.")
@click.option(
    "--ask-all",
    is_flag=True,
    help="Allow no tool in advance, so that each is asked about; this is what --yes alone means.",
)
@click.option("--remove-originals", is_flag=True, help="Take the servers out of the application's file.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--yes", is_flag=True, help="Write without asking; you have read what would be added.")
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
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Take over the servers of Claude Desktop, Claude Code, Cursor and VS Code."""
    from trunkline.host.apps.importing import applied, plan_import
    from trunkline.host.apps.masking import masked_diff

    if allow_reading and ask_all:
        raise click.UsageError("--allow-reading and --ask-all contradict each other: give one of them.")
    sources = told(lambda: _sources(source), as_json)
    target = told(lambda: _target(into), as_json)
    steps = plan_import(sources, target, conflict=conflict, only=only)
    missing = sorted(set(only) - {step.name for step in steps})
    if missing:
        raise Failure(f"no server is called {missing[0]!r} there", Exit.CONFIG)
    text = told(lambda: applied(steps, target), as_json)
    left = told(lambda: _left(steps, sources, target, wanted=remove_originals), as_json)
    diff = masked_diff(target.text, text, str(target.file.path))
    removals = [masked_diff(each.text, after, str(each.file.path)) for each, after, _ in left]
    asked_for = Wish(reading=allow_reading, removing=remove_originals)
    if not as_json:
        _show(sources, steps, "\n".join([diff, *(removals if remove_originals else ())]).strip("\n"))
    work = bool(diff) or (any(step.is_here for step in steps) and asked_for != Wish())
    wish: Wish | None = None
    if work and not dry_run:
        # Of servers that are here already it was asked when they came.
        reading = allow_reading if allow_reading or ask_all or not diff else None
        wish = asked_for if yes else _asked(target, steps, left, reading=reading, wish=asked_for, as_json=as_json)
    done = Done()
    if wish is not None:
        done = told(lambda: _carry_out(wish, target, text, steps, left, write=bool(diff)), as_json)
    _tell(target, sources, steps, diff=diff, done=done, as_json=as_json)
    if left and not (as_json or dry_run or done.removed):
        _tell_of_originals(left, source)
    return Exit.OK


class Wish(NamedTuple):
    """What is done besides writing the servers."""

    #: Allow the tools that say that they only read.
    reading: bool = False
    #: Take the originals out of the applications' files.
    removing: bool = False


class Done(NamedTuple):
    """What was done."""

    backup: str | None = None
    #: The servers whose reading tools are allowed.
    reading: tuple[str, ...] = ()
    #: The files that originals were taken out of, with the backup of each.
    removed: tuple[tuple[AppDocument, str], ...] = ()


# --- reading ---------------------------------------------------------------------------------------------------------


def _sources(source: str | None) -> list[AppDocument]:
    """Read the files that are there.

    Raises:
        Failure: there is no such file, or one that was named cannot be read.
    """
    from trunkline.cli.output import complain
    from trunkline.errors import ConfigError
    from trunkline.host.apps.documents import read_app_file
    from trunkline.host.apps.places import APPS, files_of, here

    if source is not None and source not in APPS:
        return [_named(source)]
    found: list[AppDocument] = []
    for app in APPS if source is None else (source,):
        for file in files_of(app, here()):
            try:
                document = read_app_file(file)
            except ConfigError as error:
                if source is not None:
                    raise
                # The others may be of use all the same.
                complain(str(error))
                continue
            if document.content is not None and (document.servers or source is not None):
                found.append(document)
    if not found:
        where = "of any application that is known" if source is None else f"of {APPS[source]}"
        raise Failure(f"no file {where} is found here; name the file itself", Exit.CONFIG)
    return found


def _named(path: str) -> AppDocument:
    """Read a file that was named; what it is is seen by its content."""
    from trunkline.host.apps.documents import read_app_file
    from trunkline.host.apps.places import APPS, AppFile
    from trunkline.host.trust.book import project_folder

    real = Path(path).absolute()
    if not real.exists():
        known_apps = ", ".join(APPS)
        raise Failure(f"there is no application and no file {path}; applications are {known_apps}", Exit.CONFIG)
    is_project = real.parent.name in (".vscode", ".cursor") or real.name == ".mcp.json"
    folder = Path(project_folder(str(real))) if is_project else None
    known = {".cursor": "cursor", ".vscode": "vscode"}.get(real.parent.name)
    for key, usual in (("mcpServers", "claude-code"), ("servers", "vscode")):
        document = read_app_file(AppFile(app=known or usual, scope="user", path=real, way=(key,), folder=folder))
        if document.servers:
            return document
    raise Failure(f"{path}: it has no servers under mcpServers or servers", Exit.CONFIG)


def _target(into: str | None) -> AppDocument:
    from msgspec.structs import replace

    from trunkline.host.apps.documents import read_app_file
    from trunkline.host.apps.places import AppFile
    from trunkline.host.folders import config_folder

    path = config_folder() / "mcp.json" if into is None else Path(into).absolute()
    file = AppFile(app="claude-code", scope="user", path=path)
    document = read_app_file(file)
    if not document.servers and '"servers"' in document.text:
        other = read_app_file(replace(file, way=("servers",)))
        return other if other.servers else document
    return document


def _left(steps: Sequence[Step], sources: Sequence[AppDocument], target: AppDocument, *, wanted: bool) -> list[Left]:
    """Return the applications' files without what is taken over.

    Raises:
        ConfigError: that was asked for, and a file cannot be changed safely.
    """
    from trunkline.errors import ConfigError
    from trunkline.host.apps.importing import without_originals

    try:
        return without_originals(steps, sources, target)
    except ConfigError:
        if wanted:
            raise
        return []


def _carry_out(
    wish: Wish, target: AppDocument, text: str, steps: Sequence[Step], left: Sequence[Left], *, write: bool
) -> Done:
    """Write the servers, then allow what reads, then take out the originals: nothing is taken out before it is here."""
    from trunkline.host.apps.rewriting import rewrite

    backup = None
    if write:
        backup = str(rewrite(target.file.path, target.encoded(text), before=target.content).path)
    reading = _allow_reading(target, steps) if wish.reading else ()
    removed = [
        (document, str(rewrite(document.file.path, document.encoded(after), before=document.content).path))
        for document, after, _ in (left if wish.removing else ())
    ]
    return Done(backup, reading, tuple(removed))


def _allow_reading(target: AppDocument, steps: Sequence[Step]) -> tuple[str, ...]:
    """Allow the reading tools of the servers that are here now; return the names of those servers."""
    import time

    from trunkline.cli.configs import read_configuration
    from trunkline.host.folders import state_folder
    from trunkline.host.judgement.first_lists import grants_for_reading
    from trunkline.host.judgement.grants import GrantBook, is_same
    from trunkline.host.pins.book import PinBook

    names = {step.target for step in steps if step.is_here}
    entries = read_configuration((str(target.file.path),)).entries
    wanted = [entry for name, entry in entries.items() if name in names and entry.problem is None]
    book = GrantBook(state_folder() / "grants.json")
    grants = grants_for_reading(wanted, PinBook(state_folder() / "pins.json").servers(), now=time.time())
    for grant in grants:
        if not any(is_same(kept, grant) for kept in book.all()):
            book.add(grant)
    return tuple(grant.server for grant in grants)


# --- asking and telling ----------------------------------------------------------------------------------------------


def _asked(
    target: AppDocument,
    steps: Sequence[Step],
    left: Sequence[Left],
    *,
    reading: bool | None,
    wish: Wish,
    as_json: bool,
) -> Wish:
    """Ask what to do, in one question; ``reading`` is None if that was not said on the command line.

    Raises:
        Failure: the answer is no, or there is no terminal.
    """
    from trunkline.cli.screen import Screen
    from trunkline.cli.terminal import InputEnded, Terminal, is_there

    if as_json or not is_there():
        raise Failure(_ABSENT, Exit.DENIED)
    choices = _choices(left, reading=reading, wish=wish)
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
    except InputEnded:
        chosen = "no"
    if chosen == "no":
        raise Failure("nothing was written", Exit.DENIED)
    return next(each.wish for each in choices if each.key == chosen)


class _Choice(NamedTuple):
    key: str
    text: str
    wish: Wish


def _choices(left: Sequence[Left], *, reading: bool | None, wish: Wish) -> list[_Choice]:
    """Return the ways to say yes; what the command line said already is not asked again."""
    from trunkline.cli.output import one_line

    first = (
        "yes" if reading is not None else "yes; tools that say that they only read run without asking, the rest asks"
    )
    usual = Wish(reading=reading is not False, removing=wish.removing)
    choices = [_Choice("y", first, usual)]
    if reading is None:
        choices.append(_Choice("a", "yes, but ask for every tool", usual._replace(reading=False)))
    if left and not wish.removing:
        count = sum(len(names) for _, _, names in left)
        where = ", ".join(dict.fromkeys(one_line(document.file.title) for document, _, _ in left))
        text = f"like y, and take the {_counted(count, 'original')} out of {where} (a backup is kept)"
        choices.append(_Choice("m", text, usual._replace(removing=True)))
    return choices


def _heading(target: AppDocument, steps: Sequence[Step]) -> str:
    from trunkline.cli.output import one_line

    count, path = sum(step.writes for step in steps), one_line(str(target.file.path))
    return f"Write {_counted(count, 'server')} to {path}?" if count else f"The servers are in {path} already. Go on?"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _show(sources: Sequence[AppDocument], steps: Sequence[Step], diff: str) -> None:
    from trunkline.cli.output import complain, say, table

    for document in sources:
        complain(f"{document.file.title}: {document.file.path}")
    if steps:
        rows = [(step.target, step.action, step.file.title, _remark(step)) for step in steps]
        say(table(("NAME", "", "FROM", "REMARK"), rows))
    if diff:
        say(f"\n{diff}")


def _remark(step: Step) -> str:
    from trunkline.host.config.in_code import configuration_from, entry_from
    from trunkline.host.trust.warnings import warnings_for

    remarks = [step.why] if step.why else []
    if step.dropped:
        remarks.append(f"not taken over: {', '.join(step.dropped)}")
    if step.writes:
        whole = {"mcpServers": {step.target: step.entry}, "inputs": list(step.inputs)}
        # A server that is called "command" makes the whole look like an entry; it is then read without the inputs.
        entry = configuration_from(whole).entries.get(step.target) or entry_from(step.target, step.entry)
        remarks += [f"it {warning}" for warning in warnings_for(entry)]
        remarks += [entry.redact(entry.problem)] if entry.problem else []
    return "; ".join(remarks)


def _tell(
    target: AppDocument,
    sources: Sequence[AppDocument],
    steps: Sequence[Step],
    *,
    diff: str,
    done: Done,
    as_json: bool,
) -> None:
    from trunkline.cli.approval_modes import setup_sentence, usual_approval
    from trunkline.cli.output import complain, say_json

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
        say_json(
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
        before = "" if target.content is None else f"; the file as it was: {done.backup}"
        complain(f"written to {target.file.path}{before}")
        complain(f"a gateway over stdio (trunkline serve) has {setup_sentence(usual_approval())}")
    elif not diff and done == Done():
        complain("there is nothing to take over")
    if done.reading:
        whose = ", ".join(done.reading)
        complain(f"allowed without asking: the read-only tools of {whose}; trunkline grants list shows them")
    gateways = {step.file.app for step in steps if step.own}
    for document, backup in done.removed:
        complain(f"taken out of {document.file.path}; the file as it was: {backup}")
        if document.file.app not in gateways:
            complain(f"to use them there again: trunkline install --gateway --into {document.file.app}")


def _tell_of_originals(left: Sequence[Left], source: str | None) -> None:
    """Say that the originals are still in the applications' files, and how to take them out."""
    from trunkline.cli.output import complain

    where = ", ".join(str(document.file.path) for document, _, _ in left)
    word = "" if source is None else f" {shlex.quote(source)}"
    complain(f"the originals stay in {where}; to take them out: trunkline import{word} --remove-originals")

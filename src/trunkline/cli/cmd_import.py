"""``trunkline import``: takes over the servers that other applications have, into a configuration of ours.

The others' files are only read. What would be added is shown, with secrets covered, and asked for: once a server stands
in your own file it may start. A backup of your file lies beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.exits import Exit, Failure
from trunkline.cli.options import json_option, told

if TYPE_CHECKING:
    from trunkline.host.apps.documents import AppDocument
    from trunkline.host.apps.importing import Conflict, Step

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline import
  trunkline import claude-desktop --dry-run
  trunkline import cursor --only github --yes
  trunkline import ./.vscode/mcp.json --to mcp.json --conflict rename

APP is claude-desktop, claude-code, cursor or vscode; without one and without a file, all of their files are looked
for. A server of a project's file runs in that project's folder. What an application allows without asking is not taken
over.
"""
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
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--yes", is_flag=True, help="Write without asking; you have read what would be added.")
@json_option
def command(
    source: str | None,
    *,
    into: str | None,
    only: tuple[str, ...],
    conflict: Conflict,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Take over the servers of Claude Desktop, Claude Code, Cursor and VS Code."""
    from trunkline.cli.terminal import is_there
    from trunkline.host.apps.importing import applied, plan_import
    from trunkline.host.apps.masking import masked_diff

    sources = told(lambda: _sources(source), as_json)
    target = told(lambda: _target(into), as_json)
    steps = plan_import(sources, target, conflict=conflict, only=only)
    missing = sorted(set(only) - {step.name for step in steps})
    if missing:
        raise Failure(f"no server is called {missing[0]!r} there", Exit.CONFIG)
    text = told(lambda: applied(steps, target), as_json)
    diff = masked_diff(target.text, text, str(target.file.path))
    backup = None
    writes = bool(diff) and not dry_run
    if not as_json:
        _show(sources, steps, diff)
    if writes and not yes and not (is_there() and not as_json and asyncio.run(_agreed(target, steps))):
        raise Failure(_ABSENT if not is_there() else "nothing was written", Exit.DENIED)
    if writes:
        backup = told(lambda: _write(target, text), as_json)
    _tell(target, sources, steps, diff=diff, backup=backup, as_json=as_json)
    return Exit.OK


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
    from trunkline.host.apps.places import AppFile
    from trunkline.host.trust.book import project_folder

    real = Path(path).absolute()
    if not real.exists():
        raise Failure(f"there is no application and no file {path}", Exit.CONFIG)
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


def _write(target: AppDocument, text: str) -> str:
    from trunkline.host.apps.rewriting import rewrite

    return str(rewrite(target.file.path, target.encoded(text), before=target.content).path)


# --- asking and telling ----------------------------------------------------------------------------------------------


async def _agreed(target: AppDocument, steps: Sequence[Step]) -> bool:
    from trunkline.cli.output import one_line
    from trunkline.cli.screen import Screen
    from trunkline.cli.terminal import InputEnded, Terminal

    count = sum(step.writes for step in steps)
    question = f"Write {count} server{'' if count == 1 else 's'} to {one_line(str(target.file.path))}? [y/N] "
    try:
        return await Terminal(Screen(verbose=False)).choose(question, {"yes": "yes", "no": "no"}, default="no") == "yes"
    except InputEnded:
        return False


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
    backup: str | None,
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
        files = [str(document.file.path) for document in sources]
        say_json({"file": str(target.file.path), "sources": files, "servers": rows, "backup": backup, "diff": diff})
        return
    if backup is not None:
        before = "" if target.content is None else f"; the file as it was: {backup}"
        complain(f"written to {target.file.path}{before}")
        complain(f"trunkline serve: {setup_sentence(usual_approval())}")
    elif not diff:
        complain("there is nothing to take over")

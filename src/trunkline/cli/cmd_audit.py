"""``trunkline audit``: prove that the audit trail is whole, and find things in it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from trunkline.cli.exits import Exit
from trunkline.cli.options import json_option

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline audit verify
  trunkline audit query --server files --since 2h
  trunkline audit query --denied --limit 20 --json
"""
_UNITS: Mapping[str, float] = MappingProxyType({"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800})
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group("audit", epilog=_EPILOG)
def command() -> None:
    """Prove that the audit trail is whole, and find things in it."""


@command.command()
@click.argument("file", required=False, type=_FILE)
@click.option("--partial", is_flag=True, help="Older files were moved away: begin with the first entry that is there.")
@click.option("--anchor", metavar="HASH", help="The hash of an entry, kept elsewhere, that must be in the trail.")
@json_option
def verify(file: Path | None, *, partial: bool, anchor: str | None, as_json: bool) -> int:
    """Prove that no entry of the trail in FILE was changed, taken out, put in or moved; exit code 5 if one was.

    Without FILE, the trail of this user. The hash of the last entry is shown: kept where nobody who can write the trail
    can write, it proves later, as --anchor, that the trail up to there was not written anew.
    """
    from trunkline.cli.output import complain, say, say_json
    from trunkline.host.audit.reading import verify as prove

    path = _trail(file)
    found = prove(path, partial=partial, anchor=anchor)
    if as_json:
        say_json(found)
    elif found.ok:
        say(f"{path}: whole, {found.entries} entries; the last is {found.seq}, {found.hash}")
    else:
        where = "" if found.file is None else f"{found.file}:{found.first_bad_line}: "
        say(f"{path}: NOT whole after {found.entries} good entries: {where}{found.reason}")
    if not as_json:
        for remark in found.remarks:
            complain(f"noted in {remark}")
    return Exit.OK if found.ok else Exit.FAILED


def _moment(context: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """Read a moment: so long ago, or a date and time."""
    if value is None:
        return None
    ago = re.fullmatch(r"(\d{1,9})([smhdw])", value)
    if ago is not None:
        return time.time() - int(ago[1]) * _UNITS[ago[2]]
    from datetime import datetime

    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(
            f"{value!r} is neither a time such as 30m, 2h or 7d ago nor a date.", context, option
        ) from None


@command.command()
@click.argument("file", required=False, type=_FILE)
@click.option("--server", metavar="GLOB", help="Of these servers.")
@click.option("--tool", metavar="GLOB", help="Of these tools, prompts or resources.")
@click.option("--principal", metavar="NAME", help="For this principal.")
@click.option("--session", metavar="ID", help="In this session.")
@click.option("--outcome", metavar="WORD", help="That ended so: ok, tool-error, error, lost, cancelled, denied.")
@click.option("--effect", type=click.Choice(["allow", "ask", "deny"]), help="Of which the policy said so.")
@click.option("--denied", is_flag=True, help="That were not done.")
@click.option("--since", metavar="WHEN", callback=_moment, help="From then on: 30m, 2h, 7d ago, or a date and time.")
@click.option("--until", metavar="WHEN", callback=_moment, help="Before then.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="The newest N of them.")
@json_option
def query(file: Path | None, *, denied: bool, limit: int | None, as_json: bool, **wanted: Any) -> int:
    """Show entries of the trail in FILE, oldest first; without FILE, of this user's."""
    from trunkline.cli.output import complain, say, say_json, table
    from trunkline.host.audit.reading import Wanted
    from trunkline.host.audit.reading import query as find

    unreadable: list[str] = []
    found = list(
        find(
            _trail(file),
            Wanted(**wanted, stage="denied" if denied else None),
            limit=limit,
            on_unreadable=lambda name, line: unreadable.append(f"{name}:{line}"),
        )
    )
    if as_json:
        say_json({"entries": found})
    elif found:
        say(table(("SEQ", "TIME", "STAGE", "WHAT", "FOR", "RULE", "BY", "OUTCOME", "ARGUMENTS"), [*map(_row, found)]))
    else:
        complain("no entry is like that")
    if unreadable:
        complain(f"{len(unreadable)} lines are no entries, first {unreadable[0]}: run trunkline audit verify")
    return Exit.OK


def _trail(file: Path | None) -> Path:
    if file is not None:
        return file
    from trunkline.host.folders import state_folder

    return state_folder() / "audit.jsonl"


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    from trunkline.cli.output import wire_json

    def text(name: str) -> str:
        return str(entry.get(name) or "")

    what = "/".join(part for part in (text("server"), text("name")) if part)
    outcome = text("outcome")
    if "latency_ms" in entry:
        outcome += f" {entry['latency_ms']} ms"
    arguments = wire_json(entry["arguments"]).decode() if "arguments" in entry else text("note")
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry["at"]))
    return text("seq"), when, text("stage"), what, text("principal"), text("rule"), text("by"), outcome, arguments

"""``trunkline audit``: verifies and searches the audit trail."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from trunkline.cli.exit_codes import Exit
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
    """Verify and search the audit trail."""


@command.command()
@click.argument("file", required=False, type=_FILE)
@click.option("--partial", is_flag=True, help="Accept a trail whose oldest files were moved away.")
@click.option("--anchor", metavar="HASH", help="Fail unless the entry with this hash, noted earlier, is in the trail.")
@json_option
def verify(file: Path | None, *, partial: bool, anchor: str | None, as_json: bool) -> int:
    """Verify that no entry of the audit trail was changed, removed, inserted or moved.

    FILE defaults to your own trail. The exit code is 5 if verification fails.

    The hash of the last entry is printed. Store it where those who can write the trail cannot write: passed later as
    --anchor, it proves that the trail up to that entry was not rewritten.
    """
    from trunkline.cli.ui.output import print_json, print_notice, print_text
    from trunkline.host.audit.reader import verify as prove

    path = _trail(file)
    found = prove(path, partial=partial, anchor=anchor)
    if as_json:
        print_json(found)
    elif found.ok:
        print_text(f"{path}: intact, {found.entries} entries; the last is {found.seq}, {found.hash}")
    else:
        where = "" if found.file is None else f"{found.file}:{found.first_bad_line}: "
        print_text(f"{path}: NOT intact after {found.entries} good entries: {where}{found.reason}")
    if not as_json:
        for remark in found.remarks:
            print_notice(f"noted in {remark}")
    return Exit.OK if found.ok else Exit.FAILED


def _moment(context: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """Parse a point in time: an age such as ``2h``, or an ISO date and time."""
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
            f"{value!r} is neither an age such as 30m, 2h or 7d nor an ISO date.", context, option
        ) from None


@command.command()
@click.argument("file", required=False, type=_FILE)
@click.option("--server", metavar="GLOB", help="Only these servers.")
@click.option("--tool", metavar="GLOB", help="Only these tools, prompts or resources.")
@click.option("--principal", metavar="NAME", help="Only this principal.")
@click.option("--session", metavar="ID", help="Only this session.")
@click.option("--outcome", metavar="WORD", help="Only this outcome: ok, tool-error, error, lost, cancelled, denied.")
@click.option("--effect", type=click.Choice(["allow", "ask", "deny"]), help="Only this decision of the policy.")
@click.option("--denied", is_flag=True, help="Only denied calls.")
@click.option(
    "--since",
    metavar="WHEN",
    callback=_moment,
    help="Only entries at or after this time: 30m, 2h, 7d (ago), or an ISO date.",
)
@click.option("--until", metavar="WHEN", callback=_moment, help="Only entries before this time; same formats.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the newest N entries.")
@json_option
def query(file: Path | None, *, denied: bool, limit: int | None, as_json: bool, **wanted: Any) -> int:
    """Show entries of the audit trail, oldest first. FILE defaults to your own trail."""
    from trunkline.cli.ui.output import print_json, print_notice, print_table
    from trunkline.host.audit.reader import AuditFilter
    from trunkline.host.audit.reader import query as find

    unreadable: list[str] = []
    found = list(
        find(
            _trail(file),
            AuditFilter(**wanted, stage="denied" if denied else None),
            limit=limit,
            on_unreadable=lambda name, line: unreadable.append(f"{name}:{line}"),
        )
    )
    if as_json:
        print_json({"entries": found})
    elif found:
        print_table(("SEQ", "TIME", "STAGE", "WHAT", "FOR", "RULE", "BY", "OUTCOME", "ARGUMENTS"), [*map(_row, found)])
    else:
        print_notice("no matching entries")
    if unreadable:
        print_notice(
            f"{len(unreadable)} lines are not entries, the first is {unreadable[0]}; run: trunkline audit verify"
        )
    return Exit.OK


def _trail(file: Path | None) -> Path:
    if file is not None:
        return file
    from trunkline.host.state_files import state_folder

    return state_folder() / "audit.jsonl"


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    from trunkline.cli.ui.output import wire_json

    def text(name: str) -> str:
        return str(entry.get(name) or "")

    what = "/".join(part for part in (text("server"), text("name")) if part)
    outcome = text("outcome")
    if "latency_ms" in entry:
        outcome += f" {entry['latency_ms']} ms"
    arguments = wire_json(entry["arguments"]).decode() if "arguments" in entry else text("note")
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry["at"]))
    return text("seq"), when, text("stage"), what, text("principal"), text("rule"), text("by"), outcome, arguments

"""``trunkline grants``: see what was allowed in advance, and take it back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.exits import Exit, Failure
from trunkline.cli.options import json_option

if TYPE_CHECKING:
    from trunkline.host.judgement.grants import Grant, GrantBook

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline grants list
  trunkline grants revoke 5f0c2a9be1d4
  trunkline grants revoke --all

A grant is made by answering a question with "like" or "always". It holds for one tool as it was shown, and ends after
30 days. What was allowed for a session ends with the session, and is not listed here.
"""


@click.group("grants", epilog=_EPILOG)
def command() -> None:
    """List what was allowed in advance, and take it back."""


@command.command("list")
@json_option
def list_them(*, as_json: bool) -> int:
    """List what is allowed without asking again, by whom and until when."""
    from trunkline.cli.output import complain, say, say_json, table

    found = _book().all()
    if as_json:
        say_json({"grants": [_document(each) for each in found]})
    elif found:
        rows = [(each.id, each.server, each.name, _who(each), _until(each), _arguments(each)) for each in found]
        say(table(("ID", "SERVER", "NAME", "FOR", "UNTIL", "ARGUMENTS"), rows))
    else:
        complain("nothing is allowed in advance")
    return Exit.OK


@command.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="Take back every grant.")
@json_option
def revoke(ids: tuple[str, ...], *, everything: bool, as_json: bool) -> int:
    """Take back the grants with these IDs, or all of them; whoever runs already asks again from now on."""
    from trunkline.cli.output import say, say_json

    if bool(ids) is everything:
        raise click.UsageError("Give the ID of a grant, or --all.")
    book = _book()
    if everything:
        count, unknown = book.revoke_all(), []
    else:
        unknown = [each for each in ids if not book.revoke(each)]
        count = len(ids) - len(unknown)
    if as_json:
        say_json({"revoked": count, "unknown": unknown})
    elif count or everything:
        say(f"took back {count} grant{'' if count == 1 else 's'}")
    if unknown:
        raise Failure(f"there is no grant {', '.join(unknown)}: trunkline grants list shows them", Exit.USAGE)
    return Exit.OK


def _book() -> GrantBook:
    from trunkline.host.folders import state_folder
    from trunkline.host.judgement.grants import GrantBook

    return GrantBook(state_folder() / "grants.json")


def _document(grant: Grant) -> dict[str, Any]:
    """Give a grant as JSON; the digest of its arguments says nothing to anybody."""
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(grant)
    document.get("match", {}).pop("rest", None)
    return document


def _who(grant: Grant) -> str:
    who = "anybody here" if grant.principal is None else grant.principal
    return who if grant.profile is None else f"{who} in {grant.profile}"


def _until(grant: Grant) -> str:
    left = "" if grant.uses is None else f", {grant.uses} more"
    if grant.expires is None:
        return f"revoked{left}"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(grant.expires)) + left


def _arguments(grant: Grant) -> str:
    from trunkline.cli.output import wire_json

    if grant.match is None:
        return "any"
    shown = wire_json(grant.match.shown).decode()
    if grant.match.vary is None:
        return shown
    like = "anything" if grant.match.like is None else f"like {grant.match.like}"
    return f"{grant.match.vary} {like}; the others as in {shown}"

"""``trunkline grants``: allows tools in advance, lists grants, and revokes them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.exit_codes import CommandError, Exit
from trunkline.cli.options import json_option

if TYPE_CHECKING:
    from trunkline.host.authorization.grants import Grant, GrantStore
    from trunkline.host.integrity.pins.views import PinView

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline grants allow files/read_file
  trunkline grants allow files --read-only
  trunkline grants list
  trunkline grants show 5f0c2a9be1d4
  trunkline grants revoke 5f0c2a9be1d4
  trunkline grants revoke --all

A grant covers tools as they are defined now: tools that are added or changed later need approval again. A grant made
here lasts until it is revoked; answering "always" to an approval prompt makes one that lasts 30 days. Approvals for a
session end with the session and are not listed here.
"""


@click.group("grants", epilog=_EPILOG)
def command() -> None:
    """Allow tools in advance, list grants, and revoke them."""


@command.command()
@click.argument("targets", nargs=-1, required=True, metavar="SERVER/TOOL|SERVER...")
@click.option("--read-only", "reading", is_flag=True, help="Allow all tools that SERVER marks as read-only.")
@click.option(
    "--profile", metavar="NAME", help="Only for calls in this gateway profile. Default: calls without a profile."
)
@click.option(
    "--principal",
    metavar="SUBJECT",
    help="Only for the caller with this token subject. Default: calls without a subject.",
)
@click.option(
    "--days", type=click.FloatRange(min=0, min_open=True), help="Expire after this many days. Default: never."
)
@json_option
def allow(
    targets: tuple[str, ...],
    *,
    reading: bool,
    profile: str | None,
    principal: str | None,
    days: float | None,
    as_json: bool,
) -> int:
    """Allow a tool, or all read-only tools of a server, without an approval prompt.

    No server is started. The server must have been listed before: the grant covers the definitions pinned then.
    """
    from trunkline.cli.ui.output import print_json, print_text
    from trunkline.host.authorization.grants import is_same_grant

    for target in targets:
        if ("/" in target) is reading:
            wanted = "SERVER with --read-only" if reading else "SERVER/TOOL, or SERVER with --read-only"
            raise click.UsageError(f"{target}: give {wanted}.")
    grant_store = _grant_store()
    expires = None if days is None else time.time() + days * 86400
    wanted_grants = [_granted(target, profile, principal, expires) for target in targets]
    made = []
    for grant in wanted_grants:
        known = next((kept for kept in grant_store.all() if is_same_grant(kept, grant)), None)
        if known is not None and known.expires != grant.expires:
            grant_store.revoke(known.id)
            known = None
        if known is None:
            grant_store.add(grant)
        made.append(known or grant)
    if as_json:
        print_json({"grants": [_document(grant) for grant in made]})
    else:
        for grant in made:
            print_text(f"{grant.id}: {grant.server}: {_what(grant)} allowed, until {_until(grant, 'revoked')}")
    return Exit.OK


def _granted(target: str, profile: str | None, principal: str | None, expires: float | None) -> Grant:
    """Return the grant for a target.

    Raises:
        CommandError: the target is not known, or its definition has to be reviewed first.
    """
    from msgspec.structs import replace

    from trunkline.host.authorization.grants import ServerTool, make_grant, make_server_grant
    from trunkline.host.authorization.policy.decisions import Act

    server, _, name = target.partition("/")
    tools = _pinned_tools(server)
    act = Act(kind="tool", server=server, name=name, profile=profile, principal=principal)
    if name:
        pinned = replace(act, pin=_usable_pin(target, tools.get(name), tools))
        return replace(make_grant(pinned, "always", now=time.time()), expires=expires)
    known = [ServerTool(each.pin.name, each.pin.pin, each.is_read_only) for each in tools.values() if each.is_usable]
    try:
        grant = make_server_grant(act, "always", known, now=time.time(), read_only=True)
    except ValueError as problem:
        hint = "" if tools else f"; {server} has not been listed here yet; first run: trunkline list tools"
        raise CommandError(f"nothing is allowed: {problem}{hint}", Exit.CONFIG) from problem
    return replace(grant, expires=expires)


def _pinned_tools(server: str) -> dict[str, PinView]:
    from trunkline.host.integrity.pins.store import PinStore
    from trunkline.host.integrity.pins.views import pin_views, tool_views
    from trunkline.host.state_files import state_folder

    return tool_views(pin_views(PinStore(state_folder() / "pins.json").servers()), server)


def _usable_pin(target: str, view: PinView | None, tools: Mapping[str, PinView]) -> str:
    import shlex

    from trunkline.cli.host_session import name_hint

    word = shlex.quote(target)
    if view is None or view.state == "gone":
        why = "is not known here" if view is None else "is no longer offered by its server"
        offered = [name for name, each in tools.items() if each.state != "gone"]
        hint = f"{name_hint(target.partition('/')[2], offered)} " if offered else ""
        look = f"{hint}To list the tools of a server first, run: trunkline list tools -c FILE"
        raise CommandError(f"{target} {why}; {look}", Exit.CONFIG)
    if not view.is_usable:
        look = f"review it first: trunkline pins diff {word}, then trunkline pins accept {word}"
        raise CommandError(f"{target} is {view.state}, so it cannot be allowed in advance; {look}", Exit.DENIED)
    return view.pin.pin


@command.command("list")
@json_option
def list_them(*, as_json: bool) -> int:
    """List what is allowed without a prompt, for whom, and until when."""
    from trunkline.cli.ui.output import print_json, print_notice, print_table

    found = _grant_store().all()
    if as_json:
        print_json({"grants": [_document(each) for each in found]})
    elif found:
        rows = [(each.id, each.server, _what(each), _who(each), _until(each), _arguments(each)) for each in found]
        print_table(("ID", "SERVER", "NAME", "FOR", "UNTIL", "ARGUMENTS"), rows)
    else:
        print_notice("no grants")
    return Exit.OK


@command.command()
@click.argument("id")
@json_option
def show(id: str, *, as_json: bool) -> int:
    """Show one grant with the names of all tools it allows."""
    from trunkline.cli.ui.output import one_line, print_json, print_text

    grant = next((each for each in _grant_store().all() if each.id == id), None)
    if grant is None:
        raise CommandError(f"no grant {id}; to list grants, run: trunkline grants list", Exit.USAGE)
    if as_json:
        print_json(_document(grant))
        return Exit.OK
    until = _until(grant, "revoked")
    print_text(f"{grant.server}: {_what(grant)}, for {_who(grant)}, until {until}, arguments: {_arguments(grant)}")
    for name in sorted(grant.tools or {}):
        print_text(f"  {one_line(name)}")
    return Exit.OK


@command.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="Revoke every grant.")
@json_option
def revoke(ids: tuple[str, ...], *, everything: bool, as_json: bool) -> int:
    """Revoke the grants with these IDs, or all of them. Running hosts prompt again from now on."""
    from trunkline.cli.ui.output import counted, print_json, print_text

    if bool(ids) is everything:
        raise click.UsageError("Give the ID of a grant, or --all.")
    grant_store = _grant_store()
    if everything:
        count, unknown = grant_store.revoke_all(), []
    else:
        unknown = [each for each in ids if not grant_store.revoke(each)]
        count = len(ids) - len(unknown)
    if as_json:
        print_json({"revoked": count, "unknown": unknown})
    elif count or everything:
        print_text(f"revoked {counted(count, 'grant')}")
    if unknown:
        raise CommandError(f"no grant {', '.join(unknown)}; to list grants, run: trunkline grants list", Exit.USAGE)
    return Exit.OK


def _grant_store() -> GrantStore:
    from trunkline.host.authorization.grants import GrantStore
    from trunkline.host.state_files import state_folder

    return GrantStore(state_folder() / "grants.json")


def _document(grant: Grant) -> dict[str, Any]:
    from trunkline.devtools.policy_checks import grant_document

    return grant_document(grant)


def _what(grant: Grant) -> str:
    """Describe the tools that a grant covers."""
    from trunkline.cli.ui.output import counted

    kind = "read-only tool" if grant.read_only else "tool"
    if grant.awaits is not None:
        return f"{kind}s, once the server is listed"
    if grant.kind == "origins":
        return f"pages may reach {grant.name}"
    if grant.tools is None:
        return grant.name
    return counted(len(grant.tools), kind)


def _who(grant: Grant) -> str:
    # Without a principal it covers only calls without one: those of the command line, and of clients without a login.
    who = "callers without a login" if grant.principal is None else grant.principal
    return who if grant.profile is None else f"{who} in {grant.profile}"


def _until(grant: Grant, endless: str = "no end") -> str:
    """Describe when a grant ends; ``endless`` stands for one that ends only when it is revoked."""
    left = "" if grant.uses is None else f", {grant.uses} more"
    if grant.expires is None:
        return f"{endless}{left}"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(grant.expires)) + left


def _arguments(grant: Grant) -> str:
    from trunkline.cli.ui.output import wire_json

    if grant.match is None:
        return "any"
    shown = wire_json(grant.match.shown).decode()
    if grant.match.vary is None:
        return shown
    like = "anything" if grant.match.like is None else f"like {grant.match.like}"
    return f"{grant.match.vary} {like}; the others as in {shown}"

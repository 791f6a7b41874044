"""``trunkline auth``: log in at servers, log out, and see where one is logged in."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from trunkline.cli.exits import Exit, Failure
from trunkline.cli.options import config_option, json_option, told
from trunkline.cli.targets import Named, Site, read_target

if TYPE_CHECKING:
    from trunkline.auth.keeping import Kept
    from trunkline.cli.logins import Owner

__all__ = ["command"]

T = TypeVar("T")

_EPILOG = """\
\b
Examples:
  trunkline auth login https://mcp.example.com/mcp
  trunkline auth login https://mcp.example.com/mcp --scope files:read --no-browser
  trunkline auth login github -c mcp.json
  trunkline auth list
  trunkline auth logout https://mcp.example.com/mcp

Logins are kept in the system's keyring or, where there is none, in an encrypted file; the variable TRUNKLINE_HOME names
a folder for that file. All other commands use them by themselves.
"""
_FILE = click.Path(exists=True, dir_okay=False)
_USER = click.option("--user", metavar="SUBJECT", help="For a gateway: the login of this user of it, not one's own.")
_USER_ISSUER = click.option("--user-issuer", metavar="URL", help="Who names that user, if the gateway checks tokens.")


@click.group("auth", epilog=_EPILOG)
def command() -> None:
    """Log in at servers that are reached by a URL, log out, list the logins."""


@command.command()
@click.argument("target")
@config_option
@click.option("--scope", "scopes", multiple=True, metavar="S", help="A scope to ask for; else what the server names.")
@click.option("--client-id", metavar="ID", help="The id of a client that is registered there already.")
@click.option("--no-browser", is_flag=True, help="Show the page's address instead of opening a browser.")
@click.option("--ca-file", type=_FILE, help="Certificates to trust, instead of the system's.")
@_USER
@_USER_ISSUER
@json_option
def login(
    target: str,
    *,
    config: tuple[str, ...],
    scopes: tuple[str, ...],
    client_id: str | None,
    no_browser: bool,
    ca_file: str | None,
    user: str | None,
    user_issuer: str | None,
    as_json: bool,
) -> int:
    """Log in at the server TARGET, in a browser, and keep the login for all other commands.

    TARGET is a URL or the name of a server in a configuration. The browser may be on another machine: open the address
    that is shown there, and paste the one it leads to here.
    """
    from trunkline.cli.logins import Wanted, document, get_login
    from trunkline.cli.output import complain, say, say_json

    place = told(lambda: _place(target, config, approved=True), as_json)
    url, scopes, client_id = place.url, scopes or place.scopes, client_id or place.client_id
    owner = _owner(user, user_issuer)
    kept = _run(get_login(Wanted(url, scopes, client_id, not no_browser, ca_file, owner)), as_json)
    if as_json:
        say_json(None if kept is None else document(kept))
    elif kept is not None:
        say(f"logged in at {kept.url} by {kept.issuer}; {_scopes(kept)}")
    if kept is None:
        complain(f"{url} lets everybody in and names no place to log in: nothing was kept")
    return Exit.OK


@command.command()
@click.argument("target", required=False)
@config_option
@click.option("--all", "everywhere", is_flag=True, help="End every login.")
@click.option("--local", is_flag=True, help="Only forget it here; its tokens stay good until they expire.")
@click.option("--ca-file", type=_FILE, help="Certificates to trust, instead of the system's.")
@_USER
@_USER_ISSUER
def logout(
    target: str | None,
    *,
    config: tuple[str, ...],
    everywhere: bool,
    local: bool,
    ca_file: str | None,
    user: str | None,
    user_issuer: str | None,
) -> int:
    """End the login at the server TARGET, a URL or a name, or all of them.

    The authorization server is asked to take the tokens back, if it says where; the login is forgotten in any case.
    """
    from trunkline.cli.logins import end_logins
    from trunkline.cli.output import complain, one_line, say

    if (target is None) is not everywhere:
        raise click.UsageError("Give the URL or the name of a server, or --all.")
    url = None if target is None else _place(target, config, approved=False).url
    ended = _run(end_logins(url, _owner(user, user_issuer), local=local, ca_file=ca_file), as_json=False)
    for each in ended:
        if each.problem is not None:
            complain(f"{each.url}: forgotten here, and not taken back: {one_line(each.problem)}")
    count = len(ended)
    if not count:
        complain("there is no login" if url is None else f"there is no login for {url}")
    else:
        say(f"logged out of {count} server{'s' if count > 1 else ''}" if url is None else f"logged out of {url}")
    return Exit.OK


@command.command("list")
@_USER
@_USER_ISSUER
@json_option
def list_them(*, user: str | None, user_issuer: str | None, as_json: bool) -> int:
    """List where one is logged in, by whom and until when; tokens are never shown."""
    from trunkline.cli.logins import document, list_logins
    from trunkline.cli.output import complain, say, say_json, table

    found = _run(list_logins(_owner(user, user_issuer)), as_json)
    if as_json:
        say_json({"logins": [document(each) for each in found]})
    elif found:
        rows = [(each.url, each.resource, each.issuer, each.scope or "", _expiry(each)) for each in found]
        say(table(("SERVER", "RESOURCE", "ISSUER", "SCOPES", "EXPIRES"), rows))
    else:
        complain("there is no login; trunkline auth login URL makes one")
    return Exit.OK


class _Place(NamedTuple):
    """Where to log in, and what its entry says about that."""

    url: str
    scopes: tuple[str, ...] = ()
    client_id: str | None = None


def _place(target: str, files: Sequence[str], *, approved: bool) -> _Place:
    """Take a TARGET that one can log in at; what a project's file names must have been approved, if that counts.

    Raises:
        Failure: it is none.
        ConfigError: a file that was named cannot be used.
        PolicyDenied: it is not approved.
    """
    from trunkline.auth.addresses import may_carry_secrets

    found = read_target(target, files)
    place = _configured(found, approved=approved) if isinstance(found, Named) else None
    if isinstance(found, Site):
        place = _Place(found.url)
    if place is None:
        raise Failure("one logs in at URLs; a server that is started gets its credentials by --env", Exit.USAGE)
    if not may_carry_secrets(place.url):
        raise Failure("a login needs an https URL without a user in it, or one of this machine", Exit.CONFIG)
    return place


def _configured(named: Named, *, approved: bool) -> _Place | None:
    from trunkline.cli.configs import check_approved, read_configuration
    from trunkline.cli.secrecy import book_here
    from trunkline.errors import ConfigError
    from trunkline.host.config.spelling import snake
    from trunkline.host.secrecy.filling import fill
    from trunkline.host.secrecy.vault import Vault

    entry = read_configuration(named.files).entries[named.server or ""]
    if entry.problem is not None:
        raise ConfigError(entry.problem)
    if approved and entry.url is not None:
        check_approved(entry)
        entry = asyncio.run(fill(entry, Vault().read))
        book_here().add(entry.secrets)
    if entry.url is None:
        return None
    said = {snake(str(name)): value for name, value in entry.auth.items()} if isinstance(entry.auth, Mapping) else {}
    scopes = said.get("scopes") or ()
    return _Place(entry.url, tuple(scopes.split() if isinstance(scopes, str) else scopes), said.get("client_id"))


def _owner(user: str | None, issuer: str | None) -> Owner | None:
    """Say whose login is meant: one's own, or that of a user of a gateway."""
    if user is None:
        if issuer is not None:
            raise click.UsageError("--user-issuer goes with --user.")
        return None
    from trunkline.cli.logins import Owner

    return Owner(user, issuer)


def _run(work: Coroutine[Any, Any, T], as_json: bool) -> T:
    """Do something with logins; what fails is told as JSON too if that was asked for."""
    return told(lambda: asyncio.run(work), as_json)


def _scopes(kept: Kept) -> str:
    return f"scopes: {kept.scope}" if kept.scope else "no scopes"


def _expiry(kept: Kept) -> str:
    """Say for people how long a login lasts."""
    import time

    if kept.renewable:
        return "renewed by itself"
    if kept.expires_at is None:
        return "not said"
    if kept.expires_at <= time.time():
        return "over"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(kept.expires_at))

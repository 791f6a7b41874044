"""``trunkline auth``: logs in to servers, logs out, and lists logins."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trunkline.cli.exit_codes import CommandError, Exit
from trunkline.cli.options import config_option, json_option, with_json_errors
from trunkline.cli.targets import ConfiguredTarget, UrlTarget, resolve_target

if TYPE_CHECKING:
    from trunkline.auth.token_store import StoredLogin
    from trunkline.cli.logins import GatewayUser
    from trunkline.host.logins import LoginTarget

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

Logins are stored in the system's keyring or, if there is none, in an encrypted file, whose directory can be set with
the TRUNKLINE_HOME environment variable. All other commands use them automatically.
"""
_FILE = click.Path(exists=True, dir_okay=False)
_USER = click.option("--user", metavar="SUBJECT", help="For a gateway: the login of this user of the gateway.")
_USER_ISSUER = click.option("--user-issuer", metavar="URL", help="The issuer of that user's tokens.")


@click.group("auth", epilog=_EPILOG)
def command() -> None:
    """Log in to servers at URLs, log out, and list logins."""


@command.command()
@click.argument("target")
@config_option
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="S",
    help="Scope to request; repeatable. Default: those the server names.",
)
@click.option("--client-id", metavar="ID", help="ID of a client that is already registered.")
@click.option("--no-browser", is_flag=True, help="Print the URL instead of opening a browser.")
@click.option("--ca-file", type=_FILE, help="CA certificates to trust instead of the system's.")
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
    """Log in to the server TARGET in a browser, and store the login for all other commands.

    TARGET is a URL or the name of a configured server. To use a browser on another machine, open the printed URL there,
    and paste the address it ends at here.
    """
    from trunkline.cli.logins import LoginOptions, get_login, login_document
    from trunkline.cli.ui.output import print_json, print_notice, print_text

    place = with_json_errors(lambda: _login_target(target, config, approved=True), as_json)
    url, scopes, client_id = place.url, scopes or place.scopes, client_id or place.client_id
    owner = _owner(user, user_issuer)
    kept = _run(get_login(LoginOptions(url, scopes, client_id, not no_browser, ca_file, owner)), as_json)
    if as_json:
        print_json(None if kept is None else login_document(kept))
    elif kept is not None:
        print_text(f"logged in to {kept.url} at {kept.issuer}; {_scopes(kept)}")
    if kept is None:
        print_notice(f"{url} needs no login and names no authorization server: nothing was stored")
    return Exit.OK


@command.command()
@click.argument("target", required=False)
@config_option
@click.option("--all", "everywhere", is_flag=True, help="Log out everywhere.")
@click.option("--local", is_flag=True, help="Only delete the stored login; its tokens stay valid until they expire.")
@click.option("--ca-file", type=_FILE, help="CA certificates to trust instead of the system's.")
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
    """Log out of the server TARGET, which is a URL or the name of a configured server, or of all servers.

    The tokens are revoked if the authorization server supports it. The stored login is deleted in any case.
    """
    from trunkline.cli.logins import end_logins
    from trunkline.cli.ui.output import one_line, print_notice, print_text

    if (target is None) is not everywhere:
        raise click.UsageError("Give the URL or the name of a server, or --all.")
    url = None if target is None else _login_target(target, config, approved=False).url
    ended = _run(end_logins(url, _owner(user, user_issuer), local=local, ca_file=ca_file), as_json=False)
    for each in ended:
        if each.problem is not None:
            print_notice(f"{each.url}: deleted here, but not revoked: {one_line(each.problem)}")
    count = len(ended)
    if not count:
        print_notice("no logins stored" if url is None else f"no login stored for {url}")
    else:
        print_text(f"logged out of {count} server{'s' if count > 1 else ''}" if url is None else f"logged out of {url}")
    return Exit.OK


@command.command("list")
@_USER
@_USER_ISSUER
@json_option
def list_them(*, user: str | None, user_issuer: str | None, as_json: bool) -> int:
    """List stored logins with issuer and expiry. Tokens are never shown."""
    from trunkline.cli.logins import list_logins, login_document
    from trunkline.cli.ui.output import print_json, print_notice, print_table

    found = _run(list_logins(_owner(user, user_issuer)), as_json)
    if as_json:
        print_json({"logins": [login_document(each) for each in found]})
    elif found:
        rows = [(each.url, each.resource, each.issuer, each.scope or "", _expiry(each)) for each in found]
        print_table(("SERVER", "RESOURCE", "ISSUER", "SCOPES", "EXPIRES"), rows)
    else:
        print_notice("no logins stored; to log in, run: trunkline auth login URL")
    return Exit.OK


def _login_target(target: str, files: Sequence[str], *, approved: bool) -> LoginTarget:
    """Resolve TARGET to a server with a login; with ``approved``, a project's server must have been approved.

    Raises:
        CommandError: TARGET is not a server that one can log in to.
        ConfigError: a file given with ``--config`` cannot be used.
        PolicyDenied: the server is not approved.
    """
    from trunkline.auth.oauth import may_carry_secrets
    from trunkline.host.logins import LoginTarget

    found = resolve_target(target, files)
    place = _configured(found, approved=approved) if isinstance(found, ConfiguredTarget) else None
    if isinstance(found, UrlTarget):
        place = LoginTarget(url=found.url)
    if place is None:
        raise CommandError(
            "only a server at a URL has a login; pass credentials to a local server with --env", Exit.USAGE
        )
    if not may_carry_secrets(place.url):
        raise CommandError("a login needs an https URL without user name, or a URL of this machine", Exit.CONFIG)
    return place


def _configured(named: ConfiguredTarget, *, approved: bool) -> LoginTarget | None:
    from trunkline.cli.host_session import check_approved
    from trunkline.cli.ui.output import current_secrets
    from trunkline.errors import ConfigError
    from trunkline.host.logins import login_target
    from trunkline.host.secrets.resolve import resolve_secrets
    from trunkline.host.secrets.vault import Vault

    entry = named.configuration.entries[named.server or ""]
    if entry.problem is not None:
        raise ConfigError(entry.problem)
    if approved and entry.url is not None:
        check_approved(entry)
        entry = asyncio.run(resolve_secrets(entry, Vault().read))
        current_secrets().add(entry.secrets)
    return login_target(entry)


def _owner(user: str | None, issuer: str | None) -> GatewayUser | None:
    """Return the gateway user whose login is meant; None for one's own login."""
    if user is None:
        if issuer is not None:
            raise click.UsageError("--user-issuer goes with --user.")
        return None
    from trunkline.cli.logins import GatewayUser

    return GatewayUser(user, issuer)


def _run(work: Coroutine[Any, Any, T], as_json: bool) -> T:
    """Run a coroutine; with ``as_json``, print its error as JSON too."""
    return with_json_errors(lambda: asyncio.run(work), as_json)


def _scopes(kept: StoredLogin) -> str:
    return f"scopes: {kept.scope}" if kept.scope else "no scopes"


def _expiry(kept: StoredLogin) -> str:
    """Describe when a login expires."""
    import time

    if kept.renewable:
        return "renewed automatically"
    if kept.expires_at is None:
        return "unknown"
    if kept.expires_at <= time.time():
        return "expired"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(kept.expires_at))

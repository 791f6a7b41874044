"""How every reference server starts: the shared options, stdio or HTTP, and errors as one sentence.

This module knows no server. The ``__main__`` of a server has a click command decorated with ``with_command_options``,
and calls ``run_command``.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

import click
from msgspec import Struct

from trunkline.errors import ConfigError, TrunklineError
from trunkline.server import ListenAddress, Server, parse_listen_address, parse_scopes, reachable_url, run_loop

__all__ = ["CommandOptions", "run_command", "seconds_option", "with_command_options", "with_statement_options"]

_USAGE, _CONFIG, _INTERRUPTED = 1, 2, 130
_LEVELS = ("debug", "info", "warning", "error")
_SHORTEST_TOKEN = 16


class CommandOptions(Struct, frozen=True):
    """How a server is served, and to which callers: over stdio, unless there is an address."""

    address: ListenAddress | None = None
    path: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    allow_unauthenticated: bool = False
    tokens_env: str | None = None
    issuer: str | None = None
    audience: str | None = None
    read_scope: str | None = None
    write_scope: str | None = None

    def run(self, server: Server) -> None:
        """Serve until the client disconnects or the process is stopped.

        Raises:
            ConfigError: the options are invalid; the message says what to change.
        """
        if self.address is None:
            self._check_stdio()
            run_loop(server.run_async())
            return
        auth, path = self.auth(), self.path or "/mcp"
        if auth is None and server.settings.auth is None:
            self._check_open(self.address)
        if self.read_scope or self.write_scope:
            server.require_scopes(read=self.read_scope or (), write=self.write_scope or ())

        def announce(origin: str) -> None:
            url, everywhere = reachable_url(origin, path)
            click.echo(f"{server.name} is served at {url}{everywhere}", err=True)

        given: dict[str, Any] = {
            "host": self.address.host,
            "port": self.address.port,
            "path": path,
            "certfile": self.certfile,
            "keyfile": self.keyfile,
            "allowed_hosts": self.allowed_hosts or None,
            "allow_unauthenticated": self.allow_unauthenticated or None,
            "auth": auth,
        }
        options = {name: value for name, value in given.items() if value is not None}
        run_loop(server.run_async("http", **options, started=announce))

    def auth(self) -> Any:
        """Return the token verifier for HTTP: listed tokens, or those of an issuer; None without authentication.

        Raises:
            ConfigError: the options conflict, or the variable contains no valid token.
        """
        if self.tokens_env and self.issuer:
            raise ConfigError("--tokens-env and --issuer exclude each other: choose one source of tokens")
        if self.audience and not self.issuer:
            raise ConfigError("--audience needs --issuer: it names the server that the issuer's tokens are for")
        if (self.read_scope or self.write_scope) and not (self.tokens_env or self.issuer):
            raise ConfigError("--read-scope and --write-scope go with --tokens-env or --issuer: tokens have scopes")
        if self.tokens_env:
            from trunkline.auth import StaticTokens

            return StaticTokens(_tokens(self.tokens_env))
        if self.issuer:
            if not self.audience:
                raise ConfigError("--issuer needs --audience: the URI of this server that its tokens must name")
            from trunkline.auth import JWTVerifier

            return JWTVerifier(issuer=self.issuer, audience=self.audience)
        return None

    def _check_open(self, address: ListenAddress) -> None:
        """Reject an unauthenticated public address with a message in terms of the command line."""
        from trunkline.net import is_loopback

        if not self.allow_unauthenticated and address.host is not None and not is_loopback(address.host, below=False):
            raise ConfigError(
                f"--http {address.host}: others can reach it, and callers are not authenticated; name the accepted "
                "tokens with --tokens-env NAME or --issuer URL, listen at 127.0.0.1, or accept all callers with "
                "--allow-unauthenticated"
            )

    def _check_stdio(self) -> None:
        for name in self.__struct_fields__:
            if name != "address" and getattr(self, name):
                raise click.UsageError(f"{_option(name)} is for HTTP: give --http as well.")


def _tokens(variable: str) -> dict[str, Any]:
    """Parse ``token``, ``name:token`` or ``name:token scope scope``, separated by commas, from a variable."""
    entries = [entry.split() for entry in os.environ.get(variable, "").split(",") if entry.strip()]
    if not entries:
        raise ConfigError(f"The variable {variable} holds no token: set it to TOKEN, or to NAME:TOKEN,NAME:TOKEN")
    tokens: dict[str, Any] = {}
    for number, (entry, *scopes) in enumerate(entries, 1):
        name, colon, token = entry.rpartition(":")
        if scopes and not colon:
            # Otherwise the first half of a name with a space would become a token that is easy to guess.
            raise ConfigError(
                f"Token {number} in the variable {variable} has scopes and no name, or a name with a space: write "
                "NAME:TOKEN SCOPE SCOPE"
            )
        if len(token) < _SHORTEST_TOKEN:
            raise ConfigError(
                f"Token {number} in the variable {variable} has fewer than {_SHORTEST_TOKEN} characters, which can be "
                "guessed; make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
        if token in tokens:
            raise ConfigError(
                f"Token {number} in the variable {variable} occurs twice: give each user a separate token"
            )
        if colon and not name:
            raise ConfigError(
                f"Token {number} in the variable {variable} has an empty name: write NAME:TOKEN, or TOKEN"
            )
        # Each token is a different user, even without a name.
        subject = name or ("user" if number == 1 else f"user-{number}")
        tokens[token] = {"subject": subject, "scopes": _scopes(scopes, number, variable)} if scopes else subject
    return tokens


def _scopes(words: list[str], number: int, variable: str) -> tuple[str, ...]:
    try:
        return parse_scopes(words, "scopes")
    except TypeError:
        # The word is not repeated: it may be a token in the wrong position.
        raise ConfigError(
            f"Token {number} in the variable {variable} has a scope with a character that scopes do not have: quotes, "
            "backslashes and letters outside ASCII"
        ) from None


# --- the command line ------------------------------------------------------------------------------------------------


def _address(context: click.Context, option: click.Parameter, value: str | None) -> ListenAddress | None:
    address = None if value is None else parse_listen_address(value)
    if value is not None and address is None:
        raise click.BadParameter(f"{value!r} is not [HOST:]PORT; --http alone goes last.", context, option)
    return address


def _scope(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    try:
        scopes = parse_scopes(value, "scopes")
    except TypeError:
        scopes = ()
    if value and len(scopes) != 1:
        raise click.BadParameter(f"{value!r} is not a scope: it must be one ASCII word.", context, option)
    return value


_OPTIONS = (
    click.option(
        "--http",
        "address",
        metavar="[HOST:]PORT",
        is_flag=False,
        flag_value="",
        callback=_address,
        help="Serve over HTTP instead of stdio; at 127.0.0.1:8000 if no address is given.",
    ),
    click.option("--path", metavar="/PATH", help="HTTP: the path of the endpoint.  [default: /mcp]"),
    click.option("--certfile", metavar="FILE", help="HTTP: serve HTTPS with this certificate (PEM)."),
    click.option("--keyfile", metavar="FILE", help="HTTP: the private key, if it is in another file."),
    click.option(
        "--allowed-host",
        "allowed_hosts",
        multiple=True,
        metavar="NAME",
        help="HTTP: a public host name of the server, such as behind a proxy; may be repeated.",
    ),
    click.option("--allow-unauthenticated", is_flag=True, help="HTTP: accept requests without a token."),
    click.option(
        "--tokens-env",
        metavar="NAME",
        help="HTTP: the environment variable with the accepted tokens: TOKEN, or NAME:TOKEN,NAME:TOKEN; "
        "the scopes of a token follow it: NAME:TOKEN SCOPE SCOPE.",
    ),
    click.option(
        "--issuer",
        metavar="URL",
        help="HTTP: accept tokens of this authorization server; needs --audience.",
    ),
    click.option(
        "--audience", metavar="URI", help="HTTP: the URI of this server, which those tokens must be issued for."
    ),
    click.option(
        "--write-scope",
        metavar="SCOPE",
        callback=_scope,
        help="HTTP: the scope that tools which may change something require.",
    ),
    click.option(
        "--read-scope",
        metavar="SCOPE",
        callback=_scope,
        help="HTTP: the scope that everything else requires; without --write-scope, everything.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(_LEVELS),
        default="warning",
        show_default=True,
        help="Log level on stderr.",
    ),
)


def with_command_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every reference server; the function receives them as ``serving``."""

    @wraps(function)
    def with_serving(*args: Any, log_level: str, **given: Any) -> None:
        logging.basicConfig(
            level=log_level.upper(), stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s", force=True
        )
        serving = CommandOptions(**{name: given.pop(name) for name in CommandOptions.__struct_fields__})
        _reject_empty_values(serving)
        function(*args, serving=serving, **given)

    command: Callable[..., None] = with_serving
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _reject_empty_values(serving: CommandOptions) -> None:
    """Reject empty option values: an unset shell variable must not open a server to everyone."""
    for name in serving.__struct_fields__:
        value = getattr(serving, name)
        if value == "" or (isinstance(value, tuple) and "" in value):
            raise click.UsageError(f"{_option(name)} is empty: give a value, or leave it out.")


def _option(field: str) -> str:
    return {"allowed_hosts": "--allowed-host"}.get(field, "--" + field.replace("_", "-"))


def seconds_option(service: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option ``--seconds`` of a server that calls a service over HTTP."""
    return click.option(
        "--seconds",
        type=click.FloatRange(1, 300),
        default=30,
        show_default=True,
        metavar="SECONDS",
        help=f"Timeout for requests to {service}.",
    )


def with_statement_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the statement limits of a database server: ``--max-rows``, ``--max-bytes`` and ``--timeout``."""
    rows, size = click.IntRange(1, 100_000), click.IntRange(1024, 64 * 1024 * 1024)
    options = (
        click.option(
            "--max-rows", type=rows, default=1000, show_default=True, metavar="ROWS", help="Most rows in one result."
        ),
        click.option(
            "--max-bytes",
            type=size,
            default=1024**2,
            show_default=True,
            metavar="BYTES",
            help="Most bytes in one result.",
        ),
        click.option(
            "--timeout",
            type=click.FloatRange(0.1, 3600),
            default=10.0,
            show_default=True,
            metavar="SECONDS",
            help="Time limit for one statement.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


#: Click's names for bounded numbers, and plain ones.
_NUMBERS = (("a valid integer range", "a whole number"), ("a valid float range", "a number"))


def run_command(command: click.Command, arguments: list[str] | None = None) -> NoReturn:
    """Run a server's command and exit: 0 on success, 1 for wrong usage, 2 for an invalid setting."""
    name = command.name or "server"
    try:
        command.main(arguments, prog_name=name, standalone_mode=False)
    except click.ClickException as error:
        told = error.format_message()
        for theirs, plain in _NUMBERS:
            told = told.replace(theirs, plain)
        # Some of click's messages end with a list, without a full stop.
        stop = "" if told.endswith((".", "?", "?)")) else "."
        click.echo(f"error: {told}{stop} See {name} --help.", err=True)
        raise SystemExit(_USAGE) from None
    except (click.Abort, KeyboardInterrupt):
        raise SystemExit(_INTERRUPTED) from None
    except TrunklineError as error:
        click.echo(f"error: {error}", err=True)
        raise SystemExit(_CONFIG) from None
    raise SystemExit(0)

"""``trunkline serve``: all servers of a configuration as one server, over stdio or HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.addresses import http_option
from trunkline.cli.exits import Exit, Failure
from trunkline.cli.options import approval_option, config_option, guard_of, guard_options
from trunkline.server.addresses import Address, read_address

if TYPE_CHECKING:
    from trunkline.cli.gateway_files import GatewayFile
    from trunkline.host.gateway.serving import Profile

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline serve -c mcp.json
  trunkline serve -c mcp.json --http 8080
  trunkline serve -c mcp.json --http 0.0.0.0:8443 --token @token.txt --certfile cert.pem --keyfile key.pem
  trunkline serve -c mcp.json --gateway gateway.toml --http 8080

--approval sets who asks the user before a call. client: the client in front does, so calls pass unless a rule denies or
asks, or a definition is flagged or changed. ask: the gateway does, by elicitation; a client that cannot be asked gets
only what rules and earlier approvals allow. deny: no one is asked, and only what rules and earlier approvals allow
passes. The default is client over stdio and on a loopback address with one token, and ask wherever others can call.

Over HTTP callers need a token; without --token, or the variable TRUNKLINE_GATEWAY_TOKEN, a new one is made and shown
once. SIGHUP reloads the configuration and policies; servers whose entries did not change keep running. SIGTERM and
Ctrl-C let calls finish.
"""
_FILE = click.Path()
_TOKEN = "TRUNKLINE_GATEWAY_TOKEN"
#: What makes sense over HTTP alone.
_HTTP_ONLY = ("path", "token", "no_auth", "certfile", "keyfile", "allowed_host", "issuer", "audience")
_WAIT_SECONDS = 10.0


@click.command(epilog=_EPILOG)
@config_option
@http_option
@click.option("--path", metavar="/PATH", help="The path of the endpoint, else /mcp; profiles are below it.")
@click.option("--token", metavar="T", help=f"The token that callers need; @file reads a file. Or {_TOKEN}.")
@click.option("--no-auth", is_flag=True, help="Ask nobody who they are; on this machine only.")
@click.option("--issuer", metavar="URL", help="Take tokens that this authorization server signed; with --audience.")
@click.option("--audience", metavar="A", help="Whom such tokens must be for: this gateway's URL, most often.")
@guard_options
@approval_option("Who asks the user before a call; see below.")
@click.option("--gateway", "file", metavar="FILE", help="Options and profiles from a TOML file; flags override it.")
@click.option("--profile", metavar="NAME", help="Over stdio: serve this profile.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="Calls a minute of one caller.")
@click.option("--concurrent", type=click.IntRange(min=1), metavar="N", help="Calls at once of one caller.")
@click.option("--search", type=click.Choice(["auto", "on", "off"]), help="Tools to search a large catalog with.")
@click.option(
    "--wait", type=click.FloatRange(min=0), metavar="S", help="Seconds the first list waits for servers; else 10."
)
@click.option(
    "--starts", type=click.IntRange(min=1), metavar="N", help="Servers that start at the same time; else 4 per core."
)
@click.option("--certfile", type=_FILE, help="Serve HTTPS with this certificate (PEM).")
@click.option("--keyfile", type=_FILE, help="Its key, if that is in another file.")
@click.option("--allowed-host", multiple=True, metavar="NAME", help="A public name under which a proxy reaches it.")
@click.option("-v", "--verbose", count=True, help="Show how the servers come up, also without a terminal.")
def command(
    *, config: tuple[str, ...], address: Address | None, file: str | None, profile: str | None, **given: Any
) -> int:
    """Serve the servers of a configuration as one MCP server, over stdio until the client goes away, or over HTTP."""
    from trunkline.cli.approval_modes import approval_of, profiles_with
    from trunkline.cli.gateway_files import GatewayFile, read_gateway_file

    written = GatewayFile() if file is None else read_gateway_file(file)
    address = _address(written) if address is None and profile is None else address
    settings = _settings(given, written, http=address is not None)
    _check_profile(profile, written.profiles, http=address is not None)
    _check_servers(config, written.profiles)
    options: dict[str, Any] = {
        **_limits(settings),
        "profiles": profiles_with(written.profiles, given["approval"]),
        "profile": profile,
        **({} if address is None else _http(address, settings)),
    }
    options["approval"] = approval_of(settings, options)
    from trunkline.cli.serving import Plan, run_gateway

    run_gateway(
        Plan(
            files=config,
            guard=guard_of(settings),
            wait=settings.get("wait", _WAIT_SECONDS),
            starts=settings.get("starts"),
            options=options,
            verbose=given["verbose"] > 0,
        )
    )
    return Exit.OK


# --- what was chosen -------------------------------------------------------------------------------------------------


def _address(written: GatewayFile) -> Address | None:
    """Take the address of the file."""
    said = written.options.get("http")
    if said is None:
        return None
    address = read_address(str(said))
    if address is None:
        raise Failure(f"http = {said!r} in the gateway's file is no [HOST:]PORT", Exit.CONFIG)
    return address


def _settings(given: Mapping[str, Any], written: GatewayFile, *, http: bool) -> dict[str, Any]:
    """Join flags and file; a flag that would do nothing is refused, a line of the file may wait for HTTP."""
    flags = {name: value for name, value in given.items() if value not in (None, False, ()) and name != "verbose"}
    if given["wait"] is not None:
        flags["wait"] = given["wait"]
    if not http:
        for name in _HTTP_ONLY:
            if name in flags:
                raise click.UsageError(f"--{name.replace('_', '-')} is for HTTP: give --http as well.")
    if "token" in flags and "no_auth" in flags:
        raise click.UsageError("--token and --no-auth contradict each other: give one of them.")
    settings = {**written.options, **flags}
    if ("issuer" in settings) is not ("audience" in settings):
        raise click.UsageError("--issuer and --audience go together.")
    if "issuer" in settings and ("token" in flags or "no_auth" in flags):
        raise click.UsageError("--issuer says who may come in: leave out --token and --no-auth.")
    return settings


def _check_profile(name: str | None, profiles: Mapping[str, Profile], *, http: bool) -> None:
    if name is None:
        return
    if http:
        raise click.UsageError("--profile is for stdio: over HTTP each profile has a path of its own, /mcp/NAME.")
    if name not in profiles:
        from trunkline.cli.configs import name_hint

        raise Failure(f"there is no profile {name!r} in the gateway's file; {name_hint(name, profiles)}", Exit.CONFIG)


def _check_servers(files: tuple[str, ...], profiles: Mapping[str, Profile]) -> None:
    """Refuse to serve nothing, and profiles of servers that are not there.

    Raises:
        ConfigError: a file that was named cannot be used.
    """
    from trunkline.cli.configs import name_hint, read_configuration

    configuration = read_configuration(files)
    for problem in configuration.problems:
        if problem.severity == "error":
            raise Failure(str(problem), Exit.CONFIG)
    if not configuration.files:
        raise Failure("no configuration is found here: name a file with -c", Exit.CONFIG)
    for name, profile in profiles.items():
        for server in profile.servers or ():
            if server not in configuration.entries:
                hint = name_hint(server, configuration.entries)
                raise Failure(f"profile {name}: no server is called {server!r}; {hint}", Exit.CONFIG)


def _limits(settings: Mapping[str, Any]) -> dict[str, Any]:
    names = {"rate": "per_minute", "concurrent": "concurrent", "search": "search"}
    return {inner: settings[name] for name, inner in names.items() if name in settings}


def _http(address: Address, settings: Mapping[str, Any]) -> dict[str, Any]:
    path = settings.get("path", "/mcp")
    if not path.startswith("/"):
        raise click.UsageError(f"--path {path} begins with no slash: give /{path}.")
    token = None if settings.get("no_auth") or "issuer" in settings else _token(settings)
    return {
        "http": f"{address.host or '127.0.0.1'}:{8000 if address.port is None else address.port}",
        "path": path,
        "token": token,
        "no_auth": bool(settings.get("no_auth")),
        "auth": _verifier(settings),
        "certfile": settings.get("certfile"),
        "keyfile": settings.get("keyfile"),
        "allowed_hosts": settings.get("allowed_host", ()),
    }


def _token(settings: Mapping[str, Any]) -> str | None:
    """Give the token that was chosen; None has one made up."""
    import os

    from trunkline.cli.arguments import read_value

    if "token" not in settings:
        return os.environ.get(_TOKEN) or None
    token = read_value(settings["token"]).strip()
    if not token:
        raise click.UsageError("--token is empty: nobody could come in.")
    return token


def _verifier(settings: Mapping[str, Any]) -> Any:
    if "issuer" not in settings:
        return None
    from trunkline.auth.jwt_verifier import JWTVerifier

    return JWTVerifier(issuer=settings["issuer"], audience=settings["audience"])

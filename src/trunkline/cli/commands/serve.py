"""``trunkline serve``: runs the gateway, which serves all configured servers as one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.exit_codes import CommandError, Exit
from trunkline.cli.options import (
    approval_option,
    config_option,
    http_option,
    policy_options,
    rate_limit_option,
    read_policy_options,
)
from trunkline.cli.serving_options import (
    is_path,
    log_format_option,
    metrics_option,
    store_of_environment,
    store_option,
)
from trunkline.net.addresses import ListenAddress, parse_listen_address

if TYPE_CHECKING:
    from trunkline.cli.gateway_options import GatewayFile
    from trunkline.host.config.model import Configuration
    from trunkline.host.gateway.app import Profile

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline serve -c mcp.json
  trunkline serve -c mcp.json --http 8080
  trunkline serve -c mcp.json --http 0.0.0.0:8443 --token @token.txt --certfile cert.pem --keyfile key.pem
  trunkline serve -c mcp.json --gateway gateway.toml --http 8080
  trunkline serve -c mcp.json --http 8080 --console 7000

--approval sets who asks the user before a call:

\b
  client  The client connected to the gateway asks. Calls pass unless a rule
          denies them or requires approval, or a definition is flagged or
          changed.
  ask     The gateway asks, by elicitation. A client without elicitation gets
          only what rules and grants allow.
  deny    The user is not asked. Only what rules and grants allow passes.

The default is client over stdio and on a loopback address with one token, and ask wherever others can call.

Over HTTP, callers need a token; without --token or the TRUNKLINE_GATEWAY_TOKEN environment variable, a new one is
generated and printed once. SIGHUP reloads the configuration and the policies; servers whose entries did not change keep
running. On SIGTERM and Ctrl-C, running calls finish first.

--console shows the gateway in the browser of this machine. Without it, trunkline console with the same configuration
opens the same page later.
"""
_FILE = click.Path()
_TOKEN = "TRUNKLINE_GATEWAY_TOKEN"
#: Options that need ``--http``.
_HTTP_ONLY = (
    *("path", "token", "no_auth", "certfile", "keyfile", "allowed_host", "issuer", "audience"),
    *("rate_limit", "workers"),
)
#: Command-line options that the gateway has under the same names.
_GATEWAY_OPTIONS = ("concurrent", "search", "slow_calls", "task_after")
_WAIT_SECONDS = 4.0  # Some clients give up after five seconds.


@click.command(epilog=_EPILOG)
@config_option
@http_option
@click.option("--path", metavar="/PATH", help="Path of the endpoint; profiles are below it. Default: /mcp.")
@click.option("--token", metavar="T", help=f"Token that callers must send; @FILE reads it from a file. Also: {_TOKEN}.")
@click.option("--no-auth", is_flag=True, help="Accept calls without a token; only on a loopback address.")
@click.option("--issuer", metavar="URL", help="Accept tokens of this authorization server; needs --audience.")
@click.option("--audience", metavar="A", help="Audience those tokens must have, usually the URL of this gateway.")
@policy_options
@approval_option("Who asks the user before a call; see below.")
@click.option(
    "--gateway", "file", metavar="FILE", help="TOML file with options and profiles; command-line options override it."
)
@click.option("--profile", metavar="NAME", help="Profile to serve over stdio.")
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="Maximum calls per minute and caller."
)
@click.option("--concurrent", type=click.IntRange(min=1), metavar="N", help="Maximum concurrent calls per caller.")
@click.option(
    "--search",
    type=click.Choice(["auto", "on", "off"]),
    help="Offer two search tools instead of the catalog; auto: above 128 tools or 50,000 tokens.",
)
@click.option(
    "--slow-calls",
    type=click.Choice(["hold", "poll"]),
    help="Slow calls of clients without tasks: hold keeps the call open (default), poll returns a job to poll.",
)
@click.option(
    "--task-after",
    type=click.FloatRange(min=0),
    metavar="S",
    help="Seconds after which a slow call becomes a task, or a job to poll; 0: at once. Default: 5.",
)
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    metavar="S",
    help="Seconds the first list request waits for servers to start. Default: 4.",
)
@click.option(
    "--starts", type=click.IntRange(min=1), metavar="N", help="Maximum servers starting at once. Default: 4 per core."
)
@click.option(
    "--workers",
    type=click.IntRange(1, 512),
    metavar="N",
    help="Serve with N worker processes; each stdio server still runs once. Needs --http.",
)
@store_option
@click.option(
    "--console",
    type=click.IntRange(0, 65535),
    is_flag=False,
    flag_value=0,
    metavar="[PORT]",
    help="Also show the gateway in the browser, at this local port. Default: a free port.",
)
@click.option("--certfile", type=_FILE, help="TLS certificate (PEM); serves HTTPS.")
@click.option("--keyfile", type=_FILE, help="TLS private key, if it is not in the certificate file.")
@click.option(
    "--allowed-host", multiple=True, metavar="NAME", help="Accept this Host name, as sent by a proxy; repeatable."
)
@rate_limit_option
@metrics_option
@log_format_option
@click.option("-v", "--verbose", count=True, help="Print every state change of the servers.")
def command(
    *,
    config: tuple[str, ...],
    address: ListenAddress | None,
    file: str | None,
    profile: str | None,
    console: int | None,
    **given: Any,
) -> int:
    """Run the gateway: serve all configured servers as one MCP server.

    It serves over stdio until the client disconnects or, with --http, over HTTP until Ctrl-C or SIGTERM.
    """
    from trunkline.cli.gateway_options import GatewayFile, apply_approval, read_gateway_file, resolve_approval

    written = GatewayFile() if file is None else read_gateway_file(file)
    address = _address(written) if address is None and profile is None else address
    settings = _settings(given, written, http=address is not None)
    _check_profile(profile, written.profiles, http=address is not None)
    configuration = _checked_configuration(config, written.profiles)
    workers, store = settings.get("workers", 1), settings.get("store") or store_of_environment(address)
    options: dict[str, Any] = {
        **_limits(settings),
        "store": store,
        "profiles": apply_approval(written.profiles, given["approval"]),
        "profile": profile,
        "metrics": settings.get("metrics"),
        **({} if address is None else _http(address, settings)),
    }
    options["approval"] = resolve_approval(settings, options)
    from trunkline.cli.gateway_runner import GatewaySettings, run_gateway

    whole = GatewaySettings(
        files=config,
        configuration=configuration,
        policy_options=read_policy_options(settings),
        wait=settings.get("wait", _WAIT_SECONDS),
        starts=settings.get("starts"),
        options=options,
        verbose=given["verbose"] > 0,
        console=console,
    )
    if address is None or (workers == 1 and (store is None or is_path(store))):
        run_gateway(whole)
        return Exit.OK
    if console is not None:
        raise click.UsageError(_no_console(config))
    from trunkline.cli.gateway_workers import run_gateway_workers

    run_gateway_workers(whole, workers, store)
    return Exit.OK


def _no_console(config: tuple[str, ...]) -> str:
    """Return why there is no console beside several workers, and the commands that work."""
    files = shlex.join(part for file in config for part in ("-c", file))
    return (
        "--console cannot be combined with --workers, or with a --store of several machines: the calls, questions and "
        "traffic that it shows are spread over the workers. Serve with one process (leave --workers out; --store may "
        "be a file), or look at the "
        f"same configuration beside the gateway with: {' '.join(filter(None, ('trunkline console', files)))}. That "
        "starts servers of its own, and does not show the questions of the gateway's clients."
    )


# --- settings --------------------------------------------------------------------------------------------------------


def _address(written: GatewayFile) -> ListenAddress | None:
    """Return the address set in the gateway file; None if it has none."""
    said = written.options.get("http")
    if said is None:
        return None
    address = parse_listen_address(str(said))
    if address is None:
        raise CommandError(f"http = {said!r} in the gateway file is not [HOST:]PORT", Exit.CONFIG)
    return address


def _settings(given: Mapping[str, Any], written: GatewayFile, *, http: bool) -> dict[str, Any]:
    """Merge options and file. An option without effect is rejected; a setting of the file may be meant for HTTP."""
    flags = {name: value for name, value in given.items() if value not in (None, False, ()) and name != "verbose"}
    # Zero seconds equal False, and are a value.
    flags.update((name, given[name]) for name in ("task_after", "wait") if given[name] is not None)
    if not http:
        for name in _HTTP_ONLY:
            if name in flags:
                raise click.UsageError(f"--{name.replace('_', '-')} needs --http.")
    if "token" in flags and "no_auth" in flags:
        raise click.UsageError("--token and --no-auth exclude each other.")
    settings = {**written.options, **flags}
    if ("issuer" in settings) is not ("audience" in settings):
        raise click.UsageError("--issuer and --audience must be given together.")
    if "issuer" in settings and ("token" in flags or "no_auth" in flags):
        raise click.UsageError("--issuer excludes --token and --no-auth.")
    return settings


def _check_profile(name: str | None, profiles: Mapping[str, Profile], *, http: bool) -> None:
    if name is None:
        return
    if http:
        raise click.UsageError("--profile is only for stdio: over HTTP each profile has its own path, /mcp/NAME.")
    if name not in profiles:
        from trunkline.cli.host_session import name_hint

        raise CommandError(
            f"there is no profile {name!r} in the gateway file; {name_hint(name, profiles)}", Exit.CONFIG
        )


def _checked_configuration(files: tuple[str, ...], profiles: Mapping[str, Profile]) -> Configuration:
    """Load the configuration; check that there is one, and that profiles name only configured servers.

    Raises:
        ConfigError: a file given with ``--config`` cannot be used.
    """
    from trunkline.cli.host_session import load_cli_configuration, name_hint

    configuration = load_cli_configuration(files)
    for problem in configuration.problems:
        if problem.severity == "error":
            raise CommandError(str(problem), Exit.CONFIG)
    if not configuration.files:
        raise CommandError("no configuration found; give a file with -c", Exit.CONFIG)
    for name, profile in profiles.items():
        for server in profile.servers or ():
            if server not in configuration.entries:
                hint = name_hint(server, configuration.entries)
                raise CommandError(f"profile {name}: there is no server {server!r}; {hint}", Exit.CONFIG)
    return configuration


def _limits(settings: Mapping[str, Any]) -> dict[str, Any]:
    names = {"rate": "per_minute", **{name: name for name in _GATEWAY_OPTIONS}}
    return {inner: settings[name] for name, inner in names.items() if name in settings}


def _http(address: ListenAddress, settings: Mapping[str, Any]) -> dict[str, Any]:
    path = settings.get("path", "/mcp")
    if not path.startswith("/"):
        raise click.UsageError(f"--path {path} must begin with a slash: /{path}.")
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
        "rate_limit": settings.get("rate_limit"),
    }


def _token(settings: Mapping[str, Any]) -> str | None:
    """Return the token from the option or the environment; None to have one generated."""
    import os

    from trunkline.cli.options import read_value

    if "token" not in settings:
        return os.environ.get(_TOKEN) or None
    token = read_value(settings["token"]).strip()
    if not token:
        raise click.UsageError("--token is empty.")
    return token


def _verifier(settings: Mapping[str, Any]) -> Any:
    if "issuer" not in settings:
        return None
    from trunkline.auth.jwt_verifier import JWTVerifier

    return JWTVerifier(issuer=settings["issuer"], audience=settings["audience"])

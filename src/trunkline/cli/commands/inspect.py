"""``trunkline inspect``: shows one server in the browser, unfiltered, for its developer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.exit_codes import Exit
from trunkline.cli.options import Choices, page_options, read_target_options, target_options
from trunkline.cli.targets import CommandTarget, ConfiguredTarget, UrlTarget

if TYPE_CHECKING:
    from trunkline.host.assembly import HostOptions
    from trunkline.host.config.model import ServerEntry

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline inspect weather.py
  trunkline inspect "npx -y @modelcontextprotocol/server-everything"
  trunkline inspect https://mcp.example.com/mcp
  trunkline inspect files -c mcp.json

TARGET is a .py file (or FILE:OBJECT), a quoted command, a URL, or the name of a configured server. To reload a Python
server when its source files change, run: trunkline dev FILE
"""


@click.command(epilog=_EPILOG)
@click.argument("target")
@target_options
@page_options
def command(*, target: str, model: str | None, port: int, no_open: bool, verbose: int, **given: Any) -> int:
    """Show the server TARGET in the browser: its tools, resources and prompts, its traffic and its questions.

    Runs until Ctrl-C. Nothing is pinned or hidden, so that you see what the server offers.
    """
    from trunkline.cli.console_runner import ConsoleSettings, show_console

    if given["ca_file"]:
        raise click.UsageError("--ca-file cannot be used with inspect; set SSL_CERT_FILE instead.")
    choices = read_target_options(target, given)
    settings = ConsoleSettings("inspect", target, port=port, opens=not no_open, model=model, verbosity=verbose)
    sources, options = _sources(choices)
    show_console(sources, options, settings)
    return Exit.OK


def _sources(choices: Choices) -> tuple[list[object], HostOptions]:
    """Return the configuration sources and options of a host that has only this server."""
    target = choices.target
    # Every edit changes the definitions of a server under development, so pins would flag all of them.
    options: HostOptions = {"pins": False, "scanning": "ask", "tracebacks": True}
    if isinstance(target, ConfiguredTarget):
        if target.server is None or target.rest is not None:
            raise click.UsageError("inspect shows one server; pass its name, as in: trunkline inspect NAME -c FILE")
        from trunkline.cli.host_session import resolve_inputs

        names = (target.server,)
        return [*target.files], {**options, **resolve_inputs(target.configuration, names).options(), "only": names}
    entry = _entry(target, choices)
    return [{entry.name: entry}], options


def _entry(target: CommandTarget | UrlTarget, choices: Choices) -> ServerEntry:
    """Return the entry of a server named on the command line; it is approved, as one from a ``--config`` file."""
    from trunkline.devtools.client_configs.entries import file_name, suggest_name
    from trunkline.host.config.model import ServerEntry, Source

    if isinstance(target, UrlTarget):
        headers = dict(choices.headers)
        if choices.token is not None:
            headers["Authorization"] = f"Bearer {choices.token}"
        secrets = frozenset({*choices.headers.values(), *([choices.token] if choices.token else [])})
        name = suggest_name((), target.url)
        return ServerEntry(name=name, source=Source("given"), url=target.url, headers=headers, secrets=secrets)
    return ServerEntry(
        name=suggest_name(target.command) if target.spec is None else file_name(target.spec),
        source=Source("given"),
        command=tuple(target.command),
        env=choices.env,
        cwd=choices.cwd,
        secrets=frozenset(choices.env.values()) - frozenset(target.env.values()),
    )

"""``trunkline config``: shows the configured servers, and where each value comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import click

from trunkline.cli.exit_codes import Exit
from trunkline.cli.host_session import load_cli_configuration
from trunkline.cli.options import json_option

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline config explain
  trunkline config explain -c mcp.json
  trunkline config explain -c mcp.json github --json

Without -c, servers are read from mcp.json, .mcp.json, .vscode/mcp.json or .cursor/mcp.json in the current directory,
then from your own mcp.json. No server is started, no input is prompted for, and no secret is shown.
"""
_WIDTH = 80  # The usual width of a terminal.
_STATES: Mapping[str, str] = MappingProxyType(
    {
        "set": "is set",
        "unset": "is not set",
        "default": "is not set, using the default",
        "unanswered": "is prompted for",
        "known": "is known",
        "sealed": "is looked up when the server starts",
    }
)


@click.group("config", epilog=_EPILOG)
def command() -> None:
    """Show the effective configuration."""


@command.command(epilog=_EPILOG)
@click.option("-c", "--config", "files", multiple=True, metavar="FILE", help="Configuration file to read; repeatable.")
@click.argument("name", required=False)
@json_option
def explain(name: str | None, *, files: tuple[str, ...], as_json: bool) -> int:
    """Show the effective values of all servers, or of NAME, with the file and line each comes from."""
    from trunkline.cli.client_session import error_document
    from trunkline.cli.ui.output import print_json, print_notice, print_text
    from trunkline.errors import ConfigError
    from trunkline.host.config.loading import explain as described

    try:
        document = described(load_cli_configuration(files), name)
    except ConfigError as error:
        if as_json:
            print_json(error_document(error))
        raise
    if as_json:
        print_json(document)
    elif document["servers"] or document["hidden"] or document["problems"]:
        print_text("\n".join(_lines(document, whole=name is not None)))
    else:
        print_notice("no servers configured; give a file with -c, or create an mcp.json here")
    return Exit.OK


# --- for people ------------------------------------------------------------------------------------------------------


def _lines(document: dict[str, Any], *, whole: bool) -> Iterator[str]:
    for server in document["servers"]:
        yield from _server(server, whole=whole)
        yield ""
    for each in document["hidden"]:
        yield from _wrapped(f"{each['name']}: not used: {each['why']}  [{_place(each)}]", "")
    for each in document["problems"]:
        yield from _wrapped(f"{each['severity']}: {_format_problem(each)}", "")


def _server(server: dict[str, Any], *, whole: bool) -> Iterator[str]:
    state = ", disabled" if server["disabled"] else ""
    yield from _wrapped(f"{server['name']}  [{_place(server)}, {server['scope']}{state}]", "")
    for value in server["values"]:
        notes = [_place(value), *(f"{each['name']} {_STATES[each['state']]}" for each in value["variables"])]
        yield from _wrapped(f"{value['key']} = {value['shown']}  [{'; '.join(notes)}]", "  ")
    for problem in server["problems"]:
        yield from _wrapped(f"problem: {_format_problem(problem)}", "  ")
    if whole:
        held = {
            name: value
            for name, value in server["settings"].items()
            if not isinstance(value, dict) or any(value.values())
        }
        settings = ", ".join(f"{name} {_setting(value)}" for name, value in held.items())
        yield from _wrapped(f"settings: {settings}", "  ")


def _setting(value: Any) -> str:
    from trunkline.cli.ui.output import wire_json

    return "-" if value is None else value if isinstance(value, str) else wire_json(value).decode()


def _place(value: dict[str, Any]) -> str:
    return f"{value['file']}:{value['line']}"


def _format_problem(problem: dict[str, Any]) -> str:
    from trunkline.host.config.model import ConfigProblem

    return str(ConfigProblem(**problem))


def _wrapped(text: str, indent: str) -> list[str]:
    """Wrap a text at spaces to fit most terminals; longer words stay whole, so that they can be copied."""
    import textwrap

    from trunkline.cli.ui.output import one_line

    return textwrap.wrap(
        one_line(text),
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "    ",
        break_long_words=False,
        break_on_hyphens=False,
    )

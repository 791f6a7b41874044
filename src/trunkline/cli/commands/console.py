"""``trunkline console``: shows the configured servers in the browser."""

from __future__ import annotations

import os
from typing import Any

import click

from trunkline.cli.exit_codes import Exit
from trunkline.cli.options import config_option, page_options, policy_options, read_policy_options

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline console
  trunkline console -c mcp.json
  trunkline console -c mcp.json --port 7000 --no-open
  trunkline console --model ollama:qwen3

The page is reachable from this machine only. Its address contains a token that allows running commands as you: do not
share it.

If a gateway or another console already runs with the same configuration, its page is opened instead.

Without -c, servers are read from mcp.json, .mcp.json, .vscode/mcp.json or .cursor/mcp.json in the current directory,
then from your own mcp.json.
"""


@click.command(epilog=_EPILOG)
@config_option
@policy_options
@page_options
def command(*, config: tuple[str, ...], model: str | None, port: int, no_open: bool, **given: Any) -> int:
    """Show your configured servers in the browser: try tools, answer questions, chat, watch the traffic.

    Runs until Ctrl-C.
    """
    from trunkline.cli.console_runner import ConsoleSettings, attach, show_console
    from trunkline.cli.host_session import load_cli_configuration, resolve_inputs

    configuration = load_cli_configuration(config)
    if attach(configuration, opens=not no_open):
        return Exit.OK
    resolved = resolve_inputs(configuration)
    files = [file.path for file in configuration.files]
    title = ", ".join(config or files) or os.getcwd()
    settings = ConsoleSettings("console", title, port=port, opens=not no_open, model=model, verbosity=given["verbose"])
    show_console(config, {**read_policy_options(given).options(), **resolved.options()}, settings)
    return Exit.OK

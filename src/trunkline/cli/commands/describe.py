"""``trunkline describe``: shows the definition of one tool, prompt or resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.options import Choices, apps_option, client_command, json_option, take_item

if TYPE_CHECKING:
    from trunkline.cli.client_session import CommandContext
    from trunkline.cli.exit_codes import Exit

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline describe weather.py forecast
  trunkline describe weather.py city://{country}/{name}/map
  trunkline describe files/read_file -c mcp.json
  trunkline describe weather.py forecast --json
"""


@click.command(epilog=_EPILOG)
@click.argument("target")
@click.argument("words", nargs=-1, metavar="TOOL")
@apps_option
@json_option
@client_command
def command(choices: Choices, *, words: tuple[str, ...]) -> int:
    """Show the arguments of TOOL with their types and descriptions, and what it returns.

    TOOL is the name of a tool or a prompt, or the URI of a resource or template. TARGET is a .py file (or FILE:OBJECT),
    a quoted command, a URL, or the name of a configured server; NAME/TOOL is the same as NAME TOOL.
    """
    from trunkline.cli.client_session import run_client_command

    name, others = take_item(choices, words, "TOOL")
    if others:
        raise click.UsageError(f"Got unexpected extra argument ({others[0]}).")

    async def describe(context: CommandContext) -> Exit:
        from trunkline.cli.ui.output import print_json, print_text, terminal_width, wrap_lines
        from trunkline.cli.ui.signatures import definition_lines
        from trunkline.protocol.printable import printable

        with context.screen.working(f"looking for {name}"):
            item = await _find(context, name)
        if choices.as_json:
            print_json(item)
        else:
            print_text(wrap_lines(printable("\n".join(definition_lines(item))), terminal_width() - 1))
        return context.exit_code()

    return run_client_command(choices, describe)


async def _find(context: CommandContext, name: str) -> Any:
    """Return the definition with a name or URI.

    Raises:
        CommandError: the server has none.
    """
    from trunkline.cli.commands.list import fetch_lists
    from trunkline.cli.exit_codes import CommandError, Exit
    from trunkline.cli.suggestions import suggestion

    known: dict[str, Any] = {}
    for kind in ("tools", "prompts", "resources"):
        for items in (await fetch_lists(context.client, kind)).values():
            for item in items:
                known.setdefault(getattr(item, "uri", None) or getattr(item, "uri_template", None) or item.name, item)
        if name in known:
            return known[name]
    hint = suggestion(name, known) or "; trunkline list TARGET lists what it has"
    raise CommandError(f"the server has no tool, prompt or resource {name!r}{hint}", Exit.FAILED)

"""``trunkline read``: reads a resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from trunkline.cli.options import Choices, apps_option, client_command, json_option, take_item

if TYPE_CHECKING:
    from trunkline.types import ResourceContents

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline read weather.py city://Oslo/map
  trunkline read weather.py city://Oslo/photo -o oslo.png
  trunkline read notes note://one -c mcp.json
"""


@click.command(epilog=_EPILOG)
@click.argument("target")
@click.argument("words", nargs=-1, metavar="URI")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Save the raw contents; - is standard output.")
@apps_option
@json_option
@client_command
def command(choices: Choices, *, words: tuple[str, ...], output: str | None) -> int:
    """Read the resource URI of the server TARGET and print its contents.

    TARGET is a .py file (or FILE:OBJECT), a quoted command, a URL, or the name of a configured server; NAME/URI is the
    same as NAME URI. Binary contents are not printed; save them with -o.
    """
    from trunkline.cli.client_session import CommandContext, run_client_command
    from trunkline.cli.exit_codes import Exit
    from trunkline.cli.ui.output import contents_text, print_json, print_result

    uri, others = take_item(choices, words, "URI")
    if others:
        raise click.UsageError(f"Got unexpected extra argument ({others[0]}).")
    if choices.as_json and output == "-":
        raise click.UsageError("--json and -o - both write to standard output.")

    async def read(context: CommandContext) -> Exit:
        client = context.client
        with context.screen.working(f"reading {uri}"):
            contents = await context.suggesting(uri, client.list_resources, client.read_resource(uri))
        if output is not None:
            _save(contents, output)
        if choices.as_json:
            print_json({"contents": contents})
        elif output is None:
            for each in contents:
                print_result(contents_text(each))
        return context.exit_code()

    return run_client_command(choices, read)


def _save(contents: list[ResourceContents], output: str) -> None:
    from trunkline.cli.exit_codes import CommandError, Exit
    from trunkline.cli.ui.output import save_bytes

    if len(contents) != 1:
        raise CommandError(f"the resource has {len(contents)} contents, and -o saves only one; use --json", Exit.FAILED)
    save_bytes(contents[0], output)

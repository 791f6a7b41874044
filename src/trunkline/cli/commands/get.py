"""``trunkline get``: renders a prompt."""

from __future__ import annotations

import click

from trunkline.cli.options import Choices, client_command, json_option, parse_pairs, take_item

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline get weather.py report city=Oslo
  trunkline get weather.py review code=@main.py --json
  trunkline get notes summary length=short -c mcp.json
"""


@click.command(epilog=_EPILOG)
@click.argument("target")
@click.argument("words", nargs=-1, metavar="PROMPT [KEY=VALUE]...")
@json_option
@client_command
def command(choices: Choices, *, words: tuple[str, ...]) -> int:
    """Render PROMPT of the server TARGET and print its messages.

    TARGET is a .py file (or FILE:OBJECT), a quoted command, a URL, or the name of a configured server; NAME/PROMPT is
    the same as NAME PROMPT. KEY=@FILE reads a value from a file, KEY=@- from standard input.
    """
    from trunkline.cli.client_session import CommandContext, run_client_command
    from trunkline.cli.exit_codes import Exit
    from trunkline.cli.options import read_value
    from trunkline.cli.ui.output import block_text, print_json, print_text

    prompt, arguments = take_item(choices, words, "PROMPT")
    given = {name: read_value(text) for name, text in parse_pairs(arguments).items()}

    async def get(context: CommandContext) -> Exit:
        client = context.client
        with context.screen.working(f"rendering {prompt}"):
            result = await context.suggesting(prompt, client.list_prompts, client.get_prompt(prompt, given or None))
        if choices.as_json:
            print_json(result)
        else:
            print_text("\n".join(f"{message.role}: {block_text(message.content)}" for message in result.messages))
        return context.exit_code()

    return run_client_command(choices, get)

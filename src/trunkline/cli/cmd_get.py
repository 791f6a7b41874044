"""``trunkline get``: renders a prompt."""

from __future__ import annotations

import click

from trunkline.cli.options import Choices, client_verb, json_option, meant, pairs

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
@client_verb
def command(choices: Choices, *, words: tuple[str, ...]) -> int:
    """Render PROMPT of the server TARGET and print its messages.

    TARGET is a .py file (or FILE:OBJECT), a quoted command, a URL, or the name of a configured server; NAME/PROMPT is
    the same as NAME PROMPT. KEY=@FILE reads a value from a file, KEY=@- from standard input.
    """
    from trunkline.cli.arguments import read_value
    from trunkline.cli.blocks import block_text
    from trunkline.cli.exits import Exit
    from trunkline.cli.output import say, say_json
    from trunkline.cli.session import Talk, converse

    prompt, arguments = meant(choices, words, "PROMPT")
    given = {name: read_value(text) for name, text in pairs(arguments).items()}

    async def get(talk: Talk) -> Exit:
        result = await talk.client.get_prompt(prompt, given or None)
        if choices.as_json:
            say_json(result)
        else:
            say("\n".join(f"{message.role}: {block_text(message.content)}" for message in result.messages))
        return talk.done()

    return converse(choices, get)

"""``trunkline complete``: completes an argument of a prompt or a variable of a resource template."""

from __future__ import annotations

import click

from trunkline.cli.options import Choices, client_verb, json_option, meant, pairs

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline complete weather.py report city Os
  trunkline complete weather.py city://{country}/{name}/map name Os --given country=Norway
  trunkline complete notes summary length s -c mcp.json
"""


@click.command(epilog=_EPILOG)
@click.argument("target")
@click.argument("words", nargs=-1, metavar="REF ARGUMENT [VALUE]")
@click.option("--given", multiple=True, metavar="K=V", help="An argument that already has a value; repeatable.")
@json_option
@client_verb
def command(choices: Choices, *, words: tuple[str, ...], given: tuple[str, ...]) -> int:
    """Complete VALUE as the ARGUMENT of a prompt or resource template, and print the candidates.

    TARGET is a .py file (or FILE:OBJECT), a quoted command, a URL, or the name of a configured server. REF is the name
    of a prompt or a URI template; NAME/REF is the same as NAME REF.
    """
    from trunkline.cli.exits import Exit
    from trunkline.cli.output import complain, one_line, say, say_json
    from trunkline.cli.session import Talk, converse
    from trunkline.types import PromptReference, ResourceTemplateReference

    ref, others = meant(choices, words, "REF")
    if not 1 <= len(others) <= 2:
        raise click.UsageError("Expected REF, ARGUMENT and optionally the beginning of its VALUE.")
    argument, value = (*others, "")[:2]
    before = pairs(given)
    is_template = "{" in ref or "://" in ref

    async def complete(talk: Talk) -> Exit:
        reference = ResourceTemplateReference(uri=ref) if is_template else PromptReference(name=ref)
        asked = {"name": argument, "value": value}
        completion = await talk.client.complete(reference, asked, context=before or None)
        if choices.as_json:
            say_json({"completion": completion})
        elif completion.values:
            say("\n".join(one_line(each) for each in completion.values))
        if completion.has_more and not choices.as_json:
            total = "" if completion.total is None else f" of {completion.total}"
            complain(f"{len(completion.values)}{total} completions are shown")
        return talk.done()

    return converse(choices, complete)

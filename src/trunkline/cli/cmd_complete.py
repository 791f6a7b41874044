"""``trunkline complete``: proposals for an argument of a prompt or a variable of a resource template."""

from __future__ import annotations

import click

from trunkline.cli.options import Choices, client_verb, json_option, pairs

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline complete weather.py report city Os
  trunkline complete weather.py city://{country}/{name}/map name Os --given country=Norway
"""


@click.command(epilog=_EPILOG)
@click.argument("target")
@click.argument("ref")
@click.argument("argument")
@click.argument("value", default="")
@click.option("--given", multiple=True, metavar="K=V", help="Another argument that has been filled in before.")
@json_option
@client_verb
def command(choices: Choices, *, ref: str, argument: str, value: str, given: tuple[str, ...]) -> int:
    """Ask the server TARGET how VALUE may go on, as ARGUMENT of REF.

    TARGET is a .py file, FILE:object, a quoted command or a URL. REF is the name of a prompt or a URI template.
    """
    from trunkline.cli.exits import Exit
    from trunkline.cli.output import complain, one_line, say, say_json
    from trunkline.cli.session import Talk, converse
    from trunkline.types import PromptReference, ResourceTemplateReference

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
            complain(f"{len(completion.values)}{total} proposals are shown")
        return talk.done()

    return converse(choices, complete)

"""``trunkline complete``: completes an argument of a prompt or a variable of a resource template."""

from __future__ import annotations

import click

from trunkline.cli.options import Choices, client_command, json_option, parse_pairs, take_item

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
@click.option(
    "--given", multiple=True, metavar="K=V", help="Value of another argument, sent as completion context; repeatable."
)
@json_option
@client_command
def command(choices: Choices, *, words: tuple[str, ...], given: tuple[str, ...]) -> int:
    """Complete VALUE as the ARGUMENT of a prompt or resource template, and print the candidates.

    TARGET is a .py file (or FILE:OBJECT), a quoted command, a URL, or the name of a configured server. REF is the name
    of a prompt or a URI template; NAME/REF is the same as NAME REF.
    """
    from trunkline.cli.client_session import CommandContext, run_client_command
    from trunkline.cli.exit_codes import Exit
    from trunkline.cli.ui.output import one_line, print_json, print_notice, print_text
    from trunkline.types import PromptReference, ResourceTemplateReference

    ref, others = take_item(choices, words, "REF")
    if not 1 <= len(others) <= 2:
        raise click.UsageError("Expected REF, ARGUMENT and optionally the beginning of its VALUE.")
    argument, value = (*others, "")[:2]
    before = parse_pairs(given)
    is_template = "{" in ref or "://" in ref

    async def complete(context: CommandContext) -> Exit:
        reference = ResourceTemplateReference(uri=ref) if is_template else PromptReference(name=ref)
        asked = {"name": argument, "value": value}
        client = context.client
        with context.screen.working(f"completing {argument}"):
            completion = await context.suggesting(
                ref,
                client.list_resource_templates if is_template else client.list_prompts,
                client.complete(reference, asked, context=before or None),
            )
        if choices.as_json:
            print_json({"completion": completion})
        elif completion.values:
            print_text("\n".join(one_line(each) for each in completion.values))
        else:
            print_notice(f"there are no completions {f'of {value!r} ' if value else ''}for {argument}")
        if completion.has_more and not choices.as_json:
            total = "" if completion.total is None else f" of {completion.total}"
            print_notice(f"{len(completion.values)}{total} completions are shown")
        return context.exit_code()

    return run_client_command(choices, complete)

"""``trunkline call``: calls a tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.options import Choices, apps_option, client_command, json_option, parse_pairs, take_item

if TYPE_CHECKING:
    from trunkline.cli.client_session import CommandContext
    from trunkline.cli.exit_codes import Exit
    from trunkline.client.tool_cache import CallResult

__all__ = ["command", "show_result"]

_EPILOG = """\
\b
Examples:
  trunkline call weather.py forecast city=Oslo days=2
  trunkline call http://127.0.0.1:8000/mcp forecast city=Oslo
  trunkline call weather.py forecast --args '{"city": "Oslo"}' --json
  trunkline call "npx -y @modelcontextprotocol/server-everything" echo message=@letter.txt
  trunkline call files read_file path=notes.txt -c mcp.json
  trunkline call -c mcp.json files/read_file path=notes.txt
  trunkline call weather.py radar city=Oslo --save radar.png
  trunkline call http://127.0.0.1:8000/mcp write_report topic=Tides --detach

VALUE is sent as text if the tool's schema expects a string, otherwise it is parsed as JSON. KEY=@FILE reads the value
from a file, KEY=@- from standard input; KEY=@@x means the text @x.
"""


@click.command(epilog=_EPILOG)
@click.argument("target")
@click.argument("words", nargs=-1, metavar="TOOL [KEY=VALUE]...")
@click.option("--args", "whole", metavar="JSON", help="All arguments as one JSON object; @FILE reads it from a file.")
@click.option(
    "--save",
    type=click.Path(dir_okay=False),
    help="Save the image or audio of the result; several are numbered: NAME-1.png, NAME-2.png.",
)
@click.option("--detach", is_flag=True, help="Do not wait: print the id of the task, for trunkline task.")
@apps_option
@json_option
@client_command
def command(choices: Choices, *, words: tuple[str, ...], whole: str | None, save: str | None, detach: bool) -> int:
    """Call TOOL on the server TARGET and print the result.

    TARGET is a .py file (or FILE:OBJECT), a quoted command, a URL, or the name of a configured server; NAME/TOOL is the
    same as NAME TOOL. Questions of the server are asked in the terminal; without a terminal they are declined.
    """
    from trunkline.cli.client_session import run_client_command
    from trunkline.cli.options import json_object, typed_arguments

    tool, arguments = take_item(choices, words, "TOOL")
    texts = parse_pairs(arguments)
    given = {} if whole is None else json_object(whole)
    if detach:
        if save is not None:
            raise click.UsageError("--save needs the result, which --detach does not wait for.")
        from trunkline.cli.commands.task import check_keeps_running

        check_keeps_running(choices)

    async def call(context: CommandContext) -> Exit:
        client, timeout = context.client, choices.timeout
        if texts:
            tools = {each.name: each for each in await client.list_tools()}
            schema = tools[tool].input_schema if tool in tools else {}
            given.update(typed_arguments(texts, schema))
        if detach:
            return await _start(context, tool, given)
        with context.screen.working(f"calling {tool}"):
            result = await context.suggesting(
                tool,
                client.list_tools,
                client.call_tool(
                    tool,
                    given,
                    on_progress=context.screen.progress,
                    timeout=timeout,
                    total_timeout=timeout,
                    raise_on_error=False,
                ),
            )
        if save is not None and not result.is_error:
            _save_media(result, save)
        return await show_result(context, tool, result)

    return run_client_command(choices, call)


async def _start(context: CommandContext, tool: str, arguments: dict[str, Any]) -> Exit:
    """Call a tool as a task, and print its id; the result, if the server answers at once."""
    from trunkline.cli.commands.task import show_started
    from trunkline.cli.exit_codes import CommandError, Exit
    from trunkline.client.client import Client
    from trunkline.errors import MissingCapability
    from trunkline.protocol.revisions import uses_handshake

    client = context.client
    assert isinstance(client, Client)
    if not uses_handshake(client.revision):
        # Here a question ends the request, so that the call can be left without an answer. The user of --detach
        # expects to answer later, not that the call goes on with a declined question.
        context.questions.left_open = "before the call has become a task"
    try:
        with context.screen.working(f"calling {tool}"):
            handle = await context.suggesting(tool, client.list_tools, client.start_task(tool, arguments))
    except MissingCapability as error:
        sentence = f"this server has no tasks in revision {client.revision}; call the tool without --detach"
        raise CommandError(sentence, Exit.FAILED) from error
    if handle.direct is not None:
        return await show_result(context, tool, await handle.result(raise_on_error=False))
    return show_started(context, handle)


def _save_media(result: CallResult, path: str) -> None:
    """Write the images and audio of a result to files.

    Raises:
        CommandError: it has none, or a file cannot be written.
    """
    import os

    from trunkline.cli.exit_codes import CommandError, Exit
    from trunkline.cli.ui.output import block_text, print_notice, save_bytes
    from trunkline.types import AudioContent, ImageContent, ResourceContents

    blocks = [block for block in result.content if isinstance(block, ImageContent | AudioContent)]
    if not blocks:
        raise CommandError("the result has no image and no audio to save; call the tool without --save", Exit.FAILED)
    root, extension = os.path.splitext(path)
    for number, block in enumerate(blocks, 1):
        name = path if len(blocks) == 1 else f"{root}-{number}{extension}"
        save_bytes(ResourceContents(uri="", blob=block.data), name)
        print_notice(f"saved {block_text(block)[1:-1]} in {name}")


async def show_result(context: CommandContext, tool: str | None, result: CallResult) -> Exit:
    """Print the result of a tool, or that it failed; ``tool`` is None for the result of a task."""
    from trunkline.cli.ui.output import block_text, print_json, print_notice, print_result, result_text
    from trunkline.types import CallToolResult

    text = result_text(result.content, result.structured_content)
    if context.choices.as_json:
        structured = {} if result.structured_content is None else {"structured_content": result.structured_content}
        error = True if result.is_error else None
        print_json(CallToolResult(content=result.content, is_error=error, meta=result.meta, **structured))
    elif text and not result.is_error:
        for part in [block_text(block) for block in result.content] or [text]:
            print_result(part)
    if result.is_error:
        failed = "the task" if tool is None else f"the tool {tool}"
        print_notice(f"{failed} failed: {text or 'no reason given'}", failure=True)
        for line in () if tool is None else await context.explain_failure(tool, text):
            print_notice(line)
    return context.exit_code(failed=result.is_error)

"""``trunkline task``: waits for a task that an earlier call started, shows its state, or cancels it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.options import Choices, client_command, json_option
from trunkline.cli.targets import ConfiguredTarget, UrlTarget

if TYPE_CHECKING:
    from trunkline.cli.client_session import CommandContext
    from trunkline.cli.exit_codes import Exit
    from trunkline.client.client import Client
    from trunkline.client.tasks.client import TaskHandle

__all__ = ["check_keeps_running", "command", "show_started"]

_EPILOG = """\
\b
Examples:
  trunkline call http://127.0.0.1:8000/mcp write_report topic=Tides --detach
  trunkline task http://127.0.0.1:8000/mcp ID
  trunkline task http://127.0.0.1:8000/mcp ID --state
  trunkline task http://127.0.0.1:8000/mcp ID --cancel

Ctrl-C and --timeout end the command only: the task continues, and the next trunkline task waits for it again.
"""
_GATEWAY = "run the gateway (trunkline serve --http 8080) and pass its URL as TARGET"


@click.command(epilog=_EPILOG)
@click.argument("target")
@click.argument("id")
@click.option("--state", "look", is_flag=True, help="Print the state and do not wait; questions are not answered.")
@click.option("--cancel", is_flag=True, help="Cancel the task, and print its state.")
@json_option
@client_command
def command(choices: Choices, *, id: str, look: bool, cancel: bool) -> int:
    """Wait for the task ID at the server TARGET, and print the result of its call.

    TARGET is a URL, or a .py file (or FILE:OBJECT) or a quoted command whose server stores its tasks in a file. The
    questions of the task are asked in the terminal; without a terminal they are declined.
    """
    from trunkline.cli.client_session import run_client_command
    from trunkline.cli.commands.call import show_result
    from trunkline.cli.exit_codes import CommandError, Exit
    from trunkline.client.client import Client

    if isinstance(choices.target, ConfiguredTarget):
        raise CommandError(f"the tasks of a configured server belong to its host; {_GATEWAY}", Exit.USAGE)

    async def follow(context: CommandContext) -> Exit:
        client = context.client
        assert isinstance(client, Client)
        if look:
            return await _show_state(context, client, id)
        handle = client.task(id)
        if cancel:
            await handle.cancel()
            return await _show_state(context, client, id)
        with context.screen.working("waiting for the task"):
            result = await handle.result(
                timeout=choices.timeout, raise_on_error=False, on_progress=context.screen.progress
            )
        return await show_result(context, None, result)

    return run_client_command(choices, follow)


async def _show_state(context: CommandContext, client: Client, id: str) -> Exit:
    from trunkline.cli.ui.output import one_line, print_json, print_notice, print_text
    from trunkline.protocol.revisions import uses_handshake

    state = await client.request("tasks/get", {"taskId": id})
    if context.choices.as_json:
        print_json(state)
    else:
        said = state.get("statusMessage")
        print_text(one_line(f"{state.get('status')}: {said}" if said else str(state.get("status"))))
        for question in _questions(state):
            print_text(one_line(f"asks: {question}"))
    if state.get("status") == "input_required" and uses_handshake(client.revision):
        # Tasks of the core protocol ask with requests of their own, while the client waits for the result.
        print_notice(
            f"in revision {client.revision} the state of a task does not include its questions; "
            "to read and answer them, run the same command without --state"
        )
    return context.exit_code()


def _questions(state: dict[str, Any]) -> list[str]:
    """Return the messages of a task's open questions; for requests without a message, the method."""
    requests = state.get("inputRequests")
    found = [each for each in requests.values() if isinstance(each, dict)] if isinstance(requests, dict) else []
    return [_said(each) for each in found]


def _said(request: dict[str, Any]) -> str:
    params = request.get("params")
    message = params.get("message") if isinstance(params, dict) else None
    return str(message or request.get("method"))


def check_keeps_running(choices: Choices) -> None:
    """Check that the server continues when the command ends.

    Raises:
        CommandError: it does not.
    """
    from trunkline.cli.exit_codes import CommandError, Exit

    if isinstance(choices.target, ConfiguredTarget):
        raise CommandError(f"--detach: a configured server ends with this command; {_GATEWAY}", Exit.USAGE)
    if not isinstance(choices.target, UrlTarget):
        start = "start it with trunkline run FILE --http 8000, and pass its URL as TARGET"
        raise CommandError(f"--detach: the server ends with this command, and its task too; {start}", Exit.USAGE)


def show_started(context: CommandContext, handle: TaskHandle) -> Exit:
    """Print the id of a new task, and how to wait for it."""
    from trunkline.cli.ui.output import print_json, print_notice, print_text

    choices = context.choices
    assert isinstance(choices.target, UrlTarget)
    if choices.as_json:
        print_json({"taskId": handle.id, "status": handle.status})
    else:
        print_text(handle.id)
    # Another server's id may look like an option.
    id = f"{'-- ' if handle.id.startswith('-') else ''}{shlex.quote(handle.id)}"
    print_notice(f"to wait for it, run: trunkline task {shlex.quote(choices.target.url)} {id}")
    return context.exit_code()

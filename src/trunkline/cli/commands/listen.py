"""``trunkline listen``: prints changes of a server's lists and resources as they happen."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.options import Choices, client_command, json_option

if TYPE_CHECKING:
    from trunkline.cli.client_session import CommandContext
    from trunkline.client.changes import Change

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline listen weather.py
  trunkline listen weather.py --uri city://Oslo/map --count 1
  trunkline listen weather.py --tools --for 60 --json
  trunkline listen notes -c mcp.json
"""


@click.command(epilog=_EPILOG)
@click.argument("target")
@click.option("--tools", is_flag=True, help="Watch the list of tools.")
@click.option("--prompts", is_flag=True, help="Watch the list of prompts.")
@click.option("--resources", is_flag=True, help="Watch the list of resources.")
@click.option("--uri", "uris", multiple=True, metavar="URI", help="Watch this resource; repeatable.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Exit after N changes.")
@click.option("--for", "seconds", type=click.FloatRange(min=0), metavar="SECONDS", help="Exit after this time.")
@json_option
@client_command
def command(
    choices: Choices,
    *,
    tools: bool,
    prompts: bool,
    resources: bool,
    uris: tuple[str, ...],
    count: int | None,
    seconds: float | None,
) -> int:
    """Watch the server TARGET and print changes as they happen.

    By default, all lists are watched. TARGET is a .py file (or FILE:OBJECT), a quoted command, a URL, or the name of a
    configured server. With --json, the changes are the elements of one array, one per line.
    """
    import asyncio

    from trunkline.cli.client_session import command_error, error_document, run_client_command
    from trunkline.cli.exit_codes import Exit
    from trunkline.errors import TrunklineError

    wanted = {"tools": tools or None, "prompts": prompts or None, "resources": resources or None}

    async def listen(context: CommandContext) -> Exit:
        shown = _ChangePrinter(context, as_json=choices.as_json)
        try:
            async with asyncio.timeout(seconds), context.client.listen(uris=uris, **wanted) as changes:
                if choices.verbosity:
                    context.screen.line("listening")
                async for change in changes:
                    shown.add(change)
                    if shown.count == count:
                        break
        except TimeoutError:
            return context.exit_code()
        except TrunklineError as error:
            shown.add_element(error_document(error))
            raise command_error(context, error) from error
        finally:
            shown.end()
        return context.exit_code()

    return run_client_command(choices, listen)


_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "tools": "the list of tools changed",
        "prompts": "the list of prompts changed",
        "resources": "the list of resources changed",
        "resource": "a resource changed: ",
        "missed": "reconnected; changes may have been missed",
    }
)


class _ChangePrinter:
    """Prints changes as lines, or as the elements of one JSON array, one per line."""

    def __init__(self, context: CommandContext, *, as_json: bool) -> None:
        self._context = context
        self._as_json = as_json
        self._opened = False
        self.count = 0

    def add(self, change: Change) -> None:
        """Print a change."""
        from trunkline.cli.ui.output import one_line, print_text

        self.count += 1
        if self._as_json:
            self.add_element(_notification(change))
        else:
            print_text(f"{_WORDS[change.kind]}{one_line(change.uri or '')}")

    def add_element(self, element: dict[str, Any]) -> None:
        """Print an element of the array."""
        from trunkline.cli.ui.output import print_bytes, wire_json

        if self._as_json:
            print_bytes((b"," if self._opened else b"[") + wire_json(element) + b"\n")
            self._opened = True

    def end(self) -> None:
        """Close the array."""
        from trunkline.cli.ui.output import print_bytes

        if self._as_json:
            print_bytes(b"]\n" if self._opened else b"[]\n")


def _notification(change: Change) -> dict[str, Any]:
    """Return the notification that reported a change; a reconnect, which had none, has a marker of our own."""
    if change.kind == "missed":
        return {"missed": True}
    if change.kind == "resource":
        return {"method": "notifications/resources/updated", "params": {"uri": change.uri}}
    return {"method": f"notifications/{change.kind}/list_changed"}

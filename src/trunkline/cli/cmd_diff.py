"""``trunkline diff``: compares two recordings."""

from __future__ import annotations

import click

from trunkline.cli.options import json_option, told

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline diff before.jsonl after.jsonl
  trunkline diff before.jsonl after.jsonl --ignore /result/content/*/text
  trunkline diff before.jsonl after.jsonl --json

Requests are matched by method and parameters; lists are compared by the names of their items. IDs, cursors, sealed
states and times are ignored. The exit code is 0 if nothing differs, otherwise 5.
"""
_IGNORE_HELP = "JSON pointer to ignore, such as /result/tools/*/description; repeatable."


@click.command(epilog=_EPILOG)
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--ignore", multiple=True, metavar="POINTER", help=_IGNORE_HELP)
@json_option
def command(first: str, second: str, *, ignore: tuple[str, ...], as_json: bool) -> int:
    """Compare recordings A and B, request by request.

    Parameters, server requests, results, errors, lists and schemas are compared.
    """
    from trunkline.cli.differences import check_pointers, show
    from trunkline.host.record.diff import compare
    from trunkline.host.record.recording import Recording

    check_pointers(ignore)
    recordings = told(lambda: (Recording.load(first), Recording.load(second)), as_json)
    return show(compare(*recordings, ignore=ignore), names=(first, second), as_json=as_json)

"""``trunkline list``: lists the tools, resources, templates, prompts or skills of a server."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.options import Choices, apps_option, client_command, json_option

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trunkline.cli.client_session import CommandClient

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline list tools weather.py
  trunkline list tools https://example.com/mcp --token @token.txt
  trunkline list resources "npx -y @modelcontextprotocol/server-everything" --json
  trunkline list tools files -c mcp.json
  trunkline list tools -c mcp.json
  trunkline list skills -c mcp.json
  trunkline list tools weather.py --apps

With -c, the exit code is 5 if a server failed to return this list; cached items are shown all the same.
"""


@click.command(epilog=_EPILOG)
@click.argument("kind", type=click.Choice(["tools", "resources", "templates", "prompts", "skills"]))
@click.argument("target", required=False)
@apps_option
@json_option
@client_command
def command(choices: Choices, *, kind: str) -> int:
    """List the tools, resources, resource templates, prompts or skills of the server TARGET.

    TARGET is a .py file (or FILE:OBJECT), a quoted command, a URL, or the name of a configured server. Without TARGET,
    all configured servers are listed, as server/name. The list of resources includes the templates. A tool marked
    [app] is called by a page of its server, never by a model.
    """
    from trunkline.cli.client_session import CommandContext, run_client_command
    from trunkline.cli.exit_codes import Exit
    from trunkline.cli.ui.output import print_json, print_notice, print_table

    async def show(context: CommandContext) -> Exit:
        with context.screen.working(f"listing {kind}"):
            found = await _fetch(context.client, kind)
        for note in context.notes:
            print_notice(note)
        if choices.as_json:
            print_json(found)
            return context.exit_code()
        headings, rows = _HEADINGS[kind], [row for items in found.values() for row in map(_row, items)]
        if rows:
            print_table(headings, rows)
        else:
            print_notice(f"the server has no {kind}" if choices.one_server else f"there are no {kind}")
        return context.exit_code()

    return run_client_command(choices, show)


async def _fetch(client: CommandClient, kind: str) -> dict[str, list[Any]]:
    """Fetch the lists of a kind, keyed by their names on the wire; a list whose capability is missing is empty."""
    from trunkline.errors import MissingCapability

    fetches: dict[str, Callable[[], Awaitable[list[Any]]]] = {
        "tools": client.list_tools,
        "prompts": client.list_prompts,
        "resources": client.list_resources,
        "resourceTemplates": client.list_resource_templates,
        "skills": client.list_skills,
    }
    found: dict[str, list[Any]] = {}
    for name in _LISTS[kind]:
        try:
            found[name] = await fetches[name]()
        except MissingCapability:
            found[name] = []
    return found


_LISTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "tools": ("tools",),
        "prompts": ("prompts",),
        "resources": ("resources", "resourceTemplates"),
        "templates": ("resourceTemplates",),
        "skills": ("skills",),
    }
)
_HEADINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "tools": ("TOOL", "ARGUMENTS", "DESCRIPTION"),
        "prompts": ("PROMPT", "ARGUMENTS", "DESCRIPTION"),
        "resources": ("URI", "NAME", "TYPE", "DESCRIPTION"),
        "templates": ("URI TEMPLATE", "NAME", "TYPE", "DESCRIPTION"),
        "skills": ("SKILL", "FILES", "URI", "DESCRIPTION"),
    }
)


def _row(item: Any) -> tuple[str, ...]:
    if hasattr(item, "frontmatter"):
        files = "generated" if item.resources == "dynamic" else str(len(item.resources))
        return str(item.frontmatter.get("name")), files, item.uri, str(item.frontmatter.get("description"))
    about = item.description or item.title or ""
    if hasattr(item, "input_schema"):
        from trunkline.protocol.apps import tool_visibility

        mark = "" if "model" in tool_visibility(item.meta) else "[app] "
        return item.name, _parameters(item.input_schema), f"{mark}{about}"
    if hasattr(item, "arguments"):
        names = [argument.name if argument.required else f"[{argument.name}]" for argument in item.arguments or ()]
        return item.name, " ".join(names), about
    return getattr(item, "uri", None) or item.uri_template, item.name, item.mime_type or "", about


def _parameters(schema: dict[str, Any]) -> str:
    """Return a tool's parameter names, optional ones in brackets."""
    properties, required = schema.get("properties"), schema.get("required")
    names = list(properties) if isinstance(properties, dict) else []
    needed = required if isinstance(required, list) else []
    return " ".join(name if name in needed else f"[{name}]" for name in names)

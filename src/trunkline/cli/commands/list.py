"""``trunkline list``: lists the tools, resources, templates, prompts or skills of a server."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.exit_codes import CommandError, Exit
from trunkline.cli.options import Choices, apps_option, client_command, json_option
from trunkline.cli.suggestions import suggestion

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trunkline.cli.client_session import CommandClient

__all__ = ["command", "fetch_lists"]

_EPILOG = """\
\b
Examples:
  trunkline list weather.py
  trunkline list tools weather.py
  trunkline list tools weather.py -l
  trunkline list tools https://example.com/mcp --token @token.txt
  trunkline list resources "npx -y @modelcontextprotocol/server-everything" --json
  trunkline list tools files -c mcp.json
  trunkline list tools -c mcp.json
  trunkline list skills -c mcp.json
  trunkline list tools weather.py --apps

With -c, the exit code is 5 if a server failed to return this list; cached items are shown all the same.
"""


_KINDS = ("tools", "resources", "templates", "prompts", "skills")
_EVERYTHING = "everything"


class _ListCommand(click.Command):
    """Reads ``list TARGET`` as a list of everything: what is no kind is the target."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Add the kind where it was left out."""
        # The options decide which words are arguments: parsed once without a kind.
        values, _, _ = self.make_parser(ctx).parse_args(list(args))
        words = [word for word in (values.get("kind"), values.get("target")) if isinstance(word, str)]
        if not words or (len(words) == 1 and words[0] not in _KINDS):
            args = [_EVERYTHING, *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a target that does not exist may be a mistyped kind."""
        try:
            return super().invoke(ctx)
        except CommandError as error:
            meant = "" if ctx.params["kind"] != _EVERYTHING else suggestion(ctx.params["target"] or "", _KINDS)
            if not meant or error.exit not in (Exit.USAGE, Exit.CONFIG) or "did you mean" in str(error):
                raise
            raise CommandError(f"{str(error).partition(': expected ')[0]}{meant}", error.exit) from error


@click.command(epilog=_EPILOG, cls=_ListCommand)
@click.argument("kind", metavar="[KIND]", type=click.Choice([*_KINDS, _EVERYTHING]))
@click.argument("target", required=False)
@click.option("-l", "--long", "is_long", is_flag=True, help="Show the arguments with their types, and descriptions.")
@apps_option
@json_option
@client_command
def command(choices: Choices, *, kind: str, is_long: bool) -> int:
    """List the tools, resources, templates, prompts or skills of the server TARGET; without KIND, all of them.

    KIND is tools, resources, templates, prompts or skills. TARGET is a .py file (or FILE:OBJECT), a quoted command, a
    URL, or the name of a configured server. Without TARGET, all configured servers are listed, as server/name. The list
    of resources includes the templates. A tool marked [app] is called by a page of its server, never by a model.
    """
    from trunkline.cli.client_session import CommandContext, run_client_command
    from trunkline.cli.ui.output import print_json, print_notice

    async def show(context: CommandContext) -> Exit:
        with context.screen.working(f"listing {kind}"):
            lists = await fetch_lists(context.client, kind)
        for note in context.notes:
            print_notice(note)
        if choices.as_json:
            print_json(lists)
            return context.exit_code()
        if not any(lists.values()):
            what = "tools, resources, prompts or skills" if kind == _EVERYTHING else kind
            print_notice(f"the server has no {what}" if choices.one_server else f"there are no {what}")
        elif is_long:
            _print_long(lists)
        else:
            _print_tables(lists, kind)
        return context.exit_code()

    return run_client_command(choices, show)


def _print_tables(lists: Mapping[str, list[Any]], kind: str) -> None:
    from trunkline.cli.ui.output import print_table, print_text

    if kind != _EVERYTHING:
        print_table(_HEADINGS[kind], [_row(item) for items in lists.values() for item in items], one_line_rows=True)
        return
    filled = [(name, items) for name, items in lists.items() if items]
    for at, (name, items) in enumerate(filled):
        if at:
            print_text("")
        heading = _HEADINGS["templates" if name == "resourceTemplates" else name]
        print_table(heading, [_row(item) for item in items], one_line_rows=True)


def _print_long(lists: Mapping[str, list[Any]]) -> None:
    from trunkline.cli.ui.output import print_text, terminal_width, wrap_lines
    from trunkline.cli.ui.signatures import signature
    from trunkline.protocol.printable import printable

    for items in lists.values():
        for item in items:
            *cells, about = _row(item)
            text = " ".join(cells) if hasattr(item, "frontmatter") else signature(item)
            lines = [text, *(f"    {line.strip()}" for line in about.strip().splitlines())]
            print_text(wrap_lines(printable("\n".join(lines)), terminal_width() - 1))


async def fetch_lists(client: CommandClient, kind: str) -> dict[str, list[Any]]:
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
        _EVERYTHING: ("tools", "resources", "resourceTemplates", "prompts", "skills"),
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
        from trunkline.cli.ui.signatures import parameter_names

        return item.name, parameter_names(item.input_schema), f"{mark}{about}"
    if hasattr(item, "arguments"):
        names = [argument.name if argument.required else f"[{argument.name}]" for argument in item.arguments or ()]
        return item.name, " ".join(names), about
    return getattr(item, "uri", None) or item.uri_template, item.name, item.mime_type or "", about

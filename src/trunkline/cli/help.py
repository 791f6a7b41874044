"""Help pages and groups of commands: colour, whole summaries, and suggestions for mistyped words.

``prepare`` adapts a command that click has built: its help page is formatted here, and it accepts ``--no-color``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

import click

from trunkline.cli.ui.style import colors_enabled, paint

__all__ = ["CommandGroup", "prepare", "suggestion", "usage_suggestion"]

# Longer than any first sentence, so that a summary is never cut.
_WHOLE = 10_000
_NO_COLOR = "no_color"
_CHOICE = re.compile(r"'([^']*)' is not one of ")


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the question whether another name was meant, after a semicolon; empty if none is near."""
    from trunkline.host.config.spelling import nearest

    near = nearest(name, known)
    return f'; did you mean "{near}"?' if near and near != name else ""


def usage_suggestion(error: click.ClickException) -> str:
    """Return the message of a usage error, with the option or value that was probably meant."""
    context = getattr(error, "ctx", None)
    if isinstance(error, click.NoSuchOption) and context is not None:
        known = [word for each in context.command.get_params(context) for word in (*each.opts, *each.secondary_opts)]
        options = [word for word in known if word.startswith("--")]
        return f"No such option '{error.option_name}'{suggestion(error.option_name, options) or '.'}"
    text = error.format_message()
    if isinstance(error, click.BadParameter) and error.param is not None:
        kind, found = error.param.type, _CHOICE.search(error.message)
        if isinstance(kind, click.Choice) and found is not None:
            return f"{text.rstrip('.')}{suggestion(found.group(1), map(str, kind.choices)) or '.'}"
    return text


class _HelpFormatter(click.HelpFormatter):
    """Formats a help page; headings and names are painted."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the usage line."""
        super().write_usage(prog, args, paint("Usage:", "heading") + " " if prefix is None else prefix)

    def write_heading(self, heading: str) -> None:
        """Write the heading of a section."""
        self.write(f"{'':>{self.current_indent}}{paint(f'{heading}:', 'heading')}\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write names with their descriptions."""
        super().write_dl([(paint(first, "name"), second) for first, second in rows], col_max, col_spacing)


class _HelpContext(click.Context):
    """A context whose help pages are formatted here."""

    formatter_class = _HelpFormatter

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.color = colors_enabled(sys.stdout)


class CommandGroup(click.Group):
    """A group of commands."""

    context_class = _HelpContext

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, prepared."""
        found = super().get_command(ctx, cmd_name)
        return None if found is None else prepare(found)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was typed, or suggest another."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise click.UsageError(self.unknown_command(ctx, args[0]), ctx)
        return super().resolve_command(ctx, args)

    def unknown_command(self, ctx: click.Context, name: str) -> str:
        """Return the message about a command that does not exist."""
        return f"No such command '{name}'{suggestion(name, self.list_commands(ctx)) or '.'}"

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the options, which are few and the same everywhere."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their whole summaries."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, each.get_short_help_str(_WHOLE)) for name, each in commands if each is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def prepare(command: click.Command) -> click.Command:
    """Return a command with help pages formatted here, and with ``--no-color``."""
    if all(each.name != _NO_COLOR for each in command.params):
        command.context_class = _HelpContext
        # ``main`` looks for it before anything is parsed, since the help page depends on it.
        option = click.Option(["--no-color"], is_flag=True, expose_value=False, help="Print without colour.")
        command.params.append(option)
    return command

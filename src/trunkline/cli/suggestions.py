"""Suggestions for mistyped words: commands, options, values, names of servers and of what they offer."""

from __future__ import annotations

import re
from collections.abc import Iterable

import click

__all__ = ["suggestion", "usage_message"]

_CHOICE = re.compile(r"'([^']*)' is not one of ")
_COMMAND = re.compile(r"No such command '([^']*)'")


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the question whether another name was meant, after a semicolon; empty if none is near."""
    from trunkline.host.config.spelling import nearest

    near = nearest(name, known)
    return f'; did you mean "{near}"?' if near and near != name else ""


def usage_message(error: click.ClickException) -> str:
    """Return the message of a usage error, with the command, option or value that was probably meant."""
    context, text = getattr(error, "ctx", None), error.format_message()
    if context is not None and isinstance(error, click.NoSuchOption):
        words = [word for each in context.command.get_params(context) for word in (*each.opts, *each.secondary_opts)]
        options = [word for word in words if word.startswith("--")]
        return f"No such option '{error.option_name}'{suggestion(error.option_name, options) or '.'}"
    command = _COMMAND.match(error.message)
    if context is not None and command is not None and isinstance(context.command, click.Group):
        return f"{command.group()}{_meant_instead(command.group(1), context.command.list_commands(context))}"
    if isinstance(error, click.BadParameter) and error.param is not None:
        kind, value = error.param.type, _CHOICE.search(error.message)
        if isinstance(kind, click.Choice) and value is not None:
            return f"{text.rstrip('.')}{suggestion(value.group(1), map(str, kind.choices)) or '.'}"
    return text


def _meant_instead(name: str, commands: Iterable[str]) -> str:
    """Return what may have been meant by a command that does not exist: a server, or another command."""
    if name.endswith(".py"):
        return f"; to run the server in that file: trunkline run {name}."
    if name.lower().startswith(("http://", "https://")):
        return f"; to list the tools of that server: trunkline list tools {name}."
    return suggestion(name, commands) or "."

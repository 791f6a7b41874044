"""Suggestions for mistyped words: commands, options, values, names of servers and of what they offer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import click

__all__ = ["suggestion", "usage_message"]

_CHOICE = re.compile(r"'([^']*)' is not one of ")
#: What commands are called in other tools.
_OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "dev": "run FILE --reload",
        "help": "--help",
        "init": "new NAME",
        "inspect": "list tools FILE, or trunkline doctor FILE",
        "prompts": "list prompts TARGET",
        "resources": "list resources TARGET",
        "start": "run FILE",
        "tools": "list tools TARGET",
        "version": "--version",
    }
)
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
        meant = suggestion(error.option_name, options) or _option_of_subcommand(context, error.option_name)
        return f"No such option '{error.option_name}'{meant or '.'}"
    command = _COMMAND.match(error.message)
    if context is not None and command is not None and isinstance(context.command, click.Group):
        return f"{command.group()}{_meant_instead(command.group(1), context.command.list_commands(context))}"
    if isinstance(error, click.BadParameter) and error.param is not None:
        kind, value = error.param.type, _CHOICE.search(error.message)
        if isinstance(kind, click.Choice) and value is not None:
            word = value.group(1)
            if context is not None and error.param.name == "kind" and _is_target(word):
                return f"Missing what to list; for the tools: {context.command_path} tools {word}."
            return f"{text.rstrip('.')}{suggestion(word, map(str, kind.choices)) or '.'}"
    return text


def _is_target(word: str) -> bool:
    return word.endswith(".py") or word.lower().startswith(("http://", "https://"))


def _option_of_subcommand(context: click.Context, option: str) -> str:
    """Return the question whether the option was meant for a subcommand, if one has it."""
    group = context.command
    if not isinstance(group, click.Group) or context.parent is None:
        # The commands of the root are many, and each would have to be imported.
        return ""
    for name in group.list_commands(context):
        inner = group.get_command(context, name)
        if inner is not None and any(option in each.opts for each in inner.get_params(context)):
            return f'; did you mean "{context.command_path} {name} {option}"?'
    return ""


def _meant_instead(name: str, commands: Sequence[str]) -> str:
    """Return what may have been meant by a command that does not exist: a server, or another command."""
    if name.endswith(".py"):
        return f"; to run the server in that file: trunkline run {name}."
    if name.lower().startswith(("http://", "https://")):
        return f"; to list the tools of that server: trunkline list tools {name}."
    if name in _OTHER_NAMES and "run" in commands:
        return f"; use: trunkline {_OTHER_NAMES[name]}."
    return suggestion(name, commands) or "."

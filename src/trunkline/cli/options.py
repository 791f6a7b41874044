"""The arguments that all verbs with a TARGET share, read once into a record.

It reads and checks what was typed, and starts nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NamedTuple

import click

from trunkline.cli.not_yet import config_option
from trunkline.cli.targets import Launch, Site, read_target

__all__ = ["Choices", "client_verb", "json_option", "pairs"]


class Choices(NamedTuple):
    """What was chosen for one conversation with a server."""

    target: Launch | Site
    revision: str
    #: For a server that is started: its variables and its folder.
    env: dict[str, str]
    cwd: str | None
    #: For a URL: headers and a token that go with every request, and the certificates to trust.
    headers: dict[str, str]
    token: str | None
    ca_file: str | None
    #: Seconds to wait for the connection, and for each answer; None for the usual limits.
    timeout: float | None
    #: How much is shown besides the answer: 1 the server's log and stderr, 2 its debug messages too.
    verbosity: int
    #: Decline every question.
    no_input: bool
    #: The answer is wanted as one JSON document.
    as_json: bool


def client_verb(function: Callable[..., int]) -> Callable[..., int]:
    """Give a command the shared options; it gets a ``Choices`` as ``choices``, besides its own parameters.

    TARGET is the command's own argument, since its place among the others is.
    """

    @wraps(function)
    def read(*, target: str, **given: Any) -> int:
        shared = {name: given.pop(name) for name in _SHARED if name in given}
        return function(choices=_choices(target, shared), **given)

    command: Callable[..., int] = read
    for option in reversed(_options()):
        command = option(command)
    return command


_SHARED = ("revision", "env", "cwd", "header", "token", "ca_file", "timeout", "verbose", "no_input", "as_json")
_REVISION_HELP = "The protocol revision to speak; auto asks the server."
_TIMEOUT_HELP = "Seconds to wait for the connection, and then for the answer."
_FILE = click.Path(exists=True, dir_okay=False)

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document, in the wire's own form.")


def _options() -> tuple[Callable[[Callable[..., int]], Callable[..., int]], ...]:
    return (
        config_option,
        click.option("--revision", default="auto", metavar="NAME", callback=_revision, help=_REVISION_HELP),
        click.option("--env", multiple=True, metavar="K=V", help="A variable for the server; K alone passes ours on."),
        click.option("--cwd", type=click.Path(exists=True, file_okay=False), help="The folder the server starts in."),
        click.option("--header", multiple=True, metavar="'NAME: VALUE'", help="A header for every request to a URL."),
        click.option("--token", metavar="T", help="A token for a URL, sent as Bearer; @file reads a file."),
        click.option("--ca-file", type=_FILE, help="Certificates to trust for a URL, instead of the system's."),
        click.option("--timeout", type=float, metavar="S", callback=_seconds, help=_TIMEOUT_HELP),
        click.option("-v", "--verbose", count=True, help="Show the server's log messages and stderr; -vv also debug."),
        click.option("--no-input", is_flag=True, help="Decline every question of the server's."),
    )


def _choices(text: str, given: Mapping[str, Any]) -> Choices:
    env, headers = _environment(given["env"]), _headers(given["header"])
    target = read_target(text)
    _check_fit(target, given)
    return Choices(
        target,
        given["revision"],
        {**(target.env if isinstance(target, Launch) else {}), **env},
        given["cwd"],
        headers,
        _token(given["token"]),
        given["ca_file"],
        given["timeout"],
        verbosity=given["verbose"],
        no_input=given["no_input"],
        as_json=given.get("as_json", False),
    )


def _token(text: str | None) -> str | None:
    if text is None:
        return None
    from trunkline.cli.arguments import read_value

    return read_value(text).strip()


def _check_fit(target: Launch | Site, given: Mapping[str, Any]) -> None:
    """Refuse options that would do nothing: whoever gives one expects that it does something."""
    for name in ("env", "cwd") if isinstance(target, Site) else ("header", "token", "ca_file"):
        if given[name]:
            site = isinstance(target, Site)
            why = "a server that is started, and TARGET is a URL" if site else "a URL, and TARGET is none"
            raise click.UsageError(f"--{name.replace('_', '-')} is for {why}.")


def _revision(context: click.Context, option: click.Parameter, value: str) -> str:
    from trunkline.protocol.revisions import ALL_NAMES

    if value not in ("auto", *ALL_NAMES):
        raise click.BadParameter(f"{value!r} is none of: auto, {', '.join(ALL_NAMES)}.", context, option)
    return value


def _seconds(context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise click.BadParameter("give a number of seconds above 0.", context, option)
    return value


def _environment(entries: tuple[str, ...]) -> dict[str, str]:
    return dict(_variable(entry) for entry in entries)


def _variable(entry: str) -> tuple[str, str]:
    name, equals, value = entry.partition("=")
    if not name:
        raise click.UsageError(f"--env {entry}: give NAME=VALUE.")
    if not equals and name not in os.environ:
        raise click.UsageError(f"--env {entry}: there is no variable {name} to pass on; give {name}=VALUE.")
    return name, value if equals else os.environ[name]


def _headers(entries: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in entries:
        name, colon, value = entry.partition(":")
        name = name.strip()
        if not colon or not name:
            # The whole of it may be a secret without its name.
            raise click.UsageError("--header: give 'NAME: VALUE', in quotes.")
        if name.lower() in (other.lower() for other in found):
            raise click.UsageError(f"--header {name} is given twice.")
        found[name] = value.strip()
    return found


def pairs(entries: tuple[str, ...]) -> dict[str, str]:
    """Read ``key=value`` arguments; each key once."""
    found: dict[str, str] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{entry!r} is no key=value.")
        if name in found:
            raise click.UsageError(f"{name} is given twice.")
        found[name] = value
    return found

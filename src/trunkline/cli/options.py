"""Options shared by the commands with a TARGET, read once into a record.

This module parses and checks what was typed; it starts nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from trunkline.cli.targets import Launch, Named, Site, read_target

if TYPE_CHECKING:
    from trunkline.host.assembly import HostOptions
    from trunkline.host.pins.reviewing import Scanning

__all__ = [
    "Choices",
    "Guard",
    "client_verb",
    "config_option",
    "guard_of",
    "guard_options",
    "headers_of",
    "json_option",
    "meant",
    "pairs",
    "reach_options",
    "reached",
    "seconds_option",
    "told",
    "variables_of",
]


T = TypeVar("T")


class Guard(NamedTuple):
    """Policy, lock file and scan mode for configured servers; None stands for the default of ``Host.open``."""

    #: The policy file, if not the user's own.
    policy: str | None = None
    #: The lock file: only definitions pinned in it can be used.
    lock: str | None = None
    #: What to do about scan findings.
    scanning: Scanning | None = None

    def options(self) -> HostOptions:
        """Return the values that are set, as options of ``Host.open``."""
        said: dict[str, Any] = {name: value for name, value in self._asdict().items() if value is not None}
        return cast("HostOptions", said)


class Choices(NamedTuple):
    """The options for one connection to a server."""

    target: Launch | Site | Named
    revision: str
    #: For a server that is started: its environment variables and working directory.
    env: dict[str, str]
    cwd: str | None
    #: For a URL: headers and token for every request, and the CA certificates to trust.
    headers: dict[str, str]
    token: str | None
    ca_file: str | None
    #: Seconds to wait for the connection and for each response; None for the default limits.
    timeout: float | None
    #: 1: also show the server's log and stderr; 2: also its debug messages.
    verbosity: int
    #: Decline every request of the server for input.
    no_input: bool
    #: Print the result as one JSON document.
    as_json: bool
    #: For a configured server.
    guard: Guard = Guard()

    @property
    def one_server(self) -> bool:
        """True if the target is one server, not all configured ones."""
        return not isinstance(self.target, Named) or self.target.server is not None


def client_verb(function: Callable[..., int]) -> Callable[..., int]:
    """Add the shared options to a command; it is called with a ``Choices`` as ``choices`` besides its own parameters.

    TARGET is declared by the command itself, since its position among the other arguments differs.
    """

    @wraps(function)
    def read(*, target: str | None, **given: Any) -> int:
        shared = {name: given.pop(name) for name in _SHARED if name in given}
        choices = told(lambda: _choices(target, shared), shared.get("as_json", False))
        return function(choices=choices, **given)

    command: Callable[..., int] = read
    for option in reversed(_options()):
        command = option(command)
    return command


def reach_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add only the options for reaching TARGET to a command; ``read_target_options`` reads them."""
    for option in reversed(_reaching()):
        function = option(function)
    return function


def reached(target: str | None, given: Mapping[str, Any]) -> Choices:
    """Read TARGET and the options of ``target_options``; all others have their defaults."""
    return _choices(target, {**_USUAL, **given})


def told(work: Callable[[], T], as_json: bool) -> T:
    """Call a function and return its result; with ``as_json``, print its error as JSON too."""
    from trunkline.cli.exits import Failure
    from trunkline.errors import TrunklineError

    try:
        return work()
    except (Failure, TrunklineError) as error:
        if as_json:
            from trunkline.cli.output import error_document, say_json

            say_json(error_document(error))
        raise


def meant(choices: Choices, words: Sequence[str], what: str) -> tuple[str, tuple[str, ...]]:
    """Return the item of the server and the remaining words; TARGET may name the item already, as ``NAME/TOOL``."""
    target = choices.target
    if isinstance(target, Named) and target.rest is not None:
        return target.rest, tuple(words)
    if not words:
        raise click.UsageError(f"Missing argument {what!r}.")
    return words[0], tuple(words[1:])


#: The parameters added by ``policy_options``.
_GUARD = Guard._fields
_SHARED = (
    *("config", *_GUARD, "revision", "env", "cwd", "header", "token", "ca_file"),
    *("timeout", "verbose", "no_input", "as_json"),
)
_REVISION_HELP = "Protocol revision to use. Default: negotiated with the server."
_TIMEOUT_HELP = "Seconds to wait for the connection, and then for the response."
_FILE = click.Path(exists=True, dir_okay=False)

_CONFIG_HELP = "Configuration file with servers; they need no approval. Repeatable."

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
config_option = click.option("-c", "--config", multiple=True, metavar="FILE", help=_CONFIG_HELP)


def approval_option(help: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return the option for the approval mode (see ``trunkline.host.authorization``)."""
    return click.option("--approval", type=click.Choice(["client", "ask", "deny"]), help=help)


_GUARD_OPTIONS = (
    click.option("--policy", metavar="FILE", help="Policy file to use instead of your policy.toml."),
    click.option("--lock", metavar="FILE", help="Lock file; only definitions pinned in it can be used."),
    click.option(
        "--scanning",
        type=click.Choice(["hide", "ask", "off"]),
        help="How to treat scan findings: hide severe ones (default), only ask, or ignore them.",
    ),
)


def guard_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options for policy, lock file and scan mode to a command; ``read_policy_options`` reads them."""
    for option in reversed(_GUARD_OPTIONS):
        function = option(function)
    return function


def guard_of(given: Mapping[str, Any]) -> Guard:
    """Read the options added by ``policy_options``."""
    return Guard(**{name: given.get(name) for name in _GUARD})


_USUAL: Mapping[str, Any] = MappingProxyType(
    {**dict.fromkeys(_GUARD), "revision": "auto", "timeout": None, "verbose": 0, "no_input": False, "as_json": False}
)


def _reaching() -> tuple[Callable[[Callable[..., int]], Callable[..., int]], ...]:
    return (
        config_option,
        click.option(
            "--env",
            multiple=True,
            metavar="K=V",
            help="Environment variable for the server; K alone copies yours. Repeatable.",
        ),
        click.option("--cwd", type=click.Path(exists=True, file_okay=False), help="Working directory of the server."),
        click.option(
            "--header", multiple=True, metavar="'NAME: VALUE'", help="HTTP header for requests to a URL; repeatable."
        ),
        click.option("--token", metavar="T", help="Bearer token for a URL; @FILE reads it from a file."),
        click.option("--ca-file", type=_FILE, help="CA certificates to trust for a URL instead of the system's."),
    )


def _options() -> tuple[Callable[[Callable[..., int]], Callable[..., int]], ...]:
    config, *others = _reaching()
    return (
        config,
        *_GUARD_OPTIONS,
        click.option("--revision", default="auto", metavar="NAME", callback=_revision, help=_REVISION_HELP),
        *others,
        seconds_option(_TIMEOUT_HELP),
        click.option(
            "-v", "--verbose", count=True, help="Show the server's log messages and stderr; -vv adds debug messages."
        ),
        click.option("--no-input", is_flag=True, help="Decline every request of the server for input."),
    )


def _choices(text: str | None, given: Mapping[str, Any]) -> Choices:
    env, headers = variables_of(given["env"]), headers_of(given["header"])
    target = read_target(text, given["config"])
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
        guard=guard_of(given),
    )


def _token(text: str | None) -> str | None:
    if text is None:
        return None
    from trunkline.cli.arguments import read_value

    return read_value(text).strip()


_FOR: Mapping[type, tuple[tuple[str, ...], str]] = MappingProxyType(
    {
        Site: (("env", "cwd", *_GUARD), "TARGET is a URL"),
        Launch: (("header", "token", "ca_file", *_GUARD), "TARGET is started with a command"),
        Named: (
            ("env", "cwd", "header", "token", "ca_file"),
            "TARGET is a configured server, whose entry defines that",
        ),
    }
)
_OF: Mapping[str, str] = MappingProxyType(
    {
        "env": "a server that is started",
        "cwd": "a server that is started",
        "header": "a URL",
        "token": "a URL",
        "ca_file": "a URL",
        **dict.fromkeys(_GUARD, "a configured server"),
    }
)


def _check_fit(target: Launch | Site | Named, given: Mapping[str, Any]) -> None:
    """Reject options that would have no effect for this target."""
    unfit, why = _FOR[type(target)]
    for name in unfit:
        if given[name]:
            raise click.UsageError(f"--{name.replace('_', '-')} is for {_OF[name]}, and {why}.")


def _revision(context: click.Context, option: click.Parameter, value: str) -> str:
    from trunkline.protocol.revisions import ALL_NAMES

    if value not in ("auto", *ALL_NAMES):
        raise click.BadParameter(f"{value!r} is not one of: auto, {', '.join(ALL_NAMES)}.", context, option)
    return value


def _seconds(context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise click.BadParameter("expected a number of seconds greater than 0.", context, option)
    return value


def seconds_option(help: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return the option ``--timeout S``."""
    return click.option("--timeout", type=float, metavar="S", callback=_seconds, help=help)


def variables_of(entries: tuple[str, ...]) -> dict[str, str]:
    """Parse the values of ``--env``: ``K=V``, or ``K`` to copy our own variable."""
    return dict(_variable(entry) for entry in entries)


def _variable(entry: str) -> tuple[str, str]:
    name, equals, value = entry.partition("=")
    if not name:
        raise click.UsageError(f"--env {entry}: expected NAME=VALUE.")
    if not equals and name not in os.environ:
        raise click.UsageError(f"--env {entry}: the variable {name} is not set; use {name}=VALUE.")
    return name, value if equals else os.environ[name]


def headers_of(entries: tuple[str, ...]) -> dict[str, str]:
    """Parse the values of ``--header``: ``NAME: VALUE``, each name once."""
    found: dict[str, str] = {}
    for entry in entries:
        name, colon, value = entry.partition(":")
        name = name.strip()
        if not colon or not name:
            # The value is not shown: it may be a secret without its name.
            raise click.UsageError("--header: expected 'NAME: VALUE', in quotes.")
        if name.lower() in (other.lower() for other in found):
            raise click.UsageError(f"--header {name} is given twice.")
        found[name] = value.strip()
    return found


def pairs(entries: tuple[str, ...]) -> dict[str, str]:
    """Parse ``key=value`` arguments; each key once."""
    found: dict[str, str] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{entry!r} is not key=value.")
        if name in found:
            raise click.UsageError(f"{name} is given twice.")
        found[name] = value
    return found

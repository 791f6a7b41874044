"""The arguments that all verbs with a TARGET share, read once into a record.

It reads and checks what was typed, and starts nothing.
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
    """What holds servers of a configuration in check; what is None is as in ``Host.open``."""

    #: The rules, if not the user's own.
    policy: str | None = None
    #: The lock file: only what is in it passes.
    lock: str | None = None
    #: What is done about what the scan finds.
    scanning: Scanning | None = None

    def options(self) -> HostOptions:
        """Give it as options of ``Host.open``."""
        said: dict[str, Any] = {name: value for name, value in self._asdict().items() if value is not None}
        return cast("HostOptions", said)


class Choices(NamedTuple):
    """What was chosen for one conversation with a server."""

    target: Launch | Site | Named
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
    #: For a name of a configuration.
    guard: Guard = Guard()

    @property
    def one_server(self) -> bool:
        """Whether one server is meant, and not all of a configuration."""
        return not isinstance(self.target, Named) or self.target.server is not None


def client_verb(function: Callable[..., int]) -> Callable[..., int]:
    """Give a command the shared options; it gets a ``Choices`` as ``choices``, besides its own parameters.

    TARGET is the command's own argument, since its place among the others is.
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
    """Give a command the options that say how TARGET is reached, and no others; ``reached`` reads them."""
    for option in reversed(_reaching()):
        function = option(function)
    return function


def reached(target: str | None, given: Mapping[str, Any]) -> Choices:
    """Read TARGET and the options of ``reach_options``; all others are as if they were not given."""
    return _choices(target, {**_USUAL, **given})


def told(work: Callable[[], T], as_json: bool) -> T:
    """Do something; what fails is told as JSON too if that was asked for."""
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
    """Say what of a server is meant, and which words are left: TARGET may have said it already, as ``NAME/TOOL``."""
    target = choices.target
    if isinstance(target, Named) and target.rest is not None:
        return target.rest, tuple(words)
    if not words:
        raise click.UsageError(f"Missing argument {what!r}.")
    return words[0], tuple(words[1:])


#: The names of what ``guard_options`` gives.
_GUARD = Guard._fields
_SHARED = (
    *("config", *_GUARD, "revision", "env", "cwd", "header", "token", "ca_file"),
    *("timeout", "verbose", "no_input", "as_json"),
)
_REVISION_HELP = "The protocol revision to speak; auto asks the server."
_TIMEOUT_HELP = "Seconds to wait for the connection, and then for the answer."
_FILE = click.Path(exists=True, dir_okay=False)

_CONFIG_HELP = "A configuration file with servers, which may start since you name it; may be repeated."

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document, in the wire's own form.")
config_option = click.option("-c", "--config", multiple=True, metavar="FILE", help=_CONFIG_HELP)


def approval_option(help: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return the option that chooses an approval mode (``host/judgement/approval.py``)."""
    return click.option("--approval", type=click.Choice(["client", "ask", "deny"]), help=help)


_GUARD_OPTIONS = (
    click.option("--policy", metavar="FILE", help="The rules that hold, instead of your policy.toml."),
    click.option("--lock", metavar="FILE", help="A lock file of pins: only what is in it passes."),
    click.option(
        "--scanning",
        type=click.Choice(["hide", "ask", "off"]),
        help="What is done about what the scan finds: hide the worst of it (as usual), ask at most, or nothing.",
    ),
)


def guard_options(function: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options that say what holds its servers in check; ``guard_of`` reads them."""
    for option in reversed(_GUARD_OPTIONS):
        function = option(function)
    return function


def guard_of(given: Mapping[str, Any]) -> Guard:
    """Read the options of ``guard_options``."""
    return Guard(**{name: given.get(name) for name in _GUARD})


_USUAL: Mapping[str, Any] = MappingProxyType(
    {**dict.fromkeys(_GUARD), "revision": "auto", "timeout": None, "verbose": 0, "no_input": False, "as_json": False}
)


def _reaching() -> tuple[Callable[[Callable[..., int]], Callable[..., int]], ...]:
    return (
        config_option,
        click.option("--env", multiple=True, metavar="K=V", help="A variable for the server; K alone passes ours on."),
        click.option("--cwd", type=click.Path(exists=True, file_okay=False), help="The folder the server starts in."),
        click.option("--header", multiple=True, metavar="'NAME: VALUE'", help="A header for every request to a URL."),
        click.option("--token", metavar="T", help="A token for a URL, sent as Bearer; @file reads a file."),
        click.option("--ca-file", type=_FILE, help="Certificates to trust for a URL, instead of the system's."),
    )


def _options() -> tuple[Callable[[Callable[..., int]], Callable[..., int]], ...]:
    config, *others = _reaching()
    return (
        config,
        *_GUARD_OPTIONS,
        click.option("--revision", default="auto", metavar="NAME", callback=_revision, help=_REVISION_HELP),
        *others,
        seconds_option(_TIMEOUT_HELP),
        click.option("-v", "--verbose", count=True, help="Show the server's log messages and stderr; -vv also debug."),
        click.option("--no-input", is_flag=True, help="Decline every question of the server's."),
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
        Launch: (("header", "token", "ca_file", *_GUARD), "TARGET is started by its command"),
        Named: (("env", "cwd", "header", "token", "ca_file"), "TARGET is a name: its entry says how it is reached"),
    }
)
_OF: Mapping[str, str] = MappingProxyType(
    {
        "env": "a server that is started",
        "cwd": "a server that is started",
        "header": "a URL",
        "token": "a URL",
        "ca_file": "a URL",
        **dict.fromkeys(_GUARD, "a server of a configuration"),
    }
)


def _check_fit(target: Launch | Site | Named, given: Mapping[str, Any]) -> None:
    """Refuse options that would do nothing: whoever gives one expects that it does something."""
    unfit, why = _FOR[type(target)]
    for name in unfit:
        if given[name]:
            raise click.UsageError(f"--{name.replace('_', '-')} is for {_OF[name]}, and {why}.")


def _revision(context: click.Context, option: click.Parameter, value: str) -> str:
    from trunkline.protocol.revisions import ALL_NAMES

    if value not in ("auto", *ALL_NAMES):
        raise click.BadParameter(f"{value!r} is none of: auto, {', '.join(ALL_NAMES)}.", context, option)
    return value


def _seconds(context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise click.BadParameter("give a number of seconds above 0.", context, option)
    return value


def seconds_option(help: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Make ``--timeout S``."""
    return click.option("--timeout", type=float, metavar="S", callback=_seconds, help=help)


def variables_of(entries: tuple[str, ...]) -> dict[str, str]:
    """Read the values of ``--env``: ``K=V``, or ``K`` to pass on our own."""
    return dict(_variable(entry) for entry in entries)


def _variable(entry: str) -> tuple[str, str]:
    name, equals, value = entry.partition("=")
    if not name:
        raise click.UsageError(f"--env {entry}: give NAME=VALUE.")
    if not equals and name not in os.environ:
        raise click.UsageError(f"--env {entry}: there is no variable {name} to pass on; give {name}=VALUE.")
    return name, value if equals else os.environ[name]


def headers_of(entries: tuple[str, ...]) -> dict[str, str]:
    """Read the values of ``--header``: ``NAME: VALUE``, each name once."""
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

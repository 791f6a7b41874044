"""Options that several commands share, read once into records.

This module parses and checks what was typed; it starts nothing.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from trunkline.cli.exit_codes import CommandError, Exit
from trunkline.cli.targets import CommandTarget, ConfiguredTarget, UrlTarget, resolve_target

__all__ = [
    "Choices",
    "PolicyOptions",
    "apps_option",
    "client_command",
    "client_options",
    "config_option",
    "http_option",
    "json_object",
    "json_option",
    "listen_option",
    "page_options",
    "parse_env",
    "parse_headers",
    "parse_pairs",
    "policy_options",
    "rate_limit_option",
    "read_client_options",
    "read_policy_options",
    "read_target_options",
    "read_value",
    "take_item",
    "target_options",
    "timeout_option",
    "typed_arguments",
    "with_json_errors",
]

_PYTHON_TYPES: Mapping[type, tuple[str, ...]] = MappingProxyType(
    {
        bool: ("boolean",),
        int: ("integer", "number"),
        float: ("number",),
        list: ("array",),
        dict: ("object",),
        type(None): ("null",),
    }
)
_ALL_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
# Deeper than this, the references of a schema are circular.
_MOST_STEPS = 16


def typed_arguments(texts: Mapping[str, str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Convert texts to the types of a tool's parameters.

    Raises:
        click.UsageError: a list or an object is not JSON.
    """
    return {name: _typed(name, text, _parameter(name, schema), schema) for name, text in texts.items()}


def _parameter(name: str, schema: Mapping[str, Any]) -> Any:
    properties = schema.get("properties")
    if isinstance(properties, dict) and name in properties:
        return properties[name]
    return schema.get("additionalProperties", {})


def _typed(name: str, text: str, parameter: Any, schema: Mapping[str, Any]) -> Any:
    import msgspec

    text = read_value(text, binary=isinstance(parameter, dict) and parameter.get("contentEncoding") == "base64")
    wanted = _types(parameter, schema, _MOST_STEPS)
    if wanted == {"string"}:
        return text
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        if "string" not in wanted and text.lstrip().startswith(("{", "[")):
            # The server would only say that it got a string.
            raise click.UsageError(f"{name} is not JSON: {error}.") from None
        return text
    if "string" not in wanted:
        return value
    fits = wanted.intersection(_PYTHON_TYPES.get(type(value), ()))
    return value if fits else text


def _types(parameter: Any, schema: Mapping[str, Any], steps: int) -> frozenset[str]:
    """Return the JSON types that a parameter accepts; all types if its schema does not restrict them."""
    if not isinstance(parameter, dict) or steps == 0:
        return _ALL_TYPES
    if isinstance(parameter.get("$ref"), str):
        return _types(referred_schema(parameter["$ref"], schema), schema, steps - 1)
    declared = parameter.get("type")
    if isinstance(declared, str | list):
        return frozenset([declared] if isinstance(declared, str) else declared)
    for key in ("anyOf", "oneOf"):
        if isinstance(parameter.get(key), list):
            return frozenset().union(*(_types(part, schema, steps - 1) for part in parameter[key]))
    if isinstance(parameter.get("allOf"), list):
        return _ALL_TYPES.intersection(*(_types(part, schema, steps - 1) for part in parameter["allOf"]))
    values = parameter["enum"] if isinstance(parameter.get("enum"), list) else [parameter.get("const", ...)]
    if values == [...]:
        return _ALL_TYPES
    return frozenset(name for value in values for name in _PYTHON_TYPES.get(type(value), ("string",)))


def referred_schema(reference: str, schema: Mapping[str, Any]) -> Any:
    """Return the part of a schema that a local reference names; None if there is none."""
    found: Any = schema
    for part in reference.removeprefix("#").split("/")[1:]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


def read_value(text: str, *, binary: bool = False) -> str:
    """Return a value as typed or, after ``@``, the contents of a file (``-`` is stdin); ``@@`` escapes an ``@``.

    Raises:
        CommandError: the file cannot be read, or is not UTF-8 text where text is required.
    """
    if not text.startswith("@") or text.startswith("@@"):
        return text.replace("@@", "@", 1) if text.startswith("@@") else text
    data = _file(text[1:])
    if binary:
        from base64 import b64encode

        return b64encode(data).decode()
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CommandError(f"{text[1:]} is not UTF-8 text", Exit.CONFIG) from None


def _file(path: str) -> bytes:
    if path == "-":
        return sys.stdin.buffer.read()
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}", Exit.CONFIG) from error


def json_object(text: str) -> dict[str, Any]:
    """Parse the value of ``--args``: a JSON object, or ``@`` and a file with one."""
    import msgspec

    try:
        value = msgspec.json.decode(read_value(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise click.UsageError(f"--args is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise click.UsageError("--args is not a JSON object.")
    return value


if TYPE_CHECKING:
    from trunkline.host.assembly import HostOptions
    from trunkline.host.integrity.pins.catalog_review import ScanMode


T = TypeVar("T")


class PolicyOptions(NamedTuple):
    """Policy, lock file and scan mode for configured servers; None stands for the default of ``Host.open``."""

    #: The policy file, if not the user's own.
    policy: str | None = None
    #: The lock file: only definitions pinned in it can be used.
    lock: str | None = None
    #: What to do about scan findings.
    scanning: ScanMode | None = None

    def options(self) -> HostOptions:
        """Return the values that are set, as options of ``Host.open``."""
        said: dict[str, Any] = {name: value for name, value in self._asdict().items() if value is not None}
        return cast("HostOptions", said)


class Choices(NamedTuple):
    """The options for one connection to a server."""

    target: CommandTarget | UrlTarget | ConfiguredTarget
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
    policy_options: PolicyOptions = PolicyOptions()
    #: Whether to declare that pages (MCP Apps) are shown.
    apps: bool = False

    @property
    def one_server(self) -> bool:
        """True if the target is one server, not all configured ones."""
        return not isinstance(self.target, ConfiguredTarget) or self.target.server is not None


def client_command(function: Callable[..., int]) -> Callable[..., int]:
    """Add the shared options to a command; it is called with a ``Choices`` as ``choices`` besides its own parameters.

    TARGET is declared by the command itself, since its position among the other arguments differs.
    """

    @wraps(function)
    def read(*, target: str | None, **given: Any) -> int:
        shared = {name: given.pop(name) for name in _SHARED if name in given}
        choices = with_json_errors(lambda: read_client_options(target, shared), shared.get("as_json", False))
        return function(choices=choices, **given)

    return client_options(read)


def client_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the shared options to a command; ``read_client_options`` reads them."""
    for option in reversed(_options()):
        function = option(function)
    return function


def read_client_options(target: str | None, given: Mapping[str, Any]) -> Choices:
    """Read TARGET and the options of ``client_options``.

    Raises:
        CommandError: TARGET cannot be resolved.
        ConfigError: a given file cannot be used.
    """
    return _choices(target, given)


def target_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add only the options for reaching TARGET to a command; ``read_target_options`` reads them."""
    for option in reversed(_target_options()):
        function = option(function)
    return function


def read_target_options(target: str | None, given: Mapping[str, Any]) -> Choices:
    """Read TARGET and the options of ``target_options``; all others have their defaults."""
    return _choices(target, {**_DEFAULTS, **given})


def with_json_errors(work: Callable[[], T], as_json: bool) -> T:
    """Call a function and return its result; with ``as_json``, print its error as JSON too."""
    from trunkline.cli.exit_codes import CommandError
    from trunkline.errors import TrunklineError

    try:
        return work()
    except (CommandError, TrunklineError) as error:
        if as_json:
            from trunkline.cli.ui.output import error_document, print_json

            print_json(error_document(error))
        raise


def take_item(choices: Choices, words: Sequence[str], what: str) -> tuple[str, tuple[str, ...]]:
    """Return the item of the server and the remaining words; TARGET may name the item already, as ``NAME/TOOL``."""
    target = choices.target
    if isinstance(target, ConfiguredTarget) and target.rest is not None:
        return target.rest, tuple(words)
    if not words:
        kind = {"TOOL": "tools", "PROMPT": "prompts", "URI": "resources"}.get(what)
        hint = "" if kind is None else f"; trunkline list {kind} TARGET lists them"
        raise click.UsageError(f"Missing argument {what!r}{hint}.")
    return words[0], tuple(words[1:])


#: The parameters added by ``policy_options``.
_POLICY_FIELDS = PolicyOptions._fields
_SHARED = (
    *("config", *_POLICY_FIELDS, "revision", "env", "cwd", "header", "token", "ca_file"),
    *("timeout", "verbose", "no_input", "as_json", "apps"),
)
_REVISION_HELP = "Protocol revision to use. Default: negotiated with the server."
_TIMEOUT_HELP = "Seconds to wait for the connection, and then for the response."
_FILE = click.Path(exists=True, dir_okay=False)

_CONFIG_HELP = "Configuration file with servers; they need no approval. Repeatable."

apps_option = click.option(
    "--apps",
    is_flag=True,
    help="Act as a client that shows MCP Apps: include pages, and tools that only pages call.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
config_option = click.option("-c", "--config", multiple=True, metavar="FILE", help=_CONFIG_HELP)


def approval_option(help: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return the option for the approval mode (see ``trunkline.host.authorization``)."""
    return click.option("--approval", type=click.Choice(["client", "ask", "deny"]), help=help)


_POLICY_OPTIONS = (
    click.option("--policy", metavar="FILE", help="Policy file to use instead of your policy.toml."),
    click.option("--lock", metavar="FILE", help="Lock file; only definitions pinned in it can be used."),
    click.option(
        "--scanning",
        type=click.Choice(["hide", "ask", "off"]),
        help="How to treat scan findings: hide severe ones (default), only ask, or ignore them.",
    ),
)


def policy_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options for policy, lock file and scan mode to a command; ``read_policy_options`` reads them."""
    for option in reversed(_POLICY_OPTIONS):
        function = option(function)
    return function


def read_policy_options(given: Mapping[str, Any]) -> PolicyOptions:
    """Read the options added by ``policy_options``."""
    return PolicyOptions(**{name: given.get(name) for name in _POLICY_FIELDS})


_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        **dict.fromkeys(_POLICY_FIELDS),
        "revision": "auto",
        "timeout": None,
        "verbose": 0,
        "no_input": False,
        "as_json": False,
    }
)


def _target_options() -> tuple[Callable[[Callable[..., int]], Callable[..., int]], ...]:
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
    config, *others = _target_options()
    return (
        config,
        *_POLICY_OPTIONS,
        click.option("--revision", default="auto", metavar="NAME", callback=_revision, help=_REVISION_HELP),
        *others,
        timeout_option(_TIMEOUT_HELP),
        click.option(
            "-v", "--verbose", count=True, help="Show the server's log messages and stderr; -vv adds debug messages."
        ),
        click.option("--no-input", is_flag=True, help="Decline every request of the server for input."),
    )


def _choices(text: str | None, given: Mapping[str, Any]) -> Choices:
    env, headers = parse_env(given["env"]), parse_headers(given["header"])
    target = resolve_target(text, given["config"])
    _reject_unused(target, given)
    return Choices(
        target,
        given["revision"],
        {**(target.env if isinstance(target, CommandTarget) else {}), **env},
        given["cwd"],
        headers,
        _token(given["token"]),
        given["ca_file"],
        given["timeout"],
        verbosity=given["verbose"],
        no_input=given["no_input"],
        as_json=given.get("as_json", False),
        policy_options=read_policy_options(given),
        apps=given.get("apps", False),
    )


def _token(text: str | None) -> str | None:
    if text is None:
        return None

    return read_value(text).strip()


_UNUSED_FOR: Mapping[type, tuple[tuple[str, ...], str]] = MappingProxyType(
    {
        UrlTarget: (("env", "cwd", *_POLICY_FIELDS), "TARGET is a URL"),
        CommandTarget: (("header", "token", "ca_file", *_POLICY_FIELDS), "TARGET is started with a command"),
        ConfiguredTarget: (
            ("env", "cwd", "header", "token", "ca_file"),
            "TARGET is a configured server, whose entry defines that",
        ),
    }
)
_MEANT_FOR: Mapping[str, str] = MappingProxyType(
    {
        "env": "a server that is started",
        "cwd": "a server that is started",
        "header": "a URL",
        "token": "a URL",
        "ca_file": "a URL",
        **dict.fromkeys(_POLICY_FIELDS, "a configured server"),
    }
)


def _reject_unused(target: CommandTarget | UrlTarget | ConfiguredTarget, given: Mapping[str, Any]) -> None:
    """Reject options that would have no effect for this target."""
    unfit, why = _UNUSED_FOR[type(target)]
    for name in unfit:
        if given[name]:
            raise click.UsageError(f"--{name.replace('_', '-')} is for {_MEANT_FOR[name]}, and {why}.")


def _revision(context: click.Context, option: click.Parameter, value: str) -> str:
    from trunkline.protocol.revisions import REVISION_NAMES

    if value not in ("auto", *REVISION_NAMES):
        raise click.BadParameter(f"{value!r} is not one of: auto, {', '.join(REVISION_NAMES)}.", context, option)
    return value


def _seconds(context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise click.BadParameter("expected a number of seconds greater than 0.", context, option)
    return value


def timeout_option(help: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return the option ``--timeout S``."""
    return click.option("--timeout", type=float, metavar="S", callback=_seconds, help=help)


def parse_env(entries: tuple[str, ...]) -> dict[str, str]:
    """Parse the values of ``--env``: ``K=V``, or ``K`` to copy our own variable."""
    return dict(_variable(entry) for entry in entries)


def _variable(entry: str) -> tuple[str, str]:
    name, equals, value = entry.partition("=")
    if not name:
        raise click.UsageError(f"--env {entry}: expected NAME=VALUE.")
    if not equals and name not in os.environ:
        raise click.UsageError(f"--env {entry}: the variable {name} is not set; use {name}=VALUE.")
    return name, value if equals else os.environ[name]


def parse_headers(entries: tuple[str, ...]) -> dict[str, str]:
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


def parse_pairs(entries: tuple[str, ...]) -> dict[str, str]:
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


if TYPE_CHECKING:
    from trunkline.net.addresses import ListenAddress


_HTTP_PORT = 8000  # As --http without a value.


def _parse_address(context: click.Context, option: click.Parameter, value: str | None) -> ListenAddress | None:
    from trunkline.net.addresses import parse_listen_address

    address = None if value is None else parse_listen_address(value)
    if value is not None and address is None:
        raise click.BadParameter(f"{value!r} is not [HOST:]PORT; put --http without a value last.", context, option)
    return address


def rate_limit_option(function: Callable[..., int]) -> Callable[..., int]:
    """Add ``--rate-limit RATE``."""
    text = "Requests that one caller may send over HTTP: 10/s, 100/m, or 10/s,burst=50; more are answered 429."
    return click.option("--rate-limit", metavar="RATE", help=text)(function)


def http_option(function: Callable[..., int]) -> Callable[..., int]:
    """Add ``--http [HOST:]PORT``, passed on as ``address``, and ``--port`` and ``--host``, which set the same."""

    @wraps(function)
    def with_address(
        *arguments: Any, address: ListenAddress | None, port: int | None, host: str | None, **given: Any
    ) -> int:
        if address is not None and (port is not None or host is not None):
            raise click.UsageError("--http cannot be combined with --port and --host; write --http HOST:PORT.")
        if port is not None or host is not None:
            address = _parse_host_and_port(host, port)
        return function(*arguments, address=address, **given)

    option = listen_option("Serve over HTTP. Default address: 127.0.0.1:8000.")
    port = click.option("--port", type=int, metavar="N", help="The same as --http N.")
    host = click.option("--host", metavar="HOST", help="The same as --http HOST:N; N is the value of --port, or 8000.")
    return option(port(host(with_address)))


def listen_option(help: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return only the option ``--http [HOST:]PORT``, passed to the command as ``address``."""
    return click.option(
        "--http",
        "address",
        metavar="[HOST:]PORT",
        is_flag=False,
        flag_value="",
        callback=_parse_address,
        help=help,
    )


_PAGE_OPTIONS = (
    click.option(
        "--model", metavar="P:M", help="Model, as PROVIDER:MODEL. Default: from configuration or environment."
    ),
    click.option(
        "--port", type=click.IntRange(0, 65535), default=0, metavar="P", help="Port of the page. Default: a free port."
    ),
    click.option("--no-open", is_flag=True, help="Only print the address of the page; do not open a browser."),
    click.option("-v", "--verbose", count=True, help="Print log messages."),
)


def page_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options of commands that show a page: ``--model``, ``--port``, ``--no-open`` and ``--verbose``."""
    for option in reversed(_PAGE_OPTIONS):
        function = option(function)
    return function


def _parse_host_and_port(host: str | None, port: int | None) -> ListenAddress:
    from trunkline.net.addresses import parse_listen_address

    number = _HTTP_PORT if port is None else port
    name = f"[{host}]" if host is not None and ":" in host and not host.startswith("[") else host
    address = parse_listen_address(str(number) if name is None else f"{name}:{number}")
    if address is None:
        wrong = f"--port {number}" if name is None else f"--host {host} --port {number}"
        raise click.UsageError(f"{wrong} is not an address to listen on.")
    return address

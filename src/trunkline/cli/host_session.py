"""Configured servers in a command: the configuration is loaded once, and a host runs behind a client's interface.

The files are those given, or those found in the current directory and the user's own. Values that they leave open
(``${input:id}``) are prompted for in the terminal, each once, and only for the servers that are needed. Nothing is
started.

Only the named server is started, and its tools, prompts and resources keep their own names. For all servers, names are
IDs, ``server/name``. Trust, policy, approval and audit belong to the host and cannot be bypassed by a command. A call
that the user typed counts as approved: the terminal asks only if a rule requires approval, or if a definition is
flagged or changed. Without a terminal such a call is denied.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import msgspec

import trunkline.types as t
from trunkline.cli.client_session import CommandClient, CommandContext
from trunkline.cli.exit_codes import Exit, exit_for
from trunkline.cli.targets import ConfiguredTarget
from trunkline.cli.ui.approvals import terminal_prompter
from trunkline.cli.ui.output import change_lines, current_secrets, one_line
from trunkline.cli.ui.terminal import EndOfInput, Terminal, echo_disabled, is_interactive
from trunkline.client.changes import Change
from trunkline.client.client import Client, completion_argument
from trunkline.client.options import ProgressCallback
from trunkline.client.tool_cache import CallResult
from trunkline.errors import AuthError, ConfigError, PolicyDenied, RequestTimeout, ServerUnavailable, TrunklineError
from trunkline.host.assembly import HostOptions
from trunkline.host.authorization.authorizer import is_usable
from trunkline.host.config.loading import answer_inputs, find_config_files, load_configuration
from trunkline.host.config.model import Configuration, InputVariable
from trunkline.host.gateway.sessions import GatewayOptions
from trunkline.host.host import Host
from trunkline.host.upstreams.catalog.items import CatalogItem, ItemKind
from trunkline.host.upstreams.catalog.names import inner_uri, item_id, outer_uri
from trunkline.host.upstreams.supervision.clients import start_timeout
from trunkline.host.upstreams.supervision.upstream import ServerStatus

__all__ = [
    "InputResolver",
    "NotOffered",
    "ResolvedInputs",
    "check_approved",
    "load_cli_configuration",
    "name_hint",
    "open_host_session",
    "prompt_for_input",
    "resolve_inputs",
    "status_error",
]

if TYPE_CHECKING:
    from trunkline.host.config.model import ServerEntry


#: Returns the value of an input; None if there is no answer.
InputResolver: TypeAlias = Callable[[InputVariable], str | None]


def load_cli_configuration(files: Sequence[str] = ()) -> Configuration:
    """Load the given files, or those that are found; managed settings of the administrator apply in both cases.

    A command calls this once and passes the result on, so that everything it does rests on one version of the files.

    Raises:
        ConfigError: a given file cannot be used.
    """
    found = find_config_files(Path.cwd())
    if files:
        loaded = load_configuration(given=files, managed=found.managed, environ=os.environ)
    else:
        loaded = load_configuration(project=found.project, user=found.user, managed=found.managed, environ=os.environ)
    _register_secrets(loaded)
    return loaded


def _register_secrets(loaded: Configuration) -> None:
    """Hide the secrets of a configuration in every later message and error of the command."""
    current_secrets().add(secret for entry in loaded.entries.values() for secret in entry.secrets)


def name_hint(name: str, entries: Collection[str]) -> str:
    """Return a hint with the name that was probably meant, or with all known names."""
    from trunkline.host.config.spelling import nearest

    near = nearest(name, entries)
    return f'did you mean "{near}"?' if near else f"known names: {', '.join(entries) or 'none'}"


def check_approved(entry: ServerEntry) -> None:
    """Reject a server of a project's file that the user has not approved.

    Raises:
        PolicyDenied: it is not approved; the message has the command that approves it.
    """
    if entry.source.scope != "project":
        return
    from trunkline.errors import PolicyDenied
    from trunkline.host.assembly import trust_file
    from trunkline.host.integrity.trust import TrustStore
    from trunkline.host.state_files import state_folder

    allowed, reason = asyncio.run(TrustStore(trust_file(state_folder())).check(entry))
    if not allowed:
        raise PolicyDenied(f"{entry.name}: {reason}")


# --- inputs ----------------------------------------------------------------------------------------------------------


class ResolvedInputs(NamedTuple):
    """A configuration whose open inputs were prompted for."""

    configuration: Configuration
    #: Returns the same answers when the files are reloaded; None if there was nothing to prompt for.
    answers: InputResolver | None = None

    def options(self) -> HostOptions:
        """Return the options of ``Host.open`` for this configuration."""
        return {"configuration": self.configuration, "inputs": self.answers}


def resolve_inputs(
    configuration: Configuration, names: Collection[str] | None = None, *, no_input: bool = False
) -> ResolvedInputs:
    """Prompt for the open inputs of the named servers (None: all).

    Without a terminal there is no prompt: defaults and environment variables are used then.
    """
    if no_input or not is_interactive():
        return ResolvedInputs(configuration)
    open_ones = set(_open_inputs(configuration, names))
    if not open_ones:
        return ResolvedInputs(configuration)
    answers: dict[tuple[str | None, str], str | None] = {}

    def ask(declared: InputVariable) -> str | None:
        key = (declared.file, declared.id)
        if declared.id not in open_ones:
            return declared.default
        if key not in answers:
            answers[key] = prompt_for_input(declared)
        return answers[key]

    answered = answer_inputs(configuration, ask)
    _register_secrets(answered)
    return ResolvedInputs(answered, lambda declared: answers.get((declared.file, declared.id), declared.default))


def _open_inputs(configuration: Configuration, names: Collection[str] | None) -> Iterator[str]:
    """Yield the IDs of the inputs that need an answer."""
    for name, entry in configuration.entries.items():
        if entry.disabled or (names is not None and name not in names):
            continue
        for value in configuration.provenance(name).values:
            for each in value.variables:
                if each.kind == "input" and each.state in ("unanswered", "default"):
                    yield each.name


def prompt_for_input(declared: InputVariable) -> str | None:
    """Prompt for a value that a file leaves open."""
    from trunkline.cli.ui.terminal import Screen

    about = f" ({one_line(declared.description)})" if declared.description else ""
    choices = f" [{', '.join(map(one_line, declared.options))}]" if declared.options else ""
    usual = f" [{one_line(declared.default)}]" if declared.default and not declared.password else ""
    try:
        with echo_disabled() if declared.password else nullcontext():
            said = asyncio.run(Terminal(Screen(verbose=False)).ask(f"{one_line(declared.id)}{about}{choices}{usual}: "))
    except EndOfInput:
        said = ""
    return said or declared.default


# The command stops waiting before the server task gives up, so that the failure is reported as a timeout.
_START_MARGIN_SECONDS = 2.0
_NAME_FIELDS: Mapping[ItemKind, str] = MappingProxyType(
    {"tool": "name", "prompt": "name", "resource": "uri", "template": "uri_template"}
)


_NO_ANSWER = "; it has not answered: is it an MCP server over stdio, or does it need a longer --timeout?"


class NotOffered(TrunklineError):
    """The server does not have the requested item; the message says what it has, or why the item is left out."""


def open_host_session(context: CommandContext) -> AbstractAsyncContextManager[CommandClient]:
    """Prompt for the open inputs of the target's servers, and return a context manager that runs them."""
    choices, target = context.choices, context.choices.target
    assert isinstance(target, ConfiguredTarget)
    wanted = [entry for name, entry in target.configuration.entries.items() if target.server in (None, name)]
    names = None if target.server is None else (target.server,)
    resolved = resolve_inputs(target.configuration, names, no_input=choices.no_input)
    seconds = choices.timeout or max(map(start_timeout, wanted), default=1.0)
    options: HostOptions = {
        "only": names,
        **choices.policy_options.options(),
        "typed": True,
        "consent": terminal_prompter(
            context.screen, no_input=choices.no_input, terminal_lock=context.questions.terminal_lock, one_call=True
        ),
        "sampling": context.questions.sample,
        "elicitation": context.questions.elicit,
        "elicitation_urls": True,
        "apps": choices.apps,
        "logging": context.show_log_message if choices.verbosity else None,
        "on_stderr": context.host_stderr_received,
        **resolved.options(),
        "secret_registry": current_secrets(),
        "wait": "all",
        "wait_seconds": seconds,
        "settings": _settings(choices.revision, choices.timeout, start=seconds + _START_MARGIN_SECONDS),
    }
    return _opened(context, target, options, seconds)


def _settings(revision: str, timeout: float | None, *, start: float) -> dict[str, Any]:
    # The command waits for every server equally.
    settings: dict[str, Any] = {"start_timeout": start, "required": False}
    if timeout is not None:
        settings |= {"timeout": timeout, "total_timeout": timeout}
    if revision != "auto":
        settings["era"] = revision
    return settings


@asynccontextmanager
async def _opened(
    context: CommandContext, target: ConfiguredTarget, options: HostOptions, seconds: float
) -> AsyncIterator[CommandClient]:
    from trunkline.cli.first_start import start_progress, waiting_line

    async with AsyncExitStack() as stack:
        host = Host.open(*target.files, **options)
        what = f"starting {target.server}" if target.server else lambda: start_progress(host)
        with context.screen.working(what, slow=lambda: waiting_line(host, seconds)):
            await stack.enter_async_context(host)
        statuses = host.status()
        if target.server is not None:
            problem = status_error(statuses[0], seconds)
            if problem is not None:
                raise problem
        else:
            _tell_of_missing(context, host, seconds)
        if context.choices.verbosity:
            for status in statuses:
                context.screen.line(f"{one_line(status.name)} is {status.state}, revision {status.era or 'not known'}")
        yield cast("CommandClient", HostClient(context, host, target.server))


def status_error(status: ServerStatus, seconds: float) -> TrunklineError | None:
    """Return the error for a server in this state; None if it can be used."""
    name = one_line(status.name)
    why = f"{name}: {status.last_error or status.reason or status.state}"
    match status.state:
        case "ready" | "partial" | "known":
            return None
        case "starting":
            told = f"; {status.reason}" if status.reason else _NO_ANSWER if status.command else ""
            return RequestTimeout(f"{name}: not ready after {seconds:g} s{told}", clock="connect", seconds=seconds)
        case "misconfigured":
            return ConfigError(status.reason or why)
        case "disabled":
            return ConfigError(f"{name} is disabled in {status.source}")
        case "unapproved":
            return PolicyDenied(
                f"{name}: {status.reason or f'it is not approved; run: trunkline trust approve {name}'}"
            )
        case "needs login":
            return AuthError(f"{name}: {status.reason or f'run: trunkline auth login {name}'}")
        case _:
            return ServerUnavailable(why)


def _tell_of_missing(context: CommandContext, host: Host, seconds: float) -> None:
    """Print which servers are missing from a list of all servers; disabled ones are not reported."""
    for problem in host.configuration.problems:
        context.screen.line(f"trunkline: {problem}")
        if problem.severity == "error":
            context.partial_failure = Exit.CONFIG
    for status in host.status():
        missing = None if status.state == "disabled" else status_error(status, seconds)
        if missing is not None:
            context.screen.line(f"trunkline: {missing}")
            context.partial_failure = context.partial_failure or exit_for(missing)


class HostClient:
    """The interface of ``Client`` over a host: one server under its own names, or all servers under IDs."""

    def __init__(self, context: CommandContext, host: Host, server: str | None) -> None:
        """Use the servers of this host; ``server`` None stands for all of them."""
        self._context = context
        self._host = host
        self._server = server

    # --- lists -------------------------------------------------------------------------------------------------------

    async def list_tools(self) -> list[Any]:
        """List the tools that the policy does not hide."""
        return self._list("tool")

    async def list_prompts(self) -> list[Any]:
        """List the prompts."""
        return self._list("prompt")

    async def list_resources(self) -> list[Any]:
        """List the resources."""
        return self._list("resource")

    async def list_resource_templates(self) -> list[Any]:
        """List the resource templates."""
        return self._list("template")

    async def list_skills(self) -> list[Any]:
        """List the skills; of all servers together, each under its label."""
        skills = [each for each in await self._host.list_skills() if self._server in (None, each.server)]
        if self._server is not None:
            return [each.entry for each in skills]
        return [
            msgspec.structs.replace(
                each.entry,
                uri=item_id(each.server, each.uri),
                frontmatter={**each.entry.frontmatter, "name": each.label},
            )
            for each in skills
        ]

    def _list(self, kind: ItemKind) -> list[Any]:
        catalog = self._host.catalog
        self._tell_of_failed(kind)
        items = [item for item in catalog.of(kind).values() if self._server in (None, item.server)]
        seen = [item for item in items if self._sees(item)]
        if len(seen) < len(items):
            count = len(items) - len(seen)
            self._note(f"hidden, because the policy denies it: {count} {kind}{'s' if count > 1 else ''}")
        for drop in catalog.dropped:
            if drop.kind == kind and self._server in (None, drop.server):
                self._note(f"{drop.server}/{drop.name} is left out: {drop.reason}")
        # Changed definitions that are hidden were reported above, as left out.
        shown = {(item.server, item.name) for item in seen if item.changed}
        for line in change_lines(
            each for each in self._host.inspected() if each.kind == kind and (each.server, each.name) in shown
        ):
            self._note(line)
        return [self._shown(item) for item in seen]

    def _tell_of_failed(self, kind: ItemKind) -> None:
        """Print which servers failed to list this kind, and set the exit code for that."""
        method = "resources/templates/list" if kind == "template" else f"{kind}s/list"
        for status in self._host.status():
            if self._server in (None, status.name) and method in status.failures:
                self._note(f"{status.name}: {method} failed: {status.failures[method]}")
                self._context.partial_failure = self._context.partial_failure or Exit.FAILED

    def _sees(self, item: CatalogItem) -> bool:
        return is_usable(item, self._host.policy)

    def _shown(self, item: CatalogItem) -> Any:
        if self._server is not None:
            return item.definition
        return msgspec.structs.replace(item.definition, **{_NAME_FIELDS[item.kind]: item.id})

    def _note(self, text: str) -> None:
        self._context.notes.append(one_line(text))

    # --- using them --------------------------------------------------------------------------------------------------

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: ProgressCallback | None = None,
        timeout: float | None = None,
        total_timeout: float | None = None,
        raise_on_error: bool = True,
    ) -> CallResult:
        """Call a tool; the timeouts are already in the settings of the server."""
        id = self._id("tool", name)
        with self._explain_unavailable():
            return await self._host.call_tool(id, arguments, on_progress=on_progress, raise_on_error=raise_on_error)

    async def read_resource(self, uri: str) -> list[t.ResourceContents]:
        """Read a resource."""
        id = item_id(self._named(uri), uri)
        if self._host.catalog.find_resource(id) is None:
            raise NotOffered(self._why_not("resource", uri))
        with self._explain_unavailable():
            return await self._host.read_resource(id)

    async def get_prompt(self, name: str, arguments: Mapping[str, Any] | None = None) -> t.GetPromptResult:
        """Render a prompt."""
        id = self._id("prompt", name)
        with self._explain_unavailable():
            return await self._host.get_prompt(id, arguments)

    async def complete(
        self,
        ref: t.CompletionReference,
        argument: t.CompletionArgument | Mapping[str, str],
        *,
        context: Mapping[str, str] | None = None,
    ) -> t.Completion:
        """Complete an argument."""
        asked = completion_argument(argument)
        id = self._id("prompt", ref.name) if isinstance(ref, t.PromptReference) else self._id("template", ref.uri)
        with self._explain_unavailable():
            return await self._host.complete(id, asked.name, asked.value, context=context)

    @asynccontextmanager
    async def listen(self, *, uris: Iterable[str] = (), **wanted: bool | None) -> AsyncIterator[AsyncIterator[Change]]:
        """Subscribe to changes, as the gateway reports them to its clients."""
        server = self._named("changes")
        gateway = self._host.gateway(GatewayOptions(servers=frozenset({server})))
        outer = [outer_uri(server, uri) for uri in uris]
        try:
            async with Client(gateway) as client, client.listen(uris=outer, **wanted) as changes:
                yield _inner(changes, server)
        finally:
            await gateway.aclose()

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _named(self, what: str) -> str:
        if self._server is None:
            raise NotOffered(f"{what}: name the server too")
        return self._server

    def _id(self, kind: ItemKind, name: str) -> str:
        """Return the ID of an item of the server.

        Raises:
            NotOffered: there is no usable item of that name.
        """
        id = item_id(self._named(name), name)
        if id not in self._host.catalog.of(kind):
            raise NotOffered(self._why_not(kind, name))
        return id

    def _why_not(self, kind: ItemKind, name: str) -> str:
        server, catalog = self._server, self._host.catalog
        for words, drops in (("hidden by a filter", catalog.hidden), ("left out", catalog.dropped)):
            for drop in drops:
                if (drop.server, drop.kind, drop.name) == (server, kind, name):
                    return f"{server} has no {kind} {name!r} here: {words}: {drop.reason}"
        names = [item.name for item in catalog.of(kind).values() if item.server == server]
        return f"{server} has no {kind} {name!r}; {name_hint(name, names)}"

    def _explain_unavailable(self) -> _ExplainUnavailable:
        return _ExplainUnavailable(self._host, self._server)


class _ExplainUnavailable:
    """Replaces ``ServerUnavailable`` by the error for the state of the server, which says what to do about it."""

    def __init__(self, host: Host, server: str | None) -> None:
        self._host = host
        self._server = server

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ServerUnavailable):
            for status in self._host.status():
                problem = status_error(status, 0.0) if status.name == self._server else None
                if problem is not None and not isinstance(problem, RequestTimeout):
                    raise problem from error


async def _inner(changes: AsyncIterator[Change], server: str) -> AsyncIterator[Change]:
    """Translate the URIs in changes back to those of the server."""
    async for change in changes:
        pair = None if change.uri is None else inner_uri(change.uri, (server,))
        yield change if pair is None else Change(change.kind, pair[1])

"""Runs a client command: connects to the server, runs the command, shows logs and questions, returns an exit code.

All client commands go through ``run_client_command``. It owns the event loop and the client; a command receives a
``CommandContext`` and returns its exit code. A configured server is not called by a client of its own but through the
host (``host_session``), which has the same interface. Every failure is raised as one message.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
import os
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import trunkline.types as t
from trunkline.cli.exit_codes import CommandError, Exit, exit_for
from trunkline.cli.options import Choices, with_json_errors
from trunkline.cli.targets import CommandTarget, ConfiguredTarget, UrlTarget
from trunkline.cli.ui.output import error_document, one_line, owns_process, print_json, wire_json
from trunkline.cli.ui.server_requests import SAMPLING_REJECTED, TerminalRequestHandler
from trunkline.cli.ui.terminal import Screen
from trunkline.client.client import Client
from trunkline.errors import (
    ConnectionLost,
    HttpError,
    InternalError,
    RequestFailed,
    ServerExited,
    TrunklineError,
    UrlElicitationRequired,
)
from trunkline.protocol.limits import Limits
from trunkline.transports.python_files import split_spec

if TYPE_CHECKING:
    from trunkline.auth.oauth import OAuth
    from trunkline.client.changes import Change
    from trunkline.client.options import ProgressCallback
    from trunkline.client.tool_cache import CallResult
    from trunkline.host.config.model import ServerEntry
    from trunkline.transports.link import Link

__all__ = [
    "CommandClient",
    "CommandContext",
    "ScreenLogHandler",
    "command_error",
    "error_document",
    "run_client_command",
]

# Bounds the memory for a server that never ends its line.
_LONGEST_LINE = 64 * 1024
_KEPT_STDERR = 64 * 1024  # The last traceback, also a long one.
_STDERR_SECONDS = 0.05  # The traceback was written already, and only has to be read.
# In the result of a tool of ours whose exception is not shown to its caller.
_MASKED = "failed unexpectedly"
# The codes of errors about a name: invalid params, and a resource that was not found.
_UNKNOWN_ITEM = frozenset({-32602, -32002})
# The advice in login errors, which do not know the server.
_LOGIN = "trunkline auth login"


T = TypeVar("T")


class CommandClient(Protocol):
    """The operations of a server that commands use, however it is reached."""

    async def list_tools(self) -> list[t.Tool]:
        """List the tools."""

    async def list_prompts(self) -> list[t.Prompt]:
        """List the prompts."""

    async def list_resources(self) -> list[t.Resource]:
        """List the resources."""

    async def list_resource_templates(self) -> list[t.ResourceTemplate]:
        """List the resource templates."""

    async def list_skills(self) -> list[t.Skill]:
        """List the skills."""

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
        """Call a tool."""

    async def read_resource(self, uri: str) -> list[t.ResourceContents]:
        """Read a resource."""

    async def get_prompt(self, name: str, arguments: Mapping[str, Any] | None = None) -> t.GetPromptResult:
        """Render a prompt."""

    async def complete(
        self,
        ref: t.CompletionReference,
        argument: t.CompletionArgument | Mapping[str, str],
        *,
        context: Mapping[str, str] | None = None,
    ) -> t.Completion:
        """Complete an argument."""

    def listen(
        self,
        *,
        tools: bool | None = None,
        prompts: bool | None = None,
        resources: bool | None = None,
        uris: Iterable[str] = (),
    ) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
        """Subscribe to changes."""


class _LineSplitter:
    """Splits bytes into lines of text, and passes each to a callback; a very long line is passed in pieces."""

    def __init__(self, line_received: Callable[[str], None]) -> None:
        self._line_received = line_received
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    def feed(self, data: bytes) -> None:
        """Decode more bytes and pass on the lines that they complete."""
        *lines, self._rest = (self._rest + self._decode(data)).split("\n")
        if len(self._rest) > _LONGEST_LINE:
            lines.append(self._rest)
            self._rest = ""
        for line in lines:
            self._line_received(line.rstrip("\r"))


class CommandContext:
    """What a command works with while it runs."""

    #: The client, while it is connected.
    client: CommandClient

    def __init__(self, choices: Choices) -> None:
        """Create the screen and the handler for server requests; nothing is connected yet."""
        self.choices = choices
        self.screen = Screen(verbose=choices.verbosity > 0)
        self.questions = TerminalRequestHandler(self.screen, no_input=choices.no_input)
        #: The exit code if some of several servers could not be used, so that the answer is incomplete.
        self.partial_failure = Exit.OK
        #: What a list omits, and why.
        self.notes: list[str] = []
        #: The name that was probably meant instead of one that the server does not have.
        self.hint = ""
        self._stderr = bytearray()
        self._stderr_lines: dict[str | None, _LineSplitter] = {}

    def exit_code(self, *, failed: bool = False) -> Exit:
        """Return the exit code of a command that has its answer; a declined server request comes first."""
        if self.questions.denied:
            return Exit.DENIED
        return Exit.FAILED if failed else self.partial_failure

    def show_log_message(self, message: t.LoggingMessageNotificationParams) -> None:
        """Show a log message of the server."""
        said = message.data if isinstance(message.data, str) else wire_json(message.data).decode()
        origin = f"{one_line(message.logger)}: " if message.logger else ""
        # Every line is marked: otherwise the server could imitate output of ours.
        for line in said.splitlines():
            self.screen.line(f"[{message.level}] {origin}{line}")

    def stderr_received(self, data: bytes, server: str | None = None) -> None:
        """Store the end of a server's stderr; if verbose, show it, with the server's name if there are several."""
        self._stderr += data
        del self._stderr[:-_KEPT_STDERR]
        if self.choices.verbosity:
            if server not in self._stderr_lines:
                self._stderr_lines[server] = _LineSplitter(lambda line: self.show_stderr_line(line, server))
            self._stderr_lines[server].feed(data)

    def host_stderr_received(self, server: str, data: bytes) -> None:
        """Store, and if verbose show, the stderr of a server that the host runs."""
        target = self.choices.target
        self.stderr_received(data, None if isinstance(target, ConfiguredTarget) and target.server else server)

    async def suggesting(self, name: str, known: Callable[[], Awaitable[Sequence[Any]]], request: Awaitable[T]) -> T:
        """Await a request about an item; if the server does not have the item, the error suggests another one."""
        try:
            return await request
        except RequestFailed as error:
            if error.code in _UNKNOWN_ITEM:
                await self._suggest(name, known)
            raise

    async def _suggest(self, name: str, known: Callable[[], Awaitable[Sequence[Any]]]) -> bool:
        """Set the hint for a name; return whether the server lacks it."""
        from trunkline.cli.suggestions import suggestion

        try:
            names = [_key(each) for each in await known()]
        except TrunklineError:
            return False
        self.hint = "" if name in names else suggestion(name, names)
        return name not in names

    async def explain_failure(self, tool: str, said: str) -> list[str]:
        """Return lines about a failed tool: a name that was probably meant, or where it raised and how to see more."""
        target = self.choices.target
        # A host knows the tools, and has suggested another one before it called.
        if not isinstance(target, ConfiguredTarget) and await self._suggest(tool, self.client.list_tools):
            return [self.hint.removeprefix("; ")] if self.hint else []
        if _is_remote(target):
            return ["the traceback is in the log of the server"] if _MASKED in said else []
        return await self.locate_exception()

    async def locate_exception(self) -> list[str]:
        """Return lines about the exception that the server wrote to stderr last, unless that was shown already."""
        target = self.choices.target
        if self.choices.verbosity or _is_remote(target):
            return []
        # The server writes the traceback before the result, to another pipe.
        await asyncio.sleep(_STDERR_SECONDS)
        from trunkline.cli.ui.tracebacks import mismatched_result, raised_line

        text = self._stderr.decode("utf-8", "replace")
        if "Traceback (most recent call last):" not in text:
            return mismatched_result(text)
        path = _server_file(target)
        where = None if path is None else raised_line(text, path)
        return [*([] if where is None else [where]), "to see the traceback, run the command again with -v"]

    def waiting_line(self) -> str:
        """Return that the program of a command has not answered yet, with the last line of its stderr."""
        target = self.choices.target
        assert isinstance(target, CommandTarget)
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()
        last = f"; last line of its stderr: {one_line(lines[-1])}" if lines else ""
        seconds = _limits(self.choices.timeout).connect_seconds
        return (
            f"trunkline: no answer yet from {one_line(_target_name(target))}; waiting up to {seconds:g} s (--timeout). "
            f"Is it an MCP server over stdio? For one over HTTP, give its URL{last}"
        )

    def show_stderr_line(self, line: str, server: str | None = None) -> None:
        """Show a line of the server's stderr."""
        self.screen.line(f"[stderr] {'' if server is None else f'{one_line(server)}: '}{line}")


def _key(item: Any) -> str:
    """Return the name or URI by which an item is requested."""
    return getattr(item, "uri", None) or getattr(item, "uri_template", None) or str(item.name)


def _entry_of(target: ConfiguredTarget) -> ServerEntry | None:
    return None if target.server is None else target.configuration.entries.get(target.server)


def _is_remote(target: CommandTarget | UrlTarget | ConfiguredTarget) -> bool:
    """Return whether a server has no process here whose stderr could be shown."""
    if isinstance(target, ConfiguredTarget):
        entry = _entry_of(target)
        return entry is not None and entry.command is None
    return isinstance(target, UrlTarget)


def _server_file(target: CommandTarget | UrlTarget | ConfiguredTarget) -> str | None:
    """Return the Python file of a server, if its command names one."""
    if isinstance(target, CommandTarget):
        return None if target.spec is None else split_spec(target.spec)[0]
    entry = _entry_of(target) if isinstance(target, ConfiguredTarget) else None
    named = () if entry is None else (split_spec(word)[0] for word in entry.command or ())
    folder = os.curdir if entry is None else entry.cwd or os.curdir
    return next((os.path.join(folder, path) for path in named if path.endswith(".py")), None)


def _limits(timeout: float | None) -> Limits:
    return Limits() if timeout is None else Limits(connect_seconds=timeout, idle_seconds=timeout)


def run_client_command(choices: Choices, work: Callable[[CommandContext], Awaitable[Exit]]) -> Exit:
    """Connect to the server, run the command, disconnect, and return the exit code.

    Raises:
        CommandError: the command failed; with ``--json``, the error was printed to stdout.
    """
    context = CommandContext(choices)
    if isinstance(choices.target, ConfiguredTarget):
        from trunkline.cli.host_session import open_host_session

        opened = with_json_errors(lambda: open_host_session(context), choices.as_json)
    else:
        opened = _connected(context, _forked_link(context))
    return asyncio.run(_run_client_command(context, opened, work))


async def _run_client_command(
    context: CommandContext,
    opened: AbstractAsyncContextManager[CommandClient],
    work: Callable[[CommandContext], Awaitable[Exit]],
) -> Exit:
    choices = context.choices
    log, shown = logging.getLogger("trunkline"), ScreenLogHandler(context.screen, choices.verbosity)
    log.addHandler(shown)
    try:
        async with opened as context.client:
            return await work(context)
    except TrunklineError as error:
        if choices.as_json:
            print_json(error_document(error))
        elif isinstance(error, InternalError):
            context.hint += "".join(f"\n  {line}" for line in await context.locate_exception())
        raise command_error(context, error) from error
    finally:
        context.screen.clear()
        log.removeHandler(shown)


def _forked_link(context: CommandContext) -> Link | None:
    """Start the server of a Python file as a fork of this process; return None if it must be started by a command.

    A fork saves half of the time to the first answer: the interpreter and most modules are loaded already.
    """
    choices, target = context.choices, context.choices.target
    if not isinstance(target, CommandTarget) or target.spec is None or not owns_process():
        return None
    if choices.cwd is not None or choices.env != target.env:
        # --env needs a new interpreter, which reads some variables (such as PYTHONPATH) only when it starts.
        return None
    from trunkline.transports.forked_process import can_fork, fork_process
    from trunkline.transports.process import ProcessLink, server_environment

    if not can_fork():
        return None
    limits, spec = _limits(choices.timeout), target.spec
    launched = fork_process(
        lambda: _run_forked(spec), env=server_environment(choices.env), exit_seconds=limits.exit_seconds
    )
    return ProcessLink(spec, launched, limits=limits, on_stderr=context.stderr_received)


def _run_forked(spec: str) -> int:
    """Run ``trunkline run`` in a fork, as ``python -P -m trunkline`` would."""
    import sys

    from trunkline.cli.main import main

    if not sys.flags.safe_path:
        del sys.path[0]
    try:
        return main(["run", "--", spec])
    except SystemExit as exit:
        if exit.code is not None and not isinstance(exit.code, int):
            # As the interpreter shows sys.exit("message").
            sys.stderr.write(f"{exit.code}\n")
        raise


@asynccontextmanager
async def _connected(context: CommandContext, link: Link | None) -> AsyncIterator[CommandClient]:
    """Connect a client, over a link if the server was started already; a stored login is used if there is no token."""
    choices, target = context.choices, context.choices.target
    assert not isinstance(target, ConfiguredTarget)
    login = await _login(choices)
    client = Client(
        link or (target.url if isinstance(target, UrlTarget) else target.command),
        revision=choices.revision,
        elicitation=context.questions.elicit,
        elicitation_urls=True,
        sampling=context.questions.sample,
        logging=context.show_log_message if choices.verbosity else None,
        log_level=(None, "info", "debug")[min(choices.verbosity, 2)],
        env=None if link is not None else choices.env,
        cwd=choices.cwd,
        headers=choices.headers,
        auth=choices.token if login is None else login,
        ca_file=choices.ca_file,
        apps=choices.apps,
        timeout=choices.timeout,
        limits=_limits(choices.timeout),
        on_stderr=None if link is not None or isinstance(target, UrlTarget) else context.stderr_received,
    )
    async with AsyncExitStack() as stack:
        slow = context.waiting_line if isinstance(target, CommandTarget) else None
        with context.screen.working(f"connecting to {_target_name(target)}", slow=slow):
            await stack.enter_async_context(client)
        if choices.verbosity:
            context.screen.line(_describe_server(client))
        yield client


def _target_name(target: CommandTarget | UrlTarget) -> str:
    if isinstance(target, UrlTarget):
        return target.url
    return shlex.join(target.command) if target.spec is None else os.path.basename(target.spec)


async def _login(choices: Choices) -> OAuth | None:
    """Return the stored login for a URL, unless the command has credentials of its own."""
    if not isinstance(choices.target, UrlTarget) or _has_credentials(choices):
        return None
    from trunkline.cli.logins import stored_login

    return await stored_login(choices.target.url)


def _has_credentials(choices: Choices) -> bool:
    return choices.token is not None or any(name.lower() == "authorization" for name in choices.headers)


def _describe_server(client: Client) -> str:
    info = client.server_info
    name = "a server without a name" if info is None else one_line(f"{info.title or info.name} {info.version}")
    return f"connected to {name}, revision {client.revision}"


def command_error(context: CommandContext, error: TrunklineError) -> CommandError:
    """Return the message and exit code for an error."""
    exit = exit_for(error)
    if exit is Exit.FAILED and context.questions.denied:
        exit = Exit.DENIED
    # In stateless revisions a declined sampling request has no response: the call ends here, with our own error.
    declined = isinstance(error, RequestFailed) and error.code == SAMPLING_REJECTED
    return CommandError(
        "the call failed because a request of the server was declined"
        if declined
        else _sentence(context.choices, error) + context.hint,
        exit,
    )


def _sentence(choices: Choices, error: TrunklineError) -> str:
    if isinstance(error, UrlElicitationRequired):
        pages = error.data.get("elicitations") if isinstance(error.data, dict) else None
        urls = [str(page.get("url")) for page in pages or () if isinstance(page, dict)]
        return "\n".join([f"the server needs you to open a page first: {error}", *(f"  {url}" for url in urls)])
    if exit_for(error) is Exit.AUTH:
        return _unauthorized_sentence(choices, error)
    if isinstance(error, RequestFailed):
        return f"the server returned an error: {error}"
    if isinstance(error, ServerExited) and error.status == 0 and not error.stderr.strip():
        return f"{error}; the program has to run its server, with server.run() for example"
    if isinstance(error, ConnectionLost) and isinstance(choices.target, UrlTarget) and "refused" in str(error):
        return f"{error}; nothing listens there: start the server, or check the port of the URL"
    return str(error) or type(error).__name__


def _unauthorized_sentence(choices: Choices, error: TrunklineError) -> str:
    said = error.message if isinstance(error, RequestFailed) else str(error)
    if isinstance(choices.target, ConfiguredTarget):
        if not isinstance(error, HttpError | RequestFailed):
            # The message is the state of the server, which says what to do.
            return said
        login = f"{_LOGIN} {shlex.quote(choices.target.server or 'NAME')}"
        return f"access denied by the server: {said} (to log in, run: {login})"
    hint, status = "pass credentials with --token or --header", getattr(error, "status", None)
    if _has_credentials(choices) and status == 401:
        name, option = ("Authorization header", "--header") if choices.token is None else ("token", "--token")
        return f"the server rejected the {name}: {said} (check it, or pass another one with {option})"
    # There is no login for a proxy (407).
    if isinstance(choices.target, UrlTarget) and not _has_credentials(choices) and status != 407:
        login = f"trunkline auth login {shlex.quote(choices.target.url)}"
        challenge = getattr(error, "challenge", None)
        if challenge is not None and "resource_metadata" not in challenge:
            # A server with a login names where to find it; older ones might have one all the same.
            hint = "it names no login: pass its token with --token TOKEN or --token @FILE"
            return f"access denied by the server: {said} ({hint}; if it has a login, run: {login})"
        if _LOGIN in said and not isinstance(error, HttpError | RequestFailed):
            return f"{said.replace(_LOGIN, login)} Or pass credentials with --token or --header."
        hint = f"to log in, run: {login}; or pass credentials with --token or --header"
    return f"access denied by the server: {said} ({hint})"


class ScreenLogHandler(logging.Handler):
    """Writes log records of the package to the screen: warnings, and with ``-v`` more."""

    def __init__(self, screen: Screen, verbosity: int) -> None:
        """Show warnings or, if verbose, informational records too."""
        super().__init__(logging.INFO if verbosity else logging.WARNING)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record to the screen."""
        label: str | None = getattr(record, "trunkline_process", None)
        where = "" if label is None else f"{label} (process {record.process}): "
        self._screen.line(f"trunkline: {where}{self.format(record)}")

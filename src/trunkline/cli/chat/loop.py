"""The chat loop of the terminal and its slash commands: reads lines and carries them out until the user leaves.

Ctrl-C stops the current turn, not the program; pressed twice at an empty prompt it ends the chat. A failure is
printed as one line, and the chat goes on.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TypeAlias

from trunkline.cli.chat.completion import (
    ChatCommand,
    ChatCompleter,
    PromptInvocation,
    find_mentions,
    parse_line,
    parse_mention,
)
from trunkline.cli.chat.display import MOST_LINES, ChatDisplay, cost_text, usage_text
from trunkline.cli.chat.input import Interrupted, open_input
from trunkline.cli.chat.session import ChatSession, ChatSessionOptions
from trunkline.cli.chat.setup import (
    NO_MODEL,
    ChatRuntime,
    ChatSettings,
    load_chat_configuration,
    open_chat,
    server_line,
)
from trunkline.cli.chat.tool_picker import TOOL_PICKER_HINT, InvalidChatInput, find_tools, tool_table
from trunkline.cli.exit_codes import CommandError, Exit
from trunkline.cli.host_session import ResolvedInputs, name_hint
from trunkline.cli.ui.output import one_line, quote_lines, table
from trunkline.cli.ui.terminal import EndOfInput, signal_handlers
from trunkline.errors import TrunklineError
from trunkline.host.chat.events import ContextUsage
from trunkline.host.events import DefinitionInspected, EventsMissed, ServerStateChanged
from trunkline.host.upstreams.supervision.upstream import ServerStatus

__all__ = ["COMMANDS", "run_chat", "run_command"]

#: The commands with their descriptions.
COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "help": "show this help",
        "tools": "list the tools; with words, search them",
        "servers": "show the status of the servers",
        "attach": "@server:uri, attach a resource to the next message",
        "usage": "show tokens and cost of the conversation",
        "account": "show what fills the model's context window",
        "model": "show the model; with provider:model, switch to another",
        "clear": "clear the conversation",
        "save": "FILE, save the conversation",
        "exit": "end the chat, like Ctrl-D",
    }
)
_CommandHandler: TypeAlias = Callable[[ChatSession, str], Awaitable[None]]


async def run_command(chat: ChatSession, command: ChatCommand) -> bool:
    """Run a command; return False if the chat ends.

    Raises:
        InvalidChatInput: there is no such command, or its arguments are invalid.
        TrunklineError: the command failed.
        CommandError: the command failed.
    """
    name = {"?": "help", "quit": "exit"}.get(command.name, command.name)
    if name == "exit":
        return False
    run = _HANDLERS.get(name)
    if run is None:
        hint = name_hint(name, COMMANDS)
        raise InvalidChatInput(
            f"unknown command /{one_line(name)}; {hint} (to send a message that begins with /, type //)"
        )
    await run(chat, command.rest)
    return True


# --- showing ---------------------------------------------------------------------------------------------------------


async def _help(chat: ChatSession, rest: str) -> None:
    lines = [f"  /{name:<9} {about}" for name, about in COMMANDS.items()]
    lines.append("  /server:prompt   use a prompt of a server, with arguments as name=value")
    if chat.conversation is None:
        lines += [
            "  words            search tools; a number or a name calls one, with arguments as name=value",
            "  @server:uri      show a resource",
        ]
    else:
        lines += [
            "  @server:uri      in a message: attach a resource",
            "  Ctrl-C           stop the model; at an empty line, press twice to end the chat",
        ]
    lines += [
        "  Tab              complete commands, prompts, servers, resources and their variables",
        '  Esc Enter, """   a message of several lines',
    ]
    chat.show.show_text("\n".join(lines))


async def _tools(chat: ChatSession, words: str) -> None:
    if chat.conversation is None:
        chat.tool_picker.list(words)
        return
    found = find_tools(chat.runtime, words)
    if found:
        chat.show.show_text(tool_table(found, numbered=False))
    else:
        chat.show.line("note", f"no tools match {words!r}" if words else "no tools")
    for name, why in chat.conversation.skipped.items():
        chat.show.line("note", f"{name} is not offered to the model: {why}")


async def _servers(chat: ChatSession, rest: str) -> None:
    statuses = chat.runtime.host.status()
    if not statuses:
        chat.show.line("note", "no servers configured; give a file with -c, or create an mcp.json here")
        return
    headings = ("NAME", "STATE", "ERA", "TOOLS", "PROMPTS", "RESOURCES", "WHY")
    chat.show.show_text(table(headings, [_server_row(status) for status in statuses]))


def _server_row(status: ServerStatus) -> tuple[str, ...]:
    counts = (status.tools, status.prompts, status.resources) if status.era else ("-", "-", "-")
    why = status.reason or status.last_error or ""
    return status.name, status.state, status.era or "-", *map(str, counts), why


async def _usage(chat: ChatSession, rest: str) -> None:
    if chat.conversation is None:
        chat.show.line("note", NO_MODEL)
        return
    said = chat.conversation
    chat.show.show_text(f"{one_line(said.model.name)}: {usage_text(said.usage)}{cost_text(said.cost)}")


async def _account(chat: ChatSession, rest: str) -> None:
    if chat.conversation is None:
        chat.show.line("note", NO_MODEL)
        return
    chat.show.show_text(_account_table(chat.conversation.context_usage()))


def _account_table(account: ContextUsage) -> str:
    rows = [
        ("messages", "", "", "", "", f"{account.message_tokens:,}"),
        ("host", *[""] * 4, f"{account.system_tokens:,}"),
    ]
    for share in account.servers:
        numbers = (share.tools, share.tool_tokens, share.instruction_tokens, share.result_tokens, share.tokens)
        rows.append((share.server, *(f"{number:,}" for number in numbers)))
    laid = table(("FROM", "TOOLS", "DEFINITIONS", "INSTRUCTIONS", "RESULTS", "TOKENS"), rows)
    return f"{laid}\n{account.tokens:,} of {account.window_tokens:,} tokens, {account.share:.0%} of the model's window"


# --- acting ----------------------------------------------------------------------------------------------------------


async def _attach(chat: ChatSession, rest: str) -> None:
    mention = parse_mention(rest.removeprefix("@"), chat.runtime.host.catalog)
    if mention is None or not mention.uri:
        servers = ", ".join(map(one_line, chat.runtime.host.catalog.servers)) or "none"
        raise InvalidChatInput(f"expected a resource as @server:uri; servers: {servers}")
    await chat.attach(mention)


async def _model(chat: ChatSession, rest: str) -> None:
    if rest:
        await chat.switch(rest)
    elif chat.conversation is None:
        chat.show.line("note", NO_MODEL)
    else:
        chat.show.show_text(one_line(chat.conversation.model.name))


async def _clear(chat: ChatSession, rest: str) -> None:
    chat.clear()
    chat.show.line("note", "cleared; tokens and cost so far still count")


async def _save(chat: ChatSession, rest: str) -> None:
    if not rest:
        raise InvalidChatInput("missing the file: /save FILE")
    path = _at_home(rest)
    await chat.save(path)
    chat.show.line("note", f"saved; to resume, run: trunkline chat --resume {path}")


def _at_home(path: str) -> str:
    return os.path.expanduser(path)


_HANDLERS: Mapping[str, _CommandHandler] = MappingProxyType(
    {
        "help": _help,
        "tools": _tools,
        "servers": _servers,
        "attach": _attach,
        "usage": _usage,
        "account": _account,
        "model": _model,
        "clear": _clear,
        "save": _save,
    }
)


_ENDING = "press Ctrl-C again, or Ctrl-D, to end the chat"
_USUAL = ("ready", "partial", "known")
#: Findings about definitions that are reported at once.
_REPORTED = ("changed", "flagged", "hidden", "unlocked", "closed")


def run_chat(settings: ChatSettings, session_options: ChatSessionOptions) -> Exit:
    """Run a chat until the user ends it.

    Raises:
        TrunklineError: the chat cannot start.
        CommandError: the chat cannot start.
    """
    return asyncio.run(_run_chat(settings, session_options, load_chat_configuration(settings)))


async def _run_chat(settings: ChatSettings, session_options: ChatSessionOptions, resolved: ResolvedInputs) -> Exit:
    async with open_chat(settings, resolved) as runtime:
        show = ChatDisplay(runtime.screen)
        proposals = ChatCompleter(runtime.host, runtime.session, commands=COMMANDS)
        lines, less = open_input(runtime.screen, completer=proposals.line, history=session_options.history)
        chat = ChatSession(runtime, session_options, show=show, lines=lines, proposals=proposals)
        try:
            loop = _Loop(chat)
            with signal_handlers({signal.SIGINT: loop.interrupt}), _host_events_shown(runtime, show):
                _greet(chat, less)
                return await loop.run()
        finally:
            await chat.aclose()
            if chat.file is not None:
                show.line("note", f"saved; to resume, run: trunkline chat --resume {chat.file}")


class _Loop:
    """Reads and handles lines one after another."""

    def __init__(self, chat: ChatSession) -> None:
        self._chat = chat
        self._doing: asyncio.Task[bool] | None = None
        self._interrupts = 0

    async def run(self) -> Exit:
        """Read and handle lines until the chat ends."""
        chat, ending = self._chat, False
        while True:
            try:
                text = await chat.lines.message("tool>" if chat.conversation is None else "you>")
            except EndOfInput:
                return Exit.OK
            except Interrupted:
                if not chat.lines.asks:
                    raise CommandError("interrupted", Exit.INTERRUPTED) from None
                if ending:
                    return Exit.OK
                ending = True
                chat.show.line("note", _ENDING)
                continue
            ending = False
            if text.strip() and not await self._do(text):
                return Exit.OK

    async def _do(self, text: str) -> bool:
        """Handle a line; return False if the chat ends."""
        self._interrupts = 0
        self._doing = asyncio.ensure_future(self._meant(text))
        try:
            return await self._doing
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._chat.show.line("stopped", "cancelled")
        except (Interrupted, EndOfInput):
            self._chat.show.line("stopped", "nothing was done")
        except (TrunklineError, CommandError, InvalidChatInput) as error:
            self._chat.show.line("failed", str(error) or type(error).__name__)
        finally:
            self._doing = None
            self._chat.runtime.screen.clear()
        return True

    async def _meant(self, text: str) -> bool:
        chat, catalog = self._chat, self._chat.runtime.host.catalog
        match parse_line(text, catalog):
            case ChatCommand() as command:
                return await run_command(chat, command)
            case PromptInvocation(None, typed):
                heads = [f"{item.server}:{item.name}" for item in catalog.prompts.values()]
                word = typed.split()[0][1:]
                raise InvalidChatInput(f"there is no prompt {word!r}; {name_hint(word, heads)}")
            case PromptInvocation(item, typed) if item is not None:
                await chat.pick(item, typed)
            case str() as message:
                await self._message(message)
        return True

    async def _message(self, text: str) -> None:
        chat = self._chat
        mentions = find_mentions(text, chat.runtime.host.catalog)
        if chat.conversation is not None:
            await chat.say(text, mentions)
        elif mentions:
            for mention in mentions:
                await chat.attach(mention)
        else:
            await chat.tool_picker.line(text)

    def interrupt(self) -> None:
        """Called on Ctrl-C: stop the turn; if that does not help, cancel it, then abandon it."""
        self._interrupts += 1
        if self._doing is None:
            self._chat.lines.interrupt()
        elif self._interrupts > 2:
            raise KeyboardInterrupt
        elif self._chat.turning and self._interrupts == 1:
            self._chat.cancel()
        else:
            self._doing.cancel()


# --- output ----------------------------------------------------------------------------------------------------------


def _greet(chat: ChatSession, less: str | None) -> None:
    """Print servers, model and hints at the start."""
    show, runtime = chat.show, chat.runtime
    for problem in runtime.host.configuration.problems:
        show.line("note", str(problem))
    for status in runtime.host.status():
        show.line("note", server_line(status))
    if less is not None:
        show.line("note", less)
    if chat.conversation is None:
        show.line("note", f"{NO_MODEL}. Without a model, you call the tools yourself.")
        show.line("note", TOOL_PICKER_HINT)
        return
    show.line("note", f"{one_line(chat.conversation.model.name)} answers; /help lists the commands")
    said = [message for message in chat.conversation.messages if message.text.strip()]
    if said:
        show.line("note", f"resuming a conversation of {len(chat.conversation.messages)} messages; the last one:")
        show.show_text(quote_lines(said[-1].text, most=MOST_LINES))


@contextmanager
def _host_events_shown(runtime: ChatRuntime, show: ChatDisplay) -> Iterator[None]:
    task = asyncio.get_running_loop().create_task(_show_host_events(runtime, show))
    try:
        yield
    finally:
        task.cancel()


async def _show_host_events(runtime: ChatRuntime, show: ChatDisplay) -> None:
    """Print when a server becomes unavailable or available again, or when a definition changed."""
    states = {status.name: status.state for status in runtime.host.status()}
    async with runtime.host.events() as events:
        async for event in events:
            news = None
            if isinstance(event, EventsMissed):
                states = {status.name: status.state for status in runtime.host.status()}
            elif isinstance(event, DefinitionInspected) and event.what in _REPORTED:
                news = f"{event.server}/{event.name} ({event.kind}) is {event.what}: {event.reason}"
            elif isinstance(event, ServerStateChanged):
                before, states[event.server] = states.get(event.server), event.state
                why = f": {event.reason}" if event.reason else ""
                quiet = event.state == "starting" or (event.state in _USUAL and before in _USUAL)
                news = None if quiet else f"{event.server} is {event.state} now{why}"
            if news is not None:
                async with runtime.questions.terminal_lock:
                    show.line("note", news)

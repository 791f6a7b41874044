"""The slash commands of a chat."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from trunkline.cli.chat_forms import Unreadable
from trunkline.cli.chat_guided import found_tools, tool_table
from trunkline.cli.chat_model import NO_MODEL
from trunkline.cli.chat_screen import cost_text, usage_text
from trunkline.cli.chat_talk import ChatTalk
from trunkline.cli.chat_words import Command, read_mention
from trunkline.cli.configs import name_hint
from trunkline.cli.output import one_line, table
from trunkline.host.chat.account import Account
from trunkline.host.supervision.upstream import Status

__all__ = ["COMMANDS", "run_command"]

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
_Run: TypeAlias = Callable[[ChatTalk, str], Awaitable[None]]


async def run_command(talk: ChatTalk, command: Command) -> bool:
    """Run a command; return False if the chat ends.

    Raises:
        InvalidChatInput: there is no such command, or its arguments are invalid.
        TrunklineError: the command failed.
        CommandError: the command failed.
    """
    name = {"?": "help", "quit": "exit"}.get(command.name, command.name)
    if name == "exit":
        return False
    run = _RUN.get(name)
    if run is None:
        hint = name_hint(name, COMMANDS)
        raise Unreadable(f"unknown command /{one_line(name)}; {hint} (to send a message that begins with /, type //)")
    await run(talk, command.rest)
    return True


# --- showing ---------------------------------------------------------------------------------------------------------


async def _help(talk: ChatTalk, rest: str) -> None:
    lines = [f"  /{name:<9} {about}" for name, about in COMMANDS.items()]
    lines.append("  /server:prompt   use a prompt of a server, with arguments as name=value")
    if talk.conversation is None:
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
    talk.show.tell("\n".join(lines))


async def _tools(talk: ChatTalk, words: str) -> None:
    if talk.conversation is None:
        talk.guided.list(words)
        return
    found = found_tools(talk.room, words)
    if found:
        talk.show.tell(tool_table(found, numbered=False))
    else:
        talk.show.line("note", f"no tools match {words!r}" if words else "no tools")
    for name, why in talk.conversation.skipped.items():
        talk.show.line("note", f"{name} is not offered to the model: {why}")


async def _servers(talk: ChatTalk, rest: str) -> None:
    statuses = talk.room.host.status()
    if not statuses:
        talk.show.line("note", "no servers configured; give a file with -c, or create an mcp.json here")
        return
    headings = ("NAME", "STATE", "ERA", "TOOLS", "PROMPTS", "RESOURCES", "WHY")
    talk.show.tell(table(headings, [_row(status) for status in statuses]))


def _row(status: Status) -> tuple[str, ...]:
    counts = (status.tools, status.prompts, status.resources) if status.era else ("-", "-", "-")
    why = status.reason or status.last_error or ""
    return status.name, status.state, status.era or "-", *map(str, counts), why


async def _usage(talk: ChatTalk, rest: str) -> None:
    if talk.conversation is None:
        talk.show.line("note", NO_MODEL)
        return
    said = talk.conversation
    talk.show.tell(f"{one_line(said.model.name)}: {usage_text(said.usage)}{cost_text(said.cost)}")


async def _account(talk: ChatTalk, rest: str) -> None:
    if talk.conversation is None:
        talk.show.line("note", NO_MODEL)
        return
    talk.show.tell(_laid_out(talk.conversation.account()))


def _laid_out(account: Account) -> str:
    rows = [
        ("messages", "", "", "", "", f"{account.talk_tokens:,}"),
        ("host", *[""] * 4, f"{account.system_tokens:,}"),
    ]
    for share in account.servers:
        numbers = (share.tools, share.tool_tokens, share.instruction_tokens, share.result_tokens, share.tokens)
        rows.append((share.server, *(f"{number:,}" for number in numbers)))
    laid = table(("FROM", "TOOLS", "DEFINITIONS", "INSTRUCTIONS", "RESULTS", "TOKENS"), rows)
    return f"{laid}\n{account.tokens:,} of {account.window_tokens:,} tokens, {account.share:.0%} of the model's window"


# --- acting ----------------------------------------------------------------------------------------------------------


async def _attach(talk: ChatTalk, rest: str) -> None:
    mention = read_mention(rest.removeprefix("@"), talk.room.host.catalog)
    if mention is None or not mention.uri:
        servers = ", ".join(map(one_line, talk.room.host.catalog.servers)) or "none"
        raise Unreadable(f"expected a resource as @server:uri; servers: {servers}")
    await talk.attach(mention)


async def _model(talk: ChatTalk, rest: str) -> None:
    if rest:
        await talk.switch(rest)
    elif talk.conversation is None:
        talk.show.line("note", NO_MODEL)
    else:
        talk.show.tell(one_line(talk.conversation.model.name))


async def _clear(talk: ChatTalk, rest: str) -> None:
    talk.clear()
    talk.show.line("note", "cleared; tokens and cost so far still count")


async def _save(talk: ChatTalk, rest: str) -> None:
    if not rest:
        raise Unreadable("missing the file: /save FILE")
    path = _at_home(rest)
    await talk.save(path)
    talk.show.line("note", f"saved; to resume, run: trunkline chat --resume {path}")


def _at_home(path: str) -> str:
    return os.path.expanduser(path)


_RUN: Mapping[str, _Run] = MappingProxyType(
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

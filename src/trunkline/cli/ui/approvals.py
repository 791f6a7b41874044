"""The approval prompt of the terminal: one question, answered with a single key.

Text from a server or a model is quoted line by line and cannot control the terminal. Input that was typed before the
question was shown is discarded. The definition of a tool is folded: its first line is shown, and a key shows all of it.
Scan findings in a definition, and changes to it, are never folded.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from trunkline.cli.ui.output import clip, counted, one_line, quote_lines, wire_json
from trunkline.cli.ui.terminal import EndOfInput, Screen, Terminal, discard_typeahead, is_interactive
from trunkline.host.authorization.approval import ApprovalAnswer, ApprovalRequest, Prompter, RememberScope
from trunkline.host.authorization.grants import GRANT_DAYS

__all__ = ["terminal_prompter"]

_DENY = ApprovalAnswer(allow=False)
_CANCELLED = ApprovalAnswer(allow=False, no="cancelled")
_VERBS: Mapping[str, str] = MappingProxyType(
    {"tool": "call the tool", "resource": "read", "prompt": "use the prompt", "skill": "load the skill"}
)
_CALLERS: Mapping[str, str] = MappingProxyType(
    {
        "user": "You want",
        "model": "The model wants",
        "gateway": "A client of the gateway wants",
        "app": "A page of the server wants",
    }
)
_MOST_FIELDS = 30  # More do not fit on a screen.
_LONGEST_LINE = 160  # Two lines of a terminal.


class _Choice(NamedTuple):
    """One choice: its key, its word (or the beginning of it), and its text."""

    key: str
    word: str
    text: str
    #: How long the approval lasts; None for a denial, and for choices that only show or change something.
    remember: RememberScope | None = None


def terminal_prompter(
    screen: Screen | None = None,
    *,
    no_input: bool = False,
    terminal_lock: asyncio.Lock | None = None,
    edit: Callable[[str, str], Awaitable[str]] | None = None,
    one_call: bool = False,
) -> Prompter | None:
    """Return a prompter that asks in this terminal; None if there is no terminal to ask in.

    ``turn`` is a lock held while it asks, for a terminal shared with other prompts. ``edit`` is called with a prompt
    and a text and returns the edited text; it is used where no editor is configured. ``one_call`` leaves out the
    answers that last for a session, for a command that ends after one call.
    """
    if no_input or not is_interactive():
        return None
    shown = Screen(verbose=False) if screen is None else screen
    lock = asyncio.Lock() if terminal_lock is None else terminal_lock

    async def prompter(question: ApprovalRequest) -> ApprovalAnswer | None:
        async with lock:
            discard_typeahead()
            if one_call:
                passing = ("session", "server", "tools", "all-tools")
                lasting = tuple(each for each in question.can_remember if each not in passing)
                question = replace(question, can_remember=lasting)
            try:
                return await _ApprovalPrompt(Terminal(shown), question, edit).answer()
            except EndOfInput:
                return _CANCELLED

    return prompter


class _ApprovalPrompt:
    """One approval question while it is being asked."""

    def __init__(
        self, terminal: Terminal, question: ApprovalRequest, edit: Callable[[str, str], Awaitable[str]] | None = None
    ) -> None:
        """Start with the arguments as the caller sent them."""
        self._terminal = terminal
        self._question = question
        self._edit_text = edit
        self._arguments = None if question.arguments is None else dict(question.arguments)
        self._edited = False

    async def answer(self) -> ApprovalAnswer:
        """Ask until the question is answered."""
        self._show()
        while True:
            choice = await self._choose()
            if choice.word == "no":
                return _DENY
            if choice.word == "like":
                return await self._alike()
            if choice.remember is not None:
                return self._yes(choice.remember)
            if choice.word == "edit":
                await self._edit()
            elif choice.word == "tools":
                self._show_tools()
            else:
                self._show_definition()

    def _yes(self, remember: RememberScope, *, vary: str | None = None, like: str | None = None) -> ApprovalAnswer:
        if remember in ("always", "read-only", "alike"):
            self._terminal.show(
                "To see what you allowed, run: trunkline grants list. To revoke it: trunkline grants revoke."
            )
        return ApprovalAnswer(
            allow=True,
            remember=remember,
            vary=vary,
            like=like,
            arguments=self._arguments if self._edited else None,
        )

    # --- choosing ----------------------------------------------------------------------------------------------------

    async def _choose(self) -> _Choice:
        rows = self._rows()
        choices = [choice for row in rows for choice in row]
        keys = "/".join(choice.key for choice in choices)
        lines = ["  " + "   ".join(f"[{each.key}] {each.text}" for each in row) for row in rows]
        self._terminal.show("\n".join(lines))
        while True:
            typed = (await self._terminal.ask(f"Allow it? [{keys}] ")).lower()
            found = _match_choice(typed, choices)
            if found is not None:
                return found
            self._terminal.show(f"Type one of: {', '.join(f'{each.key} ({each.word})' for each in choices)}.")

    def _rows(self) -> list[list[_Choice]]:
        """Return the choices by line: one line per answer, and one for all other choices."""
        question, offered = self._question, self._question.can_remember
        wide = [choice for choice in self._server_wide() if choice.remember in offered]
        alike = _Choice("l", "like", "always with arguments like these", "alike")
        answers = [*self._lengths(), *self._with_tools(), *wide, alike]
        rest = [
            *([_Choice("d", "definition", "show the definition")] if question.definition is not None else []),
            *([_Choice("t", "tools", "list those tools")] if wide else []),
            *([_Choice("x", "edit", "edit the arguments")] if question.editable else []),
            _Choice("n", "no", "no"),
        ]
        return [*([choice] for choice in answers if choice.remember in ("once", *offered)), rest]

    def _lengths(self) -> list[_Choice]:
        kind = self._question.act.kind
        any_use = "as long as its files stay the same" if kind == "skill" else "any arguments"
        return [
            _Choice("y", "yes", "once", "once"),
            _Choice("s", "session", f"this session, this {kind}, {any_use}", "session"),
            _Choice("a", "always", f"always for this {kind}, {any_use}, until {_day(GRANT_DAYS)}", "always"),
        ]

    def _with_tools(self) -> list[_Choice]:
        """Return the choices that allow the tools which a skill requests."""
        rows: tuple[tuple[str, str, RememberScope], ...] = (("w", "with", "tools"), ("o", "others", "all-tools"))
        return [
            _Choice(
                key,
                word,
                f"this session, with {counted(len(tools), 'tool')} that it requests and no more questions about "
                f"{'them' if len(tools) > 1 else 'it'}: {_id_list([tool.id for tool in tools])}",
                scope,
            )
            for key, word, scope in rows
            if (tools := self._question.skill_tools_of(scope))
        ]

    def _server_wide(self) -> list[_Choice]:
        question = self._question
        server, readers = one_line(question.act.server), question.read_only_tools
        now_too = "" if any(tool.name == question.act.name for tool in readers) else ", and this call once"
        reading = f"always for {_possessive(server, len(readers), 'read-only tool')}, until {_day(GRANT_DAYS)}{now_too}"
        everything = f"this session, everything of {server} ({counted(len(question.tools), 'tool')})"
        return [
            *([_Choice("r", "read-only", reading, "read-only")] if readers else []),
            *([_Choice("e", "everything", everything, "server")] if question.tools else []),
        ]

    # --- showing -----------------------------------------------------------------------------------------------------

    def _show(self) -> None:
        """Show the call, its arguments, and the reason for the question."""
        question, act = self._question, self._question.act
        who = _CALLERS.get(act.caller, f"{one_line(act.caller)} wants")
        name = one_line(act.name)
        self._terminal.show(f"{who} to {_VERBS.get(act.kind, 'do')} {name} of {one_line(act.server)}.")
        self._show_arguments()
        rows = [
            ("because", question.reason),
            ("for", act.principal),
            ("profile", act.profile),
            ("runs as", question.command),
            ("title", None if question.title == act.name else question.title),
        ]
        self._terminal.show("\n".join(f"  {title:<8} {one_line(value)}" for title, value in rows if value))
        if act.tainted:
            whose = f": {one_line(question.tainted_by)}" if question.tainted_by else "."
            self._terminal.show(f"  This session contains text from an untrusted server{whose}")
        self._show_definition_as_needed()

    def _show_definition_as_needed(self) -> None:
        """Show the first line of the definition, or all of it if it is flagged or changed."""
        question = self._question
        for warning in question.warnings:
            self._terminal.show(f"  The scan found in its definition: {one_line(warning)}")
        for change in question.changed:
            self._terminal.show(f"  Its definition changed since it was accepted: {one_line(change)}")
        if question.warnings or question.changed or question.act.flagged or question.act.changed:
            self._show_definition()
        elif question.description:
            lines = question.description.strip().splitlines()
            first = clip(one_line(lines[0]), _LONGEST_LINE) if lines else ""
            more = " (d shows all of it)" if len(lines) > 1 or first.endswith("...") else ""
            self._terminal.show(f"The server describes it as{more}:\n{quote_lines(first)}")

    def _show_definition(self) -> None:
        pin = f", pin {one_line(self._question.act.pin)}" if self._question.act.pin else ""
        self._terminal.show(f"Full definition{pin}:\n{quote_lines(_pretty(self._question.definition))}")

    def _show_tools(self) -> None:
        question = self._question
        others = [tool for tool in question.tools if not tool.read_only]
        for title, tools in (("read-only tool", question.read_only_tools), ("other tool", others)):
            if tools:
                names = "\n".join(one_line(tool.name) for tool in tools)
                self._terminal.show(
                    f"{counted(len(tools), title)} of {one_line(question.act.server)}:\n{quote_lines(names)}"
                )

    def _show_arguments(self) -> None:
        if self._arguments is not None:
            heading = "Arguments, as you changed them" if self._edited else "Arguments"
            self._terminal.show(f"{heading}:\n{quote_lines(_pretty(self._arguments))}")

    # --- arguments like these ----------------------------------------------------------------------------------------

    async def _alike(self) -> ApprovalAnswer:
        """Ask which argument may vary, and how."""
        fields = _fields(self._arguments or {})[:_MOST_FIELDS]
        vary = like = None
        if fields:
            lines = [f"  {number}. {one_line(at)}  {_short(value)}" for number, (at, value) in enumerate(fields, 1)]
            self._terminal.show("\n".join(["Which argument may vary next time?", *lines, "  0. none of them"]))
            numbers = {str(number): str(number) for number in range(len(fields) + 1)}
            chosen = await self._number(numbers)
            vary, value = (None, None) if chosen == 0 else fields[chosen - 1]
            like = None if vary is None else await self._pattern(value)
        said = (
            "exactly these arguments"
            if vary is None
            else f"these arguments, but {one_line(vary)} {_describe_pattern(like)}"
        )
        act = self._question.act
        self._terminal.show(
            f"Allowed: {one_line(act.server)}/{one_line(act.name)} with {said}, until {_day(GRANT_DAYS)}, "
            "as long as its definition stays the same."
        )
        return self._yes("alike", vary=vary, like=like)

    async def _number(self, numbers: Mapping[str, str]) -> int:
        while (typed := await self._terminal.ask("number: ")) not in numbers:
            self._terminal.show(f"Type a number from 0 to {len(numbers) - 1}.")
        return int(typed)

    async def _pattern(self, value: Any) -> str | None:
        if not isinstance(value, str):
            return None
        folder = value.rpartition("/")[0]
        proposal = f"{folder}/**" if folder else "anything"
        self._terminal.show("Enter a pattern (* matches within a name, ** any number of directories), or: anything")
        typed = await self._terminal.ask(f"like [{one_line(proposal)}]: ") or proposal
        return None if typed == "anything" else typed

    # --- changing arguments ------------------------------------------------------------------------------------------

    async def _edit(self) -> None:
        """Let the user edit the arguments, in an editor or on a line; anything but a JSON object is rejected."""
        import msgspec

        before = self._arguments or {}
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        try:
            text = await (_in_editor(editor, before) if editor else self._edited_here(before))
            changed = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, OSError, ValueError) as problem:
            self._terminal.show(f"Nothing was changed: {one_line(str(problem))}")
            return
        self._arguments, self._edited = changed, True
        self._show_arguments()

    async def _edited_here(self, arguments: Mapping[str, Any]) -> str:
        prompt = "arguments as JSON: "
        if self._edit_text is None:
            return await self._terminal.ask(prompt)
        return await self._edit_text(prompt, wire_json(arguments).decode())


async def _in_editor(editor: str, arguments: Mapping[str, Any]) -> str:
    """Let the user edit arguments in their editor; the file is readable by them only and deleted afterwards."""
    import shlex
    import tempfile

    with tempfile.TemporaryDirectory(prefix="trunkline-") as folder:
        path = _written(folder, arguments)
        process = await asyncio.create_subprocess_exec(*shlex.split(editor), path)
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        if code != 0:
            raise ValueError(f"the editor exited with status {code}")
        return _content(path)


def _written(folder: str, arguments: Mapping[str, Any]) -> str:
    path = os.path.join(folder, "arguments.json")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(wire_json(arguments, indent=2) + b"\n")
    return path


def _content(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _match_choice(typed: str, choices: list[_Choice]) -> _Choice | None:
    """Return the choice with the typed key, or the only one whose word begins with it; None if there is none."""
    by_key = next((choice for choice in choices if choice.key == typed), None)
    if by_key is not None or len(typed) < 2:
        return by_key
    by_word = [choice for choice in choices if choice.word.startswith(typed)]
    return by_word[0] if len(by_word) == 1 else None


def _id_list(ids: list[str]) -> str:
    """Return the ids of tools on one line; all of them, since the answer allows all."""
    return ", ".join(one_line(each) for each in sorted(ids))


def _possessive(server: str, count: int, what: str) -> str:
    owner = f"{server}'" if server.endswith("s") else f"{server}'s"
    return f"{owner} {counted(count, what)}"


def _pretty(value: Any) -> str:
    return wire_json(value, indent=2).decode()


def _short(value: Any) -> str:
    return clip(one_line(wire_json(value).decode()), 60)


def _describe_pattern(like: str | None) -> str:
    return "may be anything" if like is None else f"like {one_line(like)}"


def _day(days: int) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(time.time() + days * 86400))


def _fields(value: Any, at: str = "") -> list[tuple[str, Any]]:
    """Return the scalar values in the arguments, each with its JSON pointer."""
    if isinstance(value, dict):
        steps = [(key.replace("~", "~0").replace("/", "~1"), inner) for key, inner in value.items()]
    elif isinstance(value, list):
        steps = [(str(index), inner) for index, inner in enumerate(value)]
    else:
        return [(at, value)]
    return [field for step, inner in steps for field in _fields(inner, f"{at}/{step}")]

"""Asks a person in the terminal whether something may be done, with everything in sight that a yes would allow.

What a server or a model wrote is marked line by line and cannot control the terminal. What was typed before the
question stood there does not answer it. A yes that holds for longer is given in two steps: what would be remembered is
shown whole first.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from trunkline.cli.output import one_line, wire_json
from trunkline.cli.screen import Screen
from trunkline.cli.terminal import InputEnded, Terminal, is_there
from trunkline.host.judgement.consent import Answer, Face, Question, Remember

__all__ = ["terminal_face"]

_NO = Answer(allow=False)
_WORDS: Mapping[str, tuple[Remember, str]] = MappingProxyType(
    {
        "session": ("session", "session (until it ends)"),
        "like": ("alike", "like (arguments like these)"),
        "always": ("always", "always"),
    }
)
_MOST_FIELDS = 30


def terminal_face(
    screen: Screen | None = None,
    *,
    no_input: bool = False,
    turn: asyncio.Lock | None = None,
    edit: Callable[[str, str], Awaitable[str]] | None = None,
) -> Face | None:
    """Give a face that asks in this terminal; None if nobody can be asked here.

    ``turn`` is held while it asks, if other things are asked in the same terminal. ``edit`` has a text changed in
    place, after a prompt; where there is no editor, arguments are changed by it, else written anew.
    """
    if no_input or not is_there():
        return None
    shown = Screen(verbose=False) if screen is None else screen
    lock = asyncio.Lock() if turn is None else turn

    async def face(question: Question) -> Answer | None:
        async with lock:
            _forget_typed()
            try:
                return await _Asking(Terminal(shown), question, edit).answer()
            except InputEnded:
                return None

    return face


def _forget_typed() -> None:
    """Throw away what was typed before the question could be seen: it was meant for something else."""
    if sys.platform != "win32":
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


class _Asking:
    """One question under way."""

    def __init__(
        self, terminal: Terminal, question: Question, edit: Callable[[str, str], Awaitable[str]] | None = None
    ) -> None:
        """Start with the arguments as they are."""
        self._terminal = terminal
        self._question = question
        self._edit_text = edit
        self._arguments = None if question.arguments is None else dict(question.arguments)
        self._edited = False

    async def answer(self) -> Answer:
        """Ask until there is an answer."""
        self._show()
        while True:
            choice = await self._terminal.choose(f"Allow it? {self._offer()}: ", self._words())
            if choice == "no":
                return _NO
            if choice == "yes":
                return self._yes("once")
            if choice == "edit":
                await self._edit()
            elif choice == "definition":
                self._terminal.show(f"The whole definition:\n{_marked(_pretty(self._question.definition))}")
            else:
                given = await (self._alike() if choice == "like" else self._longer(_WORDS[choice][0]))
                if given is not None:
                    return given

    def _words(self) -> dict[str, str]:
        question = self._question
        longer = [word for word, (remember, _) in _WORDS.items() if remember in question.can_remember]
        extra = ["edit"] if question.editable else []
        extra += ["definition"] if question.definition is not None else []
        return {word: word for word in ("yes", *longer, *extra, "no")}

    def _offer(self) -> str:
        names = {word: text for word, (_, text) in _WORDS.items()} | {"yes": "yes (once)", "edit": "edit the arguments"}
        return ", ".join(names.get(word, word) for word in self._words())

    def _yes(self, remember: Remember, *, vary: str | None = None, like: str | None = None) -> Answer:
        return Answer(
            allow=True,
            remember=remember,
            vary=vary,
            like=like,
            arguments=self._arguments if self._edited else None,
        )

    # --- showing -----------------------------------------------------------------------------------------------------

    def _show(self) -> None:
        question, act = self._question, self._question.act
        rows = [
            ("server", act.server),
            ("runs as", question.command),
            (act.kind, act.name if question.title in (None, act.name) else f"{act.name} (it says: {question.title})"),
            ("asked by", act.caller if act.principal is None else f"{act.caller}, for {act.principal}"),
            ("profile", act.profile),
            ("rule", f"{question.decision.rule}: {question.decision.reason}"),
            ("pin", act.pin),
        ]
        lines = [f"  {name:<9} {one_line(value)}" for name, value in rows if value]
        self._terminal.show("\n".join(["Something wants to be done that has to be asked about:", *lines]))
        if act.tainted:
            whose = f": {one_line(question.tainted_by)}" if question.tainted_by else "."
            self._terminal.show(f"  Something from a server that is not trusted came into this session before{whose}")
        for warning in question.warnings:
            self._terminal.show(f"  The scan found in its definition: {one_line(warning)}")
        if question.description:
            self._terminal.show(f"What its server says of it:\n{_marked(question.description)}")
        self._show_arguments()

    def _show_arguments(self) -> None:
        if self._arguments is not None:
            heading = "Arguments, as you changed them" if self._edited else "Arguments"
            self._terminal.show(f"{heading}:\n{_marked(_pretty(self._arguments))}")

    # --- a yes that holds for longer ---------------------------------------------------------------------------------

    async def _longer(self, remember: Remember) -> Answer | None:
        act = self._question.act
        until = "until this session ends" if remember == "session" else f"until {_day(30)}"
        if self._question.definition is not None:
            self._terminal.show(f"The whole definition:\n{_marked(_pretty(self._question.definition))}")
        self._terminal.show(
            f"To be remembered: {one_line(act.server)} / {one_line(act.name)}, with ANY arguments, {until}, "
            "as long as its definition stays the same."
        )
        return self._yes(remember) if await self._sure() else None

    async def _alike(self) -> Answer | None:
        """Ask which argument may differ, and how."""
        fields = _fields(self._arguments or {})[:_MOST_FIELDS]
        vary = like = None
        if fields:
            lines = [f"  {number}. {one_line(at)}  {_short(value)}" for number, (at, value) in enumerate(fields, 1)]
            self._terminal.show("\n".join(["Which one may differ the next time?", *lines, "  0. none of them"]))
            numbers = {str(number): str(number) for number in range(len(fields) + 1)}
            chosen = await self._number(numbers)
            vary, value = (None, None) if chosen == 0 else fields[chosen - 1]
            like = None if vary is None else await self._pattern(value)
        said = "exactly these arguments" if vary is None else f"these arguments, but {one_line(vary)} {_said(like)}"
        act = self._question.act
        self._terminal.show(
            f"To be remembered: {one_line(act.server)} / {one_line(act.name)}, with {said}, until {_day(30)}, "
            "as long as its definition stays the same."
        )
        return self._yes("alike", vary=vary, like=like) if await self._sure() else None

    async def _number(self, numbers: Mapping[str, str]) -> int:
        while (typed := await self._terminal.ask("number: ")) not in numbers:
            self._terminal.show(f"Type a number from 0 to {len(numbers) - 1}.")
        return int(typed)

    async def _pattern(self, value: Any) -> str | None:
        if not isinstance(value, str):
            return None
        folder = value.rpartition("/")[0]
        proposal = f"{folder}/**" if folder else "anything"
        self._terminal.show("It may be like a pattern: * within a name, ** over any number of folders; or anything.")
        typed = await self._terminal.ask(f"like [{one_line(proposal)}]: ") or proposal
        return None if typed == "anything" else typed

    async def _sure(self) -> bool:
        return await self._terminal.choose("Sure? yes or no: ", {"yes": "yes", "no": "no"}) == "yes"

    # --- changing arguments ------------------------------------------------------------------------------------------

    async def _edit(self) -> None:
        """Have the arguments changed, in an editor or on a line; what is no object changes nothing."""
        import msgspec

        before = self._arguments or {}
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        try:
            text = await (_in_editor(editor, before) if editor else self._edited_here(before))
            changed = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, OSError, ValueError) as problem:
            self._terminal.show(f"Nothing is changed: {one_line(str(problem))}")
            return
        self._arguments, self._edited = changed, True
        self._show_arguments()

    async def _edited_here(self, arguments: Mapping[str, Any]) -> str:
        prompt = "arguments as JSON: "
        if self._edit_text is None:
            return await self._terminal.ask(prompt)
        return await self._edit_text(prompt, wire_json(arguments).decode())


async def _in_editor(editor: str, arguments: Mapping[str, Any]) -> str:
    """Have arguments changed in the person's editor; the file is theirs alone, and gone afterwards."""
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
            raise ValueError(f"the editor ended with {code}")
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


def _pretty(value: Any) -> str:
    return wire_json(value, indent=2).decode()


def _marked(text: str) -> str:
    """Mark words that are not ours, line by line: they could pretend to be."""
    return "\n".join(f"  | {line}" for line in text.splitlines())


def _short(value: Any) -> str:
    from trunkline.cli.output import clip

    return clip(one_line(wire_json(value).decode()), 60)


def _said(like: str | None) -> str:
    return "may be anything" if like is None else f"like {one_line(like)}"


def _day(days: int) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(time.time() + days * 86400))


def _fields(value: Any, at: str = "") -> list[tuple[str, Any]]:
    """List the plain values in some arguments, each with its pointer."""
    if isinstance(value, dict):
        steps = [(key.replace("~", "~0").replace("/", "~1"), inner) for key, inner in value.items()]
    elif isinstance(value, list):
        steps = [(str(index), inner) for index, inner in enumerate(value)]
    else:
        return [(at, value)]
    return [field for step, inner in steps for field in _fields(inner, f"{at}/{step}")]

"""Input of a chat: from a terminal with editing, history and completion, from a plain terminal, or from a pipe.

A wait for a line can be cancelled at any moment. In a terminal, Ctrl-C clears the line, and raises ``Interrupted`` on
an empty one; Ctrl-D ends the input. A message of several lines is typed with Esc Enter, or between triple quotes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from trunkline.cli.chat.completion import CompletionItem, unquote_message
from trunkline.cli.ui.output import one_line
from trunkline.cli.ui.terminal import EndOfInput, Screen, Terminal, is_interactive

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings

__all__ = ["ChatInput", "CompletionCallback", "Interrupted", "line_editor", "open_input"]

#: Returns completions for the text before the cursor.
CompletionCallback: TypeAlias = Callable[[str], Awaitable[Sequence[CompletionItem]]]

T = TypeVar("T")

_MORE = "... "


class Interrupted(Exception):
    """The user pressed Ctrl-C at an empty line."""


class ChatInput(Protocol):
    """Source of the user's input."""

    #: True if the user can be asked questions.
    asks: bool

    async def message(self, prompt: str) -> str:
        """Return the next message or command.

        Raises:
            Interrupted: Ctrl-C on an empty line.
            EndOfInput: the input ended.
        """

    async def answer(self, prompt: str, completer: CompletionCallback | None = None) -> str:
        """Ask for one line that is neither a message nor a command.

        Raises:
            Interrupted: Ctrl-C on an empty line.
            EndOfInput: the input ended, or the user cannot be asked.
        """

    def interrupt(self) -> None:
        """Called on SIGINT: end the current wait for a line with ``Interrupted``."""


def open_input(screen: Screen, *, completer: CompletionCallback, history: Path | None) -> tuple[ChatInput, str | None]:
    """Return the best available input, and a notice if editing is not available.

    Without a history file, the history is not saved.
    """
    if not is_interactive():
        return PipedInput(), None
    try:
        return LineEditorInput(completer, history), None
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prompt_toolkit":
            raise
        return PlainTerminalInput(screen), "for editing, history and completion, run: pip install 'trunkline[cli]'"


# --- with editing, history and completion ----------------------------------------------------------------------------


class LineEditorInput:
    """Input from a terminal with editing, history and completion."""

    asks = True

    def __init__(self, completer: CompletionCallback, history: Path | None) -> None:
        """Create the prompt sessions.

        Raises:
            ModuleNotFoundError: prompt_toolkit is not installed.
        """
        from prompt_toolkit import PromptSession

        self._messages: PromptSession[str] = PromptSession(
            history=_history(history),
            completer=_completer(completer),
            complete_while_typing=False,
            multiline=True,
            key_bindings=_keys(several_lines=True),
            prompt_continuation=_MORE,
            enable_suspend=True,
        )
        # Answers may be sensitive: they are not kept in the history.
        self._answers: PromptSession[str] = PromptSession(
            complete_while_typing=False, key_bindings=_keys(several_lines=False)
        )

    async def message(self, prompt: str) -> str:
        """Return the next message or command."""
        typed = await self._read(self._messages, prompt)
        return unquote_message(typed) or ""

    async def answer(self, prompt: str, completer: CompletionCallback | None = None) -> str:
        """Ask for one line."""
        from prompt_toolkit.completion import DummyCompleter

        self._answers.completer = DummyCompleter() if completer is None else _completer(completer)
        return (await self._read(self._answers, prompt)).strip()

    def interrupt(self) -> None:
        """Interrupt the current wait, like Ctrl-C."""
        for session in (self._messages, self._answers):
            if session.app.is_running:
                session.app.exit(exception=Interrupted())

    async def _read(self, session: PromptSession[str], prompt: str) -> str:
        from prompt_toolkit.patch_stdout import patch_stdout

        sys.stdout.flush()
        sys.stderr.flush()
        try:
            # Output of servers is written above the line, already made safe. The chat handles signals itself.
            with patch_stdout(raw=True):
                return await session.prompt_async(one_line(prompt) + " ", handle_sigint=False)
        except EOFError:
            raise EndOfInput from None


def _history(path: Path | None) -> Any:
    """Open the history, readable by its owner only; a line that begins with a space is not saved."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    if path is None:
        return InMemoryHistory()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.close(descriptor)
    os.chmod(path, 0o600)

    class _Kept(FileHistory):
        def append_string(self, string: str) -> None:
            if not string.startswith(" "):
                super().append_string(string)

    return _Kept(str(path))


def _completer(completer: CompletionCallback) -> Any:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class _Proposing(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> list[Completion]:
            return []

        async def get_completions_async(
            self, document: Document, complete_event: CompleteEvent
        ) -> AsyncGenerator[Completion, None]:
            for each in await completer(document.text_before_cursor):
                yield Completion(each.text, -each.replaces, display=each.shown, display_meta=each.about)

    return _Proposing()


def _keys(*, several_lines: bool) -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("c-c")
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=Interrupted())

    if not several_lines:
        return keys

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        chosen = None if buffer.complete_state is None else buffer.complete_state.current_completion
        if chosen is not None:
            # The completion is already in the line: close the menu and keep editing.
            buffer.complete_state = None
        elif unquote_message(buffer.text) is None:
            buffer.newline()
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.newline()

    return keys


def line_editor() -> Callable[[str, str], Awaitable[str]] | None:
    """Return a function that lets the user edit a text in place; None if prompt_toolkit is not installed."""
    try:
        from prompt_toolkit import PromptSession
    except ModuleNotFoundError:
        return None

    async def edit(prompt: str, text: str) -> str:
        session: PromptSession[str] = PromptSession(key_bindings=_keys(several_lines=False))
        try:
            return await session.prompt_async(prompt, default=text, handle_sigint=False)
        except (EOFError, Interrupted):
            raise ValueError("cancelled") from None

    return edit


# --- a plain terminal, and a pipe ------------------------------------------------------------------------------------


class _InterruptibleWait:
    """A wait that a signal can interrupt."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._interrupted = False

    def interrupt(self) -> None:
        """Interrupt the current wait, or the next one."""
        self._interrupted = True
        if self._task is not None:
            self._task.cancel()

    async def run(self, awaited: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result.

        Raises:
            Interrupted: a signal arrived.
        """
        task: asyncio.Task[T] = asyncio.get_running_loop().create_task(awaited)
        self._task = task
        if self._interrupted:
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            if self._interrupted:
                raise Interrupted from None
            raise
        finally:
            self._task, self._interrupted = None, False


class PlainTerminalInput:
    """Input from a terminal without line editing."""

    asks = True

    def __init__(self, screen: Screen) -> None:
        """Write prompts to this screen."""
        self._terminal = Terminal(screen)
        self._wait = _InterruptibleWait()

    async def message(self, prompt: str) -> str:
        """Return the next message or command."""
        typed = await self._ask(f"{one_line(prompt)} ")
        while unquote_message(typed) is None:
            typed += "\n" + await self._ask(_MORE)
        return unquote_message(typed) or ""

    async def answer(self, prompt: str, completer: CompletionCallback | None = None) -> str:
        """Ask for one line."""
        return await self._ask(f"{one_line(prompt)} ")

    def interrupt(self) -> None:
        """Interrupt the current wait, like Ctrl-C."""
        self._wait.interrupt()

    async def _ask(self, prompt: str) -> str:
        return await self._wait.run(self._terminal.ask(prompt))


class PipedInput:
    """Input from a pipe or a file; the user cannot be asked."""

    asks = False

    def __init__(self) -> None:
        """Start reading in a daemon thread, since a blocking read cannot be cancelled."""
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._wait = _InterruptibleWait()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        # Not through sys.stdin: its lock, held by a thread that never ends, would break the shutdown of the process.
        fd, rest = sys.stdin.fileno(), b""
        while data := os.read(fd, 65536):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._give(line.decode("utf-8", "replace").rstrip("\r"))
        if rest:
            self._give(rest.decode("utf-8", "replace"))
        self._give(None)

    def _give(self, line: str | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
        except RuntimeError:
            # The chat has ended and its loop is closed.
            return

    async def message(self, prompt: str) -> str:
        """Return the next message or command."""
        typed = await self._next()
        while unquote_message(typed) is None:
            typed += "\n" + await self._next()
        return unquote_message(typed) or ""

    async def answer(self, prompt: str, completer: CompletionCallback | None = None) -> str:
        """Raise ``EndOfInput``: the user cannot be asked."""
        raise EndOfInput

    def interrupt(self) -> None:
        """Interrupt the current wait for a line."""
        self._wait.interrupt()

    async def _next(self) -> str:
        text = await self._wait.run(self._lines.get())
        if text is None:
            self._lines.put_nowait(None)
            raise EndOfInput
        return text

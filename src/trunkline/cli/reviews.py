"""Reviews of server requests in the terminal: sampling, forms, and pages to open.

The requesting server is always shown first and the choice last, below whatever the server wrote. Text from servers and
models is quoted line by line and cannot control the terminal. Input typed before the question was shown does not answer
it. A page is opened only on an explicit answer, in the system's browser and never through a shell.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import trunkline.types as t
from trunkline.cli.form import Left, fill_in, summary
from trunkline.cli.output import one_line, plain
from trunkline.cli.sampling_reviews import ask_about
from trunkline.cli.screen import Screen
from trunkline.cli.terminal import InputEnded, Terminal, forget_typed, is_there
from trunkline.host.elicitation.answering import ElicitationFace, FormQuestion, PageQuestion
from trunkline.host.sampling.review import SamplingDecision, SamplingFace, SamplingReview

__all__ = ["open_in_browser", "terminal_elicitation", "terminal_sampling_review"]

Q = TypeVar("Q")
A = TypeVar("A")

#: Opens a page in a browser; returns True if it could.
Opener = Callable[[str], Awaitable[bool]]

_SEND: Mapping[str, str] = MappingProxyType(
    {"yes": "accept", "no": "decline", "decline": "decline", "edit": "edit", "cancel": "cancel"}
)
_CONSENT: Mapping[str, str] = MappingProxyType(
    {"yes": "accept", "no": "decline", "decline": "decline", "cancel": "cancel"}
)
_PAGE: Mapping[str, str] = MappingProxyType({"open": "open", "myself": "accept", "no": "decline", "cancel": "cancel"})


def terminal_sampling_review(
    screen: Screen | None = None, *, no_input: bool = False, turn: asyncio.Lock | None = None
) -> SamplingFace | None:
    """Return a prompter that reviews sampling requests and responses in this terminal; None without a terminal.

    ``turn`` is a lock held while it asks, for a terminal shared with other prompts.
    """
    if no_input or not is_there():
        return None
    turns = _Turns(screen, turn)

    async def face(review: SamplingReview) -> SamplingDecision | None:
        return await turns.take(review, ask_about)

    return face


def terminal_elicitation(
    screen: Screen | None = None,
    *,
    no_input: bool = False,
    turn: asyncio.Lock | None = None,
    opener: Opener | None = None,
) -> ElicitationFace | None:
    """Return a prompter that shows forms and pages in this terminal; None without a terminal.

    ``opener`` opens a page once the user agreed; the default is the system's browser.
    """
    if no_input or not is_there():
        return None
    turns = _Turns(screen, turn)

    async def ask(terminal: Terminal, question: FormQuestion | PageQuestion) -> t.ElicitResult:
        _show_asker(terminal, question)
        try:
            if isinstance(question, PageQuestion):
                return await _page(terminal, question, opener or open_in_browser)
            return await _form(terminal, question)
        except Left as way_out:
            return _result(way_out.action, {})

    async def face(question: FormQuestion | PageQuestion) -> t.ElicitResult | None:
        return await turns.take(question, ask)

    return face


class _Turns:
    """Asks one question at a time in the terminal."""

    def __init__(self, screen: Screen | None, turn: asyncio.Lock | None) -> None:
        self._screen = Screen(verbose=False) if screen is None else screen
        self._lock = asyncio.Lock() if turn is None else turn

    async def take(self, question: Q, ask: Callable[[Terminal, Q], Awaitable[A]]) -> A | None:
        """Wait for the terminal and ask; return None if the input ended."""
        async with self._lock:
            forget_typed()
            try:
                return await ask(Terminal(self._screen), question)
            except InputEnded:
                return None


# --- forms -----------------------------------------------------------------------------------------------------------


def _show_asker(terminal: Terminal, question: FormQuestion | PageQuestion) -> None:
    server, command = one_line(question.server), one_line(question.command)
    terminal.show(f"The server {server} asks you something. It runs as: {command}")
    terminal.show(_marked(question.message))


async def _form(terminal: Terminal, question: FormQuestion) -> t.ElicitResult:
    """Ask for the fields of a form, and confirm the answers before they are sent."""
    server, fields = one_line(question.server), question.schema.get("properties") or {}
    if not fields:
        choice = await terminal.choose(f"Your answer to {server}: yes, no (decline) or cancel: ", _CONSENT)
        return _result(choice, {})
    terminal.show("(Enter accepts the value in brackets or skips; :decline declines, :cancel cancels.)")
    content: dict[str, Any] = {}
    while True:
        content = await fill_in(terminal, question.schema, content)
        terminal.show(f"To be sent to {server}:\n{summary(content) or '  (nothing)'}")
        choice = await terminal.choose("Send? [yes], no (decline), edit or cancel: ", _SEND, default="yes")
        if choice != "edit":
            return _result(choice, content)


def _result(action: str, content: dict[str, Any]) -> t.ElicitResult:
    if action == "accept":
        return t.ElicitResult(action="accept", content=content)
    return t.ElicitResult(action="decline" if action == "decline" else "cancel")


# --- pages -----------------------------------------------------------------------------------------------------------


async def _page(terminal: Terminal, question: PageQuestion, opener: Opener) -> t.ElicitResult:
    """Show the URL of a page with warnings about it, and open it if the user agrees."""
    address = question.address
    lines = ["It wants you to open this page in a browser:", f"  {plain(address.url)}"]
    width = shutil.get_terminal_size().columns
    if len(address.url) + 2 <= width and address.url.isascii():
        lines.append(" " * (2 + len(address.before)) + "^" * len(address.host))
    lines.append(f"The page is at: {one_line(address.ascii_host)}")
    lines += [f"Careful: {one_line(warning)}." for warning in address.warnings]
    lines.append("The operator of that page will see what you enter there.")
    terminal.show("\n".join(lines))
    prompt = f"Open {one_line(address.ascii_host)}? open, myself (I open it), no (decline) or cancel: "
    choice = await terminal.choose(prompt, _PAGE)
    if choice == "open" and not await opener(address.url):
        terminal.show("No browser could be opened: open the page yourself.")
        choice = await terminal.choose("Did you? yes, no (decline) or cancel: ", _CONSENT)
    return _result("accept" if choice == "open" else choice, {})


async def open_in_browser(url: str) -> bool:
    """Open a page in the system's browser, without a shell; return False if there is no graphical browser."""
    from trunkline.auth.visiting import has_browser

    if not url.startswith(("https://", "http://")) or not has_browser():
        return False
    import webbrowser

    return await asyncio.to_thread(webbrowser.open, url)


def _marked(text: str) -> str:
    """Quote foreign text line by line, so that it cannot pass for output of this program."""
    return "\n".join(f"  | {line}" for line in text.splitlines())

"""Asks for the elicitations of servers in the terminal: a form field by field, or a page to open.

It supports the flat schemas that the specification allows in a form. A typed line is parsed according to the type of
the field and validated against its schema; an invalid value is asked for again. Text from servers is quoted line by
line, and the choice comes below whatever the server wrote. Input typed before the question was shown does not answer
it. A page is opened only on an explicit answer, in the system's browser and never through a shell.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import trunkline.types as t
from trunkline.cli.ui.output import clip, one_line, quote_lines
from trunkline.cli.ui.terminal import EndOfInput, Screen, Terminal, discard_typeahead, is_interactive
from trunkline.protocol.printable import printable

if TYPE_CHECKING:
    from trunkline.host.server_requests.elicitation import ElicitationPrompter, FormPrompt, PageUrl, UrlPrompt

__all__ = [
    "FormDismissed",
    "PageOpener",
    "QuestionQueue",
    "ask_form",
    "ask_page",
    "display_host",
    "fill_form",
    "form_summary",
    "open_in_browser",
    "terminal_elicitation",
]

Q = TypeVar("Q")
A = TypeVar("A")

#: Opens a page in a browser; returns True if it could.
PageOpener: TypeAlias = Callable[[str], Awaitable[bool]]

_CONSENT: Mapping[str, str] = MappingProxyType(
    {"yes": "accept", "no": "decline", "decline": "decline", "cancel": "cancel"}
)
_SEND: Mapping[str, str] = MappingProxyType({**_CONSENT, "edit": "edit"})
_PAGE: Mapping[str, str] = MappingProxyType({"open": "open", "myself": "accept", "no": "decline", "cancel": "cancel"})


def terminal_elicitation(
    screen: Screen | None = None,
    *,
    no_input: bool = False,
    terminal_lock: asyncio.Lock | None = None,
    opener: PageOpener | None = None,
) -> ElicitationPrompter | None:
    """Return a prompter that shows forms and pages in this terminal; None without a terminal.

    ``opener`` opens a page once the user agreed; the default is the system's browser.
    """
    if no_input or not is_interactive():
        return None
    from trunkline.host.server_requests.elicitation import UrlPrompt

    turns = QuestionQueue(screen, terminal_lock)

    async def ask(terminal: Terminal, question: FormPrompt | UrlPrompt) -> t.ElicitResult:
        server, command = one_line(question.server), one_line(question.command)
        terminal.show(f"The server {server} asks you something. It runs as: {command}")
        terminal.show(quote_lines(question.message))
        if isinstance(question, UrlPrompt):
            return await ask_page(terminal, question.page_url, opener=opener or open_in_browser)
        return await ask_form(terminal, question.schema, server=server)

    async def prompter(question: FormPrompt | UrlPrompt) -> t.ElicitResult | None:
        return await turns.take(question, ask)

    return prompter


class QuestionQueue:
    """Asks one question at a time in the terminal."""

    def __init__(self, screen: Screen | None, terminal_lock: asyncio.Lock | None) -> None:
        self._screen = Screen(verbose=False) if screen is None else screen
        self._lock = asyncio.Lock() if terminal_lock is None else terminal_lock

    async def take(self, question: Q, ask: Callable[[Terminal, Q], Awaitable[A]]) -> A | None:
        """Wait for the terminal and ask; return None if the input ended."""
        async with self._lock:
            discard_typeahead()
            try:
                return await ask(Terminal(self._screen), question)
            except EndOfInput:
                return None


# --- forms and pages -------------------------------------------------------------------------------------------------


async def ask_form(terminal: Terminal, schema: Mapping[str, Any], *, server: str | None = None) -> t.ElicitResult:
    """Ask for the fields of a form, and confirm the answers before they are sent.

    ``server`` is the name of the server that asks, if the user has several. Where there is only one, a form with one
    field needs no confirmation.

    Raises:
        EndOfInput: the input ended.
    """
    fields = schema.get("properties") or {}
    try:
        if not fields:
            prompt = "Accept?" if server is None else f"Your answer to {server}:"
            return _result(await terminal.choose(f"{prompt} yes, no (decline) or cancel: ", _CONSENT), {})
        terminal.show(
            "(Enter accepts the value in brackets or skips an optional field; :decline declines, :cancel cancels.)"
        )
        content: dict[str, Any] = {}
        while True:
            content = await fill_form(terminal, schema, content)
            if server is None and len(fields) == 1:
                return _result("accept", content)
            receiver = "" if server is None else f" to {server}"
            terminal.show(f"To be sent{receiver}:\n{form_summary(content) or '  (nothing)'}")
            action = await terminal.choose("Send? [yes], no (decline), edit or cancel: ", _SEND, default="yes")
            if action != "edit":
                return _result(action, content)
    except FormDismissed as dismissal:
        return _result(dismissal.action, {})


async def ask_page(terminal: Terminal, page: PageUrl, *, opener: PageOpener | None = None) -> t.ElicitResult:
    """Show the URL of a page with warnings about it, and open it if the user agrees; without an opener, only ask.

    Raises:
        EndOfInput: the input ended.
    """
    host = one_line(page.ascii_host)
    lines = ["It wants you to open this page in a browser:", f"  {printable(page.url)}"]
    # Imported here: every client command loads this module, and shutil loads the compression libraries.
    import shutil

    if len(page.url) + 2 <= shutil.get_terminal_size().columns and page.url.isascii():
        lines.append(" " * (2 + len(page.before)) + "^" * len(page.host))
    lines.append(f"The page is at: {host}")
    lines += [f"Careful: {one_line(warning)}." for warning in page.warnings]
    lines.append("The operator of that page will see what you enter there.")
    terminal.show("\n".join(lines))
    if opener is None:
        terminal.show("Open it yourself if you trust that name.")
        return _result(await terminal.choose("Did you open it? yes, no (decline) or cancel: ", _CONSENT), {})
    choice = await terminal.choose(f"Open {host}? open, myself (I open it), no (decline) or cancel: ", _PAGE)
    if choice == "open" and not await opener(page.url):
        terminal.show("No browser could be opened: open the page yourself.")
        choice = await terminal.choose("Did you? yes, no (decline) or cancel: ", _CONSENT)
    return _result("accept" if choice == "open" else choice, {})


def _result(action: str, content: dict[str, Any]) -> t.ElicitResult:
    if action == "accept":
        return t.ElicitResult(action="accept", content=content)
    return t.ElicitResult(action="decline" if action == "decline" else "cancel")


async def open_in_browser(url: str) -> bool:
    """Open a page in the system's browser, without a shell; return False if there is no graphical browser."""
    from trunkline.auth.browser import has_browser

    if not url.startswith(("https://", "http://")) or not has_browser():
        return False
    import webbrowser

    return await asyncio.to_thread(webbrowser.open, url)


def display_host(url: str) -> str:
    """Return the host of a URL; a name that could look like another one is shown in its ASCII form too."""
    from urllib.parse import urlsplit

    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    if not host:
        return "no valid host: do not trust it"
    if host.isascii() and "xn--" not in host:
        return host
    try:
        bare = host.encode("idna").decode()
    except UnicodeError:
        bare = ascii(host)
    return f"{bare} (its letters may look like another name's: {one_line(host)})"


# --- the fields of a form --------------------------------------------------------------------------------------------

_NOTHING = object()
_EMPTY_TEXT = '""'
_LONGEST_NAME = 60  # A prompt with it fits on a line.
_WAYS_OUT: Mapping[str, str] = MappingProxyType({":decline": "decline", ":cancel": "cancel"})


class FormDismissed(Exception):
    """The user declined or cancelled the form."""

    def __init__(self, action: str) -> None:
        """Set the action, ``decline`` or ``cancel``."""
        super().__init__(action)
        self.action = action


class _InvalidValue(ValueError):
    """The typed text is not a valid value of the field."""


async def fill_form(terminal: Terminal, schema: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Ask for every field; ``before`` holds the previous answers.

    Raises:
        FormDismissed: the user declined or cancelled the form.
        EndOfInput: the input ended.
    """
    fields = schema.get("properties")
    required = schema.get("required")
    content: dict[str, Any] = {}
    for name, field in fields.items() if isinstance(fields, dict) else ():
        field = field if isinstance(field, dict) else {}
        if name in before:
            field = {**field, "default": before[name]}
        value = await _ask_field(terminal, name, field, required=isinstance(required, list) and name in required)
        if value is not _NOTHING:
            content[name] = value
    return content


async def _ask_field(terminal: Terminal, name: str, field: dict[str, Any], *, required: bool) -> Any:
    for line in _about(name, field):
        terminal.show(line)
    default = _default(field)
    hint = f" [{_shown(default)}]" if default is not _NOTHING else "" if required else " (optional)"
    while True:
        typed = await terminal.ask(f"{clip(one_line(name), _LONGEST_NAME)}{hint}: ")
        if typed in _WAYS_OUT:
            raise FormDismissed(_WAYS_OUT[typed])
        try:
            return _read(typed, field) if typed else _left_out(default, field, required=required)
        except _InvalidValue as problem:
            terminal.show(f"  {problem}")


def _left_out(default: Any, field: dict[str, Any], *, required: bool) -> Any:
    if default is _NOTHING and required:
        empty = f"; for an empty text, type {_EMPTY_TEXT}" if _accepts_empty_text(field) else ""
        raise _InvalidValue(f"a value is required{empty} (:decline declines, :cancel cancels)")
    return default


def _accepts_empty_text(field: dict[str, Any]) -> bool:
    if field.get("type", "string") != "string" or _choices(field):
        return False
    try:
        _check("", field)
    except _InvalidValue:
        return False
    return True


def _default(field: dict[str, Any]) -> Any:
    """Return the default of a field, if it has a valid one."""
    default = field.get("default", _NOTHING)
    try:
        if default is not _NOTHING:
            _check(default, field)
    except _InvalidValue:
        return _NOTHING
    return default


def form_summary(content: Mapping[str, Any]) -> str:
    """Format the answers, one field per line."""
    return "\n".join(f"  {one_line(name)}: {_shown(value)}" for name, value in content.items())


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return one_line(", ".join(map(str, value)) if isinstance(value, list) else str(value))


def _about(name: str, field: dict[str, Any]) -> list[str]:
    """Return the description of a field: title, text, choices and format."""
    title, description = str(field.get("title") or name), str(field.get("description") or "")
    about = [title] if title != name else []
    lines = quote_lines("\n".join(one_line(line) for line in [*about, description] if line)).splitlines()
    for number, (value, label) in enumerate(_choices(field), 1):
        lines.append(f"  {number}. {one_line(label if label == value else f'{label} ({value})')}")
    hint = _HINTS.get(str(field.get("format") or field.get("type")))
    lines += [f"  {hint}"] if hint else []
    return lines


_HINTS: Mapping[str, str] = MappingProxyType(
    {
        "boolean": "yes or no",
        "integer": "a whole number",
        "number": "a number",
        "array": "any number of these, separated by commas",
        "email": "an e-mail address",
        "uri": "a URI with a scheme",
        "date": "a date: year-month-day",
        "date-time": "a date and time in ISO 8601 format",
    }
)


# --- parsing and validation ------------------------------------------------------------------------------------------


def _read(typed: str, field: dict[str, Any]) -> Any:
    """Parse and validate a line as the value of a field."""
    kind = str(field.get("type", "string"))
    if typed == _EMPTY_TEXT and _accepts_empty_text(field):
        value: Any = ""
    elif kind == "array":
        value = [_parse_choice(part.strip(), _choices(field)) for part in typed.split(",") if part.strip()]
    elif _choices(field):
        value = _parse_choice(typed, _choices(field))
    else:
        value = _READERS.get(kind, str)(typed)
    _check(value, field)
    return value


def _choices(field: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the allowed values with their titles, in all the forms that the revisions define."""
    items = field.get("items")
    if field.get("type") == "array" and isinstance(items, dict):
        field = items
    for key in ("oneOf", "anyOf"):
        rows = field.get(key)
        if isinstance(rows, list):
            consts = [row for row in rows if isinstance(row, dict) and "const" in row]
            return [(str(row["const"]), str(row.get("title") or row["const"])) for row in consts]
    values = field.get("enum")
    if not isinstance(values, list):
        return []
    titles = field.get("enumNames")
    if not isinstance(titles, list) or len(titles) != len(values):
        titles = values
    return [(str(value), str(title)) for value, title in zip(values, titles, strict=True)]


def _parse_choice(typed: str, choices: list[tuple[str, str]]) -> str:
    """Return the choice with this value, title or number, in this order."""
    for at in (0, 1):
        for choice in choices:
            if choice[at] == typed:
                return choice[0]
    if typed.isascii() and typed.isdigit() and 0 < int(typed) <= len(choices):
        return choices[int(typed) - 1][0]
    raise _InvalidValue(f"{typed!r} is not one of the choices: type one of them, or its number")


def _boolean(typed: str) -> bool:
    word = typed.lower()
    if word in ("y", "yes", "true", "1"):
        return True
    if word in ("n", "no", "false", "0"):
        return False
    raise _InvalidValue("type yes or no")


def _integer(typed: str) -> int:
    try:
        return int(typed)
    except ValueError:
        raise _InvalidValue(f"{typed!r} is not a whole number") from None


def _number(typed: str) -> float:
    try:
        return int(typed) if re.fullmatch(r"[+-]?\d+", typed) else _finite(float(typed))
    except ValueError:
        raise _InvalidValue(f"{typed!r} is not a number") from None


def _finite(value: float) -> float:
    if value - value != 0:
        raise ValueError
    return value


_READERS: Mapping[str, Callable[[str], Any]] = MappingProxyType(
    {"boolean": _boolean, "integer": _integer, "number": _number}
)


def _check(value: Any, field: dict[str, Any]) -> None:
    from trunkline.protocol.json_schema import SchemaError, compile_schema

    try:
        problem = compile_schema(field).first_violation(value)
    except SchemaError:
        # An invalid schema is reported when the whole answer is validated; here it accepts every value.
        problem = None
    if problem is not None:
        raise _InvalidValue(problem.message)
    judge = _FORMATS.get(str(field.get("format")))
    if judge is not None and isinstance(value, str) and not judge(value):
        raise _InvalidValue(f"{value!r} is not {_HINTS[str(field['format'])]}")


def _is_date(text: str) -> bool:
    from datetime import date

    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


def _is_time(text: str) -> bool:
    from datetime import datetime

    try:
        return len(text) > len("0000-00-00") and bool(datetime.fromisoformat(text))
    except ValueError:
        return False


_FORMATS: Mapping[str, Callable[[str], bool]] = MappingProxyType(
    {
        "email": lambda text: re.fullmatch(r"[^@\s]+@[^@\s]+", text) is not None,
        "uri": lambda text: re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:\S+", text) is not None,
        "date": _is_date,
        "date-time": _is_time,
    }
)

"""Fills in an elicitation form in the terminal, field by field.

It supports the flat schemas that the specification allows in a form. A typed line is parsed according to the type of
the field and validated against its schema; an invalid value is asked for again.

Answers elicitation and sampling requests of a server in the terminal, or declines them.

One request at a time, since there is one user. Without a terminal a request is declined, with a notice on stderr.
Whether anything was declined decides the exit code.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import trunkline.types as t
from trunkline.cli.ui.output import block_text, clip, one_line
from trunkline.cli.ui.terminal import EndOfInput, Screen, Terminal, is_interactive
from trunkline.errors import RequestFailed

__all__ = ["SAMPLING_REJECTED", "FormDismissed", "TerminalRequestHandler", "display_host", "fill_form", "form_summary"]

_NOTHING = object()
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
        typed = await terminal.ask(f"{one_line(name)}{hint}: ")
        if typed in _WAYS_OUT:
            raise FormDismissed(_WAYS_OUT[typed])
        try:
            return _read(typed, field) if typed else _left_out(default, required=required)
        except _InvalidValue as problem:
            terminal.show(f"  {problem}")


def _left_out(default: Any, *, required: bool) -> Any:
    if default is _NOTHING and required:
        raise _InvalidValue("a value is required (:decline declines, :cancel cancels)")
    return default


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
    lines = [title] if title != name else []
    lines += [f"  {description}"] if description else []
    for number, (value, label) in enumerate(_choices(field), 1):
        lines.append(f"  {number}. {label if label == value else f'{label} ({value})'}")
    hint = _HINTS.get(str(field.get("format") or field.get("type")))
    lines += [f"  {hint}"] if hint else []
    return [_indented(line) for line in lines]


def _indented(line: str) -> str:
    """Make a line safe and keep its indentation."""
    return line[: len(line) - len(line.lstrip())] + one_line(line)


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
    if kind == "array":
        value: Any = [_parse_choice(part.strip(), _choices(field)) for part in typed.split(",") if part.strip()]
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


#: The error code of a declined sampling request, as in the examples of the specification.
SAMPLING_REJECTED = -1

_CONSENT: Mapping[str, str] = MappingProxyType(
    {"yes": "accept", "no": "decline", "decline": "decline", "cancel": "cancel"}
)
_REVIEW: Mapping[str, str] = MappingProxyType({**_CONSENT, "edit": "edit"})


class TerminalRequestHandler:
    """Handler of the server's elicitation and sampling requests."""

    def __init__(self, screen: Screen, *, no_input: bool) -> None:
        """Ask in the terminal, if there is one and ``no_input`` is not set."""
        self._screen = screen
        self._terminal = Terminal(screen) if not no_input and is_interactive() else None
        self._why = "--no-input was given" if no_input else "there is no terminal to ask in"
        #: Held while a question is being asked: there is one user.
        self.terminal_lock = asyncio.Lock()
        #: True if a request was declined or cancelled.
        self.denied = False

    # --- elicitation -------------------------------------------------------------------------------------------------

    async def elicit(self, question: t.ElicitRequestParams) -> t.ElicitResult:
        """Answer an elicitation; forms for credentials and deceptive URLs are declined without being shown."""
        refusal = _refusal(question)
        if refusal is not None:
            self._decline("asks", question.message, refusal)
            return t.ElicitResult(action="decline")
        if self._terminal is None:
            self._decline("asks", question.message)
            return t.ElicitResult(action="decline")
        async with self.terminal_lock:
            self._terminal.discard_typeahead()
            try:
                answer = await self._elicited(self._terminal, question)
            except EndOfInput:
                answer = t.ElicitResult(action="cancel")
            except FormDismissed as way_out:
                answer = t.ElicitResult(action="decline" if way_out.action == "decline" else "cancel")
        self.denied = self.denied or answer.action != "accept"
        return answer

    async def _elicited(self, terminal: Terminal, question: t.ElicitRequestParams) -> t.ElicitResult:
        terminal.show(f"The server asks:\n{_quote_lines(question.message)}")
        if question.mode == "url":
            return await _page(terminal, question.url or "")
        return await _form(terminal, question.requested_schema or {})

    # --- sampling ----------------------------------------------------------------------------------------------------

    async def sample(self, question: t.CreateMessageRequestParams) -> str:
        """Answer a sampling request with what the user types in place of a model.

        Raises:
            RequestFailed: the request is declined; the message is that of the specification.
        """
        if self._terminal is None:
            self._decline("asks for a model's answer to", _messages(question))
        else:
            async with self.terminal_lock:
                self._terminal.discard_typeahead()
                try:
                    return await _typed(self._terminal, question)
                except (EndOfInput, FormDismissed):
                    self.denied = True
        raise RequestFailed("User rejected sampling request", code=SAMPLING_REJECTED)

    def _decline(self, verb: str, what: str, why: str | None = None) -> None:
        self.denied = True
        self._screen.line(f'trunkline: the server {verb} "{clip(one_line(what), 200)}": declined, {why or self._why}')


def _refusal(question: t.ElicitRequestParams) -> str | None:
    """Return why a request is declined without asking; None if it may be asked."""
    from trunkline.host.server_requests.elicitation import InvalidPageUrl, credentials_in, parse_page_url

    if question.mode == "url":
        try:
            parse_page_url(question.url or "")
        except InvalidPageUrl as problem:
            return str(problem)
        return None
    asked = credentials_in(question.message, question.requested_schema or {})
    named = one_line(", ".join(asked))
    return f"credentials are never entered in a form ({named})" if asked else None


def _quote_lines(text: str) -> str:
    """Quote a server's text line by line, so that it cannot pass for output of this program."""
    return "\n".join(f"  | {line}" for line in text.splitlines())


async def _form(terminal: Terminal, schema: Mapping[str, Any]) -> t.ElicitResult:
    """Ask for the fields of a form; with several fields, confirm the answers before they are sent."""
    fields = schema.get("properties") or {}
    if not fields:
        action = await terminal.choose("Accept? yes, no (decline) or cancel: ", _CONSENT)
        return _result(action, {})
    terminal.show("(Enter accepts the value in brackets or skips; :decline declines, :cancel cancels.)")
    content: dict[str, Any] = {}
    while True:
        content = await fill_form(terminal, schema, content)
        if len(fields) == 1:
            return _result("accept", content)
        terminal.show(f"To be sent:\n{form_summary(content)}")
        action = await terminal.choose("Send? [yes], no (decline), edit or cancel: ", _REVIEW, default="yes")
        if action != "edit":
            return _result(action, content)


def _result(action: str, content: dict[str, Any]) -> t.ElicitResult:
    if action == "accept":
        return t.ElicitResult(action="accept", content=content)
    return t.ElicitResult(action="decline" if action == "decline" else "cancel")


async def _page(terminal: Terminal, url: str) -> t.ElicitResult:
    """Show the page that the server wants opened; only the user opens it."""
    terminal.show(f"It wants you to open this page in a browser:\n  {one_line(url)}\n  at {display_host(url)}")
    from trunkline.host.server_requests.elicitation import parse_page_url

    for warning in parse_page_url(url).warnings:
        terminal.show(f"Careful: {one_line(warning)}.")
    terminal.show("Open it yourself if you trust that name. The server may see what you enter there.")
    return _result(await terminal.choose("Did you open it? yes, no (decline) or cancel: ", _CONSENT), {})


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


async def _typed(terminal: Terminal, question: t.CreateMessageRequestParams) -> str:
    """Show the request for the model, and read the user's answer."""
    terminal.show(f"The server asks for a model's answer ({_preferences(question)}):")
    if question.system_prompt:
        terminal.show(_quote_lines(f"system: {question.system_prompt}"))
    terminal.show(_quote_lines(_messages(question)))
    terminal.show("(You answer in place of the model. End a line with \\ to continue on the next; :decline declines.)")
    lines: list[str] = []
    while True:
        line = await terminal.ask("more: " if lines else "answer: ")
        if line in (":decline", ":cancel"):
            raise FormDismissed("decline")
        if line.endswith("\\"):
            lines.append(line[:-1])
        elif line or lines:
            return "\n".join([*lines, line])


def _preferences(question: t.CreateMessageRequestParams) -> str:
    hints = (question.model_preferences and question.model_preferences.hints) or []
    names = ", ".join(one_line(hint.name) for hint in hints if hint.name)
    return f"at most {question.max_tokens} tokens" + (f", from {names}" if names else "")


def _messages(question: t.CreateMessageRequestParams) -> str:
    lines = []
    for message in question.messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        lines += [f"{message.role}: {block_text(block)}" for block in blocks]
    return "\n".join(lines)

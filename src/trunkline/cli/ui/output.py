"""Writes output: text made safe for a terminal, tables and JSON, with known secrets redacted.

Every other module of the command line prints through this one. Text from a server (names, descriptions, results,
errors, log lines) may hold control characters that move the cursor, recolour earlier output or reverse the reading
direction; they are shown as escapes, also when the output is not a terminal, since a pager or ``cat`` brings it to
one. JSON has its own escapes for them. Secrets are redacted in everything the command says about itself; a server's
answer belongs to the user and is left as it is.

Colour is for terminals: ``FORCE_COLOR`` adds it elsewhere; ``--no-color``, ``NO_COLOR`` and ``TERM=dumb`` remove it.
Painting and tables are a few functions here, so that a short command loads no library for them.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import zip_longest
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from trunkline.protocol.printable import UNSAFE, printable

__all__ = [
    "RunSecrets",
    "block_text",
    "change_lines",
    "clip",
    "clip_middle",
    "colors_enabled",
    "contents_text",
    "counted",
    "current_secrets",
    "error_document",
    "is_terminal",
    "one_line",
    "owns_process",
    "paint",
    "print_bytes",
    "print_json",
    "print_notice",
    "print_painted",
    "print_result",
    "print_table",
    "print_text",
    "quote_lines",
    "redact",
    "redact_json",
    "result_text",
    "save_bytes",
    "size_text",
    "table",
    "terminal_width",
    "wire_json",
    "without_color",
    "wrap_lines",
    "writes_json_logs",
]

if TYPE_CHECKING:
    import trunkline.types as t
    from trunkline.host.events import DefinitionInspected
    from trunkline.host.secrets.registry import SecretRegistry


class RunSecrets:
    """The secret registry of one run, created when it is first needed."""

    def __init__(self, *, owns_process: bool = False) -> None:
        """Start without a registry."""
        #: Whether the process exists for this run, so that it may be forked; not so if another program called ``main``.
        self.owns_process = owns_process
        self._registry: SecretRegistry | None = None

    @property
    def registry(self) -> SecretRegistry:
        """The registry; imported and created on first use."""
        if self._registry is None:
            from trunkline.host.secrets.registry import SecretRegistry

            self._registry = SecretRegistry()
        return self._registry

    def hide(self, value: Any) -> Any:
        """Redact the known secrets in a text or a JSON value."""
        return value if self._registry is None else self._registry.hide_in(value)


def current_secrets() -> SecretRegistry:
    """Return the secret registry of the current run."""
    return _run_secrets().registry


def owns_process() -> bool:
    """Return whether this process was started for the current command, not by a program that calls ``main``."""
    return _run_secrets().owns_process


def redact(text: str) -> str:
    """Redact the secrets known to the current run in a text."""
    return str(_run_secrets().hide(text))


def redact_json(value: Any) -> Any:
    """Redact the secrets known to the current run in all strings of a JSON value."""
    return _run_secrets().hide(value)


def _run_secrets() -> RunSecrets:
    context = click.get_current_context(silent=True)
    found = None if context is None else context.find_object(RunSecrets)
    return RunSecrets() if found is None else found


_SPACES = re.compile(r"\s+")


def one_line(text: str) -> str:
    """Return a text made safe and put on one line."""
    return _SPACES.sub(" ", printable(text).strip())


def counted(count: int, what: str) -> str:
    """Return a number with its noun: ``1 tool``, ``2 tools``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def clip(text: str, width: int) -> str:
    """Cut a safe line to a number of columns; dots mark the cut."""
    if _columns(text) <= width:
        return text
    kept = ""
    for character in text:
        if _columns(kept + character) > max(width - 3, 0):
            break
        kept += character
    return (kept.rstrip() + "...")[: max(width, 0)]


def quote_lines(text: str, *, most: int | None = None) -> str:
    """Quote foreign text line by line, so that it cannot pass for output of this program; at most ``most`` lines."""
    lines = printable(text).splitlines()
    shown_lines = [f"  | {line}" for line in lines[:most]]
    left_out = len(lines) - len(shown_lines)
    return "\n".join([*shown_lines, *([f"  ({left_out} more lines)"] if left_out else [])])


#: The mark of a line, which each of its continuations gets: that of quoted text, or the kind of a line.
_MARK = re.compile(r" *(?:\| |\[[^\s\]]+\] )?")
_CONTINUATION = "    "
#: A URL on a line of its own stays whole, so that it can be opened and copied; it has no spaces to imitate ours with.
_URL_LINE = re.compile(r" *https?://[!-~]+")


def wrap_lines(text: str, width: int) -> str:
    """Wrap safe text at a number of columns. Each continuation is marked or indented.

    A terminal would wrap a long line to its first column, where foreign text could pass for output of this program.
    """
    return "\n".join(piece for line in text.split("\n") for piece in _wrap_line(line.expandtabs(4), width))


def _wrap_line(line: str, width: int) -> list[str]:
    if _columns(line) <= width or _URL_LINE.fullmatch(line):
        return [line]
    found = _MARK.match(line)
    mark = "" if found is None else found.group()
    lead = mark if mark.strip() else f"{mark}{_CONTINUATION}"
    # A terminal that is narrower than this has no room for a question.
    first, *others = _break_line(line, max(width, len(lead) + 10), len(lead))
    return [first, *(f"{lead}{piece}" for piece in others)]


def _break_line(line: str, width: int, indent: int = 0) -> list[str]:
    """Break a line into pieces of a number of columns, after the first one less those of an indent."""
    pieces: list[str] = []
    start = space = columns = 0
    for at, character in enumerate(line):
        if columns + _columns(character) > width:
            # At a space, unless that would leave most of the line empty.
            end = at if character == " " else space if space > (start + at) // 2 else at
            pieces.append(line[start:end])
            start = end + (line[end] == " ")
            columns = indent + _columns(line[start:at])
        if character == " ":
            space = at
        columns += _columns(character) if at >= start else 0
    return [*pieces, line[start:]]


def _clip_words(text: str, width: int) -> str:
    """Cut a safe line to a number of columns, after a word if there is one; dots mark the cut."""
    if _columns(text) <= width:
        return text
    piece = _break_line(text, max(width - len(" ..."), 1))[0].rstrip()
    return f"{piece}{' ' if text[len(piece) :].startswith(' ') else ''}..."


def clip_middle(text: str, width: int) -> str:
    """Cut a safe line in the middle: an error begins with what was done and ends with the cause."""
    if _columns(text) <= width:
        return text
    head = clip(text, width // 3)
    tail = text[-(width - _columns(head)) :]
    while tail and _columns(head + tail) > width:
        tail = tail[1:]
    return head + tail


def _columns(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def size_text(size: int) -> str:
    """Format a size in bytes with a unit."""
    amount = float(size)
    for unit in ("bytes", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


# --- colour ----------------------------------------------------------------------------------------------------------


#: The styles, as parameters of the escape sequence.
_STYLES: Mapping[str, str] = MappingProxyType(
    {"heading": "1", "name": "36", "ok": "32", "warn": "33", "fail": "1;31", "dim": "2"}
)
_no_color: ContextVar[bool] = ContextVar("trunkline_no_color", default=False)


@contextmanager
def without_color(disabled: bool) -> Iterator[None]:
    """Disable colour in this context, if ``disabled``."""
    token = _no_color.set(disabled)
    try:
        yield
    finally:
        _no_color.reset(token)


def is_terminal(stream: Any) -> bool:
    """Return whether a stream is a terminal that understands escape sequences."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def colors_enabled(stream: Any) -> bool:
    """Return whether output to a stream is coloured."""
    if _no_color.get() or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") != "0":
        return True
    return is_terminal(stream)


def paint(text: str, style: str, *, stream: Any = None) -> str:
    """Return a safe text in a style, for stdout unless another stream is given; unchanged where colour is off."""
    if not text or not colors_enabled(sys.stdout if stream is None else stream):
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


# --- writing ---------------------------------------------------------------------------------------------------------


def print_text(text: str) -> None:
    """Print text to stdout, made safe."""
    click.echo(printable(text))


def print_bytes(data: bytes) -> None:
    """Write raw bytes to stdout."""
    click.echo(data, nl=False)


def writes_json_logs() -> bool:
    """Return whether this process writes its log lines as JSON."""
    logs = sys.modules.get("logging")
    return logs is not None and any(getattr(each, "shows_requests", False) for each in logs.root.handlers)


def print_notice(text: str, *, failure: bool = False) -> None:
    """Print a message of the command itself to stderr, made safe and with secrets redacted."""
    if writes_json_logs():
        import logging

        logging.getLogger("trunkline.notices").log(logging.ERROR if failure else logging.INFO, "%s", redact(text))
        return
    prefix = paint("trunkline:", "fail", stream=sys.stderr) if failure else "trunkline:"
    click.echo(f"{prefix} {printable(redact(text))}", err=True, color=colors_enabled(sys.stderr))


def print_painted(text: str) -> None:
    """Print text to stdout that was made safe before it was painted."""
    click.echo(text, color=colors_enabled(sys.stdout))


def print_json(value: Any) -> None:
    """Print a value to stdout as one JSON document, in its wire form."""
    click.echo(wire_json(value, indent=2))


def error_document(error: Exception) -> dict[str, Any]:
    """Return an error as JSON, with secrets redacted: as it came over the wire or, if it did not, its message."""
    from trunkline.errors import RequestFailed

    if not isinstance(error, RequestFailed):
        return {"error": {"message": redact(str(error))}}
    data = {} if error.data is None else {"data": redact_json(error.data)}
    return {"error": {"code": error.code, "message": redact(error.message), **data}}


def wire_json(value: Any, *, indent: int = 0) -> bytes:
    """Encode a value as JSON in its wire form, with characters that could control a terminal escaped."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=indent or -1).decode()
    # Such a character can occur only inside a string, where JSON allows it to be written as an escape.
    return UNSAFE.sub(_json_escape, text).encode()


def _json_escape(found: re.Match[str]) -> str:
    pair = found.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{pair[at]:02x}{pair[at + 1]:02x}" for at in range(0, len(pair), 2))


# --- tables ----------------------------------------------------------------------------------------------------------


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, one_line_rows: bool = False) -> None:
    """Print rows under headings; in a terminal, long cells are wrapped in their columns or cut to one line a row."""
    heading, *lines = _table_lines(headings, rows, wrapped=not one_line_rows)
    print_painted(paint("  ".join(heading).rstrip(), "heading"))
    for name, *cells in lines:
        print_painted("  ".join([paint(name.rstrip(), "name") + name[len(name.rstrip()) :], *cells]).rstrip())


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format rows under headings, each on one line; in a terminal, long cells are cut."""
    return "\n".join("  ".join(line).rstrip() for line in _table_lines(headings, rows, wrapped=False))


def _table_lines(headings: Sequence[str], rows: Sequence[Sequence[str]], *, wrapped: bool) -> list[list[str]]:
    """Return the lines of a table as padded cells."""
    cells = [list(headings), *([one_line(cell) for cell in row] for row in rows)]
    widths = _fit_columns([max(_columns(row[at]) for row in cells) for at in range(len(headings))], wrapped=wrapped)
    lines: list[list[str]] = []
    for row in cells:
        pieces = [
            _break_line(cell, width) if wrapped else [_clip_words(cell, width)]
            for cell, width in zip(row, widths, strict=True)
        ]
        lines += [list(line) for line in zip_longest(*pieces, fillvalue="")]
    return [[cell + " " * (width - _columns(cell)) for cell, width in zip(line, widths, strict=True)] for line in lines]


_NARROWEST = 10  # Two short words.


def _fit_columns(widths: list[int], *, wrapped: bool) -> list[int]:
    """Narrow the widest columns until a table fits into the terminal.

    The first column has the names, which users copy into their next command: it is never cut, and wrapped last.
    """
    room = terminal_width() - 2 * (len(widths) - 1)
    first = min(widths[0], max(room // 2, _NARROWEST)) if wrapped else widths[0]
    others = list(widths[1:])
    while others and first + sum(others) > room and max(others) > _NARROWEST:
        widest = max(others)
        next_widest = max([width for width in others if width < widest], default=0)
        shared = others.count(widest)
        excess = first + sum(others) - room
        narrowed = max(next_widest, widest - -(-excess // shared), _NARROWEST)
        others = [narrowed if width == widest else width for width in others]
    return [first, *others]


def terminal_width(stream: Any = None) -> int:
    """Return the width of the terminal on a stream, by default stdout; without one, there is no limit."""
    try:
        return os.get_terminal_size((sys.stdout if stream is None else stream).fileno()).columns or 80
    except (OSError, ValueError):
        return 1_000_000


def block_text(block: Any) -> str:
    """Format one content block."""
    import trunkline.types as t

    match block:
        case t.TextContent():
            return block.text
        case t.ImageContent() | t.AudioContent():
            kind = "image" if isinstance(block, t.ImageContent) else "audio"
            return f"[{kind}: {one_line(block.mime_type)}, {_blob_size(block.data)}]"
        case t.ResourceLink():
            return f"[link: {one_line(block.title or block.name)} <{one_line(block.uri)}>]"
        case t.EmbeddedResource():
            return contents_text(block.resource)
        case t.ToolUseContent():
            return f"[wants to call {one_line(block.name)} with {wire_json(block.input).decode()}]"
        case t.ToolResultContent():
            return "\n".join(block_text(each) for each in block.content)
        case _:
            return f"[{type(block).__name__}]"


_JSON_TOKEN = re.compile(
    r'(?P<name>"(?:[^"\\]|\\.)*")(?=\s*:)|(?P<ok>"(?:[^"\\]|\\.)*")|(?P<warn>-?\d[\d.eE+-]*|true|false|null)'
)
_LONGEST_PAINTED = 200_000  # More than anyone reads.


def print_result(text: str) -> None:
    """Print a result to stdout, made safe; in a terminal, JSON is indented and coloured."""
    if not is_terminal(sys.stdout):
        print_text(text)
        return
    print_painted("\n".join(_painted_json(text) or [printable(text)]))


def _painted_json(text: str) -> list[str]:
    """Return a JSON object or array as indented and painted lines; nothing if the text is none, or too long."""
    if not text.lstrip().startswith(("{", "[")) or len(text) > _LONGEST_PAINTED:
        return []
    import msgspec

    try:
        msgspec.json.decode(text)
        indented = msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []
    safe = UNSAFE.sub(_json_escape, indented)
    return [_JSON_TOKEN.sub(lambda found: paint(found.group(), found.lastgroup or "dim"), safe)]


def result_text(content: Sequence[Any], structured: Any) -> str:
    """Format the result of a tool: its content blocks or, if it has none, its structured content."""
    if not content and structured is not None:
        return wire_json(structured, indent=2).decode()
    return "\n".join(block_text(block) for block in content)


def contents_text(contents: t.ResourceContents) -> str:
    """Format the contents of a resource."""
    if contents.text is not None:
        return contents.text
    kind = one_line(contents.mime_type or "unknown type")
    return f"[binary: {one_line(contents.uri)}, {kind}, {_blob_size(contents.blob or '')}]"


def save_bytes(contents: t.ResourceContents, path: str) -> None:
    """Write the raw contents of a resource to a file; ``-`` is stdout.

    Raises:
        CommandError: the server sent invalid base64, or the file cannot be written.
    """
    from base64 import b64decode

    from trunkline.cli.exit_codes import CommandError, Exit

    try:
        data = (
            b64decode(contents.blob or "", validate=True)
            if contents.text is None
            else contents.text.encode("utf-8", "surrogatepass")
        )
    except ValueError as error:
        raise CommandError(f"the server sent invalid base64: {error}", Exit.FAILED) from error
    if path == "-":
        print_bytes(data)
        return
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}", Exit.CONFIG) from error


def _blob_size(data: str) -> str:
    return size_text(len(data) * 3 // 4 - data[-2:].count("="))


# Per server: an update may have changed all definitions of a server.
_MOST_LINES = 3
# The kinds that are reported, and the words for the remaining ones.
_MORE: Mapping[str, str] = MappingProxyType({"changed": " changed", "hidden": ", hidden by the scan"})


def change_lines(inspected: Iterable[DefinitionInspected]) -> list[str]:
    """Return a line for each changed or hidden definition with the command to accept it; of many, a few and a count."""
    groups: dict[tuple[str, str], list[DefinitionInspected]] = {}
    for each in inspected:
        if each.what in _MORE:
            groups.setdefault((each.server, each.what), []).append(each)
    lines: list[str] = []
    for (server, what), changes in groups.items():
        lines += [one_line(f"{_item_label(each)}: {_reason(each)}") for each in changes[:_MOST_LINES]]
        if more := len(changes[_MOST_LINES:]):
            target = shlex.quote(server)
            told = f"{counted(more, 'more definition')}{_MORE[what]}; to see them, run: trunkline pins diff {target}"
            lines.append(one_line(f"{server}: {told}; to accept them all: trunkline pins accept {target}"))
    return lines


def _reason(each: DefinitionInspected) -> str:
    if each.what == "changed":
        return each.reason
    from trunkline.host.integrity.pins.views import pin_target

    target = pin_target(each.server, each.kind, each.name)
    return f"hidden, cannot be used: {each.reason}; to accept it: trunkline pins accept {target}"


def _item_label(each: DefinitionInspected) -> str:
    return f"{each.server}/{each.name} ({each.kind})" if each.name else f"{each.server} ({each.kind})"

"""Writes the reference pages that are made from the source: ``limits.md`` and ``errors.md``.

Run it from anywhere with the package installed: ``python docs/make_reference.py``. A test compares the pages with what
it would write.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from trunkline import errors
from trunkline.protocol import limits
from trunkline.protocol.error_codes import CODES
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import REVISION_NAMES, Span

__all__ = ["errors_page", "limits_page", "main"]

_REFERENCE = Path(__file__).parent / "reference"
_NOTE = "<!-- made by docs/make_reference.py from the source: change it there -->\n"
_FIELD = re.compile(r"((?: +#: .+\n)+) +(\w+): (\w+) = ")


def limits_page() -> str:
    """Make the table of all limits from the comments of their fields."""
    defaults = Limits()
    rows = []
    for comment, name, kind in _FIELD.findall(inspect.getsource(limits)):
        says = " ".join(line.strip().removeprefix("#: ") for line in comment.strip().split("\n"))
        rows.append(f"| `{name}` | {kind} | {_value(name, getattr(defaults, name))} | {says} |")
    return "\n".join(
        [
            "# Limits",
            "",
            _NOTE,
            "Every cap on what the other side may make us hold, read or wait for is a field of `Limits`. Sizes are in",
            "bytes, times in seconds.",
            "",
            "```python",
            "from trunkline import Client, Limits, Server",
            "",
            'server = Server("small", limits=Limits(message_bytes=1024 * 1024, in_flight=64))',
            "client = Client(server, limits=Limits(idle_seconds=10))",
            "```",
            "",
            "| field | type | default | what it caps |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _value(name: str, value: float) -> str:
    if name.endswith("_bytes"):
        return f"{value // (1024 * 1024)} MiB" if value >= 1024 * 1024 else f"{value // 1024} KiB"
    return f"{value:g} s" if name.endswith("_seconds") else f"{value:g}"


def errors_page() -> str:
    """Make the tree of exceptions and the table of codes."""
    tree = inspect.getdoc(errors) or ""
    drawing = tree.split("::\n\n", 1)[1].split("\n\nOnly", 1)[0]
    return "\n".join(
        [
            "# Errors",
            "",
            _NOTE,
            "Everything Trunkline raises is a `TrunklineError`. All are in `trunkline.errors`; those a program catches",
            "most are also in `trunkline`.",
            "",
            "```text",
            inspect.cleandoc(drawing),
            "```",
            "",
            "Only `RequestFailed` has a JSON-RPC code: it crossed the wire, or is raised by a handler to cross it. A",
            "tool that fails in a way the model should read raises `ToolError`; any other exception of a handler is",
            "logged whole on the server and answered without its text.",
            "",
            "| exception | means |",
            "|---|---|",
            *(f"| `{name}` | {_first_line(getattr(errors, name))} |" for name in errors.__all__ if name[0].isupper()),
            "",
            "## Codes",
            "",
            "| code | name | is sent when | revisions |",
            "|---|---|---|---|",
            *(f"| {each.code} | {each.name} | {each.when} | {_revisions(each.span)} |" for each in CODES),
            "",
        ]
    )


def _first_line(kind: type) -> str:
    return (inspect.getdoc(kind) or "").split("\n")[0].replace("``", "`")


def _revisions(span: Span) -> str:
    names = REVISION_NAMES[span.since : span.until + 1]
    if names == REVISION_NAMES:
        return "all"
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def main() -> None:
    """Write the pages."""
    (_REFERENCE / "limits.md").write_text(limits_page(), encoding="utf-8")
    (_REFERENCE / "errors.md").write_text(errors_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
